#!/bin/bash
# The Job of a dataset in the Helm chart, files/dataset.sh, by the processes that its pods would be: a build, warming on two
# nodes, and only then the new version; a pod that was killed; a failure's sentence; the way back; a build in parts.
# GRANARY_FULL=1: the next version of the parts, and a part that fails.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

script=$GRANARY_SOURCE/deploy/helm/granary/files/dataset.sh
export PATH=$GRANARY_BUILD/cli:$PATH
export IMAGE=$W/store/faces TAG=current SOURCE=$W/tree NODES=2 KEEP_LAST=5 PAUSE=0.1 JOB_ID=one

serve_node() { # serve_node N
    background "$GRANARY" serve --socket "$W/node$1.sock" --cache "$W/cache$1:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/node$1.out" 2>&1
    wait_for 60 listens "$W/node$1.sock.control"
}
# step POD STEP ARG...: a container; its log and termination message in $W/STEP-POD.*
step() {
    local pod=$1 step=$2
    shift 2
    JOB_COMPLETION_INDEX=$pod SOCKET=$W/node$pod.sock TERMINATION_LOG=$W/$step-$pod.message "$script" "$step" "$@" >"$W/$step-$pod.log" 2>&1
}
pod() { step "$1" build --exclude '*.tmp' && step "$1" warm --all; }
current() { digest_of "$IMAGE:current"; }
# progress_of LOG: its last line of progress, which is exact
progress_of() { grep '^{"progress"' "$1" | jq -s 'last.progress'; }
tags() { "$GRANARY" images --all --json "$W/store" | jq -r '.images[].tag | select(startswith("job-"))'; }

mkdir "$W/tree"
head -c 1000000 /dev/urandom >"$W/tree/a"
echo no >"$W/tree/b.tmp"
serve_node 0
serve_node 1

echo "== the first version"
background pod 1
ONE=$BACKGROUND_PID
pod 0 || fail "pod 0: $(cat "$W"/*-0.log)"
wait "$ONE" || fail "pod 1: $(cat "$W"/*-1.log)"
first=$(current)
[ "$(tags)" = "" ] || fail "tags of the Job are left: $(tags)"
jq -e .digest "$W/build-0.message" >"$W/null" || fail "the build's message: $(cat "$W/build-0.message")"
jq -e '.cached_bytes == .bytes and .warmed_bytes > 900000' "$W/warm-1.message" >"$W/null" || fail "the warming's message: $(cat "$W/warm-1.message")"
jq -e '.bytes_done > 900000 and .files_done == 1 and has("bytes_per_s") and has("seconds_left")' <(progress_of "$W/build-0.log") >"$W/null" ||
    fail "the build's progress: $(cat "$W/build-0.log")"
jq -e --argjson all "$(jq .bytes "$W/warm-1.message")" '.phase == "warming" and .bytes_done == $all and .bytes_total == $all
    and .files_done == .files_total and .failed_chunks == 0 and has("bytes_per_s") and .seconds_left == null' <(progress_of "$W/warm-1.log") >"$W/null" ||
    fail "the warming's progress: $(cat "$W/warm-1.log")"
[ "$("$GRANARY" ls "$IMAGE:current")" = a ] || fail "the image has: $("$GRANARY" ls "$IMAGE:current")"

echo "== the next one waits for the slower node, and a pod that was killed goes on"
export JOB_ID=two
echo new >"$W/tree/c"
step 0 build || fail "$(cat "$W/build-0.log")"
background step 0 warm --all
ZERO=$BACKGROUND_PID
wait_for 60 grep -q "waiting for $IMAGE:job-two-1" "$W/warm-0.log"
[ "$(current)" = "$first" ] || fail "the tag moved before all nodes were warm"
kill "$(pgrep -P "$ZERO")" # the script, not the shell that runs it
wait "$ZERO" || true
pod 1 || fail "pod 1: $(cat "$W"/*-1.log)"
pod 0 || fail "pod 0, again: $(cat "$W"/*-0.log)"
second=$(current)
[ "$second" != "$first" ] || fail "the tag did not move"
[ "$(tags)" = "" ] || fail "tags of the Job are left: $(tags)"

echo "== a pod that ended after the tag moved, before it had cleaned up"
export JOB_ID=three
"$GRANARY" tag "$IMAGE:current" job-three-0 >"$W/null"
pod 0 || fail "$(cat "$W"/*-0.log)"
[ "$(tags)" = "" ] || fail "tags of the Job are left: $(tags)"
[ "$(current)" = "$second" ] || fail "it built again"

echo "== a failure is a sentence, and the version stays"
export JOB_ID=four NODES=1
! SOURCE=$W/nowhere pod 0 || fail "a build without a source succeeds"
[[ $(tail -1 "$W/build-0.log") = "granary: build: "*nowhere* ]] || fail "the last line of the log: $(tail -1 "$W/build-0.log")"
[ "$(current)" = "$second" ]

echo "== warmed by a trace of the version before"
export JOB_ID=trace
background "$GRANARY" serve "$IMAGE:current" --socket "$W/traced.sock" --cache "$W/traced:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/traced.out" 2>&1
wait_for 60 listens "$W/traced.sock.control"
background "$GRANARY" trace record "$W/traced.sock" "$W/a.trace" >"$W/record.out" 2>&1
RECORDER=$BACKGROUND_PID
wait_for 60 test -s "$W/a.trace"
nbdcopy "nbd+unix:///faces?socket=$W/traced.sock" null: || fail "nbdcopy"
kill -INT "$RECORDER"
wait "$RECORDER" || fail "no trace: $(cat "$W/record.out")"
echo newer >"$W/tree/newer"
step 0 build && step 0 warm --trace "$W/a.trace" || fail "$(cat "$W"/*-0.log)"
grep '"traced_chunks"' "$W/warm-0.log" | jq -e '.traced_chunks > 10 and .cached_bytes == .bytes' >"$W/null" || fail "warmed by the trace: $(cat "$W/warm-0.log")"
[ "$(current)" != "$second" ] || fail "the tag did not move"

echo "== back"
back=$("$GRANARY" images --all --json "$W/store" | jq -r --arg digest "$first" '.images | map(select(.digest == $digest))[0].tag')
step 0 use "$back" || fail "$(cat "$W/use-0.log")"
[ "$(current)" = "$first" ] || fail "the tag did not go back"

echo "== a build in parts: each file is read once, by one pod"
export IMAGE=$W/store/parts JOB_ID=five PARTS=3 NODES=2 # pod 2 builds a part, and warms nothing
for i in $(seq 300); do head -c 3000 /dev/urandom >"$W/tree/$i"; done
for i in 1 2 3 4 5 6; do head -c 1100000 /dev/urandom >"$W/tree/large$i"; done # dealt out one by one
read_by() { jq -s 'map(.bytes_read) | add' "$W"/build-[012].log.json; }
in_parts() { # IMAGE has been built, and the tag has moved
    local i pids=()
    rm -f "$W"/build-[012].* "$W"/warm-[012].*
    for i in 1 2; do
        background pod $i
        pids+=("$BACKGROUND_PID")
    done
    pod 0 || fail "pod 0: $(cat "$W"/*-0.log)"
    for i in 1 2; do wait "${pids[i - 1]}" || fail "pod $i: $(cat "$W"/*-$i.log)"; done
    for i in 0 1 2; do grep '"bytes_read"' "$W/build-$i.log" >"$W/build-$i.log.json"; done
    [ "$(tags)" = "" ] || fail "tags of the Job are left: $(tags)"
    [ "$("$GRANARY" ls "$IMAGE:current" | wc -l)" = "$(find "$W/tree" -type f ! -name '*.tmp' | wc -l)" ] || fail "the image has: $("$GRANARY" ls "$IMAGE:current")"
}
in_parts
[ "$(read_by)" = "$(find "$W/tree" -type f ! -name '*.tmp' -printf '%s\n' | jq -s add)" ] || fail "the parts and the join read $(read_by) bytes"
jq -e '.bytes_read == 0 and .rebuild.parents == 3' "$W/build-0.message" >"$W/null" || fail "the join is no join: $(cat "$W/build-0.message")"
[ ! -e "$W/warm-2.message" ] || fail "pod 2 has warmed a node"
[ -n "${GRANARY_FULL:-}" ] || exit 0

echo "== the next version of the parts"
export JOB_ID=six
echo changed >"$W/tree/7"
in_parts
[ "$(read_by)" = 8 ] || fail "the next version read $(read_by) bytes"

echo "== a part that fails leaves the version, and is built by the next pod"
export JOB_ID=seven
before=$(current)
echo again >"$W/tree/8"
! SOURCE=$W/nowhere step 1 build || fail "a part without a source is built"
[[ $(tail -1 "$W/build-1.log") = "granary: build: "*nowhere* ]] || fail "the last line of the log: $(tail -1 "$W/build-1.log")"
[ "$(current)" = "$before" ] || fail "the tag moved"
in_parts
[ "$(current)" != "$before" ] || fail "the tag did not move"
