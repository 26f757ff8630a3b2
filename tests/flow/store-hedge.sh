#!/bin/bash
# A store that answers at once, but for one request in 60, which it leaves without an answer for long: those are asked a
# second time, the second get brings the bytes, and no more of them are sent than the budget has. Without hedging each
# of them is waited for.
. "$(dirname "$0")/lib-store-faults.sh"

make_store 40
serve_store
pause=$(seconds 8 25) # below the 30 s after which a silent connection is given up

# read_slowly NAME: a whole image, one chunk at a time, of which nothing is kept
read_slowly() {
    "$PROBE" "$URI" whole $CHUNK "$W/image" >"$W/read" 2>"$W/read.err" || fail "$1: wrong bytes: $(cat "$W/read.err")"
    grep -q '^0 of ' "$W/read" || fail "$1: $(cat "$W/read") $(cat "$W/log")"
}

printf '| | reads that waited %s s in the store | second gets | that came first | longest read |\n| --- | --- | --- | --- | --- |\n' "$pause"
for hedge in 5 0; do
    rm -f "$W/sock" "$W/control"
    serve_unix "$W/sock" "$STORE/set" control="$W/control" hedge=$hedge readahead=0 2>"$W/log" # nothing is kept
    read_slowly "at first" # what is usual must be known: 200 gets
    before=$(line_says faulted)
    line "{\"mode\": \"pauses\", \"every\": 60, \"delay_s\": $pause}"
    read_slowly "with pauses"
    line '{"mode": "none"}'
    paused=$(($(line_says faulted) - before)) hedges=$(count fetch_hedges_total) wins=$(count fetch_hedge_wins_total)
    printf '| hedge=%s | %s | %s | %s | %s |\n' "$hedge" "$paused" "$hedges" "$wins" "$(sed 's/.*slowest //' "$W/read")"
    [ "$paused" -ge 2 ] || fail "the line paused $paused times: the test proves nothing"
    if [ $hedge = 0 ]; then
        [ "$hedges" = 0 ] || fail "$hedges second gets with hedge=0"
    else
        [ "$wins" -ge 1 ] && [ "$wins" -le "$hedges" ] || fail "$wins of $hedges second gets came first"
        [ "$hedges" -le $(($(count fetch_requests_total) * hedge / 100 + 10)) ] || fail "$hedges second gets are more than the budget"
    fi
    [ "$(count fetch_errors_total)" = 0 ] || fail "fetches failed"
    stop
done
