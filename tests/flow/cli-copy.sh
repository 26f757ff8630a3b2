#!/bin/bash
# An image copied between stores: the same digest, tags and files; nothing sent twice; a copy that was killed goes on.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
for i in $(seq 60); do head -c 900000 /dev/urandom >"$W/tree/file-$i"; done
"$GRANARY" build -q "$W/tree" "$W/a/set:v1"
digest=$("$GRANARY" inspect --json "$W/a/set:v1" | jq -r .digest)

echo "== into an empty place, under its own name"
"$GRANARY" copy -q --json "$W/a/set:v1" "$W/b" >"$W/json"
jq -e --arg digest "$digest" '.digest == $digest and .name == "set" and .tag == "v1" and .objects_copied == .objects' \
    "$W/json" >"$W/null" || fail "$(cat "$W/json")"
"$GRANARY" verify --deep "$W/b/set:v1"
[ "$("$GRANARY" images --json "$W/a" | jq -S '[.. | .tag? // empty] | sort')" = \
    "$("$GRANARY" images --json "$W/b" | jq -S '[.. | .tag? // empty] | sort')" ] || fail "other tags in the copy"
diff -r "$W/a/packs" "$W/b/packs"
diff -r "$W/a/manifests" "$W/b/manifests"
[ -z "$(ls -A "$W/b/builds" 2>"$W/null")" ] || fail "the copy left its lease"

echo "== again, under another name: nothing is sent"
"$GRANARY" copy -q --json "$W/a/set@$digest" "$W/b/other:now" >"$W/json"
jq -e '.objects_copied == 0 and .bytes_copied == 0' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
[ "$("$GRANARY" inspect --json "$W/b/other:now" | jq -r .digest)" = "$digest" ] || fail "another digest"

echo "== killed on the way: no image, and the next goes on"
middles=0
for try in $(seq 20); do
    rm -rf "$W/c"
    status=0
    "$GRANARY" copy -q -j 1 "$W/a/set:v1" "$W/c" & # ended below
    copy=$!
    while kill -0 $copy 2>"$W/null" && ! compgen -G "$W/c/packs/*/*" >"$W/null"; do sleep 0.01; done
    kill -9 $copy 2>"$W/null" || true
    wait $copy 2>"$W/null" || status=$?
    [ ! -e "$W/c/images/set/v1" ] || "$GRANARY" verify --deep "$W/c/set:v1"
    before=$(find "$W/c/packs" -type f | wc -l)
    "$GRANARY" copy -q --json "$W/a/set:v1" "$W/c" >"$W/json"
    jq -e --argjson before "$before" '.objects_copied <= .objects - $before' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
    "$GRANARY" verify --deep "$W/c/set:v1"
    [ $status = 0 ] || middles=$((middles + 1))
    [ $middles -lt 3 ] || break
done
[ $middles -gt 0 ] || fail "in $try tries the copy was always over before it could be killed"

echo "== on a terminal: how much of how much, how fast, and for how long still"
free_port
serve_nginx "limit_rate 16m; server { listen 127.0.0.1:$FREE_PORT; location / { root $W; } }"
wait_for 60 answers "$FREE_PORT"
script -qec "stty cols 100; '$GRANARY' copy -j 1 'http://127.0.0.1:$FREE_PORT/a/set:v1' '$W/e'" "$W/typescript" >"$W/null" </dev/null
tr '\r' '\n' <"$W/typescript" | grep -aE '^copy: copying [0-9.]+ MiB of [0-9.]+ MiB, [0-9.]+ [KM]iB/s, 0:[0-9]{2} left' >"$W/null" ||
    fail "no rate, or no time left: $(cat -v "$W/typescript")"

echo "== what is refused"
status=0
"$GRANARY" copy "$W/a/set@$digest" "$W/d" 2>"$W/err" || status=$?
[ $status = 2 ] && grep -q "NAME:TAG" "$W/err" || fail "a digest is no name: $status $(cat "$W/err")"
status=0
"$GRANARY" copy "$W/a/set:v1" "$W/d/x:y@$digest" 2>"$W/err" || status=$?
[ $status = 2 ] || fail "a digest as target: $status"
[ ! -e "$W/d" ] || fail "a refused copy wrote something"
