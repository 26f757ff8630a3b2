#!/bin/bash
# granary mount --follow: readers of DIR/current see each new version from one moment on, without an error and behind
# the fence, where whatever is not cached is one; what is held keeps its version; the tag goes back; killed followers,
# versions in use, a store that is away, the hook, umount.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/data
extra_cleanup() { "$GRANARY" umount --force "$dir" 2>/dev/null; }
mkdir -p "$dir" "$W/tree/deep"
head -c 12000000 /dev/urandom >"$W/tree/deep/same"
cat >"$W/hook" <<HOOK
#!/bin/sh
echo "\$GRANARY_EVENT \$GRANARY_DIR \$GRANARY_IMAGE \$GRANARY_DIGEST \$GRANARY_BEFORE \$GRANARY_VERSION \$GRANARY_REASON" >>"$W/hooked"
HOOK
chmod +x "$W/hook"
: >"$W/hooked"

# publish N: version N of the tree under the tag, and under vN; its digest in DIGESTS
declare -A DIGESTS
publish() {
    echo "$1" >"$W/tree/number"
    head -c 3000000 /dev/urandom >"$W/tree/deep/new$1"
    (cd "$W/tree" && find . -type f ! -name sums -print0 | sort -z | xargs -0 sha256sum >"$W/sums" && mv "$W/sums" sums)
    "$GRANARY" build -q "$W/tree" "$W/store/faces:daily" >"$W/built"
    "$GRANARY" tag "$W/store/faces:daily" "v$1" >"$W/out"
    DIGESTS[$1]=$(digest_of "$W/store/faces:daily")
}
# version_dir N: its directory
version_dir() { echo "$dir/@$(cut -c8-19 <<<"${DIGESTS[$1]}")"; }
follow=("$GRANARY" mount --follow --poll 1s --keep-versions 2 --hook "$W/hook" --fuse --cache "$W/cache:400M"
    --disk-timeout "$DISK_TIMEOUT" --fence warmed "$W/store/faces:daily" "$dir")
shows() { [ "$(cat "$dir/current/number")" = "$1" ]; }
state() { cat /run/granary/tag-*/follow.json; }
reason() { state | jq -r .reason; }
follower() { state | jq .pid; }
counter() { "$GRANARY" status "$dir" --quick --json | jq ".counters.$1"; }
log() { cat "$LOGS_DIRECTORY"/follow-tag-*.log; }

echo "== the first version"
publish 1
"${follow[@]}" --json >"$W/mount.json" || fail "not mounted: $(log)"
jq -e --arg dir "$dir" --arg version "$(version_dir 1)" '.dir == $dir and .current == $dir + "/current" and .version == $version' \
    "$W/mount.json" >"$W/null" || fail "$(cat "$W/mount.json")"
control=$(jq -r .control "$W/mount.json")
SERVER_PID=$(jq .server_pid "$W/mount.json")
[ "$(readlink "$dir/@current")" = "$(basename "$(version_dir 1)")" ] || fail "@current is $(readlink "$dir/@current")"
kill -0 "$(follower)" || fail "nobody follows"
"$GRANARY" warm -q --all "$dir" >"$W/out"
shows 1 || fail "current does not show it"
"$TREECMP" "$W/tree" "$dir/current"
refused 1 "follows $W/store/faces:daily" "${follow[@]}"
refused 2 "names a digest" "$GRANARY" mount --follow "$W/store/faces@${DIGESTS[1]}" "$W/null"
refused 2 "goes with --follow" "$GRANARY" mount --poll 5s "$W/store/faces:daily" "$W/null"

# Readers take a handle each time, so that everything they read is of one version.
read_on() {
    until [ -e "$W/enough" ]; do
        (cd "$dir/current" && sha256sum --quiet -c sums) >"$W/reader.out" 2>&1 || { : >"$W/reader.failed"; exit 1; }
    done
}
read_on &
READER=$!
ours "$READER"
(cd "$dir/current" && exec sleep 1000) &
HOLDER=$!
ours "$HOLDER"
held() { (cd "/proc/$HOLDER/cwd" && sha256sum --quiet -c sums) || fail "a held version has other bytes"; [ "$(cat "/proc/$HOLDER/cwd/number")" = "$1" ] || fail "a held version changed"; }
wait_for 60 test -e "/proc/$HOLDER/cwd/number"

echo "== a new version: shown when its changes are cached, and no more than those are fetched"
before=$(counter granary_store_get_bytes_total) packs=$(du -sb "$W/store/packs" | cut -f1)
publish 2
wait_for 120 shows 2
fetched=$(($(counter granary_store_get_bytes_total) - before)) delta=$(($(du -sb "$W/store/packs" | cut -f1) - packs))
[ $((fetched * 10)) -le $((delta * 12)) ] || fail "$fetched bytes fetched for $delta new ones"
"$TREECMP" "$W/tree" "$dir/current"
for n in 1 2; do [ -e "$(version_dir $n)/number" ] || fail "version $n is not there: $(ls -a "$dir")"; done
held 1
wait_for 60 grep -Fx "switched $dir $W/store/faces:daily ${DIGESTS[2]} ${DIGESTS[1]} $(version_dir 2) " "$W/hooked"

echo "== the tag goes back: nothing is fetched"
before=$(counter granary_store_get_bytes_total)
"$GRANARY" tag "$W/store/faces:v1" daily >"$W/out"
wait_for 60 shows 1
"$GRANARY" tag "$W/store/faces:v2" daily >"$W/out"
wait_for 60 shows 2
[ "$(counter granary_store_get_bytes_total)" = "$before" ] || fail "$(($(counter granary_store_get_bytes_total) - before)) bytes were fetched"

echo "== all versions are in use: the next one waits, and nobody gets an error"
publish 3
wait_for 60 grep -q "^waiting .* all 2 versions are in use" "$W/hooked"
[[ $(reason) = "all 2 versions are in use"* ]] || fail "reason: $(reason)"
shows 2 || fail "current does not stay"
held 1
kill "$HOLDER"
wait_for 120 shows 3
[ -z "$(reason)" ] || fail "reason: $(reason)"
[ ! -e "$(version_dir 1)" ] || fail "version 1 stays: $(ls -a "$dir")"
[ -e "$(version_dir 2)/number" ] || fail "version 2 is not there: $(ls -a "$dir")"
[ "$("$GRANARY" status "$control" --quick --json | jq '.exports | length')" = 2 ] || fail "the export of a version that went stays"
"$TREECMP" "$W/tree" "$dir/current"

echo "== a container without propagation keeps the version of its start, and no other: that one is in use"
mkdir "$W/container"
# shellcheck disable=SC2016
unshare --mount --propagation slave sh -c 'mount --rbind "$1" "$2" && mount --make-rprivate "$2" && umount -l "$1" &&
    exec sleep 1000' - "$dir" "$W/container" & # the steps of runc
CONTAINER=$!
ours "$CONTAINER"
contained() { [ "$(nsenter -t "$CONTAINER" -m cat "$W/container/current/number")" = "$1" ]; }
wait_for 60 contained 3
publish 4
wait_for 120 shows 4
contained 3 || fail "the container's version changed"
[ ! -e "$(version_dir 2)" ] || fail "version 2, which nobody uses, stays: $(ls -a "$dir")"
publish 5
wait_for 60 bash -c "[ \$(grep -c '^waiting ' $W/hooked) = 2 ]"
shows 4 || fail "current does not stay"
wait_for 60 test -e "$(version_dir 3)/number" # it is away for a moment whenever the follower has looked whether it is free
contained 3 || fail "the container's version changed"
kill "$CONTAINER"
wait_for 120 shows 5
[ ! -e "$(version_dir 3)" ] || fail "version 3 stays: $(ls -a "$dir")"

echo "== the follower is killed: readers go on, and the same command goes on where it was"
kill -9 "$(follower)"
publish 6
"$TREECMP" "$W/tree" "$dir/current" >"$W/null" 2>&1 && fail "somebody follows"
shows 5 || fail "current does not stay"
"${follow[@]}" >"$W/out" || fail "not continued: $(log)"
wait_for 120 shows 6
kill -0 "$(follower)" || fail "nobody follows"

echo "== the store is away: nothing moves, and then it goes on"
mv "$W/store" "$W/store.away"
wait_for 60 bash -c "grep -q '\"reason\": \"..*\"' /run/granary/tag-*/follow.json"
shows 6 || fail "current does not stay"
mv "$W/store.away" "$W/store"
publish 7
wait_for 120 shows 7

echo "== no reader saw an error"
touch "$W/enough"
wait "$READER" || fail "a reader: $(cat "$W/reader.out")"
[ ! -e "$W/reader.failed" ] || fail "a reader: $(cat "$W/reader.out")"
[ "$("$GRANARY" status "$control" --quick --json | jq '[.exports[].fence_refusals] | add')" = 0 ] || fail "a read was refused by the fence"

echo "== what others unmount is mounted again"
umount -l "$dir/current"
wait_for 60 shows 7

echo "== umount: refused while current is in use, and then nothing is left"
exec 7<"$dir/current/number"
refused 1 "$dir/current is in use" "$GRANARY" umount "$dir"
kill -0 "$(follower)" || fail "the refused umount ended the follower"
exec 7<&-
FOLLOWER=$(follower)
"$GRANARY" umount "$dir"
wait_for 60 gone "$FOLLOWER"
wait_for 60 gone "$SERVER_PID"
! grep -F " $dir" /proc/self/mountinfo || fail "a mount is left"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
[ -z "$(ls -A "$dir")" ] || fail "left in the directory: $(ls -A "$dir")"

echo "== in the foreground: a signal takes everything down"
background "${follow[@]}" --foreground >"$W/out" 2>"$W/err"
FOREGROUND=$BACKGROUND_PID
wait_for 60 shows 7
kill -TERM "$FOREGROUND"
wait "$FOREGROUND" || fail "the foreground: $(cat "$W/err")"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"

echo "== a mount that cannot be made leaves nothing"
refused 1 "" "$GRANARY" mount --follow --fuse "$W/store/none:daily" "$dir"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
[ -z "$(ls -A "$dir")" ] || fail "left in the directory: $(ls -A "$dir")"
