#!/bin/bash
# A store that granary 0.1.0 wrote, tests/golden/store, kept for ever: every later version reads it, serves the same bytes,
# and builds upon it. It has an erofs image, one built upon it, and an ext4 image; store.sums has the SHA-256 of each.
# store-deltas is the first with catalog pages that are deltas: three days of 3,001 files; store-chunk-deltas the first
# with chunks of metadata that are: three days of 3,000 files; store-split-deltas that with such chunks in the split form,
# and files new and removed.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

golden=$GRANARY_SOURCE/tests/golden
for store in store store-deltas store-chunk-deltas store-split-deltas; do
    cp -r "$golden/$store" "$W/$store"
    while read -r sum image; do
        "$GRANARY" verify --deep --quiet "$W/$store/$image" >"$W/out" 2>&1 || fail "$image: $(cat "$W/out")"
        "$GRANARY" export --quiet "$W/$store/$image" "$W/image" >"$W/out"
        sha256sum --quiet -c <<<"$sum  $W/image" || fail "$image has other bytes"
    done <"$golden/$store.sums"
done

"$GRANARY" export --quiet "$W/store/faces:v2" "$W/image" >"$W/out"
serve_unix "$W/sock" "image=$W/store/faces:v2"
qemu-img compare -f raw -F raw "$W/image" "nbd+unix:///?socket=$W/sock"

[ "$("$GRANARY" images "$W/store" | awk 'NR > 1 { print $1 ":" $2 }' | xargs)" = "disk:v1 faces:v2 faces:v1" ] ||
    fail "images: $("$GRANARY" images "$W/store")"
[ "$("$GRANARY" diff --json "$W/store/faces:v1" "$W/store/faces:v2" | jq -r '.change + " " + .path')" = "changed a/nothing" ] ||
    fail "diff: $("$GRANARY" diff "$W/store/faces:v1" "$W/store/faces:v2")"

fsck.erofs --extract="$W/tree" "$W/image" >"$W/out" || fail "fsck.erofs: $(cat "$W/out")"
echo new >"$W/tree/new"
"$GRANARY" build --json --quiet --parent "$W/store/faces:v2" "$W/tree" "$W/store/faces:v3" >"$W/build.json"
jq -e '.rebuild.parent_name == "faces:v2" and .rebuild.added == 1 and .rebuild.changed == 8' "$W/build.json" >"$W/jq.out" || fail "a build upon it: $(cat "$W/build.json")"
"$GRANARY" verify --deep --quiet "$W/store/faces:v3" >"$W/out" 2>&1 || fail "built upon it: $(cat "$W/out")"

# changes FROM TO: how many of each kind
changes() { "$GRANARY" diff --json "$W/store-deltas/files:$1" "$W/store-deltas/files:$2" | jq -r .change | sort | uniq -c | xargs; }
[ "$(changes v1 v2)" = "10 attributes 1 changed" ] || fail "deltas, v1 to v2: $(changes v1 v2)"
[ "$(changes v2 v3)" = "1 added 10 attributes 1 changed 1 removed" ] || fail "deltas, v2 to v3: $(changes v2 v3)"
[ "$("$GRANARY" inspect --json "$W/store-chunk-deltas/files:v3" | jq .delta_chunks)" = 3 ] || fail "deltas of chunks: not three"
# a program that knows no deltas, or none in the split form, refuses an image with some when it opens it
# versions STORE: of the manifests of its three images
versions() {
    for i in 1 2 3; do
        jq .version "$W/$1/manifests/$("$GRANARY" inspect --json "$W/$1/files:v$i" | jq -r '.digest | ltrimstr("sha256:")')"
    done | xargs
}
[ "$(versions store-chunk-deltas)" = "1 2 2" ] || fail "versions of the manifests: $(versions store-chunk-deltas)"
[ "$(versions store-split-deltas)" = "1 3 3" ] || fail "versions of the manifests: $(versions store-split-deltas)"
for store in store-deltas store-chunk-deltas store-split-deltas; do
    for i in 1 2; do
        "$GRANARY" rm "$W/$store/files:v$i" >"$W/out"
    done
    "$GRANARY" gc --keep-last 1 --grace 0 "$W/$store" >"$W/out"
    "$GRANARY" gc --grace 0 "$W/$store" >"$W/out"
    "$GRANARY" verify --deep --quiet "$W/$store/files:v3" >"$W/out" 2>&1 || fail "$store, after gc: $(cat "$W/out")"
done
