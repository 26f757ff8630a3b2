#!/bin/bash
# An image compared with its source, and damaged packs put together again from it: the very same objects come back, or
# nothing is changed and a sentence says why.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir -p "$W/tree/dir"
for i in $(seq 60); do head -c 600000 /dev/urandom | base64 -w0 >"$W/tree/dir/file-$i"; done
cp "$W/tree/dir/file-7" "$W/tree/twin"
ln "$W/tree/dir/file-9" "$W/tree/linked"
: >"$W/tree/empty"
store=$W/store
image=$store/set
"$GRANARY" build -q --compress-level 7 "$W/tree" "$image" >"$W/built"
cp -a "$store" "$W/good"
mapfile -t packs < <(find "$store/packs" -type f -size +30M; find "$store/packs" -type f -size -30M)
[ ${#packs[@]} -ge 2 ] || fail "one pack only: ${packs[*]}"
bodies=${packs[0]} # full, so without metadata
last=${packs[-1]}

restore() { rm -rf "$store" && cp -a "$W/good" "$store"; }

# flip FILE OFFSET: another byte there
flip() {
    local old
    old=$(od -An -tu1 -j"$2" -N1 "$1")
    printf "\\x$(printf %x $((old ^ 0x40)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# repairs NAME: verify --repair makes the store what it was
repairs() {
    "$GRANARY" verify -q --repair --against "$W/tree" --json "$image" >"$W/json" 2>"$W/err" ||
        { cat "$W/err"; fail "$1 is not repaired"; }
    jq -e '.ok and .repair.repaired == .repair.packs and .repair.packs >= 1 and .repair.chunks >= 1' "$W/json" \
        >"$W/null" || fail "$1: $(cat "$W/json")"
    diff -r "$store/packs" "$W/good/packs" || fail "$1: other packs than before"
}

# cannot TEXT: verify --repair fails, says TEXT, and leaves the store as it is
cannot() {
    local status=0
    cp -a "$store" "$W/before"
    "$GRANARY" verify -q --repair --against "$W/tree" "$image" >"$W/out" 2>"$W/err" || status=$?
    [ $status = 1 ] || fail "ends with $status, not 1"
    grep -qE -- "$1" "$W/err" || { cat "$W/err"; fail "does not say '$1'"; }
    diff -r "$store/packs" "$W/before/packs" || fail "packs were changed"
    rm -rf "$W/before"
}

echo "== compared with the source"
"$GRANARY" verify --against "$W/tree" --all --json "$image" >"$W/json"
jq -e '.ok and .against.files == 62 and .against.changed == 0 and .against.gone == 0' "$W/json" >"$W/null" ||
    fail "$(cat "$W/json")"
"$GRANARY" verify --against "$W/tree" --sample 20 --json "$image" >"$W/json"
jq -e '.against.files > 3 and .against.files < 50' "$W/json" >"$W/null" || fail "$(cat "$W/json")"

echo "== a missing pack, of whose shared files one has changed"
rm "$bodies"
touch "$W/tree/dir/file-7"
repairs "a missing pack"

echo "== a pack cut short and one with a flipped byte; flipped bytes in one that became longer"
truncate -s 20000000 "$bodies"
flip "$last" 100
repairs "two packs"
flip "$bodies" 5
flip "$bodies" 30000000
echo more >>"$bodies"
repairs "flipped bytes"

echo "== a missing pack with metadata is not in the source; what is left of one is used"
rm "$last"
cannot "metadata of the filesystem.*granary build --parent none"
"$GRANARY" build -q --parent none --compress-level 7 "$W/tree" "$image" >"$W/out"
"$GRANARY" verify --deep -q "$image" >"$W/out"
restore

echo "== a source that has changed"
truncate -s 20000000 "$bodies"
for i in $(seq 60); do touch -d "2001-01-01 00:00:$((i % 60))" "$W/tree/dir/file-$i"; done
cannot "no longer has the image's version of dir/file-"
"$GRANARY" verify --against "$W/tree" --all --json "$W/good/set" >"$W/json"
jq -e '.ok and .against.changed >= 60' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
rm "$W/tree/twin"
"$GRANARY" verify --against "$W/tree" --all --json "$W/good/set" >"$W/json"
jq -e '.ok and .against.gone == 1' "$W/json" >"$W/null" || fail "$(cat "$W/json")"

echo "== nothing left to compare is no success"
find "$W/tree" -type f -exec touch -d 2002-02-02 {} +
nothing() { # nothing SENTENCE OPTION...
    local status=0 sentence=$1
    shift
    "$GRANARY" verify --against "$W/tree" "$@" "$W/good/set" >"$W/out" 2>"$W/err" || status=$?
    [ $status = 1 ] || fail "verify $* of a source without the image's versions ends with $status: $(cat "$W/out")"
    grep -q "nothing was compared: $sentence" "$W/err" || fail "$(cat "$W/err")"
}
nothing "none of 6[0-9] files of $W/tree is still the version" --all
grep -q ': NOT compared$' "$W/out" || fail "$(cat "$W/out")"
nothing "none of" --all --json
jq -e '.ok == false and .against.files == 0 and .problem_count == 1 and (.problems | length) == 1' "$W/out" >"$W/null" ||
    fail "$(cat "$W/out")"
mkdir "$W/empty" && "$GRANARY" build -q "$W/empty" "$W/good/empty" >"$W/built"
"$GRANARY" verify --against "$W/empty" --all "$W/good/empty" >"$W/out" || fail "an image without files: $(cat "$W/out")"

echo "== what is refused"
for options in "--repair" "--all" "--sample 3" "--against $W/tree --all --sample 3"; do
    status=0
    # shellcheck disable=SC2086
    "$GRANARY" verify $options "$image" 2>"$W/err" || status=$?
    [ $status = 2 ] || fail "verify $options ends with $status"
done
