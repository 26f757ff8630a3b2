#!/bin/bash
# How often each eviction policy finds a chunk in the cache, and the offline optimum beside it, for traces made by
# eviction.py. Hit ratios; REPEATS traces each, their mean.
#   bench/eviction.sh [WORKLOAD]...   only these rows
. "$(dirname "$(readlink -f "$0")")/lib.sh"

CHUNK=$((64 << 10))
only=" $* "

# row WORKLOAD NUMBER CHUNKS ASKS SLOTS...: a line of the table for each size of the cache
row() {
    local workload=$1 number=$2 chunks=$3 asks=$4 seed slots
    shift 4
    [[ $only = "  " || $only = *" $workload "* ]] || return 0
    for seed in $(seq "$REPEATS"); do
        python3 "$BENCH/eviction.py" "$workload" "$chunks" "$asks" "$seed" "$number" >"$W/trace.$seed"
    done
    for slots in "$@"; do
        for seed in $(seq "$REPEATS"); do
            "$GRANARY" cache simulate --trace "$W/trace.$seed" --size $((slots * CHUNK)) --json
        done >"$W/results"
        jq -rs --arg name "$workload $number" --argjson chunks "$chunks" --argjson slots "$slots" '
            def mean: add / length;
            def ratio($p): [.[].results[] | select(.policy == $p).hit_ratio] | mean;
            def digits: . * 10000 | round / 10000;
            ["auto", "lru", "s3fifo", "sticky", "optimum"] as $names
            | [ratio($names[])] as $r
            | ([.[].results[0].epochs[1:][].hit_ratio] | min) as $least
            | ([.[].results[0].epochs | length] | min) as $epochs
            | "| \($name) | \($chunks) | \($slots) | \($r | map(digits | tostring) | join(" | ")) | \($r[0] - ([$r[1, 2]] | max) | digits) | "
              + (if $epochs > 1 then "\($least / ($slots / $chunks) | digits)" else "" end) + " |"' "$W/results"
    done
}

echo "| trace | chunks | slots | auto | lru | s3fifo | sticky | optimum | auto - best of lru, s3fifo | worst epoch / (slots / chunks) |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
row epochs 0 20000 200000 5000 10000 15000
row epochs 0 1200 24000 300 600 900
row files 0.5 20000 400000 5000 10000
row files 8 20000 400000 5000 10000
row images 32 16000 150000 8000
row images 16 32000 210000 16000
row zipf 0.8 100000 1000000 1000 10000
row zipf 1.0 100000 1000000 1000 10000
row zipf 1.2 100000 1000000 1000 10000
row zipf 1.0 3000 100000 300
row scans 1.0 50000 1000000 1000 10000
row polluted 0.9 50000 1000000 1000 10000
row change 0.05 10000 200000 2500 5000 7500
row jobs 1 10000 200000 5000
row jobs 0 10000 200000 2500 5000
row renewed 0.1 50000 1000000 1000 5000
row upset 200000 50000 1000000 1000 5000
row moving 0.1 4096 600000 1000 3000 6000
[ -z "${LARGE:-}" ] || row epochs 0 2000000 8000000 1000000
[ -z "${LARGE:-}" ] || row zipf 0.8 4000000 8000000 1000000
