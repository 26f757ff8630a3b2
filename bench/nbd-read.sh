#!/bin/bash
# nbd-read.sh [FILES]: random reads of 128 KiB over NBD at queue depth 32, everything in the cache: the granary plugin
# against `nbdkit file` on the exported image, in the same run, taking turns.
#
# The plugin's cache is read with O_DIRECT. `nbdkit file` is measured twice: with the image in the page cache (memory
# against SSD), and with cache=none and the page cache dropped before every turn (SSD against SSD). FILES: default
# 10,000 (1.0 GB). SECONDS_EACH: of one turn (default 15).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-10000}
each=${SECONDS_EACH:-15}

data=$(data_set "$files" 200)
note "building and exporting the image"
"$GRANARY" build "$data" "file://$W/store/set" --quiet >&2
"$GRANARY" export "file://$W/store/set" "$W/image"

declare -A SOCKET=([granary]=$W/granary.sock [file]=$W/file.sock [file-direct]=$W/direct.sock)
background nbdkit -f -t 64 --unix "${SOCKET[granary]}" "$PLUGIN" "image=file://$W/store/set" "cache=$W/cache:4G"
background nbdkit -f -r -t 64 --unix "${SOCKET[file]}" file "$W/image"
background nbdkit -f -r -t 64 --unix "${SOCKET[file-direct]}" file "$W/image" cache=none
for name in granary file file-direct; do wait_for 20 test -S "${SOCKET[$name]}"; done
note "filling the cache"
for _ in 1 2; do nbdcopy "nbd+unix:///?socket=${SOCKET[granary]}" null:; done

turn() {
    fio --name=x --ioengine=nbd "--uri=nbd+unix:///?socket=${SOCKET[$1]}" --rw=randread --bs=128k --iodepth=32 \
        --time_based --runtime="$each" --norandommap --randrepeat=0 --output-format=json >"$W/fio.json" 2>"$W/fio.err" ||
        { cat "$W/fio.err" >&2; exit 1; }
    python3 - "$W/fio.json" <<'PYTHON'
import json, sys
text = open(sys.argv[1]).read()
read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
print("%.1f %.2f" % (read["bw_bytes"] / 1e6, read["clat_ns"]["percentile"]["99.000000"] / 1e6))
PYTHON
}

declare -A RATE P99
for round in $(seq 0 "$REPEATS"); do
    for name in granary file file-direct; do
        [ $name != file-direct ] || drop_caches
        [ $name != file ] || cat "$W/image" >/dev/null
        read -r rate p99 < <(turn $name)
        note "round $round: $name $rate MB/s"
        [ "$round" = 0 ] || { RATE[$name]+=" $rate"; P99[$name]+=" $p99"; }
    done
done
echo "random 128 KiB reads, queue depth 32, cache warm, $REPEATS turns of $each s, medians"
printf '%-44s %8s %8s\n' what MB/s "p99 ms"
# shellcheck disable=SC2086
{
    printf '%-44s %8s %8s\n' "granary (SSD cache, O_DIRECT)" "$(median ${RATE[granary]})" "$(median ${P99[granary]})" \
        "nbdkit file, image in the page cache" "$(median ${RATE[file]})" "$(median ${P99[file]})" \
        "nbdkit file cache=none, page cache dropped" "$(median ${RATE[file-direct]})" "$(median ${P99[file-direct]})"
    echo "granary / nbdkit file (page cache):  $(ratio "$(median ${RATE[granary]})" "$(median ${RATE[file]})")"
    echo "granary / nbdkit file (cache=none):  $(ratio "$(median ${RATE[granary]})" "$(median ${RATE[file-direct]})")"
}
