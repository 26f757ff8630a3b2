#!/bin/bash
# granary leave says that a server can be stopped only when the others ask no more: with servers that only count.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

# A server's control socket. With each look at its status, it has sent other nodes STEP requests more.
cat >"$W/server.py" <<'PY'
import http.server, json, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    served = 500
    protocol_version = 'HTTP/1.1'

    def answer(self, body):
        text = (json.dumps(body) + '\n').encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        Handler.served += int(sys.argv[2])
        self.answer({'counters': {'granary_peer_served_total': Handler.served,
                                  'granary_peer_served_bytes_total': Handler.served * 1024}})

    def do_POST(self):
        self.answer({'leaving': True})

    def log_message(self, *args):
        pass

    def address_string(self):
        return 'unix'

socketserver.UnixStreamServer(sys.argv[1], Handler).serve_forever()
PY

# leave STEP STATUS OPTION...
leave() {
    local step=$1 expected=$2 status=0
    shift 2
    background python3 "$W/server.py" "$W/$step.control" "$step"
    wait_for 60 test -S "$W/$step.control"
    "$GRANARY" leave "$W/$step.control" "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = "$expected" ] || fail "exit $status, not $expected: $(cat "$W/out" "$W/err")"
    end_background
    rm "$W/$step.control"
}

leave 0 2 --wait 0
leave 0 0 --wait 1s
grep -q 'they ask no more: its server can be stopped now' "$W/out" || fail "$(cat "$W/out")"
leave 1 1 --wait 1s --json
jq -e '.quiet == false and .bytes > 1000' "$W/out" >"$W/null" || fail "$(cat "$W/out")"
grep -q 'after 1 s, .* the other nodes still ask; ' "$W/err" || fail "$(cat "$W/err")"
