#!/bin/bash
# priorities.sh [MIB] [SECONDS]: two images of MIB (1536) of incompressible bytes each, over plain HTTP behind 1 Gbit/s.
#
# 1. The link's use, at 10 and at 200 ms round trip: plain downloads over kept-alive connections (DOWNLOADS="32 64 128"
#    at a time), `granary warm --all` of one image, by NBD and by the control socket, 64 threads of random reads of 64
#    KiB for SECONDS (8), and 256 threads with connections=256. MB/s that crossed the link: over all, and from the 5th
#    second to the last but one, when TCP has opened its windows. ROUND_TRIPS="10 200" sets others, "" leaves this part
#    out.
# 2. Demand beside warming, at 10 ms: the 99th percentile of random uncached reads of 64 KiB by 8 threads for SECONDS,
#    alone, beside warming of the other image at 80 % of the link, and at full speed. READERS="8 1" sets other numbers
#    of threads, "" leaves this part out.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
mib=${1:-1536} seconds=${2:-8}

# shellcheck disable=SC2046
cc -O2 -Wall -D_GNU_SOURCE -o "$W/priorities" "$BENCH/priorities.c" $(pkg-config --cflags --libs libnbd) -pthread
mkdir -p "$W/data"
SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
for name in one two; do
    mkdir "$W/data/$name"
    for i in 1 2 3 4; do head -c $((mib / 4))M /dev/urandom >"$W/data/$name/$i"; done
    "$GRANARY" build "$W/data/$name" "file://$SHM/store/$name" --quiet >&2
    rm -r "${W:?}/data/$name"
done

front_up() { # ROUND_TRIP_MS
    link_up $(($1 / 2)) 1000
    cat >"$W/nginx.conf" <<CONFIGURATION
user root; worker_processes 2; pid $W/nginx.pid; error_log $W/nginx.error; daemon off;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300;
  server { listen 10.77.0.2:8080; location / { root $SHM; } }
}
CONFIGURATION
    background "${PREFIX[@]}" "${IN_SERVER[@]}" nginx -p "$W" -c "$W/nginx.conf"
    front=$BACKGROUND_PID
    wait_for 20 in_client curl -sf --noproxy '*' -o /dev/null http://10.77.0.2:8080/store/granary.json
}
front_down() {
    kill "$front"
    wait "$front" || true
    "$BENCH/link/link.sh" down "$LINK"
}

serve() { # THREADS CONNECTIONS
    rm -rf "$W/cache" "$W/sock" "$W/control"
    background "${PREFIX[@]}" "${IN_CLIENT[@]}" nbdkit -f -t "$1" --unix "$W/sock" "$PLUGIN" image=http://10.77.0.2:8080/store/one \
        image=http://10.77.0.2:8080/store/two "cache=$W/cache:$((3 * mib))M" fill=off "connections=$2" "control=$W/control"
    server=$BACKGROUND_PID
    wait_for 60 test -S "$W/sock"
}
unserve() {
    kill "$server"
    wait "$server" || true
}

uri() { echo "nbd+unix:///$1?socket=$W/sock"; }
priorities() { "${PREFIX[@]}" "$W/priorities" "$(uri "$1")" "${@:2}"; }

# download CONNECTIONS: half of what there is, which is as much as one image; each asks for 4 MiB at a time
download() {
    local i n=$1 pids=()
    (cd "$SHM/store/packs" && find . -type f -printf '%P %s\n') | sort |
        awk '{ for (at = 0; at < $2; at += 4194304) print $1, at "-" at + 4194303 }' >"$W/ranges"
    for ((i = 0; i < n; i++)); do
        awk -v i=$i -v n="$n" -v half="$(($(wc -l <"$W/ranges") / 2))" 'NR <= half && NR % n == i {
            if (done++) print "next"
            print "url=http://10.77.0.2:8080/store/packs/" $1 "\noutput=/dev/null\nrange=" $2 }' "$W/ranges" >"$W/curl.$i"
        "${PREFIX[@]}" "${IN_CLIENT[@]}" curl -sSf --noproxy '*' -K "$W/curl.$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}

# flow COMMAND...: MB/s that came over the link while it ran, over all and in its steady part
flow() {
    local pid
    "$@" >/dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        echo "$(date +%s.%N) $(in_client cat /sys/class/net/dl0/statistics/rx_bytes)"
        sleep 0.25
    done >"$W/flow"
    wait "$pid"
    awk '{ at[NR] = $1; bytes[NR] = $2 }
        END {
            for (a = 1; a < NR && at[a] < at[1] + 4; a++);
            for (b = NR; b > a && at[b] > at[NR] - 1; b--);
            if (b <= a) { a = 1; b = NR }
            printf "%.1f %.1f\n", (bytes[NR] - bytes[1]) / (at[NR] - at[1]) / 1e6, (bytes[b] - bytes[a]) / (at[b] - at[a]) / 1e6
        }' "$W/flow"
}

# served THREADS CONNECTIONS COMMAND...: flow of a fresh server's
served() {
    serve "$1" "$2"
    flow "${@:3}"
    unserve
}

warm_one() { "${PREFIX[@]}" "$GRANARY" warm --all --quiet "$@"; }
read_many() { priorities two read "$1" "$seconds"; }

printf '%-8s %-34s %10s %10s\n' "ms" "1 Gbit/s, which is 125 MB/s" "MB/s" "steady"
for rtt in ${ROUND_TRIPS-10 200}; do
    front_up "$rtt"
    for _ in $(seq "$REPEATS"); do
        # shellcheck disable=SC2046
        printf "$rtt %s %s %s\n" $(for n in ${DOWNLOADS-32 64 128}; do echo "download,connections=$n" $(flow download "$n"); done) \
            "warm--all,NBD" $(served 64 64 warm_one "$(uri one)") "warm--all" $(served 64 64 warm_one --export one "$W/control") \
            "64-readers" $(served 2 64 read_many 64) "256-readers,connections=256" $(served 2 256 read_many 256) |
            awk '{ printf "%-8s %-34s %10s %10s\n", $1, $2, $3, $4 }'
    done
    front_down
done

# beside READERS RATE: reads of image one, while image two is cached at RATE
beside() {
    local warmer="" result
    echo 0 >"$W/warmed"
    serve 2 64
    if [ "$2" != none ]; then
        "${PREFIX[@]}" "$W/priorities" "$(uri two)" cache 32 "$seconds" "$2" >"$W/warmed" &
        warmer=$!
    fi
    result=$(priorities one read "$1" "$seconds")
    [ -z "$warmer" ] || wait "$warmer"
    unserve
    echo "$result $([ ! -s "$W/warmed" ] || cat "$W/warmed")"
}

[ -n "${READERS-8}" ] || exit 0
front_up 10
printf '\n%-8s %-22s %8s %10s %10s %10s %12s\n' "readers" "beside" reads "median ms" "p99 ms" "MB/s" "warmed MB/s"
for _ in $(seq "$REPEATS"); do
    for readers in ${READERS-8 1}; do
        for case in "nothing none" "warming-at-80% 95000000" "warming-at-full-speed 0"; do
            # shellcheck disable=SC2086
            set -- $case
            # shellcheck disable=SC2046,SC2183
            printf '%-8s %-22s %8s %10s %10s %10s %12s\n' "$readers" "$1" $(beside "$readers" "$2")
        done
    done
done
front_down
