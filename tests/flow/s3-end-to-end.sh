#!/bin/bash
# Ceph's S3, end to end: thousands of small objects with hard keys -> an S3 store -> served from it -> the same tree.
# A wrong secret is one clear sentence without the secret; keys that no filesystem can hold are refused by name, or
# skipped and counted.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

s3put=$SERVERS/s3put.py
use_ceph data images bad

count=300 # source-s3.sh has listings of several pages
[ -z "${GRANARY_FULL:-}" ] || count=3000
echo "== $count objects, and keys that need care"
mkdir -p "$W/tree/set"
for i in $(seq $count); do
    mkdir -p "$W/tree/set/dir-$((i % 30))"
    echo "object $i" >"$W/tree/set/dir-$((i % 30))/part-$i"
done
head -c 5000000 /dev/urandom >"$W/tree/large"
: >"$W/tree/empty"
for key in 'with space' 'plus+sign' 'per%cent' 'per%2Fcent' 'ünïcode-ß-漢字' "quote'and\"double" 'a&b=c?d#e' 'star*(paren)!' \
    'semi;colon,at@' '~tilde' $'new\nline' 'back\slash' '<xml>&amp;' 'dir/ünder/deep er' 'dir/.hidden' 'dir...' ' lead'; do
    mkdir -p "$W/tree/$(dirname "$key")"
    printf '%s' "$key" >"$W/tree/$key"
done
"$s3put" tree data in "$W/tree"
"$s3put" key data in/marker/
mkdir "$W/tree/marker"
"$s3put" key data "outside" "$W/tree/large"

echo "== build from S3 into S3"
"$GRANARY" build s3://data/in s3://images/a/set:v1 --json >"$W/build.json"
digest=$(digest_of s3://images/a/set:v1)
"$GRANARY" build s3://data/in s3://images/a/set:again --parent none --json >"$W/again.json"
jq -e '.packs_new == 0 and .packs_reused > 0' "$W/again.json" >"$W/jq.out" || { cat "$W/again.json"; fail "packs were written twice"; }
"$GRANARY" verify s3://images/a/set:v1 --deep

echo "== compared with its source; copied into a directory and back; a damaged pack there rebuilt from the bucket"
"$GRANARY" verify s3://images/a/set:v1 --against s3://data/in --all --json >"$W/verify.json"
jq -e '.ok and .against.files >= '$count' and .against.changed == 0 and .against.gone == 0' "$W/verify.json" >"$W/jq.out" ||
    fail "$(cat "$W/verify.json")"
"$GRANARY" copy -q s3://images/a/set:v1 "$W/copied"
"$GRANARY" copy -q "$W/copied/set:v1" s3://images/back/other:name
[ "$(digest_of "$W/copied/set:v1")" = "$digest" ] && [ "$(digest_of s3://images/back/other:name)" = "$digest" ] ||
    fail "a copy has another digest"
"$GRANARY" verify s3://images/back/other:name --deep
pack=$(find "$W/copied/packs" -type f | sed -n 1p)
cp "$pack" "$W/pack"
printf 'xxxx' | dd of="$pack" bs=1 seek=100 conv=notrunc status=none
"$GRANARY" verify -q --repair --against s3://data/in "$W/copied/set:v1"
cmp "$pack" "$W/pack"

echo "== served from S3 and mounted: the same tree (owners are root's, modes and times the object store's)"
serve_unix "$W/sock" image=s3://images/a/set:v1 "cache=$W/cache:256M"
"$GRANARY" export s3://images/a/set:v1 "$W/image"
qemu-img compare -f raw -F raw "$W/image" "nbd+unix:///?socket=$W/sock"
mount_export "$W/sock"
"$TREECMP" --ignore mode,owner,mtime,xattr "$W/tree" "$W/mnt"
[ "$(stat -c '%a %u %g' "$W/mnt/empty")" = "644 0 0" ] || fail "a file's mode or owner"
[ "$(stat -c '%a %u %g' "$W/mnt/set")" = "755 0 0" ] || fail "a directory's mode or owner"
age=$(($(date +%s) - $(stat -c %Y "$W/mnt/large")))
[ $age -ge 0 ] && [ $age -lt 3600 ] || fail "the object's time is not the file's"

echo "== a day later: what changed is read and stored, the ETag says what did"
printf 'changed' >"$W/tree/with space"
printf 'new' >"$W/tree/new"
"$s3put" key data "in/with space" "$W/tree/with space"
"$s3put" key data in/new "$W/tree/new"
"$GRANARY" build s3://data/in s3://images/a/set:v1 --json --quiet >"$W/day.json"
jq -e --arg parent "$digest" '.rebuild.parent == $parent and .rebuild.changed == 1 and .rebuild.added == 1 and .bytes_read == 10
    and .rebuild.removed == 0 and .bytes_uploaded < 700000' "$W/day.json" >"$W/jq.out" || { cat "$W/day.json"; fail "a day"; }
"$GRANARY" verify s3://images/a/set:v1 --deep
"$GRANARY" build s3://data/in s3://images/a/set:v1 --json --quiet >"$W/same.json"
jq -e '.bytes_read == 0 and .bytes_uploaded == 0' "$W/same.json" >"$W/jq.out" || { cat "$W/same.json"; fail "an unchanged bucket"; }

echo "== a wrong secret"
secret=wrongsecretwrongsecretwrongsecretwrongsec
status=0
AWS_SECRET_ACCESS_KEY=$secret "$GRANARY" build s3://data/in s3://images/b/set >"$W/out" 2>&1 || status=$?
cat "$W/out"
[ $status = 1 ] || fail "exit status $status, not 1"
! grep -q "$secret" "$W/out" || fail "the secret is in the output"
grep -qiE 'secret|credential|denied|signature|refused' "$W/out" || fail "the sentence does not say what is wrong"
[ "$(grep -c . "$W/out")" -le 3 ] || fail "more than a sentence"

echo "== keys that no filesystem can hold"
n=0
for key in 'a/../b' 'x//y' './dot' "$(head -c 256 /dev/zero | tr '\0' n)" 'up/..'; do
    n=$((n + 1))
    "$s3put" key bad "k$n/good" "$W/tree/large"
    "$s3put" key bad "k$n/$key" "$W/tree/large"
    status=0
    "$GRANARY" build "s3://bad/k$n" s3://images/bad/set >"$W/out" 2>&1 || status=$?
    [ $status = 1 ] || { cat "$W/out"; fail "$key: exit status $status, not 1"; }
    grep -qF -- "${key:0:60}" "$W/out" || { cat "$W/out"; fail "the sentence does not name the key $key"; }
    "$GRANARY" build "s3://bad/k$n" "s3://images/bad/set:k$n" --skip-bad-names --json >"$W/out"
    jq -e '.names_skipped == 1 and .counts.files == 1' "$W/out" >"$W/jq.out" || { cat "$W/out"; fail "$key: skipped and counted"; }
done
"$s3put" key bad both/a "$W/tree/large"
"$s3put" key bad both/a/b "$W/tree/large"
! "$GRANARY" build s3://bad/both s3://images/bad/both >"$W/out" 2>&1 || fail "a beside a/b was built"
grep -qF "a file has the name of a directory: 'a'" "$W/out" || fail "another sentence: $(cat "$W/out")"
"$GRANARY" images s3://images/bad >"$W/images"
grep -q set "$W/images" && ! grep -q both "$W/images" || fail "a refused build published: $(cat "$W/images")"

echo "== the server is gone: what is cached is served by the table of exports"
"$GRANARY_BUILD/tests/tools/nbdprobe" "nbd+unix:///?socket=$W/sock" cache 0 0 # fills may be left out
umount "$W/mnt"
losetup -d "$LOOP"
LOOP=
kill -9 "$SERVER_PID" && wait "$SERVER_PID" || true
rm "$W/sock"
free_port
export AWS_ENDPOINT_URL=http://127.0.0.1:$FREE_PORT
serve_unix "$W/sock" image=s3://images/a/set:v1 "cache=$W/cache:256M" timeout=5s 2>"$W/server.err"
grep -q 'cannot be asked for set:v1' "$W/server.err" || { cat "$W/server.err"; fail "no warning"; }
qemu-img compare -f raw -F raw "$W/image" "nbd+unix:///?socket=$W/sock"
