#!/bin/bash
# A server that is stopped on purpose under readers of its mounts: by SIGTERM, and started again; replaced by another
# build of the program (granary upgrade), at rest, while an image is warmed, and one that `granary mount` started. No
# read fails, none is wrong, and all go on; the longest one is printed.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
{
    guest_readers
    cat <<'GUEST'
serve store /s.sock /serve.log
granary mount file:///store/perl /mnt/data --socket /s.sock --nbd-timeout 5s
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)

for signal in TERM INT; do
    start_readers
    kill -$signal $server
    wait $server
    [ ! -e /s.sock ]
    serve store /s.sock /serve.log
    end_readers "granary serve stopped by SIG$signal, started again"
done

start_readers
old=$(pidof granary-nbd)
kill -TERM $old
another_child
end_readers "the server told to end by SIGTERM"

mkdir -p /new/cli /new/nbd
cp "$(command -v granary)" /new/cli/
cp $(find /usr -name granary-nbd) /new/nbd/
start_readers
/new/cli/granary upgrade /s.sock
[ "$(readlink /proc/$server/exe)" = /new/cli/granary ]
end_readers "granary serve replaced by granary upgrade"

start_readers
granary upgrade /mnt/data
[ "$(readlink /proc/$server/exe)" != /new/cli/granary ]
end_readers "replaced again, found by its mount"

granary umount /mnt/data
kill $server
wait $server

# one that the mount started, with an empty cache, and a slow warming under way. The readers may have fetched everything
# before the change, which ends the warming: then once more. One that outlives the change does so every time.
for try in 1 2 3 4 5 6; do
    rm -rf /cache-warm /warm.err
    granary mount file:///store/perl /mnt/data --cache /cache-warm:64M --nbd-timeout 5s --slow-read 2s
    device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
    granary warm /mnt/data --all --bwlimit 64K >/warm.out 2>/warm.err &
    warm=$!
    start_readers
    /new/cli/granary upgrade /mnt/data
    over=0
    wait $warm || over=$?
    end_readers "upgraded while it warms"
    [ $over = 0 ] || break
    [ $try != 6 ] || { echo "warming went on over the change"; exit 1; }
    granary umount /mnt/data
    until_true '! pidof granary-nbd'
done
grep "what came is cached: run it again to go on" /warm.err || { cat /warm.err; exit 1; }
granary warm /mnt/data --all --quiet
granary umount /mnt/data
until_true '! pidof granary-nbd'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }
GUEST
} >"$W/guest.sh"
run_readers 850
