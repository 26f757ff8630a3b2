#!/bin/bash
# Mounts with the same options share one server and its cache: a second image is added while the first is read, the same
# image twice is one export, the last umount ends the server and leaves nothing; other options are another server.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dirs=("$W/a" "$W/a2" "$W/b" "$W/c" "$W/d" "$W/e")
extra_cleanup() { for d in "${dirs[@]}"; do "$GRANARY" umount --force "$d" 2>/dev/null; done; }
mkdir "${dirs[@]}" "$W/one" "$W/two" "$W/three"
head -c 3000000 /dev/urandom >"$W/one/file"
head -c 2000000 /dev/urandom >"$W/two/file"
head -c 1000000 /dev/urandom >"$W/three/file"
"$GRANARY" build -q "$W/one" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/two" "$W/store/two" >"$W/built"
"$GRANARY" build -q "$W/three" "$W/other/one" >"$W/built" # another image of the same name

mount_it() {
    "$GRANARY" mount --fuse --json --cache "$W/cache:200M" "$1" "$2" >"$W/mount.json"
    STATE=$(dirname "$(jq -r .socket "$W/mount.json")")
    SERVER_PID=$(jq .server_pid "$W/mount.json")
}
# of the server that $W/a has; of a mount point its own export is shown alone
exports() { "$GRANARY" status "$state/fuse.control" --quick --json | jq -c '.exports | map(.name)'; }

echo "== a second image is added while the first is read"
mount_it "$W/store/one" "$W/a"
first=$SERVER_PID state=$STATE
read_on() { until [ -e "$W/enough" ]; do cmp "$W/one/file" "$W/a/file" || exit; forget_pages "$W/a/file"; sleep 0.1; done; }
background read_on
READER=$BACKGROUND_PID
mount_it "$W/store/two" "$W/b"
[ "$SERVER_PID" = "$first" ] || fail "the second mount has a server of its own"
cmp "$W/two/file" "$W/b/file"
[ "$(exports)" = '["one","two"]' ] || fail "exports: $(exports)"
kill -0 "$READER" || fail "the reader of the first has ended"

echo "== the same image again is the same export; another one of the same name has another"
mount_it "$W/store/one" "$W/a2"
[ "$(exports)" = '["one","two"]' ] || fail "exports: $(exports)"
mount_it "$W/other/one" "$W/c"
[[ $(exports) = '["one","two","one@'* ]] || fail "exports: $(exports)"
cmp "$W/three/file" "$W/c/file"
cmp "$W/one/file" "$W/a2/file"
[ "$SERVER_PID" = "$first" ] || fail "it has a server of its own"

echo "== a mount point says server and export, to every verb; the only server needs no name"
"$GRANARY" status "$W/c" --json >"$W/status"
jq -e --arg dir "$W/c" '.exports | length == 1 and .[0].mounts == [$dir] and (.[0].name | startswith("one@"))' "$W/status" >"$W/null" ||
    fail "status of a mount point shows others: $(jq -c .exports "$W/status")"
"$GRANARY" status "$W/a2" --quick --json | jq -e --arg dir "$W/a2" '.exports[0].mounts == [$dir]' >"$W/null" || fail "status shows another mount of the export"
[ "$("$GRANARY" status --quick --json | jq '.servers | length')" = 1 ] || fail "not one document of one server: $("$GRANARY" status --quick --json | jq -c ".servers[] | [.pid, .control, .error, .health, [.exports[]?.name]]")"
"$GRANARY" cache ls "$W/b" >"$W/out"
grep -q '^two ' "$W/out" && [ "$(wc -l <"$W/out")" = 1 ] || fail "cache ls of a mount point: $(cat "$W/out")"
"$GRANARY" cache ls "$W/c:*file" >"$W/out"
grep -q ' file$' "$W/out" || fail "cache ls of a file below a mount point"
refused 2 "exclude each other" "$GRANARY" cache ls "$W/b" --control "$W/a"
[ "$("$GRANARY" cache ls | wc -l)" = 3 ] || fail "cache ls does not find the only server"
"$GRANARY" top --once >"$W/out"
grep -q '  two$' "$W/out" || fail "top does not find the only server"
"$GRANARY" warm -q --all --export two >"$W/out" || fail "warm does not find the only server"

echo "== other options: another server, said so"
"$GRANARY" mount --fuse --cache "$W/cache2:100M" "$W/store/two" "$W/d" 2>"$W/err" >"$W/out"
grep -q "process [0-9]*) has other options" "$W/err" || fail "nothing is said of two servers: $(cat "$W/err")"
second=$("$GRANARY" status "$W/d" --quick --json | jq .pid)
"$GRANARY" status --quick --json | jq -es 'length == 1 and (.[0].servers | length == 2)' >"$W/null" || fail "not one document of two servers"
refused 1 "there are several servers; say which: $W/" "$GRANARY" top --once
refused 1 "there are several servers; say which: $W/" "$GRANARY" upgrade
background "$GRANARY" serve "$W/store/one" --socket /run/granary/nbd.sock >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
"$GRANARY" top --once >"$W/out" || fail "the server of granary serve is not the default"
grep -q '  one$' "$W/out" && ! grep -q '  two$' "$W/out" || fail "another server is the default: $(cat "$W/out")"
kill -TERM "$BACKGROUND_PID"
wait "$BACKGROUND_PID" || fail "serve: $(cat "$W/serve.err")"
"$GRANARY" umount "$W/d"
wait_for 60 gone "$second"
pid_of() { "$GRANARY" status "$1" --quick --json | jq .pid; }
"$GRANARY" mount --fuse --endpoint http://127.0.0.1:8 "$W/store/two" "$W/d" 2>"$W/err" >"$W/out"
"$GRANARY" mount --fuse --endpoint http://127.0.0.1:9 "$W/store/two" "$W/e" 2>"$W/err" >"$W/out"
[ "$(pid_of "$W/d")" != "$(pid_of "$W/e")" ] || fail "one server for two endpoints"
"$GRANARY" umount "$W/d"
"$GRANARY" umount "$W/e"

echo "== what no mount needs any more goes, the rest is read on"
"$GRANARY" umount "$W/a2"
[[ $(exports) = '["one","two","one@'* ]] || fail "an export went with one of its two mounts: $(exports)"
"$GRANARY" umount "$W/c"
[ "$(exports)" = '["one","two"]' ] || fail "an export stays without a mount: $(exports)"
kill -0 "$READER" || fail "the reader of the first has ended"
touch "$W/enough"
wait "$READER" || fail "the reader of the first read something else"
"$GRANARY" umount "$W/a" || fail "umount of the first"
cmp "$W/two/file" "$W/b/file"
gone "$first" && fail "the server ended under a mount"

echo "== two mounts at the same time find one server, and two umounts end it once"
"$GRANARY" umount "$W/b"
wait_for 60 gone "$first"
[ ! -e "$state" ] || fail "$state is left"
"$GRANARY" mount --fuse --cache "$W/cache:200M" "$W/store/one" "$W/a" >"$W/out" &
one=$!
"$GRANARY" mount --fuse --cache "$W/cache:200M" "$W/store/two" "$W/b" >"$W/out2" &
two=$!
wait "$one" && wait "$two" || fail "mounts at the same time"
cmp "$W/one/file" "$W/a/file"
cmp "$W/two/file" "$W/b/file"
pid=$("$GRANARY" status "$W/a" --quick --json | jq .pid)
[ "$pid" = "$("$GRANARY" status "$W/b" --quick --json | jq .pid)" ] || fail "two servers"
"$GRANARY" umount "$W/a" &
one=$!
"$GRANARY" umount "$W/b" &
two=$!
wait "$one" && wait "$two" || fail "umounts at the same time"
wait_for 60 gone "$pid"
[ ! -e "$state" ] || fail "$state is left: $(ls "$state")"

echo "== two images of one name that come at the same time, while the server is busy with others"
mount_patiently() { "$GRANARY" mount --fuse --json --cache "$W/cache:200M" --timeout 10s "$1" "$2"; }
mount_patiently "$W/store/two" "$W/b" >"$W/mount.json"
control=$(jq -r .control "$W/mount.json")
free_port
add() { curl -s "${@:3}" --unix-socket "$control" -X PUT "http://granary/exports/none$1?image=http://127.0.0.1:$FREE_PORT/$2/none"; }
for i in {1..28}; do # all that it takes at a time: four of each of seven stores that are tried until the timeout
    background add "$i" $((i % 7)) >"$W/put$i"
done
is_busy() { [[ $(add 29 7 --max-time 1) = *"28 such requests"* ]]; }
wait_for 60 is_busy
mount_patiently "$W/store/one" "$W/a" >"$W/out" &
one=$!
mount_patiently "$W/other/one" "$W/c" >"$W/out2" &
two=$!
wait "$one" && wait "$two" || fail "mounts of one name at the same time"
cmp "$W/one/file" "$W/a/file"
cmp "$W/three/file" "$W/c/file"

echo "== the server is stopped: that is said, and not what its log says of other things"
SERVER_PID=$(jq .server_pid "$W/mount.json")
FRONT=$(pgrep -P "$SERVER_PID")
kill -STOP "$FRONT"
refused 1 "gives no answer" mount_patiently "$W/store/one" "$W/d"
kill -CONT "$FRONT"
for d in "$W/a" "$W/b" "$W/c"; do "$GRANARY" umount "$d"; done

echo "== more at the same time than the server answers at a time: each has its turn"
images=()
for i in 1 2 3 4; do
    mkdir "$W/at-once$i" "$W/m$i"
    echo "$i" >"$W/at-once$i/file"
    dirs+=("$W/m$i")
    "$GRANARY" build -q "$W/at-once$i" "$W/store/at-once$i" >"$W/built"
    mount_it "$W/store/at-once$i" "$W/m$i"
    images+=("at-once$i")
done
recorders=()
control=$(jq -r .control "$W/mount.json")
for i in "${images[@]}"; do
    background curl -sN --unix-socket "$control" "http://granary/trace?export=$i" >"$W/trace-$i"
    recorders+=("$BACKGROUND_PID")
    wait_for 60 grep -q '"image"' "$W/trace-$i"
done
"$GRANARY" mount --fuse --cache "$W/cache:200M" "$W/store/two" "$W/b" >"$W/out" 2>"$W/err" &
one=$!
has_two() { "$GRANARY" status "$control" --quick --json | jq -e '.exports | any(.name == "two")' >"$W/null"; }
wait_for 60 has_two
kill -0 "$one" || fail "the mount did not wait for its metadata: $(cat "$W/err")"
kill "${recorders[@]}"
wait "$one" || fail "a mount beside four long answers: $(cat "$W/err")"
! [ -s "$W/err" ] || fail "its metadata had no turn: $(cat "$W/err")"
cmp "$W/two/file" "$W/b/file"
for d in "$W/b" "$W/m1" "$W/m2" "$W/m3" "$W/m4"; do "$GRANARY" umount "$d"; done
[ ! -e "$state" ] || fail "$state is left: $(ls "$state")"
! grep -F " $W/" /proc/self/mountinfo || fail "a mount is left"
