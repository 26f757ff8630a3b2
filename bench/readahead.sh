#!/bin/bash
# readahead.sh [FILES] [ROW...]: what chunk size and readahead cost and bring: FILES (20,000) files, nothing cached,
# read by 8 processes through the mounted image, the store behind 1 Gbit/s and 10 ms round trip.
#
# Rows, all by default: sample (a twentieth of the files, spread over the set, in random order), epoch (all files,
# shuffled), warm (another epoch after that, without page cache), sequential (all, in order), half (three shuffled
# epochs without page cache, a cache of half the set). For each chunk size (CHUNKS: 64K 128K 256K) and each policy
# (POLICIES: readahead=0 fill=off default; + joins options of granary serve, without their dashes): seconds, bytes over
# the link, these over the bytes of the files (amplification), requests, and bytes that came in the two seconds after
# it. Medians of TURNS (1). RTT_MS (10), RATE (1000 Mbit/s). LOCK=FILE is held by each turn.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}
shift || true
rows=("$@")
[ $# -gt 0 ] || rows=(sample epoch warm sequential half)
REPEATS=${TURNS:-1}
. "$BENCH/slow_mount.sh"
slow_mount_up "${RTT_MS:-10}"

exec 9>>"${LOCK:-$W/lock}"
printf '%-6s %-12s %-10s %8s %10s %6s %9s %9s\n' chunk policy row seconds "link MB" ampl. requests "after MB"
for chunk in ${CHUNKS:-64K 128K 256K}; do
    "$GRANARY" build "$data" "file://$SHM/www/store-$chunk/set" --chunk-size "$chunk" --quiet >&2
    for policy in ${POLICIES:-readahead=0 fill=off default}; do
        for row in "${rows[@]}"; do
            times="" moved="" asked="" after=""
            for _ in $(seq "$REPEATS"); do
                flock 9
                turn "$GRANARY_BUILD" "$chunk" "$policy" "$row" 2 >"$W/turn"
                flock -u 9
                read -r t b r _ a wanted <"$W/turn"
                times+=" $t" moved+=" $b" asked+=" $r" after+=" $a"
            done
            # shellcheck disable=SC2086
            printf '%-6s %-12s %-10s %8s %10s %6s %9s %9s\n' "$chunk" "$policy" "$row" "$(median $times)" \
                "$(megabytes "$(median $moved)" 1)" "$(ratio "$(median $moved)" "$wanted")" "$(median $asked)" \
                "$(megabytes "$(median $after)" 1)"
        done
    done
    rm -r "$SHM/www/store-$chunk"
done
