#!/bin/bash
# TLS with an authority of one's own: a server that offers HTTP/1.1 and HTTP/2 is asked by HTTP/1.1 over kept
# connections, no more than connections= of them; one that refuses HTTP/1.1 by HTTP/2, with ranges, uploads, signatures.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq nginx openssl python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq nginx-light openssl python3)"
done
unset http_proxy https_proxy AWS_PROFILE AWS_SESSION_TOKEN

openssl req -x509 -newkey rsa:2048 -nodes -keyout "$W/ca.key" -out "$W/ca" -days 2 -subj /CN=authority 2>"$W/null"
openssl req -newkey rsa:2048 -nodes -keyout "$W/key" -out "$W/request" -subj /CN=127.0.0.1 2>"$W/null"
openssl x509 -req -in "$W/request" -CA "$W/ca" -CAkey "$W/ca.key" -CAcreateserial -days 2 -out "$W/certificate" \
    -extfile <(echo subjectAltName=IP:127.0.0.1) 2>"$W/null"

mkdir "$W/tree"
for i in 1 2 3 4 5 6; do head -c 3000000 /dev/urandom >"$W/tree/$i"; done
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"
background python3 "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port"
wait_for 60 test -s "$W/port"
free_port
both=$FREE_PORT
free_port
two=$FREE_PORT
tls="ssl_certificate $W/certificate; ssl_certificate_key $W/key; client_max_body_size 0;"
serve_nginx "log_format what '\$server_protocol \$status \$connection \$request_method';
    server { listen 127.0.0.1:$both ssl http2; $tls access_log $W/both.log what; location / { root $W/store; } }
    server { listen 127.0.0.1:$two ssl http2; $tls access_log $W/two.log what;
        if (\$server_protocol != HTTP/2.0) { return 505; }
        location / { root $W/store; } location /lake/ { proxy_pass http://127.0.0.1:$(cat "$W/port"); } }"
wait_for 60 answers "$two"

# read_all PORT: the whole image through the server, over at most 5 connections
read_all() {
    background env AWS_CA_BUNDLE="$W/ca" nbdkit -f -t 64 --unix "$W/sock-$1" "$PLUGIN" "https://127.0.0.1:$1/one" connections=5
    wait_for 60 listens "$W/sock-$1"
    nbdcopy --request-size=65536 "nbd+unix:///one?socket=$W/sock-$1" - | cmp - "$W/image" || fail "port $1"
    kill "$BACKGROUND_PID"
    wait "$BACKGROUND_PID" || fail "the server's exit: $?"
}

echo "== both are offered"
read_all "$both"
[ "$(cut -d' ' -f1 "$W/both.log" | sort -u)" = HTTP/1.1 ] || fail "$(sort "$W/both.log" | uniq -c)"
requests=$(wc -l <"$W/both.log") connections=$(cut -d' ' -f3 "$W/both.log" | sort -u | wc -l)
# two for the tag and the manifest, by a handle on the store of their own
[ "$requests" -ge 15 ] || fail "$requests requests: the test proves nothing"
[ "$connections" -le 7 ] || fail "$requests requests over $connections connections"

echo "== HTTP/1.1 is refused"
read_all "$two"
grep -q '^HTTP/2.0 206' "$W/two.log" || fail "no range by HTTP/2: $(cat "$W/two.log")"
[ "$(grep -c '^HTTP/1.1' "$W/two.log")" -le 12 ] || fail "asked by HTTP/1.1 again and again: $(cat "$W/two.log")"

# cut COUNT: port $PORT leads to $both; of the connections that offer HTTP/1.1 alone, the first COUNT end in their
# handshake. One at a time is asked for: what counts is refusals in a row.
cut() {
    : >"$W/both.log"
    background python3 "$GRANARY_SOURCE/tests/servers/cut-handshakes.py" "$W/proxy-$1" "$W/cuts-$1" "$both" "$1"
    wait_for 60 test -s "$W/proxy-$1"
    PORT=$(cat "$W/proxy-$1")
    rm -f "$W/image-cut"
    AWS_CA_BUNDLE="$W/ca" "$GRANARY" export -q -j 1 "https://127.0.0.1:$PORT/one" "$W/image-cut"
    cmp "$W/image" "$W/image-cut" || fail "wrong byte behind $1 handshakes that failed"
}
by() { grep -c "^HTTP/$1 20" "$W/both.log" || true; }

echo "== one handshake that fails, or two in a row, do not change the version for good"
for count in 1 2; do
    cut $count
    [ "$(wc -l <"$W/cuts-$count")" = $count ] || fail "$(wc -l <"$W/cuts-$count") handshakes failed, not $count"
    [ "$(by 2.0)" = $count ] && [ "$(by 1.1)" -ge 3 ] || fail "after $count: $(sort "$W/both.log" | uniq -c)"
done

echo "== three in a row do"
cut 1000
[ "$(wc -l <"$W/cuts-1000")" = 3 ] || fail "$(wc -l <"$W/cuts-1000") handshakes failed before HTTP/2 was offered at once"
[ "$(by 1.1)" = 0 ] && [ "$(by 2.0)" -ge 5 ] || fail "$(sort "$W/both.log" | uniq -c)"

echo "== a build over HTTP/2"
export AWS_CA_BUNDLE=$W/ca AWS_ENDPOINT_URL=https://127.0.0.1:$two AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=hidden
"$GRANARY" build -q --chunk-size 64K "$W/tree" s3://lake/store/one >"$W/built"
"$GRANARY" export -q s3://lake/store/one "$W/image2"
cmp "$W/image" "$W/image2"
grep -q '^HTTP/2.0 200 [0-9]* PUT' "$W/two.log" || fail "no PUT by HTTP/2: $(cat "$W/two.log")"

echo "== answers that break off, over HTTP/2"
curl -s --noproxy '*' -d '{"percent": 30, "kinds": ["cut", "broken"], "seed": 1, "match": "GET"}' -o "$W/null" "http://127.0.0.1:$(cat "$W/port")/-/faults"
"$GRANARY" export -q s3://lake/store/one "$W/image3" 2>"$W/err" || fail "not tried again: $(cat "$W/err")"
cmp "$W/image" "$W/image3"
curl -s --noproxy '*' "http://127.0.0.1:$(cat "$W/port")/-/counts" >"$W/counts"
jq -e '(.cut // 0) + (.broken // 0) > 0' "$W/counts" >"$W/null" || fail "nothing broke: the test proves nothing: $(cat "$W/counts")"

echo "== an authority that is not trusted"
! AWS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt "$GRANARY" inspect "https://127.0.0.1:$both/one" >"$W/out" 2>&1 || fail "trusted"
grep -q AWS_CA_BUNDLE "$W/out" || fail "$(cat "$W/out")"
