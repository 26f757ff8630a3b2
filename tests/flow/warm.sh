#!/bin/bash
# granary warm: what was warmed is read with the store away, and nothing else was fetched; what is not cached at the end
# is named, and the exit code says so.
. "$(dirname "$0")/lib-warm.sh"

make_faces "$W/tree"
ln -s 1.jpg "$W/tree/train/symlink"
ln "$W/tree/train/7.jpg" "$W/tree/zz-hardlink"
mv "$W/tree/val" "$W/val"
publish "$W/tree" latest # a pack for each half
mv "$W/val" "$W/tree/val"
publish "$W/tree" latest

read_all() { nbdcopy "$(uri)" - 2>"$W/copy.err" | cmp - "$W/image.$TAG" || fail "wrong bytes: $(cat "$W/copy.err")"; }
metadata_is_there() {
    local off len
    read -r off len < <("$GRANARY" inspect --json "$W/store/faces" | jq -r '"\(.metadata_offset) \(.metadata_length)"')
    store_away
    read_at 0 4096 && read_at "$off" "$len" || fail "the metadata is not cached"
    store_back
}

echo "== all: read with the store away"
serve latest
warm --all --dry-run --json >"$W/json"
jq -e '.needed_bytes == .bytes and .bytes > 25000000 and .cached_chunks == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
[ "$(fetched)" = 0 ] || fail "a dry run fetched $(fetched) bytes"
warm --all >"$W/out"
grep -qE '^faces: 25 files, ([0-9.]+ MiB) of \1 cached; \1 was missing, [0-9.]+ s, [0-9.]+ [KMG]iB/s$' "$W/out" || fail "$(cat "$W/out")"
whole=$(fetched)
warm --all --json >"$W/json" 2>"$W/told"
jq -se 'last.progress | .phase == "warming" and .bytes_done == .bytes_total and .bytes_total > 25000000 and .failed_chunks == 0
    and .files_done == 25 and .files_total == 25 and has("bytes_per_s") and .seconds_left == null' "$W/told" >"$W/null" || fail "$(cat "$W/told")"
warm --all --json -q 2>"$W/told" | jq -e '.warmed_bytes == 0 and .seconds >= 0' >"$W/null" || fail "the second time"
[ ! -s "$W/told" ] || fail "progress although --quiet: $(cat "$W/told")"
jq -e '.needed_bytes == 0 and .cached_bytes == .bytes and .failed_files == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
[ "$(fetched)" = "$whole" ] || fail "what was cached was fetched again"
store_away
read_all
store_back
stop

echo "== the index comes with the metadata: readers look for none of its nodes"
mkdir "$W/wide"
head -c 65536 /dev/urandom >"$W/wide/file"
truncate -s 70M "$W/wide/file"
head -c 65536 /dev/urandom >>"$W/wide/file" # in another leaf
publish "$W/wide" wide --chunk-size 64K
serve wide warm=none
warm --metadata >"$W/out"
nodes() { "$GRANARY" status --quick --json "$NBD" | jq .counters.granary_image_node_misses_total; }
before=$(nodes)
off=$("$GRANARY" ls -l --json "$W/store/faces:wide" file | jq '.extents[0].offset')
read_at "$off" 65536 && read_at $((off + (70 << 20))) 65536 || fail "wrong bytes"
[ "$(nodes)" = "$before" ] || fail "$(nodes) nodes were looked for, $before of them before the files were read"
stop

echo "== a limit: what is fetched takes its time at least, by the control socket and by NBD"
# took_at_least BYTES COMMAND...: at 16 MiB a second
took_at_least() {
    local begin took_ms bytes=$1
    begin=$(date +%s%N)
    "${@:2}" >"$W/out"
    took_ms=$((($(date +%s%N) - begin) / 1000000))
    [ $took_ms -ge $((bytes * 1000 / 16777216 - 150)) ] || fail "$bytes bytes in $took_ms ms: ${*:2}"
}
serve latest
took_at_least "$whole" warm --all --bwlimit 16M/s
read_all
stop
serve latest
took_at_least "$whole" "$GRANARY" warm "$(uri)" --all --bwlimit 16M/s
read_all
stop
train=$(find "$W/store/packs" -type f -size +20M)
cp "$train" "$W/pack"
for i in $(seq 22); do printf 'flipped' | dd of="$train" bs=1 seek=$((i << 20)) conv=notrunc status=none; done
serve latest
took_at_least $((whole * 3 / 4)) refused 1 "22 chunks of" warm --all --bwlimit 16M/s
stop
mv "$W/pack" "$train"
refused 2 "--bwlimit: 'x' is not a rate" warm --all --bwlimit x

echo "== metadata alone"
serve latest
warm --metadata >"$W/out"
[ "$(fetched)" -lt 1500000 ] || fail "the metadata took $(fetched) bytes"
metadata_is_there
is_not_cached train/3.jpg
stop

echo "== a list, by name, hard link, symlink and directory; with NULs; in order"
serve latest
printf '%s\n' ./val/deep/3.txt /train//2.jpg zz-hardlink train/symlink val empty val/nothing >"$W/list"
warm --files-from "$W/list" --json >"$W/json"
jq -e '.files == 7 and .absent_files == 0 and .failed_files == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
[ "$(fetched)" -lt 7000000 ] || fail "three files of 4.3 MB took $(fetched) bytes"
metadata_is_there
are_cached val/deep/3.txt train/2.jpg train/7.jpg
is_not_cached train/9.jpg
printf 'train/9.jpg\0val/deep/9.txt\0' | warm --files-from - -0 >"$W/out"
are_cached train/9.jpg val/deep/9.txt

echo "== what is not in the image is named; the rest is cached all the same"
printf 'val/deep/5.txt\nval/none\nval/deep/none either\n' >"$W/list"
refused 1 "2 of the names given are not in the image" warm --files-from "$W/list"
[ "$(grep -c '^granary: warm: not cached: val/.*: not in the image$' "$W/err")" = 2 ] || fail "$(cat "$W/err")"
refused 1 "2 of the names given" warm --files-from "$W/list" --dry-run
are_cached val/deep/5.txt
stop

echo "== globs"
serve latest
warm --path 'val' --path 'train/1?.jpg' --json >"$W/json"
jq -e '.files == 16 and .failed_files == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
are_cached val/deep/{1..12}.txt train/{10..12}.jpg
refused 1 "not cached: nothing*: no file in the image matches" warm --path 'nothing*'
stop

echo "== by NBD"
serve latest
"$GRANARY" warm "$(uri)" --metadata >"$W/out"
[ "$(fetched)" -lt 1500000 ] || fail "the metadata took $(fetched) bytes"
metadata_is_there
is_not_cached train/3.jpg
"$GRANARY" warm "$(uri)" --all --json >"$W/json"
jq -e '.cached_bytes == .bytes and .bytes > 25000000 and .failed_chunks == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
store_away
read_all
store_back
refused 2 "by NBD there are only" "$GRANARY" warm "$(uri)" --path val
background nbdkit -f --unix "$W/other" memory 1M
wait_for 60 listens "$W/other"
refused 1 "nbd+unix:///?socket=$W/other" "$GRANARY" warm "nbd+unix:///?socket=$W/other" --metadata

echo "== refusals"
refused 2 "give one of" warm
refused 2 "give one of" warm --all --metadata
refused 2 "goes with --files-from" warm --all -0
refused 1 "no export 'nope'" warm --all --export nope
refused 1 "no server and no mount at $W/none" "$GRANARY" warm "$W/none" --all
: >"$W/empty"
refused 1 "$W/empty names no file" warm --files-from "$W/empty"
refused 1 "standard input names no file" warm --files-from - <"$W/empty"
refused 1 "cannot read $W" warm --files-from "$W"
refused 1 "$W/none" warm --files-from "$W/none"
refused 1 "more than 64 MiB" warm --files-from <(yes train/1.jpg | head -n 6000000)
refused 1 "cannot read standard input" warm --files-from - <&-
refused 1 "a path glob has 1 to 1024 bytes" warm --path ''
stop

echo "== a pack that is gone: its files are named, everything else is cached; later they are too"
mv "$train" "$W/pack"
serve latest
refused 1 "run it again" warm --all
[ "$(grep -c "^granary: warm: not cached: train/[0-9]*.jpg: .*$(basename "$train")" "$W/err")" = 12 ] || fail "$(cat "$W/err")"
are_cached val/deep/{1..12}.txt
refused 1 "not cached" warm --path 'train/3.*' --json
grep '^{"progress"' "$W/err" | jq -se 'last.progress | .failed_chunks > 14 and .bytes_done < .bytes_total and .seconds_left == null' >"$W/null" || fail "$(cat "$W/err")"
jq -se 'any(.path == "train/3.jpg" and .why)' "$W/out" >/dev/null || fail "$(cat "$W/out")"
"$GRANARY" cache evict -q --control "$NBD" --all >"$W/out"
refused 1 "the first at offset" "$GRANARY" warm "$(uri)" --all --json
mapfile -t offsets < <(jq -r '.failed_offsets[]' "$W/out")
[ ${#offsets[@]} = 10 ] || fail "$(cat "$W/out")"
"$GRANARY" ls "$W/store/faces" --at "${offsets[0]}" | grep '^train/' >"$W/null" || fail "what is at ${offsets[0]}?"
chunks=$(($(jq .failed_chunks "$W/out") * $("$GRANARY" inspect --json "$W/store/faces" | jq .chunk_size)))
[ "$chunks" -ge 24000000 ] && [ "$chunks" -lt 26000000 ] || fail "24 MB are gone, and $chunks bytes could not be cached"
mv "$W/pack" "$train"
warm --all >"$W/out"
store_away
read_all
store_back
stop

echo "== a store that fails in the middle: the error is said, and what came is kept"
serve_store
echo 3 >"$W/limit"
: >"$W/limit.refuse"
serve latest timeout=2s
refused 1 "run it again" warm --all --json
there=$(jq -s .[-1].cached_bytes "$W/out")
[ "$there" -gt 1000000 ] || fail "$(cat "$W/out" "$W/err")"
rm "$W/limit" "$W/limit.refuse"
warm --all --json >"$W/json"
jq -e ".bytes - .needed_bytes == $there and .cached_bytes == .bytes" "$W/json" >/dev/null || fail "$there bytes were cached: $(cat "$W/json")"
stop

echo "== a client that ends in the middle, and run again"
serve_store
echo 3 >"$W/limit"
serve latest timeout=300s
background "$GRANARY" warm "$NBD" --all >"$W/out" 2>"$W/err"
client=$BACKGROUND_PID
some_cached() { [ "$("$GRANARY" cache ls --control "$NBD" --json | jq .cached_chunks)" -ge 4 ]; }
wait_for 60 some_cached
kill -TERM "$client"
! wait "$client" || fail "a warm that was ended is no success"
rm "$W/limit"
warm --all >"$W/out"
[ "$(fetched)" = "$whole" ] || fail "all of it is $whole bytes, and $(fetched) came"
read_all
stop

echo "== what is evicted while the rest comes is missing at the end"
serve_store
echo 3 >"$W/limit"
serve latest timeout=300s
background "$GRANARY" warm "$NBD" --all --json >"$W/out" 2>"$W/err"
client=$BACKGROUND_PID
wait_for 60 some_cached
"$GRANARY" cache evict -q --control "$NBD" --all >"$W/evicted"
rm "$W/limit"
status=0
wait "$client" || status=$?
[ $status = 1 ] && grep -q -E 'chunks? of [0-9]+ files? (is|are) not cached; run it again' "$W/err" || fail "exit $status: $(cat "$W/err")"
jq -se 'last.failed_files > 0 and any(.path and (.why | test("somebody evicted it")))' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
stop

echo "== by NBD over TCP the connection is probed: a machine that is gone is noticed"
serve_tcp "image=$W/store/faces" "cache=$W/cache.tcp:96M"
background "$GRANARY" warm "nbd://127.0.0.1:$PORT/faces" --all --bwlimit 512K >"$W/out" 2>"$W/err"
client=$BACKGROUND_PID
probed() { ss -tnoH state established "dport = :$PORT" | grep keepalive >"$W/null"; }
wait_for 60 probed
kill "$client"
