#!/bin/bash
# hundred-million.sh [FILES [PARTS]]: a part of 10,000,000 files that build-synthetic makes up, joined PARTS (10) times
# into one image, each below a directory of its own; verify, ls of one directory, mount, which warms all metadata, and a
# warming of one directory; then `find` in that directory and in another, the kernel's caches dropped before each. The
# join keeps its temporary files in BENCH_DIR: 16 GB for 100,000,000 files.
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
step "mount, seconds" seconds "${PREFIX[@]}" "$GRANARY" mount --fuse --cache "$W/cache:4G" "$image" "$W/mnt"
step warm used "${PREFIX[@]}" "$GRANARY" warm --path "/$dir/*" "$W/mnt" --quiet
find_one() { [ "$(find "$W/mnt/$1" | wc -l)" -gt 1 ]; }
for where in "$dir" "part-0/${dir#*/}"; do
    drop_caches
    step "find $where, seconds" seconds find_one "$where"
done
