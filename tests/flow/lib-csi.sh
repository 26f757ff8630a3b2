# shellcheck shell=bash
# Sourced after lib.sh by the tests of the volume driver: a directory as kubelet's, and calls as kubelet makes them.
#
#   KUBELET_DIR, SOCKET         the directory, and the driver's socket there
#   start_driver OPTION...      its process is in DRIVER, its log in $W/driver.log
#   end_driver [SIGNAL]
#   call PYTHON                 the answer of one call of tests/servers/csi_client.py, as CODE SENTENCE
#   answers_with TEXT PYTHON    the answer begins with that text
#   nothing_left                no mount, no state, no server, no loop device

needs_fuse
CSI=$GRANARY_BUILD/csi/granary-csi
[ -x "$CSI" ] || skip "granary-csi is not built: apt-get install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
/usr/bin/python3 -c "import grpc" 2>"$W/null" || skip "no gRPC for Python: apt-get install python3-grpcio"

export PATH=$GRANARY_BUILD/cli:$PATH PYTHONDONTWRITEBYTECODE=1
KUBELET_DIR=$W/kubelet
SOCKET=$KUBELET_DIR/plugins_registry/csi.granary.io-reg.sock
mkdir -p "$KUBELET_DIR/plugins_registry" "$KUBELET_DIR/pods" "$KUBELET_DIR/plugins/kubernetes.io/csi/csi.granary.io"

start_driver() {
    background "$CSI" --kubelet-dir "$KUBELET_DIR" --node-id node1 "$@" 2>>"$W/driver.log"
    DRIVER=$BACKGROUND_PID
    wait_for 60 listens "$SOCKET"
}

end_driver() {
    kill "-${1:-TERM}" "$DRIVER"
    wait_for 60 gone "$DRIVER"
}

call() {
    GRANARY_CLIENT=$GRANARY_SOURCE/tests/servers /usr/bin/python3 -c "
import os, sys
sys.path.append(os.environ['GRANARY_CLIENT'])
from csi_client import Driver
print(*Driver('$SOCKET').$1)"
}

answers_with() {
    local answer
    answer=$(call "$2")
    [[ $answer = "$1"* ]] || fail "$2: $answer, not $1"
}

nothing_left() {
    ! grep -F " $KUBELET_DIR" /proc/self/mountinfo || fail "a mount is left"
    [ -z "$(find /run/granary -name state.json)" ] || fail "the state of a mount is left"
    wait_for 60 eval '! own_servers >"$W/null"'
    wait_for 60 no_loop_on "$W"
}
