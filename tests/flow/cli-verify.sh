#!/bin/bash
# What verify finds: a flipped byte in a pack, a pack cut short or gone, a broken index node, catalog page, manifest;
# and that export and ls refuse to hand on what is broken.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree"
for i in $(seq 40); do head -c 100000 /dev/urandom >"$W/tree/file-$i"; done
store=$W/store
image=$store/set
"$GRANARY" build -q "$W/tree" "$image" >"$W/built"
cp -a "$store" "$W/good"

restore() { rm -rf "$store" && cp -a "$W/good" "$store"; }

# flip FILE OFFSET: another byte there
flip() {
    local old
    old=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\x$(printf %x $((old ^ 0x40)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# finds TEXT OPTION...: verify fails and says TEXT
finds() {
    local text=$1 status=0
    shift
    "$GRANARY" verify "$@" "$image" >"$W/out" 2>"$W/err" || status=$?
    [ $status = 1 ] || fail "verify $* ends with $status"
    grep -qE -- "$text" "$W/err" || { cat "$W/err"; fail "verify $* does not say '$text'"; }
}

# refuses VERB ARG...: it fails, and prints nothing as a result
refuses() {
    ! "$GRANARY" "$@" >"$W/out" 2>"$W/err" || fail "$1 hands on what is broken"
    [ ! -s "$W/out" ] || fail "$1 prints a part: $(cat "$W/out")"
}

pack=$(find "$store/packs" -type f)
name=$(basename "$pack")
"$GRANARY" verify "$image" >"$W/out"
grep -q "^  1 of 1 pack there, " "$W/out" || { cat "$W/out"; fail "verify does not say that the pack is there"; }
"$GRANARY" verify --deep "$image"

echo "== a flipped byte in a pack: found by --deep, which names the pack and the file"
flip "$pack" 2000000
"$GRANARY" verify "$image" >"$W/out" || fail "the plain check reads no packs"
finds "${name:0:12}" --deep
finds "file 'file-[0-9]+': its bytes are not those" --deep
"$GRANARY" verify --deep --json "$image" >"$W/json" 2>"$W/err" && fail "verify --json ends with 0"
jq -e '.ok == false and .chunks_bad == 1 and .files_bad >= 1 and .files_bad <= 3 and .files == 40' "$W/json" >"$W/null" ||
    fail "$(cat "$W/json")"
! "$GRANARY" export -q "$image" "$W/image" 2>"$W/err" || fail "export handed on a broken chunk"
[ ! -e "$W/image" ] || fail "a broken export has a name"
restore

echo "== a pack cut short, a pack gone"
truncate -s -1 "$pack"
finds "$name.*cut short"
restore
rm "$pack"
finds "$name"
grep -q "^  0 of 1 pack there, " "$W/out" || { cat "$W/out"; fail "verify does not say that the pack is missing"; }
finds "$name" --deep
[ "$(grep -c "$name is not there" "$W/err")" = 1 ] || { cat "$W/err"; fail "one missing pack is several problems"; }
restore

echo "== a broken index node, catalog page, manifest"
for kind in indexes catalogs manifests; do
    object=$(find "$store/$kind" -type f | sed -n 1p)
    flip "$object" 20
    finds "$(basename "$object" | cut -c 1-12)"
    [ $kind = catalogs ] || refuses export -q "$image" "$W/image"
    [ $kind = indexes ] || refuses ls -R "$image"
    restore
    rm "$object"
    finds "$(basename "$object" | cut -c 1-12)"
    restore
done
"$GRANARY" verify --deep "$image"

echo "== options that are about a source alone"
for words in --repair --all '--sample 9' '--add a=/b' '--prefix-strip a' '--hdfs-token-file a' '--http-token-file a'; do
    status=0
    # shellcheck disable=SC2086 # two words
    "$GRANARY" verify $words "$image" 2>"$W/err" || status=$?
    [ $status = 2 ] && grep -q "needs --against SOURCE" "$W/err" || fail "$words: $status $(cat "$W/err")"
done
