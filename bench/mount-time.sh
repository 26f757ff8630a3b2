#!/bin/bash
# mount-time.sh: how long `granary mount --fuse` takes, from the command to its end, metadata warmed and nothing cached,
# from a store behind HTTP whose every answer takes 10 ms, then 200 ms; how many requests that were, repeats among them,
# and in how many rounds. BEFORE=BUILD: a build to compare with, taking turns. REPEATS turns (3); medians, and the ratio
# within a turn.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
SLOW_STORE=$SOURCE/tests/servers/slow-store.py

mkdir -p "$W/tree/many" "$W/mnt"
head -c 200000000 /dev/urandom >"$W/tree/large"
(cd "$W/tree/many" && seq -f 'file%g' 3000 | xargs touch)
"$GRANARY" build --quiet "$W/tree" "$W/store/set" >"$W/built"
extra_cleanup() { ! mountpoint -q "$W/mnt" || "$GRANARY" umount "$W/mnt"; }

# mount_with BUILD DELAY_MS: its milliseconds on stdout; its requests in $W/counts
mount_with() {
    local begin end server granary=$1/cli/granary
    rm -rf "$W/port" "$W/log" "$W/cache"
    "$SLOW_STORE" "$W/store" "$2" "$W/port" "$W/log" &
    server=$!
    while [ ! -e "$W/port" ]; do sleep 0.05; done
    begin=$(date +%s%N)
    "${PREFIX[@]}" "$granary" mount --fuse --cache "$W/cache:1G" "http://127.0.0.1:$(cat "$W/port")/set" "$W/mnt" >"$W/out" 2>&1
    end=$(date +%s%N)
    sleep 3 # what is still warmed after the mount counts among the requests
    "$granary" umount "$W/mnt"
    kill "$server"
    wait "$server" || true
    "$SLOW_STORE" --rounds "$W/log" >"$W/counts"
    echo $(((end - begin) / 1000000))
}

middle() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

echo "| answers after | before | now | now / before | requests before | now |"
echo "| --- | --- | --- | --- | --- | --- |"
for delay in 10 200; do
    rm -f "$W"/{before,now,ratio}
    counts=-
    for _ in $(seq "$REPEATS"); do
        if [ -n "${BEFORE:-}" ]; then
            mount_with "$BEFORE" $delay >>"$W/before"
            counts=$(cat "$W/counts")
        fi
        mount_with "$GRANARY_BUILD" $delay >>"$W/now"
        [ -z "${BEFORE:-}" ] || echo "$(tail -1 "$W/now") $(tail -1 "$W/before")" | awk '{ printf "%.2f\n", $1 / $2 }' >>"$W/ratio"
    done
    [ -e "$W/before" ] || { echo - >"$W/before"; echo - >"$W/ratio"; }
    echo "| $delay ms | $(middle "$W/before") ms | $(middle "$W/now") ms | $(middle "$W/ratio") | $counts | $(cat "$W/counts") |"
done
