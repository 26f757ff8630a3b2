#!/bin/bash
# granary mount --follow, where more goes on: versions in use, by processes and by a container; the follower killed; the
# store away; --foreground.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-follow.sh"

follow_first
publish 2
wait_for 120 shows 2

echo "== all versions are in use: the next one waits, and nobody gets an error"
publish 3
wait_for 60 grep -q "^waiting .* all 2 versions are in use" "$W/hooked"
[[ $(reason) = "all 2 versions are in use"* ]] || fail "reason: $(reason)"
"$GRANARY" status "$dir" --json | jq -e '.followed[0].reason | startswith("all 2 versions are in use")' >"$W/null" ||
    fail "status: $("$GRANARY" status "$dir" --json | jq .followed)"
shows 2 || fail "current does not stay"
wait_for 60 eval '[ "$(metric behind_seconds)" -gt 0 ]'
held 1
kill "$HOLDER"
wait_for 120 shows 3
wait_for 60 eval '[ -z "$(reason)" ]'
wait_for 60 eval '[ "$(metric behind_seconds)" = 0 ]'
[ ! -e "$(version_dir 1)" ] || fail "version 1 stays: $(ls -a "$dir")"
[ -e "$(version_dir 2)/number" ] || fail "version 2 is not there: $(ls -a "$dir")"
[ "$("$GRANARY" status "$control" --quick --json | jq '.exports | length')" = 2 ] || fail "the export of a version that went stays"
"$TREECMP" "$W/tree" "$dir/current"

echo "== a container without propagation keeps the version of its start, and no other: that one is in use"
mkdir "$W/container"
# a container with what is shown now, by the steps of runc
contain() {
    # shellcheck disable=SC2016
    unshare --mount --propagation slave sh -c 'mount --rbind "$1" "$2" && mount --make-rprivate "$2" && umount -l "$1" &&
        exec sleep 1000' - "$dir" "$W/container" &
    CONTAINER=$!
    ours "$CONTAINER"
}
contained() { [ "$(nsenter -t "$CONTAINER" -m cat "$W/container/current/number")" = "$1" ]; }
contain
wait_for 60 contained 3
publish 4
wait_for 120 shows 4
contained 3 || fail "the container's version changed"
[ ! -e "$(version_dir 2)" ] || fail "version 2, which nobody uses, stays: $(ls -a "$dir")"
publish 5
wait_for 60 bash -c "[ \$(grep -c '^waiting ' $W/hooked) = 2 ]"
shows 4 || fail "current does not stay"
wait_for 60 test -e "$(version_dir 3)/number" # it is away for a moment whenever the follower has looked whether it is free
contained 3 || fail "the container's version changed"

echo "== a version in use whose own mount was taken away is mounted again; the tag can go back to it"
wait_for 60 umount "$(version_dir 3)/" # it is away for a moment whenever the follower has looked
wait_for 60 test -e "$(version_dir 3)/number"
refused 1 "still mounted elsewhere" "$GRANARY" umount "$(version_dir 3)"
wait_for 60 test -e "$(version_dir 3)/number"
kill -9 "$(follower)"
wait_for 60 umount "$(version_dir 3)/"
"${follow[@]}" >"$W/out" || fail "not continued: $(log)"
wait_for 60 test -e "$(version_dir 3)/number"
contained 3 || fail "the container's version changed"
for version in 3 4; do
    "$GRANARY" tag "$W/store/faces:v$version" daily >"$W/out"
    wait_for 120 shows $version
done
"$GRANARY" tag "$W/store/faces:v5" daily >"$W/out"
wait_for 60 eval '[ -n "$(reason)" ]'
kill "$CONTAINER"
wait_for 120 shows 5
[ ! -e "$(version_dir 3)" ] || fail "version 3 stays: $(ls -a "$dir")"

echo "== the follower is killed: readers go on, and the same command goes on where it was"
kill -9 "$(follower)"
publish 6
sleep 3 # three polls
"$TREECMP" "$W/tree" "$dir/current" >"$W/null" 2>&1 && fail "somebody follows"
shows 5 || fail "current does not stay"
"${follow[@]}" >"$W/out" || fail "not continued: $(log)"
wait_for 120 shows 6
kill -0 "$(follower)" || fail "nobody follows"

echo "== the store is away: nothing moves, and then it goes on"
mv "$W/store" "$W/store.away"
wait_for 60 bash -c "grep -q '\"reason\": \"..*\"' /run/granary/tag-*/follow.json"
shows 6 || fail "current does not stay"
mv "$W/store.away" "$W/store"
publish 7
wait_for 120 shows 7

echo "== no reader saw an error"
end_readers

echo "== unmounted while a container has a version: the rest stays known, and what follows again goes on"
contain
wait_for 60 contained 7
publish 8
wait_for 120 shows 8
refused 1 "no process follows $dir any more, but not all of it is unmounted" "$GRANARY" umount "$dir"
[ "$(state | jq -r .dir)" = "$dir" ] || fail "the state is gone"
contained 7 || fail "the container's version changed"
"${follow[@]}" >"$W/out" || fail "not continued: $(log)"
shows 8 || fail "current does not show it"
wait_for 60 test -e "$(version_dir 7)/number"
contained 7 || fail "the container's version changed"
kill "$CONTAINER"
wait "$CONTAINER" || true
"$GRANARY" umount "$dir"
wait_for 60 gone "$SERVER_PID"

echo "== in the foreground: a signal takes everything down"
background "${follow[@]}" --foreground >"$W/out" 2>"$W/err"
FOREGROUND=$BACKGROUND_PID
wait_for 60 shows 8
kill -TERM "$FOREGROUND"
wait "$FOREGROUND" || fail "the foreground: $(cat "$W/err")"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
