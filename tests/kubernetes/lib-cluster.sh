# shellcheck shell=bash
# Sourced by the tests in tests/kubernetes, first: a real cluster of one node, in namespaces of its own, which end with the
# test: etcd, API server, controllers, scheduler, containerd and kubelet. Its network is a device that leads nowhere; pods
# reach servers at 10.99.0.1.
#
#   cluster_start IMAGE...     all of it, with these container images (docker-archives); kubectl is in PATH
#   KUBELET_DIR                kubelet's --root-dir
#   kubelet_start, KUBELET     its process
#   CEPH_DIR, CEPH_ADDRESS     for lib-ceph.sh: `ceph_s3 start` is an S3 server that pods reach; it is stopped at the end
#
# The program comes from tests/kubernetes/kube/build, which takes long: a test does not run it. CLUSTER_NEEDS may name a
# file that fetches something and keeps it: it is sourced before, after tests/lib.sh, while there is a network.
if [ -z "${GRANARY_CLUSTER:-}" ] && unshare -mn true 2>/dev/null; then
    # What it cannot fetch, the test skips by itself.
    [ -z "${CLUSTER_NEEDS:-}" ] || [ ! -x "$("$GRANARY_SOURCE/tests/kubernetes/kube/build" --path)" ] ||
        bash -c '. "$GRANARY_SOURCE/tests/lib.sh" && . "$0"' "$CLUSTER_NEEDS" || true
    GRANARY_CLUSTER=1 exec unshare -mnpf --kill-child --mount-proc --propagation private bash "$0" "$@"
fi
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

[ -n "${GRANARY_CLUSTER:-}" ] || skip "cannot make namespaces here (not root?): no cluster is tested"
KUBE=$("$GRANARY_SOURCE/tests/kubernetes/kube/build" --path)
[ -x "$KUBE" ] || skip "no Kubernetes here: no cluster is tested. tests/kubernetes/kube/build builds it, for minutes: $KUBE"
for program in containerd ctr runc; do
    command -v $program >"$W/null" || skip "no $program here: apt-get install containerd runc containernetworking-plugins"
done
[ -x /bin/busybox ] && [ -x /usr/lib/cni/bridge ] || skip "apt-get install busybox-static containernetworking-plugins"

KUBELET_DIR=$W/kubelet
CEPH_DIR=$W/ceph CEPH_ADDRESS=10.99.0.1
export CONTAINERD_ADDRESS=/run/containerd/containerd.sock CONTAINERD_NAMESPACE=k8s.io
export KUBECONFIG=$W/admin.conf PATH=$W/bin:$PATH

# cluster_config FILE TOKEN: how to reach the API server as the owner of the token
cluster_config() {
    cat >"$1" <<YAML
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}],
 users: [{name: u, user: {token: $2}}]}
YAML
}

# Settings that are not a real node's: cgroups of version 1, no cgroups for classes of pods, no oom_score_adj below the
# shell's, which a container of CI may not set, and images stay on a full disk: there is no registry to pull them from.
cluster_settings() {
    cat >"$W/containerd.toml" <<TOML
version = 2
root = "$W/containerd"
state = "/run/containerd"
[grpc]
address = "$CONTAINERD_ADDRESS"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/local/pause:1"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$W/cni"
TOML
    cat >"$W/cni/10-net.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "net", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
 "ipam": {"type": "host-local", "dataDir": "/run/cni", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}
JSON
    cat >"$W/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://$CONTAINERD_ADDRESS
syncFrequency: 5s
volumeStatsAggPeriod: 10s
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 100Mi}
resolvConf: ""
podLogsDir: $W/podlogs
YAML
}

cluster_network() {
    mount --make-rshared /
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/granary
    ip link set lo up
    ip link add node0 type dummy 2>"$W/null" || ip link add node0 type bridge
    ip addr add 10.99.0.1/24 dev node0
    ip link set node0 up
    ip route add default dev node0
}

kubelet_start() {
    background kubelet --config="$W/kubelet.yaml" --kubeconfig="$W/node.conf" --root-dir="$KUBELET_DIR" \
        --cert-dir="$W/kubelet-pki" --hostname-override=node1 --node-ip=10.99.0.1 -v=2 >>"$W/log/kubelet" 2>&1
    KUBELET=$BACKGROUND_PID
}

node_is_ready() {
    kubectl get node node1 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -x True >"$W/null"
}

# Containers are no children of ours, and hold mounts.
extra_cleanup() {
    local task
    for task in $(ctr tasks ls -q 2>"$W/null"); do ctr tasks kill -s 9 "$task" 2>"$W/null"; done
    grep " $W/" /proc/self/mounts | cut -d' ' -f2 | tac | xargs -rn1 umount -l 2>"$W/null"
    [ ! -d "$CEPH_DIR" ] || ceph_s3 stop
}

cluster_start() {
    local name image
    mkdir -p "$W"/{bin,certs,cni,log,etcd} "$KUBELET_DIR"
    for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do ln -s "$KUBE" "$W/bin/$name"; done
    cluster_network
    cluster_settings
    openssl genrsa -out "$W/certs/sa.key" 2048 2>"$W/null"
    printf '%s\n' 'admin,admin,admin,"system:masters"' 'node,system:node:node1,node1,"system:nodes"' >"$W/tokens"
    cluster_config "$W/admin.conf" admin
    cluster_config "$W/node.conf" node
    background etcd --data-dir "$W/etcd" --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
        --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 >"$W/log/etcd" 2>&1
    background containerd -c "$W/containerd.toml" >"$W/log/containerd" 2>&1
    background kube-apiserver --etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.0.0.0/24 --cert-dir="$W/certs" \
        --bind-address=127.0.0.1 --advertise-address=10.99.0.1 --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$W/certs/sa.key" --service-account-signing-key-file="$W/certs/sa.key" \
        --token-auth-file="$W/tokens" --authorization-mode=Node,RBAC --allow-privileged=true \
        --kubelet-preferred-address-types=InternalIP >"$W/log/apiserver" 2>&1
    wait_for 600 kubectl get --raw /readyz >"$W/null"
    background kube-controller-manager --kubeconfig="$W/admin.conf" --service-account-private-key-file="$W/certs/sa.key" \
        --root-ca-file="$W/certs/apiserver.crt" --leader-elect=false --use-service-account-credentials=false >"$W/log/controllers" 2>&1
    background kube-scheduler --kubeconfig="$W/admin.conf" --leader-elect=false >"$W/log/scheduler" 2>&1
    wait_for 600 ctr version >"$W/null"
    echo 'int pause(void); int main(void) { for (;;) pause(); }' | gcc -O2 -static -x c -o "$W/pause" -
    echo "$W/pause pause" | python3 "$GRANARY_SOURCE/tests/kubernetes/image.py" "$W/pause.tar" docker.io/local/pause:1 /pause
    printf '%s\n' '/bin/busybox bin/busybox' '@busybox bin/sh' |
        python3 "$GRANARY_SOURCE/tests/kubernetes/image.py" "$W/busybox.tar" docker.io/local/busybox:1 /bin/sh
    for image in "$W/pause.tar" "$W/busybox.tar" "$@"; do ctr images import "$image" >"$W/null"; done
    kubelet_start
    wait_for 600 node_is_ready
    wait_for 600 kubectl get serviceaccount default >"$W/null"
}
