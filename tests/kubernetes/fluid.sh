#!/bin/bash
# The files of deploy/fluid against Fluid's own definitions, by a real API server: every object is accepted with strict
# validation, and so are the pods that they describe; one with a misspelt field is not. What tests/data/fluid says of
# the Datasets is what stands in them.
# ctest: long lock=cluster
CLUSTER_NEEDS=${GRANARY_SOURCE:?run by ctest}/tests/kubernetes/lib-fluid.sh
. "$GRANARY_SOURCE/tests/kubernetes/lib-cluster.sh"
. "$GRANARY_SOURCE/tests/kubernetes/lib-fluid.sh"

(cd "$CRDS" && sha256sum --quiet -c "$SUMS") || fail "these are other definitions than those of commit $COMMIT"
mkdir -p "$W/log"
cluster_start

echo "== Fluid's definitions"
kubectl apply --server-side -f "$CRDS" >"$W/out"
kubectl wait --for=condition=Established --timeout=60s -f "$CRDS" >"$W/out"

# accepted FILE: by the API server, which keeps nothing of it
accepted() { kubectl apply --dry-run=server --validate=strict -o json -f "$1"; }

echo "== every object of deploy/fluid is accepted"
objects=0
for file in "$GRANARY_SOURCE"/deploy/fluid/*.yaml; do
    accepted "$file" >"$W/$(basename "$file" .yaml).json" || fail "$file"
    objects=$((objects + $(jq '.items // [.] | length' "$W/$(basename "$file" .yaml).json")))
done
echo "$objects objects"

echo "== so are the pods of the CacheRuntimeClass, as Fluid makes them of its templates"
jq '.items[] | select(.kind == "CacheRuntimeClass").topology | to_entries[] | {apiVersion: "apps/v1", kind: "StatefulSet", metadata: {name: .key},
    spec: {serviceName: .key, selector: {matchLabels: {app: .key}}, template: (.value.template * {metadata: {labels: {app: .key}}})}}' \
    "$W/cacheruntime.json" >"$W/pods.json"
accepted "$W/pods.json" >"$W/out" || fail "pods of the CacheRuntimeClass"

echo "== one with a misspelt field is not"
for file in "$GRANARY_SOURCE"/deploy/fluid/*.yaml; do
    sed -E '0,/^( *)(fileSystemType|mounts|processor|target|topology):/s//\1\2s:/' "$file" >"$W/wrong.yaml"
    ! cmp -s "$file" "$W/wrong.yaml" || fail "$file: nothing to misspell"
    if accepted "$W/wrong.yaml" >"$W/out" 2>"$W/err"; then fail "$file: a misspelt field is accepted"; fi
    grep -qE 'unknown field|Required value' "$W/err" || fail "$file: $(cat "$W/err")"
done

echo "== what Fluid's pods are given stands in these Datasets"
# given FILE RECORDED: mountPoint, path, and the names of the options
given() {
    jq -S '.items[] | select(.kind == "Dataset").spec.mounts[0] | {mountPoint, path, names: ((.options // {} | keys) + (.encryptOptions | map(.name)) | sort)}' \
        "$W/$1.json" >"$W/given"
    jq -S '.mounts[0] | {mountPoint, path, names: ((.options // {} | keys) + (.encryptOptions // {} | keys) - ["endpoint"] | sort)}' \
        "$GRANARY_SOURCE/tests/data/fluid/$2" | diff "$W/given" - || fail "$1.yaml (<) is not what $2 was made from (>)"
}
given dataset thin.json
given dataset thin-secret.json
given dataset cache.json
given claim thin-claim.json
