#!/bin/bash
# Builds under faults: of the source, of the store, and killed at any moment. Each gives the right digest or a sentence
# and publishes nothing; run again, it uses what is there and gives the same digest. GRANARY_FULL=1: more of each.
# ctest: long
. "$(dirname "$0")/lib-build-faults.sh"

files=300 page=250 percent=10 large=16 kills=4 # more files than a page of a listing has
[ -z "${GRANARY_FULL:-}" ] || files=2300 page=1000 percent=5 large=40 kills=8
make_tree "$W/tree" $files
serve_faulty "$W/tree"
curl -sSf -o "$W/null" "$AWS_ENDPOINT_URL/-/page" -d "{\"keys\": $page}"
build_clean s3://data s3://clean/store/set

echo "== $percent % of all requests fail in some way"
for seed in 1 ${GRANARY_FULL:+2}; do soak_round $seed $percent "$QUICK_KINDS"; done
for kind in 500 503 garbage reset lost cut broken short long slow; do # the draws follow from the seed
    [ "$(count $kind)" -gt 0 ] || fail "no fault of kind $kind was met"
done

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
wait_for 60 bash -c "[ \$(curl -sSf '$AWS_ENDPOINT_URL/-/counts' | jq .GET) -gt $((before + files * 5 / 12)) ]"
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
make_large_files "$W/local" $large
kill_loop "$kills" "$W/local" "$W/store"
