#!/bin/bash
# Clients of granary serve ask for more than its threads can read while the store is silent: a read of what is cached and a
# new client are answered all the same, the threads do not grow with the clients, and when the clients are killed the
# server and its other clients go on.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
head -c 20000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

cat >"$W/server.py" <<'PY'
import os, sys, time
import ranged
root, port, dead = sys.argv[1:]
class Handler(ranged.Files):
    def ready(self):
        while os.path.exists(dead):
            time.sleep(0.1)
        return True
ranged.serve(Handler, root, port)
PY
export PYTHONPATH=$GRANARY_SOURCE/tests/servers PYTHONDONTWRITEBYTECODE=1
background python3 "$W/server.py" "$W/store" "$W/port" "$W/dead" 2>"$W/server.err"
wait_for 60 test -s "$W/port"

uri="nbd+unix:///one?socket=$W/sock"
probe=$GRANARY_BUILD/tests/tools/nbdprobe
THREADS=32 # two of them are reserved
background "$GRANARY" serve "http://127.0.0.1:$(cat "$W/port")/one" --socket "$W/sock" --cache "$W/cache:64M" --warm none \
    --threads $THREADS --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
CHILD=$(pgrep -P "$SERVE")
"$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image"
reads() { metrics "$W/sock.control" | awk '$1 == "granary_image_reads_total" { print $2 }'; }
has_read() { [ "$(reads)" -ge "$1" ]; }
threads() { find "/proc/$CHILD/task" -mindepth 1 -maxdepth 1 | wc -l; }
"$probe" "$uri" again 0 65536 3 # its index is in memory
before=$(reads)

touch "$W/dead"
crowds=()
for _ in 1 2 3 4; do
    "$probe" "$uri" crowd 60 65536 2000000 3600 & crowds+=($!)
done
wait_for 60 has_read $((before + THREADS - 2))
timeout 60 "$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image" || fail "a read of what is cached waits for the store"
[ "$(threads)" -le $((THREADS + 120)) ] || fail "$(threads) threads" # of the fetch and of others, too
for pid in "${crowds[@]}"; do
    kill -9 "$pid"
    wait "$pid" 2>"$W/null" || true
done
timeout 60 "$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image" || fail "after the clients were killed"
rm "$W/dead"
"$probe" "$uri" compare "$W/image" >"$W/compared"
[ -e "/proc/$CHILD" ] || fail "the server has ended: $(cat "$W/serve.err")"
