# shellcheck shell=bash
# Sourced by the tests of reads while a store fails: an image in a real web server (nginx), and between that and the
# server of the image a line that fails as told (tests/servers/faulty-proxy.py). Times are short in a normal run and as
# long as an operator would see them with GRANARY_FULL=1.
#
#   $W/store, $W/image    the store, and the bytes of its image `set`
#   STORE                 its address through the line

. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nginx nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install nginx-light libnbd-bin jq curl)"; done
unset http_proxy https_proxy AWS_CA_BUNDLE

export PROBE=$GRANARY_BUILD/tests/tools/nbdprobe
CHUNK=65536

# seconds FAST FULL: of how long a fault lasts
seconds() { if [ -n "${GRANARY_FULL:-}" ]; then echo "$2"; else echo "$1"; fi; }

# make_store MEGABYTES: an image of so much, half of which compresses
make_store() {
    mkdir "$W/tree"
    head -c $(($1 * 500000)) /dev/urandom >"$W/tree/noise"
    seq $(($1 * 70000)) >"$W/tree/text"
    "$GRANARY" build -q --chunk-size $CHUNK "$W/tree" "$W/store/set" >"$W/built"
    "$GRANARY" export -q "$W/store/set" "$W/image"
}

# serve_store [CERTIFICATE KEY]: the store by nginx, behind a line without faults
serve_store() {
    free_port
    UPSTREAM_PORT=$FREE_PORT
    serve_nginx "server { listen 127.0.0.1:$UPSTREAM_PORT; location / { root $W/store; } }"
    wait_for 60 answers "$UPSTREAM_PORT"
    free_port
    LINE_PORT=$FREE_PORT
    background "$GRANARY_SOURCE/tests/servers/faulty-proxy.py" "$LINE_PORT" "$UPSTREAM_PORT" "$W/line" "$@"
    wait_for 60 test -S "$W/line"
    STORE=http${1:+s}://127.0.0.1:$LINE_PORT
}

# begin_again: every process started so far is gone
begin_again() {
    end_background
    rm -rf "$W/line" "$W/sock" "$W/control" "$W/cache"
}

# line JSON: tell it; line_says KEY: of what it counts
line() { curl -sSf -o "$W/null" --unix-socket "$W/line" http://line/ -d "$1"; }
line_says() { curl -sSf --unix-socket "$W/line" http://line/ | jq -r ".$1"; }
line_is() { [ "$(line_says mode)" = "$1" ]; }

URI="nbd+unix:///set?socket=$W/sock"
# start [ARG...]: a server of the image with an empty cache; what it says goes to $W/log
start() {
    rm -rf "$W/sock" "$W/control" "$W/cache"
    serve_unix "$W/sock" "$STORE/set" control="$W/control" cache="$W/cache:128M" "$@" 2>"$W/log"
}
stop() { kill "$SERVER_PID" && wait "$SERVER_PID" || fail "the server ended with $?: $(tail -5 "$W/log")"; }
count() { counter_of "$W/control" "$1"; }

# Two readers of everything at once: nbdcopy with many requests in flight, and the probe with one at a time, which
# leaves its report in $W/read
read_everything() {
    "$PROBE" "$URI" whole $CHUNK "$W/image" >"$W/read" 2>"$W/read.err" &
    local one=$!
    nbdcopy "$URI" "$W/copy" 2>"$W/copy.err" || { cat "$W/copy.err" "$W/log"; fail "$1: nbdcopy met an error"; }
    wait $one || { cat "$W/read.err"; fail "$1: wrong bytes"; }
    cmp "$W/copy" "$W/image" || fail "$1: wrong bytes"
    grep -q '^0 of ' "$W/read" || { cat "$W/read.err" "$W/log"; fail "$1: $(cat "$W/read")"; }
}

# The table that docs/internals/faults.md shows
say_head() { printf '| fault | failed reads | longest read | requests | of them faulted | tried again | lines of log |\n| --- | --- | --- | --- | --- | --- | --- |\n'; }
# say_row NAME REQUESTS FAULTED: of what the probe and the server say; REQUESTS and FAULTED before the fault
say_row() {
    printf '| %s | %s | %s s | %s | %s | %s | %s |\n' "$1" "$(cut -d ' ' -f 1 "$W/read")" \
        "$(sed 's/.*slowest \(.*\) ms/\1/' "$W/read" | awk '{ printf "%.1f", $1 / 1000 }')" \
        $(($(line_says requests) - $2)) $(($(line_says faulted) - $3)) "$(count store_retries_total)" \
        "$(grep -c . "$W/log" || true)"
}

# survives NAME FAULT [ARG...]: a whole read with an empty cache, while the line has that fault, ends without an error
survives() {
    local name=$1 fault=$2 requests faulted
    shift 2
    start "$@"
    requests=$(line_says requests) faulted=$(line_says faulted)
    line "$fault"
    read_everything "$name"
    say_row "$name" "$requests" "$faulted"
    [ "$name" = none ] || [ $(($(line_says faulted) - faulted)) -gt 0 ] || [ "$(count store_retries_total)" -gt 0 ] || fail "$name: the fault was not met"
    [ "$(count fetch_errors_total)" = 0 ] || fail "$name: $(count fetch_errors_total) fetches failed"
    line '{"mode": "none"}'
    stop
}
