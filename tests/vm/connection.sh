#!/bin/bash
# One connection of four dies, by TCP through a proxy that has a process for each: no read fails, and it is replaced.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
{
    guest_readers
    cat <<'GUEST'
granary serve file:///store/perl --listen 127.0.0.1:7001 --cache /cache-tcp:64M >/serve.log 2>&1 &
server=$!
said /serve.log serving
nc -ll -p 7000 -e nc 127.0.0.1 7001 &
proxy=$!
until_true "grep ':1B58 .* 0A ' /proc/net/tcp*" # it listens: no connection, hence no process, before nbd-client's
device=/dev/nbd6
nbd-client 127.0.0.1 7000 $device -N perl -C 4 -R
keep --connect 127.0.0.1:7000 --export perl --nbd-timeout 5s
mount -t erofs -o ro $device /mnt/data
start_readers
# The first that was made
kill -9 $(pidof nc | tr ' ' '\n' | grep -vx $proxy | sort -n | sed -n 1p)
until_true 'grep "new connections after" /keep.log'
end_readers "one connection of four dies"
umount /mnt/data
nbd-client -d $device
wait $keeper
kill $server $proxy
wait $server
GUEST
} >"$W/guest.sh"
run_readers 850
