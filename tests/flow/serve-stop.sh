#!/bin/bash
# granary serve is told to end, and so is its server alone: a client that reads all the while gets an answer or the end
# of its connection, never an error, which a mount would hand on to its readers. What was cached is there for the next
# server, which asks the store for nothing.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"
uri="nbd+unix:///one?socket=$W/nbd.sock"

serve() {
    : >"$W/serve.out"
    background "$GRANARY" serve "$W/store/one" --socket "$W/nbd.sock" --cache "$W/cache:64M" --warm none \
        --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
    CHILD=$(pgrep -P "$SERVE")
}

# reader.py SOCKET: reads the first 64 KiB until its connection ends, and prints the errors it was answered with
cat >"$W/reader.py" <<'PY'
import socket, struct, sys
def receive(n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
receive(18)
s.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
receive(10)
reads = 0
try:
    while True:
        s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, reads, 0, 65536))
        magic, error, handle = struct.unpack(">IIQ", receive(16))
        if error:
            sys.exit(f"read {reads} was answered with error {error}")
        receive(65536)
        reads += 1
        if reads == 10:
            open(sys.argv[2], "w").close()
except (ConnectionResetError, BrokenPipeError):
    print("the connection ended")
PY
read_on() {
    rm -f "$W/reading"
    background python3 "$W/reader.py" "$W/nbd.sock" "$W/reading" >"$W/reader.out" 2>"$W/reader.err"
    READER=$BACKGROUND_PID
    wait_for 60 test -e "$W/reading"
}
read_no_error() { wait "$READER" && grep -q 'connection ended' "$W/reader.out" || fail "$1: $(cat "$W/reader.out" "$W/reader.err")"; }

serve
nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes than the export"
all_cached() { "$GRANARY" status "$W/nbd.sock" | grep '(100.0 %).* index cached' >"$W/null"; }
wait_for 60 all_cached

echo "== SIGTERM to the server, which is not its father's to send: it is started again"
read_on
kill -TERM "$CHILD"
read_no_error "the server told to end"
wait_for 60 grep -q 'up again' "$W/serve.err"
grep -q 'was killed by signal 15' "$W/serve.err" || fail "$(cat "$W/serve.err")"
CHILD=$(pgrep -P "$SERVE")

echo "== the terminal's ^C does not reach the server"
[ "$(ps -o sid= -p "$CHILD")" != "$(ps -o sid= -p "$SERVE")" ] || fail "one session"

for signal in TERM INT; do
    echo "== SIG$signal to the supervisor"
    read_on
    kill -$signal "$SERVE"
    read_no_error "the supervisor told to end by SIG$signal"
    wait "$SERVE" || fail "SIG$signal: exit $?"
    [ ! -e "/proc/$CHILD" ] || fail "the server is left"
    [ ! -e "$W/nbd.sock" ] && [ ! -e "$W/nbd.sock.control" ] || fail "sockets are left"

    echo "== the next one has all in its cache"
    serve
    nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes after the restart"
    "$GRANARY" status "$W/nbd.sock" --quick --json >"$W/status"
    jq -e '.counters | .granary_fetch_requests_total == 0 and .granary_cache_crc_errors_total == 0' "$W/status" >"$W/null" ||
        fail "it was not all there: $(jq -c .counters "$W/status")"
done

echo "== a server that hangs is killed in the end"
kill -STOP "$CHILD"
kill -TERM "$SERVE"
wait "$SERVE" || fail "frozen: exit $?"
[ ! -e "/proc/$CHILD" ] || fail "the server is left"
