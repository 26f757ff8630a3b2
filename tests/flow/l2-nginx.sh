#!/bin/bash
# Shared cache proxies: two real nginx with deploy/nginx/granary-l2.conf in front of a store. Three servers, each with
# its own cache, read everything, and the store is read about once. A proxy killed while clients read costs no error,
# comes back into use, and a proxy whose disk turned bytes over gives no wrong byte.
# ctest: long
. "$(dirname "$0")/lib-l2.sh"

make_images 8
for name in P P1 P2; do
    free_port
    declare "$name=$FREE_PORT"
done
store_config "127.0.0.1:$P"
proxy_config proxy1 "127.0.0.1:$P" "127.0.0.1:$P1"
proxy_config proxy2 "127.0.0.1:$P" "127.0.0.1:$P2"
start_nginx() { # start_nginx NAME PORT
    background nginx -c "$W/$1.conf" -g 'daemon off;'
    wait_for 60 answers "$2"
}
start_nginx store "$P"
start_nginx proxy1 $P1
PROXY1_PID=$BACKGROUND_PID
start_nginx proxy2 $P2

images=()
for i in $(seq $IMAGES); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
proxies=("l2=http://127.0.0.1:$P1/lake" "l2=http://127.0.0.1:$P2/lake/")
echo "== three servers, each with its own cache"
for server in a b c; do
    serve $server cache="$W/cache-$server:300M"
    read_all $server
    [ "$(of_proxies $server '[.[].url] | join(" ")')" = "http://127.0.0.1:$P1/lake http://127.0.0.1:$P2/lake" ] ||
        fail "proxies: $(of_proxies $server .)"
    of_proxies $server '.[].requests' | while read -r n; do [ "$n" -ge 4 ] || fail "a proxy was asked $n times only"; done
done
# served SERVER FROM: bytes of all its images from there
served() {
    metrics "$W/$1.control" |
        awk -v from="from=\"$2\"" '/^granary_export_served_bytes_total/ && index($1, from) { n += $2 } END { printf "%d", n }'
}
# Of a machine that was too busy for a proxy to answer in 5 s the servers have passed it over for a while.
passed_by=$(($(served a store) + $(served b store) + $(served c store)))
echo "packs and index nodes: $OBJECT_BYTES bytes; three servers took $(sent_by_store) from the store, $passed_by beside the proxies"
[ "$(sent_by_store)" -le $((OBJECT_BYTES * 3 / 2 + passed_by)) ] || fail "the store was read more than about once"

echo "== each image says what the proxies gave of it, and what the store"
[ "$(served c l2)" -gt 0 ] && [ "$(count c image_read_bytes_total)" = "$(($(served c l2) + $(served c store) + $(served c disk) + $(served c hole)))" ] ||
    fail "from proxies $(served c l2), store $(served c store), disk $(served c disk), holes $(served c hole) of $(count c image_read_bytes_total)"
# The store gives what a proxy did not, was silent about, or gave wrong.
[ "$(($(count c l2_fallthroughs_total) + $(count c fetch_hedges_total) + $(count c fetch_refetches_total)))" != 0 ] || [ "$(served c store)" = 0 ] || fail "the store gave $(served c store) bytes that the proxies gave"
[ "$(metrics "$W/c.control" | awk '/^granary_l2_get_seconds_count/ { print $2 }')" -gt 0 ] || fail "no time of a proxy"

echo "== a proxy killed while clients read"
serve d # without a cache: every read is fetched
start_reader d
asked_some() { [ "$(of_proxies d '.[0].bytes')" -gt 1000000 ]; }
wait_for 120 asked_some
kill_nginx "$PROXY1_PID"
wait_for 120 state_is d 0 down
store_gives() { [ "$(served d store)" -gt 0 ]; }
wait_for 120 store_gives # what fell through
[ "$(count d l2_down)" = 1 ] || fail "granary_l2_down"
metric_is "$W/d.control" "granary_l2_up{l2=\"http://127.0.0.1:$P1/lake\"} 0" && metric_is "$W/d.control" "granary_l2_up{l2=\"http://127.0.0.1:$P2/lake\"} 1" ||
    fail "$(metrics "$W/d.control" | grep granary_l2_up)"
kill -0 "$READER_PID" 2>/dev/null || fail "the reader gave up while a proxy was dead"

echo "== it comes back"
start_nginx proxy1 $P1
wait_for 180 state_is d 0 up
end_reader d

echo "== bytes turned over on a proxy's disk"
# All of them: it also has slices that it was asked for while the other one was dead, and nobody asks it for those now.
find "$W/kept-proxy2" -type f -size +700k >"$W/slices"
[ -s "$W/slices" ] || fail "the proxy kept no slice"
while read -r slice; do
    head -c 1000 /dev/urandom | dd of="$slice" bs=1000 seek=400 conv=notrunc status=none
done <"$W/slices"
names=()
for i in $(seq $IMAGES); do names+=("http://127.0.0.1:$P/lake/i$i"); done
background "$GRANARY" serve "${names[@]}" --warm none --l2 "http://127.0.0.1:$P1/lake" --l2 "http://127.0.0.1:$P2/lake" \
    --socket "$W/e.sock" --control "$W/e.control" >"$W/e.log"
wait_for 60 grep -q "^serving .*i$IMAGES " "$W/e.log"
read_all e
[ "$(count e l2_wrong_total)" -ge 1 ] || fail "nobody noticed: $(of_proxies e .)"
[ "$(count e fetch_errors_total)" = 0 ] || fail "$(count e fetch_errors_total) fetches failed"

echo "== what does not fit"
refused() {
    local text=$1
    shift
    ! timeout 60 nbdkit -f --unix "$W/refused" "$PLUGIN" "$@" 2>"$W/refused.err" || fail "started with $*"
    grep -qF -- "$text" "$W/refused.err" || { cat "$W/refused.err" >&2; fail "'$text' was not said for: $*"; }
}
"$GRANARY_BUILD/tests/fake/fake_image" "$W/other" x 9 >/dev/null
refused "shared cache proxies serve one store" "${images[0]}" "image=$W/other/x" "${proxies[0]}"
refused "given twice" "${images[0]}" "${proxies[0]}" "${proxies[0]}/"
refused "write the http:// or https:// address" "${images[0]}" l2=cache1:8080
