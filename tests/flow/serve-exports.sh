#!/bin/bash
# Exports added and removed while a server runs and is read: checked like those given at the start, seen by everything
# that shows exports, kept over the server's end by the digest they had, refused to be removed while somebody is
# connected.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree" "$W/tree2"
head -c 400000 /dev/urandom >"$W/tree/file"
head -c 500000 /dev/urandom >"$W/tree2/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/tree2" "$W/other-store/two:live" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/one.img"
"$GRANARY" export -q "$W/other-store/two:live" "$W/two.img"

control="$W/nbd.sock.control"
uri() { echo "nbd+unix:///$1?socket=$W/nbd.sock"; }
# ask METHOD PATH [key=value]...: the answer's lines
ask() {
    local method=$1 path=$2 parameter data=()
    shift 2
    for parameter; do data+=(--data-urlencode "$parameter"); done
    curl -sS -G -X "$method" --unix-socket "$control" "${data[@]}" "http://granary$path"
}
serve() {
    : >"$W/serve.out"
    background "$GRANARY" serve "$W/store/one" --socket "$W/nbd.sock" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" \
        >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
    CHILD=$(pgrep -P "$SERVE")
}
# kill_server: the server goes with its supervisor, and has the cache until it is gone
kill_server() {
    CHILD=$(pgrep -P "$SERVE")
    kill -9 "$SERVE"
    wait "$SERVE" || true
    wait_for 60 gone "$CHILD"
}
names() { ask GET /status | jq -c '.exports | map(.name)'; }
reads_as() { nbdcopy "$(uri "$1")" - | cmp - "$2"; }

serve
background bash -c "while nbdcopy '$(uri one)' null:; do :; done"
READER=$BACKGROUND_PID

echo "== an image more"
ask PUT /exports/two image="$W/other-store/two:live" >"$W/answer"
jq -se '.[0].export.export == "two" and .[0].export.size > 0 and .[-1].result.ok' "$W/answer" >"$W/null" || fail "PUT: $(cat "$W/answer")"
[ "$(names)" = '["one","two"]' ] || fail "exports: $(names)"
reads_as two "$W/two.img" || fail "the added export reads as something else"
nbdinfo --list "nbd+unix:///?socket=$W/nbd.sock" >"$W/answer"
grep -q 'export="two"' "$W/answer" || fail "NBD's list does not have it"
ask GET /metrics >"$W/answer"
grep -q '^granary_export_reads_total{export="two"} [1-9]' "$W/answer" || fail "metrics do not have it"
"$GRANARY" warm "$(uri two)" --all >"$W/null" || fail "it cannot be warmed"
"$GRANARY" cache evict --control "$control" two >"$W/null" || fail "it cannot be evicted"
ask PUT /exports/three image="$W/other-store/two:live" >"$W/answer"
grep -q '"ok":true' "$W/answer" || fail "the same image by another name"

echo "== what is refused"
refused() { grep -q "\"error\":.*$2" "$W/answer" || fail "$1: $(cat "$W/answer")"; }
ask PUT /exports/two image="$W/store/one" >"$W/answer"; refused "another image under the name" "there already"
ask PUT /exports/four image="$W/store/four" >"$W/answer"; refused "no such image" "four"
ask PUT /exports/one%00 image="$W/other-store/two:live" >"$W/answer"; refused "a NUL in the name" "NUL"
ask DELETE /exports/two%00x >"$W/answer"; refused "a NUL behind a name that is there" "NUL"
ask PUT /exports/four%0a image="$W/store/one" >"$W/answer"; refused "a control character" "control character"
ask PUT /exports/a/b image="$W/store/one" >"$W/answer"; refused "a name with a slash" "control character"
ask PUT /exports/"$(printf 'x%.0s' {1..4097})" image="$W/store/one" >"$W/answer"; refused "a name that is too long" "4096 bytes"
curl -s --unix-socket "$control" 'http://granary/status?quick=%00' >"$W/answer"; refused "a NUL in a parameter" "NUL"
ask PUT /exports/four image=nonsense >"$W/answer"; refused "no reference" "nonsense"
ask PUT /exports/four >"$W/answer"; refused "no image" "image="
ask PUT /exports/ image="$W/store/one" >"$W/answer"; refused "no name" "name"
ask DELETE /exports/four >"$W/answer"; refused "not there" "no export"
ask DELETE /exports/one >"$W/answer"; refused "given at the start" "given when the server was started"
[ "$(stat -c %a "$control")" = 600 ] || fail "anybody may add exports"

echo "== the same again is what is there; for mounts it is not removed where a user wants it"
ask PUT /exports/two image="$W/other-store/two:live" mount=1 >"$W/answer"
grep -q '"ok":true' "$W/answer" || fail "the same again"
ask DELETE /exports/two mount=1 >"$W/answer"
grep -q '"removed":false' "$W/answer" || fail "a mount removed a user's export"
ask PUT /exports/four image="$W/store/one" mount=1 >"$W/null"
ask DELETE /exports/four mount=1 >"$W/answer"
grep -q '"removed":true' "$W/answer" || fail "a mount's export stays"

echo "== it is not removed while a client is connected"
cat >"$W/client.py" <<'PY'
import socket, struct, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
name = sys.argv[2].encode()
got = b""
s.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
while len(got) < 18 + 10:
    got += s.recv(100)
open(sys.argv[3], "w").close()
time.sleep(3600)
PY
background python3 "$W/client.py" "$W/nbd.sock" three "$W/connected"
CLIENT=$BACKGROUND_PID
wait_for 60 test -e "$W/connected"
ask GET /status | jq -e '.exports[] | select(.name == "three") | .clients == 1' >"$W/null" || fail "clients: $(ask GET /status)"
ask DELETE /exports/three >"$W/answer"; refused "connected" "1 connections open"
kill "$CLIENT"
removed() { ask DELETE /exports/three >"$W/answer" && grep -q '"removed":true' "$W/answer"; }
wait_for 60 removed
[ "$(names)" = '["one","two"]' ] || fail "exports after the removal: $(names)"
kill "$READER"

echo "== the server killed: the same digest, though the tag has moved; and a server that is started anew"
head -c 600000 /dev/urandom >"$W/tree2/file"
"$GRANARY" build -q "$W/tree2" "$W/other-store/two:live" >"$W/built"
kill -9 "$CHILD"
back() { [ "$(pgrep -P "$SERVE")" != "$CHILD" ] && [ "$(names 2>"$W/null")" = '["one","two"]' ]; }
wait_for 60 back
reads_as two "$W/two.img" || fail "after the server's end the export is another image"
kill_server
serve
[ "$(names)" = '["one","two"]' ] || fail "a new supervisor: $(names)"
reads_as two "$W/two.img" || fail "after the supervisor's end the export is another image"

echo "== what is noted and not there any more does not stop the others"
rm -r "$W/other-store/manifests"
kill_server
rm -r "$W/cache"
serve
[ "$(names)" = '["one"]' ] || fail "exports without the store: $(names)"
grep -q "export 'two', noted in .*is not served any more" "$W/serve.err" || fail "nothing is said of it: $(cat "$W/serve.err")"

echo "== a quota of an image that is added later"
kill_server
mkdir "$W/big"
head -c 30000000 /dev/urandom >"$W/big/file"
"$GRANARY" build -q "$W/big" "$W/store/big" >"$W/built"
background "$GRANARY" serve --socket "$W/nbd.sock" --cache "$W/cache2:64M" --quota big:16M --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 listens "$control"
ask PUT /exports/big image="$W/store/big" >"$W/answer"
"$GRANARY" export -q "$W/store/big" "$W/big.img"
reads_as big "$W/big.img" || fail "it is another image"
used() { ask GET /status | jq .counters.granary_cache_used_bytes; }
# The cache writes after the reads.
wait_for 60 eval '[ "$(used)" -gt 14000000 ]'
reads_as big "$W/big.img" || fail "it is another image"
wait_for 60 eval '[ "$(ask GET /status | jq .counters.granary_cache_fill_queue_bytes)" = 0 ]'
[ "$(used)" -lt 18000000 ] || fail "it takes $(used) bytes of the cache"

echo "== a quota that an export brings, of the image, also after a restart"
mkdir "$W/wide"
head -c 21000000 /dev/urandom >"$W/wide/file"
"$GRANARY" build -q "$W/wide" "$W/store/wide" >"$W/built"
"$GRANARY" export -q "$W/store/wide" "$W/wide.img"
ask PUT /exports/wide image="$W/store/wide" quota=15M >"$W/answer"
grep -q 'quota=15M: at least 16M' "$W/answer" || fail "quota=15M: $(cat "$W/answer")"
ask PUT /exports/more image="$W/store/big" quota=20M >"$W/answer"
grep -q "the image 'big' has a quota of 16.0 MiB here already, since the server's start" "$W/answer" || fail "another: $(cat "$W/answer")"
ask PUT /exports/wide image="$W/store/wide" quota=16M warm=none >"$W/answer"
jq -se '.[-1].result.ok' "$W/answer" >"$W/null" || fail "PUT: $(cat "$W/answer")"
ask PUT /exports/wide image="$W/store/wide" quota=20M >"$W/answer"
grep -q "the export 'wide' is there without a quota of 20.0 MiB" "$W/answer" || fail "another: $(cat "$W/answer")"
quotas() { ask GET /status | jq -c '.exports | map([.name, .quota, .image_quota, .unwarmed])'; }
expected='[["big",0,16777216,false],["wide",16777216,16777216,true]]'
[ "$(quotas)" = "$expected" ] || fail "quotas: $(quotas)"
kill -9 "$(pgrep -P "$BACKGROUND_PID")"
wait_for 60 eval '[ "$(quotas 2>"$W/null")" = "$expected" ]'
"$GRANARY" cache evict -q --all --control "$control" >"$W/null"
reads_as wide "$W/wide.img" || fail "it is another image"
wait_for 60 eval '[ "$(ask GET /status | jq .counters.granary_cache_fill_queue_bytes)" = 0 ]'
wait_for 60 eval '[ "$(used)" -gt 12000000 ]'
[ "$(used)" -lt 18000000 ] || fail "it takes $(used) bytes of the cache"
charged=$(ask GET /status | jq '.exports[1].image_charged')
[ "$charged" -gt 12000000 ] && [ "$charged" -le 16777216 ] || fail "charged: $charged"
ask DELETE /exports/wide >"$W/answer"

echo "== an export in cache-only mode, beside one of the same image that is not"
ask PUT /exports/warmed image="$W/store/big" fence=warmed >"$W/answer"
jq -se '.[-1].result.ok' "$W/answer" >"$W/null" || fail "PUT: $(cat "$W/answer")"
"$GRANARY" cache evict -q --all --control "$control" >"$W/null"
! nbdcopy "$(uri warmed)" null: 2>"$W/err" || fail "it is fetched for a reader"
[ "$(ask GET /status | jq -c '.exports | map([.name, .fence, .fence_refusals > 0])')" = '[["big","none",false],["warmed","warmed",true]]' ] ||
    fail "exports: $(ask GET /status | jq -c .exports)"
reads_as big "$W/big.img" || fail "the other is behind the fence, too"
ask PUT /exports/other image="$W/store/big" fence=often >"$W/answer"
grep -q 'fence= is none or warmed' "$W/answer" || fail "fence=often: $(cat "$W/answer")"
