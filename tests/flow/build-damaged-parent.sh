#!/bin/bash
# A parent whose manifest, index or catalog has lost an object or has a wrong byte: a build that was told of no parent
# reads everything, says so, and heals what it makes again; one with a named parent publishes nothing.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

store=$W/store
image=$store/set:daily

# damage HOW FILE
damage() {
    local at byte
    case $1 in
        missing) rm "$2" ;;
        cut) truncate -s -1 "$2" ;;
        flipped)
            at=$(($(stat -c %s "$2") / 2))
            byte=$(od -An -tu1 -j "$at" -N 1 "$2")
            printf '%b' "$(printf '\\x%02x' $((byte ^ 1)))" | dd of="$2" bs=1 seek="$at" conv=notrunc status=none
            ;;
    esac
}

objects() { find "$store/manifests" "$store/indexes" "$store/catalogs" -type f | sort; }

# build SOURCE OPTION...
build() { "$GRANARY" build -q --json "$@" "$image" >"$W/json" 2>"$W/err" || { cat "$W/err"; fail "the build fails"; }; }

says() { jq -e "$1" "$W/json" >"$W/null" || { cat "$W/err"; fail "not $1: $(cat "$W/json")"; }; }

# whole: the image is, to its last byte
whole() { "$GRANARY" verify -q --deep "$image" >"$W/out" 2>&1 || { cat "$W/out"; fail "the image is not whole"; }; }

# healed SOURCE OPTION...: the build goes on without its parent, in one line, and its image is a parent again
healed() {
    build "$@"
    whole
    says '.rebuild.parent_damaged and .rebuild.parent == null and .bytes_read > 0'
    [ "$(jq -r .digest "$W/json")" = "$first" ] || fail "an unchanged source gives another image"
    grep -qE 'build: the parent image set:daily is damaged, so everything is read from the source: .*(manifests|indexes|catalogs)/' \
        "$W/err" || fail "does not say it: $(cat "$W/err")"
    ! grep -v 'is damaged, so everything is read\|it is written again$' "$W/err" || fail "says more: $(cat "$W/err")"
    build "$@"
    says '(.rebuild.parent_damaged | not) and .rebuild.parent != null and .bytes_read == 0'
}

# an index and a catalog of two levels: an ext4 image has 256 MiB, most of them holes
mkdir -p "$W/tree/d" "$W/shards"
for i in $(seq 1100); do echo "$i" >"$W/tree/d/$i"; done
head -c 3000000 /dev/urandom >"$W/tree/large"
tar -C "$W/tree" -cf "$W/shards/0.tar" d
tar -C "$W/tree" -cf "$W/shards/1.tar" large

build "$W/tree" --fs ext4
first=$(jq -r .digest "$W/json")
objects >"$W/objects"
for kind in indexes/ catalogs/; do
    [ "$(grep -c "/$kind" "$W/objects")" -ge 2 ] || fail "too few objects below $kind: $(cat "$W/objects")"
done
damages=flipped
[ -z "${GRANARY_FULL:-}" ] || damages="missing cut flipped"
for how in $damages; do
    while read -r object; do
        echo "== $how: ${object#"$store/"}"
        damage "$how" "$object"
        healed "$W/tree" --fs ext4
    done <"$W/objects"
done

echo "== the words"
page=$(grep -m 1 /catalogs/ "$W/objects")
cp "$page" "$W/kept"
damage cut "$page"
"$GRANARY" build -q "$W/tree" "$image" --fs ext4 --dry-run >"$W/out" 2>"$W/err"
grep -qE '^  built +in full: the parent is damaged$' "$W/out" || fail "$(cat "$W/out")"
cp "$W/kept" "$page"

echo "== a parent that the user names"
tags=$(find "$store/images" -type f | sort | xargs sha256sum)
while read -r object; do
    cp "$object" "$W/kept"
    damage flipped "$object"
    status=0
    "$GRANARY" build -q "$W/tree" "$image" --fs ext4 --parent "$image" >"$W/out" 2>"$W/err" || status=$?
    [ "$status" = 1 ] || fail "exit $status: $(cat "$W/err")"
    grep -q "${object#"$store/"}.*the parent image cannot be used: --parent none builds without it" "$W/err" || fail "$(cat "$W/err")"
    cp "$W/kept" "$object"
done <"$W/objects"
[ "$(find "$store/images" -type f | sort | xargs sha256sum)" = "$tags" ] || fail "a tag was published"

echo "== the parent is the newest image of the name"
damage missing "$page"
"$GRANARY" build -q --json "$W/tree" "$store/set:v2" --fs ext4 >"$W/json" 2>"$W/err"
says '.rebuild.parent_damaged and .rebuild.parent == null'
grep -q 'the parent image set:daily is damaged' "$W/err" || fail "$(cat "$W/err")"

echo "== a list of files is read again; a pipe cannot be, and nothing is published"
rm -rf "$store"
(cd "$W/tree" && find . -type f | sort) >"$W/list"
build "$W/tree" --files-from "$W/list"
first=$(jq -r .digest "$W/json")
page=$(find "$store/catalogs" -type f | sort | sed -n 1p)
damage flipped "$page"
healed "$W/tree" --files-from "$W/list"
damage flipped "$page"
build "$W/tree" --files-from - <"$W/list"
says '.rebuild.parent_damaged and .counts.files == 1101'
whole
damage flipped "$page"
tags=$(find "$store/images" -type f | sort | xargs sha256sum)
status=0
"$GRANARY" build -q "$W/tree" "$image" --files-from - < <(cat "$W/list") >"$W/out" 2>"$W/err" || status=$?
[ "$status" = 1 ] || fail "a list that was read already: exit $status: $(cat "$W/err")"
grep -q 'standard input cannot be read twice' "$W/err" || fail "$(cat "$W/err")"
[ "$(find "$store/images" -type f | sort | xargs sha256sum)" = "$tags" ] || fail "a tag was published"

echo "== shards"
rm -rf "$store"
build "tar:$W/shards"
first=$(jq -r .digest "$W/json")
objects >"$W/objects"
while read -r object; do
    damage flipped "$object"
    healed "tar:$W/shards"
done <"$W/objects"
