#!/bin/bash
# ctest: long
# A node of two answers late, some requests or all: with the default --hedge, reads that wait for it longer than most are
# sent to the store as well, within the budget; they are counted, and no read sees an error or a wrong byte.
. "$(dirname "$0")/lib-l2.sh"
PROBE=$GRANARY_BUILD/tests/tools/nbdprobe
CHUNK=131072 # of a fake image

make_images 8
serve_store P1 P2 LINE
start_line() {
    background "$GRANARY_SOURCE/tests/servers/faulty-proxy.py" "$LINE" "$P2" "$W/line"
    wait_for 60 test -S "$W/line"
}
start_line
line() { curl -sSf -o "$W/null" --unix-socket "$W/line" http://line/ -d "$1"; }
openssl rand -hex 32 >"$W/key"
# The reading node knows the other one by the line in front of it, which that one cannot know itself by. What each owns in
# its own eyes differs, so the other one keeps all that it is asked for.
for n in 1 2; do printf 'http://127.0.0.1:%s/lake\n' "$P1" "$([ $n = 1 ] && echo "$LINE" || echo "$P2")" >"$W/members$n"; done
images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
proxies=()
for n in 2 1; do
    port=P$n
    serve "n$n" "cache=$W/cache$n:64M" "l2=$W/members$n" "peer-listen=127.0.0.1:${!port}" "peer-key=$W/key" peer-keep=none \
        readahead=0 timeout=60s
done

# read_slowly WHAT: everything, one chunk at a time; what the other node owns is asked for each time
read_slowly() {
    local i
    for i in $(seq "$IMAGES"); do
        "$PROBE" "nbd+unix:///i$i?socket=$W/n1.sock" whole $CHUNK "$W/i$i.raw" >"$W/read" 2>"$W/read.err" || fail "$1: wrong byte: $(cat "$W/read.err")"
        grep -q '^0 of ' "$W/read" || fail "$1: $(cat "$W/read")"
    done
}
# slow WHAT FAULT: read everything with it; second GETs go to the store, and bring bytes sooner
slow() {
    local hedges wins sent requests
    hedges=$(count n1 fetch_hedges_total) wins=$(count n1 fetch_hedge_wins_total) sent=$(sent_by_store)
    line "$2"
    read_slowly "$1"
    line '{"mode": "none"}'
    hedges=$(($(count n1 fetch_hedges_total) - hedges)) wins=$(($(count n1 fetch_hedge_wins_total) - wins))
    sent=$(($(sent_by_store) - sent)) requests=$(count n1 fetch_requests_total)
    echo "$1: $hedges second GETs, $wins came first, $sent bytes from the store"
    [ "$wins" -ge 1 ] && [ "$wins" -le "$hedges" ] || fail "$1: $wins of $hedges second GETs came first"
    [ "$(count n1 fetch_hedges_total)" -le $((requests * 5 / 100 + 10)) ] || fail "$1: the second GETs are more than the budget"
    [ "$sent" -gt 0 ] || fail "$1: the store sent nothing"
    [ "$(count n1 fetch_errors_total)" = 0 ] || fail "$1: $(count n1 fetch_errors_total) fetches failed"
    [ "$(count n1 l2_wrong_total)" = 0 ] || fail "$1: an honest node is blamed for wrong bytes"
}

echo "== what is usual"
read_slowly "at first" # the other node fetches from the store
for round in 1 2; do read_slowly "then"; done
[ "$(count n1 l2_requests_total)" -ge 400 ] || fail "the other node was asked $(count n1 l2_requests_total) times: the test proves nothing"

echo "== one answer in 40 comes 4 s late"
slow "one in 40" '{"mode": "pauses", "every": 40, "delay_s": 4}'
echo "== every answer comes 0.2 s late"
slow "all" '{"mode": "late", "delay_s": 0.2}'
