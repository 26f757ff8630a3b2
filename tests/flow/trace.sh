#!/bin/bash
# granary trace record and granary warm --trace: what one job read is read on another node with the store away, in an
# image that was built anew too, and nothing else was fetched; a file that is no trace is one sentence.
# ctest: long
. "$(dirname "$0")/lib-warm.sh"

mkdir -p "$W/tree"
for i in $(seq 20); do head -c 1000000 /dev/urandom >"$W/tree/$i.bin"; done
publish "$W/tree" v1

# record FILE [ARG...]: in the background, RECORDER; it records when this returns
record() {
    local file=$1
    shift
    rm -f "$file"
    background "$GRANARY" trace record "$NBD" "$file" "$@" >"$W/record.out" 2>"$W/record.err"
    RECORDER=$BACKGROUND_PID
    wait_for 60 test -s "$file"
}
recorded() { wait "$RECORDER" || fail "trace record: exit $?: $(cat "$W/record.err")"; }
# numbers FILE: the chunks it lists
numbers() { od -An --endian=little -t u4 -w16 -j112 "$1" | awk '{ print $1 }'; }
chunk_of() { "$GRANARY" ls -l --json "$W/store/faces:v1" "$1" | jq ".extents[0].offset / $CHUNK | floor"; }
CHUNK=$("$GRANARY" inspect --json "$W/store/faces:v1" | jq .chunk_size)

echo "== what a job reads, in its order, to an interrupt"
serve v1
record "$W/job.trace" --json
for i in 14 3 9 3 14; do read_file $i.bin || fail "cannot read $i.bin: $(cat "$W/read.err")"; done
kill -INT "$RECORDER"
recorded
jq -e '.ended == "interrupt" and .dropped == 0 and .export == "faces"' "$W/record.out" >/dev/null || fail "$(cat "$W/record.out")"
[ "$(numbers "$W/job.trace" | wc -l)" = "$(jq .chunks "$W/record.out")" ] || fail "$(cat "$W/record.out") but $(numbers "$W/job.trace")"
[ "$(numbers "$W/job.trace" | sort | uniq -d | wc -l)" = 0 ] || fail "a chunk is listed twice"
order=$(numbers "$W/job.trace" | grep -nxE "$(chunk_of 14.bin)|$(chunk_of 3.bin)|$(chunk_of 9.bin)" | cut -d: -f2 | tr '\n' ' ')
[ "$order" = "$(chunk_of 14.bin) $(chunk_of 3.bin) $(chunk_of 9.bin) " ] || fail "the order is $order"

echo "== ends by itself, by time; and with the server"
record "$W/short.trace" --for 1s
recorded
grep -q '^faces: 0 chunks recorded' "$W/record.out" || fail "$(cat "$W/record.out")"
record "$W/cut.trace" --json
read_file 5.bin
wait_for 60 grep -q 'recording.* MiB' "$W/record.err" # eight chunks have come
stop
recorded
jq -e '.ended == "server" and .chunks > 6' "$W/record.out" >/dev/null || fail "$(cat "$W/record.out")"
serve v1
warm --trace "$W/cut.trace" >"$W/out"
grep -q ' 0 not in this image, ' "$W/out" || fail "$(cat "$W/out")"
stop

echo "== on another node: read with the store away, and nothing else"
serve v1
warm --trace "$W/job.trace" --dry-run --json >"$W/json"
jq -e '.traced_chunks > 20 and .absent_chunks == 0 and .cached_chunks == 0 and .needed_bytes == .bytes' "$W/json" >/dev/null || fail "$(cat "$W/json")"
[ "$(fetched)" = 0 ] || fail "a dry run fetched $(fetched) bytes"
warm --trace "$W/job.trace" --json >"$W/json"
jq -e '.cached_bytes == .bytes and .bytes < 6000000' "$W/json" >/dev/null || fail "$(cat "$W/json")"
[ "$(fetched)" -lt 7000000 ] || fail "three files of 3 MB took $(fetched) bytes"
are_cached 14.bin 3.bin 9.bin
is_not_cached 17.bin
stop

echo "== ahead of the reader: while the store holds everything back he comes to what is on its way, and asks for nothing himself"
counter() { "$GRANARY" status --quick --json "$NBD" | jq ".counters.granary_$1"; }
serve_store
echo 0 >"$W/limit"
serve v1 timeout=300s
warm --trace "$W/job.trace" --dry-run --json >"$W/json"
need=$(jq .needed_chunks "$W/json")
background "$GRANARY" warm "$NBD" --trace "$W/job.trace" >"$W/warm.out" 2>"$W/warm.err"
WARMING=$BACKGROUND_PID
all_begun() { [ "$(counter fetch_in_flight)" -ge "$need" ]; }
wait_for 60 all_begun
demanded=$(counter fetch_demand_chunks_total)
read_job() { for i in 14 3 9; do read_file $i.bin || return 1; done; }
background read_job
READER=$BACKGROUND_PID
joined() { [ "$(counter fetch_joins_total)" -gt 0 ]; }
wait_for 60 joined
rm "$W/limit"
wait "$READER" || fail "the reader: $(cat "$W/read.err")"
wait "$WARMING" || fail "warm: $(cat "$W/warm.err")"
[ "$(counter fetch_demand_chunks_total)" = "$demanded" ] || fail "the reader began $(($(counter fetch_demand_chunks_total) - demanded)) fetches himself"
[ "$(counter fetch_warm_chunks_total)" -lt $((need + 8)) ] || fail "$need chunks were needed, $(counter fetch_warm_chunks_total) fetched" # with the index
is_not_cached 17.bin
stop
unset STORE

echo "== by NBD"
serve v1
"$GRANARY" warm "$(uri)" --trace "$W/job.trace" --json >"$W/json"
jq -e '.cached_bytes == .bytes and .bytes < 6000000 and .failed_chunks == 0' "$W/json" >/dev/null || fail "$(cat "$W/json")"
are_cached 14.bin 3.bin 9.bin
is_not_cached 17.bin
stop

echo "== an image that was built anew has them elsewhere; what it has not is counted"
head -c $((24 * CHUNK)) /dev/urandom >"$W/tree/0.bin"
head -c 1000000 /dev/urandom >"$W/tree/9.bin"
publish "$W/tree" v2 --parent none
serve v2
refused 1 "the trace is of another image" "$GRANARY" warm "$(uri)" --trace "$W/job.trace"
warm --trace "$W/job.trace" --json >"$W/json"
jq -e '.absent_chunks > 0 and .absent_chunks < .traced_chunks / 2 and .cached_bytes == .bytes' "$W/json" >/dev/null || fail "$(cat "$W/json")"
are_cached 14.bin 3.bin
is_not_cached 9.bin
stop
publish "$W/tree" v3 --parent "$W/store/faces:v1" # these stay where they are
serve v3
warm --trace "$W/job.trace" --json >"$W/json"
jq -e '.absent_chunks > 0 and .absent_chunks < .traced_chunks / 2' "$W/json" >/dev/null || fail "$(cat "$W/json")"
are_cached 14.bin 3.bin
is_not_cached 9.bin

echo "== refusals"
head -c 100000 /dev/urandom >"$W/noise"
refused 1 "$W/noise: not a trace that can be used: it does not begin like one" warm --trace "$W/noise"
head -c -1 "$W/job.trace" >"$W/torn"
refused 1 "$W/torn: not a trace that can be used: it is cut short" warm --trace "$W/torn"
truncate -s 70M "$W/large"
refused 1 "$W/large is larger than" warm --trace "$W/large"
refused 1 "cannot open $W/none" warm --trace "$W/none"
refused 2 "give one of" warm --all --trace "$W/job.trace"
refused 1 "cannot create $W/no/dir" "$GRANARY" trace record "$NBD" "$W/no/dir"
refused 1 "no export 'nope'" "$GRANARY" trace record "$NBD" "$W/x.trace" --export nope
refused 2 "name a command; there are record" "$GRANARY" trace
mkdir "$W/tree2"
head -c 5000000 /dev/urandom >"$W/tree2/other"
publish "$W/tree2" v4
stop
serve v4
refused 1 "none of the chunks that $W/job.trace lists is in this image" warm --trace "$W/job.trace"
stop
