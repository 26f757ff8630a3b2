#!/bin/bash
# A store that refuses connections, or takes them and says nothing: what looks things up gives up by itself, and every
# other verb as --timeout says; the sentence names store and endpoint, and what to check.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1
unset AWS_SESSION_TOKEN AWS_ENDPOINT_URL http_proxy all_proxy ALL_PROXY

background python3 -c "
import socket, sys, time
s = socket.create_server(('127.0.0.1', 0), backlog=512)
open('$W/port.new', 'w').write(str(s.getsockname()[1]))
import os
os.rename('$W/port.new', '$W/port')
time.sleep(3600)"
wait_for 60 test -s "$W/port"
mkdir "$W/tree"
echo file >"$W/tree/file"
i=s3://bucket/store/faces
lookups=("images s3://bucket/store" "ls $i" "inspect $i" "tag $i v2" "rm $i:v1" "diff $i $i:v1" "sign $i:v1 --message" "bench $i")
others=("build $W/tree $i" "verify $i" "export $i $W/image" "copy $i $W/elsewhere" "join $i $i-joined" "gc s3://bucket/store"
    "serve $i --socket $W/nbd.sock --cache none")
[ "$(id -u)" != 0 ] || others+=("mount $i $W/mounted --mkdir --cache none")

# start NAME ENDPOINT ARG...: in the background, its end and its sentence in files; killed where it would wait for
# minutes
pids=()
start() {
    local name=$1 endpoint=$2
    shift 2
    { timeout 150 "$GRANARY" "$@" --endpoint "$endpoint" >"$W/$name.out" 2>"$W/$name.err" && echo 0 || echo $?; } >"$W/$name.status" &
    pids+=($!)
}
n=0
for endpoint in http://127.0.0.1:1 "http://127.0.0.1:$(cat "$W/port")"; do
    for words in "${lookups[@]}"; do
        read -ra arguments <<<"$words"
        start $((n++)) "$endpoint" "${arguments[@]}"
    done
    for words in "${lookups[@]}" "${others[@]}"; do
        read -ra arguments <<<"$words"
        start $((n++)) "$endpoint" "${arguments[@]}" --timeout 1s
    done
done
wait "${pids[@]}"
for ((k = 0; k < n; k++)); do
    [ "$(cat "$W/$k.status")" = 1 ] || fail "run $k: exit $(cat "$W/$k.status"): $(cat "$W/$k.err")"
    grep -q "s3://bucket/store/.*http://127.0.0.1:[0-9]*: .*gave up after" "$W/$k.err" || fail "run $k: $(cat "$W/$k.err")"
done
grep -q "check the address, and that the server runs" "$W/0.err" || fail "$(cat "$W/0.err")"
