#!/bin/bash
# cache=DIR:PERCENT% on a filesystem of its own: that part of what is free there or the cache's own, the same at the
# next start, less when others have taken room.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
[ "$(id -u)" = 0 ] || skip "mounting needs root"

mkdir "$W/tree" "$W/ssd"
head -c 30000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"
truncate -s 200M "$W/disk"
mkfs.ext4 -q -m 0 -O ^has_journal "$W/disk"
mount -o loop "$W/disk" "$W/ssd" 2>"$W/err" || skip "no loop mount here: $(cat "$W/err")"
MOUNTS+=("$W/ssd")

budget() { curl -sS --fail --unix-socket "$W/control" http://granary/status | jq -r .counters.granary_cache_budget_bytes; }
start() {
    rm -f "$W/sock"
    serve_unix "$W/sock" "$W/store/img" cache="$W/ssd/cache:$1" control="$W/control" 2>"$W/err"
}
stop() { kill "$SERVER_PID" && wait "$SERVER_PID" || true; }
# what is free, and what the cache has of it
mkdir "$W/ssd/cache"
room() { echo $(($(stat -f -c '%a * %S' "$W/ssd") + $(du -cB1 "$W/ssd/cache"/{data,records,exports} 2>/dev/null | tail -1 | cut -f1))); }
share() { echo $(($(room) / 100 * $1 / 4096 * 4096)); }

expected=$(share 80)
start 80%
[ "$(budget)" = "$expected" ] || fail "budget $(budget), not $expected"
nbdcopy "nbd+unix:///?socket=$W/sock" "$W/copy"
used=$(du -B1 -s "$W/ssd/cache" | cut -f1)
[ "$used" -le "$(budget)" ] && [ "$used" -gt $((expected / 2)) ] || fail "$used bytes are taken"
stop

echo "== the same again: what the cache has counts as free, and nothing is lost"
start 80%
! grep -q 'starts empty' "$W/err" || fail "$(cat "$W/err")"
stop

echo "== others have taken room: less, and it starts"
fallocate -l 30M "$W/ssd/others"
expected=$(share 80)
start 80%
[ "$(budget)" = "$expected" ] || fail "budget $(budget), not $expected"
[ "$(stat -f -c '%a' "$W/ssd")" -gt 0 ] || fail "the filesystem is full"
