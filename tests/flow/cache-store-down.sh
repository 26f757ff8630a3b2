#!/bin/bash
# A server whose images are cached starts and serves while its store is gone: after SIGTERM and after kill -9, under
# nbdkit alone and under granary serve, and mounted; what is not cached waits and fails alone.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
for tool in nbdcopy jq curl nginx; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl nginx-light)"
done

probe=$GRANARY_BUILD/tests/tools/nbdprobe
mkdir "$W/tree"
for i in $(seq 300); do head -c $((i * 431)) /dev/urandom >"$W/tree/$i"; done
head -c 9000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
"$GRANARY" export -q "$W/store/faces" "$W/image"

uri="nbd+unix:///faces?socket=$W/sock"
count() { counter_of "$W/control" "$1"; }
# start WHAT [ARG...]: nbdkit, or granary serve when WHAT is serve, for faces of the store in $STORE
start() {
    local what=$1
    shift
    rm -f "$W/sock" "$W/control"
    if [ "$what" = serve ]; then
        background "$GRANARY" serve "$STORE/faces" --socket "$W/sock" --control "$W/control" --cache "$W/cache:64M" --warm none \
            --disk-timeout "$DISK_TIMEOUT" "$@" 2>"$W/err"
    else
        background nbdkit -f -t 64 --unix "$W/sock" "$PLUGIN" "$STORE/faces" control="$W/control" cache="$W/cache:64M" \
            timeout=5s disk-timeout="$DISK_TIMEOUT" "$@" 2>"$W/err"
    fi
    PID=$BACKGROUND_PID
    wait_for 120 listens "$W/sock" # with a store that does not answer it waits for that first
    wait_for 60 listens "$W/control"
}
end() { kill "-$1" "$PID" && wait "$PID" || true; }
# all_there: the whole device, without one request to the store
all_there() {
    nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes than the image"
    [ "$(count fetch_requests_total)" = 0 ] || fail "$(count fetch_requests_total) requests"
}
warned() { grep -q "cannot be asked for faces:latest .* serving sha256:$(sha256sum <"$1"/manifests/* | cut -c1-64)" "$W/err" || fail "no warning: $(cat "$W/err")"; }
# start_silent: nbdkit, which has asked the store. Of a machine that stood still for the 3 s that it is asked for,
# nothing is asked.
start_silent() {
    for _ in 1 2 3 4 5; do
        start nbdkit
        grep -q 'cannot be asked' "$W/err" || return 0
        end TERM
    done
    fail "a warning: $(cat "$W/err")"
}

echo "== everything is read once; the store goes; SIGTERM, kill -9"
STORE=$W/store
start nbdkit
nbdcopy "$uri" "$W/copy"
"$probe" "$uri" cache 0 0 # a fill of a read may be left out
end TERM
mv "$W/store" "$W/gone"
for signal in TERM KILL KILL; do
    start nbdkit
    warned "$W/gone"
    all_there
    end $signal
done
mkdir "$W/store" # as a mount point on which nothing is mounted
start nbdkit
warned "$W/gone"
all_there
end TERM
rmdir "$W/store"

echo "== granary serve: it falls back itself, and its server killed under it is started again without the store"
start serve
warned "$W/gone"
all_there
kill -9 "$(pgrep -P "$PID")"
wait_for 60 grep -q 'up again' "$W/err"
all_there
[ "$(grep -c 'cannot be asked' "$W/err")" = 1 ] || fail "asked again: $(cat "$W/err")"
end TERM

echo "== granary mount: with a cache of its own, as the image is resolved there"
if [ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ]; then
    mkdir "$W/dir"
    extra_cleanup() { "$GRANARY" umount --force "$W/dir" 2>/dev/null; }
    mv "$W/gone" "$W/store"
    "$GRANARY" mount --fuse --cache "$W/cache2:64M" --disk-timeout "$DISK_TIMEOUT" "$W/store/faces" "$W/dir"
    "$TREECMP" "$W/tree" "$W/dir"
    "$GRANARY" umount "$W/dir"
    mv "$W/store" "$W/gone"
    "$GRANARY" mount --fuse --cache "$W/cache2:64M" --disk-timeout "$DISK_TIMEOUT" "$W/store/faces" "$W/dir" 2>"$W/err"
    warned "$W/gone"
    "$TREECMP" "$W/tree" "$W/dir"
    "$GRANARY" umount "$W/dir"
else
    echo "no mounts here: not tested"
fi

echo "== the store is back: what it says counts"
mv "$W/gone" "$W/store"
start_silent
all_there
end TERM
echo more >"$W/tree/more"
"$GRANARY" build -q "$W/tree" "$W/store/faces" >"$W/built"
start_silent
"$GRANARY" export -q "$W/store/faces" "$W/image2"
nbdcopy "$uri" - | cmp - "$W/image2" || fail "not the newest image"
end TERM
mv "$W/store/images/faces/latest" "$W/latest"
! timeout 60 nbdkit -f --unix "$W/sock" "$PLUGIN" "$W/store/faces" cache="$W/cache:64M" 2>"$W/err" || fail "a removed tag was served"
grep -q 'there is no image faces:latest' "$W/err" || fail "$(cat "$W/err")"
mv "$W/latest" "$W/store/images/faces/latest"

echo "== HTTP: refused connections, and a server that never answers"
cat >"$W/silent.py" <<'PY'
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(100)
open(sys.argv[2], "w").close()
time.sleep(600)
PY
free_port
port=$FREE_PORT
http_server() {
    serve_nginx "server { listen 127.0.0.1:$port; location / { root $W/store; } }"
    wait_for 60 answers "$port"
}
http_server
STORE=http://127.0.0.1:$port
start nbdkit cache="$W/cache3:64M" # two directories
nbdcopy "$uri" "$W/copy"
cmp "$W/copy" "$W/image2"
"$probe" "$uri" cache 0 0
end TERM
kill "$NGINX_PID" && wait "$NGINX_PID" || true
mv "$W/image2" "$W/image"
start nbdkit cache="$W/cache3:64M"
grep -q 'cannot be asked' "$W/err" || fail "$(cat "$W/err")"
all_there
end TERM
background python3 "$W/silent.py" "$port" "$W/listens"
SILENT=$BACKGROUND_PID
wait_for 60 test -e "$W/listens"
start serve --cache "$W/cache3:64M"
grep -q 'cannot be asked' "$W/err" || fail "$(cat "$W/err")"
all_there
end TERM

echo "== what is not cached waits and fails; what is cached is served meanwhile; the end is within its bound"
kill "$SILENT" && wait "$SILENT" || true
http_server
rm -rf "$W/cache" "$W/cache3"
start nbdkit readahead=0
"$probe" "$uri" cache 0 131072
end TERM
kill "$NGINX_PID" && wait "$NGINX_PID" || true
start nbdkit readahead=0 timeout=600s
background "$probe" "$uri" scan 131072 >"$W/scan"
fetching() { [ "$(count fetch_in_flight)" -ge 1 ]; }
wait_for 60 fetching
head -c 131072 "$W/image" >"$W/first"
for _ in 1 2 3; do
    "$probe" "$uri" read 0 131072 | cmp - "$W/first" || fail "a cached read failed"
done
kill -9 "$PID" && wait "$PID" || true
start serve
"$probe" "$uri" read 0 131072 | cmp - "$W/first" || fail "a cached read failed under serve"
background "$probe" "$uri" read 1048576 4096 >"$W/null" 2>&1
wait_for 60 fetching
kill "$PID"
timeout 120 tail --pid="$PID" -f /dev/null || fail "granary serve does not end while a read waits for the store"
