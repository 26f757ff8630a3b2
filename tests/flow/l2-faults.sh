#!/bin/bash
# The line to a shared tier fails in every way, and the store behind it is well: a whole image is read from a cold cache
# without an error and without a wrong byte. docs/internals/faults.md has the table that this prints.
. "$(dirname "$0")/lib-store-faults.sh"

make_store 40
serve_store
TIER=$STORE STORE=http://127.0.0.1:$UPSTREAM_PORT
outage=$(seconds 3 60)

# tier_survives NAME FAULT COUNTER: that counter says what became of it
tier_survives() {
    local faulted
    start l2="$TIER"
    faulted=$(line_says faulted)
    line "$2"
    read_everything "$1"
    printf '| %s | %s | %s s | %s | %s | %s | %s |\n' "$1" "$(cut -d ' ' -f 1 "$W/read")" \
        "$(sed 's/.*slowest \(.*\) ms/\1/' "$W/read" | awk '{ printf "%.1f", $1 / 1000 }')" \
        "$(count tier_requests_total)" "$(count tier_failures_total)" "$(count tier_wrong_total)" "$(count store_gets_total)"
    [ "$(count tier_requests_total)" -gt 0 ] || fail "$1: the tier was not asked"
    [ "$3" = none ] || { [ $(($(line_says faulted) - faulted)) -gt 0 ] && [ "$(count "$3")" -gt 0 ]; } || fail "$1: the fault was not met"
    [ "$(count fetch_errors_total)" = 0 ] || fail "$1: $(count fetch_errors_total) fetches failed"
    [ "$(count store_retries_total)" = 0 ] || fail "$1: the store was asked again, which is well"
    line '{"mode": "none"}'
    stop
}

printf '| fault of the tier | failed reads | longest read | asked of the tier | not answered whole | wrong | asked of the store |\n'
printf '| --- | --- | --- | --- | --- | --- | --- |\n'
tier_survives "none" '{"mode": "none"}' none
tier_survives "connections refused for $outage s" "{\"mode\": \"refuse\", \"after\": 3, \"for_s\": $outage}" tier_failures_total
tier_survives "silence for good" '{"mode": "silent", "after": 3}' tier_failures_total
tier_survives "10 KB/s a connection for $outage s" "{\"mode\": \"trickle\", \"rate\": 10000, \"after\": 3, \"for_s\": $outage}" tier_requests_total
tier_survives "answers 5 s late for $outage s" "{\"mode\": \"late\", \"delay_s\": 5, \"after\": 3, \"for_s\": $outage}" tier_requests_total
tier_survives "30 % errors: 500, 503, reset, cut off" '{"mode": "errors", "percent": 30, "kinds": ["500", "503", "reset", "cut", "broken"]}' tier_failures_total
tier_survives "30 % wrong Content-Length" '{"mode": "errors", "percent": 30, "kinds": ["short", "long"]}' tier_failures_total
tier_survives "30 % a bit flipped on the way" '{"mode": "errors", "percent": 30, "kinds": ["flip"]}' tier_wrong_total
