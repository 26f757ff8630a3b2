#!/bin/bash
# Clients vanish while their reads wait for a store that answers nobody: the server's threads that waited for them end
# at once and not when the store is back, it lives through that, and who else reads the same bytes has them then.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
head -c 20000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

serve_silent "$W/store"

uri="nbd+unix:///one?socket=$W/sock"
probe=$GRANARY_BUILD/tests/tools/nbdprobe
serve_unix "$W/sock" "$STORE_URL/one" "cache=$W/cache:64M" "control=$W/sock.control"
"$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image"
reads() { metrics "$W/sock.control" | awk '$1 == "granary_image_reads_total" { print $2 }'; }
has_read() { [ "$(reads)" -ge "$1" ]; }
threads() { find "/proc/$SERVER_PID/task" -mindepth 1 -maxdepth 1 | wc -l; }
fewer_threads() { [ "$(threads)" -lt "$1" ]; }
all_read=$(reads)
before=$(threads) # with or without those of the first reader's connection, 65

touch "$W/dead"
"$probe" "$uri" read 1000000 65536 >"$W/other" &
other=$!
wait_for 60 has_read $((all_read + 1))
for i in 1 2 3 4; do
    all_read=$(reads)
    "$probe" "$uri" crowd 60 65536 1000000 3600 &
    crowd=$!
    wait_for 60 has_read $((all_read + 60))
    kill -9 $crowd
    wait $crowd 2>"$W/null" || true
done
wait_for 60 fewer_threads $((before + 150)) # 65 are of the other reader's connection; four crowds would be 240
rm "$W/dead"
wait $other || fail "the other's read has failed"
cmp "$W/other" <(tail -c +1000001 "$W/image" | head -c 65536) || fail "the other has read other bytes"
kill -0 "$SERVER_PID" || fail "nbdkit has ended"
"$probe" "$uri" compare "$W/image"
