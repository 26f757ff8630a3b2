# shellcheck shell=bash
# Sourced after lib.sh by the tests of a store that answers nobody beside one that does: their images `one`, at
# $STORE_URL/one, and `two`, at $W/store-two/two, and the bytes of each in $W/one and $W/two. While $W/dead is there, the
# first store is silent.
mkdir "$W/tree"
for name in one two; do
    head -c 40000000 /dev/urandom >"$W/tree/large"
    "$GRANARY" build -q "$W/tree" "$W/store-$name/$name" >"$W/built"
    "$GRANARY" export -q "$W/store-$name/$name" "$W/$name"
done

serve_silent "$W/store-one"
extra_cleanup() { rm -f "$W/dead"; }
