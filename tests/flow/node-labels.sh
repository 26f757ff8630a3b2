#!/bin/bash
# granary-node-labels: what is cached becomes labels within seconds and stops being one, in a feature file and by an API
# server, which is a fake here: it refuses, is away, and gives another token. What a real one allows is in tests/kubernetes.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

LABELS=$GRANARY_BUILD/labels/granary-node-labels
export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT

serve() {
    background "$GRANARY" serve "$W/store/faces:v1" --socket "$W/nbd.sock" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>&1
    SERVE=$BACKGROUND_PID
    wait_for 60 listens "$W/nbd.sock.control"
}
# label ARG...: in the background; its log is $W/log.txt
label() {
    background "$LABELS" --interval 1s "$@" "$W/nbd.sock" >"$W/log.txt" 2>&1
    LABELLER=$BACKGROUND_PID
}
end() {
    kill "$LABELLER"
    local status=0
    wait "$LABELLER" || status=$?
    [ $status = 0 ] || fail "exit $status at the end: $(cat "$W/log.txt")"
}
warm() { "$GRANARY" warm --all "$W/nbd.sock" >"$W/warm.out" 2>&1 || fail "$(cat "$W/warm.out")"; }
evict() { "$GRANARY" cache evict -q faces '[12]' --control "$W/nbd.sock" >"$W/evict.out" 2>&1 || fail "$(cat "$W/evict.out")"; }
has() { grep -qFx -- "$1" "$W/features"; }
lacks() { ! grep -q -- "$1" "$W/features"; }

mkdir "$W/tree" "$W/pod"
for i in 1 2 3; do head -c 3000000 /dev/urandom >"$W/tree/$i"; done
"$GRANARY" build -q "$W/tree" "$W/store/faces:v1" >"$W/built"
digits=$(digest_of "$W/store/faces:v1" | sed "s/^sha256://" | cut -c1-12)
serve

echo "== a feature file follows the cache"
echo '{"kind": "dir", "figures": {"read": {"raw": 1, "granary": 600000000}}}' >"$W/disk.json"
echo nothing >"$W/link.json"
label --nfd "$W/features" --min-share 80 --measured "$W/disk.json" --measured "$W/link.json"
wait_for 60 test -s "$W/features"
lacks cached || fail "nothing was read yet: $(cat "$W/features")"
has granary.io/health=healthy && has granary.io/disk-mib-per-s=512 && lacks link-mib || fail "$(cat "$W/features")"
grep -q "link.json has no figures" "$W/log.txt" || fail "$(cat "$W/log.txt")"
[[ $(head -1 "$W/features") =~ ^#\ \+expiry-time=20..-..-..T..:..:..Z$ ]] || fail "$(head -1 "$W/features")"
warm
wait_for 60 has granary.io/cached.faces=100
has "granary.io/cached-digest.$digits=100" || fail "$(cat "$W/features")"
evict
wait_for 60 lacks cached

echo "== a server that is replaced keeps its labels, one that stays away does not answer for images"
warm
wait_for 60 has granary.io/cached.faces=100
kill "$SERVE"
wait "$SERVE" || true
wait_for 60 grep -q "no server answers" "$W/log.txt"
has granary.io/cached.faces=100 || fail "the labels went with the server at once"
serve
end
[ ! -e "$W/features" ] || fail "the file is left"

echo "== a node, by the API: labels, stale ones, the others' ones"
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$W/key" -out "$W/pod/ca.crt" -days 2 -subj /CN=api -addext subjectAltName=IP:127.0.0.1 2>"$W/null"
cat >"$W/api.py" <<'PY'
import http.server, json, os, ssl, sys
W = sys.argv[1]
n1 = {"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "granary.io/cached.gone": "100"}}}
class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, what):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        print(self.command, self.path, self.headers["Authorization"], self.headers["Content-Type"], body, file=log, flush=True)
        status = open(W + "/status").read().strip()
        if self.headers["Authorization"] != "Bearer " + open(W + "/right").read().strip(): status = "401"
        if status != "200": return self.answer(int(status), {"kind": "Status", "message": "because"})
        for key, value in (json.loads(body)["metadata"]["labels"] if body else {}).items():
            if value is None: n1["metadata"]["labels"].pop(key, None)
            else: n1["metadata"]["labels"][key] = value
        open(W + "/labels.new", "w").write("".join(f"{k}={v}\n" for k, v in n1["metadata"]["labels"].items()))
        os.rename(W + "/labels.new", W + "/features")
        self.answer(200, n1)
    do_PATCH = do_GET
    def log_message(self, *a): pass
log = open(W + "/requests", "a")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(W + "/pod/ca.crt", W + "/key")
server.socket = context.wrap_socket(server.socket, server_side=True)
open(W + "/port", "w").write(f"{server.server_port}\n")
server.serve_forever()
PY
echo secret-one >"$W/pod/token"
echo secret-one >"$W/right"
echo 200 >"$W/status"
background python3 "$W/api.py" "$W" 2>"$W/api.err"
wait_for 60 test -s "$W/port"
KUBERNETES_SERVICE_PORT=$(cat "$W/port")
label --node n1 --credentials "$W/pod"
wait_for 60 has granary.io/cached.faces=100
lacks cached.gone && has kubernetes.io/hostname=n1 || fail "$(cat "$W/features")"
grep -q '^PATCH /api/v1/nodes/n1 Bearer secret-one application/merge-patch+json {"metadata":{"labels":{.*"granary.io/cached.gone":null' "$W/requests" ||
    fail "$(cat "$W/requests")"
sleep 3
[ "$(wc -l <"$W/requests")" = 2 ] || fail "it writes what has not changed: $(cat "$W/requests")"

echo "== what is refused is a sentence without the token, and tried again"
tries() { # tries STATUS SENTENCE
    echo "$1" >"$W/status"
    evict
    wait_for 60 grep -q -- "$2" "$W/log.txt"
    echo 200 >"$W/status"
    wait_for 60 lacks cached
    warm
    wait_for 60 has granary.io/cached.faces=100
}
tries 403 'n1: HTTP status 403: because; the service account needs'
tries 409 'n1: HTTP status 409: because'
echo secret-two >"$W/right"
evict
wait_for 60 grep -q 'HTTP status 401: because; the pod.s token is not valid' "$W/log.txt"
echo secret-two >"$W/pod/token"
wait_for 60 lacks cached
! grep -h secret "$W/log.txt" "/proc/$LABELLER/cmdline" || fail "the token is in the log or the command line"

echo "== at the end no label is left, and the others are"
end
[ "$(cat "$W/features")" = kubernetes.io/hostname=n1 ] || fail "left: $(cat "$W/features")"

echo "== a node that is not there, another's certificate, no pod"
says() { # says SENTENCE ARG...
    label "${@:2}"
    wait_for 60 grep -q -- "$1" "$W/log.txt"
    kill "$LABELLER"
    wait "$LABELLER" || true
}
echo 404 >"$W/status"
says 'node n2: HTTP status 404: because; --node is' --node n2 --credentials "$W/pod"
mkdir "$W/other"
cp "$W/pod/token" "$W/other"
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$W/other/key" -out "$W/other/ca.crt" -days 2 -subj /CN=api 2>"$W/null"
before=$(wc -l <"$W/requests")
says 'the API server: .*certificate' --node n1 --credentials "$W/other"
[ "$(wc -l <"$W/requests")" = "$before" ] || fail "the token went to a server that is not known"
KUBERNETES_SERVICE_HOST='' says 'this is no pod' --node n1 --credentials "$W/pod"

echo "== an answer that is no status labels nothing"
background python3 -c '
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    client = listener.accept()[0]
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
    client.close()
' "$W/odd.control"
wait_for 60 listens "$W/odd.control"
background "$LABELS" --interval 1s --nfd "$W/odd.features" "$W/odd" >"$W/log.txt" 2>&1
LABELLER=$BACKGROUND_PID
wait_for 60 grep -q "odd.control did not answer with its status" "$W/log.txt"
end
[ ! -s "$W/odd.features" ] || fail "$(cat "$W/odd.features")"

echo "== wrong usage"
for arguments in "" "--node n1 --nfd f s" "s" "--nfd f --min-share 0 s" "--nfd f --max-images 101 s" "--nfd f --interval 0s s" "--nfd f s t"; do
    status=0
    read -ra words <<<"$arguments"
    "$LABELS" "${words[@]}" 2>"$W/err" || status=$?
    [ $status = 2 ] && [ -s "$W/err" ] || fail "'$arguments': exit $status: $(cat "$W/err")"
done
[[ $("$LABELS" --help) = "usage: granary-node-labels "* ]] || fail "--help"
