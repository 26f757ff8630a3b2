#!/bin/bash
# The units of deploy/ under a real systemd, in a container's place in the guest: the server runs without privileges and
# behind its filter of system calls, the mount is ready when it is started and read right; a keeper that is killed is
# started again by systemd; the server is restarted under the mount; told to stop both, systemd stops the mount first,
# and nothing is left. A mount with a server of its own takes ublk in its unit, which is for itself.
# ctest: lock=vm long
suite=trixie
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"
[ "$(id -u)" = 0 ] || skip "only root can be several users"
[ -x /usr/lib/systemd/systemd ] || skip "no systemd here (apt-get install systemd)"

prepare_guest
mkdir "$W/tree" "$W/units"
head -c 3000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "file://$W/store/set"
for unit in serve mount keep; do
    sed "s|/usr/bin/granary|/bin/granary|" "$GRANARY_SOURCE/deploy/granary-$unit@.service" >"$W/units/granary-$unit@.service"
done
cp -L /usr/lib/systemd/system/network-online.target /usr/lib/systemd/system/shutdown.target "$W/units"
printf '[Unit]\nDescription=All that these units want of it\n' | tee "$W/units/sysinit.target" >"$W/units/basic.target"
systemd_test_unit >"$W/units/test.service"

{
    declare -f until_true
    cat <<'TEST'
set -e
mark() { systemctl show --value -p "$2" "$1"; }

echo "== started"
systemctl start granary-serve@a.service
systemctl start granary-mount@a.service
cmp /tree/file /mnt/data/file
pid=$(pidof granary-nbd)
grep -E '^(Uid|CapBnd|Seccomp):' /proc/$pid/status
grep -qE '^Uid:[[:space:]]1001[[:space:]]1001[[:space:]]1001[[:space:]]1001$' /proc/$pid/status
grep -qE '^CapBnd:[[:space:]]0+$' /proc/$pid/status
grep -qE '^Seccomp:[[:space:]]2$' /proc/$pid/status
[ "$(mark granary-mount@a.service ActiveState)" = active ]

echo "== the keeper is killed"
keeper=$(mark granary-keep@nbd0.service MainPID)
[ "$keeper" != 0 ]
kill -9 $keeper
until_true 'new=$(mark granary-keep@nbd0.service MainPID) && [ "$new" != 0 ] && [ "$new" != $keeper ]'
until_true '[ "$(mark granary-keep@nbd0.service ActiveState)" = active ]'

echo "== the server is restarted under the mount"
systemctl restart granary-serve@a.service
echo 3 >/proc/sys/vm/drop_caches
cmp /tree/file /mnt/data/file
# The unit lets the keeper report to the server.
until_true 'granary status --quick --json /run/granary-a/nbd.sock | grep "\"state\":\"keeping\",\"pid\":$new," >/found'

echo "== stopped: the mount first"
systemctl stop granary-mount@a.service granary-serve@a.service
for unit in granary-serve@a granary-mount@a; do
    [ "$(mark $unit.service Result)" = success ]
done
[ "$(mark granary-mount@a.service InactiveEnterTimestampMonotonic)" -le "$(mark granary-serve@a.service ActiveExitTimestampMonotonic)" ]
grep /mnt/data /proc/mounts && { echo "the mount is left"; exit 1; }
[ "$(cat /sys/block/nbd0/size)" = 0 ]
until_true '[ "$(mark granary-keep@nbd0.service ActiveState)" = inactive ]'
until_true '! pidof granary-nbd granary'

echo "== a mount with a server of its own"
systemctl start granary-mount@b.service
grep '^/dev/ublkb[0-9]* /mnt/own ' /proc/mounts
cmp /tree/file /mnt/own/file
old=$(pidof granary-ublk)
kill -9 $old
until_true 'new=$(pidof granary-ublk) && [ "$new" != "$old" ]'
echo 3 >/proc/sys/vm/drop_caches
cmp /tree/file /mnt/own/file
systemctl stop granary-mount@b.service
[ "$(mark granary-mount@b.service Result)" = success ]
grep /mnt/own /proc/mounts && { echo "the mount is left"; exit 1; }
until_true '! ls /dev/ublkc* 2>/dev/null'
until_true '! pidof granary-ublk granary'
: >/test.ok
TEST
} >"$W/test.sh"

cat >"$W/guest.sh" <<'GUEST'
set -e
mkdir -p /mnt/data /mnt/own /etc/granary /cache /var/lib
echo "granary:x:1001:1001::/:/bin/sh" >>/etc/passwd
echo "granary:x:1001:" >>/etc/group
chown 1001 /cache
[ -e /bin/granary ] || ln -s "$(command -v granary)" /bin/granary
printf 'IMAGES=file:///store/set\nCACHE=/cache/c:64M\n' >/etc/granary/a.conf
printf 'IMAGE=file:///store/set\nDIR=/mnt/data\nOPTIONS=--socket /run/granary-a/nbd.sock\n' >/etc/granary/mount-a.conf
printf 'IMAGE=file:///store/set\nDIR=/mnt/own\nOPTIONS=--cache /own:64M\n' >/etc/granary/mount-b.conf
cat >/manager.sh <<'MANAGER'
mount -t proc proc /proc
mount --make-rshared / # as systemd has it on a machine: what is unmounted goes from the units' own namespaces, too
export container=vm PATH
exec /usr/lib/systemd/systemd --system --unit=test.service --log-target=kmsg --show-status=0
MANAGER
unshare -p -f -m sh /manager.sh >/systemd.out 2>&1 &
for i in $(seq 400); do
    [ ! -e /test.end ] || break
    sleep 1
done
cat /test.out
[ -e /test.ok ] || { cat /systemd.out; dmesg | tail -n 60; exit 1; }
GUEST
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --bin /usr/lib/systemd/systemd --bin /usr/bin/systemctl \
    --file "$W/units:/usr/lib/systemd/system" --file "$W/store:/store" --file "$W/tree:/tree" --file "$W/test.sh:/test.sh" \
    "$vm_dir" "$W/guest.sh"
