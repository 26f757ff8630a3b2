#!/bin/bash
# `granary mount -f` in the guest, and two containers that share the mount through read-only binds under users of their
# own: each reads what the files' modes let it read and gets EACCES for the rest, nobody writes. A keeper that is killed
# is there again. Told to end, the mount waits for a container that still has it, though the host's own mount is gone,
# and then leaves nothing.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"
[ "$(id -u)" = 0 ] || skip "only root can give files to several users"

prepare_guest
mkdir "$W/tree"
echo "for all" >"$W/tree/all"
echo "of one" >"$W/tree/one"
echo "of two" >"$W/tree/two"
echo "of the group" >"$W/tree/group"
chmod 644 "$W/tree/all"
chmod 600 "$W/tree/one" "$W/tree/two"
chmod 640 "$W/tree/group"
chown 1001 "$W/tree/one"
chown 1002 "$W/tree/two"
chown 0:2000 "$W/tree/group"
"$GRANARY" build -q "$W/tree" "file://$W/store/set"

{
    declare -f until_true
    cat <<'GUEST'
set -e
mkdir -p /mnt/data
granary mount -f file:///store/set /mnt/data --cache /cache:64M >/mount.out 2>/mount.err &
holder=$!
until_true '[ -s /mount.out ]'
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)

# bundle DIR UID GROUP COMMAND: a container with a busybox root, without capabilities, and the mount bound read-only
bundle() {
    mkdir -p $1/rootfs/bin $1/rootfs/data $1/rootfs/proc $1/rootfs/dev
    cp /bin/busybox $1/rootfs/bin/
    for a in sh touch cat; do ln -s busybox $1/rootfs/bin/$a; done
    cat >$1/config.json <<JSON
{"ociVersion":"1.0.2","process":{"user":{"uid":$2,"gid":$2,"additionalGids":[$3]},"args":["sh","-c","$4"],"env":["PATH=/bin"],"cwd":"/",
 "noNewPrivileges":true},"root":{"path":"rootfs"},"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
 {"destination":"/data","type":"bind","source":"/mnt/data","options":["rbind","ro"]}],
 "linux":{"namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"}]}}
JSON
}
work="cd /data; for f in all one two group; do cat \$f; done; touch new; cd /; echo waiting; cat /bin/go >/bin/went"
for c in "one 1001 2000" "two 1002 3000"; do
    set -- $c
    bundle /run/$1 $2 $3 "$work"
    mkfifo -m 666 /run/$1/rootfs/bin/go
    : >/run/$1/rootfs/bin/went
    chmod 666 /run/$1/rootfs/bin/went
    crun run --no-pivot -b /run/$1 $1 >/run/$1.out 2>&1 &
done
until_true 'grep -q waiting /run/one.out && grep -q waiting /run/two.out'

echo "== each user reads what is its own"
cat >/one.want <<'WANT'
for all
of one
cat: can't open 'two': Permission denied
of the group
touch: new: Read-only file system
waiting
WANT
cat >/two.want <<'WANT'
for all
cat: can't open 'one': Permission denied
of two
cat: can't open 'group': Permission denied
touch: new: Read-only file system
waiting
WANT
for c in one two; do
    diff /run/$c.out /$c.want
done

echo "== a keeper that is killed is there again"
keeper_of() { granary keep $device 2>&1 | sed -n 's/^.*granary: keep: process \([0-9]*\) keeps .* already$/\1/p'; }
old=$(keeper_of)
kill -9 $old
until_true 'grep -q "another one is running" /mount.err'
new=$(keeper_of)
[ -n "$new" ]
[ "$new" != "$old" ]

echo "== the end waits for the containers"
kill -TERM $holder
until_true 'grep -q "in use" /mount.err'
until_true '! grep -q " /mnt/data " /proc/mounts'
echo >/run/two/rootfs/bin/go
until_true '[ -s /run/two/rootfs/bin/went ]'
[ "$(cat /sys/block/${device#/dev/}/size)" != 0 ] || { echo "detached under a container"; exit 1; }
kill -0 $holder
echo >/run/one/rootfs/bin/go
wait $holder
wait
cat /mount.err
[ "$(cat /sys/block/${device#/dev/}/size)" = 0 ]
until_true '! pidof granary-nbd granary >/dev/null'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --bin "$(command -v crun)" --file "$W/store:/store" "$GRANARY_BUILD/vm" "$W/guest.sh"
