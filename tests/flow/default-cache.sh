#!/bin/bash
# A server that is given no cache has one: in /var/cache/granary, half of what is free there, for one server at a time,
# of this user alone; --cache none and GRANARY_CACHE have it otherwise. In a mount namespace with a /var/cache of its
# own.
if [ -z "${GRANARY_OWN_CACHE:-}" ] && unshare --mount true 2>/dev/null; then
    GRANARY_OWN_CACHE=1 exec unshare --mount --propagation private bash "$0" "$@"
fi
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
[ "$(id -u)" = 0 ] || skip "a /var/cache of the test's own needs root"
unset GRANARY_CACHE
mount -t tmpfs -o size=320M,mode=755 tmpfs /var/cache

mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/one"
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"

# start NAME OPTION...: a server on $W/NAME, what it says in $W/NAME.err
start() {
    local name=$1
    shift
    background "$GRANARY" serve "$W/store/img" --socket "$W/$name" --warm none "$@" >"$W/$name.out" 2>"$W/$name.err"
    wait_for 60 grep -q "^serving " "$W/$name.out"
}
dirs() { curl -sS --fail --unix-socket "$W/$1.control" http://granary/status | jq -c '[.cache_directories[] | [.path, .size]]'; }

echo "== half of what is free, in a directory for root alone"
start a
[ "$(dirs a)" = '[["/var/cache/granary",134217728]]' ] || fail "$(dirs a)"
grep -q ' info granary: cache: /var/cache/granary, 128.0 MiB: half ' "$W/a.err" || fail "$(cat "$W/a.err")"
[ "$(stat -c '%a %u' /var/cache/granary)" = "700 0" ] || fail "$(stat /var/cache/granary)"

echo "== another server has none, and says why"
start b
[ "$(dirs b)" = '[]' ] || fail "$(dirs b)"
grep -q 'no cache on disk: /var/cache/granary is in use by another server; give --cache' "$W/b.err" || fail "$(cat "$W/b.err")"
end_background

echo "== the same size at the next start, though half of it is taken; and what was kept is there"
start c
[ "$(dirs c)" = '[["/var/cache/granary",134217728]]' ] || fail "$(dirs c)"
! grep -q 'starts empty' "$W/c.err" || fail "$(cat "$W/c.err")"
end_background

echo "== the child of a killed server, which has the lock for a moment longer, is waited for"
flock /var/cache/granary/lock sleep 2 &
holder=$!
is_locked() { ! flock -n /var/cache/granary/lock true; }
wait_for 60 is_locked
start c2
wait $holder
[ "$(dirs c2)" = '[["/var/cache/granary",134217728]]' ] || fail "$(dirs c2) $(cat "$W/c2.err")"
end_background

echo "== a tenth stays free"
rm -rf /var/cache/granary
fallocate -l 215M /var/cache/others
start d
[ "$(dirs d)" = '[]' ] && grep -q 'has too little room' "$W/d.err" || fail "$(dirs d) $(cat "$W/d.err")"
end_background
rm /var/cache/others

echo "== none where none is wanted"
start e --cache none
[ "$(dirs e)" = '[]' ] || fail "$(dirs e)"
! grep -q cache "$W/e.err" || fail "$(cat "$W/e.err")"
GRANARY_CACHE=$W/own:64M start f
[ "$(dirs f)" = "[[\"$W/own\",67108864]]" ] || fail "$(dirs f)"
refused 2 "GRANARY_CACHE" env GRANARY_CACHE=nonsense "$GRANARY" serve "$W/store/img" --socket "$W/g"
refused 2 "--cache none" "$GRANARY" serve "$W/store/img" --socket "$W/g" --cache none --cache "$W/x:64M"

echo "== another user's directory is not used"
mkdir -p /var/cache/granary
chown 65534 /var/cache/granary
start h
[ "$(dirs h)" = '[]' ] && grep -q 'no cache on disk: .* belongs to user 65534' "$W/h.err" || fail "$(dirs h) $(cat "$W/h.err")"
