#!/bin/bash
# Volumes with S3 keys of their own (nodeStageSecretRef, nodePublishSecretRef): two users of a real server whose buckets
# exclude each other, on a node that has no keys. A volume's keys open its image and no other's, are replaced when kubelet
# publishes again, and are nowhere but in the memory of the server.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-keys.sh"
. "$GRANARY_SOURCE/tests/flow/lib-csi.sh"

export GRANARY_CACHE=$W/cache:64M

PAD=$(printf 'p%.0s' {1..40}) # before each secret: the first bytes of freed memory are soon others
staging() { echo "$KUBELET_DIR/plugins/kubernetes.io/csi/csi.granary.io/$1/globalmount"; }
target() { echo "$KUBELET_DIR/pods/p/volumes/kubernetes.io~csi/$1/mount"; }
# secrets USER NUMBER: a pair of keys, as a call has them
secrets() { echo "{'AWS_ACCESS_KEY_ID': '$1$2-$ID', 'AWS_SECRET_ACCESS_KEY': '${PAD}hidden$1$2-$ID'}"; }
attributes() { echo "{'image': '$(image "$1")', 'fuse': 'true'}"; }
# stage VOLUME USER SECRETS: with the image of the user; publish: from there
stage() { echo "stage('$1', '$(staging "$1")', $(attributes "$2"), secrets=$3)"; }
publish() { echo "publish('$1', '$(staging "$1")', '$(target "$1")', attributes=$(attributes "$2"), secrets=$3)"; }
inline() {
    echo "publish('$1', '', '$(target "$1")', attributes={'csi.storage.k8s.io/ephemeral': 'true', 'image': '$(image "$2")'}, secrets=$3)"
}

two_users 2000000
for volume in a b c w; do mkdir -p "$(staging $volume)" "$(dirname "$(target $volume)")"; done

# The granary that the driver runs: it notes how, then is granary.
mkdir "$W/bin"
cat >"$W/bin/granary" <<SH
#!/bin/bash
{ tr '\\0' ' ' </proc/\$\$/cmdline; echo; tr '\\0' '\\n' </proc/\$\$/environ; } >>"$W/ran"
exec "$GRANARY" "\$@"
SH
chmod +x "$W/bin/granary"
PATH=$W/bin:$PATH start_driver --inline-stores "s3://lake-alice-$ID"

echo "== two volumes with keys of their own, of a node that has none"
answers_with OK "$(stage a alice "$(secrets alice 1)")"
answers_with OK "$(stage b bob "$(secrets bob 1)")"
answers_with OK "$(publish a alice None)"
answers_with OK "$(publish b bob "$(secrets bob 1)")"
cmp "$W/alice/file" "$(target a)/file"
cmp "$W/bob/file" "$(target b)/file"
control=$(jq -r .control /run/granary/*/state.json | sort -u)
[ "$(wc -l <<<"$control")" = 1 ] || fail "not one server: $control"

echo "== no volume gets by another's keys what its own do not open"
[[ $(call "$(stage c bob "$(secrets alice 1)")") = "INTERNAL"*"refuses these credentials"* ]] || fail "alice's keys for bob's image"
[[ $(call "$(stage c bob None)") = "INTERNAL"*"no S3 credentials"* ]] || fail "no keys for bob's image"
! mountpoint -q "$(staging c)" || fail "it is mounted all the same"
answers_with "INVALID_ARGUMENT the secret AWS_SECRET_ACCESS_KEY is missing" "$(stage c alice "{'AWS_ACCESS_KEY_ID': 'alice1-$ID'}")"

echo "== kubelet publishes again: the keys are replaced, or stay"
new_keys bob 2
answers_with "UNAVAILABLE the volume keeps its earlier keys: " "$(publish b bob "$(secrets alice 1)")"
answers_with "UNAVAILABLE the volume keeps its earlier keys: " "$(stage b bob "$(secrets alice 1)")"
answers_with OK "$(publish b bob None)"
answers_with OK "$(publish b bob "$(secrets bob 2)")"
answers_with OK "$(publish b bob "$(secrets bob 2)")"
end_keys bob 1
"$GRANARY" cache evict --all --control "$control" >"$W/out"
forget_pages "$(target b)/file"
cmp "$W/bob/file" "$(target b)/file" || fail "bob's volume with the new keys"
answers_with OK "$(stage b bob "$(secrets bob 2)")" # as after a restart of kubelet

echo "== an inline volume with keys of its pod"
[[ $(call "$(inline w alice None)") = INTERNAL*"no S3 credentials"* ]] || fail "no keys for an inline volume"
[[ $(call "$(inline w bob "$(secrets bob 2)")") = PERMISSION_DENIED*--inline-stores* ]] || fail "keys open a store that is not allowed"
[ ! -e "$(target w)" ] || fail "its directory is left"
answers_with OK "$(inline w alice "$(secrets alice 1)")"
answers_with "UNAVAILABLE the volume keeps its earlier keys: " "$(inline w alice "$(secrets bob 2)")"
answers_with OK "$(inline w alice "$(secrets alice 1)")"
cmp "$W/alice/file" "$(target w)/file"

echo "== they are nowhere else"
secret='hidden[ab]'
# nowhere FILE...: no secret is in these files
nowhere() { ! grep -qse "$secret" "$@" || fail "a secret in $(grep -lse "$secret" "$@")"; }
grep -q -- "granary mount --keys=/proc/self/fd/0 --ublk=no --direct=no --fuse -- $(image bob) " "$W/ran" || fail "how granary was run: $(grep mount "$W/ran")"
nowhere "$W/ran" "$W/driver.log"
nowhere -r /run/granary "$W/cache/exports" "$LOGS_DIRECTORY"
for pid in "$DRIVER" $(own_servers); do nowhere "/proc/$pid/cmdline" "/proc/$pid/environ"; done
! find "/proc/$DRIVER/fd" -lname '*memfd*' | grep . || fail "the driver keeps a file in memory"
memory() { python3 "$GRANARY_SOURCE/tests/tools/memory.py" "$@"; }
[ -z "$(memory "$DRIVER" "hiddenalice1-$ID" "hiddenbob1-$ID" "hiddenbob2-$ID")" ] || fail "a secret is in the driver's memory"
for pid in $(own_servers); do memory "$pid" "hiddenbob2-$ID"; done >"$W/found"
grep -q bob2 "$W/found" || fail "no keys are found in the server's memory: the test proves nothing"

for volume in a b w; do answers_with OK "unpublish('$volume', '$(target $volume)')"; done
for volume in a b c; do answers_with OK "unstage('$volume', '$(staging $volume)')"; done
end_driver
nothing_left
