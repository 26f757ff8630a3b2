#!/bin/bash
# Keys in the shared file are replaced while a server reads: when S3 begins to refuse the old ones, the new ones are
# taken up, no read fails and nobody restarts anything. Long-lived keys, and temporary ones with a session token.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq curl python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl python3)"
done
unset http_proxy https_proxy AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE

mkdir "$W/tree"
head -c 8000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"
background python3 "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port" "lake=$W/store"
wait_for 60 test -s "$W/port"
port=$(cat "$W/port")
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_SHARED_CREDENTIALS_FILE=$W/credentials
export AWS_CONFIG_FILE=$W/none AWS_EC2_METADATA_DISABLED=true

# keys NAME [TOKEN]: the file's, from now on
keys() {
    printf '[default]\naws_access_key_id = %s\naws_secret_access_key = hidden\n' "$1" >"$W/credentials.new"
    [ -z "${2:-}" ] || printf 'aws_session_token = %s\n' "$2" >>"$W/credentials.new"
    mv "$W/credentials.new" "$W/credentials"
}
# tell WHAT JSON: the S3 server; its counts
tell() { curl -sSf --noproxy '*' "$AWS_ENDPOINT_URL/-/$1" -d "$2"; }
probe=$GRANARY_BUILD/tests/tools/nbdprobe
uri="nbd+unix:///one?socket=$W/sock"

# rotate WHAT JSON COUNT KEYS...: half is read with the old keys, they are replaced and refused, the rest is read and
# all is right
rotate() {
    local what=$1 json=$2 count=$3
    background "$GRANARY" serve s3://lake/one --socket "$W/sock" --cache "$W/cache-$count:64M" --warm none --disk-timeout "$DISK_TIMEOUT" 2>"$W/err"
    wait_for 60 listens "$W/sock"
    "$probe" "$uri" cache 0 1048576
    shift 3
    keys "$@"
    tell "$what" "$json" >"$W/null"
    nbdcopy "$uri" - | cmp - "$W/image" || fail "$count: $(cat "$W/err")"
    [ "$(tell counts '' | jq ".$count")" -ge 1 ] || fail "the old keys were never refused: the test proves nothing"
    kill "$BACKGROUND_PID"
    wait "$BACKGROUND_PID" || fail "the server's exit: $?"
    ! grep -q hidden "$W/err" || fail "a secret in the log"
}

keys OLD
rotate revoke '{"key": "OLD"}' revoked NEW
keys TEMPORARY one
rotate expire '{"token": "one"}' expired TEMPORARY two

echo "== keys that nobody replaces: reads fail, and the status says why until other keys are there"
keys LAST
background "$GRANARY" serve s3://lake/one --socket "$W/sock" --cache "$W/cache-refused:64M" --warm none 2>"$W/err"
wait_for 60 listens "$W/sock"
"$probe" "$uri" cache 0 1048576
"$GRANARY" status --quick "$W/sock" >"$W/status" || fail "not healthy before: $(cat "$W/status")"
tell revoke '{"key": "LAST"}' >"$W/null"
! "$probe" "$uri" cache $((2 << 20)) 65536 2>"$W/null" || fail "read with refused keys"
status=0
"$GRANARY" status --quick "$W/sock" >"$W/status" || status=$?
[ $status = 3 ] || fail "status ends with $status while the store refuses the keys: $(cat "$W/status")"
grep -q '^failing: store s3://lake has been refusing for .*does not know the access key' "$W/status" || fail "$(cat "$W/status")"
"$GRANARY" status --quick --json "$W/sock" >"$W/json" || [ $? = 3 ]
grep -q 's3://lake *refusing for [0-9]* s, last tried [0-9]* s ago: .*does not know the access key' "$W/status" || fail "$(cat "$W/status")"
jq -e '.stores[0].state == "refusing" and .stores[0].refusals == 1 and .stores[0].refused_s >= 0' "$W/json" >"$W/null" || fail "$(jq -c .stores "$W/json")"
keys FRESH
"$probe" "$uri" cache $((2 << 20)) 65536
"$GRANARY" status --quick "$W/sock" >"$W/status" || fail "not healthy with new keys: $(cat "$W/status")"
kill "$BACKGROUND_PID"
wait "$BACKGROUND_PID" || fail "the server's exit: $?"

echo "== keys that nobody replaces: the sentence of the refusal"
tell revoke '{"key": "NEW"}' >"$W/null"
keys NEW
! "$GRANARY" inspect s3://lake/one >"$W/out" 2>&1 || fail "refused keys are accepted"
grep -q 'does not know the access key' "$W/out" || fail "$(cat "$W/out")"
