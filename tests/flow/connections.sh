#!/bin/bash
# connections= holds for all requests together: reads, readahead, warming, the catalog for the control socket, shared
# proxies. The server counts how many it has at a time.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdcopy jq curl python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl python3)"
done
unset http_proxy https_proxy

mkdir "$W/tree"
head -c 16000000 /dev/urandom >"$W/tree/large"
for i in $(seq 2000); do echo "file $i" >"$W/tree/$i"; done
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

# Ranges of the store's files below /store and /proxy, each request 20 ms long; /peak: how many there were at once.
cat >"$W/server.py" <<'PY'
import http.server, os, sys, threading, time
root, port = sys.argv[1:]
lock, inside, peak, seen = threading.Lock(), 0, 0, {"store": 0, "proxy": 0}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global inside, peak
        what, _, key = self.path[1:].partition("/")
        if what == "peak":
            return self.answer(200, b'{"peak": %d, "store": %d, "proxy": %d}' % (peak, seen["store"], seen["proxy"]))
        with lock:
            seen[what] += 1
            inside += 1
            peak = max(peak, inside)
        time.sleep(0.02)
        with lock:
            inside -= 1
        try:
            data = open(os.path.join(root, key), "rb").read()
        except OSError:
            return self.answer(404, b"")
        asked = self.headers.get("Range")
        if not asked:
            return self.answer(200, data)
        first, last = asked.split("=")[1].split("-")
        first, last = int(first), min(int(last), len(data) - 1)
        self.answer(206, data[first:last + 1], f"bytes {first}-{last}/{len(data)}")
    do_HEAD = do_GET
    def answer(self, status, body, what=None):
        self.send_response(status)
        if what:
            self.send_header("Content-Range", what)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
    def log_message(self, *a):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
with open(port + ".new", "w") as f:
    f.write(str(server.server_port))
os.rename(port + ".new", port)
server.serve_forever()
PY
background python3 "$W/server.py" "$W/store" "$W/port"
wait_for 60 test -s "$W/port"
url=http://127.0.0.1:$(cat "$W/port")

background nbdkit -f -t 64 --unix "$W/sock" "$PLUGIN" "$url/store/one" "l2=$url/proxy" connections=3 cache="$W/cache:64M" \
    control="$W/sock.control" disk-timeout="$DISK_TIMEOUT"
wait_for 60 listens "$W/sock"
work=()
"$GRANARY" warm -q "$W/sock" --path '1*' >"$W/warm1" & work+=($!)
"$GRANARY" warm -q "$W/sock" --all >"$W/warm2" & work+=($!)
"$GRANARY" cache ls --control "$W/sock.control" one '*7*' >"$W/ls" & work+=($!)
nbdcopy --request-size=65536 "nbd+unix:///one?socket=$W/sock" "$W/copy" & work+=($!)
for pid in "${work[@]}"; do wait "$pid" || fail "one of them failed: $(cat "$W/warm1" "$W/warm2" "$W/ls")"; done
cmp "$W/copy" "$W/image"
curl -sSf --noproxy '*' "$url/peak" >"$W/peak"
jq -e '.store >= 5 and .proxy >= 5 and .peak >= 2' "$W/peak" >"$W/null" || fail "the test proves nothing: $(cat "$W/peak")"
jq -e '.peak <= 3' "$W/peak" >"$W/null" || fail "more than 3 at a time: $(cat "$W/peak")"
