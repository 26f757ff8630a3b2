#!/bin/bash
# A store that answers nobody keeps no image of another store from being added to a server: not by warmings that wait
# for it.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-silent.sh"

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
