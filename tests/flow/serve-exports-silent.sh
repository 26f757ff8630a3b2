#!/bin/bash
# A store that answers nobody keeps no image of another store from being added to a server: neither by warmings that wait
# for it, nor by more requests to add its own images than a server takes. When the store is back they all end.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-silent.sh"

echo three >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store-one/three" >"$W/built"
background "$GRANARY" serve "$STORE_URL/one" --socket "$W/sock" --cache "$W/cache:128M" --warm none --readahead 0 \
    --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"

ask() { curl -sSN --max-time 60 --unix-socket "$W/sock.control" -X "$1" "http://granary$2"; }
# hang FILE METHOD PATH: such a request in the background, its answer in FILE
hang() { background curl -sN --unix-socket "$W/sock.control" -X "$2" "http://granary$3" >"$1"; }
# answered METHOD PATH WHAT
answered() { { ask "$1" "$2" >"$W/answer" && grep -q '"ok":true' "$W/answer"; } || fail "$3 waits for the silent one: $(cat "$W/answer")"; }

touch "$W/dead"
echo "== four warmings of its image"
for i in 1 2 3 4; do
    hang "$W/warm$i" POST '/warm?export=one&what=all'
    wait_for 60 grep -q '"progress"' "$W/warm$i"
done
answered PUT "/exports/two?image=$W/store-two/two" "an image of another store"
answered DELETE /exports/two "its removal"

echo "== six images of each of two silent stores: four wait for each"
refused() { [ "$(grep -l already "$W"/put-"$1"* | wc -l)" = 2 ]; }
for i in 1 2 3 4 5 6; do hang "$W/put-near$i" PUT "/exports/near$i?image=$STORE_URL/three"; done
wait_for 60 refused near
grep -q "wait for $STORE_URL already" "$W"/put-near* || fail "it is not said why: $(cat "$W"/put-near*)"
for i in 1 2 3 4 5 6; do hang "$W/put-far$i" PUT "/exports/far$i?image=$STORE_URL/far/none"; done
wait_for 60 refused far
answered PUT "/exports/two?image=$W/store-two/two" "an image of a third store"
answered DELETE /exports/two "its removal"
[ "$(find "$W" -name 'put-*' -size 0 | wc -l)" = 8 ] || fail "the silent stores' images do not wait: $(cat "$W"/put-*)"

rm "$W/dead"
ended() { [ -z "$(find "$W" -name 'put-*' -size 0)" ]; }
wait_for 60 ended
[ "$(grep -l '"ok":true' "$W"/put-near* | wc -l)" = 4 ] || fail "images of a store that is back: $(cat "$W"/put-near*)"
[ "$(grep -l 'not a Granary store' "$W"/put-far* | wc -l)" = 4 ] || fail "what is no store: $(cat "$W"/put-far*)"
