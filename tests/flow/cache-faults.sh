#!/bin/bash
# The disk of the cache fails, hangs, fills up, lies, turns read-only and loses its directory under a server whose
# client reads and compares all the time: no error, no wrong byte, no long wait; every fault is counted and said, and
# the directory comes back by itself. At the start a failing disk is left out and keeps what it has.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install jq curl)"; done

probe=$GRANARY_BUILD/tests/tools/nbdprobe

faulty "$W/disk" "$W/behind"
mkdir "$W/tree"
for i in $(seq 16); do head -c 2000000 /dev/urandom >"$W/tree/file-$i"; done
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" export -q "$W/store/faces" "$W/image"

# start DIR: a server whose cache is in DIR; `said` looks at what the log says from then on
start() {
    rm -f "$W/sock"
    serve_unix "$W/sock" "$W/store/faces" cache="$1:64M" control="$W/control" disk-timeout=2s 2>"$W/server.err"
    seen=0
}
stop() { kill "$SERVER_PID" && wait "$SERVER_PID" || true; }
new_lines() { tail -n +$((seen + 1)) "$W/server.err"; }
status() { curl -sS --fail --unix-socket "$W/control" http://granary/status; }
count() { status | jq -r ".counters.granary_cache_$1"; }
is() { [ "$(count "$1")" = "$2" ]; }
more() { [ "$(count "$1")" -gt "$2" ]; }
fault() { echo "$1" >"$W/disk/.faults"; }
said() { new_lines | grep -F -- "$1" >"$W/said"; }
evict_all() { curl -sS --fail --unix-socket "$W/control" -X POST "http://granary/cache/evict?all=1" >"$W/evicted"; }

# The client: reads and compares until $W/stop is there.
client() {
    while [ ! -e "$W/stop" ]; do
        "$probe" "nbd+unix:///?socket=$W/sock" compare "$W/image" >>"$W/slowest" 2>>"$W/client.err" || return 1
    done
}
start_client() {
    rm -f "$W/stop"
    : >"$W/slowest"
    client &
    CLIENT=$!
}
stop_client() {
    : >"$W/stop"
    wait "$CLIENT" || fail "$1: the client saw: $(cat "$W/client.err")"
    echo "   $1: slowest read $(sort -n "$W/slowest" | tail -1) ms"
}

# rounds COUNT: the client has compared so often
rounds() { [ "$(wc -l <"$W/slowest")" -ge "$1" ]; }

# during FAULT WAY COUNTER: the fault is on until WAY (reading, writing) is down, COUNTER has grown and the client has
# read everything while it was on: no read waits for such a disk to its end
during() {
    local before hits round
    echo "== $1"
    [ "$2" = reading ] || evict_all # something to write
    before=$(count "$3")
    seen=$(wc -l <"$W/server.err")
    fault "$1" # before there is anything to write: all of it meets the fault
    start_client
    wait_for 60 is "$2_down" 1
    wait_for 60 more "$3" "$before"
    status | jq -e ".cache_directories[0].$2 == \"down\"" >"$W/null" || fail "status: $(status | jq -c .cache_directories)"
    metric_is "$W/control" "granary_cache_directory_up{directory=\"$W/disk\",as=\"$2\"} 0" || fail "$(metrics "$W/control" | grep _up)"
    round=$(wc -l <"$W/slowest")
    wait_for 120 rounds $((round + 2))
    fault off
    wait_for 60 is "$2_down" 0
    hits=$(count hits_total)
    wait_for 60 more hits_total "$hits"
    stop_client "$1"
    wait_for 60 said "$W/disk: $2 is down"
    wait_for 60 said "$W/disk: $2 works again"
    [ "$(new_lines | wc -l)" -lt 10 ] || fail "$1: too many lines in the log: $(new_lines)"
}

start "$W/disk"
start_client
wait_for 60 more hits_total 200
stop_client "no fault"
! said "$W/disk: " || fail "a change of state without a fault: $(cat "$W/said")"

during "read-eio data" reading read_errors_total
stop
start "$W/disk" # records of what was hit are in memory, and not read from disk
during "read-eio records" reading read_errors_total
during "read-hang" reading read_timeouts_total
during "write-eio" writing fill_errors_total
during "write-enospc" writing fill_errors_total
during "readonly" writing fill_errors_total
during "write-hang" writing fill_errors_total
during "read-flip=1" reading crc_errors_total

echo "== ended while it hangs"
fault read-hang
"$probe" "nbd+unix:///?socket=$W/sock" compare "$W/image" >"$W/slowest"
kill "$SERVER_PID"
wait_for 60 said "have had no answer from their disk; leaving without it"
fault off
wait "$SERVER_PID" || true

echo "== started while the disk fails: left out, and nothing of it is lost"
fault "read-eio records"
start "$W/disk"
said "starting without this directory" || fail "the log says: $(cat "$W/server.err")"
"$probe" "nbd+unix:///?socket=$W/sock" compare "$W/image" >"$W/slowest"
[ "$(count directories_absent)" = 1 ] && [ "$(count directories)" = 0 ] || fail "$(status)"
status | jq -e '.cache_directories[0].reading == "absent"' >"$W/null" || fail "$(status)"
stop
fault off
start "$W/disk"
more entries 50 || fail "what the disk held is lost: $(count entries) chunks"
stop

echo "== deleted under the server"
start "$W/real"
start_client
wait_for 60 more hits_total 200
rm -r "$W/real"
wait_for 60 is directories_deleted 1
hits=$(count hits_total)
wait_for 60 more hits_total $((hits + 200))
stop_client "deleted"
wait_for 60 said "its files were deleted"
[ "$(grep -c "its files were deleted" "$W/server.err")" = 1 ] || fail "the log says: $(cat "$W/server.err")"
stop
