#!/bin/bash
# The package granary in a system of this machine's Debian with systemd, in a VM. Its units run a server and a mount by
# kernel nbd. Under readers of the mount, a newer version is installed and replaces none of the programs that run;
# `systemctl reload` then replaces the server; a removal is refused. No read fails. Without the mount, a removal stops
# the server, and a purge leaves nothing.
# ctest: long lock=vm
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"
need_debian
"$vm" prepare "$GRANARY_BUILD/vm"

make_debs "$W/built"
mkdir "$W/debs"
mv "$W"/built/granary_*.deb "$W/debs/"
newer_debs "$W/debs" "$W/newer-debs"

# The system without the package, kept for all runs from this build tree.
depends=$(dpkg-deb -f "$W"/debs/*.deb Depends)
archive=$GRANARY_BUILD/packages-chroot
if [ "$depends" != "$(cat "$archive/systemd.depends" 2>"$W/null")" ]; then
    mkdir -p "$archive"
    # shellcheck disable=SC2016
    debian_strap "$archive/systemd.tar" --format=tar --include=systemd --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --customize-hook='chroot "$1" apt-get -q -y satisfy "'"$depends"'"' \
        >"$W/strap.log" 2>&1 || fail "$(tail -20 "$W/strap.log")"
    echo "$depends" >"$archive/systemd.depends"
fi
mkdir "$W/system"
tar -x -f "$archive/systemd.tar" -C "$W/system" --exclude='./dev/*'

mkdir "$W/system/copy"
cp -r "$GRANARY_SOURCE/docs" "$W/system/copy/"
head -c 8000000 /dev/urandom >"$W/system/copy/large"
"$GRANARY" build -q "$W/system/copy" "$W/system/store/set" >"$W/set"
"$GRANARY" export -q "$W/system/store/set" "$W/system/image"
(cd "$W/system/copy" && find . -type f) >"$W/system/list"
cp "$GRANARY_BUILD/tests/tools/mount_reader" "$W/system/usr/bin/"
mv "$W/debs" "$W/newer-debs" "$W/system/"
systemd_test_unit >"$W/system/etc/systemd/system/test.service"

{
    guest_readers
    cat <<'TEST'
# not COMMAND...: it fails
not() { if "$@"; then echo "and should not: $*"; exit 1; fi; }
# is UNIT STATE
is() { [ "$(systemctl show --value -p ActiveState "$1")" = "$2" ]; }
# programs: a line for each process of granary, with its program
programs() { for pid in $(pidof granary granary-nbd); do echo "$pid $(readlink /proc/$pid/exe)"; done | sort; }
mounted() { grep ' /mnt/data ' /proc/mounts; }

echo "== installed"
dpkg -i /debs/*.deb
install -d -o granary /var/cache/granary/set
cat >/etc/granary/set.conf <<'CONF'
IMAGES=/store/set
CACHE=/var/cache/granary/set:64M
CONF
cat >/etc/granary/mount-set.conf <<'CONF'
IMAGE=/store/set
DIR=/mnt/data
OPTIONS=--socket /run/granary-set/nbd.sock --nbd-timeout 5s
CONF
systemctl enable granary-serve@set.service granary-mount@set.service
systemctl start granary-serve@set.service granary-mount@set.service
device=$(mounted | cut -d ' ' -f 1)
case $device in /dev/nbd*) ;; *) echo "mounted by '$device'"; exit 1;; esac
is granary-keep@${device#/dev/}.service active

echo "== a newer version is installed"
start_readers
programs | tee /before
dpkg -i /newer-debs/*.deb
end_readers "dpkg -i"
[ "$(dpkg-query -W -f '${db:Status-Status} ${Version}' granary | grep -c '^installed .*+newer$')" = 1 ]
sed 's/$/ (deleted)/' /before >/expected
programs | diff /expected - || { echo "other programs run (>) than before (<)"; exit 1; }

echo "== systemctl reload"
start_readers
pid=$(systemctl show --value -p MainPID granary-serve@set.service)
systemctl reload granary-serve@set.service
[ "$(systemctl show --value -p MainPID granary-serve@set.service)" = "$pid" ]
[ "$(readlink /proc/$pid/exe)" = /usr/bin/granary ]
[ "$(readlink /proc/$(pidof granary-nbd)/exe)" = /usr/libexec/granary/granary-nbd ]
end_readers "systemctl reload"

echo "== no removal under the mount"
start_readers
for action in --remove --purge; do
    not dpkg $action granary >/refused.out 2>&1
    grep '^    granary umount /mnt/data$' /refused.out || { cat /refused.out; exit 1; }
done
[ "$(dpkg-query -W -f '${db:Status-Status}' granary)" = installed ]
is granary-serve@set.service active
is granary-mount@set.service active
end_readers "dpkg --remove"

echo "== removed"
systemctl stop granary-mount@set.service
not mounted
is granary-serve@set.service active
dpkg --remove granary
is granary-serve@set.service inactive
not pidof granary granary-nbd
[ ! -e /usr/bin/granary ]
[ -e /etc/granary/set.conf ]
[ -n "$(ls /var/cache/granary/set)" ]

echo "== purged"
dpkg --purge granary
find /etc /var/cache /var/log /run -name 'granary*' ! -path '/run/systemd/*' | tee /left
[ ! -s /left ]
: >/test.ok
TEST
} >"$W/system/test.sh"

cat >"$W/guest.sh" <<'GUEST'
mount --bind /system /system
mount --rbind /dev /system/dev
mount --rbind /sys /system/sys
cat >/system/manager.sh <<'MANAGER'
mount -t proc proc /proc
mount --make-rshared / # as systemd has it on a machine
export container=vm
exec /usr/lib/systemd/systemd --system --unit=test.service --log-target=kmsg --show-status=0
MANAGER
unshare -p -f -m sh -c 'cd /system && mount -o move . / && exec chroot . sh /manager.sh' >/systemd.out 2>&1 &
for i in $(seq 1400); do
    [ ! -e /system/test.end ] || break
    sleep 1
done
cat /system/test.out
[ -e /system/test.ok ] || { cat /systemd.out; dmesg | tail -n 60; exit 1; }
GUEST
"$vm" run --timeout 1500 --mem 2048 --file "$W/system:/system" "$GRANARY_BUILD/vm" "$W/guest.sh"
