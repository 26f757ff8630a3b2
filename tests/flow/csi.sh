#!/bin/bash
# granary-csi, as kubelet calls it: every call, right and wrong; a mount that takes longer than its call, and than the
# driver; drivers that come and go; volumes that are taken down when their server is dead.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-csi.sh"

staging=$KUBELET_DIR/plugins/kubernetes.io/csi/csi.granary.io/slow/globalmount
target=$KUBELET_DIR/pods/p/volumes/kubernetes.io~csi/v/mount
mkdir -p "$W/tree/d" "$staging" "${target%/*}"
for i in $(seq 200); do head -c 5000 /dev/urandom >"$W/tree/d/$i"; done
echo hello >"$W/tree/hello"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" build -q "$W/tree/d" "$W/store/other" >"$W/built"
mkdir "$W/inline" "$W/inline2"
"$GRANARY" build -q "$W/tree" "$W/inline/faces" >"$W/built"
cp -r "$W/inline/." "$W/inline2"

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
[ "$(stat -c %a "$SOCKET")" = 600 ] || fail "others may use the socket"
/usr/bin/python3 "$GRANARY_SOURCE/tests/flow/csi-calls.py" "$SOCKET" "$KUBELET_DIR" "$W/tree" "$W/store/faces" "$W/store/other" \
    "$W/inline/faces" || fail "see above"
grep -F "hunter2" "$W/driver.log" && fail "a secret is in the log"
background "$CSI" --controller "$W/controller.sock" 2>>"$W/driver.log"
wait_for 60 listens "$W/controller.sock"
answer=$(SOCKET=$W/controller.sock && call "create(parameters={'image': '/store/faces'})")
[[ $answer = "OK "*"'image': '/store/faces'"* ]] || fail "--controller: $answer"
answer=$(SOCKET=$W/controller.sock && call "capacity()")
[[ $answer = "UNIMPLEMENTED only the driver of a node knows its capacity" ]] || fail "the capacity of no node: $answer"
answer=$(SOCKET=$W/controller.sock && call "call('/csi.v1.Controller/ControllerGetCapabilities')")
[ "$answer" = "OK b'\\n\\x04\\n\\x02\\x08\\x01'" ] || fail "what a controller offers: $answer"
kill "$BACKGROUND_PID"
wait_for 60 gone "$BACKGROUND_PID"
[ ! -e "$W/controller.sock" ] || fail "the controller's socket is left"
end_driver
[ ! -e "$SOCKET" ] || fail "the socket is left: kubelet takes the driver for running"

echo "== a mount that takes longer than its call, and than the driver"
serve_silent "$W/store"
touch "$W/dead"
start_driver
slow="stage('v', '$staging', {'image': '$STORE_URL/faces'}"
answer=$(call "$slow, timeout=1)")
[[ $answer = DEADLINE_EXCEEDED* ]] || fail "a slow store: $answer"
answer=$(call "$slow)")
[[ $answer = "ABORTED an earlier call for volume v"* ]] || fail "called again: $answer"
for other in "unstage('v', '$staging')" "publish('v', '$staging', '$target')" "unpublish('v', '$target')"; do
    answers_with "ABORTED an earlier call for volume v" "$other"
done
answers_with FAILED_PRECONDITION "publish('other', '$staging', '$target')" # another volume does not wait
end_driver KILL
start_driver
rm "$W/dead"
wait_for 120 mountpoint -q "$staging"
wait_for 60 eval "[[ \$(call \"\$slow)\") = OK* ]]"
"$TREECMP" "$W/tree" "$staging"
[[ $(call "unstage('v', '$staging')") = OK* ]] || fail "not unstaged"

echo "== an inline volume, whose driver is killed"
inline="publish('w', '', '$target', attributes={'csi.storage.k8s.io/ephemeral': 'true', 'image': '$STORE_URL/faces'}"
answer=$(call "$inline)")
[[ $answer = "PERMISSION_DENIED inline volumes are not allowed on this node"* ]] || fail "no --inline-stores: $answer"
end_driver
start_driver --inline-stores "$STORE_URL"
touch "$W/dead"
[[ $(call "$inline, timeout=1)") = DEADLINE_EXCEEDED* ]] || fail "a slow store"
[[ $(call "$inline)") = "ABORTED an earlier call for volume w"* ]] || fail "called again"
end_driver KILL
start_driver --inline-stores "$STORE_URL"
rm "$W/dead"
wait_for 120 mountpoint -q "$target"
wait_for 60 eval "[[ \$(call \"\$inline)\") = OK* ]]"
"$TREECMP" "$W/tree" "$target"
[[ $(call "unpublish('w', '$target')") = OK* ]] || fail "not unpublished"
[ ! -e "$target" ] || fail "its directory is left"

echo "== the server is dead: volumes are taken down all the same"
kill_servers() {
    [ -n "$(own_servers)" ] || fail "no server: the test proves nothing"
    own_servers | xargs kill -9
    wait_for 60 eval '! own_servers >"$W/null"'
    ! cat "$1/hello" 2>"$W/null" || fail "it can be read: the test proves nothing"
}
mkdir -p "$staging"
answers_with OK "stage('v', '$staging', {'image': '$W/store/faces', 'fuse': 'true'})"
answers_with OK "publish('v', '$staging', '$target')"
kill_servers "$target"
for _ in 1 2; do answers_with OK "unpublish('v', '$target')"; done
for _ in 1 2; do answers_with OK "unstage('v', '$staging')"; done
answers_with OK "$inline)"
kill_servers "$target"
for _ in 1 2; do answers_with OK "unpublish('w', '$target')"; done
nothing_left
