#!/bin/bash
# granary bench measures a store, a cache disk and a mount: every figure is there, raw and Granary's, as text and JSON;
# it ends in time, also where the store is slow or silent, and leaves nothing behind, however it ends.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
for tool in jq python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install jq python3)"
done

mkdir "$W/tree" "$W/disk"
chmod 700 "$W/disk"
for i in $(seq 40); do head -c $((i * 4000)) /dev/urandom >"$W/tree/$i"; done
mkdir "$W/tree/$(printf 'd%.0s' {1..255})"
head -c 9000 /dev/urandom >"$W/tree/$(printf 'd%.0s' {1..255})/$(printf 'f%.0s' {1..255})"
"$GRANARY" build -q "$W/tree" "$W/store/img:v1" >"$W/built"

# bench ARG...: a second of it, as JSON in $W/json; it may not take long
bench() {
    local began=$SECONDS
    "$GRANARY" bench --seconds 1 --json "$@" >"$W/json" || fail "bench $*"
    [ $((SECONDS - began)) -lt 60 ] || fail "bench $*: $((SECONDS - began)) s"
    jq -e '.seconds > 0 and .target == $target' --arg target "${*: -1}" "$W/json" >"$W/null" || fail "$(cat "$W/json")"
}
# has KIND SIDE FIGURE...: that side of these figures is there
has() {
    local kind=$1 side=$2 figure
    shift 2
    [ "$(jq -r .kind "$W/json")" = "$kind" ] || fail "no $kind: $(cat "$W/json")"
    for figure in "$@"; do
        jq -e ".figures.$figure.$side > 0" "$W/json" >"$W/null" || fail "$figure: no $side: $(cat "$W/json")"
    done
}

echo "== a store"
find "$W/store" -type f | sort >"$W/before"
bench "$W/store"
has store raw latency_p50 latency_p99 read_one read_many
has store granary latency_p50 latency_p99 read_many
jq -e '.figures.read_one.granary == null and .figures.latency_p99.raw >= .figures.latency_p50.raw' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
[[ $(jq -r .image "$W/json") = file://$W/store/img:v1 ]] || fail "$(cat "$W/json")"
find "$W/store" -type f | sort | cmp - "$W/before" || fail "something was written to the store"
"$GRANARY" bench --seconds 1 "$W/store" >"$W/text"
grep -qE '^read over 16 connections +[0-9.]+ [KMG]iB/s +[0-9.]+ [KMG]iB/s$' "$W/text" || fail "$(cat "$W/text")"
mkdir "$W/empty"
"$GRANARY" build -q "$W/empty" "$W/none/img" >"$W/built"
"$GRANARY" rm "$W/none/img:latest" >"$W/removed"
for tag in $("$GRANARY" images --all --json "$W/none" | jq -r '.images[].tag'); do "$GRANARY" rm "$W/none/img:$tag" >"$W/removed"; done
refused 1 "has no image to read; build one first: granary build SOURCE $W/none/NAME" "$GRANARY" bench "$W/none"
refused 1 "give a store, a directory on a cache disk, or a mount" "$GRANARY" bench "$W/nothing"
refused 1 ": File name too long; give a store, a directory on a cache disk, or a mount" "$GRANARY" bench "/$(printf 'l%.0s' {1..5000})"
refused 1 "is no directory; give a store" "$GRANARY" bench "$W/tree/1"
refused 2 "--seconds" "$GRANARY" bench --seconds 26 "$W/store"

echo "== a slow store and a silent one"
background python3 "$GRANARY_SOURCE/tests/servers/slow-store.py" "$W/store" 100 "$W/slow-port" "$W/slow-log"
wait_for 60 test -s "$W/slow-port"
bench "http://127.0.0.1:$(cat "$W/slow-port")/img:v1"
jq -e '.figures.latency_p50 | .raw >= 100000 and .granary >= 100000' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
refused 1 "v9" "$GRANARY" bench "http://127.0.0.1:$(cat "$W/slow-port")/img:v9"
refused 1 "/none/nothing is not a Granary store" "$GRANARY" bench "http://127.0.0.1:$(cat "$W/slow-port")/none/nothing"
: >"$W/slow-log"
status=0
"$GRANARY" bench --seconds 20 "http://127.0.0.1:$(cat "$W/slow-port")/img:v1" >"$W/out" 2>"$W/err" &
pid=$!
wait_for 60 grep -q packs/ "$W/slow-log"
kill -INT $pid
wait $pid || status=$?
[ $status = 130 ] && [ "$(cat "$W/err")" = "granary: bench: interrupted" ] || fail "exit $status: $(cat "$W/err")"
serve_silent "$W/store"
touch "$W/dead"
refused 1 "$STORE_URL" timeout 60 "$GRANARY" bench --timeout 2s "$STORE_URL/img:v1"

echo "== a cache disk"
room=$(df --output=avail -B1 "$W" | tail -n 1)
if [ "$room" -gt $((1 << 30)) ]; then
    bench "$W/disk"
    has dir raw write read read_4k read_64k write_4k write_64k
    has dir granary write read read_4k read_64k
    [ -z "$(ls -A "$W/disk")" ] || fail "something is left: $(ls -lA "$W/disk")"
    for signal in INT TERM; do
        status=0
        "$GRANARY" bench --seconds 20 "$W/disk" >"$W/out" 2>"$W/err" &
        pid=$!
        wait_for 60 test -e "$W/disk/.granary-bench/records"
        refused 1 "granary-bench is in use by" "$GRANARY" bench --seconds 1 "$W/disk"
        kill -$signal $pid
        wait $pid || status=$?
        [ $status = 130 ] || fail "SIG$signal: exit $status: $(cat "$W/err")"
        grep -qx 'granary: bench: interrupted' "$W/err" || fail "$(cat "$W/err")"
        [ -z "$(ls -A "$W/disk")" ] || fail "SIG$signal: something is left: $(ls -lA "$W/disk")"
    done
    echo "== killed: the next one removes what is left"
    "$GRANARY" bench --seconds 20 "$W/disk" >"$W/out" 2>"$W/err" &
    pid=$!
    wait_for 60 test -e "$W/disk/.granary-bench/records"
    kill -9 $pid
    wait $pid || true
    bench "$W/disk"
    [ -z "$(ls -A "$W/disk")" ] || fail "something is left: $(ls -lA "$W/disk")"
fi
chmod 777 "$W/disk"
refused 1 "$W/disk" "$GRANARY" bench --seconds 1 "$W/disk"
rm -rf "$W/disk/.granary-bench"
[ "$(id -u)" = 0 ] || skip "the rest needs root"
mkdir "$W/small"
mount -t tmpfs -o size=100M,mode=700 tmpfs "$W/small"
MOUNTS+=("$W/small")
refused 1 "$W/small has 100.0 MiB free, and the measurement needs 512.0 MiB: free space" "$GRANARY" bench "$W/small"

echo "== a mount"
[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here: no mount to measure"
extra_cleanup() { "$GRANARY" umount --force "$W/mnt" 2>/dev/null; }
"$GRANARY" mount --fuse --mkdir --memory 64M "$W/store/img:v1" "$W/mnt" >"$W/mounted"
bench "$W/mnt"
has mount granary first_files first_bytes again_files again_bytes first_fetched
has mount raw again_files again_bytes
jq -e --arg image "$W/store/img:v1" '.image == $image and .notes == []' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
jq -e '.figures.first_fetched.granary > 3000000' "$W/json" >"$W/null" || fail "what was read was not fetched: $(cat "$W/json")"
bench "$W/mnt"
jq -e '.figures.first_fetched.granary < 100000' "$W/json" >"$W/null" || fail "what is cached was fetched again: $(cat "$W/json")"
if command -v setpriv >/dev/null; then
    chmod 755 "$W"
    setpriv --reuid 65534 --clear-groups "$GRANARY" bench --seconds 1 --json "$W/mnt" >"$W/json"
    has mount granary first_files again_files
    jq -e '.image == null and .figures.again_files.raw == null and (.notes[0] | test("only root"))' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
fi
"$GRANARY" umount "$W/mnt"
