#!/bin/bash
# memory.sh [FILES]: what stays resident of a server that reads a data set of FILES (10,000: 1.0 GB) files from a file
# store: VmRSS in MiB after its start, after one whole read with nothing cached, after a second one from the cache, after
# 15 s without a read, and the highest there was. Servers: nbdkit with the plugin, read by nbdcopy, and granary-fuse, read by
# 8 processes past the page cache.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-10000}
tree=$(data_set "$files" 200)
IDLE=15
CACHE=4G

extra_cleanup() { umount -l "$W/images" 2>/dev/null; }

"$GRANARY" build --quiet "$tree" "$W/store/set" >&2

# mebibytes FIELD PID
mebibytes() { awk -v field="$1:" '$1 == field { printf "%.0f", $2 / 1024 }' "/proc/$2/status"; }

# row NAME PID READ...: a row of the table
row() {
    local name=$1 pid=$2 start once
    shift 2
    start=$(mebibytes VmRSS "$pid")
    "$@"
    once=$(mebibytes VmRSS "$pid")
    "$@"
    printf '| %s | %s | %s | %s | ' "$name" "$start" "$once" "$(mebibytes VmRSS "$pid")"
    sleep $IDLE
    printf '%s | %s |\n' "$(mebibytes VmRSS "$pid")" "$(mebibytes VmHWM "$pid")"
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

echo "| server | start | one read | two reads | idle | highest |"
echo "| --- | --- | --- | --- | --- | --- |"
background nbdkit -f -t 64 -U "$W/nbd.sock" "$PLUGIN" "image=set=file://$W/store/set" "cache=$W/cache-nbd:$CACHE"
wait_for 60 test -S "$W/nbd.sock"
row nbdkit "$BACKGROUND_PID" by_nbdcopy
end_background

mkdir "$W/images"
background "$GRANARY" serve --fuse "$W/images" "file://$W/store/set" --cache "$W/cache-fuse:$CACHE" >&2
wait_for 60 test -s "$W/images/set"
wait_for 60 front_is_there "$BACKGROUND_PID"
row granary-fuse "$FRONT" by_processes
