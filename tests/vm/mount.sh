#!/bin/bash
# `granary mount` with kernel nbd, inside the guest, from the installed programs and a file store copied in: the whole
# tree is the same; the second mount reads from the cache; after `granary umount` nothing is left: no mount, device,
# process, nor state in /run.
# ctest: lock=vm
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-images.sh"

prepare_images
{
    guest_images
    cat <<'GUEST'
mkdir -p /mnt/data /etc/granary
ls /run >/before
granary mount file:///store/perl /mnt/data --cache /cache:64M
grep ' /mnt/data ' /proc/mounts
grep -q '^/dev/nbd[0-9]* /mnt/data erofs ro' /proc/mounts
manifest_of_tree /mnt/data >/got
cmp /got /want || { diff /got /want | sed -n 1,20p; exit 1; }
echo "$(wc -l </got) lines of the tree agree"
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
d=/sys/block/${device#/dev/}
grep -x "$root" $d/backend || { echo "its backend is $(cat $d/backend)"; exit 1; }
[ "$(cat $d/queue/read_ahead_kb $d/queue/max_sectors_kb $d/ro | xargs)" = "4096 1024 1" ]
[ "$(ls $d/mq | wc -l)" = 2 ] || { echo "one connection alone"; exit 1; } # a queue each, at most one a CPU
touch /mnt/data/x 2>/err && { echo "the mount is writable"; exit 1; }
granary status /mnt/data

echo "== in use: refused, and nothing is touched"
sleep 1000 </mnt/data &
user=$!
(cd /mnt/data && exec sleep 1000) &
user2=$!
until_true '[ "$(readlink /proc/$user/fd/0)" = /mnt/data ]'
until_true '[ "$(readlink /proc/$user2/cwd)" = /mnt/data ]'
if granary umount /mnt/data; then echo "umount of a mount in use"; exit 1; fi
kill $user $user2
wait $user $user2 || true
cat /mnt/data/$(cd /mnt/data && find . -type f | sed -n 1p) >/dev/null

echo "== umount leaves nothing"
granary umount /mnt/data
until_true '! pidof granary-nbd granary >/dev/null'
ps | grep -E 'granary|nbd-client' | grep -v grep && { echo "processes are left"; exit 1; }
grep -E 'mnt/data' /proc/mounts && { echo "the mount is left"; exit 1; }
for d in /sys/block/nbd*; do [ "$(cat $d/size)" = 0 ] || { echo "$d is left attached"; exit 1; }; done
ls /run | grep -vx -e granary -e mount >/after || true # mount: libmount's table, which stays
grep -vx -e granary -e mount /before >/before2 || true
cmp /before2 /after || { ls -lR /run; exit 1; }
[ -z "$(find /run/granary ! -type d 2>/dev/null)" ] || { ls -lR /run/granary; exit 1; }

if [ -n "$full" ]; then
    echo "== an ext4 image"
    granary mount file:///store/ext4 /mnt/data
    grep -q '^/dev/nbd[0-9]* /mnt/data ext4 ro' /proc/mounts
    few_same /mnt/data
    granary umount /mnt/data
fi

echo "== a second mount, the store gone: everything comes from the cache"
rm -r /store/packs
granary mount file:///store/perl /mnt/data --cache /cache:64M
few_same /mnt/data
granary umount /mnt/data
GUEST
} >"$W/guest.sh"
run_images
