#!/bin/bash
# Clients of granary serve ask for more than its threads can read while the store is silent: a read of what is cached
# and a new client are answered all the same, the threads do not grow with the clients, and when the clients are killed
# the server and its other clients go on. Clients that send nothing more, as those who closed a TCP connection seem to,
# are disconnected when the silence lasts, and have their answers when there is none. Reads of 32 MiB that wait for the
# store keep no read of what is cached waiting, large or small.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
head -c 60000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

serve_silent "$W/store"

# SOCKET OFFSET COUNT: COUNT clients ask for 64 KiB there and shut their sending direction; what each gets, or how
# many were disconnected
cat >"$W/leaving.py" <<'PY'
import socket, struct, sys
path, offset, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def take(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data
def ask():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(120)
    s.connect(path)
    take(s, 18)
    s.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 3) + b"one")
    take(s, 10)
    s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 7, offset, 65536))
    s.shutdown(socket.SHUT_WR)
    return s
ended = 0
for s in [ask() for _ in range(count)]:
    try:
        assert struct.unpack(">IIQ", take(s, 16)) == (0x67446698, 0, 7)
        sys.stdout.buffer.write(take(s, 65536))
    except EOFError:
        ended += 1
if ended:
    print(ended, "disconnected")
PY

uri="nbd+unix:///one?socket=$W/sock"
probe=$GRANARY_BUILD/tests/tools/nbdprobe
THREADS=32 # two of them are reserved, and one store gets two thirds of the others
background "$GRANARY" serve "$STORE_URL/one" --socket "$W/sock" --cache "$W/cache:64M" --warm none \
    --threads $THREADS --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
CHILD=$(pgrep -P "$SERVE")
"$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image"
reads() { metrics "$W/sock.control" | awk '$1 == "granary_image_reads_total" { print $2 }'; }
has_read() { [ "$(reads)" -ge "$1" ]; }
threads() { find "/proc/$CHILD/task" -mindepth 1 -maxdepth 1 | wc -l; }
"$probe" "$uri" again 0 65536 3 # its index is in memory
"$probe" "$uri" cache 0 8388608
before=$(reads)

touch "$W/dead"
large=()
for offset in 10000000 18000000 26000000; do # two of them hold all the memory that reads of one store may
    "$probe" "$uri" crowd 1 33554432 $offset 3600 & large+=($!)
done
connected() { [ "$(metrics "$W/sock.control" | awk '$1 == "granary_front_connections" { print $2 }')" = "$1" ]; }
wait_for 60 connected 3
wait_for 60 has_read $((before + 2))
timeout 60 "$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image" || fail "a read of what is cached waits for large ones"
timeout 60 "$probe" "$uri" read 0 8388608 | cmp -n 8388608 - "$W/image" || fail "a large read of what is cached waits for others"
for pid in "${large[@]}"; do
    kill -9 "$pid"
    wait "$pid" 2>"$W/null" || true
done
before=$(reads)
crowds=()
for _ in 1 2 3 4; do
    "$probe" "$uri" crowd 60 65536 9000000 3600 & crowds+=($!)
done
wait_for 60 has_read $((before + (THREADS - 2) * 2 / 3))
timeout 60 "$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image" || fail "a read of what is cached waits for the store"
[ "$(threads)" -le $((THREADS + 120)) ] || fail "$(threads) threads" # of the fetch and of others, too
for pid in "${crowds[@]}"; do
    kill -9 "$pid"
    wait "$pid" 2>"$W/null" || true
done
timeout 60 "$probe" "$uri" read 0 65536 | cmp -n 65536 - "$W/image" || fail "after the clients were killed"
python3 "$W/leaving.py" "$W/sock" 9000000 $THREADS >"$W/left"
grep -qx "$THREADS disconnected" "$W/left" || fail "not all who send nothing more were disconnected"
rm "$W/dead"
python3 "$W/leaving.py" "$W/sock" 9000000 1 | cmp - <(tail -c +9000001 "$W/image" | head -c 65536) ||
    fail "who sent nothing more has no answer"
"$probe" "$uri" compare "$W/image" >"$W/compared"
[ -e "/proc/$CHILD" ] || fail "the server has ended: $(cat "$W/serve.err")"
