#!/bin/bash
# Builds (some killed and run again, some upon a parent), copies, tags that come and go, garbage collections and
# readers, all over one store at the same time: no image that has a name ever lacks anything, and at the end nothing
# needless is left. GRANARY_FULL=1 races for minutes.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

LEAST=${GRANARY_FULL:+120} # seconds
LEAST=${LEAST:-8}
store=$W/store

# Twelve small trees that share half of their files with their neighbours: what one build no longer needs, the next one
# does.
for t in $(seq 0 11); do
    mkdir -p "$W/tree-$t"
    for f in 0 1 2 3; do
        seq $((1000 * (f + 2 * t))) $((1000 * (f + 2 * t) + 1500)) >"$W/tree-$t/file-$((f + 2 * t))"
    done
done
"$GRANARY" build -q "$W/tree-0" "$store/kept:forever" >"$W/out"

running() { [ ! -e "$W/stop" ]; }
# wrong TEXT: ends the test, seen by the others and below
wrong() { echo "$*" >>"$W/wrong"; touch "$W/stop"; }

# So that there are moments without a lease.
nap() { sleep "0.$((RANDOM % 2))$((RANDOM % 10))"; }

# forget_lease PID: what time does to the lease of a build that was killed
forget_lease() {
    local lease
    for lease in "$store"/builds/*; do
        [ -e "$lease" ] && [ "$(jq -r .pid "$lease" 2>"$W/null")" = "$1" ] && rm -f "$lease"
    done
    return 0
}

builder() {
    local me=$1 i=0 tree pid status err=$W/err-$1
    RANDOM=$me
    while running; do
        i=$((i + 1))
        tree=$W/tree-$((RANDOM % 12))
        # one in four is killed at some moment, and run again
        if [ $((RANDOM % 4)) = 0 ]; then
            "$GRANARY" build -q "$tree" "$store/img-$me:t$((i % 2))" >"$W/null" 2>&1 &
            pid=$!
            sleep "0.0$((RANDOM % 10))"
            kill -9 $pid 2>"$W/null" || true
            wait $pid 2>"$W/null" || true
            forget_lease $pid
        fi
        status=0
        "$GRANARY" build -q "$tree" "$store/img-$me:t$((i % 2))" >"$W/null" 2>"$err" || status=$?
        if [ $status = 0 ]; then
            echo built >>"$W/builds"
        elif grep -q "run the build again\|run it again" "$err"; then
            echo again >>"$W/builds"
        else
            wrong "builder $me: $(cat "$err")"
        fi
        # names that come and go; that there is none is no failure
        case $((RANDOM % 8)) in
            0) "$GRANARY" tag "$store/img-$me:t$((i % 2))" named ;;
            1 | 2 | 3 | 4) "$GRANARY" rm "$store/img-$me:t$((RANDOM % 2))" ;;
            5) "$GRANARY" rm "$store/img-$me:named" ;;
            6) "$GRANARY" copy -q "$store/img-$me:named" "$store/copied:c$((RANDOM % 2))" ;;
        esac >"$W/null" 2>&1 || true
        nap
    done
}

# gc as fast as it goes, or standing still somewhere on its way while the others go on.
collector() {
    local me=$1 err=$W/err-gc-$1 gc status
    RANDOM=$((100 + me))
    while running; do
        "$GRANARY" gc --grace 0 --keep-last 1 --json "$store" >"$W/gc-$me.json" 2>"$err" &
        gc=$!
        if [ $((RANDOM % 2)) = 0 ]; then
            sleep "0.0$((RANDOM % 10))"
            kill -STOP $gc 2>"$W/null" && sleep 0.5
            kill -CONT $gc 2>"$W/null" || true
        fi
        status=0
        wait $gc || status=$?
        if [ $status = 0 ]; then
            jq -r .swept "$W/gc-$me.json" >>"$W/swept"
        elif ! grep -q "another gc or unnest is removing\|nothing was removed" "$err"; then
            wrong "collector $me: $(cat "$err")"
        fi
    done
}

# What a tag names now, with the nonce of its writing; nothing: no such tag.
tag_now() { cat "$1" 2>"$W/null" || true; }

reader() {
    local me=$1 file ref before
    RANDOM=$((200 + me))
    while running; do
        for file in "$store"/images/*/*; do
            running || break
            ref=${file#"$store"/images/}
            before=$(tag_now "$file")
            [ -n "$before" ] || continue
            if "$GRANARY" verify -q --deep "$store/${ref%/*}:${ref##*/}" >"$W/null" 2>"$W/err-reader-$me"; then
                echo "$ref" >>"$W/reads"
            elif [ "$before" = "$(tag_now "$file")" ]; then # it has had its name all the time
                wrong "reader $me: $ref: $(cat "$W/err-reader-$me")"
            fi
        done
    done
}

workers=()
for n in 1 2; do builder $n & workers+=($!); done
for n in 1 2; do collector $n & workers+=($!); done
reader 1 & workers+=($!)
# count FILE: of its numbers, the sum; of other lines, how many
count() { awk '{ n += $1 ~ /^[0-9]+$/ ? $1 : 1 } END { print n + 0 }' "$1" 2>"$W/null"; }
raced() { [ "$(count "$W/builds")" -ge 10 ] && [ "$(count "$W/swept")" -ge 10 ] && [ "$(count "$W/reads")" -ge 10 ]; }

for ((i = 0; i < 400; i++)); do
    sleep 1
    running || break
    [ $i -lt "$LEAST" ] || ! raced || break
done
touch "$W/stop"
for worker in "${workers[@]}"; do wait "$worker" || wrong "a worker ended with $?"; done
[ ! -e "$W/wrong" ] || { cat "$W/wrong"; fail "something was lost"; }

echo "$(count "$W/builds") builds, $(count "$W/swept") objects swept, $(count "$W/reads") images read"
raced || fail "there was hardly a race"

echo "== every image that has a name is whole, and what is left is needed"
rm -rf "$store"/builds "$store/trash/sweeping"
for _ in 1 2 3; do "$GRANARY" gc --grace 0 "$store" >"$W/out"; done
for file in "$store"/images/*/*; do
    ref=${file#"$store"/images/}
    "$GRANARY" verify -q --deep "$store/${ref%/*}:${ref##*/}" >"$W/out"
done
"$GRANARY" gc --grace 0 --json "$store" >"$W/json"
jq -e '.marked == 0 and .swept == 0 and .unmarked == 0' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
find "$store/images" -mindepth 1 -delete
for _ in 1 2; do "$GRANARY" gc --grace 0 "$store" >"$W/out"; done
[ -z "$(find "$store"/{packs,indexes,catalogs,manifests,trash} -type f)" ] || fail "without images something is left"
