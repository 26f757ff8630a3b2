#!/bin/bash
# ctest: long
# granary leave: the other nodes take over what a node keeps for them, from its cache and not from the store; when it is
# gone, and the store with it, they have everything.
. "$(dirname "$0")/lib-l2.sh"

make_images 4
serve_store P1 P2 P3
STORE=$BACKGROUND_PID
start_nodes 3
for n in 1 2 3; do read_all n$n; done
sent=$(sent_by_store)

echo "== a node leaves"
"$GRANARY" leave "$W/n3.control" --wait 2m --json >"$W/left" 2>&1 &
LEAVE=$!
is_leaving() { [[ $(of_proxies n3 'map(.state) | join(" ")') = *leaving* ]]; }
wait_for 60 is_leaving
for n in 1 2; do read_all n$n; done # they hear it
wait $LEAVE || fail "$(cat "$W/left")"
taken=$(($(count n1 peer_taken_total) + $(count n2 peer_taken_total)))
echo "$taken chunks were taken over; the store sent $(($(sent_by_store) - sent)) bytes meanwhile"
[ "$taken" -gt 0 ] || fail "nothing was taken over"
[ "$(jq .bytes "$W/left")" -gt 0 ] || fail "nobody asked it: $(cat "$W/left")"
failures=$(($(count n1 l2_failures_total) + $(count n2 l2_failures_total)))
# On a busy machine a node that was too slow is passed over: then the store is asked, but not for much.
more=$(($(sent_by_store) - sent))
[ $more = 0 ] || { [ $failures != 0 ] && [ $more -le $((sent / 10)) ]; } || fail "the store sent $more bytes again"

echo "== it is gone, and the store is"
kill -9 "$SERVER_PID"
wait "$SERVER_PID" || true
kill_nginx "$STORE"
if [ $failures = 0 ]; then
    for n in 1 2; do read_all n$n; done
else
    echo "a node was passed over $failures times: reads without the store are not tested"
fi
for n in 1 2; do [ "$(count n$n fetch_errors_total)" = 0 ] || fail "node $n met errors"; done

echo "== a server that is no node has nobody to leave"
serve_unix "$W/alone.sock" "image=$W/store/i1" "cache=$W/alone:64M" control="$W/alone.control"
refused 1 'is not one of several nodes' "$GRANARY" leave "$W/alone.control"
