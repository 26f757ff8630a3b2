#!/bin/bash
# granary-csi under a real kubelet: a pod reads a volume's image, or an inline one's, and goes on while the driver, the
# server of its mount and kubelet are killed and come back; a wrong option is an event of its pod. The driver is a process
# here; kubernetes/helm has it in a pod.
# ctest: long lock=cluster
CLUSTER_NEEDS=${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-helm.sh
. "$GRANARY_SOURCE/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"

CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"
export PATH=$GRANARY_BUILD/cli:$PATH
socket=$KUBELET_DIR/plugins_registry/csi.granary.io-reg.sock

start_driver() {
    background "$CSI" --kubelet-dir "$KUBELET_DIR" --node-id node1 --inline-stores "$W/store" 2>>"$W/log/driver"
    DRIVER=$BACKGROUND_PID
    wait_for 60 listens "$socket"
}
registered() { kubectl get csinode node1 -o jsonpath='{.spec.drivers[*].name}' | grep -x csi.granary.io >"$W/null"; }

# volume NAME IMAGE [ATTRIBUTE]: with a claim of its name
volume() {
    sed -e '/^kind: Pod$/,$d' -e "s|faces-v1|$1|g; s|name: faces\\b|name: $1|; s|s3://lake/images/faces:v1|$2|; s|noexec: .*|${3:-noexec: \"true\"}|" \
        "$GRANARY_SOURCE/deploy/kubernetes/csi-volume.yaml" | sed '$d' | sed '$d' | kubectl apply -f - >"$W/null"
}

# pod NAME CLAIM COMMAND; for an inline volume, IMAGE stands in place of CLAIM
pod() {
    local source="persistentVolumeClaim: {claimName: $2, readOnly: true}"
    [[ $2 != */* ]] || source="csi: {driver: csi.granary.io, volumeAttributes: {image: $2}}"
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
wait_for 60 eval 'kubectl get events --field-selector involvedObject.name=wrong | grep -F "fence" >"$W/null"'
kubectl get events --field-selector involvedObject.name=wrong -o jsonpath='{.items[*].message}' | grep -F 'code = InvalidArgument' >"$W/null" || fail "no InvalidArgument"

echo "== inline volumes"
pod inline "$W/store/faces" "$sums"
wait_for 120 phase_is inline Succeeded
kubectl logs inline | diff - <(echo "$want") || fail "wrong byte in an inline volume"
pod elsewhere "$W/elsewhere/faces" "$sums"
wait_for 60 eval 'kubectl get events --field-selector involvedObject.name=elsewhere -o jsonpath="{.items[*].message}" | grep -F "code = PermissionDenied" >"$W/null"'
pod b "$W/store/faces" "$endless"
wait_for 60 phase_is b Running
kill -9 "$DRIVER"
wait_for 60 gone "$DRIVER"
start_driver
reads_on b
kubectl delete pod inline b >"$W/null"

echo "== nothing is left"
kubectl delete pod --all >"$W/null"
wait_for 60 eval "! grep ' $KUBELET_DIR/.* erofs ' /proc/self/mountinfo"
no_state() { ! find /run/granary -name state.json | grep . >"$W/null"; }
wait_for 60 no_state # it goes after the mount
