#!/bin/bash
# build-local.sh [DIR]: an image of a local directory (default /usr/share) in a file store, against what else makes one
# file of it: mkfs.erofs plain, `tar | zstd`, and cp -a, which only copies. What they read is in the page cache.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
dir=${1:-/usr/share}

# measured NAME COMMAND...: adds "wall cpu peak-MiB" to NAME.time; CPU is of all processes, memory of the largest
measured() {
    local name=$1
    shift
    python3 - "$W/$name.time" "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "a") as out:
    print(f"{time.monotonic() - start:.2f} {used.ru_utime + used.ru_stime:.2f} {used.ru_maxrss // 1024}", file=out)
sys.exit(status)
PYTHON
}

granary_erofs() { "$GRANARY" build "$dir" "$W/out/set" --quiet --parent none; }
granary_ext4() { "$GRANARY" build "$dir" "$W/out/set" --quiet --parent none --fs ext4; }
granary_plain() { "$GRANARY" build "$dir" "$W/out/set" --quiet --parent none --compress none; }
mkfs_erofs() { mkfs.erofs --quiet "$W/out/image" "$dir"; }
tar_zstd() { tar -C "$dir" -cf - . | zstd -q -3 -T0 -o "$W/out/set.tar.zst"; }
cp_a() { cp -a "$dir/." "$W/out/"; }
export -f granary_erofs granary_ext4 granary_plain mkfs_erofs tar_zstd cp_a
export W dir

contenders="granary_erofs granary_ext4 granary_plain mkfs_erofs tar_zstd cp_a"
note "reading $dir once"
tar -C "$dir" -cf - . | wc -c >"$W/bytes"
declare -A size
for ((i = 0; i < REPEATS; i++)); do
    for contender in $contenders; do
        mkdir "$W/out"
        sync
        measured "$contender" bash -c "set -e -o pipefail; $contender"
        size[$contender]=$(du -s --block-size=1 --apparent-size "$W/out" | cut -f 1)
        rm -rf "$W/out"
    done
done

column() {
    local values
    mapfile -t values < <(awk -v c="$2" '{ print $c }' "$W/$1.time")
    median "${values[@]}"
}
echo "$dir: $(find "$dir" -xdev | wc -l) paths, $(cat "$W/bytes") bytes as tar, median of $REPEATS"
echo
echo "| what | s | CPU s | MiB | bytes |"
echo "| --- | --- | --- | --- | --- |"
for contender in $contenders; do
    echo "| $contender | $(column "$contender" 1) | $(column "$contender" 2) | $(column "$contender" 3) | ${size[$contender]} |"
done
echo
for peer in mkfs_erofs tar_zstd cp_a; do
    echo "time of $peer / granary_erofs: $(ratio "$(column $peer 1)" "$(column granary_erofs 1)")"
done
