#!/bin/bash
# `granary mount` with kernel nbd, inside the guest, from the installed programs and a file store copied in: the whole
# tree is the same; the second mount reads from the cache; after `granary umount` nothing is left: no mount, device,
# process, nor state in /run. A device that others attached meanwhile is left to them.
# ctest: lock=vm
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"

tree=/usr/share/perl
[ -d $tree ] || tree=/usr/share/doc
prepare_guest
"$GRANARY" build "$tree" "file://$W/store/perl"
"$GRANARY" build --fs ext4 "$tree" "file://$W/store/ext4"
manifest_of_tree "$tree" >"$W/want"
(cd "$tree" && find . -type f | LC_ALL=C sort | awk 'NR % 25 == 1' | xargs -d '\n' sha256sum) >"$W/few"
root=$("$GRANARY" inspect --json "file://$W/store/perl" | jq -r .content_root)

{
    declare -f manifest_of_tree until_true
    cat <<'GUEST'
set -e
# few_same DIR: the files of the list are as they should be; the first mount compares all, hashing is slow here
few_same() { (cd $1 && sha256sum -c /few) >/few.out || { grep -v ': OK$' /few.out; exit 1; }; }
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

echo "== an ext4 image"
granary mount file:///store/ext4 /mnt/data
grep -q '^/dev/nbd[0-9]* /mnt/data ext4 ro' /proc/mounts
few_same /mnt/data
granary umount /mnt/data

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

echo "== a second mount, the store gone: everything comes from the cache"
rm -r /store/packs
granary mount file:///store/perl /mnt/data --cache /cache:64M
few_same /mnt/data
granary umount /mnt/data

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
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --env "root=$root" \
    --file "$W/store:/store" --file "$W/want:/want" --file "$W/few:/few" "$GRANARY_BUILD/vm" "$W/guest.sh"
