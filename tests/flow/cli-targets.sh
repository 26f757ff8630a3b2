#!/bin/bash
# Every verb that takes a server, with every way to say which: none, a mount point, a control socket, a server's socket;
# and what is said of a socket of another kind, of a file, of a directory without a mount, and of what is not there.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/mnt
unit=/run/granary-cli-targets
extra_cleanup() {
    "$GRANARY" umount --force "$dir"
    umount -l $unit
    rmdir $unit
} 2>/dev/null
mkdir "$dir" "$W/tree" "$W/empty"
head -c 1000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"

# verb NAME TARGET: it, told of the target in its own way; no target: ""
verb() {
    case $1 in
        status) "$GRANARY" status --quick ${2:+"$2"} ;;
        top) "$GRANARY" top --once --interval 1 ${2:+"$2"} ;;
        warm) "$GRANARY" warm -q --metadata ${2:+"$2"} ;;
        upgrade) "$GRANARY" upgrade ${2:+"$2"} ;;
        trace) "$GRANARY" trace record -q --for 1s "$2" "$W/trace" ;;
        cache-ls) "$GRANARY" cache ls ${2:+--control "$2"} ;;
        cache-pin) "$GRANARY" cache pin -q --all ${2:+--control "$2"} ;;
        cache-evict) "$GRANARY" cache evict -q --all ${2:+--control "$2"} ;;
    esac
}

# table EXIT TEXT TARGET VERB...: each of the verbs, given the target, ends so and says it in one line; no text: nothing
table() {
    local code=$1 text=$2 target=$3 name status
    shift 3
    for name; do
        status=0
        verb "$name" "$target" >"$W/out" 2>"$W/err" || status=$?
        [ $status = "$code" ] || fail "$name '$target': exit $status, not $code: $(cat "$W/err")"
        [ -n "$text" ] || { [ ! -s "$W/err" ] || fail "$name '$target' says $(cat "$W/err")"; continue; }
        [ "$(wc -l <"$W/err")" = 1 ] && grep -qF -- "$text" "$W/err" || fail "$name '$target' does not say '$text': $(cat "$W/err")"
        grep -q "^granary: ${name/-/ }[: ]" "$W/err" || fail "$name does not say its name: $(cat "$W/err")"
    done
}
optional="status top warm upgrade cache-ls cache-pin cache-evict" # to these one may go without saying
every="$optional trace"

echo "== nobody there"
for name in $optional; do
    case $name in status) text="nothing listens on /run/granary/nbd.sock.control" ;; *) text="no server listens on /run/granary/nbd.sock.control" ;; esac
    table 1 "$text" "" "$name"
done
table 1 "no server and no mount at $W/none; give a control socket or a mount point" "$W/none" $every
table 1 "nothing is mounted on $W/empty, and it is no socket; give a control socket or a mount point" "$W/empty" $every
table 1 "nothing is mounted on $W/built, and it is no socket; give a control socket or a mount point" "$W/built" $every

echo "== a mount: the only server, its mount point, its socket"
"$GRANARY" mount --fuse --json --cache "$W/cache:64M" "$W/store/one" "$dir" >"$W/mount.json"
state=$(dirname "$(jq -r .socket "$W/mount.json")")
table 0 "" "" $optional
table 0 "" "$dir" $every
table 0 "" "$state/fuse.control" $every
(cd "$W" && "$GRANARY" cache ls mnt >"$W/out") || fail "cache ls of a relative mount point"
"$GRANARY" umount "$dir"

echo "== a server: its socket and its control socket; of one whose control socket lies elsewhere the latter alone"
background "$GRANARY" serve "$W/store/one" --socket "$W/nbd.sock" --cache "$W/c1:64M" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
table 0 "" "$W/nbd.sock" $every
table 0 "" "$W/nbd.sock.control" $every
background "$GRANARY" serve "$W/store/one" --socket "$W/bare.sock" --control "$W/elsewhere" --cache "$W/c2:64M" >"$W/serve2.out" 2>"$W/serve2.err"
wait_for 60 grep -q '^serving' "$W/serve2.out"
table 0 "" "$W/elsewhere" $every
table 1 "$W/bare.sock is no control socket: what answers there does not speak HTTP. Give the server's control socket, not its NBD socket" \
    "$W/bare.sock" $every

echo "== status without a target also shows the server of a unit"
mkdir -p $unit
mount -t tmpfs tmpfs $unit # seen by this test alone
background "$GRANARY" serve "$W/store/one" --socket $unit/nbd.sock --cache "$W/c3:64M" >"$W/serve3.out" 2>"$W/serve3.err"
wait_for 60 grep -q '^serving' "$W/serve3.out"
"$GRANARY" status --quick --json >"$W/status.json" || fail "status: exit $?"
jq -e --arg cache "$W/c3" '.servers | map(.cache_directories[0].path) == [$cache]' "$W/status.json" >"$W/null" || fail "$(cat "$W/status.json")"
