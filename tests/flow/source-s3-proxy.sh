#!/bin/bash
# A bucket of a real S3 server behind a caching nginx, as its documentation sets one up: it drops Range and If-Match and
# asks for whole objects. Images are built from there, first and again, of what has changed alone.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-source.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

command -v nginx >/dev/null || skip "no nginx here (apt-get install nginx-light)"
use_ceph proxied
unset all_proxy ALL_PROXY
mkdir "$W/tree"
for i in $(seq 120); do echo "file $i" >"$W/tree/$i"; done
head -c 3000000 /dev/urandom >"$W/tree/large"
python3 "$SERVERS/s3put.py" tree proxied data "$W/tree" || fail "cannot fill the bucket"

free_port
port=$FREE_PORT
serve_nginx "proxy_cache_path $W/cached keys_zone=s3:1m;
    server { listen 127.0.0.1:$port; client_max_body_size 0;
        location / { proxy_pass $AWS_ENDPOINT_URL; proxy_set_header Host \$http_host;
            proxy_cache s3; proxy_cache_valid 200 1h; add_header X-Cached \$upstream_cache_status; } }"
wait_for 60 answers "$port"

export AWS_ENDPOINT_URL=http://127.0.0.1:$port
"$GRANARY" build --quiet s3://proxied/data "$W/store/set" --json >"$W/json" 2>"$W/err" || fail "$(cat "$W/err")"
"$GRANARY" export --quiet "$W/store/set" "$W/image.erofs"
fsck.erofs --extract="$W/back" "$W/image.erofs" || fail "fsck.erofs found errors"
diff -r "$W/tree" "$W/back" || fail "the image differs from the bucket"
[ -n "$(find "$W/cached" -type f)" ] || fail "nothing was cached: the test proves nothing"
