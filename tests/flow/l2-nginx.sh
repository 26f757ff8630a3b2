#!/bin/bash
# Shared tiers: two real nginx with deploy/nginx/granary-l2.conf in front of a store. Three servers with caches of their
# own read everything, and the store is read about once. A proxy killed while clients read costs no error, comes back
# into use, and a proxy whose disk turned bytes over gives no wrong byte.
. "$(dirname "$0")/../lib.sh"
for tool in nginx nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install nginx-light libnbd-bin jq curl)"; done
unset http_proxy https_proxy

IMAGES=8
for i in $(seq $IMAGES); do "$GRANARY_BUILD/tests/fake/fake_image" "$W/store" "i$i" "$i" >"$W/i$i.raw"; done
objects=$(find "$W/store/packs" "$W/store/indexes" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
P=$((20000 + RANDOM % 10000))
while taken "$P" || taken $((P + 1)) || taken $((P + 2)); do P=$((P + 3)); done

# nginx_config NAME: what nginx needs to run in a corner of its own; the server itself comes from standard input
nginx_config() {
    echo "user root; worker_processes 1; pid $W/$1.pid; error_log $W/$1.error; events { worker_connections 300; }"
    echo "http { client_body_temp_path $W/$1.t1; proxy_temp_path $W/$1.t2; fastcgi_temp_path $W/$1.t3;"
    echo "uwsgi_temp_path $W/$1.t4; scgi_temp_path $W/$1.t5;"
    cat
    echo "}"
}
nginx_config store >"$W/store.conf" <<END
log_format bytes '\$body_bytes_sent'; access_log $W/store.bytes bytes;
server { listen 127.0.0.1:$P; location /lake/ { alias $W/store/; } }
END
for tier in 1 2; do
    # The configuration as it is shipped, with what it says is to be edited
    sed -e "s|/var/cache/nginx/granary|$W/kept$tier|; s|BUCKET.s3.eu-central-1.amazonaws.com:443|127.0.0.1:$P|" \
        -e "s|https://granary_store|http://granary_store|; s|BUCKET.s3.eu-central-1.amazonaws.com|127.0.0.1|" \
        -e "s|listen 8080|listen 127.0.0.1:$((P + tier))|; s|max_size=400g|max_size=1g|" \
        "$GRANARY_SOURCE/deploy/nginx/granary-l2.conf" | nginx_config "tier$tier" >"$W/tier$tier.conf"
    ! grep -q BUCKET "$W/tier$tier.conf" || fail "granary-l2.conf has a BUCKET that the test does not know"
done
start_nginx() { # start_nginx NAME PORT
    background nginx -c "$W/$1.conf" -g 'daemon off;'
    wait_for 60 taken "$2"
}
start_nginx store "$P"
start_nginx tier1 $((P + 1))
TIER1_PID=$BACKGROUND_PID
start_nginx tier2 $((P + 2))

images=()
for i in $(seq $IMAGES); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
tiers=("l2=http://127.0.0.1:$((P + 1))/lake" "l2=http://127.0.0.1:$((P + 2))/lake/")
# serve NAME ARG...: a server of all images, on the socket $W/NAME.sock
serve() {
    local name=$1
    shift
    serve_unix "$W/$name.sock" "${images[@]}" "${tiers[@]}" control="$W/$name.control" "$@"
}
# read_image SERVER IMAGE: what the server gives of it is its bytes
read_image() { nbdcopy "nbd+unix:///$2?socket=$W/$1.sock" "$W/$1.copy" && cmp "$W/$1.copy" "$W/$2.raw"; }
read_all() {
    local i
    for i in $(seq $IMAGES); do read_image "$1" "i$i" || fail "server $1 does not give the bytes of image i$i"; done
}
# of_tiers SERVER FILTER: from its status
of_tiers() { curl -sS --fail --unix-socket "$W/$1.control" http://granary/status | jq -r ".shared_tiers | $2"; }
count() { curl -sS --fail --unix-socket "$W/$1.control" http://granary/status | jq -r ".counters.granary_$2"; }
state_is() { [ "$(of_tiers "$1" ".[0].state")" = "$2" ]; }

echo "== three servers, each with its own cache"
for server in a b c; do
    serve $server cache="$W/cache-$server:300M"
    read_all $server
    [ "$(of_tiers $server '[.[].url] | join(" ")')" = "http://127.0.0.1:$((P + 1))/lake http://127.0.0.1:$((P + 2))/lake" ] ||
        fail "tiers: $(of_tiers $server .)"
    of_tiers $server '.[].requests' | while read -r n; do [ "$n" -ge 4 ] || fail "a tier was asked $n times only"; done
done
read_from_store=$(awk '{ n += $1 } END { print n }' "$W/store.bytes")
echo "packs and index nodes: $objects bytes; three servers took $read_from_store from the store"
# Manifests and tags come on top; a machine that was too busy for a tier to answer in 5 s may have read a part twice.
[ "$read_from_store" -le $((objects * 3 / 2)) ] || fail "the store was read more than about once"

echo "== a proxy killed while clients read"
serve d # without a cache: every read is fetched
read_on() { while [ ! -e "$W/enough" ]; do read_all d; done; }
background read_on
READER_PID=$BACKGROUND_PID
asked_some() { [ "$(of_tiers d '.[0].bytes')" -gt 1000000 ]; }
wait_for 120 asked_some
mapfile -t workers < <(pgrep -P "$TIER1_PID")
kill -9 "$TIER1_PID" "${workers[@]}"
wait_for 120 state_is d down
[ "$(count d tiers_down)" = 1 ] || fail "granary_tiers_down"
kill -0 "$READER_PID" 2>/dev/null || fail "the reader gave up while a proxy was dead"

echo "== it comes back"
start_nginx tier1 $((P + 1))
wait_for 180 state_is d up
touch "$W/enough"
wait "$READER_PID" || fail "a client saw an error or a wrong byte"
[ "$(count d fetch_errors_total)" = 0 ] || fail "$(count d fetch_errors_total) fetches failed"

echo "== bytes turned over on a proxy's disk"
slice=$(find "$W/kept2" -type f -size +700k | head -1)
[ -n "$slice" ] || fail "the proxy kept no slice"
head -c 1000 /dev/urandom | dd of="$slice" bs=1 seek=400000 conv=notrunc status=none
names=()
for i in $(seq $IMAGES); do names+=("http://127.0.0.1:$P/lake/i$i"); done
background "$GRANARY" serve "${names[@]}" --l2 "http://127.0.0.1:$((P + 1))/lake" --l2 "http://127.0.0.1:$((P + 2))/lake" \
    --socket "$W/e.sock" --control "$W/e.control" >"$W/e.log"
wait_for 60 grep -q "^serving .*i$IMAGES " "$W/e.log"
read_all e
[ "$(count e tier_wrong_total)" -ge 1 ] || fail "nobody noticed: $(of_tiers e .)"
[ "$(count e fetch_errors_total)" = 0 ] || fail "$(count e fetch_errors_total) fetches failed"

echo "== what does not fit"
refused() {
    local text=$1
    shift
    ! timeout 60 nbdkit -f --unix "$W/refused" "$PLUGIN" "$@" 2>"$W/refused.err" || fail "started with $*"
    grep -qF -- "$text" "$W/refused.err" || { cat "$W/refused.err" >&2; fail "'$text' was not said for: $*"; }
}
"$GRANARY_BUILD/tests/fake/fake_image" "$W/other" x 9 >/dev/null
refused "shared tiers answer for one store" "${images[0]}" "image=$W/other/x" "${tiers[0]}"
refused "given twice" "${images[0]}" "${tiers[0]}" "${tiers[0]}/"
refused "write the http:// or https:// address" "${images[0]}" l2=cache1:8080
