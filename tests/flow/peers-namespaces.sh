#!/bin/bash
# Nodes that are each other's cache, on machines of their own: each in a network namespace, and the store in another.
# All read everything at the same moment, and the store sends every byte once. A node that joins, one that is killed, one
# whose network is cut, two that reach the store but not each other, and a store that dies when the nodes have
# everything, cost no reader an error. When a node joins or is killed, the store sends again what that node owns.
# Three nodes, or as many as PEERS says.
# ctest: long
if [ -z "${PEERS_INSIDE:-}" ] && unshare -n true 2>/dev/null; then PEERS_INSIDE=1 exec unshare -n "$0"; fi
. "$(dirname "$0")/lib-l2.sh"
command -v ip >"$W/null" || skip "no ip here (apt-get install iproute2)"
[ -n "${PEERS_INSIDE:-}" ] || skip "no network namespaces here, or not root: nodes on machines of their own are not tested"

peers=${PEERS:-3}
joins=$((peers + 1))
make_images 8
ip link set lo up
ip link add lan type bridge 2>"$W/err" || skip "cannot make a bridge here ($(cat "$W/err")): nodes on machines of their own are not tested"
ip addr add 10.77.0.100/24 dev lan
ip link set lan up

# machine NAME N: a network namespace with the address 10.77.0.N
declare -A MACHINES NODES
machine() {
    background unshare -n sleep infinity
    MACHINES[$1]=$BACKGROUND_PID
    wait_for 60 another_network "$BACKGROUND_PID"
    ip link add "to-$1" type veth peer name eth0 netns "$BACKGROUND_PID"
    ip link set "to-$1" master lan up
    nsenter -t "$BACKGROUND_PID" -n ip addr add "10.77.0.$2/24" dev eth0
    nsenter -t "$BACKGROUND_PID" -n ip link set eth0 up
    nsenter -t "$BACKGROUND_PID" -n ip link set lo up
}
another_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
machine store 1
for n in $(seq "$joins"); do machine "n$n" "1$n"; done
store_config 10.77.0.1:80
background nsenter -t "${MACHINES[store]}" -n nginx -c "$W/store.conf" -g 'daemon off;'
STORE=$BACKGROUND_PID
wait_for 60 bash -c "(exec 3<>/dev/tcp/10.77.0.1/80) 2>/dev/null"

images=()
for i in $(seq "$IMAGES"); do images+=("image=http://10.77.0.1/lake/i$i"); done
openssl rand -hex 32 >"$W/key"
# members N...: the list, replaced as a ConfigMap is
members() {
    local n
    for n in "$@"; do echo "http://10.77.0.1$n:9465/lake"; done >"$W/members.new"
    mv "$W/members.new" "$W/members"
}
# node_up N: its server, on its machine; its socket and its control socket are everybody's
node_up() {
    rm -f "$W/n$1.sock" "$W/n$1.control"
    background nsenter -t "${MACHINES[n$1]}" -n nbdkit -f -t 64 --unix "$W/n$1.sock" "$PLUGIN" disk-timeout=$DISK_TIMEOUT \
        "${images[@]}" "l2=$W/members" control="$W/n$1.control" "cache=$W/cache$1:64M" peer-listen=0.0.0.0:9465 \
        "peer-key=$W/key" peer-keep=none hedge=0 timeout=60s
    NODES[$1]=$BACKGROUND_PID
    wait_for 60 says_its_status "n$1" # its socket is not in this namespace's list
}

echo "== $peers nodes at the same moment"
mapfile -t first < <(seq "$peers")
members "${first[@]}"
for n in "${first[@]}"; do node_up "$n"; done # all first: what is asked of one that does not listen, the store sends
read_at_once "${first[@]/#/n}"
for n in "${first[@]}"; do
    [ "$(count "n$n" fetch_errors_total)" = 0 ] || fail "node $n: $(count "n$n" fetch_errors_total) fetches failed"
    [ "$(of_proxies "n$n" 'map(select(.state == "self")) | length')" = 1 ] || fail "node $n does not know itself: $(of_proxies "n$n" .)"
done
sent_once "${first[@]/#/n}"

# share_of N NODE...: bytes of the stripes that node N owns among these, by docs/reference/peer-protocol.md. An N-th on
# average; there are only some fifty stripes here.
share_of() {
    (cd "$W/store" && find packs indexes -type f -printf '%P %s %H\n') | python3 -c '
import sys
MASK = 2**64 - 1
def fnv(text, state=0xcbf29ce484222325):
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001b3 & MASK
    return state
def score(node, stripe):
    state = fnv(stripe, fnv(f"http://10.77.0.1{node}:9465/lake") * 0x9e3779b97f4a7c15 & MASK)
    for factor in 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1:
        state = (state ^ state >> 33) * factor & MASK
    return state
share = 0
for path, size, top in map(str.split, sys.stdin):
    for at in range(0, int(size), 4194304):
        stripe = f"{top}/{path}" + (f"/{at // 4194304}" if at else "")
        if max(sys.argv[2:], key=lambda node: score(node, stripe)) == sys.argv[1]:
            share += min(4194304, int(size) - at)
print(share)' "$@"
}

# sent_again WHAT N: since $before, when node N joined or was killed, the store has sent no more than N's share again. Who
# asks a node that is killed asks the store instead until it knows, and now and then to see whether it is back: a tenth.
sent_again() {
    local sent share
    for n in 1 2; do read_all n$n; done # the readers may not have come to all of it yet
    sent=$(($(sent_by_store) - before)) share=$(share_of "$2" $(seq "$joins"))
    echo "$1: the store sent $sent bytes again; the share is $share, 1/$joins of everything is $((OBJECT_BYTES / joins))"
    [ "$sent" -le $((share + OBJECT_BYTES / 10)) ] || fail "$1: the store sent more than that node's share again"
}

echo "== a node joins while two read"
readers=()
for n in 1 2; do
    background read_on n$n
    readers+=("$BACKGROUND_PID")
done
before=$(sent_by_store)
node_up "$joins"
members "${first[@]}" "$joins"
asked() { [ "$(count "$1" peer_served_total)" -gt "$2" ]; }
wait_for 120 asked "n$joins" 20
sent_again joined "$joins"

echo "== a node is killed"
before=$(sent_by_store)
kill -9 "${NODES[3]}"
wait "${NODES[3]}" || true
state_of() { [ "$(of_proxies "$1" "map(select(.url | contains(\"$2:\"))) | .[0].state")" = "$3" ]; }
for n in 1 2; do wait_for 120 state_of n$n 10.77.0.13 down; done
sent_again killed 3

echo "== another one's network is cut: nobody refuses, nothing answers"
ip link set "to-n$joins" down
for n in 1 2; do wait_for 180 state_of n$n "10.77.0.1$joins" down; done
for reader in "${readers[@]}"; do kill -0 "$reader" 2>/dev/null || fail "a reader gave up"; done

echo "== both are back"
ip link set "to-n$joins" up
node_up 3
for n in 1 2; do
    wait_for 300 state_of n$n 10.77.0.13 up
    wait_for 300 state_of n$n "10.77.0.1$joins" up
done

echo "== the two that read are cut off from each other, and reach all others and the store"
for n in 1 2; do ip link set "to-n$n" type bridge_slave isolated on; done
wait_for 300 state_of n1 10.77.0.12 down
wait_for 300 state_of n2 10.77.0.11 down
for n in 1 2; do
    state_of n$n 10.77.0.13 up || fail "n$n reaches n3 and does not ask it: $(of_proxies n$n .)"
    read_all n$n
done
for n in 1 2; do ip link set "to-n$n" type bridge_slave isolated off; done
wait_for 300 state_of n1 10.77.0.12 up
wait_for 300 state_of n2 10.77.0.11 up

touch "$W/enough"
for reader in "${readers[@]}"; do wait "$reader" || fail "a client saw an error or a wrong byte"; done
no_errors() {
    local n
    for n in $(seq "$joins"); do
        [ "$(count "n$n" fetch_errors_total)" = 0 ] || fail "node $n: $(count "n$n" fetch_errors_total) fetches failed"
    done
}
no_errors

echo "== the store is dead, and the nodes have everything"
mapfile -t nodes < <(seq -f n%g "$joins")
read_until_kept "${nodes[@]}"
kill_nginx "$STORE"
for n in $(seq "$joins"); do read_all "n$n"; done
no_errors
