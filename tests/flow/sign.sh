#!/bin/bash
# Signatures of images, made and verified by granary and by minisign; and that --trust refuses all that is not signed.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

command -v minisign >/dev/null || skip "no minisign (apt-get install minisign)"
mkdir "$W/tree"
seq 2000 >"$W/tree/numbers"
store=$W/store
"$GRANARY" build -q "$W/tree" "$store/faces:v1" >"$W/out"
for key in mine other; do minisign -G -W -p "$W/$key.pub" -s "$W/$key.key" >"$W/out"; done
KEY=$(tail -n 1 "$W/mine.pub")

# refused WORD COMMAND...: it fails with a sentence that has this word
refused() {
    local word=$1
    shift
    if "$@" >"$W/out" 2>"$W/err"; then fail "not refused: $*"; fi
    grep -q -- "$word" "$W/err" || fail "no '$word': $(cat "$W/err")"
}
read_by() { "$GRANARY" export -q --trust "$1" "$2" "$W/image"; }
# inspected FILTER IMAGE OPTION...: what inspect says of the image's signature fulfils this filter of jq
inspected() {
    local filter=$1
    shift
    "$GRANARY" inspect -q --json "$@" >"$W/out"
    jq -e ".signature | $filter" "$W/out" >"$W/null" || fail "inspect $*: $(jq -c .signature "$W/out")"
}

echo "== without a signature"
refused "has no signature" read_by "$W/mine.pub" "$store/faces:v1"
refused "has no signature" "$GRANARY" serve "$store/faces:v1" --socket "$W/nbd.sock" --memory 64M --trust "$KEY"

inspected '. == null' "$store/faces:v1"
inspected '.key == null and .trusted == false and (.error | contains("has no signature"))' "$store/faces:v1" --trust "$KEY"

echo "== signed by granary"
before=$(jq -cS 'del(.signature, .nonce)' "$store/images/faces/v1")
"$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" --trusted-comment "a release" >"$W/out"
[ "$(jq -cS 'del(.signature, .nonce)' "$store/images/faces/v1")" = "$before" ] || fail "sign changed more than the signature"
"$GRANARY" sign "$store/faces:v1" --message >"$W/message"
jq -j .signature "$store/images/faces/v1" >"$W/message.minisig"
minisign -V -p "$W/mine.pub" -m "$W/message" >"$W/out" || fail "minisign does not take granary's signature"
grep -q "a release" "$W/out"
read_by "$W/mine.pub" "$store/faces:v1"
read_by "$KEY" "$store/faces:v1"
refused "add that key" read_by "$W/other.pub" "$store/faces:v1"
"$GRANARY" export -q --trust "$W/other.pub" --trust "$KEY" "$store/faces:v1" "$W/image"
id=$(base64 -d <<<"$KEY" | od -An -tx8 -j2 -N8 | tr -d ' ' | tr a-f A-F)
inspected ".key == \"$id\" and .trusted_comment == \"a release\" and .trusted == true and .error == null" "$store/faces:v1" --trust "$KEY"
inspected ".key == \"$id\" and .trusted == null and .error == null" "$store/faces:v1"
inspected '.trusted == false and (.error | contains("add that key"))' "$store/faces:v1" --trust "$W/other.pub"
"$GRANARY" inspect -q "$store/faces:v1" >"$W/out"
grep -q "^signature .*of key $id, trusted comment: a release$" "$W/out" || fail "$(cat "$W/out")"
grep -q "not checked" "$W/out"
by_digest=sha256:$(jq -r .digest "$store/images/faces/v1")
refused "as NAME:TAG@" read_by "$KEY" "$store/faces@$by_digest"
read_by "$KEY" "$store/faces:v1@$by_digest"
inspected ".key == \"$id\" and .trusted == true and .error == null" "$store/faces:v1@$by_digest" --trust "$KEY"
"$GRANARY" inspect -q "$store/faces:v1@$by_digest" --trust "$KEY" >"$W/out"
grep -q "^  *fits, by a key that is trusted$" "$W/out" || fail "$(cat "$W/out")"

echo "== signed by minisign"
minisign -S -s "$W/other.key" -m "$W/message" -x "$W/other.minisig" >"$W/out"
minisign -S -s "$W/mine.key" -m "$W/tree/numbers" -x "$W/unrelated.minisig" >"$W/out"
cp "$store/images/faces/v1" "$W/before"
for wrong in "--signature $W/other.minisig" "--signature $W/unrelated.minisig" "--key $W/other.key"; do
    # shellcheck disable=SC2086
    refused "so it is not put" "$GRANARY" sign "$store/faces:v1" $wrong --trust "$W/mine.pub"
done
cmp "$W/before" "$store/images/faces/v1" || fail "a signature that was refused was put"
refused "--message" "$GRANARY" sign "$store/faces:v1" --message --trust "$W/mine.pub"
"$GRANARY" sign "$store/faces:v1" --signature "$W/other.minisig" --trust "$KEY" --trust "$W/other.pub" >"$W/out"
read_by "$W/other.pub" "$store/faces:v1"
"$GRANARY" sign "$store/faces:v1" --signature "$W/other.minisig" >"$W/out"
read_by "$W/other.pub" "$store/faces:v1"
"$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" --json >"$W/out"
jq -e --arg store "file://$store" --arg key "$id" --slurpfile tag "$store/images/faces/v1" \
    '. == {store: $store, name: "faces", tag: "v1", digest: "sha256:\($tag[0].digest)", key: $key}' "$W/out" >"$W/null" ||
    fail "sign --json: $(cat "$W/out")"

echo "== copies keep it, other names do not"
"$GRANARY" copy -q "$store/faces:v1" "$W/store2" >"$W/out"
read_by "$KEY" "$W/store2/faces:v1"
"$GRANARY" copy -q "$store/faces:v1@$by_digest" "$W/store2b" >"$W/out"
read_by "$KEY" "$W/store2b/faces:v1"
"$GRANARY" tag "$store/faces:v1" v2 >"$W/out"
refused "has no signature" read_by "$KEY" "$store/faces:v2"

echo "== another tag's signature, another image"
jq -c --slurpfile from "$store/images/faces/v1" '.signature = $from[0].signature' "$store/images/faces/v2" >"$W/doc"
cp "$W/doc" "$store/images/faces/v2"
refused "for another image or tag" read_by "$KEY" "$store/faces:v2"
seq 3000 >"$W/tree/numbers"
"$GRANARY" build -q "$W/tree" "$store/faces:v3" >"$W/out"
read_by "$KEY" "$store/faces:v1@$by_digest"
"$GRANARY" inspect -q "$store/faces:v3@$by_digest" >"$W/out" # a tag that names another image is no error ...
refused "names another image by now" read_by "$KEY" "$store/faces:v3@$by_digest" # ... unless its signature is needed
"$GRANARY" inspect -q "$store/faces:none@$by_digest" >"$W/out"
refused "was removed" read_by "$KEY" "$store/faces:none@$by_digest"
cp "$store/images/faces/v1" "$W/kept"
jq -c --slurpfile from "$store/images/faces/v3" '.digest = $from[0].digest' "$W/kept" >"$store/images/faces/v1"
refused "for another image or tag" read_by "$KEY" "$store/faces:v1"
"$GRANARY" inspect -q "$store/faces:v1" --trust "$KEY" >"$W/out"
grep -q "NOT TRUSTED: .*for another image or tag" "$W/out" || fail "$(cat "$W/out")"
jq -c '.signature = "junk"' "$W/kept" >"$store/images/faces/v1"
inspected '.key == null and .trusted == null and (.error | contains("is no signature"))' "$store/faces:v1"
cp "$W/kept" "$store/images/faces/v1"

echo "== a build upon an image that is not signed, or is"
build() { "$GRANARY" build -q --json "$W/tree" "$@" --trust "$KEY" >"$W/result"; }
parent() { jq -r .rebuild.parent_name "$W/result"; }
refused "has no signature.*--parent none" build "$store/faces:v3"
refused "has no signature" build "$store/faces:v9" --parent "$store/faces:v3"
build "$store/faces:v4" 2>"$W/err"
grep -q "newest image of faces cannot be built upon.*has no signature" "$W/err" || fail "$(cat "$W/err")"
[ "$(parent)" = null ] || fail "built upon $(parent), which is not signed"
"$GRANARY" sign "$store/faces:v4" --key "$W/mine.key" >"$W/out"
"$GRANARY" tag "$store/faces:v4" also >"$W/out"
build "$store/faces:v5"
[ "$(parent)" = faces:v4 ] || fail "built upon $(parent), not upon what is signed: $(cat "$W/result")"
build "$store/faces:v6" --parent "$store/faces:v4@sha256:$(jq -r .digest "$store/images/faces/v4")"
[ "$(jq .rebuild.unchanged "$W/result")" = 1 ] || fail "not built upon v4: $(cat "$W/result")"
refused "as NAME:TAG@" build "$store/faces:v7" --parent "$store/faces@sha256:$(jq -r .digest "$store/images/faces/v4")"
refused "add that key" "$GRANARY" build -q "$W/tree" "$store/faces:v4" --trust "$W/other.pub"

echo "== a server: it starts again with its tag moved to an unsigned image, by what its cache remembers"
cat >"$W/granary.conf" <<END
[server]
trust = $W/mine.pub
END
serve() {
    : >"$W/serve.out"
    GRANARY_CONFIG=$W/granary.conf background "$GRANARY" serve "$1" --socket "$W/nbd.sock" --cache "$W/cache:64M" \
        >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
digest=$(jq -r .digest "$store/images/faces/v1")
serve "$store/faces:v1"
curl -sS -G -X PUT --unix-socket "$W/nbd.sock.control" --data-urlencode "image=$store/faces:v3" http://granary/exports/three >"$W/out"
grep -q "has no signature" "$W/out" || fail "an export without a signature: $(cat "$W/out")"
kill "$SERVE"
wait "$SERVE" || true
"$GRANARY" build -q "$W/tree" "$store/faces:v1" >"$W/out"
GRANARY_CONFIG=$W/granary.conf refused "has no signature" "$GRANARY" serve "$store/faces:v1" --socket "$W/nbd.sock" --cache "$W/cache:64M"
if grep -q -- --trust "$W/err"; then fail "an option that was not given: $(cat "$W/err")"; fi
serve "$store/faces:v1@sha256:$digest"
kill "$SERVE"
wait "$SERVE" || true
rm -r "$W/cache"
GRANARY_CONFIG=$W/granary.conf refused "another image by now" "$GRANARY" serve "$store/faces:v1@sha256:$digest" --socket "$W/nbd.sock" --memory 64M

echo "== a front end that starts again, or is upgraded: what was signed when it was resolved is served, wherever its tag is"
control=$W/nbd.sock.control
# start WORD...: a server with the key of $W/served.pub, ready
start() {
    : >"$W/serve.out"
    background "$GRANARY" serve --socket "$W/nbd.sock" --trust "$W/served.pub" "$@" >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
add() { curl -sS -G -X PUT --unix-socket "$control" --data-urlencode "image=$2" "http://granary/exports/$1"; }
# serves NAMES: the exports, of another front end than $CHILD
serves() {
    local child
    child=$(pgrep -P "$SERVE") && [ "$child" != "$CHILD" ] &&
        [ "$(curl -sS --unix-socket "$control" http://granary/status 2>"$W/null" | jq -c '[.exports[].name]')" = "$1" ]
}
move_tag() {
    date +%N >"$W/tree/numbers"
    "$GRANARY" build -q "$W/tree" "$store/faces:v1" >"$W/out"
}
stop() {
    kill "$SERVE"
    wait "$SERVE" || true
}
for cache in "--memory=64M" "--cache=$W/cache2:64M"; do
    cp "$W/mine.pub" "$W/served.pub"
    move_tag
    "$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" >"$W/out"
    start "$store/faces:v1@sha256:$(jq -r .digest "$store/images/faces/v1")" "$cache"
    move_tag
    "$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" >"$W/out"
    names='["faces"]'
    if [ "$cache" != "--memory=64M" ]; then # without a cache directory, nothing notes the signature of an added export
        add second "$store/faces:v1" >"$W/out"
        grep -q '"ok":true' "$W/out" || fail "$(cat "$W/out")"
        names='["faces","second"]'
    fi
    move_tag
    CHILD=$(pgrep -P "$SERVE")
    mv "$W/served.pub" "$W/away.pub" # a server keeps the key that it was started with
    kill -9 "$CHILD"
    wait_for 60 serves "$names"
    mv "$W/away.pub" "$W/served.pub"
    CHILD=$(pgrep -P "$SERVE")
    "$GRANARY" upgrade "$control" >"$W/out" || fail "$cache: $(cat "$W/serve.err")"
    wait_for 60 serves "$names"
    stop
done

echo "== an added export that is no longer trusted is left out, with a sentence"
"$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" >"$W/out"
"$GRANARY" sign "$store/faces:v3" --key "$W/other.key" >"$W/out"
start "$store/faces:v1" --cache "$W/cache3:64M" --trust "$W/other.pub"
add three "$store/faces:v3" >"$W/out"
grep -q '"ok":true' "$W/out" || fail "$(cat "$W/out")"
CHILD=$(pgrep -P "$SERVE")
kill -9 "$SERVE"
wait "$SERVE" || true
wait_for 60 gone "$CHILD"
start "$store/faces:v1" --cache "$W/cache3:64M"
wait_for 60 serves '["faces"]'
[ "$(grep -c "export 'three', noted in .*, is not served any more: .*is not signed by a trusted key ($id)" "$W/serve.err")" = 1 ] || fail "$(cat "$W/serve.err")"
stop

echo "== keys and signatures that are none"
digest=$(jq -r .digest "$store/images/faces/v1")
refused "no secret key" "$GRANARY" sign "$store/faces:v1" --key "$W/mine.pub"
refused "no signature" "$GRANARY" sign "$store/faces:v1" --signature "$W/mine.pub"
refused "no public key" read_by "$W/mine.key" "$store/faces:v1"
refused "tag is signed" "$GRANARY" sign "$store/faces@sha256:$digest" --key "$W/mine.key"
move_tag
refused "another image by now" "$GRANARY" sign "$store/faces:v1@sha256:$digest" --key "$W/mine.key"

echo "== rm takes it away with the tag"
"$GRANARY" sign "$store/faces:v1" --key "$W/mine.key" >"$W/out"
"$GRANARY" rm "$store/faces:v1" >"$W/out"
refused "no image" read_by "$KEY" "$store/faces:v1"
