# shellcheck shell=bash disable=SC2154 # `files` and what lib.sh sets
# Sourced by readahead.sh and ablation.sh behind lib.sh: an image of $files files, mounted over a link of RATE (1,000)
# Mbit/s from a store on nginx, and loads of READERS (8) processes that read it. Port 8080 answers at once, port 8081
# one request in a hundred only after 500 ms.

CLIENT=("${PREFIX[@]}" nsenter "--net=/run/netns/$LINK-c") # ip netns exec would hide what is mounted
READER=$GRANARY_BUILD/bench/epoch-reader
READERS=${READERS:-8}

# slow_mount_up RTT_MS: the dataset's list and length, the link, nginx
slow_mount_up() {
    data=$(data_set "$files" 200)
    "$READER" make "$data" >"$W/list"
    total=$(awk '{ n += $2 } END { printf "%.0f", n }' "$W/list")
    link_up $(($1 / 2)) "${RATE:-1000}"
    SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
    mkdir -p "$W/mnt" "$W/nginx" "$SHM/www"
    cat >"$W/nginx/conf" <<CONFIGURATION
load_module /usr/lib/nginx/modules/ngx_http_echo_module.so;
user root; worker_processes 2; pid $W/nginx/pid; error_log $W/nginx/error.log; daemon off;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300;
  split_clients \$request_id \$slow { 1% 1; * ""; }
  server { listen 10.77.0.2:8080; location / { root $SHM/www; } }
  server { listen 10.77.0.2:8081; root $SHM/www;
    location / { if (\$slow) { rewrite ^(.*)\$ /slow\$1 last; } }
    location ~ ^/slow(/.*)\$ { internal; echo_sleep 0.5; echo_exec /late\$1; }
    location /late/ { internal; alias $SHM/www/; } } }
CONFIGURATION
    background "${PREFIX[@]}" "${IN_SERVER[@]}" nginx -p "$W/nginx" -c "$W/nginx/conf"
    wait_for 10 in_server curl -s -o /dev/null http://10.77.0.2:8080/
}
extra_cleanup() { unserve; }

# serve BUILD STORE OPTIONS BUDGET: OPTIONS of granary serve, joined by +, without their dashes; `default`: none
serve() {
    local options=()
    [ "$3" = default ] || IFS=+ read -ra options <<<"$3"
    rm -rf "$W/cache"
    drop_caches
    "${CLIENT[@]}" "$1/cli/granary" serve --fuse "$W/images" --warm none "$2/set" \
        --cache "$W/cache:$4" "${options[@]/#/--}" >>"$W/log" 2>&1 9>&- &
    server=$!
    wait_for 60 test -S "$W/images.control"
    "${CLIENT[@]}" "$GRANARY" mount --fuse --socket "$W/images" "$2/set" "$W/mnt" >>"$W/log" 2>&1 9>&-
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

# The loads print the reader's JSON, a line an epoch.
read_all() { "${PREFIX[@]}" "$READER" read "$W/list" "$W/mnt" "$READERS" "$@"; }
sample() { read_all 1 $((files / 20)); }
epoch() { read_all 1; }
# From port 8081
tail_epoch() { read_all 1; }
sequential() { read_all 0; }
warm() { read_all 2; }
# A twentieth of the files by page faults, one page after the other, as LMDB reads a value and the loader a library
faults() { "${PREFIX[@]}" python3 "$BENCH/faults.py" "$W/list" "$W/mnt" "$READERS" $((files / 20)); }
# The image itself in order, by requests of 256 KiB, 16 at a time, as a client asks that splits its reads
split() {
    "${PREFIX[@]}" fio --name=split --filename="$W/images/set" --rw=read --bs=256k --ioengine=libaio --iodepth=16 --direct=1 \
        --output-format=json |
        jq -c '.jobs[0].read | {bytes: .io_bytes, seconds: (.runtime / 1000), p99_ms: (.clat_ns.percentile["99.000000"] / 1e6)}'
}
# A cache of half the set
half() {
    local i
    for i in 1 2 3; do
        drop_caches
        read_all "$i"
    done
}

# turn BUILD CHUNK OPTIONS LOAD SETTLE: "SECONDS BYTES REQUESTS P99_MS AFTER WANTED": seconds of the readers; AFTER:
# bytes that came in the SETTLE seconds after them; WANTED: bytes of the files that were read
turn() {
    local before asked moved budget=$((total * 5 / 4 + (256 << 20))) port=8080
    [ "$4" != half ] || budget=$((total / 2))
    [ "$4" != tail_epoch ] || port=8081
    serve "$1" "http://10.77.0.2:$port/store-$2" "$3" $budget
    [ "$4" != warm ] || { epoch >/dev/null; drop_caches; }
    before=$(link_bytes) asked=$(requests)
    "$4" >"$W/out"
    note "$2 $3 $4: $(cat "$W/out")"
    moved=$(($(link_bytes) - before)) asked=$(($(requests) - asked))
    sleep "$5"
    jq -rs --argjson moved $moved --argjson asked $asked --argjson after $(($(link_bytes) - before - moved)) \
        '"\(map(.seconds) | add) \($moved) \($asked) \(map(.p99_ms) | max) \($after) \(map(.bytes) | add)"' "$W/out"
    unserve
}
