#!/bin/bash
# find-million.sh [FILES]: `find` and `ls -lR` of an image of 1,000,000 empty files, mounted by granary, its metadata
# warmed as every mount does, against the same image on a local loop device whose metadata was read likewise. Names and
# inodes of the kernel are dropped before each; the device's page cache, which holds the metadata, stays. Also a list of
# the files with their sizes: `find -printf '%s %p'` of the mount, cold as above and again, against `granary index`.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-1000000}

SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
empty_tree "$SHM/tree" "$files"
"$GRANARY" build "$SHM/tree" "file://$W/store/million" --quiet >&2
"$GRANARY" export "file://$W/store/million" "$W/image" >&2
rm -r "$SHM/tree"
mkdir "$W/local" "$W/mnt"
LOOP=
extra_cleanup() {
    umount "$W/local" 2>/dev/null
    [ -z "$LOOP" ] || losetup -d "$LOOP"
    ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt"
}

LOOP=$(losetup -r --direct-io=on -f --show "$W/image")
echo 4096 >"/sys/block/${LOOP#/dev/}/queue/read_ahead_kb"
mount -t erofs -o ro "$LOOP" "$W/local"
cat "$LOOP" >/dev/null # all of it is metadata
attach=$(seconds "${PREFIX[@]}" "$GRANARY" mount --fuse --cache "$W/cache:2G" "file://$W/store/million" "$W/mnt")

find_all() { [ "$("${PREFIX[@]}" find "$1" | wc -l)" -gt "$files" ]; }
sizes() { [ "$("${PREFIX[@]}" find "$1" -type f -printf '%s %p\n' | wc -l)" = "$files" ]; }
index() { [ "$("${PREFIX[@]}" "$GRANARY" index "file://$W/store/million" | wc -l)" = "$files" ]; }
list_all() { "${PREFIX[@]}" ls -lR "$1" | wc -l >&2; }
# Of what is mounted there: metadata in the page cache costs none.
device_reads() { awk '{ print $1 }' "/sys/block/$(findmnt -no SOURCE "$1" | xargs basename)/stat"; }
declare -A T
for round in $(seq "$REPEATS"); do
    order="local mnt"
    [ $((round % 2)) = 1 ] || order="mnt local"
    for what in find_all list_all; do
        for where in $order; do
            sync
            echo 2 >/proc/sys/vm/drop_caches
            before=$(device_reads "$W/$where")
            s=$(seconds $what "$W/$where")
            note "round $round: $what $where $s s, $(($(device_reads "$W/$where") - before)) reads of the device"
            T[$what-$where]+=" $s"
        done
    done
done
for round in $(seq "$REPEATS"); do
    sync
    echo 2 >/proc/sys/vm/drop_caches
    T[sizes-cold]+=" $(seconds sizes "$W/mnt")"
    T[sizes-warm]+=" $(seconds sizes "$W/mnt")"
    T[index]+=" $(seconds index)"
done
# shellcheck disable=SC2086
{
    sizes_cold=$(median ${T[sizes-cold]}) sizes_warm=$(median ${T[sizes-warm]}) index=$(median ${T[index]})
    find=$(median ${T[find_all-mnt]}) find_local=$(median ${T[find_all-local]})
    list=$(median ${T[list_all-mnt]}) list_local=$(median ${T[list_all-local]})
}
echo "$files files; attach with metadata warm-up $attach s; median of $REPEATS"
printf '%-10s %10s %14s %8s\n' what granary "loop device" ratio \
    find "$find" "$find_local" "$(ratio "$find" "$find_local")" "ls -lR" "$list" "$list_local" "$(ratio "$list" "$list_local")"
echo "files and sizes: granary index $index s; find -printf of the mount, cold $sizes_cold s ($(ratio "$sizes_cold" "$index") times), warm $sizes_warm s ($(ratio "$sizes_warm" "$index") times)"
