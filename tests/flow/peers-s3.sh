#!/bin/bash
# ctest: long
# Three nodes that are each other's cache, over a real S3 server (Ceph) behind a link with delay and a rate, with the
# default --hedge: all read everything at the same moment, and of the bytes of the packs the server sends, by its own log,
# 1.00 to 1.05. A node that is killed while clients read costs no error and no wrong byte.
. "$(dirname "$0")/lib-l2.sh"
LINK_NAME=granary-test-$$ LINK=$GRANARY_SOURCE/bench/link/link.sh
CEPH_DIR=$W/ceph CEPH_ADDRESS=10.77.0.2 CEPH_IN=(ip netns exec "$LINK_NAME-s")
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"
command -v ip >"$W/null" || skip "no ip here (apt-get install iproute2)"
[ -e /dev/net/tun ] && unshare -n true 2>"$W/null" || skip "no /dev/net/tun or network namespaces here, or not root: nodes behind a link are not tested"

extra_cleanup() {
    [ ! -d "$CEPH_DIR" ] || ceph_s3 stop
    "$LINK" down "$LINK_NAME"
}
"$LINK" up "$LINK_NAME" 5 200
make_images 6
ceph_s3 start || fail "Ceph does not start"
use_ceph lake
"${CEPH_IN[@]}" python3 "$SERVERS/s3put.py" tree lake store "$W/store" || fail "cannot fill the bucket"
images=()
for i in $(seq "$IMAGES"); do images+=("image=s3://lake/store/i$i"); done

# What left the server of packs and index nodes, from its log of requests: "GET PATH HTTP/1.1" STATUS BYTES
sent_by_store() {
    sed -nE 's/.* beast: .* "GET \/lake\/store\/(packs|indexes)\/[^"]*" 20[06] ([0-9]+) .*/\2/p' "$CEPH_DIR/log/client.rgw.a.log" |
        awk '{ n += $1 } END { print n + 0 }'
}

openssl rand -hex 32 >"$W/key"
for n in 1 2 3; do echo "http://127.0.0.1:920$n/lake"; done >"$W/members"
node_up() {
    rm -f "$W/n$1.sock" "$W/n$1.control"
    background nsenter --net="/run/netns/$LINK_NAME-c" nbdkit -f -t 64 --unix "$W/n$1.sock" "$PLUGIN" \
        disk-timeout="$DISK_TIMEOUT" "${images[@]}" "l2=$W/members" control="$W/n$1.control" "cache=$W/cache$1:64M" \
        "peer-listen=127.0.0.1:920$1" "peer-key=$W/key" peer-keep=none timeout=60s
    NODE=$BACKGROUND_PID
    wait_for 60 says_its_status "n$1" # its socket is not in this namespace's list
}
for n in 1 2 3; do node_up $n; done

echo "== three nodes at the same moment"
read_at_once n1 n2 n3
sent=$(sent_by_store)
for n in 1 2 3; do
    echo "node $n: $(count n$n l2_requests_total) requests to others, of which $(count n$n l2_failures_total) failed;" \
        "$(count n$n l2_not_here_total) not there, $(count n$n fetch_hedges_total) sent to the store as well"
done
echo "the server sent $sent of $OBJECT_BYTES bytes"
[ "$sent" -ge "$OBJECT_BYTES" ] || fail "the log does not have all that was read"
[ $((sent * 100)) -le $((OBJECT_BYTES * 105)) ] || fail "the store sent more than 1.05 of everything"

echo "== a node is killed, and comes back, while clients read"
start_reader n1
goes_on n1
kill -9 "$NODE"
wait "$NODE" || true
wait_for 120 states_are n1 "down self up"
goes_on n1
read_all n2
node_up 3
wait_for 120 states_are n1 "self up up"
end_reader n1 n2 n3
read_all n3
