#!/bin/bash
# ablation.sh [FILES] VARIANT...: what each mechanism of fetching, readahead and eviction brings: loads over a slow link
# with everything on (`default`) and with one mechanism off, in turns.
#
# A variant is NAME=OPTIONS: options of granary serve joined by +, without their dashes (nofill=fill=off,
# lru=eviction=lru), or the directory of another release build, for what no option turns off, and with + such options
# (nohold=/path/to/build+fill=off).
# The first variant is what the others are compared with; default=default is put before them unless BASE is given.
# LOADS (sample epoch half): those of slow_mount.sh. RTTS (10 100): round trips in ms. FILES (4,000): 0.4 GB.
#
# For each round trip, load and variant: medians of REPEATS (3) turns of seconds, bytes over the link, gets and the 99th
# percentile of a file, and what they are over those of the first variant; then the least and the largest time, over its
# median. Every turn is a line of $RESULTS ($BENCH_DIR/ablation.tsv): rtt, load, variant, seconds, bytes, gets, ms.
# KEEP=1: append to it, and show all that it has.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-4000}
[ $# -gt 0 ] && shift
variants=("${BASE:-default=default}" "$@")
RESULTS=${RESULTS:-$BENCH_DIR/ablation.tsv}
. "$BENCH/slow_mount.sh"
[ -n "${KEEP:-}" ] || : >"$RESULTS"

# measure RTT LOAD VARIANT: one line of the results
measure() {
    local name=${3%%=*} how=${3#*=} build=$GRANARY_BUILD seconds bytes gets late
    if [[ $how = /* ]]; then
        build=${how%%+*} how=${how#"${how%%+*}"}
        how=${how#+}
    fi
    turn "$build" default "${how:-default}" "$2" 0 >"$W/turn"
    read -r seconds bytes gets late _ <"$W/turn"
    printf '%s\t' "$1" "$2" "$name" "$seconds" "$bytes" "$gets" >>"$RESULTS"
    echo "$late" >>"$RESULTS"
}

# table FIRST: of the results
table() {
    echo "| round trip | load | variant | turns | s | MB | gets | p99 ms | time | bytes | gets | p99 | least, largest time |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    jq -Rrn --arg first "$1" '
        def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
        def digits($n): . * pow(10; $n) | round / pow(10; $n);
        def over($a; $b): if $b == 0 then "" else $a / $b | digits(3) end;
        [inputs | split("\t") | {key: .[:2], name: .[2], of: (.[3:] | map(tonumber))}] | group_by(.key)[]
        | group_by(.name) | map({key: .[0].key, name: .[0].name, times: map(.of[0]), m: (map(.of) | transpose | map(median))})
        | (map(select(.name == $first))[0] // .[0]) as $base
        | .[] | "| \(.key[0]) ms | \(.key[1]) | \(.name) | \(.times | length) | \(.m[0] | digits(2)) | \(.m[1] / 1e6 | digits(0)) | "
            + "\(.m[2] | digits(0)) | \(.m[3] | digits(0)) | \([range(4) as $i | over(.m[$i]; $base.m[$i]) | tostring] | join(" | ")) | "
            + "\(over(.times | min; $base.m[0])), \(over(.times | max; $base.m[0])) |"' "$RESULTS"
}

slow_mount_up 10
"$GRANARY" build "$data" "file://$SHM/www/store-default/set" --quiet >&2
for rtt in ${RTTS:-10 100}; do
    "${PREFIX[@]}" "$BENCH/link/link.sh" set "$LINK" $((rtt / 2)) "${RATE:-1000}"
    for _ in $(seq "$REPEATS"); do
        for load in ${LOADS:-sample epoch half}; do
            for variant in "${variants[@]}"; do measure "$rtt" "$load" "$variant"; done
        done
    done
done
table "${variants[0]%%=*}"
