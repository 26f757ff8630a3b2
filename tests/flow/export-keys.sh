#!/bin/bash
# Exports of one server with S3 keys of their own: two users of a real server whose buckets exclude each other. Neither
# reads with the other's keys, also not what the cache already has; keys are replaced under a reader; a front end that
# is killed gets them again, a new server waits for them; and they are nowhere but in the server's memory.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-keys.sh"

control="$W/nbd.sock.control"
uri() { echo "nbd+unix:///$1?socket=$W/nbd.sock"; }
# put NAME IMAGE [KEYS]: an export with these keys of its own
put() {
    local body=()
    [ -z "${3:-}" ] || body=(--data-binary "@$W/$3")
    curl -sS -X PUT --unix-socket "$control" "${body[@]}" "http://granary/exports/$1?image=$2" >"$W/answer"
}
delete() { curl -sS -X DELETE --unix-socket "$control" "http://granary/exports/$1" >"$W/answer"; }
done_well() { grep -q '"ok":true' "$W/answer" || fail "$1: $(cat "$W/answer")"; }
removed() { grep -q '"removed":true' "$W/answer" || fail "$1: $(cat "$W/answer")"; }
refused() { grep -q "\"error\":.*$2" "$W/answer" || fail "$1: $(cat "$W/answer")"; }
names() { curl -sS --unix-socket "$control" http://granary/status | jq -c '.exports | map(.name)'; }

echo "== two users, each with a bucket that the other cannot read"
two_users 3000000
for user in alice bob; do with ${user}1 "$GRANARY" export -q "$(image $user)" "$W/$user.img"; done
! with alice1 "$GRANARY" inspect "$(image bob)" >"$W/out" 2>&1 || fail "alice reads bob's bucket: the test proves nothing"

# An image of a directory is what the server is started with: it has no S3 keys itself.
"$GRANARY" build -q "$W/alice" "$W/store/own" >"$W/out"
serve() {
    : >"$W/serve.out"
    background "$GRANARY" serve "$W/store/own" --socket "$W/nbd.sock" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" \
        >"$W/serve.out" 2>>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
serve

echo "== both are served by one server"
put alice "$(image alice)" alice1 && done_well "alice's export"
put bob "$(image bob)" bob1 && done_well "bob's export"
for user in alice bob; do
    nbdcopy "$(uri $user)" - | cmp - "$W/$user.img" || fail "$user's image is another"
done
"$GRANARY" status --json "$W/nbd.sock" | jq -e '[.exports[] | select(.own_keys) | .name] == ["alice", "bob"] and
    ([.stores[].export] | sort) == [null, "alice", "bob"]' >"$W/out" || fail "status: $("$GRANARY" status --json "$W/nbd.sock")"
curl -sS --unix-socket "$control" http://granary/metrics >"$W/metrics"
grep -q "^granary_store_up{store=\"s3://lake-alice-$ID\",export=\"alice\"} 1" "$W/metrics" || fail "metrics: $(grep store_up "$W/metrics")"

echo "== the keys of one open nothing of the other, also not what is in the cache"
digest=$(with bob1 "$GRANARY" inspect --json "$(image bob)" | jq -r .digest)
put third "$(image bob)" alice1 && refused "bob's tag with alice's keys" "refuses these credentials"
put third "$(image bob)@$digest" alice1 && refused "bob's digest with alice's keys" "refuses these credentials"
put bob "$(image bob)@$digest" alice1 && refused "bob's export with alice's keys" "refuses these credentials"
put third "$(image bob)@$digest" && refused "bob's digest with the server's keys" "no S3 credentials"
put bob "$(image bob)@$digest" && refused "bob's export with the server's keys" "no S3 credentials"
put own "$W/store/own" alice1 && refused "keys for a directory" "keys of an export's own are for s3"
[ "$(names)" = '["own","alice","bob"]' ] || fail "exports: $(names)"
nbdcopy "$(uri bob)" - | cmp - "$W/bob.img" || fail "bob's image after the attempts"
printf 'AWS_ACCESS_KEY_ID=alice1\nAWS_SECRET_KEY=hidden\n' >"$W/wrong"
put third "$(image alice)" wrong && refused "a misspelt name" "line 2 is wrong"
head -c 20000 /dev/zero >"$W/wrong"
put third "$(image alice)" wrong && refused "a large body" "at most 16.0 KiB"

echo "== keys are replaced under a reader, and the old ones end"
evict() { "$GRANARY" cache evict --control "$control" bob >"$W/out"; }
: >"$W/reading"
background bash -c "while [ -e '$W/reading' ]; do
    '$GRANARY' cache evict --control '$control' bob >'$W/evicted' 2>&1
    nbdcopy '$(uri bob)' - 2>>'$W/reader.err' | cmp - '$W/bob.img' 2>>'$W/reader.err' || exit 1
done"
READER=$BACKGROUND_PID
new_keys bob 2
put bob "$(image bob)" bob2 && done_well "bob's new keys"
end_keys bob 1
evict
nbdcopy "$(uri bob)" - | cmp - "$W/bob.img" || fail "bob's image with the new keys"
rm "$W/reading"
wait "$READER" || fail "the reader had an error: $(cat "$W/reader.err")"

echo "== nothing of them outside the server's memory"
# hidden ...: no secret is in these files
hidden() { ! grep -qsF hidden "$@" || fail "a secret in $(grep -lsF hidden "$@")"; }
nowhere() {
    local pid
    for pid in "$SERVE" $(pgrep -P "$SERVE"); do
        hidden "/proc/$pid/cmdline" "/proc/$pid/environ"
    done
    hidden -r "$W/serve.out" "$W/serve.err" "$W/cache/exports" "$control".* "$W/metrics"
    curl -sS --unix-socket "$control" http://granary/status >"$W/status"
    hidden "$W/status"
}
nowhere
grep -qa 'user-keys' "$control.exports" || fail "the list of exports says nothing of keys"
! grep -qF "${digest#sha256:}" "$W/cache/exports" || fail "the table beside the cache has an image that only bob's keys open"

echo "== the front end killed: it has them again"
CHILD=$(pgrep -P "$SERVE")
kill -9 "$CHILD"
back() { [ "$(pgrep -P "$SERVE")" != "$CHILD" ] && [ "$(names 2>"$W/null")" = '["own","alice","bob"]' ]; }
wait_for 60 back
evict
nbdcopy "$(uri bob)" - | cmp - "$W/bob.img" || fail "bob's image after the front end's end"

echo "== an upgrade: they are handed over"
"$GRANARY" upgrade "$W/nbd.sock" >"$W/out" 2>&1 || fail "upgrade: $(cat "$W/out")"
wait_for 60 back
evict
nbdcopy "$(uri bob)" - | cmp - "$W/bob.img" || fail "bob's image after the upgrade"

echo "== the server killed: the exports wait for their keys"
CHILD=$(pgrep -P "$SERVE")
kill -9 "$SERVE"
wait "$SERVE" || true
wait_for 60 gone "$CHILD"
serve
[ "$(names)" = '["own"]' ] || fail "without keys: $(names)"
grep -q "export 'bob' waits for its keys: they went with the server" "$W/serve.err" || fail "the log: $(cat "$W/serve.err")"
! nbdinfo "$(uri bob)" >"$W/out" 2>&1 || fail "an export without its keys is served"
wait_for 60 grep -q "the export 'bob' waits for its keys; add it again" "$W/serve.err" # the client may know first
if "$GRANARY" status --quick "$W/nbd.sock" >"$W/status" 2>&1; then fail "status is healthy: $(cat "$W/status")"; fi
grep -q "^failing: the export 'alice' waits for its keys" "$W/status" && grep -q '^  bob  waits for its keys' "$W/status" ||
    fail "status: $(cat "$W/status")"
curl -sS --unix-socket "$control" http://granary/metrics >"$W/metrics"
grep -q '^granary_health 2' "$W/metrics" || fail "the metrics are healthy"
put bob "$(image bob)@$digest" && refused "without keys" "waits for its keys"
put bob "$(image bob)@$digest" alice1 && refused "with alice's keys" "refuses these credentials"
put bob "$(image bob)@$digest" bob2 && done_well "bob's keys again"
nbdcopy "$(uri bob)" - | cmp - "$W/bob.img" || fail "bob's image with the keys again"
delete alice && removed "an export that waits"
"$GRANARY" status --json "$W/nbd.sock" | jq -e '.health == "healthy" and .waiting_exports == []' >"$W/out" || fail "status: $("$GRANARY" status "$W/nbd.sock")"
nowhere

echo "== removed: gone from memory, and the place is another's"
delete bob && removed "bob's export"
put bob "$(image bob)@$digest" && refused "after the removal" "no S3 credentials"
put alice "$(image alice)" alice1 && done_well "alice again"
nbdcopy "$(uri alice)" - | cmp - "$W/alice.img" || fail "alice's image"
for pid in "$SERVE" $(pgrep -P "$SERVE"); do
    [ "$(python3 "$GRANARY_SOURCE/tests/tools/memory.py" "$pid" "hiddenbob2-$ID")" = "" ] || fail "the removed keys are in the memory of $(cat "/proc/$pid/comm")"
done
[ "$(python3 "$GRANARY_SOURCE/tests/tools/memory.py" "$pid" "hiddenalice1-$ID")" ] || fail "no keys are found in memory: the test proves nothing"
for fd in "/proc/$SERVE/fd/"*; do
    [[ $(readlink "$fd") != *granary-keys* ]] || kept=$fd
done
grep -qF "hiddenalice1-$ID" "${kept:?no memory for keys}" || fail "alice's keys are not kept for the next front end"
! grep -qF hiddenbob "$kept" || fail "the removed keys are kept for the next front end"

echo "== what the server's own keys have read proves nothing for others: not its table, not its cache"
control="$W/second.sock.control"
background bash -c "set -a; . '$W/alice1'; exec '$GRANARY' serve '$(image alice)' --socket '$W/second.sock' \
    --cache '$W/cache-2:64M' --disk-timeout '$DISK_TIMEOUT'" >"$W/serve2.out" 2>"$W/serve2.err"
wait_for 60 grep -q '^serving' "$W/serve2.out"
nbdcopy "nbd+unix:///faces?socket=$W/second.sock" - | cmp - "$W/alice.img" || fail "alice's image, with the server's keys"
digest=$(with alice1 "$GRANARY" inspect --json "$(image alice)" | jq -r .digest)
grep -qF "${digest#sha256:}" "$W/cache-2/exports" || fail "the table does not have the image: the test proves nothing"
put bob "$(image alice)@$digest" bob2 && refused "alice's digest with bob's keys" "refuses these credentials"
put faces "$(image alice)@$digest" alice1 && refused "keys for an export without" "without keys of its own"
put bob "$(image alice)@$digest" && done_well "the server's keys"
