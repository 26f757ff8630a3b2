#!/bin/bash
# A build that is killed is run again: it goes on from its checkpoint, reads only what came after it, and makes the
# image that an undisturbed build makes. GRANARY_FULL=1: as ext4 too.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
for i in $(seq -w 16); do seq "1${i}000000" "1${i}120000" >"$W/tree/file-$i"; done
total=$(cat "$W"/tree/* | wc -c)
longest=$(stat -c %s "$W"/tree/* | sort -n | tail -1)
options=(--checkpoint 2M --chunk-size 64K --jobs 4)

checkpoints() { find "$1/builds" -name '*.checkpoint' 2>"$W/null"; }

# build_and_kill STORE FS: a build that takes 5 seconds, killed when it has left its second checkpoint at the earliest. Of
# a machine that stood still until the build was over, nothing is asked.
build_and_kill() {
    local pid status first try
    for try in 1 2 3 4 5 6 7 8; do
        rm -rf "$1"
        status=0
        "$GRANARY" build "$W/tree" "$1/set:v1" --fs "$2" "${options[@]}" --bwlimit 4M -q 2>"$W/err" &
        pid=$!
        wait_for 300 bash -c "! kill -0 $pid || [ -n \"\$(find '$1/builds' -name '*.checkpoint')\" ]" 2>"$W/null"
        first=$(checkpoints "$1" | xargs -r stat -c %i 2>"$W/null" || true) # which the build may replace or remove now
        wait_for 300 bash -c "! kill -0 $pid || [ \"\$(find '$1/builds' -name '*.checkpoint' -printf %i)\" != '$first' ]" 2>"$W/null"
        kill -KILL $pid 2>"$W/null" || true
        wait $pid || status=$?
        [ $status != 137 ] || return 0
        [ $status = 0 ] || fail "exit $status: $(cat "$W/err")"
        echo "the build was over before it could be killed, try $try"
    done
    fail "the build was always over before it could be killed"
}

for fs in erofs ${GRANARY_FULL:+ext4}; do
    echo "== $fs"
    "$GRANARY" build "$W/tree" "$W/whole-$fs/set:v1" --fs $fs "${options[@]}" --json >"$W/whole.json"
    [ -z "$(checkpoints "$W/whole-$fs")" ] || fail "a checkpoint is left after a build that was not disturbed"
    [ "$(jq .bytes_resumed "$W/whole.json")" = 0 ] || fail "something was resumed: $(cat "$W/whole.json")"

    store=$W/killed-$fs
    build_and_kill "$store" $fs
    "$GRANARY" images "$store" >"$W/images" || fail "the store of a killed build cannot be listed"
    [ ! -s "$W/images" ] || fail "a killed build published something"
    "$GRANARY" gc "$store" --grace 0 >"$W/gc" || fail "gc: $(cat "$W/gc")"
    "$GRANARY" build "$W/tree" "$store/set:v1" --fs $fs "${options[@]}" --json >"$W/again.json"
    resumed=$(jq .bytes_resumed "$W/again.json") read=$(jq .bytes_read "$W/again.json")
    echo "of $total bytes $resumed were taken over, $read read"
    [ "$resumed" -ge $((2 * 2097152 - longest)) ] || fail "too little was taken over: $(cat "$W/again.json")"
    [ $((resumed + read)) = "$total" ] || fail "read twice, or not at all: $(cat "$W/again.json")"
    [ "$(jq .digest "$W/again.json")" = "$(jq .digest "$W/whole.json")" ] ||
        fail "another image than that of an undisturbed build: $(cat "$W/again.json") $(cat "$W/whole.json")"
    [ -z "$(checkpoints "$store")" ] || fail "the checkpoint is left after the image was published"
    "$GRANARY" verify --deep -q "$store/set:v1"
done
