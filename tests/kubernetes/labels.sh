#!/bin/bash
# The labels of nodes, and where the scheduler puts pods by them: the chart labels the real node, and a process another one,
# by a token of the chart's service account; what the policy refuses such a token; the affinity that pods of a claim are
# given; what was measured of a disk; nothing is left. Three nodes have no kubelet: a loop says that they are ready, and pods
# there never start. kwok would say the same, and that these pods run, which the scheduler does not look at; Go would build
# it for minutes.
# ctest: long lock=cluster
CLUSTER_NEEDS=${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-helm.sh
. "$GRANARY_SOURCE/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"

CSI=$GRANARY_BUILD/csi/granary-csi
LABELS=$GRANARY_BUILD/labels/granary-node-labels
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"

# granary_image OUT: what is installed, a shell, and the libraries of both
granary_image() {
    local applet programs=("$GRANARY" "$CSI" "$LABELS" "$NBD" "$GRANARY_BUILD/fuse/granary-fuse" /bin/bash)
    {
        ldd "${programs[@]}" | grep -o '/lib[^ ]*' | sort -u | sed 's|^/\(.*\)|& \1|'
        printf '%s\n' "$GRANARY usr/bin/granary" "$CSI usr/sbin/granary-csi" "$LABELS usr/sbin/granary-node-labels" \
            "$NBD usr/libexec/granary/granary-nbd" "$GRANARY_BUILD/fuse/granary-fuse usr/libexec/granary/granary-fuse" \
            '/bin/bash bin/bash' '/bin/busybox bin/busybox'
        for applet in sh mkdir setsid sleep test umount; do echo "@busybox bin/$applet"; done
    } | python3 "$GRANARY_SOURCE/tests/kubernetes/image.py" "$1" docker.io/local/granary:1 granary
}

# A pod's way to the API server, which kube-proxy would make: from the service's address to where it listens here.
service_network() {
    sed -i 's|"ipam": {|&"routes": [{"dst": "10.0.0.0/24"}], |' "$W/cni/10-net.conflist"
    ip addr add 10.0.0.1/32 dev lo
    cat >"$W/forward.py" <<'PY'
import asyncio
async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
async def client(reader, writer):
    r, w = await asyncio.open_connection("127.0.0.1", 6443)
    await asyncio.gather(pump(reader, w), pump(r, writer), return_exceptions=True)
async def main():
    await (await asyncio.start_server(client, "10.0.0.1", 443)).serve_forever()
asyncio.run(main())
PY
    background python3 "$W/forward.py" 2>"$W/log/forward"
}

others="other-0 other-1 other-2"
ready() { # their status, as of now
    local now n
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    for n in $others; do
        kubectl patch node "$n" --subresource=status --type=merge -p "{\"status\": {
            \"capacity\": {\"cpu\": \"32\", \"memory\": \"64Gi\", \"pods\": \"110\"}, \"allocatable\": {\"cpu\": \"32\", \"memory\": \"64Gi\", \"pods\": \"110\"},
            \"conditions\": [{\"type\": \"Ready\", \"status\": \"True\", \"reason\": \"Test\", \"message\": \"\", \"lastHeartbeatTime\": \"$now\", \"lastTransitionTime\": \"$now\"}]}}"
    done
}
stay_ready() { while ready; do sleep 10; done; }
other_nodes() {
    local n
    for n in $others; do
        kubectl apply -f - >"$W/null" <<YAML
apiVersion: v1
kind: Node
metadata: {name: $n, labels: {kubernetes.io/hostname: $n, kubernetes.io/os: linux, kind: other}}
YAML
    done
    background stay_ready >"$W/log/others" 2>&1
    kubectl wait --for=condition=Ready --timeout=120s node -l kind=other >"$W/null" || fail "$(tail -5 "$W/log/others")"
}

label_is() { # label_is NODE NAME VALUE: below granary.io/; "": there is none
    [ "$(kubectl get node "$1" -o json | jq -r --arg k "granary.io/$2" '.metadata.labels[$k] // ""')" = "$3" ]
}
helm() { "$HELM" --namespace granary "$@" >"$W/helm.out" 2>&1 || fail "helm $1: $(cat "$W/helm.out")"; }
part() { kubectl -n granary get pods -l "app.kubernetes.io/component=$1" "${@:2}"; }

# pods NAME COUNT IMAGE [CLAIM [KIND]]: that prefer the image, by the affinity of the example; or with the claim and none,
# on nodes of that kind
pods() {
    local i volume=""
    [ -z "${4:-}" ] || volume="volumes: [{name: v, persistentVolumeClaim: {claimName: $4, readOnly: true}}]"
    for ((i = 0; i < $2; i++)); do
        sed '/^---$/,$d; /^  containers:/,$d' "$GRANARY_SOURCE/deploy/kubernetes/cached-pod.yaml" >"$W/example.yaml"
        [ -z "$volume" ] || printf 'apiVersion: v1\nkind: Pod\nmetadata:\n  name: reader\nspec:\n' >"$W/example.yaml"
        {
            sed "s/name: reader/name: $1-$i/; s/cached\.faces/cached.$3/" "$W/example.yaml"
            echo "  terminationGracePeriodSeconds: 0"
            echo "  automountServiceAccountToken: false"
            echo "  containers: [{name: c, image: \"docker.io/local/busybox:1\", imagePullPolicy: Never, command: [/bin/sh, -c, 'sleep 3600']}]"
            [ -z "$volume" ] || echo "  $volume"
            [ -z "${5:-}" ] || echo "  nodeSelector: {kind: $5}"
            echo "---"
        }
    done | kubectl apply -f - >"$W/null"
}
# where NAME: the nodes of pods NAME-N, with counts, when all have one
where() {
    wait_for 60 eval "! kubectl get pods -o json | jq -e '.items[] | select((.metadata.name | startswith(\"$1-\")) and (.spec.nodeName | not))' >$W/null"
    kubectl get pods -o json | jq -r --arg n "$1-" '.items[] | select(.metadata.name | startswith($n)).spec.nodeName' | sort | uniq -c | awk '{ printf "%s%s=%s", sep, $2, $1; sep = " " }'
}

lake=/run/granary/lake
mkdir -p "$W/cache" "$W/log"
cat >"$W/values.yaml" <<YAML
image: {repository: docker.io/local/granary, tag: "1", pullPolicy: Never}
kubeletDir: $KUBELET_DIR
cache: {hostPath: $W/cache, size: 200M}
server: {fuse: true, nodeSelector: {kubernetes.io/hostname: node1}}
driver: {priorityClassName: "", nodeSelector: {kubernetes.io/hostname: node1}}
labels: {enabled: true, interval: 1s, maxImages: 2}
datasets:
  faces: {image: /run/granary/lake/store/faces, namespaces: [default], preferCached: true}
  songs: {image: /run/granary/lake/store/songs, namespaces: [default], preferCached: true}
YAML

granary_image "$W/granary.tar"
cluster_start "$W/granary.tar"
service_network
other_nodes
mkdir -p $lake/tree
for i in $(seq 20); do head -c 500000 /dev/urandom >"$lake/tree/$i"; done
"$GRANARY" build -q "$lake/tree" "$lake/store/faces:current" >"$W/built"
head -c 5000000 /dev/urandom >"$lake/tree/voice"
"$GRANARY" build -q "$lake/tree" "$lake/store/voices:v1" >"$W/built"
chmod -R a+rX $lake

echo "== the chart labels its node"
kubectl create namespace granary >"$W/null"
helm install granary "$CHART" -f "$W/values.yaml"
wait_for 120 label_is node1 health healthy || fail "$(part labels -o name | xargs -rn1 kubectl -n granary logs)"
label_is node1 cached.faces "" || fail "nothing was read yet"

echo "== a pod reads, and the label is there"
kubectl apply -f - >"$W/null" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  nodeSelector: {kubernetes.io/hostname: node1}
  containers:
  - {name: c, image: "docker.io/local/busybox:1", imagePullPolicy: Never, command: [/bin/sh, -c, 'cat /data/* >/dev/null'], volumeMounts: [{name: v, mountPath: /data, readOnly: true}]}
  volumes: [{name: v, persistentVolumeClaim: {claimName: faces, readOnly: true}}]
YAML
wait_for 120 eval '[ "$(kubectl get pod first -o jsonpath={.status.phase})" = Succeeded ]'
began=$(date +%s.%N)
wait_for 60 label_is node1 cached.faces 100
echo "from the end of the reading to the label: $(awk "BEGIN { print $(date +%s.%N) - $began }") s"

echo "== the image is unmounted: its data stays, and so does the label"
kubectl delete pod first --wait=false >"$W/null"
wait_for 60 eval "! grep -q globalmount /proc/self/mountinfo"
sleep 3
label_is node1 cached.faces 100 || fail "$(kubectl get node node1 --show-labels)"

echo "== pods of the claim are given the affinity, and go there"
pods claim 6 faces faces
[ "$(where claim)" = node1=6 ] || fail "pods with the claim are on $(where claim)"
kubectl get pod claim-0 -o json | jq -e '.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution | length == 6' >"$W/null" || fail "$(kubectl get pod claim-0 -o yaml)"

echo "== another node, by its own token: voices are on other-1, until they are evicted"
node_token() { kubectl -n granary create token granary-labels "${@:2}" >"$1"; }
mkdir "$W/pod"
kubectl -n granary get configmap kube-root-ca.crt -o jsonpath='{.data.ca\.crt}' >"$W/pod/ca.crt"
node_token "$W/pod/token" --bound-object-kind Node --bound-object-name other-1
background "$GRANARY" serve "$lake/store/voices:v1" --socket "$W/voices.sock" --cache "$W/voices:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/log/voices" 2>&1
wait_for 60 listens "$W/voices.sock.control"
background env KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443 "$LABELS" --node other-1 --credentials "$W/pod" --interval 1s --max-images 2 "$W/voices.sock" >"$W/log/labels-1" 2>&1
"$GRANARY" warm --all "$W/voices.sock" >"$W/log/warm" 2>&1
wait_for 60 label_is other-1 cached.voices 100 || fail "$(cat "$W/log/labels-1")"
pods voices 10 voices
[ "$(where voices)" = other-1=10 ] || fail "pods that prefer voices are on $(where voices)"
"$GRANARY" cache evict -q --all --control "$W/voices.sock" >"$W/log/evict" 2>&1
began=$(date +%s.%N)
wait_for 60 label_is other-1 cached.voices ""
echo "from the eviction to the label's end: $(awk "BEGIN { print $(date +%s.%N) - $began }") s"
pods later 10 voices
[ "$(where later)" != other-1=10 ] || fail "pods go on to come to other-1"

echo "== a node whose server fails, and one whose disk is slow, are avoided"
kubectl label node other-2 granary.io/health=failing >"$W/null"
kubectl label node other-0 granary.io/disk-mib-per-s=32 >"$W/null"
pods avoid 10 none
[[ $(where avoid) != *other-[02]* ]] || fail "pods are on $(where avoid)"
kubectl label node other-2 granary.io/health- >"$W/null"
kubectl label node other-0 granary.io/disk-mib-per-s- >"$W/null"

echo "== so are they by pods of a claim whose image is cached nowhere; and a full one"
kubectl label node -l kind=other csi.granary.io/driver=yes >"$W/null" # as if it ran there
label_is other-1 cache-free-gib 0 || fail "a cache of 64 MiB has room for a GiB: the test proves nothing"
for bad in granary.io/disk-mib-per-s=32 granary.io/link-mib-per-s=8 granary.io/health=failing; do
    name=${bad#*/} name=${name%%[-=]*}
    kubectl label node other-0 "$bad" >"$W/null"
    pods "songs-$name" 6 songs songs other
    [ "$(where "songs-$name")" = other-2=6 ] || fail "$bad: pods are on $(where "songs-$name")"
    kubectl label node other-0 "${bad%=*}-" >"$W/null"
done
kubectl label node -l kind=other csi.granary.io/driver- >"$W/null"

echo "== what the policy allows such a token, and what not"
node_token "$W/token" --bound-object-kind Node --bound-object-name other-0
cluster_config "$W/bound.conf" "$(cat "$W/token")"
node_token "$W/token"
cluster_config "$W/unbound.conf" "$(cat "$W/token")"
change() { KUBECONFIG=$W/$1.conf kubectl patch node "$2" --type merge -p "$3" >"$W/said" 2>&1; }
labels() { echo "{\"metadata\":{\"labels\":{$1}}}"; }
denied() { # denied SENTENCE CONFIG NODE PATCH
    ! change "${@:2}" || fail "allowed: $*"
    grep -q -- "$1" "$W/said" || fail "$*: $(cat "$W/said")"
}
change bound other-0 "$(labels '"granary.io/a":"1"')" || fail "$(cat "$W/said")"
change bound other-0 "$(labels '"granary.io/a":null')" || fail "$(cat "$W/said")"
denied "only the node that its pod is on" bound other-1 "$(labels '"granary.io/a":"1"')"
denied "only the node that its pod is on" bound node1 "$(labels '"granary.io/cached.faces":null')"
denied "only the node that its pod is on" unbound other-0 "$(labels '"granary.io/a":"1"')"
denied "only labels that begin with granary.io/" bound other-0 "$(labels '"node-role.kubernetes.io/gpu":""')"
denied "only labels that begin with granary.io/" bound other-0 "$(labels '"kubernetes.io/os":null')"
denied "only labels that begin with granary.io/" bound other-0 "$(labels '"csi.granary.io/driver":"yes"')"
denied "nothing of a node but labels" bound other-0 '{"spec":{"unschedulable":true}}'
denied "nothing of a node but labels" bound other-0 '{"metadata":{"annotations":{"a":"b"}}}'
denied "too many labels" bound other-0 "$(labels "$(seq 9 | sed 's|.*|"granary.io/&":"1"|' | paste -sd,)")"
! KUBECONFIG=$W/bound.conf kubectl get pods >"$W/said" 2>&1 && ! KUBECONFIG=$W/bound.conf kubectl delete node other-0 >"$W/said" 2>&1 || fail "the token may do more"

echo "== the cache's disk is measured when the pod starts, and the label says so"
helm upgrade granary "$CHART" -f "$W/values.yaml" --set-json 'labels.bench=["/var/cache/granary"]'
measured() { [[ $(kubectl get node node1 -o json | jq -r '.metadata.labels["granary.io/disk-mib-per-s"]') = [1-9]* ]]; }
wait_for 300 measured || fail "no label: $(part labels -o name | xargs -rn1 kubectl -n granary logs --all-containers)"
label_is node1 link-mib-per-s "" || fail "a link that nobody measured has a label"

echo "== labels go with their pod, as the page says"
kubectl -n granary delete daemonset granary-labels --cascade=foreground --timeout=120s >"$W/null"
kubectl get node node1 -o json | jq -e '[.metadata.labels | keys[] | select(startswith("granary.io/"))] == []' >"$W/null" || fail "labels are left: $(kubectl get node node1 --show-labels)"

echo "== nothing is left"
kubectl delete pods --all --force --grace-period=0 >"$W/null" 2>&1
wait_for 120 eval "! grep -q globalmount /proc/self/mountinfo"
helm uninstall granary --wait
wait_for 120 eval "[ -z \"\$(kubectl -n granary get pods -o name)\" ]"
[ -z "$(kubectl get clusterroles,validatingadmissionpolicies,mutatingadmissionpolicies -o name | grep granary)" ] || fail "objects are left"
