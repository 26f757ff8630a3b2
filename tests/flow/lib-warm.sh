# shellcheck shell=bash
# Sourced by the tests of what is fetched before it is read: tags of an image `faces`, a server of one of them with a
# fresh cache each time, and reads that are compared, with the store there or away.

. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq)"; done

# publish TREE TAG [ARG...]: faces:TAG in $W/store, its bytes in $W/image.TAG
publish() {
    "$GRANARY" build -q "$1" "$W/store/faces:$2" "${@:3}" >"$W/built"
    "$GRANARY" export -q "$W/store/faces:$2" "$W/image.$2"
}

STARTS=0
# serve TAG [ARG...]: of the store at $STORE, at the socket $NBD
serve() {
    TAG=$1
    STARTS=$((STARTS + 1))
    NBD=$W/nbd.$STARTS
    serve_unix "$NBD" "image=${STORE:-$W/store}/faces:$TAG" "cache=$W/cache.$STARTS:96M" readahead=0 control="$NBD.control" \
        "${@:2}" 2>"$W/server.$STARTS.err"
}
stop() { kill -TERM "$SERVER_PID" && wait "$SERVER_PID" || fail "server: exit $?"; }
uri() { echo "nbd+unix:///faces?socket=$NBD"; }
warm() { "$GRANARY" warm "$NBD" "$@"; }
fetched() { "$GRANARY" status --quick --json "$NBD" | jq .counters.granary_fetch_chunk_bytes_total; }

store_away() { mv "$W/store" "$W/store.away"; }
store_back() { mv "$W/store.away" "$W/store"; }
# read_at OFFSET LENGTH: these bytes of the export are those of the image
read_at() {
    "$GRANARY_BUILD/tests/tools/nbdprobe" "$(uri)" read "$1" "$2" 2>"$W/read.err" |
        cmp -s - <(tail -c "+$(($1 + 1))" "$W/image.$TAG" | head -c "$2")
}
# read_file PATH: its bytes, by its extents
read_file() {
    local off len n=0 store=$W/store
    [ -d "$store" ] || store=$W/store.away
    while read -r off len; do
        n=$((n + 1))
        read_at "$off" "$len" || return 1
    done < <("$GRANARY" ls -l --json "$store/faces:$TAG" "$1" | jq -r '.extents[] | "\(.offset) \(.length)"')
    [ $n -gt 0 ]
}
# are_cached PATH...: they are read with the store away
are_cached() {
    local file
    store_away
    for file; do read_file "$file" || fail "$file is not cached: $(cat "$W/read.err")"; done
    store_back
}
# is_not_cached PATH: nobody asked for it
is_not_cached() {
    store_away
    ! read_file "$1" || fail "$1 was not asked for, and is cached"
    store_back
}

# serve_store: by an HTTP server of ranges, at the address STORE; no get was counted yet. While there is a file
# $W/limit, that number of gets of packs are answered, the others wait, or are refused where there is a file $W/limit.refuse.
serve_store() {
    cat >"$W/server.py" <<'PY'
import os, sys, threading, time
import ranged
root, limit, said = sys.argv[1:]
lock, gets = threading.Lock(), 0
def allowed():
    global gets
    with lock:
        gets += 1
        mine = gets
    while True:
        try:
            if mine <= int(open(limit).read()):
                return True
        except OSError:
            return True
        if os.path.exists(limit + ".refuse"):
            return False
        time.sleep(0.05)
class Handler(ranged.Files):
    def ready(self):
        if "/packs/" not in self.path or allowed():
            return True
        self.empty(503)
        return False
ranged.serve(Handler, root, said)
PY
    rm -f "$W/port"
    PYTHONPATH=$GRANARY_SOURCE/tests/servers PYTHONDONTWRITEBYTECODE=1 background python3 "$W/server.py" "$W/store" "$W/limit" "$W/port" 2>>"$W/http.err"
    wait_for 60 test -s "$W/port"
    export STORE
    STORE=http://127.0.0.1:$(<"$W/port")
}
