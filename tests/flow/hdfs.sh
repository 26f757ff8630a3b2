#!/bin/bash
# ctest: lock=hdfs long
# HDFS as a source and as a store, by a real NameNode and DataNode of Hadoop's: the image has what was put, owners, tar
# shards, the store's conformance. hdfs-gateway.sh has the rest.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-hdfs.sh"
put_tree
SOURCE=hdfs://$HDFS_NN/data

web PUT /data/many/1 "op=SETOWNER&owner=alice&group=analysts" >/dev/null
web PUT /data/many/2 "op=SETPERMISSION&permission=1640" >/dev/null

echo "--- a source: what is in the image is what was put"
reference=$(build "$SOURCE" "$W/store/x:ref" "${MAP[@]}")
[[ $reference == sha256:* || ${#reference} = 64 ]] || fail "no digest: $reference"
mkdir "$W/out"
"$GRANARY" export "$W/store/x:ref" "$W/image" --quiet
fsck.erofs --extract="$W/out" --overwrite "$W/image" >/dev/null || fail "the image is not sound"
diff -r "$W/tree" "$W/out" || fail "the image differs from what was put"
"$GRANARY" ls -lR "$W/store/x:ref" >"$W/ls"
grep -qE '^-rw-r--r-- +1234 +4321 .* many/1$' "$W/ls" || fail "owner and group are not mapped: $(grep ' many/1$' "$W/ls")"
grep -qE '^-rw-r----T .* many/2$' "$W/ls" || fail "the mode is lost: $(grep ' many/2$' "$W/ls")"
grep -qF ' sp ace%+&?#;=/' "$W/ls" || fail "a name is lost"
"$GRANARY" build -q "$SOURCE" "$W/store/x:unknown" 2>"$W/warning" >/dev/null
grep -qF "user names not known here: 1, 'alice' among them" "$W/warning" || fail "no warning of unknown owners: $(cat "$W/warning")"

echo "--- tar shards: plain and packed, the image that they give from disk"
content_root() { "$GRANARY" inspect --json "$1" | jq -r .content_root; }
mkdir "$W/shards"
ln "$W/tree/many/3" "$W/tree/many/again"
tar -C "$W/tree" -cf "$W/shards/plain.tar" a ünï "sp ace%+&?#;="
(cd "$W/tree" && find many -type f -print0) | LC_ALL=C sort -z | tar -C "$W/tree" -czf "$W/shards/packed.tgz" --null -T -
tar -C "$W/tree" -cf - --transform 's,^,again/,' a/b/big many/1 | zstd -q >"$W/shards/small.tar.zst"
rm "$W/tree/many/again"
hdfs put "$W/shards" /shards
build "tar:$W/shards" "$W/store/tar:disk" >"$W/tar-digest"
build "tar:hdfs://$HDFS_NN/shards" "$W/store/tar:hdfs" --parent none >"$W/tar-digest"
[ "$(content_root "$W/store/tar:disk")" = "$(content_root "$W/store/tar:hdfs")" ] || fail "tar: another image than from disk"
"$GRANARY" verify --deep -q "$W/store/tar:hdfs" >/dev/null || fail "tar: what was built is not sound"
"$GRANARY" ls -l "$W/store/tar:hdfs" many >"$W/ls"
grep -qE ' link to many/3$' "$W/ls" || fail "tar: a hard link is missing"
[ "$("$GRANARY" build -q --json "tar:hdfs://$HDFS_NN/shards" "$W/store/tar:hdfs" | jq .bytes_read)" = 0 ] || fail "tar: unchanged shards are read again"

echo "--- a store"
STORE=hdfs://$HDFS_NN/images
GRANARY_TEST_HDFS=hdfs://$HDFS_NN/conformance "$GRANARY_BUILD/tests/unit/test_store_conformance" >"$W/conformance" 2>&1 ||
    { cat "$W/conformance"; fail "the HDFS store does not conform"; }
[ "$(build "$SOURCE" "$STORE/x:v1" "${MAP[@]}")" = "$reference" ] || fail "another digest in HDFS"
"$GRANARY" verify --deep -q "$STORE/x:v1" >/dev/null || fail "what was built is not sound"
build "$SOURCE" "$STORE/x:v2" "${MAP[@]}" --strict-tags 2>"$W/strict" && fail "--strict-tags is content with a store without conditions"
grep -qF "no conditional writes" "$W/strict" || fail "--strict-tags says: $(cat "$W/strict")"

echo "--- served from HDFS"
serve_unix "$W/socket" "image=$STORE/x:v1"
nbdcopy "nbd+unix:///x?socket=$W/socket" "$W/served"
cmp "$W/image" "$W/served" || fail "other bytes are served"
