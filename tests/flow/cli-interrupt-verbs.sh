#!/bin/bash
# Every verb that waits for a store or a server that says nothing ends soon after the first SIGINT or SIGTERM, with exit
# status 130 and one line that says so, and what it kept where it promises that; in the middle of its work too.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v python3 >"$W/null" || skip "no python3 here (apt-get install python3)"
unset http_proxy https_proxy AWS_PROFILE AWS_SESSION_TOKEN

# A server that takes connections, each a line in a file, and never answers: TCP (ADDRESS a port file) or unix.
cat >"$W/silent.py" <<'END'
import os, socket, sys
address, seen = sys.argv[1:]
if address.endswith(".sock"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
else:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with open(address + ".new", "w") as f:
        f.write(str(listener.getsockname()[1]))
    os.rename(address + ".new", address)
held = []
while True:
    held.append(listener.accept()[0])
    with open(seen, "a") as f:
        f.write("one\n")
END
seen=$W/seen
background python3 "$W/silent.py" "$W/port" "$seen"
background python3 "$W/silent.py" "$W/control.sock" "$seen"
wait_for 60 test -s "$W/port"
wait_for 60 listens "$W/control.sock"
AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$W/port")
export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=hidden
mkdir "$W/tree"
echo file >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"

# interrupted NAME WORDS...: by either signal, once the server has been asked
interrupted() {
    local name=$1 signal status kept
    shift
    case $name in
    build | join) kept=": what was stored is used by the next run" ;;
    copy) kept=": what was copied stays, and the next run sends the rest" ;;
    export) kept=": FILE was not written, and a file that was there is as it was; a stream is incomplete" ;;
    unnest) kept=": nothing is lost, and the next run goes on" ;;
    warm) kept=": what came is cached, and the next run goes on" ;;
    *) kept="" ;;
    esac
    echo "== $name $*"
    for signal in INT TERM; do
        : >"$seen"
        status=0
        # shellcheck disable=SC2086
        background env --default-signal=INT,TERM "$GRANARY" ${name//-/ } "$@" >"$W/out" 2>"$W/err"
        wait_for 60 test -s "$seen"
        kill -$signal "$BACKGROUND_PID"
        for _ in $(seq 100); do ! kill -0 "$BACKGROUND_PID" 2>"$W/null" || sleep 0.1; done # requests have 30 s
        ! kill -0 "$BACKGROUND_PID" 2>"$W/null" || fail "$name does not heed SIG$signal: $(cat "$W/err")"
        wait "$BACKGROUND_PID" || status=$?
        [ $status = 130 ] || fail "$name by SIG$signal: exit $status: $(cat "$W/err")"
        [ "$(cat "$W/err")" = "granary: ${name//-/ }: interrupted$kept" ] || fail "$name by SIG$signal says: $(cat "$W/err")"
    done
}

while read -r name words; do
    # shellcheck disable=SC2086
    interrupted "$name" $words
done <<END
images s3://lake/store
inspect s3://lake/store/one
ls s3://lake/store/one
diff $W/store/one s3://lake/store/one
verify s3://lake/store/one
export s3://lake/store/one $W/image
copy $W/store/one s3://lake/copy
copy s3://lake/store/one $W/copy
tag s3://lake/store/one two
rm s3://lake/store/one
gc s3://lake/store
unnest s3://lake/store
verify --against s3://lake/in $W/store/one
build --add more=s3://lake/in $W/tree $W/store/two
build $W/tree s3://lake/built/one
build s3://lake/in $W/store/two
join s3://lake/store/one s3://lake/store/two
warm --all $W/control.sock
status $W/control.sock
cache-ls --control $W/control.sock
cache-evict --all --control $W/control.sock
cache-pin --all --control $W/control.sock
END

# A store that gives all but its packs: the verbs that read those are in the middle of their work.
cat >"$W/no-packs.py" <<'END'
import http.server, os, sys, time
root, port, seen = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = root + self.path
        if "/packs/" in path:
            with open(seen, "a") as f:
                f.write("one\n")
            time.sleep(600)
        if not os.path.isfile(path):
            self.send_error(404)
            return
        data = open(path, "rb").read()
        whole, asked = len(data), self.headers.get("Range")
        if asked:
            first, last = asked.removeprefix("bytes=").split("-")
            data = data[int(first):int(last) + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(data)))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{whole}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
    do_HEAD = do_GET
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(port + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(port + ".new", port)
server.serve_forever()
END
background python3 "$W/no-packs.py" "$W/store" "$W/web" "$seen"
wait_for 60 test -s "$W/web"
half=http://127.0.0.1:$(cat "$W/web")/one
"$GRANARY" ls "$half" >"$W/out" || fail "a store of which only the packs are silent cannot be listed"
interrupted export "$half" "$W/image"
interrupted copy "$half" "$W/copy"
interrupted verify --deep "$half"
