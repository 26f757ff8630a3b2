#!/bin/bash
# hundred-million.sh [FILES [PARTS]]: a part of 10,000,000 files that build-synthetic makes up, joined PARTS (10) times
# into one image, each below a directory of its own; verify, ls of one directory; a mount that warms nothing, and `find`
# in a directory of which nothing is cached, and again when it was read before; a mount that warms all metadata, and
# `find` there. The kernel's caches are dropped before each. For 100,000,000 files, BENCH_DIR needs 20 GB: temporary files
# of the join, then 9 GiB of metadata in the cache.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-10000000} parts=${2:-10}
image=file://$W/store/joined

extra_cleanup() { ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt"; }

# step NAME MEASURE COMMAND...: what MEASURE prints of the command; a failure ends the run
step() {
    local took
    took=$("${@:2}")
    echo "$1: $took"
}

mkdir "$W/tmp" "$W/mnt"
"${PREFIX[@]}" "$GRANARY_BUILD/bench/build-synthetic" "$files" "$W/store" "$W/tmp"
at=()
for part in $(seq 0 $((parts - 1))); do at+=(--at "part-$part=file://$W/store/synthetic"); done
step join used "${PREFIX[@]}" "$GRANARY" join "${at[@]}" --tmpdir "$W/tmp" "$image" --quiet
du -sm "$W/store"
step verify used "${PREFIX[@]}" "$GRANARY" verify "$image" --quiet
dir=part-$((parts - 1))/train/class-000000
step "ls of one directory" used "${PREFIX[@]}" "$GRANARY" ls "$image" "$dir"
find_one() { [ "$(find "$W/mnt/$1" | wc -l)" -gt 1 ]; }
# finds WHEN DIR...: the kernel's caches dropped before each
finds() {
    local where
    for where in "${@:2}"; do
        drop_caches
        step "find $where, $1, seconds" seconds find_one "$where"
    done
}
mount_it() { "$GRANARY" mount --fuse --cache "$W/cache:12G" "$@" "$image" "$W/mnt"; }

step "mount that warms nothing, seconds" seconds mount_it --warm none
finds "nothing cached" "$dir" "part-0/${dir#*/}"
finds "read before" "$dir"
"$GRANARY" umount "$W/mnt" >&2
step "mount that warms all metadata, seconds" seconds mount_it
step "warm of one directory's files" used "${PREFIX[@]}" "$GRANARY" warm --path "/$dir/*" "$W/mnt" --quiet
finds "all metadata warm" "$dir" "part-1/${dir#*/}"
