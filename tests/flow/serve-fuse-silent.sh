#!/bin/bash
# One of two stores behind `granary serve --fuse` answers nobody: more reads of its image than there are threads, large
# and small, keep no read of the other image waiting, cached or not. When the store is back they all end well.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || skip "mounting FUSE needs root and /dev/fuse"
. "$GRANARY_SOURCE/tests/flow/lib-silent.sh"

mkdir "$W/images"
background "$GRANARY" serve "$STORE_URL/one" "$W/store-two/two" --fuse "$W/images" --threads 32 \
    --cache "$W/cache:128M" --warm none --fill off --readahead 0 --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"

# read IMAGE SIZE N FILE: the Nth SIZE bytes of the image, past the page cache
read_part() { timeout 100 dd if="$W/images/$1" iflag=direct bs="$2" skip="$3" count=1 status=none >"$4"; }

read_part one 64K 0 "$W/cached-before"
touch "$W/dead"
readers=()
for i in $(seq 1 20); do
    read_part one 1M "$i" "$W/large-$i" &
    readers+=($!)
done
for i in $(seq 1 60); do
    read_part one 4K $((6000 + 16 * i)) "$W/small-$i" &
    readers+=($!)
done
waiting() { [ "$("$GRANARY" status --quick "$W/images" --json | jq .counters.granary_front_reply_bytes)" -gt 4000000 ]; }
wait_for 60 waiting
for i in 1 2 3 30; do
    read_part two 1M "$i" "$W/other" || fail "a read of another store waits for the silent one"
    cmp "$W/other" <(dd if="$W/two" bs=1M skip="$i" count=1 status=none) || fail "other bytes of two at $i MiB"
done
read_part one 64K 0 "$W/cached" || fail "a cached read waits for the silent store"
cmp "$W/cached" "$W/cached-before"

rm "$W/dead"
for pid in "${readers[@]}"; do wait "$pid" || fail "a read failed: $(cat "$W/serve.err")"; done
for i in $(seq 1 20); do cmp "$W/large-$i" <(dd if="$W/one" bs=1M skip="$i" count=1 status=none) || fail "other bytes at $i MiB"; done
for i in $(seq 1 60); do
    cmp "$W/small-$i" <(dd if="$W/one" bs=4K skip=$((6000 + 16 * i)) count=1 status=none) || fail "other bytes at part $i"
done
