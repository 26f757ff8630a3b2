#!/bin/bash
# The Helm chart in a real cluster, by FUSE and with a real S3 server: what the API server thinks of every part of it; 20
# pods share a mount and a server; a pod reads on while the driver's pod is deleted, the chart upgraded and rolled back, the
# server's front end, the driver and kubelet killed, and another pod evicted; the Job of a dataset builds, warms and moves
# the tag, and one that fails says why; the node is drained; new volumes have the new version, and the earlier one again;
# a pod of a volume that follows its tag keeps its version, also when the driver's pod is deleted, and a later pod has the
# later one;
# a volume in cache-only mode has what is warm; an image is built in parts; after the whole server was killed, pods that are
# made again read; a dataset is suspended and removed; nothing is left.
# It prints how long a pod waits for its first byte.
# ctest: long lock=cluster
CLUSTER_NEEDS=${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-helm.sh
. "$GRANARY_SOURCE/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

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

# pod NAME COMMAND [VOLUME]: with the dataset's claim, or another volume
pod() {
    kubectl apply -f - >"$W/null" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec: $(pod_spec "$2" "${3:-}")
YAML
}
pod_spec() {
    cat <<YAML

  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  containers:
  - {name: c, image: "docker.io/local/busybox:1", imagePullPolicy: Never, command: [/bin/sh, -c, '$1'], volumeMounts: [{name: v, mountPath: /data, readOnly: true}]}
  volumes: [{name: v, ${2:-persistentVolumeClaim: {claimName: faces, readOnly: true\}}}]
YAML
}
phase_is() { [ "$(kubectl get pod "$1" -o jsonpath='{.status.phase}')" = "$2" ]; }
no_server() { ! pgrep 'granary-[fn]' >"$W/null"; }
is_gone() { ! kubectl get "$@" >"$W/null" 2>&1; }
part() { kubectl -n granary get pods -l "app.kubernetes.io/component=$1" "${@:2}"; }
restarts() { part "$1" -o 'jsonpath={.items[0].status.containerStatuses[0].restartCount}'; }
has_restarted() { [ "$(restarts "$1")" -gt "$2" ] && ready "$1"; }
ready() { [[ $(part "$1" --no-headers 2>"$W/null") = *1/1*Running* ]]; }
part_is_new() { ready "$1" && [ "$(part "$1" -o name)" != "$2" ]; }
complete() { [ "$(kubectl -n "$1" get job "$2" -o jsonpath='{.status.conditions[?(@.type=="Complete")].status}')" = True ]; }
# what is known where something does not come true
explain() {
    local part
    kubectl get pods -A
    kubectl describe pods -A | grep -A12 ^Events
    for part in driver server; do
        part $part -o name | xargs -rn1 kubectl -n granary logs --tail=20
        part $part -o name | xargs -rn1 kubectl -n granary logs --tail=20 --previous 2>"$W/null"
    done
}
# becomes COMMAND...: true before long
becomes() {
    local end=$((SECONDS + 600))
    until "$@" 2>"$W/null"; do
        [ $SECONDS -lt $end ] || fail "waited in vain for: $*: $(explain 2>&1)"
        sleep 0.5
    done
}
helm() { "$HELM" --namespace granary "$@" >"$W/helm.out" 2>&1 || fail "helm $1: $(cat "$W/helm.out")"; }
upgrade() { helm upgrade granary "$CHART" -f "$W/values.yaml" "$@"; }

# reads_on POD: it reads more, and never failed
read_more() { [ "$(kubectl logs "$1" | wc -l)" -gt $(($2 + 5)) ]; }
reads_on() {
    becomes read_more "$1" "$(kubectl logs "$1" | wc -l)"
    ! kubectl logs "$1" | grep ERROR || fail "$1 could not read"
}

# since APPLIED POD: the seconds to the pod's first line
since() { echo "$1 $(date -d "$(kubectl logs --timestamps "$2" | sed -n '1s/ .*//p')" +%s.%N)" | awk '{ printf "%.1f s", $2 - $1 }'; }
memory() { pgrep -x "$1" | sed 's|.*|/proc/&/status|' | xargs awk '/VmRSS/ { printf "%.1f MB", $2 / 1024 }'; }
staged() { grep -c ' /.*/globalmount .* erofs ' /proc/self/mountinfo; }
no_pod_in() { [ -z "$(kubectl -n "$1" get pods -o name)" ]; }
one_staged() { [ "$(staged)" = 1 ]; }
nothing_staged() { ! staged >"$W/null"; }
# no_pods: they are deleted, and no volume is mounted
no_pods() {
    kubectl delete pod --all --wait=false >"$W/null"
    becomes no_pod_in default
    becomes nothing_staged
}

sums='cd /data && find . -type f | sort | xargs sha256sum | sha256sum'
endless='i=0; while true; do cat /data/d/* >/dev/null || echo ERROR; i=$((i+1)); echo $i; sleep 0.1; done'
mkdir -p "$W/cache" "$W/log" "$W/tree/d"
for i in $(seq 300); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
want=$(cd "$W/tree" && find . -type f | sort | xargs sha256sum | sha256sum)

granary_image "$W/granary.tar"
cluster_start "$W/granary.tar"
ceph_s3 start || fail "Ceph does not start"
use_ceph lake raw
unset https_proxy
python3 "$SERVERS/s3put.py" tree raw "" "$W/tree" >"$W/put"
image=s3://lake/images/faces
cat >"$W/values.yaml" <<YAML
image: {repository: docker.io/local/granary, tag: "1", pullPolicy: Never}
kubeletDir: $KUBELET_DIR
cache: {hostPath: $W/cache, size: 200M}
env: {AWS_ENDPOINT_URL: "$AWS_ENDPOINT_URL", AWS_REGION: $AWS_REGION}
server: {fuse: true, quotas: {faces: 100M}}
driver: {priorityClassName: "", inlineStores: ["s3://lake/images"]}
datasets:
  faces:
    image: $image
    namespaces: [default]
    build: {source: s3://raw, schedule: "0 2 * * *"}
    warm: {nodes: 1, options: ["--all"]}
  strict: {image: $image, namespaces: [default], mountOptions: {fence: warmed}}
  daily: {image: $image, namespaces: [default], mountOptions: {follow: "true", poll: 1s}}
  halves: {image: s3://lake/images/halves, build: {source: s3://raw, schedule: "0 3 * * *", parts: 2}}
YAML
"$GRANARY" build -q s3://raw $image:current >"$W/built"

echo "== what the API server thinks of every part"
kubectl create namespace granary >"$W/null"
for values in "$W/values.yaml" "$GRANARY_SOURCE/tests/flow/helm-values.yaml"; do
    "$HELM" template granary "$CHART" --namespace granary -f "$values" --kube-version 1.37.2 >"$W/objects.yaml"
    kubectl apply --dry-run=server --validate=strict -f "$W/objects.yaml" >"$W/said" 2>&1 || fail "$(cat "$W/said")"
done
kubectl apply --dry-run=server --validate=strict -f "$GRANARY_SOURCE/deploy/kubernetes" >"$W/said" 2>&1 || fail "$(cat "$W/said")"

echo "== install to the first pod"
kubectl -n granary create secret generic granary-s3 \
    --from-literal=AWS_ACCESS_KEY_ID="$AWS_ACCESS_KEY_ID" --from-literal=AWS_SECRET_ACCESS_KEY="$AWS_SECRET_ACCESS_KEY" >"$W/null"
helm install granary "$CHART" -f "$W/values.yaml"
becomes ready server
becomes ready driver
began=$(date +%s.%N)
pod cold "cat /data/hello; $sums; touch /data/new 2>/dev/null || echo read-only"
becomes phase_is cold Succeeded
kubectl logs cold >"$W/said"
printf '%s\n' hello "$want" read-only | diff - "$W/said" || fail "wrong byte, or the volume is writable"
[ -n "$(find "$W/cache" -type f -size +100k)" ] || fail "the cache is not used: $(ls -la "$W/cache")"
echo "from kubectl apply to the first byte: $(since "$began" cold)"
no_pods
began=$(date +%s.%N)
pod warm 'cat /data/hello'
becomes phase_is warm Succeeded
echo "the same, when all is cached: $(since "$began" warm)"

echo "== 20 pods share a mount and a server"
began=$(date +%s.%N)
kubectl apply -f - >"$W/null" <<YAML
apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec: {parallelism: 20, completions: 20, backoffLimit: 0, template: {spec: {$(pod_spec "$sums; sleep 3600" | python3 -c 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin))[1:-1])')}}}
YAML
they_read() { kubectl logs -l job-name=many --tail=-1 --max-log-requests=20 >"$W/said" && [ "$(wc -l <"$W/said")" = 20 ]; }
becomes they_read
echo "until all have read everything: $(echo "$began $(date +%s.%N)" | awk '{ printf "%.1f s", $2 - $1 }')"
[ "$(sort -u "$W/said")" = "$want" ] || fail "wrong byte in one of 20 pods: $(cat "$W/said")"
[ "$(staged)" = 1 ] || fail "not one mount for all pods"
[ "$(pgrep -c -x granary-fuse)" = 1 ] || fail "not one server: $(pgrep -a granary)"
echo "memory of granary-csi: $(memory granary-csi), of granary-fuse: $(memory granary-fuse)"
kubectl delete job many >"$W/null"

echo "== a pod names its image itself"
pod inline "$sums" "csi: {driver: csi.granary.io, volumeAttributes: {image: \"$image:current\"}}"
becomes phase_is inline Succeeded
kubectl logs inline | diff - <(echo "$want") || fail "wrong byte in an inline volume"
no_pods

echo "== the driver's pod is deleted under a reader"
pod reader "$endless"
becomes phase_is reader Running
driver=$(part driver -o name)
server=$(part server -o name)
kubectl -n granary delete "$driver" >"$W/null"
reads_on reader
becomes part_is_new driver "$driver"
reads_on reader

echo "== an upgrade replaces the driver, not the server; and so does the way back"
driver=$(part driver -o name)
upgrade --set cache.size=300M
becomes part_is_new driver "$driver"
driver=$(part driver -o name)
helm rollback granary
becomes part_is_new driver "$driver"
[ "$(part server -o name)" = "$server" ] || fail "the server was replaced"
reads_on reader

echo "== the server's front end is killed"
kill -9 "$(pgrep -o -x granary-fuse)"
reads_on reader

echo "== the driver is killed"
before=$(restarts driver)
kill -9 "$(pgrep -x granary-csi)"
becomes has_restarted driver "$before"
reads_on reader

echo "== kubelet is killed, and a pod comes afterwards"
kill -9 "$KUBELET"
wait_for 60 gone "$KUBELET"
kubelet_start
becomes kubectl logs reader >"$W/null"
reads_on reader
pod after "$sums"
becomes phase_is after Succeeded
kubectl logs after | diff - <(echo "$want") || fail "wrong byte after kubelet was killed"
[ "$(staged)" = 1 ] || fail "not one mount for all pods"
phase_is reader Running || fail "kubelet has ended the reader"

echo "== kubelet evicts a pod, whose volume is unmounted; the others read on"
kubectl apply -f - >"$W/null" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec: $(pod_spec 'cat /data/hello; dd if=/dev/zero of=/room/full bs=1048576 count=8; sleep 3600' |
    sed 's|volumeMounts: \[|&{name: room, mountPath: /room}, |; s|volumes: \[|&{name: room, emptyDir: {sizeLimit: 1Mi}}, |')
YAML
evicted() { [ "$(kubectl get pod greedy -o jsonpath='{.status.phase} {.status.reason}')" = "Failed Evicted" ]; }
becomes evicted
uid=$(kubectl get pod greedy -o jsonpath='{.metadata.uid}')
not_published() { ! grep -q "/pods/$uid/volumes/kubernetes.io~csi/" /proc/self/mountinfo; }
becomes not_published
reads_on reader
kubectl delete pod greedy after >"$W/null"

echo "== the Job builds, warms and moves the tag"
before=$(digest_of $image:current)
echo new >"$W/new"
python3 "$SERVERS/s3put.py" key raw new "$W/new"
kubectl -n granary create job --from=cronjob/granary-faces now >"$W/null"
becomes complete granary now
kubectl -n granary get pods -l batch.kubernetes.io/job-name=now -o json >"$W/pods.json"
[ "$(digest_of $image:current)" != "$before" ] || fail "the tag did not move"
jq -e '.items[0].status.initContainerStatuses[0].state.terminated.message | fromjson | .counts.files == 302' "$W/pods.json" >"$W/null" ||
    fail "the build's message: $(jq '.items[0].status.initContainerStatuses' "$W/pods.json")"
kubectl -n granary logs job/now -c warm | grep '^{' | jq -se 'map(select(.cached_bytes? and .cached_bytes == .bytes)) | length == 1' >"$W/null" ||
    fail "the warming's log: $(kubectl -n granary logs job/now -c warm)"
kubectl -n granary logs job/now -c build | grep '^{"progress"' | jq -se 'last.progress | .files_done == .files_total and
    .bytes_done == .bytes_total and has("phase") and has("bytes_per_s") and has("seconds_left")' >"$W/null" ||
    fail "the build's progress: $(kubectl -n granary logs job/now -c build)"
kubectl -n granary logs job/now -c warm | grep '^{"progress"' | jq -se 'last.progress | .phase == "warming" and .bytes_total > 0
    and .bytes_done == .bytes_total and .files_done == .files_total and has("bytes_per_s") and has("seconds_left")' >"$W/null" ||
    fail "the warming's progress: $(kubectl -n granary logs job/now -c warm)"
reads_on reader

echo "== a Job that fails says why in its termination message, which kubelet takes from the end of the log"
after=$(digest_of $image:current)
kubectl -n granary create job --from=cronjob/granary-faces broken --dry-run=client -o json |
    sed 's|s3://raw|s3://nowhere|; s|"backoffLimit": 5|"backoffLimit": 0|' | kubectl apply -f - >"$W/null"
has_failed() {
    kubectl -n granary get pods -l batch.kubernetes.io/job-name=broken \
        -o jsonpath='{.items[0].status.initContainerStatuses[0].state.terminated.message}' | grep . >"$W/said"
}
becomes has_failed
tail -1 "$W/said" | grep '^granary: build: .*nowhere' >"$W/null" || fail "the message: $(cat "$W/said")"
[ "$(digest_of $image:current)" = "$after" ] || fail "the tag moved"
kubectl -n granary delete job broken >"$W/null"

echo "== a volume in cache-only mode has what is warm, and nothing else; the other volume of the image has all"
strict='persistentVolumeClaim: {claimName: strict, readOnly: true}'
cp "$W/new" "$W/tree/new"
pod warmed "$sums" "$strict"
becomes phase_is warmed Succeeded
kubectl logs warmed | diff - <(cd "$W/tree" && find . -type f | sort | xargs sha256sum | sha256sum) || fail "wrong byte behind the fence"
kubectl delete pod warmed >"$W/null"
becomes one_staged # of the reader; with the mount goes its page cache
"$GRANARY" cache evict -q --all --control /run/granary/fuse.control >"$W/said" 2>&1 || fail "$(cat "$W/said")"
pod refused 'cat /data/d/* >/dev/null 2>&1 || echo refused' "$strict"
becomes phase_is refused Succeeded
[ "$(kubectl logs refused)" = refused ] || fail "it is fetched for a pod behind the fence"
kubectl delete pod refused >"$W/null"
reads_on reader

echo "== two pods build a part each, and one joins them"
kubectl -n granary create job --from=cronjob/granary-halves halves >"$W/null"
becomes complete granary halves
[ "$(kubectl -n granary get pods -l batch.kubernetes.io/job-name=halves -o name | wc -l)" = 2 ] || fail "not two pods"
kubectl -n granary get pods -l batch.kubernetes.io/job-name=halves,batch.kubernetes.io/job-completion-index=0 -o json |
    jq -e '.items[0].status.initContainerStatuses[0].state.terminated.message | fromjson | .bytes_read == 0 and .counts.files == 302 and .rebuild.parents == 2' >"$W/null" ||
    fail "the join: $(kubectl -n granary logs -l batch.kubernetes.io/job-name=halves -c build)"
"$GRANARY" diff --exit-code $image:current s3://lake/images/halves:current >"$W/said" 2>&1 || fail "another tree: $(cat "$W/said")"

echo "== the node is drained: its pods end, driver and server stay"
kubectl drain node1 --ignore-daemonsets --delete-emptydir-data --force --timeout=600s >"$W/said" 2>&1 || fail "$(cat "$W/said")"
becomes nothing_staged
ready driver && ready server || fail "they did not stay: $(explain)"
kubectl uncordon node1 >"$W/null"

echo "== a new version for new volumes, and back"
pod second 'cat /data/new'
becomes phase_is second Succeeded
[ "$(kubectl logs second)" = new ] || fail "the pod has an old version"
no_pods
earlier=$("$GRANARY" images --all --json s3://lake/images | jq -r --arg digest "$before" '.images | map(select(.digest == $digest))[0].tag')
upgrade --set "datasets.faces.use=$earlier"
went_back() { [ "$(digest_of $image:current)" = "$before" ]; }
becomes went_back
pod third "$sums"
becomes phase_is third Succeeded
kubectl logs third | diff - <(echo "$want") || fail "the pod has another version"
no_pods

echo "== a volume that follows its tag: the driver's pod is deleted under a pod, which keeps its version; a later pod has the later one"
daily='persistentVolumeClaim: {claimName: daily, readOnly: true}'
pod kept "${endless/i=\$((/[ ! -e /data/new ] || echo ERROR; i=\$((}" "$daily"
becomes phase_is kept Running
driver=$(part driver -o name)
kubectl -n granary delete "$driver" >"$W/null"
becomes part_is_new driver "$driver"
reads_on kept
"$GRANARY" tag "$image@$after" current >"$W/null"
began=$SECONDS
shows_later() { jq -e --arg digest "${after#sha256:}" '.shown == $digest' /run/granary/tag-*/follow.json >"$W/null"; }
becomes shows_later
echo "until kubelet has had the tag followed again: $((SECONDS - began)) s"
pod later 'cat /data/new' "$daily"
becomes phase_is later Succeeded
[ "$(kubectl logs later)" = new ] || fail "the pod has an old version"
reads_on kept
no_pods
becomes eval '! compgen -G "/run/granary/tag-*" >"$W/null"'
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
"$GRANARY" tag "$image@$before" current >"$W/null"

echo "== the whole server is killed: reads by FUSE fail, as the page says; pods that are made again read"
pod victim "$endless"
becomes phase_is victim Running
reads_on victim
before=$(restarts server)
kill -9 "$(pgrep -o -f '^granary serve --fuse')"
forget_pages "$(awk '/ \/.*\/globalmount .* erofs / { print $5; exit }' /proc/self/mountinfo)"/d/*
could_not_read() { kubectl logs victim | grep ERROR >"$W/null"; }
becomes could_not_read
becomes has_restarted server "$before"
no_pods
pod fourth "$sums"
becomes phase_is fourth Succeeded
kubectl logs fourth | diff - <(echo "$want") || fail "wrong byte after the server was killed"
no_pods

echo "== a dataset is suspended by values, and goes on"
suspended() { kubectl -n granary get cronjob granary-faces -o jsonpath='{.spec.suspend}'; }
upgrade --set datasets.faces.suspend=true
[ "$(suspended)" = true ] || fail "it is built by the clock"
upgrade
[ "$(suspended)" = false ] || fail "it is not built by the clock"

echo "== it is removed by values: pods read on, the claim goes with the last of them, the image stays"
pod last "$endless"
becomes phase_is last Running
sed '/^datasets:/,$d' "$W/values.yaml" >"$W/none.yaml"
helm upgrade granary "$CHART" -f "$W/none.yaml"
is_gone -n granary cronjob granary-faces || fail "the CronJob is left"
reads_on last
! is_gone pvc faces || fail "the claim of a running pod is gone"
no_pods
becomes is_gone pvc faces
becomes is_gone pv granary-faces-default
"$GRANARY" inspect "$image:current" >"$W/null" || fail "the image is gone"

echo "== the server of kernel nbd starts without any capability"
server=$(part server -o name)
upgrade --set server.fuse=false
becomes part_is_new server "$server"
# the pod before may be ending still
is_unprivileged() { [ -z "$(part server -o 'jsonpath={.items[*].spec.containers[*].securityContext.privileged}')" ]; }
becomes is_unprivileged

echo "== nothing is left"
helm uninstall granary --wait
becomes no_pod_in granary
becomes no_server
is_gone csidriver csi.granary.io || fail "the CSIDriver is left"
is_gone pvc faces && is_gone pvc strict && is_gone pvc daily || fail "a claim is left"
