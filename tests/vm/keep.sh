#!/bin/bash
# A mount outlives its server: under readers of the device (O_DIRECT) and of the files (dropped from the page cache),
# each read compared with a copy, the server is killed, frozen, replaced; so is the keeper. No read fails, none is
# wrong, and all go on; the longest one is printed. A server that comes back with another image is refused, and reads
# wait for the right one. A device that nbd-client attached is adopted, unless it shows another image.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
prepare_other_image

{
    guest_readers
    cat <<'GUEST'
times="--nbd-timeout 5s"

granary mount file:///store/perl /mnt/data --cache /cache:64M $times --slow-read 2s
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
start_readers
end_readers "nothing"

start_readers
kill_child
another_child
end_readers "the server killed, restarted"
until_true 'grep "new connections after" /run/granary/*/keep.log'

start_readers
dmesg -c >/dev/null
kill -STOP $(pidof granary-nbd)
until_true 'dmesg | grep "Connection timed out" >/found'
kill -CONT $(pidof granary-nbd)
end_readers "server frozen"

start_readers
granary keep $device 2>/err && { echo "two keepers"; exit 1; }
keeper=$(sed -n 's/^.*granary: keep: process \([0-9]*\) keeps .* already$/\1/p' /err)
granary status --quick /mnt/data | grep -x "    $device: reconnect daemon $keeper"
kill -9 $keeper
until_true 'granary status --quick /mnt/data | grep -Fx "    $device: no reconnect daemon: run '"'granary keep $device'"'"'
granary status --quick --json /mnt/data | grep -E '"keeper": ?null'
kill_child
another_child
until_true '! grep -q . /proc/$keeper/cmdline 2>/dev/null'
keep
end_readers "keeper killed, server killed, new keeper"

echo "== umount ends the keeper, too"
granary umount /mnt/data
wait $keeper || true
[ "$(cat /sys/block/${device#/dev/}/size)" = 0 ]
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }

serve store /s.sock /serve.log
granary mount file:///store/perl /mnt/data --socket /s.sock $times
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
start_readers
kill -9 $server
until_true '! pidof granary-nbd'
serve store2 /s.sock /other.log
until_true 'grep -q "REFUSED.*another image" /run/granary/*/keep.log'
cat /run/granary/*/keep.log
kill -9 $server
until_true '! pidof granary-nbd'
serve store /s.sock /serve.log
end_readers "server back with another image, refused; then the right one"
until_true 'granary status --quick --json /s.sock | grep -E "\"keepers\":\[.*\"failed_s\":[0-9]+,\"error\":\"[^\"]+\"" >/found'
granary umount /mnt/data

echo "== what nbd-client attached"
device=/dev/nbd5
nbd-client -unix /s.sock $device -N perl -C 4 -R
granary keep $device 2>/err && { echo "kept without being told of what"; exit 1; }
grep -- --socket /err || { cat /err; exit 1; }
right=$server
serve store2 /o.sock /other.log
granary keep $device --socket /o.sock --export perl 2>/err && { echo "adopted another image's device"; exit 1; }
grep "another image" /err || { cat /err; exit 1; }
kill $server
wait $server
server=$right
keep --socket /s.sock --export perl $times
mount -t erofs -o ro $device /mnt/data
start_readers
kill_child
another_child
end_readers "attached by nbd-client, adopted, server killed"
umount /mnt/data
nbd-client -d $device
wait $keeper
grep "was detached" /keep.log || { cat /keep.log; exit 1; }
[ ! -e /run/granary/nbd5.json ]
granary status --quick --json /s.sock | grep -F '"keepers":[]' >/found

echo "== the same without a keeper does fail: the readers can tell"
nbd-client -unix /s.sock $device -N perl -C 4 -R
mount -t erofs -o ro $device /mnt/data
start_readers
kill_child
another_child
until_true '[ -s /readers.err ]'
nbd-client -d $device # ends reads that are stuck
kill -TERM $readers
wait $readers && { echo "not one read failed"; exit 1; }
tell "attached by nbd-client, server killed"
umount /mnt/data
kill $server
wait $server
GUEST
} >"$W/guest.sh"
run_readers 850 --file "$W/store2:/store2"
