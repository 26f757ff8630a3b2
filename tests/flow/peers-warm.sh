#!/bin/bash
# granary warm --cluster: each node warms its share, and together they have everything, which the store sent once. What
# is read then needs no store.
. "$(dirname "$0")/lib-l2.sh"

make_images 4
serve_store P1 P2 P3
STORE=$BACKGROUND_PID
for n in 1 2 3; do port=P$n && echo "http://127.0.0.1:${!port}/lake"; done >"$W/members"
images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
openssl rand -hex 32 >"$W/key"
# shellcheck disable=SC2034
proxies=("l2=$W/members")
for n in 1 2 3; do
    port=P$n
    serve "n$n" "cache=$W/cache$n:64M" "peer-listen=127.0.0.1:${!port}" "peer-key=$W/key" peer-keep=none hedge=0 timeout=60s
done

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
failures=0 entries=0
for n in 1 2 3; do
    failures=$((failures + $(count n$n l2_failures_total)))
    entries=$((entries + $(count n$n cache_entries)))
done
echo "the store sent $(sent_by_store) of $OBJECT_BYTES bytes; $entries chunks and index nodes are kept; $failures failures"
# A node that was too slow for a busy machine was passed over.
[ $failures != 0 ] || [ "$(sent_by_store)" = "$OBJECT_BYTES" ] || fail "the store sent more than everything once"
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
