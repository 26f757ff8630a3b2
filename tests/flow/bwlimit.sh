#!/bin/bash
# --bwlimit and bwlimit=: a build's reading and writing together, and what a server fetches, take the time that the
# limit says at least. (How much longer is the machine's business.)
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq nginx; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq nginx-light)"
done
unset http_proxy https_proxy

mkdir -p "$W/web/tree"
for i in 1 2 3; do head -c 1000000 /dev/urandom >"$W/web/tree/$i"; done
free_port
port=$FREE_PORT
serve_nginx "server { listen 127.0.0.1:$port; location / { root $W/web; autoindex on; } }"
wait_for 60 answers "$port"

# at_least SECONDS BYTES BYTES-A-SECOND: what the limit says, but for the burst
at_least() { awk -v took="$1" -v bytes="$2" -v rate="$3" 'BEGIN { exit !(took >= bytes / rate - 0.2) }'; }

"$GRANARY" build -q --json --bwlimit 4M/s "http://127.0.0.1:$port/tree/" "$W/web/store/one" >"$W/built"
read -r took bytes uploaded < <(jq -r '"\(.seconds) \(.bytes_read + .bytes_uploaded) \(.bytes_uploaded)"' "$W/built")
[ "$uploaded" -ge 3000000 ] && [ "$bytes" -ge 6000000 ] || fail "$bytes bytes, $uploaded uploaded: the test proves nothing"
at_least "$took" "$bytes" 4194304 || fail "build: $bytes bytes in $took s"
"$GRANARY" export -q "$W/web/store/one" "$W/image"

for store in "$W/web/store" "http://127.0.0.1:$port/store"; do
    background "$GRANARY" serve "$store/one" --socket "$W/sock" --bwlimit 2M 2>"$W/err"
    wait_for 60 listens "$W/sock"
    begin=$(date +%s.%N)
    nbdcopy "nbd+unix:///one?socket=$W/sock" - | cmp - "$W/image"
    end=$(date +%s.%N)
    at_least "$(awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }')" 3000000 2097152 || fail "$store: read in $begin - $end"
    kill "$BACKGROUND_PID"
    wait "$BACKGROUND_PID" || fail "the server's exit: $?"
done

! "$GRANARY" serve "$W/web/store/one" --socket "$W/sock" --bwlimit 10 2>"$W/err" || fail "10 bytes a second are accepted"
grep -q -- '--bwlimit: 10 is less than the 64K a second it must be' "$W/err" || fail "$(cat "$W/err")"
! "$GRANARY" build -q --bwlimit fast "$W/web/tree" "$W/web/store/two" 2>"$W/err" || fail "a rate of 'fast' is accepted"
grep -q -- "--bwlimit: 'fast' is not a rate" "$W/err" || fail "$(cat "$W/err")"
