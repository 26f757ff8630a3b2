#!/bin/bash
# fronts.sh [FILES]: what lies between a cached image and the readers of its mount. FILES (20,000) small files of 2 GB,
# read whole in a shuffled order by 8 processes, data out of the page cache, metadata in it. Every one but `local` and
# `direct` is erofs on a direct-I/O loop device:
#
#   local      the files themselves, in a directory of this disk
#   direct     `granary mount --direct`, the whole image beside its cache: Linux 6.12 or later
#   granary    `granary mount --fuse`, its SSD cache warm
#   nbdfuse    nbdfuse (64 connections) over nbdkit with the plugin (4 threads each), the same cache
#   file       the same over nbdkit's file plugin and the image as a file
#   loop       the loop device on that file: no server at all
#
# CONTENDERS: some of them. REPEATS rounds (3) after one that does not count, each contender once a round; medians, and
# the ratios within a round: how much of local's files/s, how often nbdfuse's, and the share of nbdfuse's CPU. CPU is
# that of the processes which answer. PREFIX: before each of them, and before the readers. CACHE=DIR:SIZE for both of
# granary's, CACHE_OPTIONS: more of them, KEY=VALUE. On /dev/shm the disk is left out of it.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}
READER=$GRANARY_BUILD/bench/epoch-reader
contenders=${CONTENDERS:-local direct granary nbdfuse file loop}
CACHE=${CACHE:-$W/cache:5G} # twice the image: in slots, and whole
read -ra options <<<"${CACHE_OPTIONS:-}"

data=$(data_set "$files" 200)
note "building, exporting, warming"
"$READER" make "$data" >"$W/list"
image=file://$W/store/set
"$GRANARY" build --quiet "$data" "$image" >"$W/built"
"$GRANARY" export --quiet "$image" "$W/sparse"
cp --sparse=never "$W/sparse" "$W/image"
rm "$W/sparse"
mkdir -p "$W/mnt" "$W/front"
extra_cleanup() {
    ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt" 2>/dev/null || umount "$W/mnt"
    umount "$W/front" 2>/dev/null
    "$GRANARY" cache resident "${CACHE%:*}" --evict-all -q 2>/dev/null
}
mount_it() { "${PREFIX[@]}" "$GRANARY" mount --fuse --json --cache "$CACHE" "${options[@]/#/--}" "$image" "$W/mnt" >"$W/mounted"; }
mount_it
"$GRANARY" warm -q "$W/mnt" --all >&2
[[ " $contenders " != *" direct "* ]] || "$GRANARY" warm -q "$W/mnt" --resident >&2
sync
"$GRANARY" umount "$W/mnt"

mount_nbdfuse() { # NBDKIT-ARGUMENT...
    background "${PREFIX[@]}" nbdkit -f -r -t 4 --unix "$W/sock" "$@"
    SERVERS=("$BACKGROUND_PID")
    wait_for 20 test -S "$W/sock"
    background "${PREFIX[@]}" nbdfuse -r -C 64 "$W/front/image" --unix "$W/sock"
    SERVERS+=("$BACKGROUND_PID")
    wait_for 20 test -s "$W/front/image"
    mount_image "$W/front/image"
}

start() {
    SERVERS=() ROOT=$W/mnt
    case $1 in
        local) ROOT=$data ;;
        granary)
            mount_it
            mapfile -t SERVERS < <(pgrep -P "$(jq .server_pid "$W/mounted")")
            ;;
        direct)
            "${PREFIX[@]}" "$GRANARY" mount --direct --json --cache "$CACHE" "${options[@]/#/--}" "$image" "$W/mnt" >"$W/mounted"
            [ "$(jq -r .method "$W/mounted")" = direct ] || { echo "fronts.sh: the mount is not direct" >&2; exit 1; }
            ;;
        nbdfuse) mount_nbdfuse "$PLUGIN" "image=$image" "cache=$CACHE" "${options[@]}" ;;
        file) mount_nbdfuse file "$W/image" ;;
        loop) mount_image "$W/image" ;;
        *) echo "fronts.sh: no contender '$1'" >&2; exit 1 ;;
    esac
}

stop() {
    case $1 in
        granary | direct) "$GRANARY" umount "$W/mnt" >&2 ;;
        nbdfuse | file)
            umount "$W/mnt"
            umount "$W/front" 2>/dev/null || true
            end_background
            rm -f "$W/sock"
            ;;
        loop) umount "$W/mnt" ;;
    esac
}

# turn ROUND CONTENDER: "CONTENDER SECONDS FILES/S P50 P99 CPU" in $W/results
turn() {
    local before after
    start "$2"
    drop_caches
    find "$ROOT" -printf '%s\n' >"$W/found"
    before=$(ticks "${SERVERS[@]}")
    "${PREFIX[@]}" "$READER" read "$W/list" "$ROOT" 8 "$1" >"$W/read"
    after=$(ticks "${SERVERS[@]}")
    stop "$2"
    jq -r --arg name "$2" --argjson cpu "$(awk -v n=$((after - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN { print n / hz }')" \
        '"\($name) \(.seconds) \(.files / .seconds) \(.p50_ms) \(.p99_ms) \($cpu)"' "$W/read" | tee -a "$W/results" >&2
}

for ((round = 0; round <= REPEATS; round++)); do
    for contender in $contenders; do turn "$((round + 1))" "$contender"; done
    [ $round -gt 0 ] || rm "$W/results" # blocks that were just written are slower to read on some disks
done

# column CONTENDER N: the values of a contender, a line a round
column() { awk -v name="$1" -v n="$2" '$1 == name { print $n }' "$W/results"; }
# against OTHER N CONTENDER M: the median of CONTENDER's M over OTHER's N of the same round; - where OTHER is not there
against() {
    [[ " $contenders " = *" $1 "* ]] || { echo -; return; }
    # shellcheck disable=SC2046 # one word a value
    median $(paste <(column "$3" "$4") <(column "$1" "$2") | awk '$2 > 0 { print $1 / $2 }' | grep . || echo 0) | awk '{ printf "%.2f\n", $1 }'
}
printf '| front | wall s | files/s | p50 / p99 ms | server CPU s | of local | files/s of nbdfuse | CPU of nbdfuse |\n'
printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
for contender in $contenders; do
    # shellcheck disable=SC2046,SC2183 # one word a value
    printf '| %s | %.2f | %.0f | %.2f / %.1f | %.2f | %s | %s | %s |\n' "$contender" $(for n in 2 3 4 5 6; do median $(column "$contender" $n); done) \
        "$(against local 3 "$contender" 3)" "$(against nbdfuse 3 "$contender" 3)" "$(against nbdfuse 6 "$contender" 6)"
done
