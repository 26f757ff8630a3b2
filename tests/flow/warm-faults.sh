#!/bin/bash
# granary warm while the S3 store fails: three requests in ten are survived, with exact progress and each chunk once in
# the cache; a refusal is one sentence and exit 1, and the same command goes on when it is over.
. "$(dirname "$0")/lib-build-faults.sh"
for tool in nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl)"; done

make_large_files "$W/tree" 10
serve_faulty "$W/tree"
"$GRANARY" build -q s3://data s3://lake/store/set >"$W/built"
"$GRANARY" export -q s3://lake/store/set "$W/image"
serve_unix "$W/sock" s3://lake/store/set control="$W/sock.control" cache="$W/cache:128M" timeout=300s hedge=0 2>"$W/log"
counter() { "$GRANARY" status --json "$W/sock" | jq ".counters.granary_$1"; }

echo "== 403: the store's sentence, at once; nothing hangs, and the server goes on"
faults 100 '"denied"' 1 /packs/
refused 1 "AccessDenied" "$GRANARY" warm "$W/sock" --all --json
jq -se 'last | .cached_chunks == 0 and .failed_files == 10' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
none_left() { [ "$(counter fetch_in_flight)" = 0 ]; }
wait_for 60 none_left
faults 100 '"denied"' 1 /catalogs/
refused 1 "AccessDenied" "$GRANARY" warm "$W/sock" --path 'file-1'

echo "== 30 % of the requests fail: it is survived"
faults 30 "$QUICK_KINDS"
"$GRANARY" warm "$W/sock" --all --json >"$W/json" 2>"$W/told" || { cat "$W/told" "$W/log"; fail "exit $?"; }
no_faults
jq -e --slurpfile told "$W/told" '($told | last.progress) as $p | .cached_bytes == .bytes and .files == 10
    and $p.bytes_done == .bytes and $p.files_done == 10 and $p.failed_chunks == 0' "$W/json" >"$W/null" || fail "$(cat "$W/told" "$W/json")"
[ "$(counter store_retries_total)" -gt 0 ] || fail "no faults were met"
gets=$(count GET)
nbdcopy "nbd+unix:///set?socket=$W/sock" "$W/copy"
cmp "$W/copy" "$W/image" || fail "wrong bytes"
[ "$(count GET)" = "$gets" ] || fail "what was warmed was asked of the store again"
