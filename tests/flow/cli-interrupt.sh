#!/bin/bash
# A build that is interrupted publishes nothing, ends soon, leaves no lease, and can simply be run again. So does one
# that is interrupted twice. A build and an export that cannot go on leave nothing under a name.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
for i in $(seq 16); do head -c 8000000 /dev/urandom >"$W/tree/file-$i"; done
store=$W/store

# interrupt SIGNAL: a build of the tree, signalled once it has stored its first pack; its exit status. Of a machine that
# stood still until the build was over, nothing is asked.
interrupt() {
    local pid status try
    for try in 1 2 3 4 5 6 7 8; do
        rm -rf "$store"
        status=0
        "$GRANARY" build "$W/tree" "$store/set:v1" --compress-level 12 2>"$W/err" &
        pid=$!
        while kill -0 $pid 2>"$W/null" && ! compgen -G "$store/packs/*/*" >"$W/null"; do sleep 0.01; done
        kill -"$1" $pid 2>"$W/null" || true
        wait $pid || status=$?
        [ $status = 0 ] || return $status
        echo "the build was over before it could be interrupted, try $try"
    done
    fail "the build was always over before it could be interrupted"
}

for signal in INT TERM; do
    status=0
    interrupt $signal || status=$?
    [ $status = 130 ] || { cat "$W/err"; fail "SIG$signal: exit $status"; }
    [ "$(tail -n 1 "$W/err")" = "granary: build: interrupted: what was stored is used by the next run" ] ||
        { cat "$W/err"; fail "SIG$signal: no sentence"; }
    "$GRANARY" images "$store" >"$W/out" || fail "SIG$signal: the store cannot be listed"
    [ ! -s "$W/out" ] || fail "SIG$signal: something was published"
    [ -z "$(find "$store/manifests" -type f 2>"$W/null")" ] || fail "SIG$signal: a manifest was written"
    [ -z "$(find "$store/builds" -type f 2>"$W/null")" ] || fail "SIG$signal: a lease is left"
done

echo "== killed: the next run takes what is there"
interrupt KILL && fail "a killed build ends with 0"
before=$(find "$store/packs" -type f | wc -l)
[ "$before" -gt 0 ] || fail "no pack was stored before the end"
"$GRANARY" build "$W/tree" "$store/set:v1" --compress-level 12 --json >"$W/json"
[ "$(jq .packs_reused "$W/json")" -ge "$before" ] || fail "packs were stored again: $(cat "$W/json"), $before before"
"$GRANARY" verify --deep -q "$store/set:v1"

echo "== an interrupted export has no name"
interrupted=""
for _ in 1 2 3 4 5 6 7 8; do
    rm -f "$W/image"
    "$GRANARY" export "$store/set:v1" "$W/image" 2>"$W/err" &
    pid=$!
    while kill -0 $pid 2>"$W/null" && ! compgen -G "$W/image.*" >"$W/null"; do sleep 0.01; done
    kill -INT $pid 2>"$W/null" || true
    wait $pid || { interrupted=yes; break; }
done
[ -z "$interrupted" ] || grep -q "^granary: export: interrupted: FILE was not written" "$W/err" || fail "export: $(cat "$W/err")"
[ -n "$interrupted" ] || fail "the export was always over before it could be interrupted"
[ ! -e "$W/image" ] && ! compgen -G "$W/image.*" || fail "something of the export is left"
