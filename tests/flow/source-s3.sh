#!/bin/bash
# A bucket of a real S3 server (Ceph) as a source: keys that need escaping, listings of several pages, directory
# markers, a prefix with nothing under it, a wrong secret; every file read back and compared. Tar shards in the bucket
# too. s3-end-to-end.sh has keys that no filesystem can hold.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-source.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

use_ceph lake
put() { python3 "$SERVERS/s3put.py" "$@" || fail "cannot fill the bucket"; }

# files of several pages, listed by several threads; and names that must be escaped
files=700
[ -z "${GRANARY_FULL:-}" ] || files=5300
mkdir -p "$W/tree/many" "$W/tree/odd/a+b" "$W/tree/odd/ü"
for i in $(seq $files); do echo "file $i" >"$W/tree/many/$i"; done
head -c 9000000 /dev/urandom >"$W/tree/large" # three parts
echo space >"$W/tree/odd/with space"
echo percent >"$W/tree/odd/100%41"
echo plus >"$W/tree/odd/a+b/c&d=e"
echo unicode >"$W/tree/odd/ü/ñ"
echo quotes >"$W/tree/odd/'\"<>&;#?"
: >"$W/tree/odd/no bytes"
put tree lake data "$W/tree"
put key lake 'data/empty dir/'
put key lake 'data/hadoop_$folder$'
put key lake data/
put key lake database/other

"$GRANARY" build --jobs 8 s3://lake/data "$W/store/one" --json | tee "$W/one.json"
"$GRANARY" build --jobs 1 s3://lake/data/ "$W/store/two" --json >"$W/two.json"
[ "$(digest_of "$W/store/one")" = "$(digest_of "$W/store/two")" ] || fail "--jobs 1 and --jobs 8 differ"
"$GRANARY" export "$W/store/one" "$W/image.erofs"
fsck.erofs --extract="$W/back" "$W/image.erofs" || fail "fsck.erofs found errors"
[ -d "$W/back/empty dir" ] && [ -d "$W/back/hadoop" ] || fail "directory markers are no directories"
[ "$(stat -c %a "$W/back/many/1") $(stat -c %a "$W/back/many")" = "644 755" ] || fail "modes"
rmdir "$W/back/empty dir" "$W/back/hadoop"
diff -r "$W/tree" "$W/back" || fail "the image differs from the bucket"

# tar shards, plain and packed, give the image that they give from disk; a rebuild reads the one that changed
content_root() { "$GRANARY" inspect --json "$1" | jq -r .content_root; }
mkdir "$W/shards"
ln "$W/tree/many/1" "$W/tree/many/first"
tar -C "$W/tree" -cf "$W/shards/plain.tar" large odd
(cd "$W/tree" && find many -type f -print0) | LC_ALL=C sort -z | tar -C "$W/tree" -czf "$W/shards/packed.tar.gz" --null -T -
tar -C "$W/tree" -cf - --transform 's,^,again/,' large many/1 | zstd -q >"$W/shards/small.tar.zst"
rm "$W/tree/many/first"
put tree lake shards "$W/shards"
"$GRANARY" build --quiet "tar:$W/shards" "$W/store/shards-disk" >"$W/out"
"$GRANARY" build --json "tar:s3://lake/shards" "$W/store/shards" >"$W/shards.json"
[ "$(content_root "$W/store/shards")" = "$(content_root "$W/store/shards-disk")" ] || fail "tar: another image than from disk"
"$GRANARY" verify --deep --quiet "$W/store/shards" >"$W/out" 2>&1 || fail "tar: $(cat "$W/out")"
"$GRANARY" export --quiet "$W/store/shards" "$W/image.erofs" >"$W/out"
fsck.erofs --extract="$W/back-tar" "$W/image.erofs" || fail "fsck.erofs found errors in the image of shards"
cmp "$W/tree/large" "$W/back-tar/again/large" || fail "tar: other bytes"
rm -r "$W/back-tar/again" "$W/back-tar/many/first"
diff -r "$W/tree" "$W/back-tar" || fail "tar: the image differs"
[ "$("$GRANARY" ls -l "$W/store/shards" many | grep -c ' link to many/1$')" = 1 ] || fail "tar: a hard link is missing"
tar -C "$W/tree" -cf - --transform 's,^,again/,' many/2 | zstd -q >"$W/shards/small.tar.zst"
put key lake shards/small.tar.zst "$W/shards/small.tar.zst"
"$GRANARY" build --json "tar:s3://lake/shards" "$W/store/shards" >"$W/shards.json"
[ "$(jq .bytes_read "$W/shards.json")" = "$(stat -c %s "$W/tree/many/2")" ] || fail "tar: read again: $(cat "$W/shards.json")"
[ "$("$GRANARY" ls -R "$W/store/shards" again | xargs)" = "again/many again/many/2" ] || fail "tar: $("$GRANARY" ls -R "$W/store/shards" again)"
"$GRANARY" verify --deep --quiet "$W/store/shards" >"$W/out" 2>&1 || fail "tar, rebuilt: $(cat "$W/out")"

refused 'nothing under s3://lake/nothing/here' s3://lake/nothing/here
refused 'no-such-bucket' s3://no-such-bucket/x
secret=wrong-secret-that-nobody-may-see
AWS_SECRET_ACCESS_KEY=$secret refused 'AWS_SECRET_ACCESS_KEY' s3://lake/data
! grep -qF "$secret" "$W/out" || fail "the secret was shown"
nothing_refused_is_there
