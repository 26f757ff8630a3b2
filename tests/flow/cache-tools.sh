#!/bin/bash
# granary cache ls, evict, pin on a server that is being read, and fsck on its directory afterwards. A reader compares
# every byte all the time: it never sees that chunks come and go.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq)"; done

make_faces "$W/tree"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" export -q "$W/store/faces" "$W/image"

serve() {
    background "$GRANARY" serve "$W/store/faces" --socket "$W/nbd.sock" --cache "$W/cache:96M" --warm none --disk-timeout "$DISK_TIMEOUT" \
        >"$W/serve.out" 2>>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
stop() { kill -TERM "$SERVE" && wait "$SERVE" || fail "serve: exit $?"; }
cache() { local command=$1; shift; "$GRANARY" cache "$command" --control "$W/nbd.sock" "$@"; }
# of FIELD [SELECTION...]: a number of the image's line
of() { local field=$1; shift; cache ls --json "${@:-faces}" | jq "select(.export == \"faces\").$field"; }
probe=$GRANARY_BUILD/tests/tools/nbdprobe
uri="nbd+unix:///faces?socket=$W/nbd.sock"
read_all() { nbdcopy --request-size=262144 "$uri" - 2>"$W/copy.err" | cmp - "$W/image" || fail "wrong bytes: $(cat "$W/copy.err")"; }

serve
echo "== ls"
[ "$(of cached_chunks)" = 0 ] || fail "something is cached before the first read"
read_all
"$probe" "$uri" cache 0 0 # a fill of a read may be left out
chunks=$(of chunks)
[ "$chunks" -gt 200 ] && [ "$(of cached_chunks)" = "$chunks" ] || fail "$(of cached_chunks) of $chunks chunks are cached"
cache ls >"$W/ls"
grep -qE "^faces +100\.0 % cached: $chunks of $chunks chunks" "$W/ls" || fail "$(cat "$W/ls")"
cache ls 'faces:val' >"$W/ls"
[ "$(grep -c '100.0 %.*val/deep/[0-9]*.txt$' "$W/ls")" = 12 ] || fail "$(cat "$W/ls")"
grep -q 'val/nothing$' "$W/ls" || fail "an empty file is no file: $(cat "$W/ls")"
[ "$(cache ls --json faces 'train/?.jpg' | jq -s 'map(select(.path)) | length')" = 9 ] || fail "train/?.jpg"
[ "$(of files faces:/train)" = 12 ] || fail "a directory"

echo "== evict while a reader compares"
: >"$W/go"
(while [ -e "$W/go" ]; do read_all || exit 1; done) & reader=$!
for i in $(seq 12); do
    cache evict faces "train/$i.*" >"$W/evicted"
    cache evict -q 'faces:*.txt' >"$W/evicted.txt"
    cache ls -q 'faces:*' >"$W/ls"
    cache pin -q faces "train/$i.*" >"$W/pinned"
    cache pin -q --off 'faces:train/1*' >"$W/unpinned"
    grep -qE '^faces: [0-9]+ chunks evicted' "$W/evicted" || fail "$(cat "$W/evicted")"
done
"$probe" "$uri" cache 0 0 # what is pinned stays only where it is
# Above, nothing was pinned of what the reader had not fetched again in time.
something_pinned() { cache pin -q faces 'train/5.*' >"$W/pinned" && [ "$(of pinned_chunks)" -gt 0 ]; }
wait_for 60 something_pinned
cache evict --all >"$W/evicted"
grep -q '[1-9][0-9]* pinned ones stay' "$W/evicted" || fail "$(cat "$W/evicted")"
cache pin --off --all >"$W/unpinned"
rm "$W/go"
wait "$reader" || fail "the reader saw something"
[ "$("$GRANARY" status --quick --json "$W/nbd.sock" | jq '.counters | .granary_cache_crc_errors_total + .granary_cache_read_errors_total')" = 0 ] ||
    fail "an eviction was taken for a fault of the disk"

echo "== what is evicted stays away after kill -9"
read_all
"$probe" "$uri" cache 0 0
cache pin 'faces:val/deep/3.txt' >"$W/pinned"
grep -qE '^faces: [1-9][0-9]* chunks pinned, .* on disk$' "$W/pinned" || fail "$(cat "$W/pinned")"
pinned=$(of pinned_chunks)
cache evict --json faces:train >"$W/evicted"
gone=$(jq .changed_chunks "$W/evicted")
[ "$gone" -gt 150 ] && [ "$gone" -lt "$chunks" ] || fail "$(cat "$W/evicted")"
[ "$(of cached_chunks)" = $((chunks - gone)) ] || fail "evicted $gone of $chunks, and there are $(of cached_chunks)"
kill -9 "$(pgrep -P "$SERVE")"
wait_for 60 bash -c "[ \"\$(\"$GRANARY\" cache ls --control '$W/nbd.sock' --json | jq .cached_chunks)\" = $((chunks - gone)) ]"
[ "$(of pinned_chunks)" = "$pinned" ] || fail "$pinned were pinned, and now $(of pinned_chunks)"
read_all

echo "== refusals"
refused 1 "no export 'nope'" cache ls nope
for verb in ls evict pin; do refused 1 "no file of faces matches 'nope/*'" cache $verb 'faces:nope/*'; done
refused 2 "--all" cache evict
refused 2 "--all" cache evict --all faces
refused 1 "no server and no mount at $W/none" "$GRANARY" cache ls --control "$W/none"
refused 2 "there are" "$GRANARY" cache frobnicate
refused 1 "in use by process" "$GRANARY" cache fsck "$W/cache"

echo "== the store away"
stop
serve
mv "$W/store/catalogs" "$W/store/catalogs.away"
[ "$(of unknown_chunks)" = 0 ] || fail "the index is cached"
refused 1 "catalogs" cache ls faces:train
mv "$W/store/catalogs.away" "$W/store/catalogs"

echo "== fsck"
stop
"$GRANARY" cache fsck -q --json "$W/cache" >"$W/fsck"
jq -e '.ok and .directories[0].bad == 0 and .directories[0].good > 200' "$W/fsck" >/dev/null || fail "$(cat "$W/fsck")"
for at in 5 20 35; do
    head -c 4096 /dev/urandom | dd of="$W/cache/data" bs=1M seek=$at conv=notrunc status=none
done
refused 1 "differs from the checksums" "$GRANARY" cache fsck -q "$W/cache"
refused 1 "forgotten" "$GRANARY" cache fsck -q --repair "$W/cache"
"$GRANARY" cache fsck "$W/cache" >"$W/fsck" 2>/dev/null || fail "repaired, and still: $(cat "$W/fsck")"
serve
read_all
stop
