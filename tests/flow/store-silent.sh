#!/bin/bash
# A store that refuses every connection: reads wait and are not lost, one request at a time asks, status and log say so,
# what is cached is served meanwhile, and when the store is back all goes on.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq nginx; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq nginx-light)"
done

mkdir "$W/tree"
head -c 60000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

free_port
port=$FREE_PORT
store_up() {
    serve_nginx "server { listen 127.0.0.1:$port; location / { root $W/store; } }"
    wait_for 60 answers "$port"
}
store_up
uri="nbd+unix:///one?socket=$W/sock"
background "$GRANARY" serve "http://127.0.0.1:$port/one" --socket "$W/sock" --cache "$W/cache:128M" --warm none \
    --disk-timeout "$DISK_TIMEOUT" 2>"$W/err"
wait_for 60 listens "$W/sock"
status() { "$GRANARY" status --quick "$W/sock" "$@" || [ $? = "${EXPECTED:-0}" ]; }
counter() { status --json | jq ".counters.granary_store_$1"; }
probe=$GRANARY_BUILD/tests/tools/nbdprobe
"$probe" "$uri" cache 0 4194304
status | grep "^  http://127.0.0.1:$port *answering\$" >"$W/null" || fail "not healthy at first: $(status)"

kill "$NGINX_PID"
wait "$NGINX_PID" || true
nbdcopy --request-size=262144 --requests=64 "$uri" "$W/copy" &
copy=$!
silent() { status --json | jq -e '.health == "failing" and .stores[0].state == "silent" and .stores[0].waiting > 0'; }
EXPECTED=3
wait_for 60 silent >"$W/silent"
status >"$W/status" || fail "exit $? of status"
grep -q '^granary .*, failing, since 20' "$W/status" || fail "status: $(cat "$W/status")"
grep -q "^failing: store http://127.0.0.1:$port has been failing for [0-9]* s: .*check the address" "$W/status" || fail "status: $(cat "$W/status")"
metric_is "$W/sock.control" "granary_health 2" || fail "$(metrics "$W/sock.control" | grep _health)"
grep -q "^  http://127.0.0.1:$port *not answering for [0-9]* s, [0-9]* requests wait: .*127.0.0.1:$port.*check the address" "$W/status" ||
    fail "status: $(cat "$W/status")"
"$probe" "$uri" cache 0 4194304 || fail "what is cached is not served"
probed() { [ "$(counter breaker_probes_total)" -ge 3 ]; }
wait_for 60 probed
[ "$(counter breaker_open)" = 1 ] || fail "open: $(counter breaker_open)"
metric_is "$W/sock.control" "granary_store_up{store=\"http://127.0.0.1:$port\"} 0" || fail "$(metrics "$W/sock.control" | grep _up)"

EXPECTED=0
store_up
wait "$copy" || fail "a read failed: $(cat "$W/err")"
cmp "$W/copy" "$W/image"
status --json | jq -e '.health == "healthy" and .stores[0] == {url: "http://127.0.0.1:'"$port"'", state: "answering"}' >"$W/healthy" ||
    fail "not healthy again: $(status --json)"
# which come there by a pipe
wait_for 60 grep -q "until store http://127.0.0.1:$port answers, one request at a time probes it" "$W/err"
wait_for 60 grep -q "store http://127.0.0.1:$port answers again, after" "$W/err"
