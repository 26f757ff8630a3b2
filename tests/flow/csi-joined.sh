#!/bin/bash
# Volumes that join the node's server, as with the Helm chart: some options are theirs, the others the server's.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-csi.sh"

staging=$KUBELET_DIR/plugins/kubernetes.io/csi/csi.granary.io/slow/globalmount
mkdir -p "$W/tree/d"
for i in $(seq 200); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"

printf '[mount]\nfuse = yes\njoin = yes\n[server]\ncache = %s:64M\n' "$W/node-cache" >"$W/join.conf"
GRANARY_CONFIG=$W/join.conf start_driver
mkdir -p "$staging"
joined="stage('v', '$staging', {'image': '$W/store/faces', "
answers_with "INTERNAL no server answers at /run/granary/fuse" "$joined'noexec': 'true'})"
answers_with "UNAVAILABLE no server answers at /run/granary/nbd.sock or /run/granary/fuse" "capacity()"
background env -u GRANARY_CACHE "$GRANARY" serve --fuse /run/granary/fuse --cache "$W/node-cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>&1
NODE=$BACKGROUND_PID
wait_for 60 listens /run/granary/fuse.control
capacity=$(call "capacity({'image': 's3://b/f'}, {'csi.granary.io/driver': 'yes', 'csi.granary.io/node': 'node1'})")
[[ $capacity =~ ^OK\ [0-9]+$ ]] && [ "${capacity#OK }" -gt 40000000 ] && [ "${capacity#OK }" -le 67108864 ] || fail "capacity of a cache of 64M: $capacity"
[ "$(call "capacity()")" = "$capacity" ] || fail "without a topology: $(call "capacity()")"
[ "$(call "capacity({'quota': 'faces:16M'})")" = "OK 16777216" ] || fail "with a quota: $(call "capacity({'quota': 'faces:16M'})")"
[ "$(call "capacity(None, {'csi.granary.io/node': 'node2'})")" = "OK 0" ] || fail "of another node"
answers_with "INVALID_ARGUMENT an image is a filesystem" "capacity(cap=__import__('csi_client').capability(kind=1))"
answers_with "INVALID_ARGUMENT --memory is the server's: a mount that only joins a server cannot have it" "$joined'memory': '32M'})"
answers_with "INVALID_ARGUMENT volumeAttributes may not have 'hook': it would run a program of the node" "$joined'hook': '/bin/true'})"
answers_with "INVALID_ARGUMENT --fence is none or warmed, not 'often'" "$joined'fence': 'often'})"
answers_with "INVALID_ARGUMENT --quota faces:15M: at least 16M" "$joined'quota': 'faces:15M'})"
answers_with "INVALID_ARGUMENT --quota cars:16M is of another image than 'faces': a mount that only joins a server sets that of its image" "$joined'quota': 'cars:16M'})"
answers_with "INVALID_ARGUMENT --warm all: write none or metadata" "$joined'warm': 'all'})"
[ -z "$(find /run/granary -name state.json)" ] || fail "a volume that was refused has left a state"
answers_with OK "$joined'fence': 'warmed'})"
! cat "$staging"/d/* >"$W/null" 2>&1 || fail "it is fetched for a reader, though its volume is behind a fence"
granary warm -q --all "$staging" || fail "it is not warmed"
"$TREECMP" "$W/tree" "$staging"
answers_with OK "unstage('v', '$staging')"
followed="stage('v', '$staging', {'image': '$W/store/faces:latest', 'follow': 'true', 'fence': 'warmed'})"
for _ in 1 2; do answers_with OK "$followed"; done
granary warm -q --all "$staging" || fail "what is followed is not warmed"
"$TREECMP" "$W/tree" "$staging/current"
answers_with OK "unstage('v', '$staging')"
answers_with OK "$joined'quota': '16M', 'warm': 'none'})"
curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -e '.exports | map(.quota) == [16777216]' >"$W/null" || fail "it has no quota"
"$TREECMP" "$W/tree" "$staging"
answers_with OK "unstage('v', '$staging')"
kill "$NODE"
wait "$NODE" || fail "the server failed: $(cat "$W/serve.out")"
end_driver
