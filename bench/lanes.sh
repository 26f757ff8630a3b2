#!/bin/bash
# lanes.sh [MIB] [SECONDS]: two images of MIB (512) of incompressible bytes each, over plain HTTP behind 1 Gbit/s.
#
# 1. The link's use, at 10 and at 200 ms round trip: `granary warm --all` of one image, and 64 threads of random reads of
#    64 KiB, against a plain download over 32 kept-alive connections in the same run, by bytes a second.
#    ROUND_TRIPS="10 200" sets others; CONNECTIONS=N the plugin's connections=.
# 2. Demand beside warming, at 10 ms: the 99th percentile of random uncached reads of 64 KiB by 8 threads for SECONDS (8),
#    alone, beside warming of the other image at 80 % of the link, and at full speed. READERS=N: by so many threads.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
mib=${1:-512} seconds=${2:-8}

# shellcheck disable=SC2046
cc -O2 -Wall -D_GNU_SOURCE -o "$W/lanes" "$BENCH/lanes.c" $(pkg-config --cflags --libs libnbd) -pthread
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

# Fewer threads a connection than usual: there are up to 64 of these.
serve() {
    rm -rf "$W/cache" "$W/sock"
    background "${PREFIX[@]}" "${IN_CLIENT[@]}" nbdkit -f -t 32 --unix "$W/sock" "$PLUGIN" image=http://10.77.0.2:8080/store/one \
        image=http://10.77.0.2:8080/store/two "cache=$W/cache:$((3 * mib))M" fill=off ${CONNECTIONS:+"connections=$CONNECTIONS"}
    server=$BACKGROUND_PID
    wait_for 60 test -S "$W/sock"
}
unserve() {
    kill "$server"
    wait "$server" || true
}

uri() { echo "nbd+unix:///$1?socket=$W/sock"; }
lanes() { "${PREFIX[@]}" "$W/lanes" "$(uri "$1")" "${@:2}"; }

# Half of what there is, which is as much as one image, by 32 connections that ask for 4 MiB at a time.
download() {
    local i pids=()
    (cd "$SHM/store/packs" && find . -type f -printf '%P %s\n') | sort |
        awk '{ for (at = 0; at < $2; at += 4194304) print $1, at "-" at + 4194303 }' >"$W/ranges"
    for ((i = 0; i < 32; i++)); do
        awk -v i=$i -v half="$(($(wc -l <"$W/ranges") / 2))" 'NR <= half && NR % 32 == i {
            if (n++) print "next"
            print "url=http://10.77.0.2:8080/store/packs/" $1 "\noutput=/dev/null\nrange=" $2 }' "$W/ranges" >"$W/curl.$i"
        in_client curl -sSf --noproxy '*' -K "$W/curl.$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}

# moved COMMAND...: MB/s that came over the link while it ran
moved() {
    local before took
    before=$(link_bytes)
    took=$(seconds "$@")
    megabytes $(($(link_bytes) - before)) "$took"
}

warm_one() { "${PREFIX[@]}" "$GRANARY" warm --all --quiet "$(uri one)"; }
read_many() { lanes two read 64 "$seconds"; }

echo "1 Gbit/s; MB/s over the link, medians of $REPEATS turns; against the plain download"
printf '%-8s %10s %16s %16s\n' "ms" download "warm --all" "64 readers"
for rtt in ${ROUND_TRIPS:-10 200}; do
    front_up "$rtt"
    plain="" warm="" many=""
    for _ in $(seq "$REPEATS"); do
        plain+=" $(moved download)"
        serve
        warm+=" $(moved warm_one)"
        many+=" $(moved read_many)"
        unserve
    done
    # shellcheck disable=SC2086
    p=$(median $plain) w=$(median $warm) m=$(median $many)
    printf '%-8s %10s %9s (%s) %9s (%s)\n' "$rtt" "$p" "$w" "$(ratio "$w" "$p")" "$m" "$(ratio "$m" "$p")"
    front_down
done

# beside NAME RATE: reads of image one, while image two is cached at RATE
beside() {
    local warmer="" result
    echo 0 >"$W/warmed"
    serve
    if [ "$2" != none ]; then
        "${PREFIX[@]}" "$W/lanes" "$(uri two)" cache 32 "$seconds" "$2" >"$W/warmed" &
        warmer=$!
    fi
    result=$(lanes one read "${READERS:-8}" "$seconds")
    [ -z "$warmer" ] || wait "$warmer"
    unserve
    echo "$result $([ ! -s "$W/warmed" ] || cat "$W/warmed")"
}

front_up 10
printf '\n%-22s %8s %10s %10s %10s %12s\n' "beside" reads "median ms" "p99 ms" "MB/s" "warmed MB/s"
for _ in $(seq "$REPEATS"); do
    for case in "nothing none" "warming-at-80% 95000000" "warming-at-full-speed 0"; do
        # shellcheck disable=SC2086
        set -- $case
        # shellcheck disable=SC2046,SC2183
        printf '%-22s %8s %10s %10s %10s %12s\n' "$1" $(beside "$1" "$2")
    done
done
front_down
