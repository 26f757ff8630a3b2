#!/bin/bash
# A mount by ublk on Debian 13's kernel while its front end is killed a hundred times, frozen a hundred times, and replaced
# by `granary upgrade` a hundred times, under readers of the device (O_DIRECT) and of the files (dropped from the page
# cache). No read fails, none is wrong; the longest of each is printed.
# ctest: lock=vm long
suite=trixie
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
{
    guest_readers
    cat <<'GUEST'
front=ublk
granary mount --ublk file:///store/perl /mnt/data --cache /cache:64M | grep "(ublk, /dev/ublkb"
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)

start_readers
for i in $(seq 100); do
    kill_child
    another_child
    go_on
done
end_readers "killed 100 times"

start_readers
for i in $(seq 100); do
    kill -STOP $(pidof granary-ublk)
    sleep 1
    kill -CONT $(pidof granary-ublk)
    go_on
done
end_readers "frozen for a second 100 times"

start_readers
for i in $(seq 100); do
    old=$(pidof granary-ublk)
    granary upgrade /mnt/data >/dev/null
    another_child
    go_on
done
end_readers "upgraded 100 times"

granary umount /mnt/data
until_true '! ls /dev/ublkc* 2>/dev/null'
GUEST
} >"$W/guest.sh"
run_readers 3000
