#!/bin/bash
# A soak: builds from S3 into S3 while 5 % of all requests fail in any way at all, stalls included; each gives the right
# digest, its image is sound. Every third one is killed once in the middle and run again. Then many local builds killed
# at any moment.
# ctest: long first
. "$(dirname "$0")/lib-build-faults.sh"

rounds=${GRANARY_SOAK_ROUNDS:-30}
make_tree "$W/tree" 6000
serve_faulty "$W/tree"
build_clean s3://data s3://clean/store/set

for round in $(seq "$rounds"); do
    kinds=$QUICK_KINDS
    [ $((round % 10)) != 0 ] || kinds=$QUICK_KINDS,'"stall"'
    [ $((round % 3)) != 0 ] && kill="" || kill=$((RANDOM % 5)).$((RANDOM % 10))
    soak_round "$round" 5 "$kinds" "$kill"
done
curl -sSf "$AWS_ENDPOINT_URL/-/counts"
for kind in 500 503 reset lost cut broken short long slow stall; do
    [ "$(count $kind)" -gt 0 ] || fail "no fault of kind $kind was met"
done

make_large_files "$W/local" 80
kill_loop $((rounds * 2)) "$W/local" "$W/store"
