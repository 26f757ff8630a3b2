#!/bin/bash
# ctest: lock=hdfs
# HDFS as a source and as a store, by a real NameNode, DataNode and HttpFS of Hadoop's: the image has what was put, the
# store's conformance, tokens, owners, refusals.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-hdfs.sh"
put_tree
SOURCE=hdfs://$HDFS_NN/data

web() { # web METHOD PATH QUERY...
    curl -sf --noproxy '*' -X "$1" "http://$HDFS_NN/webhdfs/v1$2?user.name=$(id -un)&$3"
}
web PUT /data/many/1 "op=SETOWNER&owner=alice&group=analysts" >/dev/null
web PUT /data/many/2 "op=SETPERMISSION&permission=1640" >/dev/null

echo "--- a source: what is in the image is what was put"
reference=$(build "$SOURCE" "$W/store/x:ref" "${MAP[@]}")
[[ $reference == sha256:* || ${#reference} = 64 ]] || fail "no digest: $reference"
mkdir "$W/out"
"$GRANARY" export "$W/store/x:ref" "$W/image" --quiet
fsck.erofs --extract="$W/out" --overwrite "$W/image" >/dev/null || fail "the image is not sound"
diff -r "$W/tree" "$W/out" || fail "the image differs from what was put"
"$GRANARY" ls -lR "$W/store/x:ref" >"$W/ls"
grep -qE '^-rw-r--r-- +1234 +4321 .* many/1$' "$W/ls" || fail "owner and group are not mapped: $(grep ' many/1$' "$W/ls")"
grep -qE '^-rw-r----T .* many/2$' "$W/ls" || fail "the mode is lost: $(grep ' many/2$' "$W/ls")"
grep -qF ' sp ace%+&?#;=/' "$W/ls" || fail "a name is lost"
"$GRANARY" build -q "$SOURCE" "$W/store/x:unknown" 2>"$W/warning" >/dev/null
grep -qF "user names not known here: 1, 'alice' among them" "$W/warning" || fail "no warning of unknown owners: $(cat "$W/warning")"

echo "--- tar shards: plain and packed, the image that they give from disk"
content_root() { "$GRANARY" inspect --json "$1" | jq -r .content_root; }
mkdir "$W/shards"
ln "$W/tree/many/3" "$W/tree/many/again"
tar -C "$W/tree" -cf "$W/shards/plain.tar" a ünï "sp ace%+&?#;="
(cd "$W/tree" && find many -type f -print0) | LC_ALL=C sort -z | tar -C "$W/tree" -czf "$W/shards/packed.tgz" --null -T -
tar -C "$W/tree" -cf - --transform 's,^,again/,' a/b/big many/1 | zstd -q >"$W/shards/small.tar.zst"
rm "$W/tree/many/again"
hdfs put "$W/shards" /shards
build "tar:$W/shards" "$W/store/tar:disk" >"$W/tar-digest"
build "tar:hdfs://$HDFS_NN/shards" "$W/store/tar:hdfs" --parent none >"$W/tar-digest"
[ "$(content_root "$W/store/tar:disk")" = "$(content_root "$W/store/tar:hdfs")" ] || fail "tar: another image than from disk"
"$GRANARY" verify --deep -q "$W/store/tar:hdfs" >/dev/null || fail "tar: what was built is not sound"
"$GRANARY" ls -l "$W/store/tar:hdfs" many >"$W/ls"
grep -qE ' link to many/3$' "$W/ls" || fail "tar: a hard link is missing"
[ "$("$GRANARY" build -q --json "tar:hdfs://$HDFS_NN/shards" "$W/store/tar:hdfs" | jq .bytes_read)" = 0 ] || fail "tar: unchanged shards are read again"

echo "--- a store"
STORE=hdfs://$HDFS_NN/images
GRANARY_TEST_HDFS=hdfs://$HDFS_NN/conformance "$GRANARY_BUILD/tests/unit/test_store_conformance" >"$W/conformance" 2>&1 ||
    { cat "$W/conformance"; fail "the HDFS store does not conform"; }
[ "$(build "$SOURCE" "$STORE/x:v1" "${MAP[@]}")" = "$reference" ] || fail "another digest in HDFS"
"$GRANARY" verify --deep -q "$STORE/x:v1" >/dev/null || fail "what was built is not sound"
build "$SOURCE" "$STORE/x:v2" "${MAP[@]}" --strict-tags 2>"$W/strict" && fail "--strict-tags is content with a store without conditions"
grep -qF "no conditional writes" "$W/strict" || fail "--strict-tags says: $(cat "$W/strict")"

echo "--- served from HDFS"
serve_unix "$W/socket" "image=$STORE/x:v1"
nbdcopy "nbd+unix:///x?socket=$W/socket" "$W/served"
cmp "$W/image" "$W/served" || fail "other bytes are served"

echo "--- HttpFS"
hdfs start-httpfs || fail "HttpFS does not start"
[ "$(build "hdfs://$HTTPFS/data" "$W/store5/x" "${MAP[@]}")" = "$reference" ] || fail "another digest through HttpFS"
"$GRANARY" images "hdfs://$HTTPFS/images" | grep -E '^x  *v1 ' >"$W/null" || fail "HttpFS does not list the store"
"$GRANARY" verify --deep -q "hdfs://$HTTPFS/images/x:v1" >/dev/null || fail "HttpFS does not read the store"
"$GRANARY" build -q "$W/tree" "hdfs://$HTTPFS/other/x" 2>"$W/refusal" && fail "HttpFS is written through"
grep -qF "write through the NameNode's own address" "$W/refusal" || fail "HttpFS: $(cat "$W/refusal")"

echo "--- TLS, by nginx before HttpFS, and before the NameNode, which redirects to where there is none"
if command -v nginx >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -addext subjectAltName=IP:127.0.0.1 \
        -keyout "$W/tls.key" -out "$W/tls.pem" 2>/dev/null
    tls_server() { echo "server { listen 127.0.0.1:$1 ssl; location / { proxy_pass http://$2; } }"; }
    free_port
    P=$FREE_PORT
    free_port
    serve_nginx "ssl_certificate $W/tls.pem; ssl_certificate_key $W/tls.key;
        $(tls_server "$P" "$HTTPFS") $(tls_server "$FREE_PORT" "$HDFS_NN")"
    wait_for 60 answers "$P"
    export AWS_CA_BUNDLE=$W/tls.pem
    [ "$(build "swebhdfs://127.0.0.1:$P/data" "$W/store9/x" "${MAP[@]}")" = "$reference" ] || fail "another digest over TLS"
    "$GRANARY" build -q "swebhdfs://127.0.0.1:$FREE_PORT/data" "$W/store9/y" 2>"$W/refusal" && fail "TLS is left for a plain address"
    grep -qF "from TLS to a plain address" "$W/refusal" || fail "TLS is left: $(cat "$W/refusal")"
    unset AWS_CA_BUNDLE
else
    echo "no nginx here (apt-get install nginx-light): HDFS over TLS is not tested"
fi

echo "--- who may"
web PUT /data "op=SETPERMISSION&permission=700" >/dev/null
export HADOOP_USER_NAME=stranger
"$GRANARY" build -q "$SOURCE" "$W/store6/x" 2>"$W/refusal" && fail "a stranger reads what is not his"
grep -qF "permission denied for user.name=stranger" "$W/refusal" || fail "a stranger is told: $(cat "$W/refusal")"
# a NameNode without Kerberos takes no token over HTTP; HttpFS does
gateway() { curl -sf --noproxy '*' -X "$1" "http://$HTTPFS/webhdfs/v1/?user.name=$(id -un)&$2"; }
SOURCE=hdfs://$HTTPFS/data
gateway GET op=GETDELEGATIONTOKEN | jq -r .Token.urlString >"$W/token"
[ "$(build "$SOURCE" "$W/store6/x" "${MAP[@]}" --hdfs-token-file "$W/token")" != "" ] || fail "a token as text does not open"
fetcher=org.apache.hadoop.hdfs.tools.DelegationTokenFetcher
(
    unset HADOOP_USER_NAME
    hdfs java $fetcher --webservice "http://$HTTPFS" --renewer root "$W/tokens" >"$W/fetch" 2>&1
) || { cat "$W/fetch"; fail "Hadoop gives no file of tokens"; }
[ "$(head -c 4 "$W/tokens")" = HDTS ] || fail "Hadoop's file of tokens looks otherwise"
HADOOP_TOKEN_FILE_LOCATION=$W/tokens "$GRANARY" build "$SOURCE" "$W/store7/x" "${MAP[@]}" >"$W/with-token" 2>&1 ||
    { cat "$W/with-token"; fail "Hadoop's own file of tokens does not open"; }
gateway PUT "op=CANCELDELEGATIONTOKEN&token=$(cat "$W/token")" >/dev/null
"$GRANARY" build -q "$SOURCE" "$W/store8/x" --hdfs-token-file "$W/token" >"$W/refusal" 2>&1 && fail "a cancelled token opens"
grep -qF "for this token (AuthenticationException" "$W/refusal" || fail "a cancelled token: $(cat "$W/refusal")"
! grep -qF "$(cut -c 1-40 "$W/token")" "$W/refusal" "$W/with-token" || fail "a token is shown"
