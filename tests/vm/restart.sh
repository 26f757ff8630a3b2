#!/bin/bash
# A server that is stopped on purpose under readers of its mounts: by SIGTERM, and started again; replaced by another
# build of the program (granary upgrade), at rest, while an image is warmed, and one that `granary mount` started. No read
# fails, none is wrong, and all go on; the longest one is printed.
# ctest: serial
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
old=$(pidof nbdkit)
kill -TERM $old
another_nbdkit
end_readers "nbdkit told to end by SIGTERM"

mkdir -p /new/cli /new/plugin
cp "$(command -v granary)" /new/cli/
cp $(find /usr -name nbdkit-granary-plugin.so) /new/plugin/
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

# one that the mount started, with an empty cache, and a slow warming under way
granary mount file:///store/perl /mnt/data --cache /cache-warm:64M --nbd-timeout 5s --slow-read 2s
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
rm -f /warm.out
granary warm /mnt/data --all --bwlimit 64K >/warm.out 2>/warm.err &
warm=$!
start_readers
/new/cli/granary upgrade /mnt/data
wait $warm && { echo "warming went on over the change"; exit 1; }
grep "what came is cached: run it again to go on" /warm.err
end_readers "upgraded while it warms"
granary warm /mnt/data --all --quiet
granary umount /mnt/data
until_true '! pidof nbdkit'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }
GUEST
} >"$W/guest.sh"
run_readers 550
