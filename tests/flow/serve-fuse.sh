#!/bin/bash
# granary serve --fuse: files are the images, for their owner alone; a killed front is started again and what it had
# taken is answered by the next, also while the store is silent; SIGTERM takes the mount away, and so does the next
# start what a killed server left.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || skip "no /dev/fuse here, or not root: the front for FUSE is not tested"
IFS=.- read -r major minor _ < <(uname -r)
[ $((major * 1000 + minor)) -ge 6009 ] || skip "before Linux 6.9 a killed front's reads cannot be taken over: the front for FUSE is not tested"

mkdir "$W/tree" "$W/tree2"
head -c 20000000 /dev/urandom >"$W/tree/file"
echo two >"$W/tree2/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/tree2" "$W/store/two" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/one"
"$GRANARY" export -q "$W/store/two" "$W/two"

serve_silent "$W/store"
store=$STORE_URL
dir=$W/images
extra_cleanup() { umount -l "$dir" 2>/dev/null; }

serve() {
    background "$GRANARY" serve --fuse "$dir" --warm none --disk-timeout "$DISK_TIMEOUT" "$@" >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
    front_is_there
}
front_is_there() { FRONT=$(pgrep -P "$SERVE"); }
another_front() {
    local before=$FRONT
    front_is_there && [ "$FRONT" != "$before" ]
}
mounted() { grep -qF " $dir " /proc/self/mountinfo; }
counter() { "$GRANARY" status --quick "$dir" --json | jq ".counters.granary_$1"; }
# past_cache FILE [SKIP COUNT]: its bytes, read past the page cache
past_cache() { dd if="$1" bs=1M iflag=direct status=none ${2:+skip="$2" count="$3"}; }

echo "== files are the images"
serve "$store/one" "$store/two" --cache "$W/cache:64M" --fill off --readahead 0
[ "$(cat "$W/serve.out")" = "serving $store/one at $dir/one"$'\n'"serving $store/two at $dir/two" ] || fail "$(cat "$W/serve.out")"
[ "$(cd "$dir" && stat -c '%n %A %U %s' *)" = "one -r-------- root $(stat -c %s "$W/one")"$'\n'"two -r-------- root $(stat -c %s "$W/two")" ] ||
    fail "listed: $(ls -l "$dir")"
cmp "$dir/two" "$W/two"
past_cache "$dir/two" | cmp - "$W/two"
refused 1 "Read-only file system" touch "$dir/three"
refused 1 "No such file" cat "$dir/three"
getfattr --only-values -n user.granary "$dir/one" | grep "image $(digest_of "$W/store/one") " >"$W/null" || fail "the image is not told"
grep -zqFx "control=$dir.control" "/proc/$FRONT/cmdline" || fail "ps shows other parameters: $(tr '\0' ' ' <"/proc/$FRONT/cmdline")"
! setpriv --reuid 65534 --clear-groups ls "$dir" 2>"$W/null" || fail "others may look"
refused 2 "one kind of client" "$GRANARY" serve "$store/one" --fuse "$W/other" --socket "$W/sock"
refused 1 "already" "$GRANARY" serve "$store/two" --fuse "$dir" --control "$W/other.control"

echo "== the store is silent: what is cached is read, the rest waits; a killed reader is in nobody's way"
past_cache "$dir/one" 0 4 | cmp -n 4194304 - "$W/one"
# and the index, without which the next front would ask the store
cached() {
    "$GRANARY" status "$dir" --json |
        jq -e '.exports[0].cached.cached_bytes >= 4194304 and .counters.granary_fetch_in_flight == 0' >"$W/null"
}
wait_for 60 cached
touch "$W/dead"
readers=()
for i in 6 8 10; do
    past_cache "$dir/one" $i 1 >"$W/read-$i" &
    readers+=($!)
done
dd if="$dir/one" bs=1M iflag=direct status=none skip=12 count=1 >"$W/read-12" &
killed=$!
waiting() { [ "$(counter fetch_in_flight)" -gt 0 ]; }
wait_for 60 waiting
kill -9 $killed
for _ in 1 2 3; do past_cache "$dir/one" 0 4 | cmp -n 4194304 - "$W/one" || fail "what is cached is not read"; done

echo "== the front is killed with reads under way: they are answered by the next one"
kill -9 "$FRONT"
wait_for 60 another_front
for _ in 1 2 3; do past_cache "$dir/one" 0 4 | cmp -n 4194304 - "$W/one" || fail "what is cached is not read after a restart"; done
rm "$W/dead"
for i in 6 8 10; do
    wait "${readers[$((i / 2 - 3))]}" || fail "a read failed: $(cat "$W/serve.err")"
    cmp -n 1048576 -i $((i * 1048576)):0 "$W/one" "$W/read-$i" || fail "other bytes"
    [ "$(stat -c %s "$W/read-$i")" = 1048576 ] || fail "a short read"
done
wait $killed || true

echo "== killed again and again under readers"
for _ in 1 2 3; do
    for i in 1 2 3 4; do
        (past_cache "$dir/one" | cmp - "$W/one") >"$W/cmp-$i" 2>&1 &
        readers[$((i - 1))]=$!
    done
    kill -9 "$FRONT"
    wait_for 60 another_front
    for i in 1 2 3 4; do wait "${readers[$((i - 1))]}" || fail "a reader failed: $(cat "$W/cmp-$i" "$W/serve.err")"; done
done

echo "== another build of the program in its place, under readers"
mkdir -p "$W/new/cli" "$W/new/fuse"
cp "$GRANARY" "$W/new/cli/"
cp "$GRANARY_BUILD/fuse/granary-fuse" "$W/new/fuse/"
for i in 1 2 3 4; do
    (past_cache "$dir/one" | cmp - "$W/one") >"$W/cmp-$i" 2>&1 &
    readers[$((i - 1))]=$!
done
"$W/new/cli/granary" upgrade "$dir" >"$W/out" || fail "upgrade: $(cat "$W/serve.err")"
[ "$(readlink "/proc/$SERVE/exe")" = "$W/new/cli/granary" ] || fail "the supervisor is the one before"
front_is_there
[ "$(readlink "/proc/$FRONT/exe")" = "$W/new/fuse/granary-fuse" ] || fail "the front is the one before"
for i in 1 2 3 4; do wait "${readers[$((i - 1))]}" || fail "a reader failed: $(cat "$W/cmp-$i" "$W/serve.err")"; done

echo "== SIGTERM: the mount is gone, though a file is open"
exec 7<"$dir/one"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
! mounted || fail "the mount is left"
gone "$FRONT" || fail "the front is left"
[ ! -e "$dir.control" ] || fail "the control socket is left"
exec 7<&-

echo "== the server is killed: the front goes with it, and the next start takes the dead mount away"
serve "$store/one" --cache "$W/cache:64M"
kill -9 "$SERVE"
wait_for 60 gone "$FRONT"
dead() { ! ls "$dir" 2>"$W/err" && grep -q "not connected" "$W/err"; }
wait_for 60 dead
serve "$store/one" --cache "$W/cache:64M"
past_cache "$dir/one" | cmp - "$W/one"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

echo "== nothing is read from the store for longer than --timeout: EIO"
serve "$store/one" --cache "$W/empty:64M" --timeout 10s
touch "$W/dead"
refused 1 "Input/output error" past_cache "$dir/one"
rm "$W/dead"
answered() { past_cache "$dir/one" >"$W/copy"; }
wait_for 120 answered # a read that comes before the store is tried again may have to wait for longer than that
cmp "$W/copy" "$W/one"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

echo "== unmounted by hand: the server ends"
serve "$store/one" --cache "$W/cache:64M"
umount "$dir"
wait "$SERVE" || fail "unmounted: exit $?"
grep -q "$dir was unmounted" "$W/serve.err" || fail "$(cat "$W/serve.err")"

echo "== a start that fails says why and leaves no mount"
refused 1 "granary-fuse does not start: " "$GRANARY" serve "$store/one" --fuse "$dir" --cache /proc/none:1G
! mounted || fail "a failed start left a mount"
