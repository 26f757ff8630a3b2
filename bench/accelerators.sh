#!/bin/bash
# accelerators.sh [CONTENDER...]: how many accelerators a machine can feed with the load of RetinaNet in MLPerf Storage:
# the largest number whose utilisation, time computing in time of the run, is at least 85 %. Accelerators are simulated:
# each takes a batch of 16 files and sleeps 180 ms. READERS (8) processes read whole files in a shuffled order, compare
# every byte and decode nothing (epoch/accelerators.c). Batch, step, bound and sizes of the files (normal, 153,600
# bytes, deviation 51,200) are those of https://github.com/mlcommons/storage, configs/dlio/workload/retinanet_h100.yaml.
# BATCH=24 STEP_MS=47.55 MEAN=322957 DEVIATION=0 are those of retinanet_b200.yaml beside it.
#
# Contenders (default: all that this machine has) are those of epoch/contenders.sh; the data is in S3, 1 Gbit/s and 10 ms
# round trip away, or in a directory or an image on this disk (local, loop, nbdkit-file). The number is searched
#
#   cold   before each trial caches are emptied and all is started anew. Not for those whose data is on this disk
#   warm   after one epoch in which every file was compared; before each trial the page cache is dropped, and names and
#          sizes are listed
#
# STATES: one of them, or both ("cold warm"). granary-direct is `mount --direct`: warm it is a file without a server, cold
# it is a server that writes this file, too.
#
# A trial takes WARM_SECONDS (3) or COLD_SECONDS (15: what a contender fetches ahead for the rest of the epoch must come
# to use), or ends when it has read FILES (12,000: 1.8 GB) once; so no more than FILES / BATCH / 5 accelerators can be
# tried. A number that is not enough is tried twice. CPU of a contender is that of its processes, in
# the trial with the number found; that of the readers is much of the kernel's in their reads. REPEATS rounds (1), of
# which medians are taken. Results: a line of JSON a trial in $RESULTS ($BENCH_DIR/accelerators.jsonl; appended to).
REPEATS=${REPEATS:-1}
. "$(dirname "$(readlink -f "$0")")/lib.sh"
. "$BENCH/epoch/contenders.sh"
. "$BENCH/epoch/largest.sh"
FILES=${FILES:-12000} MEAN=${MEAN:-153600} DEVIATION=${DEVIATION:-51200}
BATCH=${BATCH:-16} STEP_MS=${STEP_MS:-180} WARM_SECONDS=${WARM_SECONDS:-3} COLD_SECONDS=${COLD_SECONDS:-15}
READERS=${READERS:-8}
BOUND=0.85 LIMIT=300
STATES=${STATES:-cold warm}
MOST=$((FILES / BATCH / 5))
RESULTS=${RESULTS:-$BENCH_DIR/accelerators.jsonl}
SET=files
RUN=$(date +%s)
contenders=("$@")
[ $# -gt 0 ] || contenders=(local loop nbdkit-file granary granary-direct granary-nbd granary-ublk rclone s3backer)
[ $MOST -gt 0 ] || { echo "accelerators.sh: FILES must be at least $((5 * BATCH))" >&2; exit 1; }

on_this_disk() { [[ $1 =~ ^(local|loop|nbdkit-file)$ ]]; }

# trial N: whether the utilisation of N accelerators reaches the bound. The last that did is in $W/good
trial() {
    local ticks seconds=$WARM_SECONDS
    [ ! -e "$W/failed" ] || return 1
    if [ "$state" = cold ]; then
        stop_contender
        fresh
        start "$contender"
        seconds=$COLD_SECONDS
    fi
    drop_caches
    find "$ROOT" -printf '%s\n' >/dev/null
    ticks=$(contender_ticks)
    timeout -k 10 $LIMIT "${PREFIX[@]}" "$READER" feed "$W/list.$SET" "$ROOT" "$READERS" "$1" "$1" "$BATCH" "$STEP_MS" "$seconds" \
        >"$W/trial" || touch "$W/failed"
    ticks=$(($(contender_ticks) - ticks))
    jq -c --arg contender "$contender" --arg state "$state" --argjson run "$RUN" --argjson round "$round" --argjson ticks $ticks \
        --argjson hz "$(getconf CLK_TCK)" '{$run, $round, $contender, $state, cpu: ($ticks / $hz)} + .' "$W/trial" >"$W/line"
    tee -a "$RESULTS" <"$W/line" >&2
    jq -e ".errors == 0 and .au >= $BOUND" "$W/line" >/dev/null || return 1
    cp "$W/line" "$W/good"
}

# search STATE: "CONTENDER STATE N FILES/S SERVER-CPU-MS READER-CPU-MS" to $W/results
search() {
    local state=$1
    rm -f "$W/good"
    largest trial "$MOST"
    [ ! -e "$W/failed" ] || { note "FAILED: $contender: $state: files could not be read, or were not what was made"; return 1; }
    if [ "$LARGEST" = 0 ]; then
        echo "$contender $state 0 0 0 0" >>"$W/results"
    else
        # what the accelerators took
        jq -r --argjson step "$BATCH" --argjson ms "$STEP_MS" \
            '"\(.contender) \(.state) \(.accelerators) \(.accelerators * .au * $step * 1000 / $ms) \(.cpu / .files * 1e3) \(.reader_cpu / .files * 1e3)"' \
            "$W/good" >>"$W/results"
    fi
}

# In a shell of its own, with `set -e`: what fails ends this contender's turn and no other.
turn() {
    set -e
    trap stop_contender EXIT
    prepare "$contender"
    [[ " $STATES " != *" cold "* ]] || on_this_disk "$contender" || search cold
    [[ " $STATES " = *" warm "* ]] || return 0
    stop_contender
    fresh
    start "$contender"
    timeout -k 10 $LIMIT "${PREFIX[@]}" "$READER" read "$W/list.$SET" "$ROOT" "$READERS" 1 >&2
    ! declare -F "complete_$contender" >/dev/null || "complete_$contender"
    search warm
}

make_set files "$(data_set "$FILES" 200 "$MEAN" "$DEVIATION")"
BUDGET=$((BYTES[files] * 5 / 4 + (256 << 20)))
link_up 5 1000
servers_up
export AWS_ENDPOINT_URL=$S3
upload >&2
extra_cleanup() { stop_contender; remove_cache; }
: >"$W/log"
: >"$W/results"
for ((round = 1; round <= REPEATS; round++)); do
    for contender in "${contenders[@]}"; do
        lacks=$(lacks "$contender")
        [ -z "$lacks" ] || { note "SKIPPED: $contender: $lacks"; continue; }
        note "round $round: $contender"
        rm -f "$W/failed"
        set +e
        (turn)
        status=$?
        set -e
        [ $status = 0 ] || note "ENDED EARLY: $contender: $(tail -n 3 "$W/log")"
        : >"$W/log"
    done
done

# column STATE N: the values of $contender, a line a round
column() { awk -v name="$contender" -v state="$1" -v n="$2" '$1 == name && $2 == state { print $n }' "$W/results"; }
# cells STATE: accelerators, files/s and the contender's CPU of a file
cells() {
    [ -n "$(column "$1" 3)" ] || { echo '- | - | -'; return; }
    # shellcheck disable=SC2046,SC2183 # one word a value
    printf '%s | %.0f | %.3f' $(for n in 3 4 5; do median $(column "$1" $n); done) | sed "s/^$MOST /at least &/"
}
# readers: their CPU of a file
readers() {
    [ -n "$(column warm 6)" ] || { echo -; return; }
    # shellcheck disable=SC2046 # one word a value
    printf '%.3f' "$(median $(column warm 6))"
}
printf '| contender | cold: accelerators | files/s | its CPU ms a file | warm: accelerators | files/s | its CPU ms a file | readers'"'"' CPU ms a file |\n'
printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
for contender in "${contenders[@]}"; do
    [ -n "$(column cold 3)$(column warm 3)" ] || continue
    printf '| %s | %s | %s | %s |\n' "$contender" "$(cells cold)" "$(cells warm)" "$(readers)"
done
