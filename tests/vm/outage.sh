#!/bin/bash
# The store answers nobody, for more than five times as long as the kernel waits for a reply, under readers of what is
# not cached and of what is: no read fails, none is wrong, and what the server has of threads, and is asked ever anew,
# stays within bounds; it is printed.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"
. "$GRANARY_SOURCE/tests/vm/lib-far.sh"

prepare_far
{
    guest_readers
    guest_far
    cat <<'GUEST'
counter() { granary status --quick /s.sock --json | sed -n "s/.*\"granary_$1\": *\([0-9]*\).*/\1/p"; }
threads() { awk '$1 == "Threads:" { print $2 }' /proc/$(pidof granary-nbd)/status; }
few_threads() { [ $(threads) -le $((before + 256)) ]; }
# read_hits: the same block, cached, until /stop is there; "reads failed longest-in-seconds" to /hits
read_hits() {
    reads=0 failed=0 longest=0
    while [ ! -e /stop ]; do
        began=$(date +%s)
        dd if=$device of=/block iflag=direct bs=4096 count=1 2>/dev/null && cmp -s /block /block.want || failed=$((failed + 1))
        took=$(($(date +%s) - began))
        [ $took -le $longest ] || longest=$took
        reads=$((reads + 1))
        echo $reads $failed $longest >/hits
    done
}
# crowd N: N reads at a time, of pieces all over the image; /crowd/I.ok when one was right
crowd() {
    rm -rf /crowd
    mkdir /crowd
    pieces=$(($(stat -c %s /image) / 65536))
    for i in $(seq $1); do
        {
            dd if=$device of=/crowd/$i iflag=direct bs=65536 skip=$((i * pieces / ($1 + 1))) count=1 2>/dev/null
            dd if=/image bs=65536 skip=$((i * pieces / ($1 + 1))) count=1 2>/dev/null | cmp -s - /crowd/$i && touch /crowd/$i.ok
        } &
    done
}
nbd_timeout=5
reads_at_a_time=32

serve_far
attach $nbd_timeout
dd if=/image of=/block.want bs=4096 count=1 2>/dev/null
start_readers
before=$(threads)
read_hits &
hits=$!
until_true '[ -s /hits ]'
host dead
reads_before=$(counter image_reads_total)
began=$(date +%s)
crowd $reads_at_a_time
most=0
while [ $(($(date +%s) - began)) -lt $((6 * nbd_timeout)) ]; do
    now=$(threads)
    [ $now -le $most ] || most=$now
    sleep 1
done
waiting=$((reads_at_a_time - $(ls /crowd | grep -c ok || true)))
# Without an end for those that wait for connections that are gone there would be $waiting more at every timeout
until_true few_threads
last=$(threads)
asked=$(($(counter image_reads_total) - reads_before))
touch /stop
outage=$(($(date +%s) - began))
fetches=$(host asked)
host alive
wait $hits
read reads failed longest </hits
end_readers "store silent for $outage s"
until_true '[ $(ls /crowd | grep -c ok) = $reads_at_a_time ]'
echo "store silent: cached block: $reads reads, $failed errors, longest $longest s"
echo "store silent: $waiting of $reads_at_a_time more readers waited at the end, all were right"
# What waited, what the readers above asked, and each of it again at every timeout; the cached block's reads besides
bound=$(((reads_at_a_time + 32) * (outage / nbd_timeout + 2) + reads))
echo "store silent: requests to the server: $asked, bound $bound; to the store: $fetches, bound 80"
echo "store silent: threads of the server: $before before, $most at most, $last at the end"
for p in $(pidof granary); do
    ! tr '\0' ' ' </proc/$p/cmdline | grep " keep $device" >/found ||
        awk '$1 == "VmHWM:" { print "store silent: the keeper had " $2 " KiB of memory at most" }' /proc/$p/status
done
dmesg | grep -c "Connection timed out" | sed 's/^/store silent: the kernel gave up waiting at least this often: /'
[ $failed = 0 ]
[ $waiting -ge 8 ] || { echo "next to nothing waited"; exit 1; }
[ $asked -le $bound ]
[ $fetches -le 80 ]
[ $most -le $((before + 256)) ] # one bound for the process, whatever the number of connections
detach
GUEST
} >"$W/guest.sh"
run_readers 850 "${FAR[@]}"
