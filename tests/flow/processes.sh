#!/bin/bash
# What the tests end at their end are their own processes, and nobody who was given the number of one that is gone.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

background sleep infinity
own=$BACKGROUND_PID
background true
gone=$BACKGROUND_PID
wait "$gone"
[ "${BEGAN[$own]}" = "$(began "$own")" ] && [ "${BEGAN[$own]}" -gt 0 ] || fail "it is not known when a process began"

sleep infinity & # another test's, which was given the number of the one that is gone
stranger=$!
extra_cleanup() { kill "$stranger" 2>/dev/null; }
PIDS+=("$stranger")
BEGAN[$stranger]=$((${BEGAN[$own]} - 1))

end_background
gone "$own" || fail "an own process was not ended"
kill -0 "$stranger" || fail "a process was ended that the test had not started"
