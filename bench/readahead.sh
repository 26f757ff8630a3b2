#!/bin/bash
# readahead.sh [FILES] [ROW...]: what chunk size and readahead cost and bring: FILES (20,000) files, nothing cached, read
# by 8 processes through the mounted image, the store behind 1 Gbit/s and 10 ms round trip.
#
# Rows, all by default: sample (a twentieth of the files, spread over the set, in random order), epoch (all files,
# shuffled), warm (another epoch after that, without page cache), sequential (all, in order), half (three shuffled epochs
# without page cache, a cache of half the set). For each chunk size (CHUNKS: 64K 128K 256K) and each policy (POLICIES:
# readahead=0 fill=off default; + joins options of granary serve, without their dashes): seconds, bytes over the link, these over the bytes of
# the files (amplification), requests, and bytes that came in the two seconds after it. Medians of TURNS (1). RTT_MS (10),
# RATE (1000 Mbit/s). LOCK=FILE is held by each turn.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}
shift || true
rows=("$@")
[ $# -gt 0 ] || rows=(sample epoch warm sequential half)
CLIENT=("${PREFIX[@]}" nsenter "--net=/run/netns/$LINK-c") # ip netns exec would hide what is mounted
READER=$GRANARY_BUILD/bench/epoch-reader
REPEATS=${TURNS:-1}

data=$(data_set "$files" 200)
"$READER" make "$data" >"$W/list"
total=$(awk '{ n += $2 } END { printf "%d", n }' "$W/list")
link_up $((${RTT_MS:-10} / 2)) "${RATE:-1000}"
SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
mkdir -p "$W/mnt" "$W/nginx" "$SHM/www"
cat >"$W/nginx/conf" <<CONFIGURATION
user root; worker_processes 2; pid $W/nginx/pid; error_log $W/nginx/error.log; daemon off;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300;
  server { listen 10.77.0.2:8080; location / { root $SHM/www; } } }
CONFIGURATION
background "${IN_SERVER[@]}" nginx -p "$W/nginx" -c "$W/nginx/conf"
wait_for 10 in_server curl -s -o /dev/null http://10.77.0.2:8080/
extra_cleanup() { unserve; }

# serve CHUNK POLICY BUDGET
serve() {
    local parameters=()
    [ "$2" = default ] || IFS=+ read -ra parameters <<<"$2"
    rm -rf "$W/cache"
    drop_caches
    "${CLIENT[@]}" "$GRANARY" serve --fuse "$W/images" --warm none "http://10.77.0.2:8080/store-$1/set" \
        --cache "$W/cache:$3" "${parameters[@]/#/--}" >>"$W/log" 2>&1 9>&- &
    server=$!
    wait_for 20 test -S "$W/images.control"
    "${CLIENT[@]}" "$GRANARY" mount --fuse --socket "$W/images" "http://10.77.0.2:8080/store-$1/set" \
        "$W/mnt" >>"$W/log" 2>&1 9>&-
    mountpoint -q "$W/mnt" || { cat "$W/log" >&2; exit 1; }
    find "$W/mnt" -type f >/dev/null
}

unserve() {
    ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt"
    [ -z "${server:-}" ] || { kill "$server"; wait "$server" || true; }
    server=
}

requests() {
    curl -sS --noproxy '*' --unix-socket "$W/images.control" http://x/metrics |
        awk '$1 == "granary_fetch_requests_total" { print $2 }'
}
read_all() { "${PREFIX[@]}" "$READER" read "$W/list" "$W/mnt" 8 "$@"; }
sample() { read_all 1 $((files / 20)); }
epoch() { read_all 1; }
sequential() { read_all 0; }
warm() { read_all 2; }
half() {
    local i
    for i in 1 2 3; do
        drop_caches
        read_all "$i"
    done
}

# turn CHUNK POLICY ROW: "SECONDS BYTES REQUESTS AFTER WANTED"
turn() {
    local before asked start end budget=$((total * 5 / 4 + (256 << 20)))
    [ "$3" != half ] || budget=$((total / 2))
    serve "$1" "$2" $budget
    [ "$3" != warm ] || { epoch >/dev/null; drop_caches; }
    before=$(link_bytes) asked=$(requests) start=$EPOCHREALTIME
    "$3" >"$W/out"
    end=$EPOCHREALTIME
    note "$1 $2 $3: $(cat "$W/out")"
    local moved=$(($(link_bytes) - before))
    sleep 2
    awk -v a="$start" -v b="$end" -v moved="$moved" -v asked=$(($(requests) - asked)) \
        -v after=$(($(link_bytes) - before - moved)) -v wanted="$(jq -s 'map(.bytes) | add' "$W/out")" \
        'BEGIN { printf "%.2f %d %d %d %d\n", b - a, moved, asked, after, wanted }'
    unserve
}

exec 9>>"${LOCK:-$W/lock}"
printf '%-6s %-12s %-10s %8s %10s %6s %9s %9s\n' chunk policy row seconds "link MB" ampl. requests "after MB"
for chunk in ${CHUNKS:-64K 128K 256K}; do
    "$GRANARY" build "$data" "file://$SHM/www/store-$chunk/set" --chunk-size "$chunk" --quiet >&2
    for policy in ${POLICIES:-readahead=0 fill=off default}; do
        for row in "${rows[@]}"; do
            times="" moved="" asked="" after=""
            for _ in $(seq "$REPEATS"); do
                flock 9
                turn "$chunk" "$policy" "$row" >"$W/turn"
                flock -u 9
                read -r t b r a wanted <"$W/turn"
                times+=" $t" moved+=" $b" asked+=" $r" after+=" $a"
            done
            # shellcheck disable=SC2086
            printf '%-6s %-12s %-10s %8s %10s %6s %9s %9s\n' "$chunk" "$policy" "$row" "$(median $times)" \
                "$(megabytes "$(median $moved)" 1)" "$(ratio "$(median $moved)" "$wanted")" "$(median $asked)" \
                "$(megabytes "$(median $after)" 1)"
        done
    done
    rm -r "$SHM/www/store-$chunk"
done
