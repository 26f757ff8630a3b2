#!/bin/bash
# granary-csi, as kubelet calls it: every call, right and wrong; a mount that takes longer than its call, and than the
# driver; drivers that come and go.
# ctest: lock=loop
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

[ "$(id -u)" = 0 ] || skip "mounting needs root"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"
CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
/usr/bin/python3 -c "import grpc" 2>"$W/null" || skip "no gRPC for Python: apt-get install python3-grpcio"

export PATH=$GRANARY_BUILD/cli:$PATH PYTHONDONTWRITEBYTECODE=1
kubelet=$W/kubelet
socket=$kubelet/plugins_registry/csi.granary.io-reg.sock
staging=$kubelet/plugins/kubernetes.io/csi/csi.granary.io/slow/globalmount
target=$kubelet/pods/p/volumes/kubernetes.io~csi/v/mount
extra_cleanup() { "$GRANARY" umount --force "$staging" 2>"$W/null"; "$GRANARY" umount --force "$target" 2>"$W/null"; }
mkdir -p "$kubelet/plugins_registry" "$kubelet/pods" "$W/tree/d" "$staging"
for i in $(seq 200); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" build -q "$W/tree/d" "$W/store/other" >"$W/built"
mkdir "$W/inline" "$W/inline2"
"$GRANARY" build -q "$W/tree" "$W/inline/faces" >"$W/built"
cp -r "$W/inline/." "$W/inline2"

# start_driver OPTION...: its process is in DRIVER
start_driver() {
    background "$CSI" --kubelet-dir "$kubelet" --node-id node1 "$@" 2>>"$W/driver.log"
    DRIVER=$BACKGROUND_PID
    wait_for 60 listens "$socket"
}

# call PYTHON...: the answer of one call, as CODE SENTENCE
call() {
    GRANARY_CLIENT=$GRANARY_SOURCE/tests/servers /usr/bin/python3 -c "
import os, sys
sys.path.append(os.environ['GRANARY_CLIENT'])
from csi_client import Driver
print(*Driver('$socket').$1)"
}

# refused TEXT OPTION...: the command line is, with that text
refused() {
    local text=$1 status=0
    shift
    "$CSI" "$@" 2>"$W/refused" || status=$?
    [ $status = 2 ] && grep -F -- "$text" "$W/refused" >"$W/null" || fail "granary-csi $*: $status, $(cat "$W/refused")"
}

echo "== the command line"
refused usage --no-such
refused absolute --kubelet-dir var
refused absolute --kubelet-dir /var/
refused absolute --node-id ""
refused absolute extra
refused "is no store" --inline-stores lake
refused "names no bucket" --inline-stores s3://
"$CSI" --help | grep -F -- --kubelet-dir >"$W/null" || fail "no help"
status=0
"$CSI" --kubelet-dir "$W/none" 2>"$W/refused" || status=$?
[ $status = 1 ] && grep -F "$W/none/plugins_registry" "$W/refused" >"$W/null" || fail "no directory: $status, $(cat "$W/refused")"

start_driver --inline-stores "$W/none" --inline-stores "$W/inline/"
[ "$(stat -c %a "$socket")" = 600 ] || fail "others may use the socket"
/usr/bin/python3 "$GRANARY_SOURCE/tests/flow/csi-calls.py" "$socket" "$kubelet" "$W/tree" "$W/store/faces" "$W/store/other" \
    "$W/inline/faces" || fail "see above"
grep -F "hunter2" "$W/driver.log" && fail "a secret is in the log"
background "$CSI" --controller "$W/controller.sock" 2>>"$W/driver.log"
wait_for 60 listens "$W/controller.sock"
answer=$(socket=$W/controller.sock && call "create(parameters={'image': '/store/faces'})")
[[ $answer = "OK "*"'image': '/store/faces'"* ]] || fail "--controller: $answer"
kill "$BACKGROUND_PID"
wait_for 60 gone "$BACKGROUND_PID"
[ ! -e "$W/controller.sock" ] || fail "the controller's socket is left"
kill "$DRIVER"
wait_for 60 gone "$DRIVER"
[ ! -e "$socket" ] || fail "the socket is left: kubelet takes the driver for running"

echo "== a mount that takes longer than its call, and than the driver"
serve_silent "$W/store"
touch "$W/dead"
start_driver
slow="stage('v', '$staging', {'image': '$STORE_URL/faces'}"
answer=$(call "$slow, timeout=1)")
[[ $answer = DEADLINE_EXCEEDED* ]] || fail "a slow store: $answer"
answer=$(call "$slow)")
[[ $answer = "ABORTED an earlier call for volume v"* ]] || fail "called again: $answer"
[[ $(call "publish('other', '$staging', '$kubelet/pods/p/volumes/kubernetes.io~csi/v/mount')") = NOT_FOUND* ]] || fail "another volume waits"
kill -9 "$DRIVER"
wait_for 60 gone "$DRIVER"
start_driver
rm "$W/dead"
wait_for 120 mountpoint -q "$staging"
wait_for 60 eval "[[ \$(call \"\$slow)\") = OK* ]]"
"$TREECMP" "$W/tree" "$staging"
[[ $(call "unstage('v', '$staging')") = OK* ]] || fail "not unstaged"

echo "== an inline volume, whose driver is killed"
mkdir -p "${target%/*}"
inline="publish('w', '', '$target', attributes={'csi.storage.k8s.io/ephemeral': 'true', 'image': '$STORE_URL/faces'}"
answer=$(call "$inline)")
[[ $answer = "PERMISSION_DENIED inline volumes are not allowed on this node"* ]] || fail "no --inline-stores: $answer"
kill "$DRIVER"
wait_for 60 gone "$DRIVER"
start_driver --inline-stores "$STORE_URL"
touch "$W/dead"
[[ $(call "$inline, timeout=1)") = DEADLINE_EXCEEDED* ]] || fail "a slow store"
[[ $(call "$inline)") = "ABORTED an earlier call for volume w"* ]] || fail "called again"
kill -9 "$DRIVER"
wait_for 60 gone "$DRIVER"
start_driver --inline-stores "$STORE_URL"
rm "$W/dead"
wait_for 120 mountpoint -q "$target"
wait_for 60 eval "[[ \$(call \"\$inline)\") = OK* ]]"
"$TREECMP" "$W/tree" "$target"
[[ $(call "unpublish('w', '$target')") = OK* ]] || fail "not unpublished"
[ ! -e "$target" ] || fail "its directory is left"
[ -z "$(find /run/granary -name state.json)" ] || fail "the state of a mount is left"
! grep -F " $kubelet" /proc/self/mountinfo || fail "a mount is left"
