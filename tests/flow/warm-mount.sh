#!/bin/bash
# Warming a mount (granary mount --fuse): its metadata from the start, which costs the store nothing afterwards and
# outlives evictions; the fence; files by list, with names of any bytes; an export by its name, and by NBD; --bwlimit.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/mnt
extra_cleanup() { for d in "$dir" "$W/mnt2"; do "$GRANARY" umount --force "$d" 2>/dev/null; done; umount -l "$W/files" 2>/dev/null; }
mkdir -p "$dir" "$W/mnt2" "$W/other"
make_faces "$W/tree"
ODD=$'odd\nname \xff\xfe'
printf 'odd' >"$W/tree/$ODD"
mkdir "$W/tree/many"
(cd "$W/tree/many" && seq -f 'empty%g' 3000 | xargs touch)
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
head -c 3000000 /dev/urandom >"$W/other/file"
"$GRANARY" build -q "$W/other" "$W/store/other" >"$W/built"

mount_it() { # OPTION...: faces on $dir; STATE is its state's directory
    "$GRANARY" mount --fuse --json "$@" "$W/store/faces" "$dir" >"$W/mount.json"
    STATE=$(dirname "$(jq -r .socket "$W/mount.json")")
}
status() { "$GRANARY" status "$dir" --json | jq "$1"; }
gets() { status .counters.granary_store_gets_total; }
# at_rest: nothing comes from the store any more that somebody asked for before
at_rest() { status '.counters | .granary_fetch_in_flight + .granary_fetch_busy_workers' | grep -x 0 >"$W/null"; }
# looked_at: names, sizes and times of everything are what they are in the tree
listing() { (cd "$1" && find . -type f -printf '%p %s %Ts\0' | sort -z | sha256sum); }
looked_at() { [ "$(listing "$dir")" = "$(listing "$W/tree")" ] || fail "the listing is another one"; }

echo "== behind the fence: metadata is there, and costs the store nothing; a file is not, and is named"
mount_it --cache "$W/cache:96M" --disk-timeout "$DISK_TIMEOUT" --fence warmed
wait_for 60 at_rest
before=$(gets)
looked_at
echo 3 >/proc/sys/vm/drop_caches # so that the server is asked
looked_at
[ "$(gets)" = "$before" ] || fail "looking at everything cost $(($(gets) - before)) gets"
[ "$(status .exports[0].fence_refusals)" = 0 ] || fail "a look at everything was refused"
! cat "$dir/train/3.jpg" >"$W/out" 2>"$W/err" || fail "what was not warmed is read"
grep -q 'Input/output error' "$W/err" || fail "$(cat "$W/err")"
[ "$(status .exports[0].fence_refusals)" -gt 0 ] || fail "the refusal is not counted"
wait_for 60 grep 'the bytes at offset [0-9]* are not cached' "$STATE/serve.log" >"$W/refusals" # it comes there by a pipe
offset=$(sed -n '1s/.*the bytes at offset \([0-9]*\) .*/\1/p' "$W/refusals")
[ "$("$GRANARY" ls "$W/store/faces" --at "$offset")" = train/3.jpg ] || fail "at $offset is not train/3.jpg"
[ "$(gets)" = "$before" ] || fail "the store was asked for what was not warmed"

echo "== what is warmed is read: by paths with NUL, in the mount's own export"
printf '%s\0' train/3.jpg "$ODD" | "$GRANARY" warm "$dir" --files-from - -0 --json -q >"$W/json"
jq -e '.export == "faces" and .files == 2 and .absent_files == 0' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
cmp "$W/tree/train/3.jpg" "$dir/train/3.jpg"
cmp "$W/tree/$ODD" "$dir/$ODD"
! cat "$dir/train/9.jpg" >"$W/out" 2>"$W/err" || fail "what was not warmed is read"
refused 1 "1 of the names given are not in the image" "$GRANARY" warm "$dir" --files-from <(printf 'train/9.jpg\nno\xffsuch\n')
grep -q 'not cached: no.*such: not in the image' "$W/err" || fail "$(cat "$W/err")"
cmp "$W/tree/train/9.jpg" "$dir/train/9.jpg"

echo "== all of it, by NBD: then the store may be away"
"$GRANARY" umount "$dir"
background "$GRANARY" serve "$W/store/faces" --socket "$W/sock" --cache "$W/cache:96M" --disk-timeout "$DISK_TIMEOUT" \
    >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
"$GRANARY" warm "nbd+unix:///faces?socket=$W/sock" --all >"$W/out"
kill "$SERVE"
wait "$SERVE" || fail "the server failed: $(cat "$W/serve.err")"
mount_it --cache "$W/cache:96M" --disk-timeout "$DISK_TIMEOUT" --fence warmed
mv "$W/store" "$W/store.away"
"$TREECMP" "$W/tree" "$dir"
mv "$W/store.away" "$W/store"
"$GRANARY" umount "$dir"

echo "== of two exports each by its name; a mount means its own"
background "$GRANARY" serve "$W/store/other" "$W/store/faces" --fuse "$W/files" --cache "$W/cache2:96M" --warm none \
    --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving.*faces' "$W/serve.out"
wait_for 60 "$GRANARY" status "$W/files" >"$W/null"
mount_it --socket "$W/files"
"$GRANARY" warm "$dir" --path 'val/*' --json -q | jq -e '.export == "faces" and .files == 13' >"$W/null" || fail "the mount's export"
refused 1 "this server has 2 exports; say which" "$GRANARY" warm "$W/files" --all
"$GRANARY" warm "$W/files" --all --export other --json -q | jq -e '.export == "other" and .files == 1 and .bytes == .cached_bytes' >"$W/null" || fail "other"
"$GRANARY" status "$W/files" --json | jq '[.exports[] | {(.name): (.cached.cached_chunks == .cached.chunks)}] | add' | jq -e '.other and (.faces | not)' >"$W/null" || fail "$(status .exports)"
"$GRANARY" umount "$dir"

echo "== metadata outlives evictions: all of the image is read through a cache of a part of it"
mount_it --cache "$W/cache3:16M" --disk-timeout "$DISK_TIMEOUT" --eviction lru
"$TREECMP" "$W/tree" "$dir"
forget_pages "$dir"/train/*.jpg
"$TREECMP" "$W/tree" "$dir"
[ "$(status .counters.granary_cache_evictions_total)" -gt 0 ] || fail "nothing was evicted: $(status .counters)"
status .exports[0].cached | jq -e '.metadata_chunks > 2 and .metadata_cached_chunks == .metadata_chunks
    and .metadata_pinned_chunks == .metadata_chunks and .cached_chunks < .chunks' >"$W/null" || fail "$(status .exports)"
wait_for 60 at_rest
before=$(gets)
echo 3 >/proc/sys/vm/drop_caches
looked_at
[ "$(gets)" = "$before" ] || fail "looking at everything cost $(($(gets) - before)) gets"
"$GRANARY" cache evict -q --control "$STATE/fuse.control" --all --pinned >"$W/out"
echo 3 >/proc/sys/vm/drop_caches
looked_at
[ "$(gets)" -gt "$before" ] || fail "metadata that was dropped costs nothing: the test proves nothing"

echo "== what is evicted while the rest comes is no success: exit 1, files are named"
refused 1 "are not cached" "$GRANARY" warm "$dir" --all --json
jq -se 'last | .cached_chunks < .chunks and .failed_files > 0 and .error == ""' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
jq -se 'any(.path != null and (.why | test("too small")))' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
"$GRANARY" umount "$dir"

echo "== --bwlimit: the bytes take as long as the rate says, at least"
mount_it --cache "$W/cache4:96M" --disk-timeout "$DISK_TIMEOUT" --bwlimit 4M
begin=$(date +%s%N)
cat "$dir"/train/{1,2,3,4}.jpg | cmp - <(cat "$W/tree"/train/{1,2,3,4}.jpg)
took_ms=$((($(date +%s%N) - begin) / 1000000))
[ $took_ms -ge $((8000000 * 1000 / 4194304 - 300)) ] || fail "8 MB in $took_ms ms"
"$GRANARY" umount "$dir"
