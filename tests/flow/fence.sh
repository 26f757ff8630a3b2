#!/bin/bash
# fence=warmed: with the store up a reader of what was not warmed gets an error at once, which is counted, logged with
# the offset whose file can be named, and bounded; with the store down it reads what was warmed. Warming fetches.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v jq >/dev/null || skip "no jq here (apt-get install jq)"

mkdir -p "$W/tree"
for i in 1 2 3; do head -c 3000000 /dev/urandom >"$W/tree/$i.bin"; done
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" export -q "$W/store/faces" "$W/image"
place() { "$GRANARY" ls -l --json "$W/store/faces" "$1" | jq -r '.extents[0] | "\(.offset) \(.length)"'; }
read -r OFF1 LEN1 < <(place 1.bin)
read -r OFF3 LEN3 < <(place 3.bin)
uri() { echo "nbd+unix:///faces?socket=$W/nbd"; }
probe() { "$GRANARY_BUILD/tests/tools/nbdprobe" "$(uri)" "$@"; }
read_at() { probe read "$1" "$2" 2>"$W/read.err" | cmp -s - <(tail -c "+$(($1 + 1))" "$W/image" | head -c "$2"); }
status() { "$GRANARY" status --json "$W/nbd" | jq "$1"; }
stop() { kill -TERM "$SERVER_PID" && wait "$SERVER_PID" || fail "server: exit $?"; }
serve() {
    serve_unix "$W/nbd" "image=$W/store/faces" "cache=$W/cache:96M" fence=warmed control="$W/nbd.control" 2>"$W/server.err"
}

echo "== nothing is warmed: nothing is read, with the store up, and nothing is fetched"
serve
! read_at "$OFF1" 1000 || fail "what is not cached was read"
[ "$(status .exports[0].fence_refusals)" = 1 ] || fail "$(status .)"
[ "$(status .counters.granary_fetch_requests_total)" = 0 ] || fail "something was fetched: $(status .)"
status .fence | grep warmed >"$W/null" || fail "$(status .)"
"$GRANARY" status "$W/nbd" >"$W/out"
grep -q '^cache-only mode: reads of what is not cached fail' "$W/out" && grep -q '1 reads refused in cache-only mode' "$W/out" || fail "$(cat "$W/out")"
grep -q "bytes at offset $OFF1 are not cached" "$W/server.err" || fail "$(cat "$W/server.err")"
"$GRANARY" ls "$W/store/faces" --at "$OFF1" | grep 1.bin >"$W/null" || fail "no file at $OFF1"

echo "== warming fetches, by control socket and by NBD; the rest stays behind the fence"
"$GRANARY" warm "$W/nbd" --path 1.bin >"$W/out"
read_at "$OFF1" "$LEN1" || fail "what was warmed is not read: $(cat "$W/read.err")"
! read_at "$OFF3" "$LEN3" || fail "what is not cached was read"
probe cache "$OFF3" 100000 || fail "NBD_CMD_CACHE does not fetch"
read_at "$OFF3" 100000 || fail "what was asked for by NBD_CMD_CACHE is not read"
curl -s --unix-socket "$W/nbd.control" http://granary/metrics >"$W/metrics"
grep -q '^granary_fence_refusals_total{export="faces"} 2$' "$W/metrics" || fail "$(grep fence "$W/metrics")"

echo "== a storm of refusals is a bounded log"
probe scan 4096 >"$W/scan" 2>"$W/scan.err" || fail "$(cat "$W/scan.err")"
refusals=$(status .exports[0].fence_refusals)
[ "$refusals" -gt 1000 ] || fail "$refusals refusals: $(cat "$W/scan")"
lines=$(grep -c 'not cached' "$W/server.err")
[ "$lines" -ge 100 ] && [ "$lines" -lt $((refusals / 2)) ] || fail "$lines lines of log for $refusals refusals"

echo "== what was warmed is read with the store down"
mv "$W/store" "$W/store.away"
read_at "$OFF1" "$LEN1" || fail "what was warmed is not read: $(cat "$W/read.err")"
! read_at "$((OFF3 + 1000000))" 1000 || fail "what is not cached was read"
stop
mv "$W/store.away" "$W/store"

echo "== refusals"
! "$GRANARY" serve "$W/store/faces" --socket "$W/s" --fence warmed 2>"$W/err" || fail "a fence without a cache"
grep -q -- '--fence needs --cache' "$W/err" || fail "$(cat "$W/err")"
! "$GRANARY" serve "$W/store/faces" --socket "$W/s" --cache "$W/c:96M" --fence wramed 2>"$W/err" || fail "an unknown fence"
grep -q -- '--fence wramed: write none or warmed' "$W/err" || fail "$(cat "$W/err")"
