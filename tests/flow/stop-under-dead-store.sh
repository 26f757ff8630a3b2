#!/bin/bash
# A server is told to end while reads wait for a store that answers nobody: it ends all the same, its clients get
# errors or end of connection, and what was in its cache is served by the next one, from the cache. So does the plugin
# alone while a warm request waits for a store that is not there.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
head -c 20000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

serve_silent "$W/store"
STORE_SERVER=$BACKGROUND_PID
image=$STORE_URL/one
uri="nbd+unix:///one?socket=$W/sock"
probe=$GRANARY_BUILD/tests/tools/nbdprobe
counter() { "$GRANARY" status --quick "$W/sock" --json | jq ".counters.granary_$1"; }
serve() {
    background "$GRANARY" serve "$image" --socket "$W/sock" --cache "$W/cache:64M" --warm none --disk-timeout "$DISK_TIMEOUT" \
        >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
waiting() { [ "$(counter fetch_in_flight)" -gt 0 ]; }

serve
"$probe" "$uri" cache 0 8388608
touch "$W/dead"
readers=()
for i in 1 2 3 4; do
    "$probe" "$uri" scan 1048576 >"$W/scan-$i" 2>&1 &
    readers+=($!)
done
wait_for 60 waiting
kill -TERM "$SERVE"
timeout 60 tail --pid="$SERVE" -f /dev/null || fail "it does not end"
wait "$SERVE" || fail "SIGTERM: exit $?"
for i in 1 2 3 4; do
    wait "${readers[$((i - 1))]}" || true # a client whose server is gone may say so
    ! grep -q '^0 of' "$W/scan-$i" || fail "a read of what nobody has succeeded"
done

rm "$W/dead"
serve
requests=$(counter fetch_requests_total)
nbdcopy --request-size=262144 "$uri" - | cmp - "$W/image" || fail "other bytes after the restart"
[ "$(counter cache_hits_total)" -ge $((8388608 / 262144)) ] || fail "what was cached is gone"
[ "$(counter cache_crc_errors_total)" = 0 ] || fail "damaged blocks after an orderly end"
[ "$(counter fetch_requests_total)" -gt "$requests" ] || fail "nothing was fetched: the test proves nothing"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

# An hour is what it may wait: it ends long before.
serve_unix "$W/plain" "$image" cache="$W/other:64M" control="$W/control" timeout=1h 2>"$W/plain.err"
"$GRANARY" warm "$W/control" --metadata --quiet >"$W/warm"
kill "$STORE_SERVER"
wait "$STORE_SERVER" || true
"$GRANARY" warm "$W/control" --all --quiet >"$W/warm" 2>&1 &
warm=$!
silent() { { "$GRANARY" status "$W/control" --json || [ $? = 3 ]; } | jq -e '.stores[0].state == "silent" and .stores[0].waiting > 0'; }
wait_for 60 silent >"$W/silent"
kill -TERM "$SERVER_PID"
timeout 60 tail --pid="$SERVER_PID" -f /dev/null || fail "the plugin does not end while a warm request waits"
wait "$SERVER_PID" || fail "the plugin: SIGTERM: exit $?"
! wait "$warm" || fail "a warm request without a store succeeded"
