#!/bin/bash
# A store that has lost bytes: builds read again what lay there, from a directory and from tar shards, and say so; the
# image they publish is whole.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

# damage HOW FILE
damage() {
    case $1 in
        cut) truncate -s -100000 "$2" ;;
        replaced) head -c "$(stat -c %s "$2")" /dev/urandom >"$W/random" && cat "$W/random" >"$2" ;;
        missing) rm "$2" ;;
        longer) head -c 5000 /dev/urandom >>"$2" ;;
    esac
}

# build SOURCE OPTION...
build() { "$GRANARY" build -q --json "$@" "$store/set:v1" >"$W/json" 2>"$W/err" || { cat "$W/err"; fail "the build fails"; }; }

# whole: the image is, to its last byte
whole() { "$GRANARY" verify -q --deep "$store/set:v1" >"$W/out" 2>&1 || { cat "$W/out"; fail "the image is not whole"; }; }

says() { jq -e "$1" "$W/json" >"$W/null" || { cat "$W/err"; fail "not $1: $(cat "$W/json")"; }; }

mkdir -p "$W/tree" "$W/shards"
for i in $(seq 12); do head -c 6000000 /dev/urandom >"$W/tree/file-$i"; done
for i in 0 1 2; do tar -C "$W/tree" -cf "$W/shards/$i.tar" "file-$((i * 4 + 1))" "file-$((i * 4 + 2))" "file-$((i * 4 + 3))" "file-$((i * 4 + 4))"; done

for source in "$W/tree" "tar:$W/shards"; do
    store=$W/good
    rm -rf "$store"
    build "$source"
    first=$(find "$store/packs" -type f -size +30M | sort | sed -n 1p || true)
    [ -n "$first" ] || fail "no full pack"
    for how in cut replaced missing longer; do
        echo "== $source: a pack is $how"
        store=$W/store
        rm -rf "$store"
        cp -a "$W/good" "$store"
        damage "$how" "$store${first#"$W/good"}"
        build "$source"
        whole
        if [ "$how" = longer ]; then
            says '.rebuild.packs_damaged == 0 and .bytes_read == 0'
            continue
        fi
        says '.rebuild.packs_damaged == 1 and .rebuild.healed >= 1 and .rebuild.healed == 12 - .rebuild.unchanged'
        grep -q 'the parent image is missing or damaged; the files in it are read from the source again' "$W/err" ||
            fail "does not say it: $(cat "$W/err")"
    done
done

echo "== the words"
damage cut "$store${first#"$W/good"}"
"$GRANARY" build -q "$source" "$store/set:v1" >"$W/out" 2>"$W/err" || fail "the build fails: $(cat "$W/err")"
grep -qE '^  healed +[0-9]+ files?, .* read again, since 1 pack of the parent is missing or damaged$' "$W/out" || fail "$(cat "$W/out")"

echo "== a full build writes again what stands damaged under its names"
find "$store/packs" "$store/catalogs" "$store/indexes" -type f | while read -r object; do
    truncate -s -1 "$object"
done
build "$W/tree" --parent none
whole
build "$W/tree" --parent none
says '.objects_healed == 0 and .objects_new == 0'
