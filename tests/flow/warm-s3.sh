#!/bin/bash
# granary warm of an image in a real S3 server (Ceph): what a dry run says is what is fetched then; a reader beside it
# gets the right bytes, and nothing is fetched twice for the two; killed clients and killed servers leave what came.
# ctest: needs=ceph
. "$(dirname "$0")/lib-warm.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

use_ceph warm
export STORE=s3://warm/store

make_faces "$W/tree"
for i in $(seq 200); do seq $((i * 1000)) $((i * 1000 + 3000)) >"$W/tree/val/$i"; done # stored smaller than they are
"$GRANARY" build -q "$W/tree" "$STORE/faces" >"$W/built"
"$GRANARY" export -q "$STORE/faces" "$W/image"
serve_lake() { serve latest hedge=0; } # what is asked for twice because it is slow would count twice
FILES=$("$GRANARY" inspect --json "$STORE/faces" | jq .counts.files)
PROBE=$GRANARY_BUILD/tests/tools/nbdprobe

say() { jq -r "$1" "$W/json"; }
# all_told: the last line of progress in $W/told says what the result in $W/json does
all_told() {
    jq -e --slurpfile told "$W/told" '($told | last.progress) as $p | .cached_bytes == .bytes and $p.bytes_done == .bytes
        and $p.bytes_total == .bytes and $p.files_done == .files and $p.failed_chunks == 0' "$W/json" >"$W/null" || fail "$(cat "$W/told" "$W/json")"
}

echo "== what a dry run says is fetched then, and no more; files are counted"
serve_lake
warm --all --dry-run --json >"$W/json"
need=$(say .fetch_bytes)
[ "$need" -lt "$(say .needed_bytes)" ] && [ "$(fetched)" = 0 ] || fail "$(cat "$W/json"); $(fetched) fetched"
warm --path val --dry-run --json >"$W/json"
some=$(say .fetch_bytes)
warm --path val --json >"$W/json" 2>"$W/told"
all_told
[ "$(fetched)" = "$some" ] || fail "$some bytes were said to be needed, $(fetched) came"
warm --all --json >"$W/json" 2>"$W/told"
all_told
[ "$(say .files)" = "$FILES" ] || fail "$FILES files: $(cat "$W/json")"
[ "$(fetched)" = "$need" ] || fail "$need bytes were said to be needed, $(fetched) came"
stop

echo "== beside readers: their bytes are right, nothing is fetched twice, progress is exact"
serve_lake
for i in 1 2 3; do
    "$PROBE" "$(uri)" whole $((i * 50000)) "$W/image" >"$W/read.$i" 2>"$W/read.$i.err" &
    readers[i]=$!
done
warm --all --json >"$W/json" 2>"$W/told"
all_told
for i in 1 2 3; do
    wait "${readers[i]}" && grep -q '^0 of ' "$W/read.$i" || fail "reader $i: $(cat "$W/read.$i" "$W/read.$i.err")"
done
came=$(fetched) # the warming asks for index nodes by a handle of its own, and a reader may at the same moment: the one node
chunks=$("$GRANARY" inspect --json "$STORE/faces" | jq .stored_bytes)
[ "$came" = "$need" ] || [ "$came" = $((need + need - chunks)) ] || fail "the image has $need bytes, $came came for it and its readers"
stop

echo "== two of one image at once: both succeed, each chunk comes once"
serve_lake
warm --all --json >"$W/json.other" 2>"$W/told.other" &
other=$!
warm --all --json >"$W/json" 2>"$W/told"
all_told
wait "$other" || fail "the other: $(cat "$W/told.other")"
jq -e '.cached_bytes == .bytes' "$W/json.other" >"$W/null" || fail "$(cat "$W/json.other")"
[ "$(fetched)" = "$need" ] || fail "the image has $need bytes, $(fetched) came for two"
stop

# in_the_middle COMMAND...: run it in the background as CLIENT; some of the image is cached when this returns, not all
some_cached() { [ "$("$GRANARY" cache ls --control "$NBD" --json | jq .cached_chunks)" -ge 10 ]; }
in_the_middle() {
    background "$@" >"$W/out" 2>"$W/err"
    CLIENT=$BACKGROUND_PID
    wait_for 60 some_cached
}

echo "== the client is interrupted, or killed: the server goes on, and what came is not fetched again"
for signal in INT KILL; do
    serve_lake
    in_the_middle env --default-signal=INT "$GRANARY" warm "$NBD" --all --bwlimit 512K
    kill -$signal "$CLIENT"
    status=0
    wait "$CLIENT" || status=$?
    [ $status = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit $status: $(cat "$W/err")"
    warm --all --json >"$W/json" 2>"$W/told"
    all_told
    [ "$(say .fetch_bytes)" -lt "$need" ] && [ "$(fetched)" = "$need" ] || fail "of $need bytes: $(cat "$W/json"); $(fetched) came"
    nbdcopy "$(uri)" - | cmp - "$W/image" || fail "wrong bytes"
    stop
done

echo "== the server is killed: one sentence, exit 1; the next one has what came"
serve_lake
in_the_middle "$GRANARY" warm "$NBD" --all --bwlimit 512K -q # no lines of progress, which a busy machine has time for
kill -9 "$SERVER_PID"
status=0
wait "$CLIENT" || status=$?
[ $status = 1 ] && [ "$(grep -c . "$W/err")" = 1 ] && grep -q "ended in the middle; what came is cached: run it again" "$W/err" || fail "exit $status: $(cat "$W/err")"
cache=$W/cache.$STARTS
wait "$SERVER_PID" || true
STARTS=$((STARTS + 1)) NBD=$W/nbd.$STARTS
serve_unix "$NBD" "image=$STORE/faces" "cache=$cache:96M" readahead=0 control="$NBD.control" 2>"$W/server.$STARTS.err"
warm --all --json >"$W/json" 2>"$W/told"
all_told
[ "$(say .fetch_bytes)" -lt "$need" ] && [ "$(fetched)" = "$(say .fetch_bytes)" ] || fail "of $need: $(cat "$W/json"), $(fetched) came"
prefetched() { "$GRANARY" status --quick --json "$NBD" | jq .counters.granary_image_prefetch_bytes_total; }
before=$(prefetched)
background "$GRANARY" warm "$(uri)" --all --bwlimit 512K >"$W/out" 2>"$W/err"
CLIENT=$BACKGROUND_PID
asked() { [ "$(prefetched)" -gt $((before + 1000000)) ]; }
wait_for 60 asked
kill -9 "$SERVER_PID"
status=0
wait "$CLIENT" || status=$?
[ $status = 1 ] && grep -q "$NBD" "$W/err" || fail "by NBD: exit $status: $(cat "$W/err")"
wait "$SERVER_PID" || true
