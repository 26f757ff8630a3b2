#!/bin/bash
# A server that is stopped on purpose under readers of its mounts: by SIGTERM, and started again. No read fails, none is
# wrong, and all go on; the longest one is printed. The next server serves from the cache what the one before it fetched.
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

granary umount /mnt/data
kill $server
wait $server
GUEST
} >"$W/guest.sh"
run_readers 300
