#!/bin/bash
# granary-csi under a real kubelet: a pod reads a volume's image, or an inline one's, and goes on while the driver, the
# FUSE server of its mount and kubelet are killed and come back; a wrong option is an event of its pod. Volumes have S3
# keys of their own, from Secrets, which are replaced under readers; the store is a real S3 server. A claim of a
# StorageClass is given the volume that the driver answers with. The driver is a process here; kubernetes/helm has it in
# a pod.
# ctest: long lock=cluster
CLUSTER_NEEDS=${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-helm.sh
. "$GRANARY_SOURCE/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"
/usr/bin/python3 -c "import grpc" 2>"$W/null" || skip "no gRPC for Python: apt-get install python3-grpcio"
export PATH=$GRANARY_BUILD/cli:$PATH GRANARY_CACHE=$W/cache:64M
socket=$KUBELET_DIR/plugins_registry/csi.granary.io-reg.sock

start_driver() {
    background "$CSI" --kubelet-dir "$KUBELET_DIR" --node-id node1 --inline-stores "$W/store" --inline-stores s3://lake-alice 2>>"$W/log/driver"
    DRIVER=$BACKGROUND_PID
    wait_for 60 listens "$socket"
}
registered() { kubectl get csinode node1 -o jsonpath='{.spec.drivers[*].name}' | grep -x csi.granary.io >"$W/null"; }

# volume NAME IMAGE [ATTRIBUTE]: with a claim of its name. volume_with_keys: with those of the Secret NAME-s3
volume() { csi_volume "$@" | kubectl apply -f - >"$W/null"; }
volume_with_keys() { csi_volume "$@" | sed 's/# \(node.*SecretRef: \)/\1/' | kubectl apply -f - >"$W/null"; }
csi_volume() {
    sed -e '/^kind: Pod$/,$d' -e "s|faces-v1|$1|g; s|name: faces\\b|name: $1|; s|s3://lake/images/faces:v1|$2|; s|noexec: .*|${3:-noexec: \"true\"}|" \
        "$GRANARY_SOURCE/deploy/kubernetes/csi-volume.yaml" | sed '$d' | sed '$d'
}

# pod NAME CLAIM COMMAND [SECRET]; for an inline volume, IMAGE stands in place of CLAIM
pod() {
    local source="persistentVolumeClaim: {claimName: $2, readOnly: true}"
    [[ $2 != */* ]] || source="csi: {driver: csi.granary.io, ${4:+nodePublishSecretRef: {name: $4\}, }volumeAttributes: {image: \"$2\"}}"
    kubectl apply -f - >"$W/null" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  containers:
  - {name: c, image: "docker.io/local/busybox:1", imagePullPolicy: Never, command: [/bin/sh, -c, '$3'], volumeMounts: [{name: v, mountPath: /data, readOnly: true}]}
  volumes: [{name: v, $source}]
YAML
}
phase_is() { [ "$(kubectl get pod "$1" -o jsonpath='{.status.phase}')" = "$2" ]; }
is_gone() { ! kubectl get "$@" >"$W/null" 2>&1; }
# told POD TEXT: one of its events has that text
told() { kubectl get events --field-selector involvedObject.name="$1" -o jsonpath='{.items[*].message}' | grep -F -- "$2" >"$W/null"; }

# secret NAME USER NUMBER: the user's keys, as they are or in place of others
secret() {
    kubectl create secret generic "$1" --dry-run=client -o yaml --from-literal=AWS_ACCESS_KEY_ID="$2$3" \
        --from-literal=AWS_SECRET_ACCESS_KEY="${PAD}hidden$2$3" | kubectl apply -f - >"$W/null"
}
# with USER COMMAND...: the command with the user's first keys in its environment
with() { AWS_ACCESS_KEY_ID=${1}1 AWS_SECRET_ACCESS_KEY=${PAD}hidden${1}1 "${@:2}"; }
# server_has SECRET: a server of mounts has it in its memory
server_has() {
    local pid
    for pid in $(pgrep -x granary-fuse); do
        [ -z "$(python3 "$GRANARY_SOURCE/tests/tools/memory.py" "$pid" "$1")" ] || return 0
    done
    return 1
}

# reads_on POD: it reads more, and never failed
reads_on() {
    local before
    before=$(kubectl logs "$1" | wc -l)
    wait_for 60 eval "[ \$(kubectl logs $1 | wc -l) -gt $((before + 5)) ]"
    ! kubectl logs "$1" | grep ERROR || fail "$1 could not read"
}

sums='cd /data && find . -type f | sort | xargs sha256sum | sha256sum'
endless='i=0; while true; do cat /data/d/* >/dev/null && cat /data/hello >/dev/null || echo ERROR; i=$((i+1)); echo $i; sleep 0.1; done'
mkdir -p "$W/tree/d" "$W/log"
for i in $(seq 300); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
want=$(cd "$W/tree" && find . -type f | sort | xargs sha256sum | sha256sum)

cluster_start
echo "== a real S3 server, whose users exclude each other; the node has the keys of none"
ceph_s3 start || fail "Ceph does not start"
eval "$(ceph_s3 env)"
unset http_proxy https_proxy AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
export AWS_SHARED_CREDENTIALS_FILE=$W/none AWS_CONFIG_FILE=$W/none AWS_EC2_METADATA_DISABLED=true
PAD=$(printf 'p%.0s' {1..40}) # before each secret: the first bytes of freed memory are soon others
for user in alice bob; do
    ceph_s3 admin user create --uid $user --display-name $user --access-key ${user}1 --secret-key "${PAD}hidden${user}1" >"$W/out"
    ACCESS=${user}1 SECRET=${PAD}hidden${user}1 ceph_s3 bucket lake-$user
    with $user "$GRANARY" build -q "$W/tree" s3://lake-$user/faces >"$W/built"
    secret $user-s3 $user 1
done

echo "== the driver registers itself"
start_driver
"$HELM" template granary "$CHART" --kube-version 1.37.2 --show-only templates/csidriver.yaml | kubectl apply -f - >"$W/null"
wait_for 60 registered
wait_for 60 eval 'kubectl get node -l csi.granary.io/driver=yes --no-headers | grep node1 >"$W/null"'

echo "== a pod reads"
began=$(date +%s.%N)
volume faces "$W/store/faces"
pod first faces "cat /data/hello; $sums; touch /data/new 2>/dev/null || echo read-only"
wait_for 120 phase_is first Succeeded
kubectl logs first >"$W/said"
printf '%s\n' hello "$want" read-only | diff - "$W/said" || fail "wrong byte, or the volume is writable"
first_byte=$(date -d "$(kubectl logs --timestamps first | sed -n "1s/ .*//p")" +%s.%N)
echo "from kubectl apply to the first byte: $(awk "BEGIN { print $first_byte - $began }") s; granary-csi: $(awk '/VmRSS/ { print $2, $3 }' "/proc/$DRIVER/status")"

echo "== the driver is killed under readers"
pod a faces "$endless"
pod b faces "$endless"
wait_for 60 phase_is a Running
wait_for 60 phase_is b Running
[ "$(grep -c " $KUBELET_DIR/plugins/.* erofs " /proc/self/mountinfo)" = 1 ] || fail "not one mount for all pods"
kill -9 "$DRIVER"
wait_for 60 gone "$DRIVER"
reads_on a
kubectl delete pod b --wait=false >"$W/null"
sleep 3
! is_gone pod b || fail "b is gone, though nobody could unmount its volume"
start_driver
wait_for 120 is_gone pod b
reads_on a

echo "== the server's front end is killed"
kill -9 "$(pgrep -o -f granary-fuse)"
reads_on a

echo "== kubelet is killed"
kill -9 "$KUBELET"
wait_for 60 gone "$KUBELET"
kubelet_start
wait_for 60 kubectl logs a >"$W/null"
reads_on a
phase_is a Running || fail "a is not running"

echo "== a wrong option is told by the pod's events"
volume wrong "$W/store/faces" 'fence: often'
pod wrong wrong "$sums"
wait_for 60 told wrong fence
told wrong 'code = InvalidArgument' || fail "no InvalidArgument"

echo "== inline volumes"
pod inline "$W/store/faces" "$sums"
wait_for 120 phase_is inline Succeeded
kubectl logs inline | diff - <(echo "$want") || fail "wrong byte in an inline volume"
pod elsewhere "$W/elsewhere/faces" "$sums"
wait_for 60 told elsewhere 'code = PermissionDenied'
pod b "$W/store/faces" "$endless"
wait_for 60 phase_is b Running
kill -9 "$DRIVER"
wait_for 60 gone "$DRIVER"
start_driver
reads_on b
kubectl delete pod inline b >"$W/null"

echo "== volumes with keys of their own: each opens its own image"
for user in alice bob; do
    volume_with_keys $user s3://lake-$user/faces
    pod $user $user "$sums"
done
secret stranger-s3 alice 1
volume_with_keys stranger s3://lake-bob/faces
pod stranger stranger "$sums"
pod inline s3://lake-alice/faces "$sums" alice-s3
pod keyless s3://lake-alice/faces "$sums"
for user in alice bob inline; do
    wait_for 120 phase_is $user Succeeded
    kubectl logs $user | diff - <(echo "$want") || fail "wrong byte in the volume of $user"
done
wait_for 60 told stranger "refuses these credentials"
wait_for 60 told keyless "no S3 credentials"
[ "$(jq -r .control /run/granary/*/state.json | sort -u | wc -l)" = 1 ] || fail "not one server"

echo "== keys are replaced under readers, by the Secret"
pod one bob "$endless"
pod two bob "$endless"
wait_for 60 phase_is one Running
wait_for 60 phase_is two Running
ceph_s3 admin key create --uid bob --access-key bob2 --secret-key "${PAD}hiddenbob2" >"$W/out"
secret bob-s3 bob 2
began=$SECONDS
wait_for 300 server_has hiddenbob2
echo "from the Secret's change to the server: $((SECONDS - began)) s, with a kubelet that looks at its pods every 5 s"
ceph_s3 admin key rm --uid bob --access-key bob1 >"$W/out"
old_refused() { ! with bob "$GRANARY" inspect s3://lake-bob/faces >"$W/out" 2>&1; }
wait_for 60 old_refused
"$GRANARY" cache evict -q --all --control "$(jq -r .control /run/granary/*/state.json | sort -u)" >"$W/out"
echo 3 >/proc/sys/vm/drop_caches
reads_on one
reads_on two
# kubelet makes one call at a time for a volume that is staged
for name in one two; do ! told $name Aborted || fail "a call came while another one of the volume ran"; done

echo "== keys that the store refuses change nothing"
secret bob-s3 alice 1
wait_for 300 told one "the volume keeps its earlier keys"
reads_on one
secret bob-s3 bob 2

echo "== a claim of a StorageClass. For external-provisioner, which this machine cannot fetch, a call of the same request"
"$GRANARY" build -q "$W/tree/d" "$W/store/voices" >"$W/built"
printf 'storageClasses: {lake: {image: "%s/store/${pvc.metadata.name}", mountOptions: {noexec: "true"}}}\n' "$W" >"$W/values.yaml"
"$HELM" template granary "$CHART" --kube-version 1.37.2 -f "$W/values.yaml" --show-only templates/controller.yaml |
    awk 'BEGIN { RS = "---\n" } /kind: StorageClass/' | kubectl apply -f - >"$W/null"
sed '/^---$/,$d; s/name: faces/name: voices/' "$GRANARY_SOURCE/deploy/kubernetes/csi-claim.yaml" | kubectl apply -f - >"$W/null"
background "$CSI" --controller "$W/controller.sock" 2>>"$W/log/driver"
wait_for 60 listens "$W/controller.sock"
kubectl get pvc voices -o json | /usr/bin/python3 "$GRANARY_SOURCE/tests/kubernetes/provision.py" "$W/controller.sock" \
    "$(kubectl get storageclass lake -o json)" >"$W/pv.json"
kubectl apply -f "$W/pv.json" >"$W/null"
pod class voices 'cat /data/7 | sha256sum'
wait_for 120 phase_is class Succeeded
kubectl logs class | diff - <(sha256sum <"$W/tree/d/7") || fail "wrong byte in the volume of a StorageClass"

echo "== nothing is left"
kubectl delete pod --all >"$W/null"
wait_for 60 eval "! grep ' $KUBELET_DIR/.* erofs ' /proc/self/mountinfo"
no_state() { ! find /run/granary -name state.json | grep . >"$W/null"; }
wait_for 60 no_state # it goes after the mount
