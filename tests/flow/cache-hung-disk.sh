#!/bin/bash
# A real filesystem on a disk that hangs: ext4 on a loop device over a file that does not answer, read by io_uring. The
# reads of the client go on, the directory comes back when the disk does, and a server ends while its disk hangs.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
for tool in jq curl mkfs.ext4 losetup; do command -v $tool >/dev/null || skip "no $tool here (apt-get install jq curl e2fsprogs)"; done

probe=$GRANARY_BUILD/tests/tools/nbdprobe
faulty "$W/device" "$W/behind"
truncate -s 200M "$W/behind/blocks"
LOOP=$(losetup --direct-io=on -f --show "$W/device/blocks") || skip "no loop device here"
# Without a journal: while the commit of one hangs, a write that wants to note the file's time there is held by the
# kernel, and its process with it, until the disk answers (docs/internals/cache.md). Whether one is under way is a
# matter of chance.
mkfs.ext4 -q -O ^has_journal "$LOOP"
mkdir "$W/disk" "$W/tree"
mount "$LOOP" "$W/disk" || skip "this kernel does not mount ext4"
MOUNTS+=("$W/disk")
for i in $(seq 8); do head -c 2000000 /dev/urandom >"$W/tree/file-$i"; done
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" export -q "$W/store/faces" "$W/image"
serve_unix "$W/sock" "$W/store/faces" cache="$W/disk/cache:64M" control="$W/control" disk-timeout=2s 2>"$W/server.err"

count() { counter_of "$W/control" "cache_$1"; }
is() { [ "$(count "$1")" = "$2" ]; }
more() { [ "$(count "$1")" -gt "$2" ]; }
fault() { echo "$1" >"$W/device/.faults"; }
# compare: random reads, all right; that they end while the disk hangs says that they do not wait for it
compare() {
    local slowest
    slowest=$("$probe" "nbd+unix:///?socket=$W/sock" compare "$W/image")
    echo "   slowest read $slowest ms"
}
# all_hits: nothing is fetched any more
all_hits() {
    local misses
    misses=$(count misses_total)
    compare
    is misses_total "$misses"
}

wait_for 60 all_hits
more uring_reads_total 0 || skip "io_uring is refused here: its way is not tested"
is pread_reads_total 0 || fail "not all reads went by io_uring"

echo "== it hangs, and comes back"
fault read-hang
compare
is reading_down 1 || fail "reading is not down"
more read_timeouts_total 0 && more rings_lost_total 0 || fail "no read was late"
bypassed=$(count bypassed_total)
compare
more bypassed_total "$bypassed" || fail "nothing was bypassed"
fault off
wait_for 60 is reading_down 0
wait_for 60 all_hits

echo "== the server ends although its reads and writes hang"
curl -sS --fail --unix-socket "$W/control" -X POST "http://granary/cache/evict?all=1" >"$W/evicted"
fault write-hang
compare # fills
wait_for 60 grep -q "^write-hang [1-9]" "$W/device/.faults"
fault read-hang
compare
kill "$SERVER_PID"
wait_for 60 bash -c "! kill -0 $SERVER_PID"
grep -q "have had no answer from their disk; leaving without it" "$W/server.err" || fail "the log says: $(cat "$W/server.err")"
fault off
