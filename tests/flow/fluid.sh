#!/bin/bash
# The command of Fluid's pods, fluid-mount, run on what Fluid gives them (tests/data/fluid): each kind of it becomes a mount
# where Fluid's check looks for one, with S3 keys that no command line, environment, file or message has; keys are replaced
# under the mount; what a killed pod left is taken down; what is wrong gives one sentence.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

needs_fuse
mkdir "$W/etc"
mount -t tmpfs tmpfs "$W/etc"
mkdir "$W/etc/upper" "$W/etc/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$W/etc/upper,workdir=$W/etc/work" overlay /etc 2>"$W/err" ||
    skip "no overlay to put /etc/fluid into: $(cat "$W/err")"
no_keys
export GRANARY_CACHE=$W/cache:64M PATH=$GRANARY_BUILD/cli:$PATH
FLUID_MOUNT=$GRANARY_SOURCE/deploy/fluid/fluid-mount
CONFIG=/etc/fluid/config
SECRETS=/etc/fluid/secrets/granary-s3
ID=$$ # what makes this run's user and bucket other than an earlier one's
dir=
extra_cleanup() { [ -z "$dir" ] || granary umount --force "$dir" 2>"$W/null"; umount /etc "$W/etc"; }
mkdir -p $CONFIG $SECRETS "$W/tree"

head -c 2000000 /dev/urandom >"$W/tree/file"
ceph_s3 admin user create --uid "fluid-$ID" --display-name fluid --access-key "first-$ID" --secret-key "hidden/first-$ID" >"$W/out"
ceph_s3 admin key create --uid "fluid-$ID" --access-key "second-$ID" --secret-key "hidden/second-$ID" >"$W/out"
ACCESS=first-$ID SECRET=hidden/first-$ID ceph_s3 bucket "lake-$ID"
AWS_ACCESS_KEY_ID=first-$ID AWS_SECRET_ACCESS_KEY=hidden/first-$ID granary build -q "$W/tree" "s3://lake-$ID/images/faces:v1" >"$W/out"
# secret NUMBER: the Secret's files; one of them ends with a newline, as those of an editor do
secret() { printf '%s' "$1-$ID" >$SECRETS/AWS_ACCESS_KEY_ID; echo "hidden/$1-$ID" >$SECRETS/AWS_SECRET_ACCESS_KEY; }
secret first

# recorded FILE [FILTER]: what Fluid gave, for the servers and directories of this test, changed by a filter of jq
recorded() {
    sed "s|://lake/|://lake-$ID/|; s|https://s3.example.net|$AWS_ENDPOINT_URL|; s|/runtime-mnt/|$W/runtime-mnt/|" \
        "$GRANARY_SOURCE/tests/data/fluid/$1" | jq -c ".mounts[0].options.fuse = \"true\" | ${2:-.}" >"$CONFIG/$CONFIG_NAME"
    dir=$(jq -r '.targetPath | strings' "$CONFIG/$CONFIG_NAME")
}
CONFIG_NAME=config.json

# fluid_sees TYPE: as csi/shell/check_mount.sh of Fluid: a line of mountinfo with the path and with the type
fluid_sees() { grep -F "$dir" /proc/self/mountinfo | grep -F "$1" >"$W/null" && stat "$dir" >"$W/null"; }

start() {
    background "$FLUID_MOUNT" >"$W/mount.out" 2>"$W/mount.err"
    POD=$BACKGROUND_PID
    wait_for 60 grep -qF "is mounted on $dir" "$W/mount.out"
    fluid_sees erofs || fail "Fluid does not see the mount: $(grep -F "$dir" /proc/self/mountinfo)"
}
ends() {
    kill -TERM "$POD"
    wait "$POD" || fail "exit $? at SIGTERM: $(cat "$W/mount.err")"
    ! fluid_sees erofs || fail "it is mounted"
}

echo "== a ThinRuntime: mounted where Fluid looks, as type erofs, with the Secret's keys in no command line"
recorded thin.json
start
cmp "$W/tree/file" "$dir/file" || fail "wrong byte"
grep -F " $dir ro,nosuid,nodev,noexec" /proc/self/mountinfo >"$W/null" || fail "options: $(grep -F "$dir" /proc/self/mountinfo)"
server=$(cat /run/granary/*/state.json | jq .server.pid)
# shellcheck disable=SC2046
for pid in "$POD" "$server" $(pgrep -P "$server"); do
    ! grep -qsF hidden "/proc/$pid/cmdline" "/proc/$pid/environ" || fail "a secret in $(tr '\0' ' ' <"/proc/$pid/cmdline")"
done
! grep -rqsF hidden "$W/mount.out" "$W/mount.err" /run/granary "$W/log" || fail "a secret in $(grep -rlsF hidden "$W" /run/granary)"

echo "== keys are replaced under the mount"
# keys_refused SENTENCE
keys_refused() {
    if "$FLUID_MOUNT" keys >"$W/out" 2>"$W/err"; then fail "not refused: $1"; fi
    grep -qF -- "$1" "$W/err" && ! grep -qF hidden "$W/err" || fail "no '$1': $(cat "$W/err")"
}
secret third
keys_refused "the server does not know the access key"
secret second
"$FLUID_MOUNT" keys >"$W/out" 2>"$W/err" || fail "new keys: $(cat "$W/err")"
grep -qF "$dir has new keys" "$W/err" || fail "$(cat "$W/err")"
rm $SECRETS/AWS_SECRET_ACCESS_KEY
keys_refused "the Secret has no $SECRETS/AWS_SECRET_ACCESS_KEY"
secret second

echo "== a DataProcess warms it, in processes and namespaces of its own"
unshare --mount --pid --fork --mount-proc bash -c "GRANARY_CACHE=none $GRANARY warm --all --json" >"$W/warm" 2>"$W/err" || fail "warm: $(cat "$W/err")"
tail -1 "$W/warm" | jq -e '.failed_chunks // 0 == 0' >"$W/null" || fail "warm: $(cat "$W/warm")"

echo "== a pod that was killed: the next one takes down what it left"
kill -9 "$POD" "$server"
pkill -9 -P "$server" || true
wait_for 60 gone "$server"
start
cmp "$W/tree/file" "$dir/file" || fail "wrong byte after a kill"
ends
keys_refused "nothing is mounted on $dir"

echo "== the other kinds of configuration"
reads_and_ends() {
    start
    cmp "$W/tree/file" "$dir/file" || fail "wrong byte"
    ends
}
recorded thin-secret.json ".mounts[0].options.AWS_ACCESS_KEY_ID = \"first-$ID\" | .mounts[0].options.AWS_SECRET_ACCESS_KEY = \"hidden/first-$ID\""
reads_and_ends
recorded thin-claim.json
reads_and_ends
CONFIG_NAME=runtime.json
export FLUID_RUNTIME_CONFIG_PATH=$CONFIG/runtime.json
recorded cache.json 'del(.worker)' # fluid-worker.sh has them
reads_and_ends

echo "== what is wrong gives one sentence"
# refuses SENTENCE FILE FILTER
refuses() {
    recorded "$2" "$3"
    one_sentence "$1"
}
one_sentence() {
    if timeout 60 "$FLUID_MOUNT" >"$W/out" 2>"$W/err"; then fail "not refused: $1"; fi
    [ "$(wc -l <"$W/err")" = 1 ] && grep -qF -- "$1" "$W/err" && ! grep -qF hidden "$W/err" || fail "no '$1', or more: $(cat "$W/err")"
    [ ! -s "$W/out" ] || fail "it began: $(cat "$W/out")"
}
refuses "has exactly one mount" thin.json '.mounts += .mounts'
refuses "has exactly one mount" thin.json '.mounts = {}'
refuses "has exactly one mount" thin.json 'del(.mounts)'
refuses "the mount is not an object" thin.json '.mounts = ["hidden"]'
refuses "mountPoint is not a line of text" thin.json 'del(.mounts[0].mountPoint)'
refuses "mountPoint is not a line of text" thin.json '.mounts[0].mountPoint = "s3://a\nwrong b"'
refuses "there is no image" thin.json '.mounts[0].mountPoint = ""'
refuses "path can only be /" thin.json '.mounts[0].path = "/train"'
refuses "targetPath is not a line of text" thin.json 'del(.targetPath)'
refuses "targetPath is not an absolute path" thin.json '.targetPath = "runtime-mnt"'
refuses "targetPath is not an absolute path" thin.json '.targetPath = "/runtime-mnt/../etc"'
refuses "options is not an object" thin.json '.mounts[0].options = ["hidden"]'
refuses 'option "endpoint" is not a line of text' thin.json '.mounts[0].options.endpoint = 5'
refuses 'option "endpoint" is not a line of text' thin.json '.mounts[0].options.endpoint = "a\nb"'
refuses 'option "-f" is not one of granary mount' thin.json '.mounts[0].options["-f"] = "true"'
refuses 'option "a b\n" is not one of granary mount' thin.json '.mounts[0].options["a b\n"] = "true"'
refuses "option env-file cannot be given in a Dataset" thin.json '.mounts[0].options["env-file"] = "/etc/shadow"'
refuses "option ublk cannot be given in a Dataset" thin.json '.mounts[0].options.ublk = "true"'
refuses "option trust comes from a Secret" thin.json '.mounts[0].options.trust = "/etc/fluid/secrets/granary-s3/trust"'
refuses "option trust comes from a Secret" cache.json '.mounts[0].encryptOptions.trust = "/etc/fluid/secrets/granary-s3/trust"'
refuses "AWS_ACCESS_KEY_ID: the Secret has no /etc/fluid/secrets/../../shadow" thin.json \
    '.mounts[0].options.AWS_ACCESS_KEY_ID = "/etc/fluid/secrets/../../shadow"'
refuses "AWS_ACCESS_KEY_ID: the Secret has no /etc/fluid/secrets/other/key" thin.json \
    '.mounts[0].options.AWS_ACCESS_KEY_ID = "/etc/fluid/secrets/other/key"'
refuses "the volume of claim other" thin-claim.json '.mounts[0].mountPoint = "pvc://other" | .persistentVolumeAttrs.other = "hidden"'
refuses "claim faces is not of the driver csi.granary.io" thin-claim.json '.persistentVolumeAttrs.faces.driver = "other"'
refuses "claim faces is not of the driver csi.granary.io" thin-claim.json 'del(.persistentVolumeAttrs)'
refuses "image is not a line of text" thin-claim.json 'del(.persistentVolumeAttrs.faces.volumeAttributes)'
refuses "options of the client is not an object" cache.json '.client.options = "hidden"'
refuses "unknown option --fenc" thin.json '.mounts[0].options.fenc = "hidden"' # granary mount's own sentence
echo '["hidden"]' >$CONFIG/runtime.json
one_sentence "it is not an object"
echo 'hidden' >$CONFIG/runtime.json
one_sentence "$CONFIG/runtime.json is missing, or is not JSON"
rm $CONFIG/runtime.json
one_sentence "$CONFIG/runtime.json is missing, or is not JSON"
