#!/bin/bash
# epoch.sh [FILES] [CONTENDER...]: training over a slow link: what it takes to read a dataset of FILES (20,000: 2.0 GB)
# files from S3, 1 Gbit/s and 10 ms round trip away, by 8 processes, for the first time and again. Every file is
# compared.
#
# Contenders, each run alone, in turns, REPEATS rounds (3), of which medians are taken: those of epoch/contenders.sh;
# granary:KEY=VALUE,... is granary with parameters of its plugin. ROWS, some of:
#   epochs      attach; find; ls -lR; a shuffled epoch with nothing cached; again without the page cache; again with it
#   sequential  the files in order, nothing cached       sample  1,000 files spread over the set, nothing cached
#   half        a cache of half the dataset, three shuffled epochs without the page cache (granary and rclone)
#   extra       another set, each nothing cached and again without the page cache: `import numpy, torch` from an image
#               of a Python environment, random reads of an LMDB file, a torch DataLoader over torchvision's ImageFolder
# Besides, `link`: the bytes of the set by 16 connections of curl, in ranged gets of 4 MiB.
#
# Results: a line of JSON a step in $RESULTS ($BENCH_DIR/epoch.jsonl; appended to), the tables on stdout, as
# bench/README.md has them. A step that takes longer than LIMIT seconds (120), or fails, ends its row and no other; so
# one round of 20,000 files and all contenders takes about 35 minutes, 500 files 10.
# LOCK=FILE is held by each contender's turn, for machines with other benchmarks. CHUNK: of the image (default: the
# builder's).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}
shift || true
ROWS=${ROWS:-epochs sequential sample half extra}
RESULTS=${RESULTS:-$BENCH_DIR/epoch.jsonl}
. "$BENCH/epoch/contenders.sh"
contenders=("$@")
[ $# -gt 0 ] || contenders=("${CONTENDERS[@]}")
PYTHON=/usr/bin/python3 # Debian's, which has Debian's modules
RUN=$(date +%s)
READERS=8
LIMIT=${LIMIT:-120}

# ---- one step, one line ----

# line STEP SECONDS LINK_BYTES REQUESTS TICKS DEVICE_BYTES FILE: FILE holds the object that the step printed, whose
# names win
line() {
    jq -c --arg contender "$contender" --arg step "$1" --argjson seconds "$2" --argjson link "$3" --argjson requests "$4" \
        --argjson ticks "$5" --argjson device "$6" --argjson hz "$(getconf CLK_TCK)" --argjson pss "$(contender_pss)" \
        --argjson run "$RUN" --argjson round "$round" --argjson load "$(cut -d ' ' -f 1 /proc/loadavg)" --argjson set "$files" \
        '{$run, $round, set: $set, $contender, $step, $seconds, link_bytes: $link, $requests, cpu: ($ticks / $hz),
          device_bytes: $device, pss_mib: ($pss / 1024 | floor), $load} + .' "$7" | tee -a "$RESULTS" >&2
}

# What became of a step, as names for its line.
ending() {
    local status
    status=$(cat "$W/status")
    case $status in
    0) echo '{}' ;;
    124 | 137) echo "{\"limit\": $LIMIT}" ;;
    *) echo "{\"status\": $status}" ;;
    esac
}

# step NAME COMMAND...: run in this shell; on stdout it prints one JSON object or nothing
step() {
    local name=$1 ticks bytes asked read start seconds
    shift
    echo 0 >"$W/status"
    ticks=$(contender_ticks) bytes=$(link_bytes) asked=$(requests) read=$(device_bytes)
    start=$EPOCHREALTIME
    "$@" >"$W/step"
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
    ending >>"$W/step"
    jq -s add "$W/step" >"$W/result"
    read=$(($(device_bytes) > read ? $(device_bytes) - read : 0)) # it may be another device since
    line "$name" "$seconds" $(($(link_bytes) - bytes)) $(($(requests) - asked - 1)) $(($(contender_ticks) - ticks)) $read "$W/result"
    [ "$(cat "$W/status")" = 0 ] || { [ "$name" != cold ] || touch "$W/slow"; return 1; }
}

# timed COMMAND...: within the limit; how it ended is kept for the line that its step writes
timed() { timeout -k 10 "$LIMIT" "${PREFIX[@]}" "$@" || echo $? >"$W/status"; }
# epoch ORDER [N]
epoch() { timed "$READER" read "$W/list.$SET" "$ROOT" $READERS "$@"; }
list_names() { timed find "$ROOT" -type f | wc -l | jq -c "{files: ., errors: (if . == $(wc -l <"$W/list.$SET") then 0 else 1 end)}"; }
list_long() { timed ls -lR "$ROOT" | wc -l | jq -c '{lines: .}'; }
import_torch() {
    timed env PYTHONHOME="$ROOT/python" PYTHONPATH="$ROOT/python/packages" PYTHONDONTWRITEBYTECODE=1 \
        LD_LIBRARY_PATH="$ROOT/python/shared" $PYTHON -c 'import numpy, torch
assert torch.__file__.startswith("'"$ROOT"'") and float(torch.ones(3).sum()) == 3'
}
random_lmdb() { timed $PYTHON "$BENCH/epoch/loads.py" lmdb "$ROOT/lmdb"; }
image_folder() { timed $PYTHON "$BENCH/epoch/loads.py" loader "$ROOT/images"; }

# ---- the rows ----

epochs_row() {
    step attach start "$contender"
    step find list_names || note "going on without the whole list"
    step ls list_long || note "going on without the whole list"
    step cold epoch 1
    drop_caches
    step second epoch 2
    step third epoch 3
}

sequential_row() {
    start "$contender"
    list_names >/dev/null
    step sequential epoch 0
}

sample_row() {
    start "$contender"
    list_names >/dev/null
    step sample epoch 1 $((files < 20000 ? files / 20 : 1000))
    step after-sample sleep 2 # what is fetched when nobody asks any more
}

half_row() {
    local i
    BUDGET=$((BYTES[files] / 2))
    start "$contender"
    list_names >/dev/null
    for i in 1 2 3; do
        drop_caches
        step "half-$i" epoch "$i"
    done
}

# extra_row STEP COMMAND
extra_row() {
    start "$contender"
    step "$1" "$2"
    ! declare -F "complete_$contender" >/dev/null || "complete_$contender"
    drop_caches
    step "$1-again" "$2"
}

# Rows of one contender; what fails ends its row, and no other.
turn() {
    local row status
    for row in "$@"; do
        if ! prepare "${contender%%:*}" || ! fresh; then
            note "SKIPPED: $contender: $row: not prepared"
            continue
        fi
        set +e
        (
            set -e
            trap stop_contender EXIT
            exec 9>>"${LOCK:-$W/lock}"
            flock 9
            note "round $round: $contender: $row"
            eval "$row"
        ) 9>&-
        status=$?
        set -e
        [ $status = 0 ] || note "ENDED EARLY: $contender: $row: $(tail -n 3 "$W/log")"
        : >"$W/log"
    done
}

# Ranges of the packs, as many bytes as the set has.
link_row() {
    local i pids=()
    (cd "$W/store" && find packs -type f -printf '%s store/%p\n') | sort -k 2 | awk -v most="${BYTES[files]}" \
        -v base="$S3/data/" -v at="$W/ranges" '{
            for (from = 0; from < $1 && total < most; from += n) {
                n = $1 - from < 4194304 ? $1 - from : 4194304
                total += n
                printf "%surl=\"%s%s\"\nrange=%d-%d\noutput=/dev/null\nsilent\nshow-error\nfail\n", \
                    used[c]++ ? "next\n" : "", base, $2, from, from + n - 1 >(at "." c)
                c = (c + 1) % 16
            }
            print total >(at ".total") }'
    start=$EPOCHREALTIME
    for i in "$W"/ranges.*; do
        [ "$i" != "$W/ranges.total" ] || continue
        "${RUN_IN_CLIENT[@]}" curl --noproxy '*' -K "$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    jq -n -c --arg bytes "$(tail -n 1 "$W/ranges.total")" '{bytes: ($bytes | tonumber)}'
    rm "$W"/ranges.*
}

packages_ensure epoch || note "going on without: $(packages_missing epoch | xargs)"
: >"$W/log"
make_set files "$(data_set "$files" 200)"
if [[ " $ROWS " = *" extra "* ]]; then
    note "the other set (made once)"
    $PYTHON "$BENCH/epoch/extra.py" "$BENCH_DIR/extra"
    make_set extra "$BENCH_DIR/extra/set"
fi
link_up 5 1000
servers_up
export AWS_ENDPOINT_URL=$S3
upload
extra_cleanup() { stop_contender; }

# shellcheck disable=SC2034 # BUDGET is read by the contenders
for round in $(seq "$REPEATS"); do
    contender=link SET=files
    turn "step link link_row"
    for contender in "${contenders[@]}"; do
        SET=files BUDGET=$((BYTES[files] * 5 / 4 + (256 << 20)))
        rm -f "$W/slow"
        [[ " $ROWS " != *" epochs "* ]] || turn epochs_row
        # who takes too long in random order is not asked for the same bytes in order
        [[ " $ROWS " != *" sequential "* || -e $W/slow ]] || turn sequential_row
        [[ " $ROWS " != *" sample "* ]] || turn sample_row
        [[ " $ROWS " != *" half "* || ! $contender =~ ^(granary|rclone) ]] || turn half_row
        [[ " $ROWS " = *" extra "* ]] || continue
        SET=extra BUDGET=$((BYTES[extra] * 5 / 4 + (256 << 20)))
        turn "extra_row import import_torch" "extra_row lmdb random_lmdb" "extra_row loader image_folder"
    done
done
python3 "$BENCH/epoch/table.py" "$RESULTS" "$RUN"
