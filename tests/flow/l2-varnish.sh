#!/bin/bash
# Shared cache proxies that are Varnish, with deploy/varnish/granary-l2.vcl: two servers read everything, the store sends
# each pack once, and one that is killed while clients read costs no error.
# ctest: long
. "$(dirname "$0")/lib-l2.sh"
command -v varnishd >/dev/null || skip "no varnishd here (apt-get install varnish)"

make_images 4
serve_store P1 P2
start_varnish() { # start_varnish NAME PORT
    sed -e "s|\.host = \"BUCKET.s3.eu-central-1.amazonaws.com\"|.host = \"127.0.0.1\"|; s|\.port = \"80\"|.port = \"$P\"|" \
        -e "s|BUCKET.s3.eu-central-1.amazonaws.com|127.0.0.1|" \
        "$GRANARY_SOURCE/deploy/varnish/granary-l2.vcl" >"$W/$1.vcl"
    ! grep -q BUCKET "$W/$1.vcl" || fail "granary-l2.vcl has a BUCKET that the test does not know"
    background varnishd -F -f "$W/$1.vcl" -a "127.0.0.1:$2" -n "$W/$1" -s "granary=file,$W/$1.kept,300M" -T none \
        -j none 2>"$W/$1.log"
    wait_for 120 answers "$2"
}
start_varnish varnish1 "$P1"
VARNISH1_PID=$BACKGROUND_PID
start_varnish varnish2 "$P2"

images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
# shellcheck disable=SC2034
proxies=("l2=http://127.0.0.1:$P1/lake" "l2=http://127.0.0.1:$P2/lake")
echo "== two servers, each with its own cache"
passed_by=0
for server in a b; do
    serve $server cache="$W/cache-$server:300M" hedge=0
    read_all $server
    of_proxies $server '.[].requests' | while read -r n; do [ "$n" -ge 2 ] || fail "a proxy was asked $n times only"; done
    passed_by=$((passed_by + $(of_proxies $server '[.[].failures] | add')))
done
echo "packs and index nodes: $OBJECT_BYTES bytes; the store sent $(sent_by_store); requests that did not wait for a proxy: $passed_by"
[ "$(sent_by_store)" = "$OBJECT_BYTES" ] || [ $passed_by != 0 ] || fail "the store sent bytes twice, or a proxy too few"

echo "== a proxy killed while clients read"
serve c # without a cache: every read is fetched
start_reader c
asked_some() { [ "$(of_proxies c '.[0].bytes')" -gt 1000000 ]; }
wait_for 120 asked_some
kill_nginx "$VARNISH1_PID" # and its child
wait_for 120 state_is c 0 down
goes_on c
end_reader a b c
