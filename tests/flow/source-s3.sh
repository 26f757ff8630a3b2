#!/bin/bash
# A bucket of a real S3 server (Ceph) as a source: keys that need escaping, listings of several pages, directory markers,
# keys that no filesystem can hold, a prefix with nothing under it, a wrong secret; every file read back and compared.
. "$(dirname "$0")/../lib.sh"

command -v radosgw >/dev/null || skip "no Ceph here (apt-get install ceph-mon ceph-osd radosgw)"
command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
SERVERS=$GRANARY_SOURCE/tests/servers
export DIR=$W/ceph
extra_cleanup() { bash "$SERVERS/ceph-s3.sh" stop; }
bash "$SERVERS/ceph-s3.sh" start || fail "Ceph does not start"
eval "$(bash "$SERVERS/ceph-s3.sh" env)"
bash "$SERVERS/ceph-s3.sh" bucket lake
put() { python3 "$SERVERS/s3put.py" "$@" || fail "cannot fill the bucket"; }

# 5,300 files: six pages, listed by several threads; and names that must be escaped
mkdir -p "$W/tree/many" "$W/tree/odd/a+b" "$W/tree/odd/ü"
for i in $(seq 5300); do echo "file $i" >"$W/tree/many/$i"; done
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

# refused with a sentence that names the key, or left out and counted
put key lake 'bad/a'
put key lake 'bad/a/b' "$W/tree/many/1"
put key lake 'bad/x//y'
put key lake 'bad/up/../z'
put key lake 'bad/good' "$W/tree/many/2"
! "$GRANARY" build s3://lake/bad "$W/store/bad" 2>"$W/refused" || fail "bad keys were taken"
grep -q "s3://lake/bad: .*up/../z" "$W/refused" || fail "refused without naming the key: $(cat "$W/refused")"
"$GRANARY" build --skip-bad-names s3://lake/bad "$W/store/bad" --json >"$W/bad.json" 2>"$W/left-out"
[ "$(jq .names_skipped "$W/bad.json")" = 3 ] || fail "counted: $(cat "$W/bad.json")"
[ "$("$GRANARY" ls -R "$W/store/bad" | xargs)" = "a a/b good" ] || fail "what is left: $("$GRANARY" ls -R "$W/store/bad")"

! "$GRANARY" build s3://lake/nothing/here "$W/store/none" 2>"$W/refused" || fail "an empty prefix made an image"
grep -q 'nothing under s3://lake/nothing/here' "$W/refused" || fail "$(cat "$W/refused")"
! "$GRANARY" build s3://no-such-bucket/x "$W/store/none" 2>"$W/refused" || fail "no bucket made an image"
grep -q 'no-such-bucket' "$W/refused" || fail "$(cat "$W/refused")"
! AWS_SECRET_ACCESS_KEY=wrong "$GRANARY" build s3://lake/data "$W/store/none" 2>"$W/refused" || fail "a wrong secret was taken"
grep -qi 'secret' "$W/refused" || fail "$(cat "$W/refused")"
! grep -q "$AWS_SECRET_ACCESS_KEY" "$W/refused" || fail "the secret was shown"
[ -z "$("$GRANARY" images "$W/store" | grep none)" ] || fail "a failed build published something"
