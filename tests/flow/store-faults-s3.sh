#!/bin/bash
# An image in an S3 store is read while three requests in ten fail in some way, and while its keys expire: keys that
# somebody writes into the shared file are taken up by the running server.
. "$(dirname "$0")/lib-build-faults.sh"
for tool in nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl)"; done

unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_PROFILE
export AWS_SHARED_CREDENTIALS_FILE=$W/keys AWS_EC2_METADATA_DISABLED=true
# keys TOKEN: what is in the shared file from now on
keys() {
    printf '[default]\naws_access_key_id = key\naws_secret_access_key = secret\naws_session_token = %s\n' "$1" >"$W/keys.new"
    mv "$W/keys.new" "$W/keys"
}
keys one
make_large_files "$W/tree" 8
serve_faulty "$W/tree"
"$GRANARY" build -q s3://data s3://lake/store/set >"$W/built"
"$GRANARY" export -q s3://lake/store/set "$W/image"

uri="nbd+unix:///set?socket=$W/sock"
probe=$GRANARY_BUILD/tests/tools/nbdprobe
counter() { counter_of "$W/control" "$1"; }
start() {
    rm -rf "$W/sock" "$W/control" "$W/cache"
    serve_unix "$W/sock" s3://lake/store/set control="$W/control" cache="$W/cache:128M" "$@" 2>"$W/log"
}
stop() { kill "$SERVER_PID" && wait "$SERVER_PID" || fail "the server ended with $?: $(tail -5 "$W/log")"; }
read_everything() {
    nbdcopy "$uri" "$W/copy" 2>"$W/copy.err" || { cat "$W/copy.err" "$W/log"; fail "$1: a read failed"; }
    cmp "$W/copy" "$W/image" || fail "$1: wrong bytes"
}

echo "== 30 % of the requests fail"
start
faults 30 "$QUICK_KINDS"
read_everything "30 % faults"
no_faults
[ "$(counter store_retries_total)" -gt 0 ] || fail "no faults were met"
[ "$(counter fetch_errors_total)" = 0 ] || fail "$(counter fetch_errors_total) fetches failed"
stop

echo "== the keys expire, and others take their place"
start readahead=0 timeout=5s
"$probe" "$uri" read 0 1048576 | cmp - <(head -c 1048576 "$W/image") || fail "the first read"
curl -sSf -o "$W/null" "$AWS_ENDPOINT_URL/-/expire" -d '{"token": "one"}'
! "$probe" "$uri" read 8388608 4096 >"$W/null" 2>&1 || fail "what is not cached was read with keys that have expired"
grep -qi expired "$W/log" || { cat "$W/log"; fail "no word of the keys"; }
"$probe" "$uri" read 0 1048576 | cmp - <(head -c 1048576 "$W/image") || fail "what is cached cannot be read"
keys two
read_everything "new keys"
stop
