#!/bin/bash
# granary mount --follow: readers of DIR/current see a new version from one moment on, without an error and behind the
# fence; what is held keeps its version; no more than the changes is fetched; the tag goes back; umount leaves nothing.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-follow.sh"

echo "== the first version"
follow_first
jq -e --arg dir "$dir" --arg version "$(version_dir 1)" '.dir == $dir and .current == $dir + "/current" and .version == $version' \
    "$W/mount.json" >"$W/null" || fail "$(cat "$W/mount.json")"
reports() { [ "$(metric "$1")" = "$2" ]; }
wait_for 60 reports versions 1
[ "$(metric switches_total) $(metric behind_seconds)" = "0 0" ] || fail "$(metric switches_total) switches, $(metric behind_seconds) s behind"
[ "$(readlink "$dir/@current")" = "$(basename "$(version_dir 1)")" ] || fail "@current is $(readlink "$dir/@current")"
kill -0 "$(follower)" || fail "nobody follows"
"$TREECMP" "$W/tree" "$dir/current"
refused 1 "follows $W/store/faces:daily" "${follow[@]}"
refused 2 "names a digest" "$GRANARY" mount --follow "$W/store/faces@${DIGESTS[1]}" "$W/null"
refused 2 "goes with --follow" "$GRANARY" mount --poll 5s "$W/store/faces:daily" "$W/null"

echo "== a new version: shown when its changes are cached, and no more than those are fetched"
before=$(counter_of "$control" store_get_bytes_total) packs=$(du -sb "$W/store/packs" | cut -f1)
publish 2
wait_for 120 shows 2
fetched=$(($(counter_of "$control" store_get_bytes_total) - before)) delta=$(($(du -sb "$W/store/packs" | cut -f1) - packs))
[ $((fetched * 10)) -le $((delta * 12)) ] || fail "$fetched bytes fetched for $delta new ones"
"$TREECMP" "$W/tree" "$dir/current"
for n in 1 2; do [ -e "$(version_dir $n)/number" ] || fail "version $n is not there: $(ls -a "$dir")"; done
held 1
wait_for 60 reports switches_total 1
[ "$(metric versions) $(metric behind_seconds)" = "2 0" ] || fail "$(metric versions) versions, $(metric behind_seconds) s behind"
wait_for 60 grep -Fx "switched $dir $W/store/faces:daily ${DIGESTS[2]} ${DIGESTS[1]} $(version_dir 2) " "$W/hooked"

echo "== the tag goes back: nothing is fetched"
before=$(counter_of "$control" store_get_bytes_total)
"$GRANARY" tag "$W/store/faces:v1" daily >"$W/out"
wait_for 60 shows 1
"$GRANARY" tag "$W/store/faces:v2" daily >"$W/out"
wait_for 60 shows 2
[ "$(counter_of "$control" store_get_bytes_total)" = "$before" ] || fail "$(($(counter_of "$control" store_get_bytes_total) - before)) bytes were fetched"

echo "== no reader saw an error"
end_readers

echo "== what others unmount is mounted again"
umount -l "$dir/current"
wait_for 60 shows 2

echo "== the version that is shown is not unmounted by its own directory"
refused 1 "is the version that $dir/current shows" "$GRANARY" umount "$(version_dir 2)"
shows 2 || fail "current is gone"

echo "== umount: refused while current is in use, and then nothing is left"
kill "$HOLDER"
exec 7<"$dir/current/number"
refused 1 "$dir/current is in use" "$GRANARY" umount "$dir"
kill -0 "$(follower)" || fail "the refused umount ended the follower"
exec 7<&-
FOLLOWER=$(follower)
"$GRANARY" umount "$dir"
wait_for 60 gone "$FOLLOWER"
wait_for 60 gone "$SERVER_PID"
! grep -F " $dir" /proc/self/mountinfo || fail "a mount is left"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
[ -z "$(ls -A "$dir")" ] || fail "left in the directory: $(ls -A "$dir")"

echo "== a mount that cannot be made leaves nothing"
refused 1 "none" "$GRANARY" mount --follow --fuse "$W/store/none:daily" "$dir"
! compgen -G "/run/granary/*" >"$W/null" || fail "left: $(ls /run/granary)"
! compgen -G "/run/granary-versions/*" >"$W/null" || fail "left: $(ls -R /run/granary-versions)"
[ -z "$(ls -A "$dir")" ] || fail "left in the directory: $(ls -A "$dir")"
