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
held 1
kill "$HOLDER"
wait_for 120 shows 3
[ -z "$(reason)" ] || fail "reason: $(reason)"
[ ! -e "$(version_dir 1)" ] || fail "version 1 stays: $(ls -a "$dir")"
[ -e "$(version_dir 2)/number" ] || fail "version 2 is not there: $(ls -a "$dir")"
[ "$("$GRANARY" status "$control" --quick --json | jq '.exports | length')" = 2 ] || fail "the export of a version that went stays"
"$TREECMP" "$W/tree" "$dir/current"

echo "== a container without propagation keeps the version of its start, and no other: that one is in use"
mkdir "$W/container"
# shellcheck disable=SC2016
unshare --mount --propagation slave sh -c 'mount --rbind "$1" "$2" && mount --make-rprivate "$2" && umount -l "$1" &&
    exec sleep 1000' - "$dir" "$W/container" & # the steps of runc
CONTAINER=$!
ours "$CONTAINER"
contained() { [ "$(nsenter -t "$CONTAINER" -m cat "$W/container/current/number")" = "$1" ]; }
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
"$GRANARY" umount "$dir"
wait_for 60 gone "$SERVER_PID"

echo "== in the foreground: a signal takes everything down"
background "${follow[@]}" --foreground >"$W/out" 2>"$W/err"
FOREGROUND=$BACKGROUND_PID
wait_for 60 shows 7
kill -TERM "$FOREGROUND"
wait "$FOREGROUND" || fail "the foreground: $(cat "$W/err")"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
