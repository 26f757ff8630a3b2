#!/bin/bash
# The shared cache proxies are the addresses of a name, as those of a proxy on every node behind a headless Service of
# Kubernetes: addresses come and go while clients read, the name is unknown for a while, and no read fails. The proxies are
# those of deploy/kubernetes/shared-cache.yaml, whose parts have to fit each other.
# ctest: long
. "$(dirname "$0")/lib-l2.sh"
python3 -c 'import yaml' 2>"$W/null" || skip "no python3-yaml here (apt-get install python3-yaml)"

echo "== the parts of the example fit each other"
example=$GRANARY_SOURCE/deploy/kubernetes/shared-cache.yaml conf=$GRANARY_SOURCE/deploy/nginx/granary-l2.conf
python3 -c 'import json, sys, yaml; print(json.dumps([d for d in yaml.safe_load_all(sys.stdin) if d]))' <"$example" >"$W/objects.json"
holds() { jq -e "$2" "$W/objects.json" >"$W/null" || fail "not so: $1"; }
service='(map(select(.kind == "Service"))[0])' set='(map(select(.kind == "DaemonSet"))[0])' pod="$set.spec.template.spec"
cache=$(sed -n 's/^proxy_cache_path \([^ ]*\) .*/\1/p' "$conf")
port=$(sed -n 's/^ *listen \([0-9]*\);.*/\1/p' "$conf")
name=$(jq -r "$service.metadata | .name + \".\" + .namespace + \".svc.cluster.local\"" "$W/objects.json")
holds "the Service is headless" "$service.spec.clusterIP == \"None\""
holds "the Service selects the pods" "$service.spec.selector == $set.spec.template.metadata.labels"
holds "the DaemonSet selects the pods" "$set.spec.selector.matchLabels == $set.spec.template.metadata.labels"
holds "ports" "$pod.containers[0].readinessProbe.tcpSocket.port == $port and $service.spec.ports[0].port == $port"
holds "the addresses are the nodes'" "$pod.hostNetwork"
holds "the cache outlives a pod" "$pod.containers[0].volumeMounts as \$m | $pod.volumes | map(select(.hostPath).name) as \$v | \$m | map(select(.mountPath == \"$cache\").name) == \$v"
holds "nothing else is written to the node" "$pod.containers[0].securityContext | .readOnlyRootFilesystem and .runAsNonRoot and .capabilities.drop == [\"ALL\"]"
holds "no token is mounted" "$pod.automountServiceAccountToken == false"
grep -q "create configmap $(jq -r "$pod.volumes | map(.configMap // empty)[0].name" "$W/objects.json") .*granary-l2.conf" "$example" || fail "the command for the ConfigMap makes another one"
grep -rqF "dns+http://$name" "$GRANARY_SOURCE/docs/operations/shared-cache.md" || fail "the page has another name than $name"

make_images 4
free_port && STORE=$FREE_PORT
free_port && PORT=$FREE_PORT
store_config "127.0.0.1:$STORE"
background nginx -c "$W/store.conf" -g 'daemon off;'
wait_for 60 answers "$STORE"
for n in 1 2 3; do
    proxy_config "proxy$n" "127.0.0.1:$STORE" "127.0.0.$n:$PORT"
    background nginx -c "$W/proxy$n.conf" -g 'daemon off;'
    wait_for 60 bash -c "(exec 3<>/dev/tcp/127.0.0.$n/$PORT) 2>/dev/null"
done
LAST_PID=$BACKGROUND_PID

own_names
say "$name" 1 2

echo "== addresses come and go"
images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$STORE/lake/i$i"); done
background "$W/with-names" nbdkit -f -t 64 --unix "$W/a.sock" "$PLUGIN" "${images[@]}" \
    "l2=dns+http://$name:$PORT/lake" control="$W/a.control" disk-timeout="$DISK_TIMEOUT" 2>"$W/log"
wait_for 60 listens "$W/a.sock"
wait_for 60 addresses_are a 1 2
start_reader a
asked() { [ "$(of_proxies a "map(select(.url | contains(\"127.0.0.$1:\")).requests) | add // 0")" -gt 0 ]; }
wait_for 120 asked 1
say "$name" 1 2 3
wait_for 60 addresses_are a 1 2 3
wait_for 120 asked 3
say "$name" 2 1
wait_for 60 addresses_are a 1 2
kill_nginx "$LAST_PID"

echo "== the name is unknown"
say "$name"
wait_for 60 list_says a "$name"
addresses_are a 1 2 || fail "a failed look-up changed the proxies: $(addresses a)"
[ "$(status_of a .health)" = degraded ] || fail "health: not degraded"
say "$name" 2
wait_for 60 addresses_are a 2
goes_on a
end_reader a
