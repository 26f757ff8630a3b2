#!/bin/bash
# Nodes that are each other's cache, on machines of their own: each in a network namespace, and the store in another.
# All read everything at the same moment, and the store sends every byte once. A node that joins, one that is killed, one
# whose network is cut, and a store that dies when the nodes have everything, cost no reader an error.
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
says_its_status() { curl -sS --fail --unix-socket "$W/n$1.control" http://granary/status >"$W/null" 2>&1; }
# node_up N: its server, on its machine; its socket and its control socket are everybody's
node_up() {
    rm -f "$W/n$1.sock" "$W/n$1.control"
    background nsenter -t "${MACHINES[n$1]}" -n nbdkit -f -t 64 --unix "$W/n$1.sock" "$PLUGIN" disk-timeout=$DISK_TIMEOUT \
        "${images[@]}" "l2=$W/members" control="$W/n$1.control" "cache=$W/cache$1:64M" peer-listen=0.0.0.0:9465 \
        "peer-key=$W/key" peer-keep=none hedge=0 timeout=60s
    NODES[$1]=$BACKGROUND_PID
    wait_for 60 says_its_status "$1" # its socket is not in this namespace's list
}

echo "== $peers nodes at the same moment"
mapfile -t first < <(seq "$peers")
members "${first[@]}"
readers=()
for n in "${first[@]}"; do
    node_up "$n"
    read_all "n$n" &
    readers+=($!)
done
for reader in "${readers[@]}"; do wait "$reader" || fail "a node did not get its bytes"; done
passed_by=0
for n in "${first[@]}"; do
    passed_by=$((passed_by + $(count "n$n" l2_failures_total) + $(count "n$n" l2_not_here_total)))
    [ "$(count "n$n" fetch_errors_total)" = 0 ] || fail "node $n: $(count "n$n" fetch_errors_total) fetches failed"
    [ "$(of_proxies "n$n" 'map(select(.state == "self")) | length')" = 1 ] || fail "node $n does not know itself: $(of_proxies "n$n" .)"
done
echo "packs and index nodes: $OBJECT_BYTES bytes; the store sent $(sent_by_store); requests that a node did not answer: $passed_by"
# A request that was not answered costs what it was for.
[ "$(sent_by_store)" -le $((OBJECT_BYTES + passed_by * 8388608)) ] || fail "the store sent bytes twice"

echo "== a node joins while two read"
readers=()
for n in 1 2; do
    background read_on n$n
    readers+=("$BACKGROUND_PID")
done
node_up "$joins"
members "${first[@]}" "$joins"
asked() { [ "$(count "$1" peer_served_total)" -gt "$2" ]; }
wait_for 120 asked "n$joins" 20

echo "== a node is killed"
kill -9 "${NODES[3]}"
wait "${NODES[3]}" || true
state_of() { [ "$(of_proxies "$1" "map(select(.url | contains(\"$2:\"))) | .[0].state")" = "$3" ]; }
for n in 1 2; do wait_for 120 state_of n$n 10.77.0.13 down; done

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
