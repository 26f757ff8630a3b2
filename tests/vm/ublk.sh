#!/bin/bash
# `granary mount --ublk` on Debian 13's kernel: under readers of the device (O_DIRECT) and of the files (dropped from the
# page cache), each read compared with a copy, the front end is killed twenty times, frozen, killed with its supervisor,
# replaced by an upgrade, and comes back with another image. No read fails, none is wrong, and all go on. Then: a device
# is read-only; a killed mount leaves none; a mounted one is never removed; umount --force ends reads with EIO.
# ctest: lock=vm long
suite=trixie
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
prepare_other_image

{
    guest_readers
    cat <<'GUEST'
front=ublk listen=--ublk
# devices: how many there are
devices() { ls /dev | grep -c '^ublkc' || true; }
# answers_EIO: a read of the device fails, and with that
answers_EIO() {
    dd if=$device of=/dev/null bs=4096 count=1 iflag=direct 2>/dd.err && { echo "a failed device is read"; return 1; }
    grep -E "(Input/output|I/O) error" /dd.err || { cat /dd.err; return 1; }
}
# kill_supervisors: of all granary-ublk but that of $server
kill_supervisors() {
    for child in $(pidof granary-ublk); do
        parent=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$child/status)
        [ "$parent" = "$server" ] || kill -9 $parent
    done
}
kill_all() {
    kill_supervisors
    until_true '[ "$(pidof granary-ublk | wc -w)" = 1 ]'
}
[ -e /dev/ublk-control ] || { echo "this kernel has no ublk"; exit 1; }

granary mount --ublk file:///store/perl /mnt/data --cache /cache:64M --slow-read 2s | grep "(ublk, /dev/ublkb"
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
granary status --quick /mnt/data | grep -x "    $device: ublk"
[ "$(cat /sys/block/${device#/dev/}/ro)" = 1 ]
dd if=/dev/zero of=$device bs=4096 count=1 2>/dev/null && { echo "the device can be written"; exit 1; }

start_readers
end_readers "nothing"

start_readers
for i in $(seq 20); do
    kill_child
    another_child
    go_on
done
end_readers "the front end killed 20 times"

start_readers
kill -STOP $(pidof granary-ublk)
sleep 5
kill -CONT $(pidof granary-ublk)
end_readers "the front end frozen for 5 s"

echo "== the supervisor and its child killed; the next mount with the same options starts them again"
start_readers
kill -9 $(sed -n 's/^PPid:[^0-9]*//p' /proc/$(pidof granary-ublk)/status)
until_true '! pidof granary-ublk'
mkdir -p /mnt/second
granary mount --ublk file:///store/perl /mnt/second --cache /cache:64M --slow-read 2s
end_readers "granary serve killed, another mount starts it again"
[ "$(devices)" = 2 ]
granary umount /mnt/second
[ "$(devices)" = 1 ]

start_readers
old=$(pidof granary-ublk)
granary upgrade /mnt/data
another_child
end_readers "replaced by granary upgrade"

echo "== a mount is never taken away from under its readers"
mkdir -p /mnt/elsewhere
mount --bind /mnt/data /mnt/elsewhere
granary umount /mnt/data 2>/err && { echo "a device in use was removed"; exit 1; }
grep "still mounted" /err
[ "$(devices)" = 1 ]
number=${device#/dev/ublkb}
"$ublk" --remove $number $(cat /sys/block/ublkb$number/diskseq) 2>/err && { echo "a mounted device was removed"; exit 1; }
grep "still mounted" /err
umount /mnt/elsewhere
"$ublk" --remove $number 1 # another disk than this one
[ "$(devices)" = 1 ]
granary umount /mnt/data
[ "$(devices)" = 0 ]
until_true '! pidof granary-ublk'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }

echo "== a server that comes back with another image"
serve store /s.sock /serve.log
granary mount --ublk file:///store/perl /mnt/data --socket /s.sock
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
start_readers
kill -9 $server
until_true '! pidof granary-ublk'
serve store2 /s.sock /other.log
until_true 'grep -q "REFUSED.*another image" /other.log'
kill -9 $server
until_true '! pidof granary-ublk'
serve store /s.sock /serve.log
end_readers "server back with another image, refused; then the right one"

echo "== a forced umount: EIO, and the device goes with its last user"
exec 5</mnt/data/$(head -n 1 /list)
granary umount --force /mnt/data 2>/err && { echo "removed under an open file"; exit 1; }
cat /err
grep "still mounted" /err
[ "$(devices)" = 1 ]
answers_EIO
kill_child # the next front end goes on failing it
another_child
answers_EIO
exec 5<&-
granary umount /mnt/data
[ "$(devices)" = 0 ]

echo "== a forced umount of a device that waits for the right image"
granary mount --ublk file:///store/perl /mnt/data --socket /s.sock
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
exec 5</mnt/data/$(head -n 1 /list)
kill -9 $server
until_true '! pidof granary-ublk'
serve store2 /s.sock /other.log 5<&-
until_true 'grep -q "REFUSED.*another image" /other.log'
answers_EIO &
reader=$!
granary umount --force /mnt/data 2>/err && { echo "removed under an open file"; exit 1; }
cat /err
wait $reader
exec 5<&-
granary umount /mnt/data
[ "$(devices)" = 0 ]
kill -9 $server
until_true '! pidof granary-ublk'
serve store /s.sock /serve.log

echo "== a server that is stopped: umount ends, and the removal with the server"
granary mount --ublk file:///store/perl /mnt/data --socket /s.sock
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
kill -STOP $(pidof granary-ublk)
dd if=$device of=/dd.out bs=64k skip=37 count=1 iflag=direct 2>/dev/null &
reader=$!
until_true 'grep -q "^State:.D" /proc/$reader/status'
granary umount /mnt/data 2>/err && { echo "removed a device that waits"; exit 1; }
cat /err
grep "its server is stopped, or .*; the removal goes on" /err
removals=$(pidof granary-ublk | wc -w)
for option in "" --force; do
    granary umount $option /mnt/data 2>/err && { echo "removed a device that waits"; exit 1; }
    cat /err
    grep "is being removed already" /err
done
[ "$(pidof granary-ublk | wc -w)" = $removals ]
killall -CONT granary-ublk
wait $reader
dd if=/image of=/dd.want bs=64k skip=37 count=1 2>/dev/null
cmp /dd.out /dd.want
until_true '[ "$(devices)" = 0 ]'
granary umount /mnt/data

echo "== the front end killed as soon as there is a device, again and again: nothing hangs"
for i in $(seq 8); do
    granary mount --ublk file:///store/perl /mnt/data --socket /s.sock >/dev/null 2>&1 &
    mount=$!
    until_true 'ls /dev/ublkb* 2>/dev/null || ! kill -0 $mount 2>/dev/null' >/dev/null
    for j in $(seq $i); do
        killall -9 granary-ublk 2>/dev/null || true
        usleep $((j * 100000))
    done
    wait $mount || true
    until_true 'pidof granary-ublk' >/dev/null
    ! granary status --quick /mnt/data >/dev/null 2>&1 || cmp /mnt/data/$(head -n 1 /list) /copy/$(head -n 1 /list)
    granary umount /mnt/data >/dev/null 2>&1 || true
    until_true '[ "$(devices)" = 0 ]'
done

echo "== the same when the whole server was killed: it is started again, to answer EIO"
granary mount --ublk file:///store/perl /mnt/second --cache /cache:64M
device=$(grep ' /mnt/second ' /proc/mounts | cut -d ' ' -f 1)
exec 5</mnt/second/$(head -n 1 /list)
kill_all
granary umount --force /mnt/second 2>/err && { echo "removed under an open file"; exit 1; }
cat /err
answers_EIO
exec 5<&-
granary umount /mnt/second
[ "$(devices)" = 0 ]

echo "== a mount whose server was killed, and that nobody reads, is unmounted all the same"
granary mount --ublk file:///store/perl /mnt/second --cache /cache:64M
kill_all
granary umount /mnt/second
[ "$(devices)" = 0 ]

# at_an_instant I: some time into $mount: before its device is there, or shortly after
at_an_instant() {
    [ $1 -gt 3 ] || { usleep $(($1 * 300000)); return 0; }
    until_true '[ "$(devices)" != 0 ] || ! kill -0 $mount 2>/dev/null'
    usleep $((($1 - 4) * 100000))
}
echo "== a mount that is killed leaves no device"
for i in $(seq 10); do
    granary mount --ublk file:///store/perl /mnt/data --socket /s.sock >/dev/null 2>&1 &
    mount=$!
    at_an_instant $i
    kill -9 $mount 2>/dev/null || true
    wait $mount || true
    granary umount /mnt/data >/dev/null 2>&1 || true
    until_true '[ "$(devices)" = 0 ]'
done

echo "== nor does one that is killed with the server that it has started"
for i in $(seq 3 8); do
    granary mount --ublk file:///store/perl /mnt/second --cache /cache:64M >/dev/null 2>&1 &
    mount=$!
    at_an_instant $i
    kill -9 $mount 2>/dev/null || true
    kill_supervisors
    wait $mount || true
    granary umount /mnt/second || true
    until_true '[ "$(devices)" = 0 ]'
done
granary mount --ublk file:///store/perl /mnt/data --socket /s.sock
cmp /mnt/data/$(head -n 1 /list) /copy/$(head -n 1 /list)
granary umount /mnt/data
[ "$(devices)" = 0 ]
kill $server
wait $server
GUEST
} >"$W/guest.sh"
run_readers 1800 --file "$W/store2:/store2" --env "ublk=$UBLK"
