#!/bin/bash
# mount(8) and umount(8) from util-linux, in the guest: an fstab line with _netdev,nofail and granary's own options;
# mount -a, twice; mount DIR; umount DIR, after which nothing is left; what is wrong is said, and nofail lets the rest
# be mounted.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"

tree=/usr/share/perl
[ -d $tree ] || tree=/usr/share/doc
prepare_guest
"$GRANARY" build "$tree" "file://$W/store/perl"

{
    declare -f until_true
    cat <<'GUEST'
set -e
mount=/usr/bin/mount
umount=/usr/bin/umount
ln -s "$(command -v granary)" /sbin/mount.granary
ln -s "$(command -v granary)" /sbin/umount.granary
mkdir -p /mnt/data /mnt/other /etc/granary
echo 'AWS_ENDPOINT_URL="http://127.0.0.1:1"' >/etc/granary/s3.env
cat >/etc/fstab <<'FSTAB'
file:///store/none /mnt/none granary _netdev,nofail 0 0
file:///store/perl /mnt/data granary _netdev,nofail,noexec,cache=/cache:64M,nbd-timeout=5s,env-file=/etc/granary/s3.env,x-systemd.automount 0 0
FSTAB
nothing_left() {
    grep -E '/mnt/data|nbd' /proc/mounts && { echo "the mount is left"; exit 1; }
    until_true '! pidof granary-nbd granary >/dev/null'
    for d in /sys/block/nbd*; do [ "$(cat $d/size)" = 0 ] || { echo "$d is left attached"; exit 1; }; done
    [ -z "$(find /run/granary ! -type d 2>/dev/null)" ] || { ls -lR /run/granary; exit 1; }
}

echo "== mount -a, and again; the line that cannot be is passed over by nofail"
$mount -a -t granary -O _netdev || true
grep '^/dev/nbd[0-9]* /mnt/data erofs ro,nosuid,nodev,noexec' /proc/mounts || { cat /proc/mounts /run/granary/*/*; exit 1; }
tr '\0' '\n' </proc/$(pidof granary-nbd)/environ | grep -x 'AWS_ENDPOINT_URL=http://127.0.0.1:1' >/found
$mount -a -t granary || true
[ "$(grep -c ' /mnt/data ' /proc/mounts)" = 1 ]
ls /mnt/data >/dev/null

echo "== umount DIR takes down the device and the server, too"
cat /run/mount/utab
(cd /mnt/data && $umount /mnt/data) && { echo "unmounted in use"; exit 1; }
grep -q ' /mnt/data ' /proc/mounts
$umount /mnt/data
nothing_left

echo "== mount DIR; what granary mounted by itself is unmounted likewise, and the other way round"
granary mount file:///store/perl /mnt/data
$umount /mnt/data
nothing_left
$mount /mnt/data
granary umount /mnt/data
nothing_left

echo "== umount without the helper leaves the rest; the next mount there takes it down first, and so does umount"
$mount /mnt/data
$umount -i /mnt/data
$mount /mnt/data
$umount -i /mnt/data
granary umount /mnt/data
nothing_left

echo "== refused, with exit codes that mount(8) passes on"
refused() {
    code=0
    $mount -t granary "$@" file:///store/perl /mnt/data 2>/err || code=$?
    cat /err
}
refused -o no-such-option=1
[ $code = 1 ]
grep -q "unknown option --no-such-option" /err
refused -o remount,ro
grep -q "umount it and mount it anew" /err
refused -o env-file=/etc/granary/none
[ $code = 32 ]
grep -q "/etc/granary/none" /err
$mount -f /mnt/data
nothing_left
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --bin /usr/bin/mount --bin /usr/bin/umount \
    --file "$W/store:/store" "$GRANARY_BUILD/vm" "$W/guest.sh"
