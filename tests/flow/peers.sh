#!/bin/bash
# Nodes are each other's cache (--peer-listen): of what two nodes read, the store sends each byte once and the nodes keep
# each chunk once, and they read on without the store. flow/peers-faults has what goes wrong.
. "$(dirname "$0")/lib-l2.sh"

make_images 2
serve_store P1 P2
STORE=$BACKGROUND_PID
start_nodes 2

echo "== the store sends each byte once, and each chunk is kept once"
entries=0
for n in 1 2; do read_all n$n; done
for n in 1 2; do
    [ "$(count n$n peer_served_total)" -gt 0 ] || fail "node $n was not asked"
    [ "$(count n$n cache_entries)" -gt "$IMAGES" ] || fail "node $n keeps nothing but the index nodes"
    [ "$(status_of n$n '[.exports[].peer_bytes] | add')" -gt 0 ] ||
        fail "the status of node $n says nothing of what came from others"
    entries=$((entries + $(count n$n cache_entries)))
done
sent_once n1 n2
chunks=$((IMAGES * 81)) # of 101 in each image 20 are holes; every node keeps the index node of each image
[ "$(sent_by_store)" != "$OBJECT_BYTES" ] || [ "$entries" = $((chunks + 2 * IMAGES)) ] || fail "$entries entries of $chunks chunks"
states_are n2 "self up" || fail "$(of_proxies n2 .)"

echo "== a server that is no node reads through them, if it has the key"
serve reader "peer-key=$W/key" hedge=0
read_all reader
of_proxies reader 'map([.state, .requests, .failures]) | .[] | tostring'
[ "$(of_proxies reader 'map(select(.state == "up" and .failures == 0 and .requests > 0)) | length')" = 2 ] || fail "$(of_proxies reader .)"
sent_once n1 n2 reader # still
[ "$(status_of reader .health)" = healthy ] || fail "$(status_of reader .)"
refused 1 'needs the list of nodes' "$GRANARY" serve "http://127.0.0.1:$P/lake/i1" --socket "$W/x.sock" --peer-key "$W/key"

echo "== who has no key gets nothing"
[ "$(curl -s -o "$W/null" -w '%{http_code}' -H 'Range: bytes=0-99' -H 'Granary-Chunks: x' "http://127.0.0.1:$P1/lake/$(cd "$W/store" && find packs -type f -print -quit)")" = 401 ] ||
    fail "a stranger is not refused"
[ "$(count n1 peer_strangers_total)" = 1 ] || fail "the stranger is not counted"

echo "== without the store"
kill_nginx "$STORE"
for n in 1 2; do read_all n$n; done
for n in 1 2; do [ "$(count n$n fetch_errors_total)" = 0 ] || fail "node $n met errors"; done
