#!/bin/bash
# Volumes of Kubernetes that follow their tag: a pod gets what is newest when it starts, and keeps it; the follower, the
# driver and both killed; nothing is left.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-csi.sh"

staging=$KUBELET_DIR/plugins/kubernetes.io/csi/csi.granary.io/daily/globalmount
mkdir -p "$W/tree" "$staging"
head -c 3000000 /dev/urandom >"$W/tree/same"

# version N: the tag names it from now on
version() {
    echo "$1" >"$W/tree/number"
    "$GRANARY" build -q "$W/tree" "$W/store/faces:daily" >"$W/built"
}
# target N: where kubelet has the volume of pod N
target() { echo "$KUBELET_DIR/pods/p$1/volumes/kubernetes.io~csi/v/mount"; }
for pod in 1 2 3 4; do mkdir -p "$(dirname "$(target $pod)")"; done
attributes="{'image': '$W/store/faces:daily', 'follow': 'true', 'poll': '1s', 'keep-versions': '2', 'fuse': 'true'}"
stage="stage('v', '$staging', $attributes)"
# publish N, unpublish N: as kubelet does for pod N
publish() { answers_with OK "publish('v', '$staging', '$(target "$1")', attributes=$attributes)"; }
unpublish() { answers_with OK "unpublish('v', '$(target "$1")')"; }
# reads N VERSION: what pod N has
reads() { [ "$(cat "$(target "$1")/number")" = "$2" ] || fail "pod $1 has version $(cat "$(target "$1")/number"), not $2"; }
newest() { [ "$(cat "$staging/current/number")" = "$1" ]; }
state() { jq -r "$1" /run/granary/tag-*/follow.json; }
followed() { kill -0 "$(state .pid)" 2>"$W/null"; }

version 1
start_driver

echo "== what is refused"
refuse() { answers_with "INVALID_ARGUMENT $1" "stage('v', '$staging', {'image': '$W/store/faces:daily', 'fuse': 'true', $2)"; }
refuse "volumeAttributes may not have 'hook'" "'follow': 'true', 'hook': '/bin/true'}"
refuse "--poll goes with --follow" "'poll': '5s'}"
refuse "--poll goes with --follow" "'follow': 'false', 'poll': '5s'}"
refuse "a volume that follows its tag has the node's credentials" "'follow': 'true'}, secrets={'AWS_ACCESS_KEY_ID': 'k', 'AWS_SECRET_ACCESS_KEY': 's'}"
answers_with FAILED_PRECONDITION "publish('v', '$staging', '$(target 1)')"
! mountpoint -q "$staging" || fail "a refused volume is mounted"

echo "== a pod gets the newest version, and keeps it"
for _ in 1 2; do answers_with OK "$stage"; done
publish 1
reads 1 1
as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
as_user ls / >"$W/null"
ls /run/granary-versions/*/ >"$W/null" || fail "no version below /run/granary-versions"
! as_user ls /run/granary-versions/* >"$W/null" 2>&1 || fail "a user of the node reaches the versions"
! touch "$(target 1)/new" 2>"$W/null" || fail "a pod can write"
version 2
wait_for 120 newest 2
publish 2
for _ in 1 2; do publish 1; done # as kubelet repeats it
reads 1 1
reads 2 2
"$TREECMP" "$W/tree" "$(target 2)"
answers_with OK "$stage"
answers_with "ALREADY_EXISTS $W/store/faces:daily is mounted on $staging and follows its tag" \
    "stage('v', '$staging', {'image': '$W/store/faces:daily', 'fuse': 'true'})"
answers_with "ALREADY_EXISTS another image is mounted on $staging" "stage('v', '$staging', {'image': '$W/store/faces:other', 'follow': 'true'})"
for path in "$staging" "$(target 1)" "$(target 2)"; do answers_with OK "stats('v', '$path')"; done
for pod in 1 2; do [[ $(call "health('v', '$(target $pod)')") = "OK []" ]] || fail "health: $(call "health('v', '$(target $pod)')")"; done
[[ $(call "health('v', '', '$staging')") = "OK []" ]] || fail "health: $(call "health('v', '', '$staging')")"

echo "== pods have all versions: the next one waits"
version 3
wait_for 60 eval '[[ $(state .reason) = "all 2 versions are in use"* ]]'
publish 3
reads 3 2
unpublish 1
wait_for 120 newest 3
for pod in 2 3; do reads $pod 2; done

echo "== driver and follower are killed, as with the driver's pod: kubelet's next publish of any pod starts another follower"
FOLLOWER=$(state .pid)
end_driver KILL
kill -9 "$FOLLOWER"
wait_for 60 gone "$FOLLOWER"
for pod in 2 3; do unpublished=$(cat "$(target $pod)/number"); [ "$unpublished" = 2 ] || fail "pod $pod has $unpublished"; done
start_driver
publish 2
followed || fail "no process follows"
[ "$(state .pid)" != "$FOLLOWER" ] || fail "the state names a follower that was killed"
reads 2 2
unpublish 3
unpublish 2
version 4
wait_for 120 newest 4
publish 4
reads 4 4

echo "== the follower alone: the same by kubelet's next stage"
kill -9 "$(state .pid)"
wait_for 60 eval '! followed'
answers_with OK "$stage"
followed || fail "no process follows"

echo "== nothing is shown for a moment: no pod gets the empty directory, and one that has it can be ended"
FOLLOWER=$(state .pid)
kill -STOP "$FOLLOWER"
umount -l "$staging/current"
answers_with "INTERNAL $staging shows no version of" "publish('v', '$staging', '$(target 1)', attributes=$attributes)"
[ ! -e "$(target 1)" ] || fail "its directory is left"
mkdir "$(target 1)"
mount --bind "$staging/current" "$(target 1)" # as a driver that was killed might have left it
unpublish 1
[ ! -e "$(target 1)" ] || fail "its directory is left"
kill -CONT "$FOLLOWER"
wait_for 60 newest 4

echo "== what was staged is gone, of which kubelet does not know: the next publish makes it again"
unpublish 4
"$GRANARY" umount "$staging" >"$W/out"
publish 4
reads 4 4
followed || fail "no process follows"

echo "== unstaged while a pod has a version: the pod reads on, and afterwards nothing is left"
answers_with "INTERNAL no process follows $staging any more, but not all of it is unmounted" "unstage('v', '$staging')"
[ "$(state .dir)" = "$staging" ] || fail "the state is gone"
reads 4 4
unpublish 4
[ ! -e "$(target 4)" ] || fail "its directory is left"
for _ in 1 2; do answers_with OK "unstage('v', '$staging')"; done
nothing_left
! compgen -G "/run/granary/tag-*" >"$W/null" || fail "left: $(ls /run/granary)"
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
