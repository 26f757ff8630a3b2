#!/bin/bash
# ctest: long
# granary warm --cluster: each node warms its share, and together they have everything; the store sent each chunk once.
# What is read then needs no store.
. "$(dirname "$0")/lib-l2.sh"

make_images 4
serve_store P1 P2 P3
STORE=$BACKGROUND_PID
start_nodes 3

# warm N: all images, node N's share
warm() {
    local i
    for i in $(seq "$IMAGES"); do "$GRANARY" warm -q "$W/n$1.control" --export "i$i" --all --cluster; done
}
echo "== three nodes at once"
pids=()
for n in 1 2 3; do
    warm $n >"$W/warm$n" 2>&1 &
    pids+=($!)
done
for n in 1 2 3; do wait "${pids[n - 1]}" || fail "node $n: $(cat "$W/warm$n")"; done
entries=0
for n in 1 2 3; do entries=$((entries + $(count n$n cache_entries))); done
# When it warms, each node brings the index nodes from the store itself.
OBJECT_BYTES=$((OBJECT_BYTES + 2 * $(find "$W/store/indexes" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')))
sent_once n1 n2 n3
[ "$entries" -lt $((IMAGES * 81 * 2)) ] || fail "nodes warmed more than their share"

echo "== a second run has nothing to do, and a server that is no node refuses"
for i in $(seq "$IMAGES"); do
    [ "$("$GRANARY" warm -q --json --dry-run "$W/n1.control" --export "i$i" --all --cluster | jq .needed_chunks)" = 0 ] || fail "i$i is not warm"
done
serve_unix "$W/alone.sock" "image=http://127.0.0.1:$P/lake/i1" "cache=$W/alone:64M" control="$W/alone.control"
refused 1 'leave --cluster out' "$GRANARY" warm "$W/alone.control" --all --cluster

echo "== without the store"
kill_nginx "$STORE"
for n in 1 2 3; do read_all n$n; done
