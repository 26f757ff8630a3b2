#!/bin/bash
# What no retry can cure, and only that, is an error of a read: a bit that is wrong in a pack fails one chunk, a pack
# that is missing its own chunks, and the log names it. Behind a store that is dead a read fails at timeout=, and what
# is cached is read meanwhile.
# ctest: long
. "$(dirname "$0")/lib-store-faults.sh"
CHUNK=131072 # a pack of 9 MB has fewer than 100 then, and as many lines of log may be written at once

make_store 20
head -c 9000000 /dev/urandom >"$W/tree/second" # a pack of its own
"$GRANARY" build -q --chunk-size $CHUNK "$W/tree" "$W/store/set" >"$W/built"
"$GRANARY" export -q "$W/store/set" "$W/image"
serve_store
pack=$(find "$W/store/packs" -type f -size +8M -printf '%s %p\n' | sort -n | awk 'NR == 1 { print $2 }') # the second build's
[ -n "$pack" ] || fail "there is no pack of 8 MB"
chunks=$((($(stat -c %s "$W/image") + CHUNK - 1) / CHUNK))

# turn BYTE: bit 0 of that byte of the pack
turn() {
    local value
    value=$(od -An -tu1 -j "$1" -N 1 "$pack")
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((value ^ 1)))" | dd of="$pack" bs=1 seek="$1" conv=notrunc status=none
}
# lines OBJECT: of the log that name it; what nobody asked for and is fetched all the same says so by itself
lines() { grep -v 'fetching in the background' "$W/log" | grep -c -- "$1" || true; }
read_whole() { "$PROBE" "$URI" whole $CHUNK "$W/image" >"$W/read" 2>"$W/read.err" || fail "wrong bytes: $(tail -1 "$W/read.err")"; }
failed() { cut -d ' ' -f 1 "$W/read"; }
say_lasting() { printf '| %s | %s of %s | %s | %s |\n' "$1" "$(failed)" "$chunks" "$(count fetch_refetches_total)" "$(lines "${pack##*/}")"; }

printf '| fault | failed reads of chunks | asked once more | lines that name the pack |\n| --- | --- | --- | --- |\n'
for bytes in "3000000" "1000000 3000000 5000000"; do
    for byte in $bytes; do turn "$byte"; done
    n=$(wc -w <<<"$bytes")
    start
    read_whole
    say_lasting "$n flipped in a pack"
    [ "$(failed)" = "$n" ] || fail "$(cat "$W/read"), of $n that are damaged: $(cat "$W/log")"
    [ "$(lines "${pack##*/}")" = "$n" ] || fail "not a line of log for each: $(wc -l <"$W/log") lines, $(cut -c 1-300 "$W/log" | sort | uniq -c | sort -rn | sed -n 1,20p)"
    for byte in $bytes; do turn "$byte"; done
    read_everything "the pack is mended"
    stop
done

echo "== somebody reads a bad chunk again and again"
turn 3000000
STORE=$W/store start
read_whole
bad=$(sed -n 's/^failed at //p' "$W/read.err")
before=$(grep -c . "$W/log") began=$SECONDS
"$PROBE" "$URI" again "$bad" 4096 5000 >"$W/again"
grep -qx '5000 of 5000 failed' "$W/again" || fail "$(cat "$W/again")"
written=$(($(grep -c . "$W/log") - before))
echo "5000 failed reads: $written lines of log"
most=$((100 + 2 * (SECONDS - began + 2))) # 100 at once, then one a second, and how many were passed over
[ "$written" -ge 1 ] && [ "$written" -le $most ] || fail "$written lines of log, of $most that there may be"
turn 3000000
stop

mv "$pack" "$W/pack"
start
read_whole
say_lasting "a pack is missing"
missing=$(failed)
[ "$missing" -gt 1 ] && [ "$missing" -lt "$chunks" ] || fail "$(cat "$W/read"), of one pack that is missing"
[ "$(lines "${pack##*/}.* is not there")" = "$missing" ] || fail "not a line of log for each: $(wc -l <"$W/log") lines, $(cut -c 1-300 "$W/log" | sort | uniq -c | sort -rn | sed -n 1,20p)"
mv "$W/pack" "$pack"
read_everything "the pack is back"
stop

echo "== a store that is dead"
start timeout=1s readahead=0
"$PROBE" "$URI" cache 0 4194304
head -c 4194304 "$W/image" >"$W/first"
line '{"mode": "refuse"}'
scanners=()
for i in 1 2 3 4; do
    "$PROBE" "$URI" scan 4194304 >"$W/scan-$i" 2>&1 &
    scanners+=($!)
done
tried() { [ "$(count fetch_errors_total)" -ge 4 ]; }
wait_for 120 tried
for _ in 1 2 3; do
    "$PROBE" "$URI" read 0 4194304 | cmp - "$W/first" || fail "what is cached cannot be read while the store is dead"
done
threads=$(sed -n 's/^Threads:\t//p' "/proc/$SERVER_PID/status")
for i in 1 2 3 4; do wait "${scanners[$((i - 1))]}" || fail "a scanner: $(cat "$W/scan-$i")"; done
reads=$((($(stat -c %s "$W/image") + 4194303) / 4194304))
for i in 1 2 3 4; do grep -qx "$((reads - 1)) of $reads failed" "$W/scan-$i" || fail "not one read of $reads that is cached: $(cat "$W/scan-$i")"; done
errors=$((4 * (reads - 1)))
echo "$errors reads failed after 1 s each, $(grep -c . "$W/log") lines of log, $threads threads"
[ "$(grep -c . "$W/log")" -le $((errors + 20)) ] || fail "more than a line for each: $(head -50 "$W/log")"
line '{"mode": "none"}'
answered() { "$PROBE" "$URI" read 12582912 4096 >"$W/null" 2>&1; }
wait_for 120 answered # a read that comes before the next try may have to wait for longer than 1 s
read_everything "the store is alive again"
stop
