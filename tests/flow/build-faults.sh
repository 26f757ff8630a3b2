#!/bin/bash
# Builds under faults: of the source, of the store, of the disk for temporary data, and killed at any moment. Each gives
# the right digest or a sentence and publishes nothing; run again, it uses what is there and gives the same digest.
. "$(dirname "$0")/lib-build-faults.sh"

make_tree "$W/tree" 2300
serve_faulty "$W/tree"
build_clean s3://data s3://clean/store/set

echo "== 5 % of all requests fail in some way"
for seed in 1 2; do
    faults 5 "$QUICK_KINDS" $seed
    build_right s3://data "s3://soak-$seed/store/set"
    no_faults
    "$GRANARY" verify --deep -q "s3://soak-$seed/store/set"
done
[ "$(count cut)" -gt 0 ] && [ "$(count lost)" -gt 0 ] && [ "$(count 503)" -gt 0 ] || fail "no faults were met"

echo "== a listing that repeats a key, one without order"
faults 100 '"again"'
build_right s3://data s3://again/store/set
faults 100 '"disorder"'
build_fails 'order' s3://disorder/store s3://data

echo "== a store that refuses: at once, and in the middle"
faults 100 '"denied"' 1 'PUT /refuse/store/packs'
build_fails 'refuse.*AccessDenied\|refuse.*refused' s3://refuse/store s3://data
build_right s3://data s3://refuse/store/set
faults 100 '"denied"' 1 'PUT /late/store/manifests'
build_fails 'refuse' s3://late/store s3://data
build_right s3://data s3://late/store/set
[ "$(jq .packs_new "$W/json")" = 0 ] || fail "packs that were there were stored again: $(cat "$W/json")"

echo "== credentials that expire in the middle"
faults 100 '"slow"' 1 '/data/dir-9/'
before=$(count GET)
AWS_SESSION_TOKEN=old "$GRANARY" build -q s3://data s3://expired/store/set --jobs 4 >"$W/out" 2>"$W/err" &
pid=$!
wait_for 30 bash -c "[ \$(curl -sSf '$AWS_ENDPOINT_URL/-/counts' | jq .GET) -gt $((before + 500)) ]"
curl -sSf -o "$W/null" "$AWS_ENDPOINT_URL/-/expire" -d '{"token": "old"}'
no_faults
status=0
wait $pid || status=$?
[ $status = 1 ] || { cat "$W/err"; fail "exit $status with credentials that had expired"; }
grep -q 'expired' "$W/err" || { cat "$W/err"; fail "no word of the credentials"; }
export AWS_SESSION_TOKEN=new
nothing_published s3://expired/store
build_right s3://data s3://expired/store/set

echo "== killed at any moment"
python3 - "$W/local" <<'PYTHON'
import os, random, sys
rng = random.Random(9)
os.mkdir(sys.argv[1])
for i in range(40):
    with open(f"{sys.argv[1]}/file-{i}", "wb") as file:
        file.write(rng.randbytes(2500000))
PYTHON
kill_loop 8 "$W/local" "$W/store"

echo "== no room for temporary data"
build_synthetic=$GRANARY_BUILD/bench/build-synthetic
[ -x "$build_synthetic" ] || skip "no bench/build-synthetic in this build: a full --tmpdir is not tested"
mkdir "$W/small"
mount -t tmpfs -o size=20m tmpfs "$W/small" 2>"$W/err" || skip "no tmpfs to be had here: a full --tmpdir is not tested"
MOUNTS+=("$W/small")
! "$build_synthetic" 400000 "file://$W/full" "$W/small" >"$W/out" 2>"$W/err" || fail "20 MiB were enough for 400,000 files"
grep -q "$W/small: No space left on device; .*--tmpdir" "$W/err" || { cat "$W/err"; fail "another sentence"; }
nothing_published "file://$W/full"
[ -z "$(find "$W/small" -type f)" ] && [ "$(df --output=used "$W/small" | tail -1)" -eq 0 ] || fail "temporary data is left"
