#!/bin/bash
# watermark=HIGH:LOW on a filesystem that others use too: the cache gives room back while they need it, under load and
# across kill -9, takes it again afterwards, never has more than its budget, and readers see nothing of it.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
[ "$(id -u)" = 0 ] || skip "mounting needs root"

probe=$GRANARY_BUILD/tests/tools/nbdprobe
mkdir "$W/tree" "$W/ssd"
head -c 130000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"
"$GRANARY" export -q "$W/store/img" "$W/image"
truncate -s 240M "$W/disk"
mkfs.ext4 -q -m 0 -O ^has_journal "$W/disk"
mount -o loop "$W/disk" "$W/ssd" 2>"$W/err" || skip "no loop mount here: $(cat "$W/err")"
MOUNTS+=("$W/ssd")
size=$(stat -f -c '%b * %S' "$W/ssd")
size=$((size))
budget=$((size / 100 * 70 / 4096 * 4096))

extra_cleanup() {
    rm -f "$W/busy"
    [ -z "${LOAD:-}" ] || wait $LOAD $WATCH
}
uri="nbd+unix:///?socket=$W/sock"
count() { counter_of "$W/control" "$1"; }
start() {
    rm -f "$W/sock" "$W/control"
    serve_unix "$W/sock" "$W/store/img" cache="$W/ssd/cache:$budget" watermark=85:75 control="$W/control" 2>"$W/err"
}
taken() { du -B1 -s "$W/ssd/cache" | cut -f1; }
in_use() { echo $(($(stat -f -c '(%b - %a) * 100 / %b' "$W/ssd"))); }
few() { [ "$(in_use)" -le 85 ]; }
yields() { [ "$(count cache_yielded_bytes)" -gt 0 ]; }
whole() { [ "$(count cache_yielded_bytes)" = 0 ]; }
same_bytes() { nbdcopy "$uri" - | cmp - "$W/image" || fail "other bytes than the image"; }
# readers and a look at the budget as long as $W/busy exists
load() {
    while [ -e "$W/busy" ]; do
        "$probe" "$uri" compare "$W/image" || [ ! -e "$W/busy" ] || touch "$W/failed"
    done
}
watch() {
    while [ -e "$W/busy" ]; do
        [ "$(taken)" -le "$budget" ] || touch "$W/exceeded"
        sleep 0.02
    done
}

start
same_bytes
[ "$(taken)" -gt $((budget * 9 / 10)) ] || fail "$(taken) of $budget bytes are reserved"
whole || fail "room was given back without need"

echo "== others come, under load"
touch "$W/busy"
load &
LOAD=$!
watch &
WATCH=$!
fallocate -l $((size / 100 * 24)) "$W/ssd/others"
wait_for 60 yields
wait_for 60 few
wait_for 60 grep -q 'giving some of its slots back' "$W/err"
[ "$(taken)" -lt $((budget * 9 / 10)) ] || fail "$(taken) bytes are held"
same_bytes

echo "== others go: all the room is taken again"
rm "$W/ssd/others"
wait_for 60 whole
[ "$(taken)" -gt $((budget * 9 / 10)) ] || fail "$(taken) of $budget bytes are reserved"
same_bytes
rm "$W/busy"
wait $LOAD $WATCH
[ ! -e "$W/failed" ] || fail "a reader saw other bytes"
[ ! -e "$W/exceeded" ] || fail "the budget was exceeded"

echo "== others come while no server runs, and when one is killed in the middle"
kill "$SERVER_PID" && wait "$SERVER_PID" || true
fallocate -l $((size / 100 * 24)) "$W/ssd/others"
start
wait_for 60 few
same_bytes
kill -9 "$SERVER_PID" && wait "$SERVER_PID" || true
start # nothing says that it is short of room now: what was given back is not taken
yields || fail "all the room was taken at the start, with $(in_use)% in use"
[ "$(in_use)" -le 85 ] || fail "$(in_use)% are in use"
! grep -q 'starts empty' "$W/err" || fail "$(cat "$W/err")"
[ "$(count cache_entries)" -gt 0 ] || fail "nothing was kept"
same_bytes
kill -9 "$SERVER_PID" && wait "$SERVER_PID" || true
rm "$W/ssd/others"
start
whole || fail "$(count cache_yielded_bytes) bytes are missing"
same_bytes
[ "$(taken)" -le "$budget" ] || fail "$(taken) bytes of $budget"
