#!/bin/bash
# The Helm chart in a real cluster, by FUSE: a pod reads a data set's claim, and reads on while the driver's pod is deleted,
# the chart upgraded and the server's front end killed; the Job of a data set builds, warms and moves the tag; what the API
# server thinks of every part of the chart; nothing is left.
# ctest: long
# ctest: lock=loop
. "${GRANARY_SOURCE:?run by ctest}/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"

CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"

# granary_image OUT: what is installed, a shell, and the libraries of both
granary_image() {
    local applet programs=("$GRANARY" "$CSI" "$NBD" "$GRANARY_BUILD/fuse/granary-fuse" /bin/bash)
    {
        ldd "${programs[@]}" | grep -o '/lib[^ ]*' | sort -u | sed 's|^/\(.*\)|& \1|'
        printf '%s\n' "$GRANARY usr/bin/granary" "$CSI usr/sbin/granary-csi" "$NBD usr/libexec/granary/granary-nbd" \
            "$GRANARY_BUILD/fuse/granary-fuse usr/libexec/granary/granary-fuse" '/bin/bash bin/bash' '/bin/busybox bin/busybox'
        for applet in sh mkdir setsid sleep test umount; do echo "@busybox bin/$applet"; done
    } | python3 "$GRANARY_SOURCE/tests/kubernetes/image.py" "$1" docker.io/local/granary:1 granary
}

# pod NAME COMMAND: with the data set's claim
pod() {
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
  - {name: c, image: "docker.io/local/busybox:1", imagePullPolicy: Never, command: [/bin/sh, -c, '$2'], volumeMounts: [{name: v, mountPath: /data, readOnly: true}]}
  volumes: [{name: v, persistentVolumeClaim: {claimName: faces, readOnly: true}}]
YAML
}
phase_is() { [ "$(kubectl get pod "$1" -o jsonpath='{.status.phase}')" = "$2" ]; }
is_gone() { ! kubectl get "$@" >"$W/null" 2>&1; }
# becomes POD PHASE
becomes() {
    local i
    for ((i = 0; i < 90; i++)); do
        if phase_is "$1" "$2"; then return; fi
        sleep 1
    done
    fail "$1 does not become $2: $(kubectl describe pod "$1" | tail -12; kubectl get pods -A; kubectl -n granary describe pods | grep -A12 Events; for p in driver server; do part $p -o name | xargs -rn1 kubectl -n granary logs; done)"
}
part() { kubectl -n granary get pods -l "app.kubernetes.io/component=$1" "${@:2}"; }
ready() { [[ $(part "$1" --no-headers 2>"$W/null") = *1/1*Running* ]]; }
part_is_new() { ready "$1" && [ "$(part "$1" -o name)" != "$2" ]; }
helm() { "$HELM" --namespace granary "$@" >"$W/helm.out" 2>&1 || fail "helm $1: $(cat "$W/helm.out")"; }

# reads_on POD: it reads more, and never failed
reads_on() {
    local before
    before=$(kubectl logs "$1" | wc -l)
    wait_for 60 eval "[ \$(kubectl logs $1 | wc -l) -gt $((before + 5)) ]"
    ! kubectl logs "$1" | grep ERROR || fail "$1 could not read"
}

sums='cd /data && find . -type f | sort | xargs sha256sum | sha256sum'
endless='i=0; while true; do cat /data/d/* >/dev/null || echo ERROR; i=$((i+1)); echo $i; sleep 0.1; done'
mkdir -p "$W/cache" "$W/log"
# A store and a source where every part of the chart looks: there is no store in this network that takes uploads.
lake=/run/granary/lake
cat >"$W/values.yaml" <<YAML
image: {repository: docker.io/local/granary, tag: "1", pullPolicy: Never}
kubeletDir: $KUBELET_DIR
cache: {hostPath: $W/cache, size: 200M}
server: {fuse: true}
driver: {priorityClassName: ""}
datasets:
  faces:
    image: /run/granary/lake/store/faces
    namespaces: [default]
    build: {source: /run/granary/lake/tree, schedule: "0 2 * * *"}
    warm: {nodes: 1, options: ["--all"]}
YAML

granary_image "$W/granary.tar"
cluster_start "$W/granary.tar"
mkdir -p $lake/tree/d
for i in $(seq 300); do head -c 5000 /dev/urandom >"$lake/tree/d/$i"; done
echo hello >"$lake/tree/hello"
"$GRANARY" build -q "$lake/tree" "$lake/store/faces:current" >"$W/built"
chmod -R a+rwX $lake
want=$(cd "$lake/tree" && find . -type f | sort | xargs sha256sum | sha256sum)

echo "== what the API server thinks of every part"
kubectl create namespace granary >"$W/null"
for values in "$W/values.yaml" "$GRANARY_SOURCE/tests/flow/helm-values.yaml"; do
    "$HELM" template granary "$CHART" --namespace granary -f "$values" --kube-version 1.37.2 >"$W/objects.yaml"
    kubectl apply --dry-run=server --validate=strict -f "$W/objects.yaml" >"$W/said" 2>&1 || fail "$(cat "$W/said")"
done

echo "== install to the first pod"
began=$(date +%s.%N)
helm install granary "$CHART" -f "$W/values.yaml"
pod first "cat /data/hello; $sums; touch /data/new 2>/dev/null || echo read-only"
becomes first Succeeded
kubectl logs first >"$W/said"
printf '%s\n' hello "$want" read-only | diff - "$W/said" || fail "wrong byte, or the volume is writable"
echo "from helm install to a pod that has read: $(awk "BEGIN { print $(date +%s.%N) - $began }") s"
wait_for 60 ready server
wait_for 60 ready driver
[ "$(pgrep -c granary-fuse)" = 1 ] || fail "not one server: $(pgrep -a granary)"

echo "== the driver's pod is deleted under a reader"
pod reader "$endless"
becomes reader Running
driver=$(part driver -o name)
server=$(part server -o name)
kubectl -n granary delete "$driver" >"$W/null"
reads_on reader
wait_for 60 part_is_new driver "$driver"
reads_on reader

echo "== an upgrade replaces the driver, not the server"
driver=$(part driver -o name)
helm upgrade granary "$CHART" -f "$W/values.yaml" --set cache.size=300M
wait_for 120 part_is_new driver "$driver"
[ "$(part server -o name)" = "$server" ] || fail "the server was replaced"
reads_on reader

echo "== the server's front end is killed"
kill -9 "$(pgrep -o granary-fuse)"
reads_on reader

echo "== the Job builds, warms and moves the tag"
before=$(digest_of "$lake/store/faces:current")
echo new >"$lake/tree/new"
kubectl -n granary create job --from=cronjob/granary-faces now --dry-run=client -o json |
    jq '.spec.template.spec |= (.volumes |= map(select(.name != "run")) + [{name: "run", hostPath: {path: "/run/granary"}}] |
        (.initContainers[0], .containers[0]).volumeMounts |= map(select(.name != "run")) + [{name: "run", mountPath: "/run/granary"}])' |
    kubectl apply -f - >"$W/null"
kubectl -n granary wait --for=condition=complete --timeout=120s job/now >"$W/said" 2>&1 ||
    fail "$(kubectl -n granary logs -l batch.kubernetes.io/job-name=now --all-containers; kubectl -n granary describe job now)"
kubectl -n granary get pods -l batch.kubernetes.io/job-name=now -o json >"$W/pods.json"
[ "$(digest_of "$lake/store/faces:current")" != "$before" ] || fail "the tag did not move"
jq -e '.items[0].status.initContainerStatuses[0].state.terminated.message | fromjson | .counts.files == 302' "$W/pods.json" >"$W/null" ||
    fail "the build's message: $(jq '.items[0].status.initContainerStatuses' "$W/pods.json")"
kubectl -n granary logs job/now -c warm | grep '^{' | jq -se 'map(select(.cached_bytes? and .cached_bytes == .bytes)) | length == 1' >"$W/null" ||
    fail "the warming's log: $(kubectl -n granary logs job/now -c warm)"
reads_on reader

echo "== a new version for new volumes"
kubectl delete pod reader first --wait=false >"$W/null"
wait_for 120 is_gone pod reader
wait_for 60 eval "! grep -q globalmount /proc/self/mountinfo"
pod second 'cat /data/new'
becomes second Succeeded
[ "$(kubectl logs second)" = new ] || fail "the pod has an old version"
kubectl delete pod second --wait=false >"$W/null"
wait_for 120 is_gone pod second
wait_for 60 eval "! grep -q globalmount /proc/self/mountinfo"

echo "== the server of kernel nbd starts without any capability"
server=$(part server -o name)
helm upgrade granary "$CHART" -f "$W/values.yaml" --set server.fuse=false
wait_for 120 part_is_new server "$server"
wait_for 60 eval "[ -z \"\$(part server -o 'jsonpath={.items[*].spec.containers[*].securityContext.privileged}')\" ]"

echo "== nothing is left"
helm uninstall granary --wait
wait_for 120 eval "[ -z \"\$(kubectl -n granary get pods -o name)\" ]"
! pgrep -a 'granary-(fuse|nbd)' || fail "a server is left"
is_gone csidriver csi.granary.io || fail "the CSIDriver is left"
is_gone pvc faces || fail "the claim is left"
