#!/bin/bash
# Shared cache proxies on machines of their own: the store and two nginx proxies, each in a network namespace, and three
# servers that read everything at the same moment. Each proxy holds its half, the store sends every byte once; a proxy
# that is killed, and one whose network is cut, cost no error.
# ctest: long
if [ -z "${L2_INSIDE:-}" ] && unshare -n true 2>/dev/null; then L2_INSIDE=1 exec unshare -n "$0"; fi
. "$(dirname "$0")/lib-l2.sh"
command -v ip >"$W/null" || skip "no ip here (apt-get install iproute2)"
[ -n "${L2_INSIDE:-}" ] || skip "no network namespaces here, or not root: proxies on machines of their own are not tested"

make_images 8
ip link set lo up
ip link add lan type bridge 2>"$W/err" || skip "cannot make a bridge here ($(cat "$W/err")): proxies on machines of their own are not tested"
ip addr add 10.77.0.100/24 dev lan
ip link set lan up

# machine NAME N: a network namespace with the address 10.77.0.N; in NAME COMMAND...: replaces the shell by it there
declare -A MACHINES
machine() {
    background unshare -n sleep infinity
    MACHINES[$1]=$BACKGROUND_PID
    wait_for 60 another_network "$BACKGROUND_PID"
    ip link add "to-$1" type veth peer name eth0 netns "$BACKGROUND_PID"
    ip link set "to-$1" master lan up
    nsenter -t "$BACKGROUND_PID" -n ip addr add "10.77.0.$2/24" dev eth0
    nsenter -t "$BACKGROUND_PID" -n ip link set eth0 up
}
another_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
start_nginx() { # start_nginx NAME HOST PORT
    background nsenter -t "${MACHINES[$1]}" -n nginx -c "$W/$1.conf" -g 'daemon off;'
    wait_for 60 bash -c "(exec 3<>/dev/tcp/$2/$3) 2>/dev/null"
}
machine store 1
machine proxy1 2
machine proxy2 3
store_config 10.77.0.1:80
proxy_config proxy1 10.77.0.1:80 10.77.0.2:8080
proxy_config proxy2 10.77.0.1:80 10.77.0.3:8080
start_nginx store 10.77.0.1 80
start_nginx proxy1 10.77.0.2 8080
PROXY1_PID=$BACKGROUND_PID
start_nginx proxy2 10.77.0.3 8080

images=()
for i in $(seq "$IMAGES"); do images+=("image=http://10.77.0.1/lake/i$i"); done
# shellcheck disable=SC2034
proxies=(l2=http://10.77.0.2:8080/lake l2=http://10.77.0.3:8080/lake)

echo "== three nodes at the same moment"
for node in a b c; do serve $node cache="$W/cache-$node:300M"; done
read_at_once a b c
passed_by=0
for node in a b c; do
    passed_by=$((passed_by + $(of_proxies $node '[.[].failures] | add') + $(count $node fetch_hedges_total)))
    [ "$(count $node fetch_errors_total)" = 0 ] || fail "node $node: $(count $node fetch_errors_total) fetches failed"
done
echo "packs and index nodes: $OBJECT_BYTES bytes; the store sent $(sent_by_store); requests that did not wait for a proxy: $passed_by"
# A proxy that was too slow for a busy machine was passed by, and the store asked besides: for a get's 4 MiB, which the
# proxy may have in the making.
[ "$(sent_by_store)" -le $((OBJECT_BYTES + passed_by * 8388608)) ] || fail "the store sent bytes twice"
held_by() { find "$W/kept-$1" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }'; }
for proxy in proxy1 proxy2; do
    percent=$(($(held_by $proxy) * 100 / OBJECT_BYTES))
    echo "$proxy holds $percent % of them"
    [ $passed_by != 0 ] || { [ "$percent" -ge 30 ] && [ "$percent" -le 70 ]; } || fail "that is not about half"
done

echo "== a proxy is killed while all three read"
readers=()
for node in d e f; do
    serve $node # without a cache: every read is fetched
    background read_on $node
    readers+=("$BACKGROUND_PID")
done
asked_some() { [ "$(of_proxies "$1" ".[$2].bytes")" -gt 1000000 ]; }
for node in d e f; do wait_for 120 asked_some $node 0; done
kill_nginx "$PROXY1_PID"
for node in d e f; do wait_for 120 state_is $node 0 down; done

echo "== the other one's network is cut: nobody refuses, nothing answers"
for node in d e f; do wait_for 120 asked_some $node 1; done
ip link set to-proxy2 down
for node in d e f; do wait_for 180 state_is $node 1 down; done
for reader in "${readers[@]}"; do kill -0 "$reader" 2>/dev/null || fail "a reader gave up"; done

echo "== both are back"
ip link set to-proxy2 up
start_nginx proxy1 10.77.0.2 8080
for node in d e f; do
    wait_for 300 state_is $node 0 up
    wait_for 300 state_is $node 1 up
done
touch "$W/enough"
for reader in "${readers[@]}"; do wait "$reader" || fail "a client saw an error or a wrong byte"; done
for node in d e f; do [ "$(count $node fetch_errors_total)" = 0 ] || fail "node $node: $(count $node fetch_errors_total) fetches failed"; done
