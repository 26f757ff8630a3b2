# shellcheck shell=bash
# Sourced by the benchmarks: the programs, a place for data, the servers behind the slow link, medians and ratios.
#
#   GRANARY_BUILD   a release build (default: build-release of this tree, made when it is missing)
#   BENCH_DIR       where datasets are kept between runs (default /var/tmp/granary-bench); 10 GB are enough
#   REPEATS         of every measurement, contenders taking turns (default 3)
#   PREFIX          before every program that is measured, e.g. on a busy machine `chrt -f 1`, which keeps other work off
#                   the CPUs, though not off the disk; before the link and the front server too

set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C
unset AWS_CA_BUNDLE # rclone of Debian 12 fails on it
export GRANARY_CACHE=none # a contender has the cache that it is given
BENCH=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
SOURCE=$(dirname "$BENCH")
. "$SOURCE/tools/packages.sh"
. "$SOURCE/tools/processes.sh"
packages_ensure build run bench

if [ -z "${GRANARY_BUILD:-}" ]; then
    GRANARY_BUILD=$SOURCE/build-release
    (cd "$SOURCE" && cmake --preset release && cmake --build --preset release) >/dev/null
fi
export GRANARY=$GRANARY_BUILD/cli/granary
export PLUGIN=$GRANARY_BUILD/plugin/nbdkit-granary-plugin.so
BENCH_DIR=${BENCH_DIR:-/var/tmp/granary-bench}
REPEATS=${REPEATS:-3}
read -ra PREFIX <<<"${PREFIX:-}"
LINK=${LINK:-granary-bench}
mkdir -p "$BENCH_DIR"
W=$(mktemp -d "$BENCH_DIR/run.XXXXXX")
LINK_UP=

note() { echo "== $*" >&2; }

# background COMMAND...: not a function, whose shell would be ended in place of the command
cleanup() {
    local status=$?
    set +e
    declare -F extra_cleanup >/dev/null && extra_cleanup
    end_background
    if [ -n "$LINK_UP" ]; then
        [ ! -d "$W/ceph" ] || DIR=$W/ceph "$SOURCE/tests/servers/ceph-s3.sh" stop
        "$BENCH/link/link.sh" down $LINK
    fi
    rm -rf "$W" "${SHM:-/nonexistent}"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# used COMMAND...: its peak memory, time and CPU, on stdout; its output goes to stderr
used() {
    python3 - "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if status:
    sys.exit(status)
print(f"peak memory {used.ru_maxrss / 1024:.0f} MiB, {time.monotonic() - start:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU")
PYTHON
}

# seconds COMMAND...: how long it took, on stdout; its output goes to stderr
seconds() {
    local start end
    start=$(date +%s.%N)
    "$@" >&2
    end=$(date +%s.%N)
    awk -v a="$start" -v b="$end" 'BEGIN { printf "%.2f\n", b - a }'
}

# ticks PID...: clock ticks of CPU that these processes have used; one that is gone counts as 0
ticks() {
    local pid sum=0
    for pid in "$@"; do [ ! -e "/proc/$pid/stat" ] || sum=$((sum + $(sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'))); done
    echo $sum
}

# mount_image FILE: on $W/mnt, as granary mounts one: a loop device with direct I/O, its queue set as granary sets it,
# which goes when its mount goes
mount_image() {
    local device
    device=$(losetup -r --direct-io=on -f --show "$1")
    echo 4096 >"/sys/block/${device#/dev/}/queue/read_ahead_kb"
    echo 1024 >"/sys/block/${device#/dev/}/queue/max_sectors_kb"
    mount -t erofs -o ro,nodev,nosuid "$device" "$W/mnt"
    losetup -d "$device"
}

# median NUMBER...
median() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# ratio A B: A / B with two digits
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f\n", a / b }'; }

# megabytes BYTES SECONDS: MB/s
megabytes() { awk -v b="$1" -v s="$2" 'BEGIN { printf "%.1f\n", b / s / 1e6 }'; }

# data_set FILES DIRECTORIES [MEAN DEVIATION]: its directory; made once. Sizes are those of data.py
data_set() {
    local dir=$BENCH_DIR/data-$1-$2${3:+-$3-$4}
    note "dataset: $1 files (made once, kept in $BENCH_DIR)"
    python3 "$BENCH/data.py" "$dir" "$1" "$2" 1 "${@:3}"
    echo "$dir/set"
}

# empty_tree DIR FILES: that many empty files, 1,000 a directory
empty_tree() {
    note "making $2 empty files"
    python3 - "$1" "$2" <<'PYTHON'
import os, sys
top, files = sys.argv[1], int(sys.argv[2])
for d in range((files + 999) // 1000):
    os.makedirs(f"{top}/dir{d:04d}")
    for i in range(min(1000, files - d * 1000)):
        os.close(os.open(f"{top}/dir{d:04d}/file-{i:06d}.jpg", os.O_CREAT | os.O_WRONLY))
PYTHON
}

IN_CLIENT=(ip netns exec "$LINK-c")
IN_SERVER=(ip netns exec "$LINK-s")
in_client() { "${IN_CLIENT[@]}" "$@"; }
in_server() { "${IN_SERVER[@]}" "$@"; }

# link_up DELAY_MS RATE_MBIT: the two namespaces
link_up() {
    packages_ensure bench
    LINK_UP=1
    "$BENCH/link/link.sh" down $LINK
    "${PREFIX[@]}" "$BENCH/link/link.sh" up $LINK "$1" "$2"
}

# Bytes that crossed from the server to the client since the link was made.
link_bytes() { "$BENCH/link/link.sh" stats $LINK | awk '/^B:/ { print $4 }'; }

# Requests that the front server has answered, these included.
requests() { in_server curl -sSf --noproxy '*' http://10.77.0.2:8080/requests | awk 'NR == 3 { print $3 }'; }

# servers_up: in the server namespace, Ceph's S3 on port 7480 and in front of it, on 9000, an nginx that keeps whole the
# objects of bucket `data` that were read, in memory: once primed (a get of every object, by curl_each) the server costs
# what a static file server costs, on these same CPUs. Also plain files below $SHM/www on port 8080.
servers_up() {
    packages_ensure test
    SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
    mkdir -p "$SHM"/{cache,www} "$W"/nginx
    DIR=$W/ceph BIND=10.77.0.2 PORT=7480 SIZE_GB=${SIZE_GB:-8} in_server "$SOURCE/tests/servers/ceph-s3.sh" start
    eval "$(DIR=$W/ceph BIND=10.77.0.2 "$SOURCE/tests/servers/ceph-s3.sh" env)"
    export AWS_ENDPOINT_URL=http://10.77.0.2:9000
    cat >"$W/nginx/conf" <<CONFIGURATION
user root; worker_processes 2; pid $W/nginx/pid; error_log $W/nginx/error.log; daemon off;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300;
  client_max_body_size 0; client_body_temp_path $W/nginx/b; proxy_temp_path $W/nginx/p; fastcgi_temp_path $W/nginx/f;
  uwsgi_temp_path $W/nginx/u; scgi_temp_path $W/nginx/s;
  proxy_cache_path $SHM/cache levels=1:2 keys_zone=z:64m max_size=6g inactive=7d use_temp_path=off;
  upstream rgw { server 10.77.0.2:7480; keepalive 64; }
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host \$http_host;
  proxy_request_buffering off; proxy_buffering on;
  server { listen 10.77.0.2:8080; location / { root $SHM/www; } location /requests { stub_status; } }
  server { listen 10.77.0.2:9000;
    location / { proxy_pass http://rgw; }
    location /data { proxy_pass http://rgw; proxy_cache z; proxy_cache_convert_head off;
      proxy_cache_key "\$request_method \$request_uri";
      proxy_set_header Connection ""; proxy_set_header Host \$http_host; # a level with one of its own inherits none
      proxy_set_header If-Match \$http_if_match; # signed, so it must arrive
      proxy_cache_valid 200 206 7d; proxy_cache_lock on; proxy_ignore_headers Cache-Control Expires Vary; } }
}
CONFIGURATION
    background "${PREFIX[@]}" "${IN_SERVER[@]}" nginx -p "$W/nginx" -c "$W/nginx/conf"
    wait_for 10 in_server curl -s -o /dev/null http://10.77.0.2:9000/
    local bucket
    for bucket in data images; do
        DIR=$W/ceph BIND=10.77.0.2 in_server "$SOURCE/tests/servers/ceph-s3.sh" bucket $bucket
    done
}

# curl_each NS CONNECTIONS DIR LIST: GET every path of LIST (one a line, of bucket data) into DIR, over that many
# kept-alive connections, each a curl of its own that signs its requests: the fastest plain download found.
curl_each() {
    local run=$1 n=$2 dir=$3 list=$4 i pids=()
    mkdir -p "$dir"
    for ((i = 0; i < n; i++)); do
        awk -v n="$n" -v i="$i" -v base="$AWS_ENDPOINT_URL/data/" -v dir="$dir/" \
            'NR % n == i { print "url=\"" base $0 "\"\noutput=\"" dir $0 "\"" }' "$list" >"$W/curl.$i"
        "$run" curl -sSf --noproxy '*' -g --create-dirs --aws-sigv4 aws:amz:us-east-1:s3 \
            --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -K "$W/curl.$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}
