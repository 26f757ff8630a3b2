#!/bin/bash
# cache=DIR:PERCENT% on a filesystem of its own: as large as asked for, the same at the next start, refused with a
# sentence where it does not fit.
# ctest: lock=loop
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
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
size=$(($(stat -f -c '%b * %S' "$W/ssd")))

start 80%
[ "$(budget)" = $((size / 100 * 80 / 4096 * 4096)) ] || fail "budget $(budget) of $size"
nbdcopy "nbd+unix:///?socket=$W/sock" "$W/copy"
used=$(du -B1 -s "$W/ssd/cache" | cut -f1)
[ "$used" -le "$(budget)" ] && [ "$used" -gt $((size / 2)) ] || fail "$used bytes are taken"
stop

echo "== the same again: what the cache has counts as free, and nothing is lost"
start 80%
! grep -q 'starts empty' "$W/err" || fail "$(cat "$W/err")"
stop

echo "== what does not fit is refused"
fallocate -l 30M "$W/ssd/others"
! timeout 60 nbdkit -f --unix "$W/sock" "$PLUGIN" "$W/store/img" cache="$W/ssd/cache:90%" 2>"$W/err" || fail "started"
grep -q '90% of the filesystem of .* are .* are free' "$W/err" || fail "$(cat "$W/err")"
! timeout 60 "$GRANARY" serve "$W/store/img" --socket "$W/sock" --cache "$W/ssd/cache:90%" 2>"$W/err" || fail "serve started"
grep -q '90% of the filesystem' "$W/err" || fail "$(cat "$W/err")"
