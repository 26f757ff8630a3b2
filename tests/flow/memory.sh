#!/bin/bash
# What a server holds while a whole image is read from it again and again, by nbdcopy's 4 connections of 64 requests and
# by 64 readers of its file: 100 MiB at most with no tier in memory, and one of the last two readings no more than a
# tenth beyond the first half of them, of which one is from the store. GRANARY_FULL=1: ten readings of twice as much,
# not five.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

BOUND=$((100 * 1024))
READS=5 MEGABYTES=192
[ -z "${GRANARY_FULL:-}" ] || READS=10 MEGABYTES=384

mkdir "$W/tree"
head -c "${MEGABYTES}M" /dev/urandom >"$W/tree/large"
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"

# field NAME: of the front's memory, KiB
field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$FRONT/status"; }
front_is_there() { FRONT=$(pgrep -P "$BACKGROUND_PID"); }

# reads NAME COMMAND...: READS times, the peak of each by itself
reads() {
    local name=$1 i early=0 peak="" before all=0 least
    shift
    for ((i = 1; i <= READS; i++)); do
        echo 5 >"/proc/$FRONT/clear_refs" # VmHWM begins anew
        "$@"
        before=$peak
        peak=$(field VmHWM)
        echo "$name: reading $i: peak $((peak / 1024)) MiB"
        all=$((peak > all ? peak : all))
        [ $i != $(((READS + 1) / 2)) ] || early=$all
    done
    [ "$all" -le $BOUND ] || fail "$name held $((all / 1024)) MiB, more than $((BOUND / 1024))"
    least=$((peak < before ? peak : before)) # on a busy machine, one reading may have more requests at once than all others
    [ $((least * 10)) -le $((early * 11)) ] || fail "$name grows: $((early / 1024)) MiB for the first half, $((least / 1024)) at last"
}

by_nbdcopy() { nbdcopy "nbd+unix:///one?socket=$W/nbd.sock" null:; }
by_files() {
    local i pids=()
    for i in {0..63}; do
        dd if="$W/images/one" of=/dev/null bs=1M iflag=direct status=none skip=$((i * MEGABYTES / 64)) count=$((MEGABYTES / 64)) &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
}

background "$GRANARY" serve --socket "$W/nbd.sock" "$W/store/one" --cache "$W/cache-nbd:1G" --disk-timeout "$DISK_TIMEOUT" 2>"$W/nbd.err"
wait_for 60 listens "$W/nbd.sock"
wait_for 60 front_is_there
reads granary-nbd by_nbdcopy
end_background

[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || skip "no /dev/fuse here, or not root: the memory of the front for FUSE is not tested"
extra_cleanup() { umount -l "$W/images" 2>/dev/null; }
mkdir "$W/images"
background "$GRANARY" serve --fuse "$W/images" "$W/store/one" --cache "$W/cache-fuse:1G" --disk-timeout "$DISK_TIMEOUT" 2>"$W/fuse.err"
wait_for 60 test -s "$W/images/one"
wait_for 60 front_is_there
reads granary-fuse by_files
