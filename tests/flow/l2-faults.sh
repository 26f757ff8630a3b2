#!/bin/bash
# The line to a shared cache proxy fails in every way, and the store behind it is well: a whole image is read from a
# cold cache without an error and without a wrong byte. docs/internals/faults.md has the table that this prints.
# ctest: long
. "$(dirname "$0")/lib-store-faults.sh"

make_store "$(seconds 16 40)"
serve_store
PROXY=$STORE STORE=http://127.0.0.1:$UPSTREAM_PORT
outage=$(seconds 3 60)

# proxy_survives NAME FAULT COUNTER: that counter says what became of it
proxy_survives() {
    local faulted
    start l2="$PROXY"
    faulted=$(line_says faulted)
    line "$2"
    read_everything "$1"
    printf '| %s | %s | %s s | %s | %s | %s | %s |\n' "$1" "$(cut -d ' ' -f 1 "$W/read")" \
        "$(sed 's/.*slowest \(.*\) ms/\1/' "$W/read" | awk '{ printf "%.1f", $1 / 1000 }')" \
        "$(count l2_requests_total)" "$(count l2_failures_total)" "$(count l2_wrong_total)" "$(count store_gets_total)"
    [ "$(count l2_requests_total)" -gt 0 ] || fail "$1: the proxy was not asked"
    [ "$3" = none ] || { [ $(($(line_says faulted) - faulted)) -gt 0 ] && [ "$(count "$3")" -gt 0 ]; } || fail "$1: the fault was not met"
    [ "$(count fetch_errors_total)" = 0 ] || fail "$1: $(count fetch_errors_total) fetches failed"
    [ "$(count store_retries_total)" = 0 ] || fail "$1: the store was asked again, which is well"
    line '{"mode": "none"}'
    stop
}

printf '| fault of the proxy | failed reads | longest read | asked of the proxy | not answered whole | wrong | asked of the store |\n'
printf '| --- | --- | --- | --- | --- | --- | --- |\n'
proxy_survives "none" '{"mode": "none"}' none
proxy_survives "connections refused for $outage s" "{\"mode\": \"refuse\", \"after\": 3, \"for_s\": $outage}" l2_failures_total
proxy_survives "silence for good" '{"mode": "silent", "after": 3}' l2_failures_total
proxy_survives "10 KB/s a connection for $outage s" "{\"mode\": \"trickle\", \"rate\": 10000, \"after\": 3, \"for_s\": $outage}" l2_requests_total
proxy_survives "answers 5 s late for $outage s" "{\"mode\": \"late\", \"delay_s\": 5, \"after\": 3, \"for_s\": $outage}" l2_requests_total
proxy_survives "30 % errors: 500, 503, reset, cut off" '{"mode": "errors", "percent": 30, "kinds": ["500", "503", "reset", "cut", "broken"]}' l2_failures_total
proxy_survives "30 % wrong Content-Length" '{"mode": "errors", "percent": 30, "kinds": ["short", "long"]}' l2_failures_total
proxy_survives "30 % a bit flipped on the way" '{"mode": "errors", "percent": 30, "kinds": ["flip"]}' l2_wrong_total
