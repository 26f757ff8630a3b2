#!/bin/bash
# granary mount with --trust: by FUSE, as mount(8) runs the helper for a line of fstab, and with --socket. A mount whose
# image no such key has signed is refused and leaves nothing.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse
command -v minisign >/dev/null || skip "no minisign (apt-get install minisign)"

dir=$W/mnt
extra_cleanup() { for d in "$dir" "$W/mnt2"; do "$GRANARY" umount --force "$d" 2>"$W/null"; done; }
mkdir "$dir" "$W/mnt2" "$W/tree" "$W/tree2"
seq 500 >"$W/tree2/numbers"
seq 2000 >"$W/tree/numbers"
image=$W/store/faces:v1
"$GRANARY" build -q "$W/tree" "$image" >"$W/out"
for key in mine other; do minisign -G -W -p "$W/$key.pub" -s "$W/$key.key" >"$W/out"; done
ln -s "$GRANARY" "$W/mount.granary"
fuse=(--fuse --memory 64M)

# refused WORD COMMAND...: it fails with a sentence that has this word, and mounts nothing
refused() {
    local word=$1
    shift
    if "$@" >"$W/out" 2>"$W/err"; then fail "not refused: $*"; fi
    grep -q -- "$word" "$W/err" || fail "no '$word': $(cat "$W/err")"
    ! grep -F " $W/mnt" /proc/self/mountinfo || fail "mounted: $*"
}

echo "== by FUSE"
refused "has no signature" "$GRANARY" mount "${fuse[@]}" --trust "$W/mine.pub" "$image" "$dir"
"$GRANARY" sign "$image" --key "$W/mine.key" >"$W/out"
refused "add that key" "$GRANARY" mount "${fuse[@]}" --trust "$W/other.pub" "$image" "$dir"
"$GRANARY" mount "${fuse[@]}" --json --trust "$W/mine.pub" "$image" "$dir" >"$W/mount.json"
cmp "$W/tree/numbers" "$dir/numbers"

echo "== the server's end after the tag was moved: it starts again for both its mounts, though it has no cache directory"
"$GRANARY" build -q "$W/tree2" "$W/store/cats:v1" >"$W/out"
"$GRANARY" sign "$W/store/cats:v1" --key "$W/mine.key" >"$W/out"
"$GRANARY" mount "${fuse[@]}" --trust "$W/mine.pub" "$W/store/cats:v1" "$W/mnt2" >"$W/out"
socket=$(jq -r .socket "$W/mount.json")
server=$(jq .server_pid "$W/mount.json")
cp "$W/store/images/faces/v1" "$W/signed"
seq 3000 >"$W/tree/numbers"
"$GRANARY" build -q "$W/tree" "$image" >"$W/out"
front=$(pgrep -P "$server")
kill -9 "$front"
another_front() {
    [ "$(pgrep -P "$server")" != "$front" ] && "$GRANARY" status "$socket.control" --json >"$W/out" 2>&1 &&
        jq -e '[.exports[].name] == ["faces", "cats"]' "$W/out" >"$W/null"
}
wait_for 60 another_front
for d in "$W/mnt2" "$dir"; do "$GRANARY" umount --force "$d"; done # before Linux 6.9 no mount survived
cp "$W/signed" "$W/store/images/faces/v1"
seq 2000 >"$W/tree/numbers"

echo "== as mount(8) does for fstab: trust= with a file, and with a key"
refused "add that key" "$W/mount.granary" "$image" "$dir" -o "rw,_netdev,fuse,memory=64M,trust=$W/other.pub"
for key in "$W/mine.pub" "$(tail -n 1 "$W/mine.pub")"; do
    "$W/mount.granary" "$image" "$dir" -o "rw,_netdev,fuse,memory=64M,trust=$key" >"$W/out"
    cmp "$W/tree/numbers" "$dir/numbers"
    "$GRANARY" umount "$dir"
done

echo "== with --socket: the mount checks, whatever the server's keys are; by option, else by the configuration file"
"$GRANARY" mount "${fuse[@]}" --json "$image" "$W/mnt2" >"$W/mount.json"
socket=$(jq -r .socket "$W/mount.json")
"$GRANARY" mount --fuse --socket "$socket" --trust "$W/mine.pub" "$image" "$dir" >"$W/out"
cmp "$W/tree/numbers" "$dir/numbers"
"$GRANARY" umount "$dir"
printf '[server]\ntrust = %s\n' "$W/other.pub" >"$W/granary.conf"
not_joined() {
    ! "$@" >"$W/out" 2>"$W/err" || fail "not refused: $*"
    grep -q "add that key" "$W/err" || fail "no reason: $(cat "$W/err")"
}
not_joined "$GRANARY" mount --fuse --socket "$socket" --trust "$W/other.pub" "$image" "$dir"
GRANARY_CONFIG=$W/granary.conf not_joined "$GRANARY" mount --fuse --socket "$socket" "$image" "$dir"
! "$GRANARY" mount --fuse --socket "$socket" --memory 64M "$image" "$dir" 2>"$W/err" || fail "--memory with --socket"
grep -q "the running server has its own" "$W/err"
