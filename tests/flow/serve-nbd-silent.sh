#!/bin/bash
# One of two stores behind `granary serve` answers nobody: more reads of its image than there are threads, large and
# small, of three clients, keep no read of the other image waiting, cached or not. When the store is back they all end
# well.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-silent.sh"

probe=$GRANARY_BUILD/tests/tools/nbdprobe
background "$GRANARY" serve "$STORE_URL/one" "$W/store-two/two" --socket "$W/sock" --threads 32 \
    --cache "$W/cache:128M" --warm none --fill off --readahead 0 --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"

# read_part IMAGE OFFSET LENGTH: they are the image's bytes
read_part() { timeout 60 "$probe" "nbd+unix:///$1?socket=$W/sock" read "$2" "$3" | cmp - <(tail -c +$(($2 + 1)) "$W/$1" | head -c "$3"); }

read_part one 0 65536
metric() { metrics "$W/sock.control" | awk -v name="$1" '$1 == name { print $2 }'; }
touch "$W/dead"
# crowd REQUESTS LENGTH OFFSET: a client that asks for so much at once, which goes on in the background
readers=()
crowd() {
    "$probe" "nbd+unix:///one?socket=$W/sock" crowd "$1" "$2" "$3" 2 >"$W/crowd.${#readers[@]}" &
    readers+=($!)
}
# the large ones first: the small ones alone could take all of the store's threads
crowd 6 1048576 2000000
crowd 6 1048576 2000000
waiting() { [ "$(metric granary_front_reply_bytes)" -gt 4000000 ]; }
wait_for 60 waiting
crowd 60 4096 20000000
connected() { [ "$(metric granary_front_connections)" = 3 ]; }
wait_for 60 connected
for offset in 1000000 9000000 30000000; do
    read_part two $offset 1048576 || fail "a read of another store waits for the silent one"
done
read_part one 0 65536 || fail "a cached read waits for the silent store"

rm "$W/dead"
for pid in "${readers[@]}"; do wait "$pid" || fail "a read failed: $(cat "$W/serve.err")"; done
grep -L '^0 of ' "$W"/crowd.* >"$W/some-failed" || true
[ ! -s "$W/some-failed" ] || fail "reads failed: $(cat "$W"/crowd.*)"
read_part one 2000000 8000000
