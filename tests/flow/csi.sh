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
extra_cleanup() { "$GRANARY" umount --force "$staging" 2>"$W/null"; }
mkdir -p "$kubelet/plugins_registry" "$kubelet/pods" "$W/tree/d" "$staging"
for i in $(seq 200); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" build -q "$W/tree/d" "$W/store/other" >"$W/built"

# start_driver: its process is in DRIVER
start_driver() {
    background "$CSI" --kubelet-dir "$kubelet" --node-id node1 2>>"$W/driver.log"
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
"$CSI" --help | grep -F -- --kubelet-dir >"$W/null" || fail "no help"
status=0
"$CSI" --kubelet-dir "$W/none" 2>"$W/refused" || status=$?
[ $status = 1 ] && grep -F "$W/none/plugins_registry" "$W/refused" >"$W/null" || fail "no directory: $status, $(cat "$W/refused")"

start_driver
[ "$(stat -c %a "$socket")" = 600 ] || fail "others may use the socket"
/usr/bin/python3 "$GRANARY_SOURCE/tests/flow/csi-calls.py" "$socket" "$kubelet" "$W/tree" "$W/store/faces" "$W/store/other" || fail "see above"
grep -F "hunter2" "$W/driver.log" && fail "a secret is in the log"
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
! grep -F " $kubelet" /proc/self/mountinfo || fail "a mount is left"
