#!/bin/bash
# granary mount --fuse for real: the tree is the same, status shows hits, refusals are clear, umount leaves nothing,
# and dead servers, interrupts and failures half-way do not either.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/mnt
extra_cleanup() { for d in "$dir" "$W/mnt2" "$W/mnt3/deep"; do "$GRANARY" umount --force "$d" 2>/dev/null; done; }
mkdir -p "$dir" "$W/mnt2" "$W/tree"
cp -a /usr/share/perl "$W/tree/perl" 2>"$W/null" || cp -a /usr/share/doc "$W/tree/doc"
head -c 9000000 /dev/urandom >"$W/tree/large"
printf 'x' >"$W/tree/"$'name\nwith newline'
mkdir "$W/tree/many"
(cd "$W/tree/many" && seq -f 'empty%g' 3000 | xargs touch)
"$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"
if grep -qw ext4 /proc/filesystems || modprobe -q ext4; then
    "$GRANARY" build -q --fs ext4 "$W/tree" "$W/store/ext4" >"$W/built"
fi
mkdir "$W/other"
"$GRANARY" build -q "$W/other" "$W/store/other" >"$W/built"

# nothing_left: of mounts below $W, processes, loop devices, state
nothing_left() {
    ! grep -F " $W/" /proc/self/mountinfo || fail "a mount is left"
    wait_for 60 no_loop_on "$STATE"
    [ ! -e "$STATE" ] || fail "$STATE is left: $(ls "$STATE")"
    for pid in $SERVER_PID $FRONT; do
        gone "$pid" || fail "process $pid is left"
    done
}

# mount_it IMAGE DIR: leaves what --json says in STATE, whose name is of these options and so of this test alone on the
# machine, and in SERVER_PID, and the process that answers in FRONT
mount_it() {
    "$GRANARY" mount --fuse --json --cache "$W/cache:200M" --disk-timeout "$DISK_TIMEOUT" "$@" >"$W/mount.json"
    STATE=$(dirname "$(jq -r .socket "$W/mount.json")")
    SERVER_PID=$(jq .server_pid "$W/mount.json")
    FRONT=$(pgrep -P "$SERVER_PID")
}

echo "== the tree is the same"
mount_it "$W/store/set" "$dir"
"$TREECMP" "$W/tree" "$dir"
grep -F " $dir " /proc/self/mounts | grep ' erofs ro,nosuid,nodev' >"$W/null" || fail "mounted with $(grep -F " $dir " /proc/self/mounts)"
! touch "$dir/x" 2>"$W/null" || fail "the mount is writable"
forget_pages "$dir/large"
cmp "$W/tree/large" "$dir/large"
"$GRANARY" status "$dir" --json | jq -e '.counters.granary_cache_hits_total > 0 and .hit_ratio > 0' >"$W/null" || fail "no hits"
"$GRANARY" status "$dir" | grep '^hits [1-9]' >"$W/null" || fail "status shows no hits"
"$GRANARY" status "$dir" | grep -Fx "    mounted on $dir" >"$W/null" || fail "status does not say where it is mounted"
log=$("$GRANARY" status "$dir" --json | jq -r .log)
[[ $log = "$LOGS_DIRECTORY"/serve-*.log && -f $log ]] || fail "the log is $log"
[ "$STATE/serve.log" -ef "$log" ] || fail "the server's directory does not lead to the log"
# Without a target all servers are shown, those of other tests too, which may come and go.
("$GRANARY" status --quick --json || true) | jq -e --arg dir "$dir" 'any(.servers[].exports[]?; .mounts == [$dir])' >"$W/null" || fail "not among the machine's servers"

echo "== refusals: in use, mounted already, not empty, foreign, unknown"
refused() {
    local text=$1
    shift
    ! "$@" >"$W/out" 2>"$W/err" || fail "not refused: $*"
    grep -qE "$text" "$W/err" || { cat "$W/err"; fail "no '$text' said by: $*"; }
}
(cd "$dir" && refused "in use" "$GRANARY" umount "$dir")
cmp "$W/tree/large" "$dir/large" || fail "the refused umount broke the mount"
refused "mount point already" "$GRANARY" mount --fuse "$W/store/set" "$dir"
refused "not empty" "$GRANARY" mount --fuse "$W/store/set" "$W/tree"
refused "was not mounted by granary" "$GRANARY" umount /proc
"$GRANARY" umount "$W/mnt2" 2>"$W/err" || fail "umount of what is not mounted: exit $?"
grep -q "$W/mnt2 is not mounted" "$W/err" || fail "not said: $(cat "$W/err")"
refused "nothing is mounted on $dir/many" "$GRANARY" umount "$dir/many"
refused "nothing is mounted on $W/built" "$GRANARY" umount "$W/built"
refused "no such directory" "$GRANARY" umount "$W/nowhere"
refused "no such directory.*--mkdir" "$GRANARY" mount --fuse "$W/store/set" "$W/nowhere"
refused "no such directory.*--mkdir" "$GRANARY" mount --fuse http://127.0.0.1:1/set "$W/nowhere" # before a store is asked
refused "it has none" "$GRANARY" mount --fuse -C 4 "$W/store/set" "$W/mnt2"
refused "no server listens" "$GRANARY" mount --fuse --socket "$W/none.sock" "$W/store/set" "$W/mnt2"
refused "has no export .other" "$GRANARY" mount --fuse --socket "$STATE/fuse" "$W/store/other" "$W/mnt2"
refused "holds|lock|in use" "$GRANARY" mount --fuse --cache "$W/cache:150M" "$W/store/set" "$W/mnt2"
if command -v setpriv >"$W/null"; then
    chmod 755 "$W"
    refused "needs root" setpriv --reuid 65534 --clear-groups "$GRANARY" mount --fuse http://127.0.0.1:1/set "$W/mnt2"
    refused "needs root" setpriv --reuid 65534 --clear-groups "$GRANARY" umount "$W/mnt2"
fi
if [ ! -e /sys/module/nbd ] && ! modprobe -q nbd 2>"$W/null"; then
    echo "== without nbd in the kernel it is FUSE, with a line; what needs nbd is refused"
    refused "no nbd module.*--connections needs kernel nbd" "$GRANARY" mount -C 4 "$W/store/set" "$W/mnt2"
    "$GRANARY" mount --mkdir "$W/store/set" "$W/mnt3/deep" >"$W/out" 2>"$W/err"
    grep -q "no nbd module.*: mounting by FUSE" "$W/err" || fail "$(cat "$W/err")"
    grep -q "is mounted on $W/mnt3/deep (FUSE, /dev/loop" "$W/out" && grep -q "^cache: none on disk" "$W/out" || fail "$(cat "$W/out")"
    "$GRANARY" umount "$W/mnt3/deep"
fi

echo "== a second mount joins the server"
(cd "$STATE" && "$GRANARY" mount --fuse --socket fuse "$W/store/set" "$W/mnt2")
"$GRANARY" status "$W/mnt2" --json | jq -e '.exports[0].name == "set"' >"$W/null" || fail "status of a joined server"
"$GRANARY" status "$STATE/fuse.control" --json | jq -e --arg a "$dir" --arg b "$W/mnt2" '.exports[0].mounts | sort == ([$a, $b] | sort)' >"$W/null" || fail "not both mounts"
cmp "$W/tree/large" "$W/mnt2/large"
"$GRANARY" umount "$W/mnt2"
cmp "$W/tree/large" "$dir/large"

echo "== one that would join a server that is stopped does not wait for ever"
kill -STOP "$FRONT"
refused "$STATE/fuse accepts connections but does not answer" "$GRANARY" mount --fuse --socket "$STATE/fuse" "$W/store/set" "$W/mnt2"
kill -CONT "$FRONT"
cmp "$W/tree/large" "$dir/large"

echo "== umount leaves nothing, and the second time there is nothing to do"
"$GRANARY" umount "$dir"
nothing_left
"$GRANARY" umount --json "$dir" | jq -e '.unmounted == false' >"$W/null" || fail "the second umount"
[ -s "$log" ] || fail "the log is gone, or empty"
grep -qE '^20[0-9-]{8}T[0-9:]{8}Z info granary: serving .* at ' "$log" || fail "the log does not say what is served"
! grep -vE '^20[0-9-]{8}T[0-9:]{8}Z (error|warning|info|debug) ' "$log" >"$W/out" || fail "lines without time and level: $(cat "$W/out")"

echo "== the cache is kept: the store's packs may be gone"
mv "$W/store/packs" "$W/packs"
mount_it "$W/store/set" "$dir"
"$TREECMP" "$W/tree" "$dir"
"$GRANARY" umount "$dir"
nothing_left
mv "$W/packs" "$W/store/packs"

echo "== the front is killed under readers: they go on"
another_front() {
    local before=$FRONT
    FRONT=$(pgrep -P "$SERVER_PID") && [ "$FRONT" != "$before" ]
}
IFS=.- read -r major minor _ < <(uname -r)
if [ $((major * 1000 + minor)) -ge 6009 ]; then
    mount_it "$W/store/set" "$dir"
    for _ in 1 2 3; do
        forget_pages "$dir/large"
        "$TREECMP" "$W/tree" "$dir" &
        pid=$!
        kill -9 "$FRONT"
        wait_for 60 another_front
        wait $pid || fail "a reader saw the front's end: $(cat "$STATE/serve.log")"
    done
    "$GRANARY" umount "$dir"
    nothing_left
else
    echo "before Linux 6.9 readers do see it: not tested"
fi

echo "== the server is killed, a reader holds a file open: umount does not hang, and leaves nothing"
mount_it "$W/store/set" "$dir"
exec 7<"$dir/large"
kill -9 "$SERVER_PID"
wait_for 60 gone "$SERVER_PID" # which takes its time on a busy machine; until then the mount is one in use
wait_for 60 gone "$FRONT"
refused "in use, and its server is gone.*--force" "$GRANARY" umount "$dir"
"$GRANARY" umount --force "$dir" || fail "umount --force after the end of the server: exit $?"
exec 7<&-
wait_for 60 no_loop_on "$STATE"
nothing_left

# without_server COMMAND...: succeeds while the server answers nothing
without_server() {
    local pid status=0
    kill -STOP "$FRONT"
    "$@" &
    pid=$!
    (wait_for 60 bash -c "! kill -0 $pid") || status=1
    kill -CONT "$FRONT"
    wait $pid || status=1
    return $status
}

echo "== an ext4 image is mounted as what it is, its metadata at hand"
if [ -e "$W/store/images/ext4" ]; then
    for try in 1 2 3; do # others may need the page cache's memory, or drop it
        mount_it "$W/store/ext4" "$dir"
        ! without_server find "$dir" -printf '%s %T@\n' >"$W/found" || break
        [ $try != 3 ] || fail "metadata was not read ahead"
        "$GRANARY" umount "$dir"
    done
    grep -F " $dir " /proc/self/mounts | grep ' ext4 ro,nosuid,nodev' >"$W/null" || fail "mounted with $(grep -F " $dir " /proc/self/mounts)"
    [ "$(wc -l <"$W/found")" -gt 3000 ] || fail "find found $(wc -l <"$W/found") paths"
    "$TREECMP" "$W/tree" "$dir"
    "$GRANARY" umount "$dir"
    nothing_left
else
    echo "this kernel has no ext4: not tested"
fi

echo "== a directory of state without state, left by a killed mount, is in nobody's way"
mkdir "$STATE"
mount_it "$W/store/set" "$dir"
"$GRANARY" umount "$dir"
nothing_left

# umount -i: an installed /sbin/umount.granary is not the program under test
echo "== umount by others: granary umount clears the rest"
mount_it "$W/store/set" "$dir"
umount -i "$dir"
"$GRANARY" umount "$dir"
nothing_left

echo "== what others mounted there instead is theirs"
mount_it "$W/store/set" "$dir"
umount -i "$dir"
mount -t tmpfs tmpfs "$dir"
touch "$dir/theirs"
"$GRANARY" umount "$dir"
[ -e "$dir/theirs" ] || fail "it was unmounted"
umount -i "$dir"
nothing_left

echo "== a failure half-way is undone: the server cannot start; the mount itself is refused; interrupted"
refused "the server cannot serve the image: .*/proc/none" "$GRANARY" mount --fuse --cache /proc/none:1G "$W/store/set" "$dir"
nothing_left
printf '#!/bin/sh\necho "granary: error: out of order" >&2\nexit 1\n' >"$W/front"
chmod +x "$W/front"
GRANARY_FUSE=$W/front refused "cannot serve the image: granary-fuse does not start: out of order" "$GRANARY" mount --fuse "$W/store/set" "$dir"
nothing_left
printf '#!/bin/sh\n: >"%s"\nexec sleep 100\n' "$W/started" >"$W/front"
GRANARY_FUSE=$W/front "$GRANARY" mount --fuse "$W/store/set" "$dir" 2>"$W/err" &
pid=$!
wait_for 60 test -e "$W/started"
kill -INT $pid
! wait $pid || fail "an interrupted mount ends with 0"
nothing_left

echo "== with --warm none, the mount neither warms the metadata nor reads it ahead"
mapfile -t parts < <(seq -f "--at=d%g=$W/store/set" 32) # more metadata than the kernel reads ahead by itself
"$GRANARY" join -q "${parts[@]}" "$W/store/joined" >"$W/built"
# metadata WORD: how many chunks of it are cached_, pinned_ or (an empty word) there
metadata() { "$GRANARY" status "$dir" --json | jq ".exports[0].cached.metadata_${1:-}chunks"; }
mount_it --cache "$W/warmed:64M" --fill off "$W/store/joined" "$dir"
[ "$(metadata pinned_)" = "$(metadata)" ] || fail "$(metadata pinned_) of $(metadata) chunks are pinned"
"$GRANARY" umount "$dir"
mount_it --cache "$W/cold:64M" --fill off --warm none "$W/store/joined" "$dir"
[ "$(metadata pinned_)" = 0 ] || fail "$(metadata pinned_) chunks of metadata are pinned"
[ "$(metadata cached_)" -lt "$(metadata)" ] || fail "all $(metadata) chunks of metadata are cached"
"$GRANARY" umount "$dir"
nothing_left
