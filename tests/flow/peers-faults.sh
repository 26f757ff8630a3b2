#!/bin/bash
# ctest: long
# Nodes that are each other's cache, all at once: what three nodes read at the same time the store sends once. Readers see
# no error and no wrong byte while a node is killed and comes back, and after that without the store.
. "$(dirname "$0")/lib-l2.sh"

make_images 6
serve_store P1 P2 P3
STORE=$BACKGROUND_PID
start_nodes 3
NODE=$SERVER_PID # the last one

echo "== three at once"
read_at_once n1 n2 n3
sent_once n1 n2 n3

echo "== a node is killed, and comes back, while clients read"
start_reader n1
goes_on n1
kill -9 "$NODE"
wait "$NODE" || true
goes_on n1
rm -f "$W/n3.sock" "$W/n3.control"
start_node 3
wait_for 120 states_are n1 "self up up"
end_reader n1 n2 n3

echo "== without the store"
read_until_kept n1 n2 n3 # also what is in no cache since the node was away
kill_nginx "$STORE"
for n in 1 2 3; do read_all n$n; done
for n in 1 2 3; do [ "$(count n$n fetch_errors_total)" = 0 ] || fail "node $n met errors"; done
