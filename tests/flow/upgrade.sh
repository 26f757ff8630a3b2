#!/bin/bash
# granary upgrade: a running server is replaced by another build of the program, on the same socket and by the same
# process, with the digests that it served; what the new one cannot do is refused and changes nothing; one that does not
# start is said and tried again; a supervisor that is killed on the way is healed by the next start.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree" "$W/tree2"
head -c 3000000 /dev/urandom >"$W/tree/file"
head -c 500000 /dev/urandom >"$W/tree2/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"
uri="nbd+unix:///one?socket=$W/nbd.sock"

# another_build DIR: the programs in another place, as a new version of a package would put them
another_build() {
    mkdir -p "$1/cli" "$1/nbd"
    cp "$GRANARY" "$1/cli/granary"
    cp "$NBD" "$1/nbd/"
}
another_build "$W/new"
NEW=$W/new/cli/granary

serve() {
    : >"$W/serve.out"
    background "$GRANARY" serve "$W/store/one" --socket "$W/nbd.sock" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" "$@" \
        >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
sockets() { stat -c '%n %i %a %u' "$W/nbd.sock" "$W/nbd.sock.control.upgrade"; }
runs() { readlink "/proc/$SERVE/exe"; }
served() { nbdcopy "$uri" - | cmp - "$W/image" || fail "$1: other bytes than the export"; }
# refuses TEXT COMMAND...: it fails with that sentence, and the server is the one before
refuses() {
    local text=$1 before
    shift
    before=$(pgrep -P "$SERVE")
    refused 1 "$text" "$@"
    [ "$(pgrep -P "$SERVE")" = "$before" ] && [ "$(runs)" = "$GRANARY" ] || fail "'$text' changed something"
}

serve --warm none
served "before"
all_cached() { "$GRANARY" status "$W/nbd.sock" | grep '(100.0 %).* index cached' >"$W/null"; }
wait_for 60 all_cached

echo "== a check beside a running server touches neither store nor cache nor sockets"
"$GRANARY" serve --check "$W/store/one" --socket "$W/nbd.sock" --cache "$W/cache:64M" || fail "what runs is refused"
"$GRANARY" serve --check "$W/nowhere/none" --socket "$W/other.sock" --cache "$W/other:64M" || fail "it asked the store"
[ ! -e "$W/other" ] && [ ! -e "$W/other.sock" ] || fail "it made something"
refused 2 "at least 16M" "$GRANARY" serve --check "$W/store/one" --cache "$W/other:1M"
refused 1 "$W/none is not installed" env GRANARY_NBD="$W/none" "$GRANARY" serve --check "$W/store/one"

echo "== refused, and nothing is changed"
another_build "$W/broken"
ln -sf /bin/false "$W/broken/nbd/granary-nbd"
refuses "nothing is changed: $W/broken/cli/granary cannot take over from this server: " "$W/broken/cli/granary" upgrade "$W/nbd.sock"
grep -q 'granary-nbd failed' "$W/err" || fail "the program is not named: $(cat "$W/err")"
! grep -q ' error granary' "$W/err" || fail "a line of the log in the sentence: $(cat "$W/err")"
# ask WORDS: by hand
ask() { python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\n")
print(s.makefile().read(), end="")' "$W/nbd.sock.control.upgrade" "$1"; }
[ "$(ask "upgrade bin/true")" = "failed the request is not understood" ] || fail "a relative path"
ask "upgrade $W/none" | grep "^failed nothing is changed: $W/none is not installed" >"$W/null" || fail "$(ask "upgrade $W/none")"
ask "upgrade /bin/false" | grep '^failed nothing is changed: /bin/false cannot take over from this' >"$W/null" || fail "a program that is none of ours"
served "after refusals"

echo "== two at once: one is refused"
printf '#!/bin/sh\ntouch "%s"\nuntil [ -e "%s" ]; do sleep 0.1; done\nexit 1\n' "$W/checking" "$W/go" >"$W/slow"
chmod +x "$W/slow"
ask "upgrade $W/slow" >"$W/slow.out" &
slow=$!
wait_for 60 test -e "$W/checking"
refuses "another upgrade of this server is under way" "$NEW" upgrade "$W/nbd.sock"
touch "$W/go"
wait $slow
grep -q "^failed nothing is changed: $W/slow cannot" "$W/slow.out" || fail "the first of two: $(cat "$W/slow.out")"

echo "== upgraded: the same process and sockets, another program; a tag that has moved changes nothing; what was added is there"
curl -sS -G -X PUT --unix-socket "$W/nbd.sock.control" --data-urlencode image="$W/store/one" http://granary/exports/two >"$W/added"
grep -q '"ok":true' "$W/added" || fail "an export more: $(cat "$W/added")"
"$GRANARY" build -q "$W/tree2" "$W/store/one" >"$W/built"
before=$(sockets) child=$(pgrep -P "$SERVE")
"$NEW" upgrade "$W/nbd.sock" >"$W/out" || fail "upgrade: $(cat "$W/serve.err")"
grep -q '^granary .* serves in the place of .*; there was no server for [0-9.]* s$' "$W/out" || fail "$(cat "$W/out")"
[ "$(sockets)" = "$before" ] || fail "other sockets: $(sockets)"
[ "$(runs)" = "$NEW" ] || fail "$(runs) runs"
[ "$(pgrep -P "$SERVE")" != "$child" ] && [ ! -e "/proc/$child" ] || fail "the server before is left"
[ "$(readlink "/proc/$(pgrep -P "$SERVE")/exe")" = "$W/new/nbd/granary-nbd" ] || fail "the program before"
[ "$(stat -c %a "$W/nbd.sock.control")" = 600 ] || fail "the control socket's mode"
served "after the upgrade"
nbdcopy "nbd+unix:///two?socket=$W/nbd.sock" - | cmp - "$W/image" || fail "the added export"
"$GRANARY" status "$W/nbd.sock" --quick --json | jq -e '.counters.granary_fetch_requests_total == 0' >"$W/null" || fail "it was not all in the cache"
CHILD=$(pgrep -P "$SERVE")
! grep -zq GRANARY_TAKE_OVER "/proc/$CHILD/environ" || fail "the server was told of it"

echo "== back again, by the control socket, from its directory; killed afterwards it is started by the program that is there now"
(cd "$W" && "$GRANARY" upgrade nbd.sock.control --json >"$W/out") || fail "upgrade: $(cat "$W/serve.err")"
jq -e '.from == .to and .outage_ms >= 0' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
kill -9 "$(pgrep -P "$SERVE")"
wait_for 60 grep -q 'up again' "$W/serve.err"
served "after a kill"

echo "== a new server that does not start is said, and tried until it does; another upgrade helps it"
another_build "$W/late"
# takes every check, and cannot start
printf '#!/bin/sh\ncase " $* " in *" --check "*) exit 0;; esac\nexport GRANARY_NBD=%s\nexec %s "$@"\n' "$W/none" "$W/late/cli/granary" >"$W/late/run"
chmod +x "$W/late/run"
ask "upgrade $W/late/run" >"$W/late.out"
grep -q "^failed $W/none is not installed .*; it is tried again" "$W/late.out" || fail "$(cat "$W/late.out")"
tried_often() { [ "$(grep -c 'starting it again' "$W/serve.err")" -gt 6 ]; }
wait_for 120 tried_often
background nbdcopy "$uri" "$W/copy" # waits meanwhile
READER=$BACKGROUND_PID
env -u GRANARY_NBD "$NEW" upgrade "$W/nbd.sock" >"$W/out" 2>"$W/err" && fail "GRANARY_NBD is the server's own"
grep -q "$W/none" "$W/err" || fail "$(cat "$W/err")"
ln -s "$NBD" "$W/none"
wait "$READER" || fail "a client that waited was let down"
cmp "$W/copy" "$W/image" || fail "other bytes for who waited"
"$NEW" upgrade "$W/nbd.sock" >"$W/out" || fail "upgrade of what had failed before: $(cat "$W/serve.err")"
served "after all that"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
[ -z "$(find "$W" -type s)" ] || fail "sockets are left: $(find "$W" -type s)"

echo "== the supervisor is killed in the middle: the next start heals"
rm "$W/checking" "$W/go"
serve
ask "upgrade $W/slow" >"$W/slow.out" 2>&1 &
slow=$!
wait_for 60 test -e "$W/checking"
CHILD=$(pgrep -P "$SERVE" -x granary-nbd)
kill -9 "$SERVE"
wait $slow || true
wait_for 60 gone "$CHILD"
refused 1 "is gone; start the server again" "$NEW" upgrade "$W/nbd.sock"
serve
"$NEW" upgrade "$W/nbd.sock" >"$W/out" || fail "upgrade after healing: $(cat "$W/serve.err")"

echo "== who may not, and what is not there"
if [ "$(id -u)" = 0 ] && id nobody >"$W/null" 2>&1; then
    chmod 755 "$W"
    [ "$(stat -c %a "$W/nbd.sock.control.upgrade")" = 600 ] || fail "others may ask for an upgrade"
    ! setpriv --reuid=nobody --clear-groups "$NEW" upgrade "$W/nbd.sock" 2>"$W/err" || fail "another user replaced the server"
    grep -q 'may not be replaced by this user' "$W/err" || fail "$(cat "$W/err")"
fi
refused 1 "no server and no mount at $W/nothing" "$NEW" upgrade "$W/nothing"
serve_unix "$W/plain.sock" "$W/store/one" control="$W/plain.sock.control"
refused 1 "not started by 'granary serve'" "$NEW" upgrade "$W/plain.sock"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

echo "== over TCP, by the control socket; the port stays"
: >"$W/serve.out"
background "$GRANARY" serve "$W/store/one" --listen 127.0.0.1:0 --control "$W/c.sock" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
port=$(sed -n 's|^serving .* at nbd://127.0.0.1:\([0-9]*\)/one$|\1|p' "$W/serve.out")
"$NEW" upgrade "$W/c.sock" >"$W/out" || fail "upgrade: $(cat "$W/serve.err")"
[ "$(nbdinfo --size "nbd://127.0.0.1:$port/one")" -gt 400000 ] || fail "another port"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
