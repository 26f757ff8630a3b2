#!/bin/bash
# memory.sh [FILES]: what stays resident of a server that reads a dataset of FILES (10,000: 1.0 GB) files from a file
# store: VmRSS in MiB after its start, after one whole read with nothing cached, after a second one from the cache,
# after eight more, after 15 s without a read; and the highest of the first two reads, and of the last. Servers: nbdkit
# with the plugin and granary-nbd, read by nbdcopy, and granary-fuse, read by 8 processes past the page cache.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-10000}
tree=$(data_set "$files" 200)
IDLE=15
READS=10
CACHE=4G

extra_cleanup() { umount -l "$W/images" 2>/dev/null; }

"$GRANARY" build --quiet "$tree" "$W/store/set" >&2

# mebibytes FIELD PID
mebibytes() { awk -v field="$1:" '$1 == field { printf "%.0f", $2 / 1024 }' "/proc/$2/status"; }

# row NAME PID READ...: a row of the table
row() {
    local name=$1 pid=$2 resident peak i
    shift 2
    resident=$(mebibytes VmRSS "$pid")
    for i in 1 2; do
        "$@"
        resident+=" | $(mebibytes VmRSS "$pid")"
    done
    peak=$(mebibytes VmHWM "$pid")
    for ((i = 3; i <= READS; i++)); do
        echo 5 >"/proc/$pid/clear_refs" # VmHWM begins anew
        "$@"
    done
    peak+=" | $(mebibytes VmHWM "$pid")"
    resident+=" | $(mebibytes VmRSS "$pid")"
    sleep $IDLE
    echo "| $name | $resident | $(mebibytes VmRSS "$pid") | $peak |"
}

by_nbdcopy() { nbdcopy "nbd+unix:///set?socket=$W/nbd.sock" null:; }

by_processes() {
    local file=$W/images/set part i pids=()
    part=$(($(stat -c %s "$file") / 8 / 1048576 + 1))
    for i in {0..7}; do
        dd if="$file" of=/dev/null bs=1M iflag=direct status=none skip=$((i * part)) count=$part &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}

front_is_there() { FRONT=$(pgrep -P "$1"); }

echo "| server | start | one read | two reads | $READS reads | idle | highest of two | of the last |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
background nbdkit -f -t 64 -U "$W/nbd.sock" "$PLUGIN" "image=set=file://$W/store/set" "cache=$W/cache-nbd:$CACHE"
wait_for 60 test -S "$W/nbd.sock"
row nbdkit "$BACKGROUND_PID" by_nbdcopy
end_background

background "$GRANARY" serve --socket "$W/nbd.sock" "file://$W/store/set" --cache "$W/cache-nbd:$CACHE" >&2
wait_for 60 test -S "$W/nbd.sock"
wait_for 60 front_is_there "$BACKGROUND_PID"
row granary-nbd "$FRONT" by_nbdcopy
end_background

mkdir "$W/images"
background "$GRANARY" serve --fuse "$W/images" "file://$W/store/set" --cache "$W/cache-fuse:$CACHE" >&2
wait_for 60 test -s "$W/images/set"
wait_for 60 front_is_there "$BACKGROUND_PID"
row granary-fuse "$FRONT" by_processes
