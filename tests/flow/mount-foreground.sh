#!/bin/bash
# granary mount --foreground: ready when it is mounted; SIGTERM unmounts and leaves nothing, as soon as nobody uses it;
# a second one gives up; a mount that others took away, or that nothing answers behind, ends it with a sentence.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/mnt
extra_cleanup() { exec 7<&-; "$GRANARY" umount --force "$dir" 2>/dev/null; }
mkdir -p "$dir" "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"

# A service manager: what it is told goes to $W/notified, a line each
cat >"$W/manager.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(100).decode(), flush=True)
PY
background python3 "$W/manager.py" "$W/notify" >"$W/notified"
wait_for 60 test -S "$W/notify"

mounted() { grep -qF " $dir " /proc/self/mountinfo; }
mount_it() {
    : >"$W/notified"
    NOTIFY_SOCKET=$W/notify background "$GRANARY" mount -f --fuse --json "$W/store/set" "$dir" >"$W/mount.json" 2>"$W/err"
    HOLDER=$BACKGROUND_PID
    wait_for 60 grep -qx 'READY=1' "$W/notified"
    STATE=$(dirname "$(jq -r .socket "$W/mount.json")")
    mounted || fail "ready, and not mounted"
}
# ends_with CODE: and nothing is left
ends_with() {
    local status=0
    wait "$HOLDER" || status=$?
    [ $status = "$1" ] || { cat "$W/err"; fail "exit $status, not $1"; }
}
nothing_left() {
    ! mounted || fail "it is mounted"
    [ ! -e "$STATE" ] || fail "$STATE is left: $(ls "$STATE") $(cat "$W/err")"
}

echo "== ready, and down by SIGTERM"
mount_it
cmp "$W/tree/large" "$dir/large"
kill -TERM "$HOLDER"
ends_with 0
nothing_left
grep -qx STOPPING=1 "$W/notified" || fail "it does not say that it ends"
[ ! -s "$W/err" ] || fail "it has something to say: $(cat "$W/err")"

echo "== in use: it says by whom, and unmounts when that ends"
mount_it
background bash -c 'exec sleep 1000 <"$1"' - "$dir/large"
USER_PID=$BACKGROUND_PID
has_it_open() { [ "$(readlink "/proc/$USER_PID/fd/0")" = "$dir/large" ] && grep -qx sleep "/proc/$USER_PID/comm"; }
wait_for 60 has_it_open
kill -INT "$HOLDER"
wait_for 60 grep -qE "in use by process $USER_PID \(sleep\)" "$W/err"
mounted || fail "unmounted under a reader"
kill "$USER_PID"
ends_with 0
nothing_left

echo "== in use, and a second signal: it gives up, and everything stays"
mount_it
exec 7<"$dir/large"
kill -TERM "$HOLDER"
wait_for 60 grep -q "in use by .*process $$ (" "$W/err" # and by what it runs itself, as this grep
kill -TERM "$HOLDER"
ends_with 1
cmp "$W/tree/large" "$dir/large" || fail "the mount is broken"
exec 7<&-
"$GRANARY" umount "$dir"
nothing_left

echo "== others unmount it"
mount_it
umount -i "$dir" # an installed /sbin/umount.granary is not the program under test
ends_with 1
grep -q "^granary: mount: $dir was unmounted by others$" "$W/err" || { cat "$W/err"; fail "no sentence"; }
nothing_left
mount_it
"$GRANARY" umount "$dir"
ends_with 1
nothing_left

echo "== nothing answers behind it any more, and a reader has it open"
mount_it
exec 7<"$dir/large"
kill -9 "$(jq .server_pid "$W/mount.json")"
ends_with 1
exec 7<&-
grep -q "^granary: mount: process [0-9]*, which answered the reads of $dir, is gone$" "$W/err" || { cat "$W/err"; fail "no sentence"; }
nothing_left

echo "== what cannot be mounted does not stay"
refused 1 "no server listens" "$GRANARY" mount -f --fuse --socket "$W/none.sock" "$W/store/set" "$dir"
