#!/bin/bash
# A mount, its metadata warmed, asks the store for each object once and waits for it five times at most: the store takes
# its time, and counts. A round is what was asked before the first of it was answered.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse
unset http_proxy https_proxy

STORE=$GRANARY_SOURCE/tests/servers/slow-store.py
DELAY_MS=1500 # the time that a machine under load may take between two requests of one round
extra_cleanup() { for d in "$W/mnt" "$W/mnt2"; do "$GRANARY" umount --force "$d" 2>/dev/null; done; }
mkdir -p "$W/mnt" "$W/mnt2" "$W/tree"
head -c 140000000 /dev/urandom >"$W/tree/large" # at 64 KiB a chunk three leaves of the index, below a root
(mkdir "$W/tree/many" && cd "$W/tree/many" && seq -f 'file%g' 300 | xargs touch)
"$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"
echo another >"$W/tree/more"
"$GRANARY" build -q "$W/tree" "$W/store/other" >"$W/built"

background "$STORE" "$W/store" $DELAY_MS "$W/port" "$W/log"
wait_for 60 test -e "$W/port"
URL=http://127.0.0.1:$(cat "$W/port")

# counted WHAT: no repeats, five rounds, and no fewer requests than there are kinds of objects
counted() {
    "$STORE" --rounds "$W/log" >"$W/counts"
    read -r _ requests _ repeats _ rounds <"$W/counts"
    echo "$1: $(cat "$W/counts")"
    [ "$repeats" = 0 ] && [ "$rounds" -le 5 ] && [ "$requests" -ge 4 ] || { cat "$W/log"; fail "$1: $(cat "$W/counts")"; }
    : >"$W/log"
}

echo "== the first mount starts a server"
"$GRANARY" mount --fuse --cache "$W/cache:200M" "$URL/set" "$W/mnt" >"$W/out"
counted "first mount"
[ "$(find "$W/mnt/many" -type f | wc -l)" = 300 ] || fail "not all files are there"
[ ! -s "$W/log" ] || { cat "$W/log"; fail "metadata was fetched by readers"; }

echo "== the second adds its image to that"
"$GRANARY" mount --fuse --cache "$W/cache:200M" "$URL/other" "$W/mnt2" >"$W/out"
counted "second mount"
cmp "$W/tree/more" "$W/mnt2/more"
"$GRANARY" umount "$W/mnt2"
"$GRANARY" umount "$W/mnt"

echo "== a server of a tag"
: >"$W/log"
background "$GRANARY" serve "$URL/set" --fuse "$W/served" --cache "$W/cache2:200M"
warmed() { [ "$(grep -c /packs/ "$W/log")" -ge 1 ]; }
wait_for 60 warmed
counted "serve"
[ -e "$W/served.control.images" ] || fail "the server was handed nothing"
