#!/bin/bash
# chunk-size.sh [FILES] [READ]: what a chunk size costs when few files of many are wanted: READ (1,000) of FILES
# (20,000), spread evenly, read cold by 8 readers through the mounted image, store behind 1 Gbit/s and 10 ms.
#
# Prints for 64, 128 and 256 KiB: seconds, bytes over the link, and these over the bytes of the files (amplification).
# READAHEAD=SIZE sets what is fetched along with a miss (the plugin's default otherwise; 0: nothing).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}
count=${2:-1000}

data=$(data_set "$files" 200)
(cd "$data" && find . -type f | sort | awk -v step=$((files / count)) 'NR % step == 0') | head -n "$count" >"$W/list"
wanted=$(cd "$data" && xargs -a "$W/list" stat -c %s | awk '{ n += $1 } END { printf "%d", n }')
link_up 5 1000
servers_up
mkdir "$W/mnt" "$W/nbd"
LOOP=
extra_cleanup() {
    umount "$W/mnt" 2>/dev/null
    [ -z "$LOOP" ] || losetup -d "$LOOP"
}

# The page cache of the served files is dropped with the client's: they lie in /dev/shm.
serve_and_mount() {
    : >"$W/nbd/file"
    background "${IN_CLIENT[@]}" nbdkit -f -t 256 --unix "$W/sock" "$PLUGIN" "image=http://10.77.0.2:8080/store-$1/set" \
        "cache=$W/cache:4G" ${READAHEAD:+"readahead=$READAHEAD"}
    server=$BACKGROUND_PID
    wait_for 20 test -S "$W/sock"
    background nbdfuse -r "$W/nbd/file" --unix "$W/sock"
    front=$BACKGROUND_PID
    wait_for 20 test -s "$W/nbd/file"
    LOOP=$(losetup -r --direct-io=on -f --show "$W/nbd/file")
    mount -t erofs -o ro "$LOOP" "$W/mnt"
}

unserve() {
    umount "$W/mnt"
    losetup -d "$LOOP"
    LOOP=
    umount "$W/nbd/file"
    wait "$front" || true
    kill "$server"
    wait "$server" || true
    rm -rf "$W/cache" "$W/sock"
}

read_listed() { (cd "$W/mnt" && xargs -a "$W/list" -P 8 -n 25 cat >/dev/null); }

echo "$count of $files files ($wanted bytes), cold, 8 readers, 1 Gbit/s, 10 ms; median of $REPEATS"
printf '%-10s %9s %14s %14s %12s\n' chunk seconds "MB over link" amplification "store MB"
for chunk in 64K 128K 256K; do
    "$GRANARY" build "$data" "file://$SHM/www/store-$chunk/set" --chunk-size $chunk --quiet >&2
    times="" moved=""
    for round in $(seq "$REPEATS"); do
        drop_caches
        serve_and_mount $chunk
        find "$W/mnt" >/dev/null
        before=$(link_bytes)
        times+=" $(seconds read_listed)"
        moved+=" $(($(link_bytes) - before))"
        unserve
        note "$chunk round $round: $times s"
    done
    # shellcheck disable=SC2086
    m=$(median $moved) t=$(median $times)
    printf '%-10s %9s %14s %14s %12s\n' $chunk "$t" "$(megabytes "$m" 1)" "$(ratio "$m" "$wanted")" \
        "$(du -sm "$SHM/www/store-$chunk" | cut -f 1)"
    rm -r "$SHM/www/store-$chunk"
done
