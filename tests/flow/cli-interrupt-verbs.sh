#!/bin/bash
# Every verb that waits for a store or a server that says nothing ends by SIGINT and by SIGTERM with exit status 130 and
# one line that says so; where it waits for an answer before it heeds the first signal, by the second.
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

while read -r name words; do
    echo "== $name"
    for signal in INT TERM; do
        : >"$seen"
        status=0
        # shellcheck disable=SC2086
        background env --default-signal=INT,TERM "$GRANARY" ${name//-/ } $words >"$W/out" 2>"$W/err"
        wait_for 60 test -s "$seen"
        kill -$signal "$BACKGROUND_PID"
        for _ in 1 2 3 4 5; do ! kill -0 "$BACKGROUND_PID" 2>"$W/null" || sleep 0.1; done
        kill -$signal "$BACKGROUND_PID" 2>"$W/null" || true
        wait "$BACKGROUND_PID" || status=$?
        [ $status = 130 ] || fail "$name by SIG$signal: exit $status: $(cat "$W/err")"
        [ "$(tail -n 1 "$W/err" | grep -cE "^granary: ${name//-/ }: .*interrupted")" = 1 ] || fail "$name by SIG$signal says: $(cat "$W/err")"
        [ "$(wc -l <"$W/err")" = 1 ] || fail "$name by SIG$signal says more: $(cat "$W/err")"
    done
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
build $W/tree s3://lake/built/one
build s3://lake/in $W/store/two
warm --all $W/control.sock
status $W/control.sock
cache-ls --control $W/control.sock
cache-evict --all --control $W/control.sock
cache-pin --all --control $W/control.sock
END
