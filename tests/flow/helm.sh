#!/bin/bash
# The Helm chart: Helm's own check of it, with every part; what each part may do; what wrong values are told. What a real API
# server and kubelet make of it is in tests/kubernetes, its version and its page in tests/style. Go builds Helm for minutes.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

version=$(sed -nE 's/^project\(granary VERSION ([0-9.]+) .*/\1/p' "$GRANARY_SOURCE/CMakeLists.txt")
command -v jq >"$W/null" && python3 -c 'import yaml' || skip "apt-get install jq python3-yaml"

. "$GRANARY_SOURCE/tests/flow/lib-helm.sh"

# render VALUES...: the objects, an array in $W/objects.json
render() {
    "$HELM" template granary "$CHART" --namespace granary --kube-version 1.37.2 "$@" >"$W/objects.yaml" 2>"$W/helm.err" || return 1
    python3 -c 'import json, sys, yaml; print(json.dumps([d for d in yaml.safe_load_all(sys.stdin) if d]))' <"$W/objects.yaml" >"$W/objects.json"
}
# holds WHAT FILTER: true of the objects
holds() { jq -e "$2" "$W/objects.json" >"$W/null" || fail "not so: $1"; }
kinds() { jq -r '.[].kind' "$W/objects.json" | LC_ALL=C sort | uniq -c | awk '{ printf "%s%s=%s", sep, $2, $1; sep = " " }'; }

echo "== lint"
"$HELM" lint --strict "$CHART" >"$W/lint" 2>&1 || fail "$(cat "$W/lint")"
"$HELM" lint --strict "$CHART" -f "$GRANARY_SOURCE/tests/flow/helm-values.yaml" >"$W/lint" 2>&1 || fail "$(cat "$W/lint")"

echo "== as it is"
render || fail "$(cat "$W/helm.err")"
[ "$(kinds)" = "CSIDriver=1 ConfigMap=1 DaemonSet=2 ServiceAccount=1" ] || fail "objects: $(kinds)"
pods='[.. | objects | select(.containers?)]'
containers="$pods | map(.containers[], .initContainers[]?)"
holds "no token is mounted" "$pods | all(.automountServiceAccountToken == false)"
holds "only the driver is privileged" "$containers | map(select(.securityContext.privileged).name) == [\"driver\"]"
holds "the others have no capability" "$containers | map(select(.name != \"driver\")) | all(.securityContext.capabilities.drop == [\"ALL\"] and .securityContext.allowPrivilegeEscalation == false)"
holds "every root is read-only" "$containers | all(.securityContext.readOnlyRootFilesystem)"
holds "only the driver is in the node's namespaces" "$pods | map(select(.hostPID or .hostNetwork).containers[0].name) == [\"driver\"]"
holds "the CSIDriver" '.[] | select(.kind == "CSIDriver").spec | .fsGroupPolicy == "None" and .attachRequired == false and .requiresRepublish'
holds "nothing above kubelet's directory is mounted" '[.. | .hostPath? | objects | .path] | all(. as $p | "/var/lib/kubelet" | startswith($p + "/") | not)'
holds "the image is the version's" "$containers | all(.image == \"registry.example.net/granary:$version\")"

echo "== by FUSE"
render --set server.fuse=true || fail "$(cat "$W/helm.err")"
holds "the server is replaced by hand" '.[] | select(.metadata.name == "granary-server").spec.updateStrategy.type == "OnDelete"'
holds "mounts are by FUSE" '.[] | select(.kind == "ConfigMap").data["granary.conf"] | contains("[mount]\nfuse = yes\njoin = yes\n")'

echo "== nodes that are each other's cache"
render --set peers.port=9465 || fail "$(cat "$W/helm.err")"
[ "$(kinds)" = "CSIDriver=1 ConfigMap=1 DaemonSet=2 Service=1 ServiceAccount=1" ] || fail "objects: $(kinds)"
server='.[] | select(.kind == "DaemonSet" and .metadata.name == "granary-server").spec.template'
holds "the Service has the servers" "([.[] | select(.kind == \"Service\").spec][0]) as \$s | \$s.clusterIP == \"None\" and \$s.ports[0].port == 9465 and \$s.selector == ($server | .metadata.labels)"
holds "they keep their addresses" "$server | .spec.hostNetwork"
holds "they know each other" "$server | .spec.containers[0].args | index([\"--l2\", \"dns+http://granary-peers.granary.svc:9465/granary\", \"--peer-listen\", \"0.0.0.0:9465\", \"--peer-key\", \"/etc/granary-peers/key\", \"--peer-keep\", \"none\"])"
holds "the key is a file of root's" "$server | .spec.volumes | any(.secret? | objects | .secretName == \"granary-peers\" and .defaultMode == 256)"

echo "== labels of nodes"
cached=(--set datasets.faces.image=s3://b/faces --set datasets.faces.preferCached=true --set-json 'datasets.faces.namespaces=["default"]')
render --set labels.enabled=true --set-json 'labels.bench=["/var/cache/granary"]' "${cached[@]}" || fail "$(cat "$W/helm.err")"
holds "only the labels have a token" "$pods | map(select(.automountServiceAccountToken).serviceAccountName) == [\"granary-labels\"]"
holds "it may get and patch nodes" '.[] | select(.kind == "ClusterRole").rules == [{apiGroups: [""], resources: ["nodes"], verbs: ["get", "patch"]}]'
holds "the policy fails closed, for this account" '.[] | select(.kind == "ValidatingAdmissionPolicy").spec | .failurePolicy == "Fail" and (.matchConditions | map(.expression) == ["request.userInfo.username == \u0027system:serviceaccount:granary:granary-labels\u0027"])'
holds "the policy is in force" '.[] | select(.kind == "ValidatingAdmissionPolicyBinding").spec | .policyName == "granary-labels" and .validationActions == ["Deny"]'
holds "no capability" "$containers | map(select(.name == \"labels\" or .name == \"bench\")) | length == 2 and all(.securityContext.capabilities.drop == [\"ALL\"])"
holds "what was measured is read" "$containers | map(select(.name == \"labels\").args | contains([\"--measured=/scratch/1.json\"])) == [true]"
holds "pods of the claim prefer the image" '.[] | select(.kind == "MutatingAdmissionPolicy").spec | .failurePolicy == "Ignore" and (.mutations[0].jsonPatch.expression | contains("granary.io/cached.faces"))'
for term in 'health", operator: "NotIn", values: ["failing"]' 'disk-mib-per-s", operator: "NotIn", values: ["0","1","2","4","8","16","32","64"]' \
    'link-mib-per-s", operator: "NotIn", values: ["0",' 'cache-free-gib", operator: "NotIn", values: ["0"]'; do
    jq -e --arg term "granary.io/$term" '.[] | select(.kind == "MutatingAdmissionPolicy").spec.mutations[0].jsonPatch.expression | contains($term)' \
        "$W/objects.json" >"$W/null" || fail "pods of the claim do not avoid: $term"
done
render --set labels.enabled=true,labels.nfd=true || fail "$(cat "$W/helm.err")"
[ "$(kinds)" = "CSIDriver=1 ConfigMap=1 DaemonSet=3 ServiceAccount=2" ] || fail "objects: $(kinds)"
holds "no token with node-feature-discovery" "$pods | all(.automountServiceAccountToken == false)"

echo "== every part"
render -f "$GRANARY_SOURCE/tests/flow/helm-values.yaml" || fail "$(cat "$W/helm.err")"
[ "$(kinds)" = "CSIDriver=1 ClusterRole=1 ClusterRoleBinding=1 ConfigMap=3 CronJob=2 DaemonSet=2 Deployment=1 Job=1 PersistentVolume=2 PersistentVolumeClaim=2 ServiceAccount=2 StorageClass=1" ] || fail "objects: $(kinds)"
jq -r '.[] | select(.metadata.name == "granary-conf").data["granary.conf"]' "$W/objects.json" >"$W/granary.conf"
GRANARY_CONFIG=$W/granary.conf "$GRANARY" config check >"$W/said" 2>&1 || fail "$(cat "$W/said")"
holds "what goes back is not built by the clock" '.[] | select(.kind == "CronJob" and .metadata.name == "granary-voices").spec.suspend'
holds "what is not, is" '.[] | select(.kind == "CronJob" and .metadata.name == "granary-faces").spec.suspend == false'
holds "a pod a node" '.[] | select(.metadata.name == "granary-faces" and .kind == "CronJob").spec.jobTemplate.spec | .completions == 3 and .completionMode == "Indexed" and .template.spec.affinity.podAntiAffinity and (.template.spec.initContainers[0].env | any(.name == "PARTS" and .value == "2"))'
holds "the trace is where granary warm looks for it" '.[] | select(.metadata.name == "granary-faces" and .kind == "CronJob").spec.jobTemplate.spec.template.spec | (.containers[0] | .args == ["--trace", "/trace/faces.trace"] and (.volumeMounts | any(.name == "trace" and .mountPath == "/trace" and .readOnly))) and (.volumes | any(.name == "trace" and .configMap.name == "faces-trace"))'
holds "parts are built by as many pods" '.[] | select(.metadata.name == "granary-voices" and .kind == "CronJob").spec.jobTemplate.spec | .completions == 4 and .parallelism == 4 and (.template.spec.topologySpreadConstraints | length == 1) and (.template.spec.initContainers[0].env | any(.name == "PARTS" and .value == "4"))'
holds "what images may take of the cache" '.[] | select(.metadata.name == "granary-server").spec.template.spec.containers[0].args | .[-2:] == ["--quota=faces:50G", "--quota=voices.v2:512M"]'
holds "volumes name the tag" '[.[] | select(.kind == "PersistentVolume").spec.csi.volumeAttributes] | all(.image == "s3://lake/images/faces:current" and .noexec == "true" and .["dead-timeout"] == "1h")'
holds "a volume has the keys of its namespace" '[.[] | select(.kind == "PersistentVolume").spec | .claimRef.namespace as $n | .csi | [.nodeStageSecretRef, .nodePublishSecretRef] == [{namespace: $n, name: "4711"}, {namespace: $n, name: "4711"}]] == [true, true]'
holds "pods go where the driver is" '[.[] | select(.kind == "PersistentVolume").spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key] == ["csi.granary.io/driver", "csi.granary.io/driver"]'
holds "the driver mounts versions where the node, and the next driver, see them" '.[] | select(.metadata.name == "granary-driver").spec.template.spec | (.containers[0].volumeMounts[] | select(.mountPath == "/run/granary-versions").mountPropagation == "Bidirectional") and (.volumes[] | select(.name == "versions").hostPath.path == "/run/granary-versions")'
holds "the stores of inline volumes" '.[] | select(.metadata.name == "granary-driver").spec.template.spec.containers[0].args | .[1:] == ["driver", "--inline-stores", "s3://lake/images"]'
holds "no token is mounted by itself" "$pods | all(.automountServiceAccountToken == false)"
holds "only the provisioner has one" "$containers | map(select(.volumeMounts | any(.name == \"token\")).name) == [\"provisioner\"]"
holds "the controller has no capability" "$pods | map(select(.serviceAccountName == \"granary-controller\"))[0] | .securityContext.runAsNonRoot and (.containers | all(.securityContext.capabilities.drop == [\"ALL\"]))"
holds "the provisioner sends no segments of all nodes" "$containers | map(select(.name == \"provisioner\").args)[0] | contains([\"--immediate-topology=false\", \"--strict-topology\"])"
holds "the class" '.[] | select(.kind == "StorageClass") | .provisioner == "csi.granary.io" and .parameters == {image: "s3://lake/images/${pvc.metadata.name}:latest", noexec: "true", "csi.storage.k8s.io/node-stage-secret-name": "1e3", "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}", "csi.storage.k8s.io/node-publish-secret-name": "1e3", "csi.storage.k8s.io/node-publish-secret-namespace": "${pvc.namespace}"}'
jq -r '.[] | select(.metadata.name == "granary-faces" and .kind == "ConfigMap").data["dataset.sh"]' "$W/objects.json" |
    diff -B "$CHART/files/dataset.sh" - || fail "the script is another one in its ConfigMap"

echo "== wrong values"
# refused SENTENCE ARG...: helm says SENTENCE, a pattern
refused() {
    ! render "${@:2}" || fail "taken: ${*:2}"
    grep -qE -- "$1" "$W/helm.err" || fail "${*:2} is told: $(cat "$W/helm.err")"
}
refused "at '/cache/size': 'lots' does not match" --set cache.size=lots
refused "at '/server/quotas/faces': 'all' does not match" --set server.quotas.faces=all
refused "at '/server/quotas/faces': '8M' does not match" --set server.quotas.faces=8M
refused "additional properties 'cahce' not allowed" --set cahce.size=1G
refused "properties 'build' required, if 'warm' exists" --set-json 'datasets={"f":{"image":"s3://b/f","warm":{"nodes":1,"options":["--all"]}}}'
refused "needs Kubernetes 1.30" --set labels.enabled=true --kube-version 1.29.0
refused "needs Kubernetes 1.36" "${cached[@]}" --kube-version 1.35.0
refused "too long for a label" --set "datasets.f.image=s3://b/$(printf 'x%.0s' {1..57}),datasets.f.preferCached=true"
refused "at '/datasets/f/build/parts'" --set datasets.f.image=s3://b/f,datasets.f.build.source=s3://a,datasets.f.build.schedule=@daily,datasets.f.build.parts=0
refused "datasets.f: build.parts is more than warm.nodes" --set-json 'datasets={"f":{"image":"s3://b/f","build":{"source":"s3://a","schedule":"@daily","parts":3},"warm":{"nodes":2,"options":["--all"]}}}'
refused "at '/datasets/f/warm/traceVolume'" --set-json 'datasets={"f":{"image":"s3://b/f","build":{"source":"s3://a","schedule":"@daily"},"warm":{"nodes":1,"options":["--all"],"traceVolume":{}}}}'
refused "at '/labels/minShare'" --set labels.minShare=0
refused "missing property 'image'" --set datasets.f.suspend=true
refused "'s3://b/f:v1' does not match" --set datasets.f.image=s3://b/f:v1
refused "at '/datasets/f/mountOptions'.*invalid propertyName 'cache'|invalid propertyName 'cache'" --set datasets.f.image=s3://b/f,datasets.f.mountOptions.cache=x
render --set datasets.f.image=s3://b/f,datasets.f.mountOptions.fence=warmed,datasets.f.mountOptions.quota=50G,datasets.f.mountOptions.warm=none || fail "a volume may not have a fence, a quota, no warming: $(cat "$W/helm.err")"
render --set datasets.f.image=s3://b/f,datasets.f.mountOptions.keep-versions=4 --set-string datasets.f.mountOptions.follow=true ||
    fail "a volume may not follow its tag: $(cat "$W/helm.err")"
refused "datasets.f: keysSecret is not for volumes that follow their tag" --set datasets.f.image=s3://b/f,datasets.f.keysSecret=k --set-string datasets.f.mountOptions.follow=true
refused "invalid propertyName 'AWS_SECRET_ACCESS_KEY'" --set env.AWS_SECRET_ACCESS_KEY=x
refused "at '/datasets/f/keysSecret': 'a/b' does not match" --set datasets.f.image=s3://b/f,datasets.f.keysSecret=a/b
refused "invalid propertyName 'driver'" --set datasets.driver.image=s3://b/f
refused "at '/kubeletDir': '/var/lib/kubelet/' does not match" --set kubeletDir=/var/lib/kubelet/
refused "at '/driver/inlineStores/0'" --set 'driver.inlineStores={lake}'
refused "at '/config/server'.*" --set config.server.cache=/x:1G

echo "== packed"
"$GRANARY_SOURCE/tools/package" chart "$W/packed" >"$W/said" 2>&1 || fail "$(cat "$W/said")"
"$HELM" lint --strict "$W/packed/granary-$version.chart.tgz" >"$W/lint" 2>&1 || fail "$(cat "$W/lint")"
render -f "$GRANARY_SOURCE/tests/flow/helm-values.yaml"
CHART=$W/packed/granary-$version.chart.tgz
mv "$W/objects.yaml" "$W/unpacked.yaml"
render -f "$GRANARY_SOURCE/tests/flow/helm-values.yaml"
diff "$W/unpacked.yaml" "$W/objects.yaml" || fail "the archive is another chart"
