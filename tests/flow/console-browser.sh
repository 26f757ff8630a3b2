#!/bin/bash
# The console in a real Chromium: no complaint of the browser's, tokens, keys alone, what a screen reader gets, contrast
# in light and dark, narrow screens, a server that goes away. It takes the pictures of docs/operations/console.md; with
# GRANARY_PICTURES=DIRECTORY they are left there. axe-core looks too, where npm can get it: once for a build tree.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v nginx >"$W/null" || skip "no nginx here (apt-get install nginx-light)"
command -v qemu-io >"$W/null" || skip "no qemu-io here (apt-get install qemu-utils)"
command -v chromium >"$W/null" || skip "no chromium here (apt-get install chromium fonts-dejavu-core): nobody looks at the console"

# Images of several sizes, with files of their own.
image() {
    local i
    mkdir -p "$W/tree-$1"
    for ((i = 0; i < $2; i++)); do head -c 200000 /dev/urandom >"$W/tree-$1/$i"; done
    "$GRANARY" build -q "$W/tree-$1" "$W/store/$1:v1" >"$W/built"
    rm -r "$W/tree-$1"
}
image faces 200
image speech 120
image small 10
image videos 300
openssl rand -hex 32 >"$W/token"
openssl rand -hex 32 >"$W/admin"
free_port
background "$GRANARY" serve "$W/store/faces:v1" "$W/store/speech:v1" "$W/store/small:v1" "$W/store/videos:v1" \
    --socket "$W/nbd.sock" --cache "$W/cache:256M" --memory 32M --warm none --fill off \
    --disk-timeout "$DISK_TIMEOUT" --console "127.0.0.1:$FREE_PORT" --console-token "$W/token" \
    --console-admin-token "$W/admin" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"

# Somebody reads all the time: all of one image, again and again; of the others a piece now and then.
background bash -c "while nbdcopy 'nbd+unix:///faces?socket=$W/nbd.sock' null: 2>'$W/null'; do sleep 1; done"
# reads: qemu-io's commands for a hundred reads in the first half of the image of videos
reads() {
    local i
    for ((i = 0; i < 100; i++)); do echo "read -q $(((RANDOM * 32768 + RANDOM) % 450 * 65536)) 64k"; done
}
pieces() { while reads | qemu-io -r -f raw "nbd+unix:///videos?socket=$W/nbd.sock" >"$W/null" 2>&1; do sleep 1; done; }
background pieces
# And one image is being warmed, for two minutes.
background curl -sS -X POST --unix-socket "$W/nbd.sock.control" 'http://granary/warm?what=all&export=speech&bwlimit=200K' -o "$W/warmed"

AXE=4.14.1
axe=$GRANARY_BUILD/tests/axe-core-$AXE
npm=$(command -v npm || true) # nothing that apt must install for this
if [ ! -e "$axe/package/axe.min.js" ] && [ -n "$npm" ]; then
    mkdir -p "$axe"
    (cd "$axe" && "$npm" pack --silent "axe-core@$AXE" >"$W/npm.log" 2>&1 && tar -xzf ./*.tgz package/axe.min.js) || cat "$W/npm.log"
fi
if [ -e "$axe/package/axe.min.js" ]; then
    export GRANARY_AXE=$axe/package/axe.min.js
else
    echo "no axe-core here, which npm gets: the checks of our own are all"
fi

# A reverse proxy, with the console below a path, and a node that is gone.
PORT=$FREE_PORT
free_port
serve_nginx "server { listen 127.0.0.1:$FREE_PORT; location /node1/ { proxy_pass http://127.0.0.1:$PORT/; proxy_buffering off; }
    location /gone/ { proxy_pass http://127.0.0.1:1/; } }"
wait_for 60 answers "$FREE_PORT"

pictures=${GRANARY_PICTURES:-$W/pictures}
mkdir -p "$pictures"
PYTHONDONTWRITEBYTECODE=1 timeout 900 /usr/bin/python3 "$GRANARY_SOURCE/tests/flow/console-browser.py" "$W" "$PORT" "$FREE_PORT" "$W/token" "$W/admin" \
    "$pictures" "$SERVE" || fail "$(tail -5 "$W/chromium.log" 2>"$W/null")"
