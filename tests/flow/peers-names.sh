#!/bin/bash
# ctest: long
# Nodes that are each other's cache find each other by a name, as behind a headless Service: each knows itself among its
# addresses, one joins and leaves while clients read, the name is unknown for a while, and no read fails.
. "$(dirname "$0")/lib-l2.sh"

make_images 6
serve_store
free_port && PORT=$FREE_PORT
own_names
name=granary.lan
openssl rand -hex 32 >"$W/key"
images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
# node_up N: node N, at 127.0.0.N
declare -A NODES
node_up() {
    background "$W/with-names" nbdkit -f -t 64 --unix "$W/n$1.sock" "$PLUGIN" "${images[@]}" "l2=dns+http://$name:$PORT/lake" \
        control="$W/n$1.control" disk-timeout="$DISK_TIMEOUT" "cache=$W/cache$1:64M" "peer-listen=127.0.0.$1:$PORT" \
        "peer-key=$W/key" peer-keep=none hedge=0 timeout=60s
    NODES[$1]=$BACKGROUND_PID
    wait_for 60 listens "$W/n$1.sock"
}
own_address() { of_proxies "$1" 'map(select(.state == "self") | .url) | join(" ")'; }
is_itself() { [ "$(own_address "n$1")" = "http://127.0.0.$1:$PORT/lake" ]; }

echo "== two nodes"
say $name 1 2
for n in 1 2; do node_up $n; done
for n in 1 2; do
    wait_for 120 addresses_are n$n 1 2
    is_itself $n || fail "n$n takes itself for '$(own_address n$n)'"
done
for n in 1 2; do read_all n$n; done
sent_once n1 n2

echo "== one joins while a client reads"
start_reader n1
say $name 1 2 3
node_up 3
for n in 1 2 3; do wait_for 120 addresses_are n$n 1 2 3; done
is_itself 3 || fail "n3 takes itself for '$(own_address n3)'"
asked() { [ "$(count n3 peer_served_total)" -gt 20 ]; }
wait_for 120 asked

echo "== the name is unknown"
say $name
wait_for 120 list_says n1 "$name"
addresses_are n1 1 2 3 || fail "a failed look-up changed the nodes: $(addresses n1)"
goes_on n1

echo "== it leaves, and its address is gone"
say $name 1 2 3
# n1 keeps nothing of what n2 will own, and n2 has no reads of its own: n1 goes on asking n3 as long as its client reads
"$GRANARY" leave "$W/n3.control" --wait 10s --json >"$W/left" 2>"$W/said" && fail "nobody asks: $(cat "$W/left")"
grep -q 'the other nodes still ask' "$W/said" || fail "$(cat "$W/said")"
[ "$(jq .bytes "$W/left")" -gt 0 ] || fail "nobody took what it has: $(cat "$W/left")"
say $name 1 2
for n in 1 2; do wait_for 120 addresses_are n$n 1 2; done
kill "${NODES[3]}"
wait "${NODES[3]}" || true
goes_on n1
end_reader n1 n2
