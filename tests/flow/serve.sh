#!/bin/bash
# granary serve: a killed server is started again behind the same socket, a killed supervisor takes it along, an
# orderly end removes the sockets, a restart serves the digest it began with, what served is tried until it serves
# again, and what cannot work gives up with the server's own words.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir -p "$W/tree" "$W/tree2"
head -c 400000 /dev/urandom >"$W/tree/file"
head -c 500000 /dev/urandom >"$W/tree2/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/tree2" "$W/store/two" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"
uri="nbd+unix:///one?socket=$W/nbd.sock"

serve() {
    background "$GRANARY" serve "$@" >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
    CHILD=$(pgrep -P "$SERVE")
}

serve "$W/store/one" "$W/store/two" --socket "$W/nbd.sock" --cache "$W/cache:64M" --warm none --disk-timeout "$DISK_TIMEOUT"
nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes than the export"
[ "$(stat -c %a "$W/nbd.sock")" = 600 ] || fail "the socket is open to others"
"$GRANARY" status "$W/nbd.sock" --json | jq -e '.exports | map(.name) == ["one", "two"]' >"$W/null" || fail "status"
"$GRANARY" status "$W/nbd.sock.control" | grep '^hits [0-9]*, misses [1-9]' >"$W/null" || fail "status shows no misses"

echo "== status: health, and what is cached of each"
all_of_one() { "$GRANARY" status "$W/nbd.sock" | grep -A2 '^  one ' | grep '^    cached .*(100.0 %), metadata cached, index cached' >"$W/null"; }
wait_for 60 all_of_one # the fills come after the reads
"$GRANARY" status "$W/nbd.sock" >"$W/status"
grep -q '^granary .*, healthy, since 20' "$W/status" || fail "health: $(cat "$W/status")"
grep -A2 '^  two ' "$W/status" | grep 'cached 0 B of 0 B.*the index of [1-9][0-9]* of [1-9][0-9]* chunks is not cached' >"$W/null" || fail "two: $(cat "$W/status")"
"$GRANARY" status "$W/nbd.sock" --json | jq -e '.health == "healthy" and (.exports[0] | .cached.cached_bytes == .cached.bytes
    and .cached.unknown_chunks == 0 and .reads > 0 and .store_bytes > 0) and .exports[1].cached.unknown_chunks > 0' >"$W/null" ||
    fail "$("$GRANARY" status "$W/nbd.sock" --json)"
"$GRANARY" status "$W/nbd.sock" --json --quick | jq -e '.uptime_ms > 0 and has("rates") and
    (.exports | all(has("cached") == false and has("rates")))' >"$W/null" || fail "--quick looked"

echo "== top: the rates of what is read now"
[ "$("$GRANARY" top "$W/nbd.sock" -n 2 --interval 1 | awk '$NF == "one" && $1 == 0' | wc -l)" = 2 ] || fail "reads of nobody"
background bash -c "while nbdcopy '$uri' null:; do :; done"
READER=$BACKGROUND_PID
reads_shown() { "$GRANARY" top "$W/nbd.sock" --once --interval 1 | awk '$NF == "one" && $1 > 0 { one = 1 } $NF == "all" && $1 > 0 { all = 1 } END { exit !(one && all) }'; }
wait_for 60 reads_shown
status_rates() {
    "$GRANARY" status "$W/nbd.sock" --json | jq -e '.exports as [$one, $two] | .rates == $one.rates and $one.rates.reads > 0
        and $one.rates.read_bytes > $one.rates.reads and $two.rates.reads == 0'
}
wait_for 60 status_rates >"$W/null"
shown_rates() { "$GRANARY" status "$W/nbd.sock" | grep '^    now [1-9][0-9.]* reads/s, [1-9].*/s from disk$' >"$W/null"; }
wait_for 60 shown_rates
kill "$READER"
! "$GRANARY" top "$W/nbd.sock" --once --count 2 2>"$W/err" || fail "--once and --count"

echo "== a signal ends the pause between two tables"
background "$GRANARY" top "$W/nbd.sock" --interval 3600
TOP=$BACKGROUND_PID
# the shell that is to become it may catch the signal, too
catches_sigterm() { [ "/proc/$TOP/exe" -ef "$GRANARY" ] && [ $((0x$(awk '/^SigCgt:/ { print $2 }' "/proc/$TOP/status") & 0x4000)) != 0 ]; }
wait_for 60 catches_sigterm
kill "$TOP"
wait_for 60 gone "$TOP"
wait "$TOP" || fail "top: exit $?"

echo "== top shows as many exports as the terminal has room for"
# on_terminal ROWS [COLUMNS]: the lines of a table on a terminal of that size
on_terminal() { script -qec "stty rows $1 cols ${2:-100}; '$GRANARY' top '$W/nbd.sock' --once --interval 1" "$W/typescript" >"$W/null" </dev/null; grep -ac ' [0-9].* B  ' "$W/typescript"; }
[ "$(on_terminal 8)" = 3 ] || fail "a terminal with room for all: $(cat -v "$W/typescript")"
[ "$(on_terminal 7)" = 1 ] && grep -qa '^2 that are read less are not shown' "$W/typescript" || fail "seven rows: $(cat -v "$W/typescript")"

echo "== top's title and latency; on a narrow terminal lines are cut, and every export keeps its name"
"$GRANARY" top "$W/nbd.sock" --once --interval 1 >"$W/top"
[ "$(head -n 1 "$W/top")" = "granary top: every 1 s, $W/nbd.sock" ] || fail "the title: $(cat "$W/top")"
[ "$(sed -n 2p "$W/top")" = "healthy, reads take up to p50 -, p99 -" ] || fail "the latency of nothing: $(cat "$W/top")"
sed -n 4p "$W/top" | grep -x ' *reads/s *read/s *hits *memory/s *disk/s *proxies/s *store/s *export' >"$W/null" || fail "the head: $(cat "$W/top")"
background bash -c "while nbdcopy '$uri' null:; do :; done"
READER=$BACKGROUND_PID
latency_shown() {
    "$GRANARY" top "$W/nbd.sock" --once --interval 1 >"$W/top" &&
        grep -qE '^healthy, reads take up to p50 [0-9.]+ (us|ms|s), p99 ([0-9.]+ (us|ms|s)|more than a minute)$' "$W/top" &&
        awk '$NF == "one" && $4 == "100%" { one = 1 } $NF == "two" && $4 == "-" { two = 1 } END { exit !(one && two) }' "$W/top"
}
wait_for 60 latency_shown
kill "$READER"
# lines_on COLUMNS: the table on a terminal that has these columns, without its commands to the terminal
lines_on() {
    on_terminal 24 "$1" >"$W/null"
    tr -d '\r' <"$W/typescript" | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | grep -av '^Script ' | grep -a . >"$W/top"
    [ "$(awk -v most="$1" 'length > most' "$W/top" | wc -l)" = 0 ] || fail "a line wraps at $1 columns: $(cat "$W/top")"
}
lines_on 60
grep -qa '  one$' "$W/top" && grep -qa 'disk/s    store/s  export$' "$W/top" || fail "60 columns: $(cat "$W/top")"
lines_on 30
[ "$(wc -l <"$W/top")" = 7 ] && grep -qax 'hit ratio [0-9.]* %, [0-9]* GETs i[n fl]*' "$W/top" || fail "30 columns: $(cat "$W/top")"

echo "== the server is killed: started again; a tag moved meanwhile changes nothing"
"$GRANARY" build -q "$W/tree2" "$W/store/one" >"$W/built"
kill -9 "$CHILD"
nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes after the restart"
wait_for 60 grep -q 'up again' "$W/serve.err"
grep -q 'killed by signal 9; starting it again in 100 ms' "$W/serve.err" || fail "the first pause: $(cat "$W/serve.err")"
[ "$(pgrep -P "$SERVE")" != "$CHILD" ] || fail "the same process"

echo "== killed again and again, soon after each start: whatever served is never given up"
for _ in 1 2 3 4 5; do
    CHILD=$(pgrep -P "$SERVE")
    kill -9 "$CHILD"
    wait_for 60 gone "$CHILD"
    wait_for 60 "$GRANARY" status "$W/nbd.sock" >"$W/null"
done
nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes after six restarts"

echo "== the same socket twice is refused"
! "$GRANARY" serve "$W/store/one" --socket "$W/nbd.sock" 2>"$W/err" || fail "two servers on one socket"
grep -qE 'another server' "$W/err" || fail "$(cat "$W/err")"

echo "== an orderly end"
CHILD=$(pgrep -P "$SERVE")
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
gone "$CHILD" || fail "its server is left"
[ ! -e "$W/nbd.sock" ] && [ ! -e "$W/nbd.sock.control" ] || fail "sockets are left"

echo "== the supervisor is killed under a connected client: the server goes too, and the next one can start"
serve "$W/store/two" --socket "$W/nbd.sock" --cache "$W/cache:64M"
background python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
assert s.recv(18, socket.MSG_WAITALL)[:8] == b"NBDMAGIC"
open(sys.argv[2], "w").close()
time.sleep(600)' "$W/nbd.sock" "$W/connected"
wait_for 60 test -e "$W/connected"
kill -9 "$SERVE"
wait_for 60 gone "$CHILD"
serve "$W/store/two" --socket "$W/nbd.sock" --cache "$W/cache:64M"

echo "== the metadata is cached and pinned by itself; the pins end with the server"
shown() { "$GRANARY" status "$W/nbd.sock" | grep "^    cached .*, metadata $1, index" >"$W/null"; }
wait_for 60 shown 'cached and pinned'
kill -INT "$SERVE"
wait "$SERVE" || fail "SIGINT: exit $?"
serve "$W/store/two" --socket "$W/nbd.sock" --cache "$W/cache:64M" --warm none
shown cached || fail "$("$GRANARY" status "$W/nbd.sock")"
kill -INT "$SERVE"
wait "$SERVE" || fail "SIGINT: exit $?"

echo "== a log of the user's is never cut short"
head -c 1100000 /dev/zero >"$W/log"
background "$GRANARY" serve "$W/store/two" --socket "$W/nbd.sock" >"$W/serve.out" 2>>"$W/log"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
CHILD=$(pgrep -P "$SERVE")
kill -9 "$CHILD"
wait_for 60 bash -c "tail -c 1000 $W/log | grep -a 'up again' >$W/null"
! nbdinfo "nbd+unix:///nobody?socket=$W/nbd.sock" >"$W/null" 2>&1 || fail "an export that is not there"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"
tail -c 1000 "$W/log" | grep -a "no export 'nobody'" >"$W/null" || fail "the server's words are not in the log"
[ "$(stat -c %s "$W/log")" -gt 1100000 ] || fail "the log was cut short"

echo "== TCP, a free port"
serve "$W/store/two" --listen 127.0.0.1:0 --control "$W/c.sock"
port=$(sed -n 's|^serving .* at nbd://127.0.0.1:\([0-9]*\)/two$|\1|p' "$W/serve.out")
[ "$(nbdinfo --size "nbd://127.0.0.1:$port/two")" -gt 500000 ] || fail "TCP: $(cat "$W/serve.out")"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

echo "== readiness for systemd"
cat >"$W/notified.py" <<'PY'
import os, socket, subprocess, sys
path = sys.argv[1] + "/notify"
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(path)
s.settimeout(60)
p = subprocess.Popen(sys.argv[2:], env=dict(os.environ, NOTIFY_SOCKET=path), stdout=subprocess.DEVNULL)
ready = s.recv(100)
p.terminate()
stopping = s.recv(100)
sys.exit(0 if (ready, stopping, p.wait()) == (b"READY=1", b"STOPPING=1", 0) else f"{ready} {stopping} {p.returncode}")
PY
python3 "$W/notified.py" "$W" "$GRANARY" serve "$W/store/two" --socket "$W/nbd.sock" || fail "no READY=1"

echo "== what served once is started again however often that fails, and when its program is gone"
mkdir "$W/bin"
ln -s "$NBD" "$W/bin/nbd"
background env GRANARY_NBD="$W/bin/nbd" "$GRANARY" serve "$W/store/two" --socket "$W/nbd.sock" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
# said WORDS TIMES
said() { [ "$(grep -c "$1" "$W/serve.err")" -ge "$2" ]; }
ln -sf /bin/false "$W/bin/nbd"
kill -9 "$(pgrep -P "$SERVE")"
wait_for 60 said 'granary-nbd ended with exit code.*; starting it again in' 5
rm "$W/bin/nbd"
wait_for 60 said 'bin/nbd is not installed.*; starting it again in' 1
ln -s "$NBD" "$W/bin/nbd"
wait_for 60 said 'up again' 1
[ "$(nbdinfo --size "nbd+unix:///two?socket=$W/nbd.sock")" -gt 500000 ] || fail "not served again"
kill -TERM "$SERVE"
wait "$SERVE" || fail "SIGTERM: exit $?"

echo "== what cannot work gives up, with the server's last words"
status=0
timeout 60 "$GRANARY" serve "$W/store/two" --socket "$W/nbd.sock" --cache /proc/none:1G 2>"$W/err" || status=$?
[ $status = 1 ] || fail "exit $status"
grep -q ' error granary: serve: granary-nbd does not start: .*/proc/none' "$W/err" || { cat "$W/err"; fail "no last words"; }
[ "$(wc -l <"$W/err")" = 1 ] || fail "said more than once: $(cat "$W/err")"
! grep -q 'starting it again' "$W/err" || fail "tried again with what cannot work: $(cat "$W/err")"
[ ! -e "$W/nbd.sock" ] || fail "the socket is left"
GRANARY_NBD=$W/none timeout 60 "$GRANARY" serve "$W/store/two" --socket "$W/nbd.sock" 2>"$W/err" && fail "no program, no failure"
grep -q "$W/none is not installed" "$W/err" || { cat "$W/err"; fail "the missing program is not named"; }
