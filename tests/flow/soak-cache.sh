#!/bin/bash
# A soak: two readers go through an image two and a half times as large as the cache, again and again, while bytes of
# the cache's data are overwritten and the server is killed every third round. No reader ever gets a wrong byte (a
# killed server may cut one short), the cache never outgrows its budget, and the damage was seen and healed.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

rounds=${GRANARY_SOAK_ROUNDS:-60}
budget=$((96 << 20))
mkdir "$W/tree"
for i in $(seq 60); do
    { head -c 3000000 /dev/urandom; seq "$i" 200000; } >"$W/tree/file-$i"
done
"$GRANARY" build -q "$W/tree" "$W/store/soak" >"$W/built"
"$GRANARY" export -q "$W/store/soak" "$W/image"
[ "$(stat -c %s "$W/image")" -gt $((2 * budget)) ] || fail "the image is too small to evict anything"

background "$GRANARY" serve "$W/store/soak" --socket "$W/nbd.sock" --cache "$W/cache:$budget" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
uri="nbd+unix:///soak?socket=$W/nbd.sock"
counter() { "$GRANARY" status --quick "$W/nbd.sock" --json | jq ".counters.granary_cache_$1"; }

# reader OUT: what cmp says of the bytes that came
reader() { nbdcopy --request-size=262144 "$uri" - 2>"$1.err" | cmp - "$W/image" >"$1" 2>&1 || true; }

damage() {
    local at
    for at in 1 2 3 4 5 6 7 8; do
        at=$(((RANDOM << 15 | RANDOM) % (budget - (8 << 20))))
        head -c 64 /dev/urandom | dd of="$W/cache/data" bs=1 seek=$at conv=notrunc status=none
        sleep 0.05
    done
}

whole=0 evictions=0 crc_errors=0
for round in $(seq "$rounds"); do
    reader "$W/one" & one=$!
    reader "$W/two" & two=$!
    damage
    [ $((round % 3)) != 0 ] || kill -9 "$(pgrep -P "$SERVE")" 2>/dev/null || true
    wait "$one" "$two"
    ! grep -h differ "$W/one" "$W/two" || fail "round $round: wrong bytes"
    [ -s "$W/one" ] || whole=$((whole + 1))
    [ -s "$W/two" ] || whole=$((whole + 1))
    used=$(du -s --block-size=1 "$W/cache" | cut -f 1)
    [ "$used" -le $budget ] || fail "round $round: the cache holds $used bytes of $budget"
    (wait_for 60 "$GRANARY" status "$W/nbd.sock" >"$W/status") || { cat "$W/serve.err"; fail "round $round: the server is gone"; }
    if [ $((round % 3)) = 2 ]; then # the next round's kill takes the counters along
        evictions=$((evictions + $(counter evictions_total)))
        crc_errors=$((crc_errors + $(counter crc_errors_total)))
    fi
done
echo "$rounds rounds, $whole whole reads, $evictions evictions, $crc_errors damaged blocks found"
[ "$whole" -ge "$rounds" ] || fail "too few reads came to their end"
[ "$evictions" -gt 0 ] || fail "nothing was evicted"
[ "$crc_errors" -gt 0 ] || fail "no damage was found: the test proves nothing"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
