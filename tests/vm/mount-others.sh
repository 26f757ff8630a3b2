#!/bin/bash
# `granary mount` with kernel nbd beside others, inside the guest: images that share a server, devices that belong to
# another program or were attached by one meanwhile and are left to it, a kernel without nbd.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-images.sh"

prepare_images
{
    guest_images
    cat <<'GUEST'
mkdir -p /mnt/data

echo "== two images share a server; that is gone: umount says so, and --force ends what reads"
mkdir /mnt/data2
granary mount file:///store/perl /mnt/data --cache /cache:64M
granary mount file:///store/ext4 /mnt/data2 --cache /cache:64M
[ "$(pidof granary-nbd | wc -w)" = 1 ] || { echo "two servers"; ps; exit 1; }
few_same /mnt/data2
granary umount /mnt/data2
sleep 1000 </mnt/data &
user=$!
until_true '[ "$(readlink /proc/$user/fd/0)" = /mnt/data ]'
kill -9 $(ps | grep 'granary serve' | grep -v grep | awk '{ print $1 }')
until_true '! pidof granary-nbd >/dev/null'
granary umount /mnt/data 2>/err && { echo "unmounted under a reader"; exit 1; }
grep 'its server is gone.*--force' /err || { cat /err; exit 1; }
grep -q ' /mnt/data ' /proc/mounts
granary umount --force /mnt/data
kill $user
wait $user || true
until_true '! pidof granary >/dev/null'
grep /mnt/data /proc/mounts && { echo "the mount is left"; exit 1; }
for d in /sys/block/nbd*; do [ "$(cat $d/size)" = 0 ] || { echo "$d is left attached"; exit 1; }; done
[ -z "$(ls /run/granary)" ] || { ls -lR /run/granary; exit 1; }

echo "== every device is another program's: the kernel makes one more"
holders=""
for d in /dev/nbd*; do
    sleep 1000 <$d &
    holders="$holders $!"
    until_true '[ "$(readlink /proc/$!/fd/0)" = $d ]'
done
granary mount file:///store/perl /mnt/data --cache /cache:64M
grep -q '^/dev/nbd8 /mnt/data' /proc/mounts
granary umount /mnt/data
kill $holders
wait $holders || true

echo "== the device was detached and is somebody else's now: granary umount lets it be"
granary mount file:///store/perl /mnt/data --cache /cache:64M
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
umount /mnt/data
nbd-client -d $device
granary serve file:///store/perl --cache /cache2:64M --socket /other.sock >/other.out 2>&1 &
other=$!
until_true "grep -q 'serving ' /other.out"
nbd-client -unix /other.sock $device -N perl
granary umount /mnt/data
[ "$(cat /sys/block/${device#/dev/}/size)" != 0 ] || { echo "the other's attachment is gone"; exit 1; }

echo "== so do granary mount and keep"
pid=$(cat /sys/block/${device#/dev/}/pid)
granary mount file:///store/perl /mnt/data --cache /cache:64M
grep -q "^$device " /proc/mounts && { echo "mounted from the other's device"; exit 1; }
granary umount /mnt/data
if granary keep $device 2>/err; then echo "kept the other's device"; exit 1; fi
grep "$device was not attached by 'granary mount'.*--socket" /err || { cat /err; exit 1; }
if granary keep /dev/nbd7 --socket /other.sock --export perl 2>/err; then echo "kept what is not attached"; exit 1; fi
grep "/dev/nbd7 is not attached" /err || { cat /err; exit 1; }
[ "$(cat /sys/block/${device#/dev/}/pid)" = "$pid" ] || { echo "the other's attachment is gone"; exit 1; }
nbd-client -d $device
kill $other
wait $other

echo "== no nbd in the kernel: said, with the remedy"
until_true 'rmmod nbd' # devices that were detached a moment ago may hold it
if granary mount -C 4 file:///store/perl /mnt/data 2>/err; then echo "mounted without nbd"; exit 1; fi
grep "no nbd module.*--connections needs kernel nbd" /err || { cat /err; exit 1; }
granary umount /mnt/data 2>/err || { echo "umount of what is not mounted failed"; cat /err; exit 1; }
grep "/mnt/data is not mounted" /err || { cat /err; exit 1; }
if granary keep /dev/nbd0 2>/err; then echo "kept without nbd"; exit 1; fi
grep "/dev/nbd0 was not attached" /err || { cat /err; exit 1; }
GUEST
} >"$W/guest.sh"
run_images
