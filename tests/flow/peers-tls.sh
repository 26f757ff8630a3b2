#!/bin/bash
# ctest: long
# Nodes that speak TLS (--peer-tls): who shows no certificate of their authority gets nothing, a certificate that is
# renewed is shown without a restart, and a node whose certificate is another authority's is passed over.
. "$(dirname "$0")/lib-l2.sh"
command -v openssl >/dev/null || skip "no openssl here (apt-get install openssl)"

make_images 3
serve_store P1 P2
for port in $P1 $P2; do echo "https://127.0.0.1:$port/lake"; done >"$W/members"
images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
# shellcheck disable=SC2034
proxies=("l2=$W/members")

# authority NAME: $W/NAME.crt, $W/NAME.key
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$W/$1.key" -out "$W/$1.crt" 2>"$W/null"
}
# certify DIR AUTHORITY [PURPOSE]: a certificate without any name that a client could check
certify() {
    mkdir -p "$1"
    cp "$W/$2.crt" "$1/ca.crt"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=node" -keyout "$1/new.key" -out "$W/request" 2>"$W/null"
    openssl x509 -req -in "$W/request" -CA "$W/$2.crt" -CAkey "$W/$2.key" -CAcreateserial -days 1 \
        -extfile <(echo "extendedKeyUsage=${3:-serverAuth,clientAuth}") -out "$1/new.crt" 2>"$W/null"
    mv "$1/new.key" "$1/tls.key"
    mv "$1/new.crt" "$1/tls.crt"
}
authority nodes
authority others
certify "$W/tls1" nodes
certify "$W/tls2" nodes
certify "$W/stranger" others
certify "$W/server-only" nodes serverAuth
# start_node N
start_node() {
    local port=P$1
    serve "n$1" "cache=$W/cache$1:64M" "peer-listen=127.0.0.1:${!port}" "peer-tls=$W/tls$1" peer-keep=none hedge=0 timeout=60s
}

echo "== what is wrong with the files is said"
run() { "$GRANARY" serve "http://127.0.0.1:$P/lake/i1" --socket "$W/x.sock" --cache "$W/cx:64M" --l2 "$W/members" --peer-listen "127.0.0.1:$P1" "$@"; }
refused 1 'needs peer-key=FILE' run
refused 2 'cannot read ca.crt' run --peer-tls "$W"
cp -r "$W/tls1" "$W/mixed"
cp "$W/tls2/tls.key" "$W/mixed"
refused 1 'is not the key of tls.crt' run --peer-tls "$W/mixed"

echo "== the store sends each byte once"
start_node 1
start_node 2
for n in 1 2; do read_all n$n; done
for n in 1 2; do [ "$(count n$n peer_served_total)" -gt 0 ] || fail "node $n was not asked"; done
sent_once n1 n2

echo "== who is no node gets nothing"
# ask_node CURL-OPTION...: the status
ask_node() { curl -sk -o "$W/null" -w '%{http_code}' -H 'Range: bytes=0-9' -H 'Granary-Chunks: x' "$@" "https://127.0.0.1:$P1/lake/packs/00/$(printf '0%.0s' {1..64})"; }
as() { ask_node --cert "$W/$1/tls.crt" --key "$W/$1/tls.key"; }
[ "$(as tls2)" = 400 ] || fail "a node is answered by $(as tls2)"
[ "$(ask_node)" = 401 ] || fail "no certificate: $(ask_node)"
[ "$(as stranger)" = 401 ] || fail "another authority's certificate: $(as stranger)"
[ "$(as server-only)" = 401 ] || fail "a certificate that is for servers alone: $(as server-only)"
[ "$(curl -s -o "$W/null" -w '%{http_code}' "http://127.0.0.1:$P1/lake/")" != 200 ] || fail "it answers without TLS"

echo "== a certificate that is renewed needs no restart"
shown() { openssl s_client -connect "127.0.0.1:$P1" </dev/null 2>"$W/null" | openssl x509 -noout -serial; }
before=$(shown)
certify "$W/tls1" nodes
[ -n "$before" ] && [ "$(shown)" != "$before" ] || fail "the old certificate is shown: $(shown)"
[ "$(as tls2)" = 400 ] || fail "a node is answered by $(as tls2)"

echo "== a node of another authority is passed over, and its readers read on"
kill -9 "$SERVER_PID" # node 2
wait "$SERVER_PID" || true
rm -f "$W/n2.sock" "$W/n2.control"
cp "$W/stranger"/* "$W/tls2"
start_node 2
read_all n2
read_all n1
[ "$(count n2 peer_served_total)" = 0 ] || fail "a stranger was asked"
[ "$(count n1 fetch_errors_total)" = 0 ] && [ "$(count n2 fetch_errors_total)" = 0 ] || fail "fetches failed"
