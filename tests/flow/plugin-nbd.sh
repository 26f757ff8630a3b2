#!/bin/bash
# The plugin in a real nbdkit: exports by name, bytes, holes, options, the control socket, and a cache that survives.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdinfo nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install libnbd-bin jq curl)"; done

fake_image=$GRANARY_BUILD/tests/fake/fake_image
probe=$GRANARY_BUILD/tests/tools/nbdprobe
"$fake_image" "$W/store" faces 1 >"$W/faces.raw"
"$fake_image" "$W/store" cars 2 >"$W/cars.raw"
"$fake_image" "$W/other" faces 3 >"$W/other.raw"

uri() { echo "nbd+unix:///$1?socket=$W/sock"; }
status() { curl -sS --fail --unix-socket "$W/control" http://granary/status; }
count() { counter_of "$W/control" "$1"; }
stop() { kill "$SERVER_PID" && wait "$SERVER_PID" || true; rm -f "$W/sock"; }
# refused TEXT ARG...: nbdkit does not start, and says TEXT
refused() {
    local text=$1
    shift
    ! timeout 60 nbdkit -f -t 64 --unix "$W/refused" "$PLUGIN" "$@" 2>"$W/refused.err" || fail "started with $*"
    grep -qF -- "$text" "$W/refused.err" || { cat "$W/refused.err" >&2; fail "'$text' was not said for: $*"; }
}
# same_bytes EXPORT RAW: the export's bytes are RAW's
same_bytes() { nbdcopy "$(uri "$1")" "$W/copy" && cmp "$W/copy" "$2" || fail "export $1 differs from $2"; }

echo "== about"
nbdkit "$PLUGIN" --dump-plugin >"$W/dump"
grep -q '^granary_version=' "$W/dump" && grep -qE '^granary_io_uring=(yes|no)$' "$W/dump" || fail "--dump-plugin"
grep -q '^max_thread_model=parallel$' "$W/dump" || fail "thread model"
# the stores it names are those that an image's reference may have
for kind in $(sed -n 's/^granary_stores=//p' "$W/dump"); do echo "$kind://"; done | sort >"$W/kinds"
! nbdkit -U - -t 256 "$PLUGIN" image=ftp://no/image --run true 2>"$W/refusal" || fail "served ftp://no/image"
sed 's/reference "[^"]*"//' "$W/refusal" | grep -oE '[a-z0-9]+://' | sort -u | cmp - "$W/kinds" || fail "--dump-plugin: stores"
nbdkit "$PLUGIN" --help >"$W/help"
sed 's/\\-/-/g' "$GRANARY_SOURCE/docs/man/nbdkit-granary-plugin.1" >"$W/man"
keys=$(sed -n 's/^\([a-z0-9-]*\)=.*/\1/p' "$W/help")
[ "$(wc -w <<<"$keys")" -ge 8 ] || fail "--help lists hardly any parameter"
for key in $keys; do
    grep -q "^\.BI $key= " "$W/man" || fail "nbdkit-granary-plugin(1) lacks $key"
done

echo "== exports by name"
serve_unix "$W/sock" "image=$W/store/faces" "image=file://$W/store/cars:latest" "image=old faces=$W/other/faces" \
    cache="$W/cache:64M" control="$W/control" 2>"$W/server.err"
nbdinfo --list --json "$(uri "")" >"$W/list"
[ "$(jq -r '[.exports[]."export-name"] | sort | join(",")' "$W/list")" = "cars,faces,old faces" ] || fail "$(cat "$W/list")"
jq -e '.exports[] | select(."export-name" == "cars") | .is_read_only and .can_multi_conn and .can_cache and
    ."block-size"."block-size-preferred"? // .block_size_preferred == 131072' "$W/list" >/dev/null ||
    fail "flags: $(cat "$W/list")"
root=$(status | jq -r '.exports[] | select(.name == "cars") | "granary content-root \(.content_root) image \(.digest)"')
[[ $(jq -r '.exports[] | select(."export-name" == "cars").description' "$W/list") =~ ^"$root metadata "[0-9]+\+[0-9]+" front "[0-9]+$ ]] || fail "description"
same_bytes faces "$W/faces.raw"
same_bytes cars "$W/cars.raw"
same_bytes old%20faces "$W/other.raw"
! nbdinfo --size "$(uri boats)" 2>/dev/null || fail "an unknown export was opened"
grep -qF "no export 'boats' here; there are 'faces', 'cars', 'old faces'" "$W/server.err" || fail "$(cat "$W/server.err")"
! nbdinfo --size "$(uri "")" 2>/dev/null || fail "three images, and the empty name opened one of them"

echo "== holes"
nbdinfo --map "$(uri cars)" --json >"$W/map"
[ "$(jq -c '[.[0:3][] | [.offset, .length, .type]]' "$W/map")" = '[[0,393216,0],[393216,131072,3],[524288,524288,0]]' ] ||
    fail "map: $(jq -c '.[0:3]' "$W/map")"
[ "$(jq '[.[].length] | add' "$W/map")" = "$(stat -c %s "$W/cars.raw")" ] || fail "the map does not cover the image"
nbdinfo --map "$(uri cars)" | awk '$3 == 3 { holes++ } END { exit holes != 20 }' || fail "20 holes expected"

echo "== any offset and length"
"$probe" "$(uri cars)" compare "$W/cars.raw"

echo "== NBD_CMD_CACHE"
stop
grep -q 'warning' "$W/server.err" && fail "a warning with 64 threads: $(cat "$W/server.err")"
serve_unix "$W/sock" "$W/store/faces" cache="$W/cache2:64M" control="$W/control"
"$probe" "$(uri faces)" cache 0 0
requests=$(count fetch_requests_total)
same_bytes "" "$W/faces.raw" # the only image is the default export
[ "$(count fetch_requests_total)" = "$requests" ] || fail "what was cached was fetched again"
[ "$(count image_prefetch_bytes_total)" = "$(stat -c %s "$W/faces.raw")" ] || fail "prefetch bytes"

echo "== control socket"
[ "$(stat -c %a "$W/control")" = 600 ] || fail "mode of the control socket"
curl -sS --fail --unix-socket "$W/control" http://granary/metrics >"$W/metrics"
awk '/^# TYPE/ { type[$3] = $4 } !/^#/ { sub(/\{.*\}/, "", $1); if (!type[$1] || $2 !~ /^[0-9]+$/) exit 1; n++ }
    END { exit n < 20 }' "$W/metrics" || fail "metrics: $(cat "$W/metrics")"
[ "$(status | jq -r '.hit_ratio > 0.5 and .pid > 0 and .version != ""')" = true ] || fail "status: $(status)"
[ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$W/control" http://granary/nothing)" = 404 ] || fail "404"
[ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$W/control" -X POST http://granary/status)" = 405 ] || fail "405"
refused "another server listens on $W/control" "$W/store/faces" control="$W/control"
test -S "$W/control" || fail "the running server's control socket was removed"
touch "$W/file"
refused "is no socket" "$W/store/faces" control="$W/file"

echo "== one owner of a cache directory"
refused "$SERVER_PID" "$W/store/faces" cache="$W/cache2:64M"

echo "== kill -9, a stale control socket, and a restart that fetches nothing"
kill -9 "$SERVER_PID"
wait "$SERVER_PID" 2>/dev/null || true
rm "$W/sock"
test -S "$W/control" || fail "kill -9 should have left the control socket"
serve_unix "$W/sock" "$W/store/faces" cache="$W/cache2:64M" control="$W/control"
same_bytes faces "$W/faces.raw"
[ "$(count fetch_requests_total)" = 0 ] || fail "$(count fetch_requests_total) requests after a restart"
[ "$(count cache_hits_total)" -gt 80 ] || fail "hits"
stop
! test -e "$W/control" || fail "the control socket was left behind"

echo "== without a cache, daemonized, 16 threads"
nbdkit --unix "$W/sock" -P "$W/pid" -v "$PLUGIN" "$W/store/faces" cache="$W/cache3:64M" 2>"$W/daemon.err"
wait_for 60 test -s "$W/pid" # the daemon writes it, after its parent has ended
daemon=$(cat "$W/pid")
ours "$daemon"
grep -q 'warning: .* 16 requests .* -t 256' "$W/daemon.err" || fail "no warning of few threads: $(cat "$W/daemon.err")"
refused "$daemon" "$W/store/faces" cache="$W/cache3:64M"
same_bytes faces "$W/faces.raw"
kill "$daemon"
wait_for 60 bash -c "! kill -0 $daemon"
rm "$W/sock"
serve_unix "$W/sock" "$W/store/faces"
same_bytes faces "$W/faces.raw"
! "$probe" "$(uri faces)" cache 0 4096 2>/dev/null || fail "cached without a cache"
stop

echo "== memory alone, daemonized: reserved before the fork, used after it"
nbdkit --unix "$W/sock" -P "$W/pid2" -t 64 "$PLUGIN" "$W/store/faces" memory=64M control="$W/control"
wait_for 60 test -s "$W/pid2"
daemon=$(cat "$W/pid2")
ours "$daemon"
"$probe" "$(uri faces)" cache 0 0
requests=$(count fetch_requests_total)
same_bytes faces "$W/faces.raw"
[ "$(count fetch_requests_total)" = "$requests" ] || fail "what was in memory was fetched again"
[ "$(count cache_memory_hits_total)" -gt 80 ] || fail "$(count cache_memory_hits_total) hits in memory"
kill "$daemon"
wait_for 60 bash -c "! kill -0 $daemon"
rm "$W/sock"
refused "no 1125899906842624 bytes of memory" "$W/store/faces" memory=1024T

echo "== a fast and a slow directory"
serve_unix "$W/sock" "$W/store/faces" cache="$W/fast:16M" cache="$W/slow:32M:hdd" control="$W/control"
"$probe" "$(uri faces)" cache 0 0
requests=$(count fetch_requests_total)
same_bytes faces "$W/faces.raw"
[ "$(count fetch_requests_total)" = "$requests" ] || fail "what was cached was fetched again"
[ "$(count cache_moves_total)" = 0 ] || fail "one read each, and chunks moved"
stop

echo "== damage"
cp -r "$W/store" "$W/damaged"
pack=$(ls "$W"/damaged/packs/*/* | sed -n 1p)
printf X | dd of="$pack" bs=1 seek=5000 conv=notrunc status=none
serve_unix "$W/sock" "$W/damaged/faces" "image=$W/damaged/cars" 2>"$W/server.err"
# Not nbdcopy: nbdkit 1.32 may abort when a client drops its connection with replies on the way.
"$probe" "$(uri faces)" scan 131072 >"$W/scan"
"$probe" "$(uri cars)" scan 131072 >>"$W/scan"
[ "$(sort "$W/scan" | xargs)" = "0 of 101 failed 1 of 101 failed" ] || fail "one chunk is damaged: $(cat "$W/scan")"
grep -qF "$(basename "$pack")" "$W/server.err" || fail "the damaged pack was not named: $(cat "$W/server.err")"
stop

echo "== TCP without TLS: warned of when a client comes from another address, and then alone"
# tcp ADDRESS: a server on all addresses of a network of its own, a client of that one
tcp() {
    unshare -n sh -c 'ip link set lo up && ip address add 192.0.2.1/32 dev lo && exec nbdkit -f -t 64 -p 10809 "$1" "$2" disk-timeout=60s \
        --run "nbdinfo --size nbd://$3/faces"' sh "$PLUGIN" "$W/store/faces" "$1" >"$W/tcp.out" 2>"$W/tcp.err" || fail "TCP: $(cat "$W/tcp.err")"
}
if unshare -n true 2>"$W/null"; then
    tcp 127.0.0.1
    ! grep 'without TLS' "$W/tcp.err" >"$W/null" || fail "warned of loopback: $(cat "$W/tcp.err")"
    tcp 192.0.2.1
    grep 'warning: a client reads over TCP without TLS' "$W/tcp.err" >"$W/null" || fail "not warned of TCP: $(cat "$W/tcp.err")"
fi

echo "== wrong parameters"
refused "no image" cache="$W/cache4:64M"
refused "unknown parameter 'colour'" "$W/store/faces" colour=red
refused "write cache=DIR:SIZE" "$W/store/faces" cache="$W/cache4"
refused "cache size" "$W/store/faces" cache="$W/cache4:much"
refused "two images would be exported as 'faces'" "image=$W/store/faces" "image=$W/other/faces"
refused "boats" "$W/store/boats"
refused "timeout" "$W/store/faces" timeout=never
refused "connections" "$W/store/faces" connections=0
refused "readahead" "$W/store/faces" readahead=1G
refused "index-memory" "$W/store/faces" index-memory=1
refused "longer than the 107 bytes a socket's" "$W/store/faces" control="$W/$(printf 'x%.0s' {1..120})"
