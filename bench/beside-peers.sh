#!/bin/bash
# Readers of a node's cached data beside other nodes that read from it as fast as it answers.
#
#   beside-peers.sh [FILES] [SECONDS]      default 4000 files of 100 KB, 4 s each
#
# Readers: random reads of 64 KiB over NBD by 4 threads, RATE (1000) a second, each timed from when it was due, and as
# fast as they go; whole files in random order by 4 processes over FUSE, nothing of them in the page cache. They run
#
#   alone       beside nothing
#   another's   while ASKERS (16) connections read cached chunks from the peer port of another server on this machine:
#               what CPU, memory and disk that are shared cost
#   its own     while they read from the readers' own server: what is more than that, it does to its readers
#
# in turns, REPEATS (3); medians. The requests are those that nodes sent before: of random reads, and long ranges of
# warming (KINDS="random warm").
. "$(dirname "$(readlink -f "$0")")/lib.sh"
FILES=${1:-4000} SECONDS_EACH=${2:-4} RATE=${RATE:-1000}

# shellcheck disable=SC2046
cc -O2 -Wall -D_GNU_SOURCE -o "$W/priorities" "$BENCH/priorities.c" $(pkg-config --cflags --libs libnbd) -pthread
READER=$GRANARY_BUILD/bench/epoch-reader
SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
data=$(data_set "$FILES" 20)
"$READER" make "$data" >"$W/list"
"$GRANARY" build -q "$data" "file://$SHM/store/set" >&2

mkdir "$W/nginx"
cat >"$W/nginx/conf" <<CONFIGURATION
user root; worker_processes 1; pid $W/nginx/pid; error_log $W/nginx/error.log; daemon off;
events { worker_connections 1024; }
http { log_format asked '\$uri|\$http_range|\$http_granary_chunks'; access_log $W/asked asked; large_client_header_buffers 8 32k;
  server { listen 127.0.0.1:9310; location / { proxy_pass http://127.0.0.1:9300; proxy_http_version 1.1; } } }
CONFIGURATION

# A node whose members are itself alone, so that it owns everything.
node_options() { echo "l2=http://127.0.0.1:$1/lake" "peer-listen=127.0.0.1:$1" peer-key=none; }
serve() { # NAME OPTION...
    background nbdkit -f -t 64 --unix "$W/$1.sock" "$PLUGIN" "image=file://$SHM/store/set" "control=$W/$1.control" \
        "cache=$W/$1.cache:1G" "${@:2}"
    wait_for 60 test -S "$W/$1.sock"
}
uri() { echo "nbd+unix:///?socket=$W/$1.sock"; }
priorities() { "$W/priorities" "$(uri "$1")" "${@:2}"; }
warm() { "$GRANARY" warm --all --quiet "$1"; }

# The requests of a node that reads through the recording nginx, as the options of curl.
record() { # KIND COMMAND...
    serve "$1" l2=http://127.0.0.1:9310/lake
    : >"$W/asked"
    "${@:2}" >/dev/null
    kill "$BACKGROUND_PID"
    wait "$BACKGROUND_PID" || true
    shuf --random-source=<(yes 1) "$W/asked" |
        awk -F'|' -v port=PORT '$3 != "-" && $3 != "" { sub("bytes=", "", $2)
            printf "%surl = http://127.0.0.1:%s%s\nrange = %s\nheader = \"Granary-Chunks: %s\"\n", n++ ? "next\n" : "", port, $1, $2, $3 }' >"$W/$1.requests"
    echo "$1: $(grep -c ^url "$W/$1.requests") requests" >&2
}

# shellcheck disable=SC2046
serve reads $(node_options 9300)
reads=$BACKGROUND_PID
# shellcheck disable=SC2046
serve other $(node_options 9301)
mkdir "$W/mnt"
"$GRANARY" mount --fuse --json --cache "$W/files.cache:1G" --l2 http://127.0.0.1:9302/lake --peer-listen 127.0.0.1:9302 --peer-key none \
    "file://$SHM/store/set" "$W/mnt" >"$W/mounted"
files=$(pgrep -P "$(jq .server_pid "$W/mounted")")
extra_cleanup() { ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt" >&2; }
for at in "$W/reads.control" "$W/other.control" "$W/mnt"; do warm "$at"; done
background nginx -p "$W/nginx" -c "$W/nginx/conf"
wait_for 30 curl -s -o "$W/answer" http://127.0.0.1:9310/
record random priorities random read 4 3
record warm warm "$W/warm.control"

# ask PORT CONNECTIONS KIND: until end_asking
ask() {
    local i
    for ((i = 0; i < $2; i++)); do
        sed "s/:PORT/:$1/" "$W/$3.requests" >"$W/ask.$i"
        background timeout 60 bash -c 'while curl -sS --noproxy "*" -K "$0" >/dev/null; do :; done' "$W/ask.$i"
        asking+=("$BACKGROUND_PID")
    done
}
end_asking() {
    local pid
    for pid in "${asking[@]}"; do kill "$pid"; done
    wait "${asking[@]}" || true
    asking=()
}
counter() { "$GRANARY" status --quick --json "$1" | jq ".counters.$2 // 0"; }

paced() { priorities reads again 4 "$SECONDS_EACH" "$RATE"; }
fast() { priorities reads again 4 "$SECONDS_EACH" 0; }
whole() {
    drop_caches
    "$READER" read "$W/list" "$W/mnt" 4 1 | jq -r '"\(.files) \(.p50_ms) \(.p99_ms) \(.bytes / .seconds / 1e6 * 10 | round / 10)"'
}

# row READERS BESIDE CONNECTIONS KIND: the readers' figures, what the others got meanwhile, and the CPU of the readers'
# server
row() {
    local port=9301 control=$W/other.control pid=$reads own=9300 at=$W/reads.control before bytes began ended result
    [ "$1" != whole ] || pid=$files own=9302 at=$W/mnt
    [ "$2" != its-own ] || port=$own control=$at
    [ "$2" = alone ] || ask "$port" "$3" "$4"
    sleep 0.5
    bytes=$(counter "$control" granary_peer_served_bytes_total) before=$(ticks "$pid") began=$(date +%s.%N)
    result=$("$1")
    ended=$(date +%s.%N)
    bytes=$(($(counter "$control" granary_peer_served_bytes_total) - bytes)) before=$(($(ticks "$pid") - before))
    awk -v row="$1 $2 $4 $3 $result" -v bytes=$bytes -v ticks=$before -v hz="$(getconf CLK_TCK)" -v s="$began" -v e="$ended" \
        'BEGIN { printf "%s %.1f %.2f\n", row, bytes / (e - s) / 1e6, ticks / hz / (e - s) }' | tee -a "$W/rows" >&2
    [ "$2" = alone ] || end_asking
}

asking=()
for _ in $(seq "$REPEATS"); do
    for readers in ${READERS-paced fast whole}; do
        row "$readers" alone 0 -
        for connections in ${ASKERS-16}; do
            for kind in ${KINDS-random warm}; do
                row "$readers" "another's" "$connections" "$kind"
                row "$readers" its-own "$connections" "$kind"
            done
        done
    done
done

echo "| readers | peers read from | requests | connections | reads | p50, ms | p99, ms | MB/s | peers, MB/s | CPUs of the readers' server |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
cut -d' ' -f1-4 "$W/rows" | awk '!seen[$0]++' | while read -r case; do
    printf '| %s |' "${case// / | }"
    for column in 5 6 7 8 9 10; do
        # shellcheck disable=SC2046
        printf ' %s |' "$(median $(grep -F "$case " "$W/rows" | cut -d' ' -f$column))"
    done
    echo
done
