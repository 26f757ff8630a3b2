#!/bin/bash
# A cache directory that another user has prepared: root's server refuses it with a sentence, a file that only root may
# read is not touched, and nothing of the dataset can be read by that user. The same for a directory reached through a
# link of that user, and for cache fsck.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root, to make another user's files"
for tool in nbdinfo setpriv; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin util-linux)"; done

stranger() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
make_faces "$W/tree"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"

# The server's directory may be closed to the stranger: the hostile ones are made in /tmp, as they would be.
shared=$(mktemp -d /tmp/granary-hostile-XXXXXX)
extra_cleanup() { rm -rf "$shared"; }
chmod 1777 "$shared"
printf 'of root alone' >"$W/secret"
chmod 600 "$W/secret"

# refused DIR SENTENCE: the server ends with that sentence, and the secret is as it was
refused() {
    local dir=$1 sentence=$2 status=0
    timeout 60 "$GRANARY" serve "$W/store/faces" --socket "$W/nbd.sock" --cache "$dir:32M" >"$W/serve.out" 2>"$W/serve.err" || status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "the server took $dir (exit $status)"
    grep -qF -- "$sentence" "$W/serve.err" || fail "$dir: no '$sentence' in: $(cat "$W/serve.err")"
    [ "$(cat "$W/secret")" = 'of root alone' ] || fail "the secret was overwritten through $dir"
}

echo "== another user's directory, with data a link to root's file"
stranger mkdir "$shared/theirs"
stranger ln -s "$W/secret" "$shared/theirs/data"
refused "$shared/theirs" "belongs to user 65534"

echo "== files made beforehand, which everybody may write"
mkdir -m 777 "$shared/open"
chmod 777 "$shared/open"
stranger bash -c 'umask 0; for f in lock data records; do : >"$1/$f"; done' - "$shared/open"
refused "$shared/open" "may be written by other users"
chmod 755 "$shared/open" # the administrator obeys, and leaves the files
refused "$shared/open" "belongs to user 65534"
! "$GRANARY" cache fsck "$shared/open" 2>"$W/fsck.err" || fail "fsck took $shared/open"
grep -q "belongs to user 65534" "$W/fsck.err" || fail "$(cat "$W/fsck.err")"

echo "== a link of another user on the way"
mkdir -m 700 "$shared/mine"
stranger ln -s mine "$shared/link"
refused "$shared/link/cache" "is a symbolic link of user 65534"
[ ! -e "$shared/mine/cache" ] || fail "something was made behind the link"

echo "== a directory of root's own is served from, and closed"
background "$GRANARY" serve "$W/store/faces" --socket "$W/nbd.sock" --cache "$shared/mine/cache:32M" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
nbdinfo "nbd+unix:///faces?socket=$W/nbd.sock" >"$W/info"
[ "$(stat -c %a "$shared/mine/cache")" = 700 ] || fail "mode $(stat -c %a "$shared/mine/cache")"
! stranger cat "$shared/mine/cache/records" 2>/dev/null >"$W/read" || fail "another user reads the cache"

echo "== what lies beside a socket in a directory that everybody may write, made by another user"
kill -TERM "$BACKGROUND_PID"
wait "$BACKGROUND_PID" || fail "SIGTERM: exit $?"
stranger bash -c 'printf "granary added exports 1\n" >"$1"' - "$shared/nbd.sock.control.exports"
status=0
timeout 60 "$GRANARY" serve "$W/store/faces" --socket "$shared/nbd.sock" --cache none >"$W/serve.out" 2>"$W/serve.err" || status=$?
[ "$status" = 1 ] || fail "the server took another user's list of exports (exit $status)"
grep -q "nbd.sock.control.exports belongs to user 65534" "$W/serve.err" || fail "$(cat "$W/serve.err")"
rm "$shared/nbd.sock.control.exports"
background "$GRANARY" serve "$W/store/faces" --socket "$shared/nbd.sock" --cache none >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
rm -f "$shared/nbd.sock.control.images"
stranger mkfifo "$shared/nbd.sock.control.images" # whoever opens it for reading waits for ever
kill -KILL "$(pgrep -P "$BACKGROUND_PID")"
wait_for 60 grep -q 'up again' "$W/serve.err"
grep -q "nbd.sock.control.images is no regular file" "$W/serve.err" || fail "$(cat "$W/serve.err")"
nbdinfo "nbd+unix:///faces?socket=$shared/nbd.sock" >"$W/info"
