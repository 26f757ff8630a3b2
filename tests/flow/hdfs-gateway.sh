#!/bin/bash
# ctest: lock=hdfs long
# HDFS by Hadoop's gateway, HttpFS, and over TLS; who may read: permissions, tokens as text and in Hadoop's own file.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-hdfs.sh"
put_tree
SOURCE=hdfs://$HDFS_NN/data
STORE=hdfs://$HDFS_NN/images

reference=$(build "$SOURCE" "$STORE/x:v1" "${MAP[@]}")

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
