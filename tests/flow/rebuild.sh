#!/bin/bash
# The daily build over a file store: what is read, kept and uploaded; the tree is a full build's; going back; erasure;
# a garbage collection while it runs; a damaged parent.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

store=$W/store
image=$store/set:daily
build() { "$GRANARY" build "$W/tree" "$@" --quiet --json; }

# same_tree IMAGE: what stands in it is the tree, by fsck.erofs' own reading of the image
same_tree() {
    rm -rf "$W/out" "$W/image"
    "$GRANARY" export "$1" "$W/image" --quiet
    fsck.erofs --extract="$W/out" "$W/image" >"$W/log" 2>&1 || { cat "$W/log"; fail "fsck.erofs of $1"; }
    diff -r --no-dereference "$W/tree" "$W/out" || fail "$1 is not the tree"
    (cd "$W/tree" && find . ! -type d -printf '%P %m %U %G %T@ %l\n' | sort) >"$W/want"
    (cd "$W/out" && find . ! -type d -printf '%P %m %U %G %T@ %l\n' | sort) >"$W/got"
    diff "$W/want" "$W/got" || fail "$1: attributes"
}

mkdir -p "$W/tree"/{a,b,c/d}
for i in $(seq 600); do head -c $((i * 37 % 9000 + 1)) /dev/urandom >"$W/tree/$(printf '%s\n' a b c/d | sed -n $((i % 3 + 1))p)/$i"; done
head -c 700000 /dev/urandom >"$W/tree/large"
ln "$W/tree/a/3" "$W/tree/b/linked"
ln -s large "$W/tree/c/link"
printf 'the only copy of a secret, %s' "$(seq -s ' ' 200)" >"$W/tree/b/secret"

echo "== the first build is full, the second reads and uploads nothing"
build "$image" >"$W/first"
[ "$(jq .rebuild.parent "$W/first")" = null ] || fail "the first build had a parent: $(cat "$W/first")"
build "$image" >"$W/second"
[ "$(jq -r .digest "$W/first")" = "$(jq -r .digest "$W/second")" ] || fail "an unchanged source is another image"
jq -e '.bytes_read == 0 and .bytes_uploaded == 0 and .objects_new == 0 and .rebuild.unchanged == 602' "$W/second" >"$W/null" ||
    fail "an unchanged source cost $(cat "$W/second")"
[ "$(jq -r .rebuild.parent "$W/second")" = "$(jq -r .digest "$W/first")" ] || fail "the parent is not the tag's image"

echo "== a day"
first_tag=$(jq -r .unique_tag "$W/first")
printf 'new' >"$W/tree/a/new"
head -c 5000 /dev/urandom >"$W/tree/a/6"
rm "$W/tree/b/1" "$W/tree/b/secret"
chmod 600 "$W/tree/b/4"
mv "$W/tree/c/d/8" "$W/tree/c/moved"
"$GRANARY" build "$W/tree" "$image" --quiet --json --dry-run >"$W/plan"
build "$image" >"$W/third"
for key in unchanged added changed removed bytes_kept; do
    [ "$(jq ".rebuild.$key" "$W/plan")" = "$(jq ".rebuild.$key" "$W/third")" ] || fail "the dry run says another $key"
done
# a new time of change is a new version of a local file: b/4 and the moved one are read too
jq -e '.rebuild.added == 2 and .rebuild.changed == 2 and .rebuild.removed == 3 and .bytes_read < 20000
       and .bytes_uploaded < 200000' "$W/third" >"$W/null" || fail "a day cost $(cat "$W/third")"
same_tree "$image"
"$GRANARY" diff "$store/set:$first_tag" "$image" >"$W/diff"
printf 'M a/6\nA a/new\nD b/1\nm b/4\nD b/secret\nD c/d/8\nA c/moved\n' | cmp - "$W/diff" || fail "diff says $(cat "$W/diff")"
"$GRANARY" inspect "$image" --json >"$W/inspect"
[ "$(jq -r .parent "$W/inspect")" = "$(jq -r .digest "$W/first")" ] || fail "the tag does not say the parent"

echo "== under a new tag the name's newest image is the parent; another name has none"
"$GRANARY" build "$W/tree" "$store/set:tomorrow" --quiet --dry-run >"$W/plan"
grep -qE '^  built +upon set:daily: 0 files, 0 ?B? .*read, .* kept$' "$W/plan" || fail "it says $(cat "$W/plan")"
"$GRANARY" build "$W/tree" "$store/set:tomorrow" --quiet --dry-run --json >"$W/plan"
[ "$(jq -r .rebuild.parent_name "$W/plan")" = set:daily ] || fail "it says $(cat "$W/plan")"
"$GRANARY" build "$W/tree" "$store/another:v1" --quiet --dry-run >"$W/plan"
grep -qE '^  built +in full: no parent$' "$W/plan" || fail "it says $(cat "$W/plan")"

echo "== the way back: what a tag was moved to is built upon, and a copy, though not for another source"
"$GRANARY" tag "$store/set:$first_tag" back >"$W/null"
"$GRANARY" copy "$store/set:$first_tag" "file://$W/copies" --quiet >"$W/null"
for back in "$store/set:back" "file://$W/copies/set:$first_tag"; do
    "$GRANARY" build "$W/tree" "$back" --quiet --dry-run --json >"$W/plan"
    [ "$(jq -r .rebuild.parent "$W/plan")" = "$(jq -r .digest "$W/first")" ] || fail "$back: it says $(cat "$W/plan")"
    "$GRANARY" build "$W/tree/a" "$back" --quiet --dry-run --json >"$W/plan"
    jq -e '.rebuild.parent_other_source and .rebuild.parent == null' "$W/plan" >"$W/null" || fail "$back: it says $(cat "$W/plan")"
done
"$GRANARY" rm "$store/set:back" >"$W/null"

echo "== what is of another source is not built upon unless it is named: equal times need not mean equal bytes"
cp -a "$W/tree" "$W/moved"
"$GRANARY" build "$W/moved" "$store/set:tomorrow" --quiet --dry-run >"$W/plan"
grep -qE '^  built +in full: the images of this name are not known to be of this source \(--parent IMAGE ' "$W/plan" || fail "it says $(cat "$W/plan")"
"$GRANARY" build "$W/moved" "$store/set:tomorrow" --quiet --dry-run --json >"$W/plan"
jq -e '.rebuild.parent_other_source and .rebuild.parent == null' "$W/plan" >"$W/null" || fail "it says $(cat "$W/plan")"
"$GRANARY" build "$W/moved" "$image" --quiet --dry-run --json >"$W/plan"
jq -e '.rebuild.parent_other_source and .rebuild.parent == null' "$W/plan" >"$W/null" || fail "under the same tag it says $(cat "$W/plan")"
"$GRANARY" build "$W/moved" "$store/set:tomorrow" --parent "$image" --quiet --dry-run --json >"$W/plan"
jq -e '(.rebuild.parent_other_source | not) and .rebuild.parent_name == "set:daily"' "$W/plan" >"$W/null" || fail "it says $(cat "$W/plan")"

echo "== going back"
"$GRANARY" tag "$store/set:$first_tag" daily >"$W/null"
[ "$(digest_of "$image")" = "$(jq -r .digest "$W/first")" ] || fail "tag did not go back"
build "$image" >"$W/fourth"
[ "$(jq -r .digest "$W/fourth")" = "$(jq -r .digest "$W/third")" ] || fail "the same step again is another image"

echo "== a garbage collection in the middle takes nothing"
head -c 3000 /dev/urandom >"$W/tree/a/9"
(while [ ! -e "$W/stop" ]; do "$GRANARY" gc "$store" --grace 0 --keep-last 1 >"$W/gc" 2>&1 || true; done) &
collector=$!
for day in 1 2 3 4 5; do
    head -c $((day * 1000)) /dev/urandom >"$W/tree/b/day$day"
    until build "$image" >"$W/raced" 2>"$W/err"; do # it may have stood still while gc took what it was to use
        grep -q 'run the build again' "$W/err" || fail "a build beside gc: $(cat "$W/err")"
    done
    "$GRANARY" verify --deep --quiet "$image" >"$W/log" 2>&1 || { cat "$W/log"; fail "day $day: gc took what is needed"; }
done
touch "$W/stop"
wait "$collector"
same_tree "$image"

echo "== erasure"
"$GRANARY" export "$image" "$W/image" --quiet
grep -q 'the only copy of a secret' "$W/image" || fail "nothing to erase: this test proves nothing"
build "$image" --scrub >"$W/scrubbed"
jq -e '.rebuild.chunks_scrubbed >= 1 and .bytes_read == 0' "$W/scrubbed" >"$W/null" || fail "scrub: $(cat "$W/scrubbed")"
"$GRANARY" export "$image" "$W/image" --quiet
! grep -q 'the only copy of a secret' "$W/image" || fail "scrub left the secret"
same_tree "$image"

echo "== a damaged parent"
printf 'x' >>"$W/tree/large"
for object in "$store"/catalogs/*/*; do printf 'damage' | dd of="$object" bs=1 seek=40 conv=notrunc status=none; done
status=0
build "$image" --parent "$image" >"$W/null" 2>"$W/err" || status=$?
[ "$status" = 1 ] && grep -q -- '--parent none' "$W/err" || fail "a damaged parent: $status $(cat "$W/err")"
build "$image" >"$W/null" 2>"$W/err"
grep -q 'the parent image set:daily is damaged' "$W/err" || fail "does not say it: $(cat "$W/err")"
same_tree "$image"

echo "== ext4"
build "$store/set4:daily" --fs ext4 >"$W/null"
head -c 9000 /dev/urandom >"$W/tree/a/12"
rm "$W/tree/a/15"
build "$store/set4:daily" --fs ext4 >"$W/ext4"
jq -e '.rebuild.changed == 1 and .rebuild.removed == 1 and .bytes_read == 9000' "$W/ext4" >"$W/null" || fail "ext4: $(cat "$W/ext4")"
"$GRANARY" export "$store/set4:daily" "$W/image" --quiet
e2fsck -fn "$W/image" >"$W/log" 2>&1 || { cat "$W/log"; fail "e2fsck of a rebuilt image"; }
rm -rf "$W/out"
mkdir "$W/out"
debugfs -R "rdump / $W/out" "$W/image" >"$W/log" 2>&1
diff -r --no-dereference -x lost+found "$W/tree" "$W/out" || fail "the ext4 image is not the tree"

echo "== words"
for words in '--parent /elsewhere/set:v1' '--compact-budget 101%' '--compact-budget x'; do
    status=0
    # shellcheck disable=SC2086 # two words
    build "$image" $words >"$W/null" 2>"$W/err" || status=$?
    [ "$status" = 2 ] || fail "$words: exit $status $(cat "$W/err")"
done
build "$image" --parent "$store/set:none" >"$W/null" 2>"$W/err" && fail "a parent that is not there"
grep -q "none" "$W/err" || fail "$(cat "$W/err")"
build "$image" --chunk-size 128K >"$W/other"
jq -e '.rebuild.parent_differs and .rebuild.parent == null' "$W/other" >"$W/null" || fail "another chunk size: $(cat "$W/other")"
