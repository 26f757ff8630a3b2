#!/bin/bash
# Nodes that are each other's cache: N nodes read an N-th of a shuffled dataset each, three epochs, with a cache of
# SHARE percent of the dataset on every node, behind a link to the store that all of them share.
#
#   peers.sh [NODES] [MBIT] [DELAY_MS]     default 3 100 5
#
#   alone   every node has its own cache
#   nginx   an nginx on every node, behind --l2, with nine tenths of the share, and the server with one tenth
#   varnish the same with Varnish
#   peers   --l2 with --peer-listen and --peer-keep none: the nodes' caches are the union
#   hot     the same with --peer-keep hot
#   warm, warm-alone   the nodes of `peers` warm the image together (warm --all --cluster), those of `alone` each all of it:
#           seconds and bytes of one run in place of epochs; not run unless named; take a SHARE that has room for it
#
# SKEW=1: every node also reads the same tenth of the files in each epoch, in between. EPOCHS (3).
#
# Says for each: bytes from the store over bytes of the dataset, without headers and as they passed the link, and seconds,
# of each epoch; CPU of the servers; bytes that the nodes keep on disk over bytes of the dataset; and those that came
# from proxies and other nodes, in all epochs. Nodes reach each other without the link. FILES (4000), SHARE (40), HOW (which of these, and in which order).
NODES=${1:-3} MBIT=${2:-100} DELAY=${3:-5}
. "$(dirname "$0")/lib.sh"
FILES=${FILES:-4000} SHARE=${SHARE:-40} EPOCHS=${EPOCHS:-3}

SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
mkdir -p "$SHM/www" "$W/nginx"
openssl rand -hex 32 >"$W/key"
READER=$GRANARY_BUILD/bench/epoch-reader
data=$(data_set "$FILES" 20)
"$READER" make "$data" >"$W/list"
"$GRANARY" build -q "$data" "file://$SHM/www/lake/set" >&2
stored=$("$GRANARY" inspect --json "file://$SHM/www/lake/set" | jq .stored_bytes)
cache=$((stored * SHARE / 100))

link_up "$DELAY" "$MBIT"
cat >"$W/nginx/conf" <<CONFIGURATION
user root; worker_processes 2; pid $W/nginx/pid; error_log $W/nginx/error.log; daemon off;
events { worker_connections 1024; }
http { log_format sent '\$body_bytes_sent'; access_log $W/nginx/sent sent; sendfile on; tcp_nodelay on; keepalive_requests 1000000; server { listen 10.77.0.2:8080; location / { root $SHM/www; } } }
CONFIGURATION
background "${IN_SERVER[@]}" nginx -p "$W/nginx" -c "$W/nginx/conf"
wait_for 30 in_server curl -s -o /dev/null http://10.77.0.2:8080/lake/granary.json

# A node's nginx: the shipped configuration, on port 9100 + node
node_nginx() {
    mkdir -p "$W/nginx$1"
    {
        echo "user root; worker_processes 1; pid $W/nginx$1/pid; error_log $W/nginx$1/error.log; daemon off;"
        echo "events { worker_connections 1024; } http { access_log off;"
        sed -e "s|/var/cache/nginx/granary|$W/nginx$1/kept|; s|BUCKET.s3.eu-central-1.amazonaws.com:443|10.77.0.2:8080|" \
            -e "s|https://granary_store|http://granary_store|; s|BUCKET.s3.eu-central-1.amazonaws.com|10.77.0.2|" \
            -e "s|listen 8080|listen 127.0.0.1:$((9100 + $1))|; s|max_size=400g|max_size=$((cache * 9 / 10))|" \
            "$SOURCE/deploy/nginx/granary-l2.conf"
        echo "}"
    } >"$W/nginx$1/conf"
    background "${IN_CLIENT[@]}" nginx -p "$W/nginx$1" -c "$W/nginx$1/conf"
    proxies+=("$BACKGROUND_PID")
}

# A node's Varnish: the shipped configuration, on port 9100 + node
node_varnish() {
    sed -e 's|\.host = "BUCKET.s3.eu-central-1.amazonaws.com"|.host = "10.77.0.2"|; s|\.port = "80"|.port = "8080"|' \
        -e "s|BUCKET.s3.eu-central-1.amazonaws.com|10.77.0.2|" "$SOURCE/deploy/varnish/granary-l2.vcl" >"$W/varnish$1.vcl"
    background "${IN_CLIENT[@]}" varnishd -F -f "$W/varnish$1.vcl" -a "127.0.0.1:$((9100 + $1))" -n "$W/varnish$1" -T none -j none \
        -p thread_pool_min=10 -s "granary=file,$W/varnish$1.kept,$((cache * 9 / 10))" 2>"$W/varnish$1.log"
    proxies+=("$BACKGROUND_PID")
}

# on_all_nodes FUNCTION: runs it with the number of each node, on all at once
on_all_nodes() {
    local n pids=()
    for ((n = 0; n < NODES; n++)); do
        "$1" "$n" &
        pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || { echo "$1 failed on a node" >&2; exit 1; }; done
}

read_part() { "$READER" read "$W/part$1" "$W/mnt$1" 4 0 >"$W/read$1" || { cat "$W/read$1" >&2; return 1; }; }
warm_node() { "$GRANARY" warm -q "$W/mnt$1" --all "${cluster[@]}"; }

# An epoch: every node reads its part of one shuffle; prints the seconds until the last has ended.
epoch() {
    local n
    shuf --random-source=<(yes "$1") "$W/list" >"$W/shuffled"
    for ((n = 0; n < NODES; n++)); do
        {
            awk -v n="$n" -v of="$NODES" 'NR % of == n' "$W/shuffled"
            [ -z "${SKEW:-}" ] || awk 'NR % 10 == 0' "$W/list"
        } | shuf --random-source=<(yes "$1$n") >"$W/part$n"
    done
    seconds on_all_nodes read_part
}

# All nodes warm the image, their share of it with cluster=(--cluster); prints the seconds until the last has ended.
warm_all() { seconds on_all_nodes warm_node; }

extra_cleanup() {
    local dir
    for dir in "$W"/mnt*; do ! mountpoint -q "$dir" || "$GRANARY" umount "$dir" >&2; done
}

# run NAME: mounts, epochs, and the row
run() {
    local n own=$cache before servers=() proxies=() times=() sent=() passed=() keep=none l2 ticks_before cluster=() each=epoch rounds=$EPOCHS
    rm -rf "$W"/cache* "$W"/nginx*/kept "$W"/varnish* "$W/members"
    [ "$1" != hot ] || keep=hot
    [[ $1 != warm* ]] || each=warm_all rounds=1
    [ "$1" != warm ] || cluster=(--cluster)
    for ((n = 0; n < NODES; n++)); do
        case $1 in
            nginx | varnish) echo "http://127.0.0.1:$((9100 + n))/lake" ;;
            peers | hot | warm) echo "http://127.0.0.1:$((9200 + n))/lake" ;;
        esac
    done >"$W/members"
    if [[ $1 == nginx || $1 == varnish ]]; then
        own=$((cache / 10))
        for ((n = 0; n < NODES; n++)); do "node_$1" $n; done
        for ((n = 0; n < NODES; n++)); do wait_for 30 in_client curl -s -o /dev/null "http://127.0.0.1:$((9100 + n))/"; done
    fi
    for ((n = 0; n < NODES; n++)); do
        l2=()
        [[ $1 == *alone ]] || l2=(--l2 "$W/members")
        [[ $1 != peers && $1 != hot && $1 != warm ]] ||
            l2+=(--peer-listen "127.0.0.1:$((9200 + n))" --peer-key "$W/key" --peer-keep "$keep")
        mkdir -p "$W/mnt$n"
        # not by ip netns exec, whose mounts nobody else sees
        nsenter --net="/run/netns/$LINK-c" "$GRANARY" mount --fuse --json --cache "$W/cache$n:$own" "${l2[@]}" http://10.77.0.2:8080/lake/set "$W/mnt$n" >"$W/mounted$n"
        mapfile -t -O "${#servers[@]}" servers < <(pgrep -P "$(jq .server_pid "$W/mounted$n")")
    done
    for n in "${proxies[@]}"; do mapfile -t -O "${#servers[@]}" servers < <(pgrep -P "$n"); done # the workers
    ticks_before=$(ticks "${servers[@]}")
    for n in $(seq "$rounds"); do
        drop_caches
        before=$(link_bytes)
        : >"$W/nginx/sent"
        times+=("$($each "$n")")
        passed+=("$(ratio $(($(link_bytes) - before)) "$stored")")
        sent+=("$(ratio "$(awk '{ n += $1 } END { printf "%.0f", n }' "$W/nginx/sent")" "$stored")")
    done
    printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$NODES" "${sent[*]}" "${passed[*]}" "${times[*]}" \
        "$(ratio $(($(ticks "${servers[@]}") - ticks_before)) "$(getconf CLK_TCK)")" "$(ratio "$(held)" "$stored")" "$(ratio "$(cat "$W"/status? | jq -s 'map(.counters.granary_l2_bytes_total // 0) | add')" "$stored")"
    for ((n = 0; n < NODES; n++)); do "$GRANARY" umount "$W/mnt$n" >&2; done
    for n in "${proxies[@]}"; do kill "$n"; done
}

# Bytes of chunks in the servers' caches, and of what nginx and Varnish keep.
held() {
    local n sum=0
    for ((n = 0; n < NODES; n++)); do
        "$GRANARY" status --quick --json "$W/mnt$n" >"$W/status$n" || true # 1 is "degraded": a node that was asked before it was there
        sum=$((sum + $(jq '.counters.granary_cache_used_bytes // 0' "$W/status$n")))
        [ ! -d "$W/nginx$n/kept" ] || sum=$((sum + $(du -sb "$W/nginx$n/kept" | cut -f1)))
        [ ! -d "$W/varnish$n" ] || sum=$((sum + $(varnishstat -1 -n "$W/varnish$n" -f SMF.granary.g_bytes | awk '{ print $2 }')))
    done
    echo $sum
}

echo "| | nodes | bytes from the store / dataset, by epoch | the same on the link | epochs, s | CPU of the servers, s | held on disk / dataset | from proxies and nodes / dataset |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for how in ${HOW:-alone nginx varnish peers hot}; do run "$how"; done
