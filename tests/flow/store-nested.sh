#!/bin/bash
# A store inside a store is refused before anything is written; where there is one, images and gc go on; a tag under
# another's name, or of another store, is refused.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir -p "$W/tree" "$W/a" "$W/b"
for i in $(seq 20); do head -c 20000 /dev/urandom >"$W/tree/$i"; done

# refused_there VERB OPERAND... DIRECTORY: exit 1, the sentence, and DIRECTORY is not there or as it was
refused_there() {
    local status=0 dir=${*: -1}
    find "$dir" 2>"$W/null" | sort >"$W/before" || true
    "$GRANARY" "${@:1:$#-1}" -q >"$W/out" 2>"$W/err" || status=$?
    [ $status = 1 ] || fail "$*: exit $status: $(cat "$W/err")"
    grep -qF 'a store inside or around the store' "$W/err" || fail "$*: says $(cat "$W/err")"
    find "$dir" 2>"$W/null" | sort | cmp - "$W/before" || fail "$*: something was written"
}

echo "== refused: below a store, around one, where NAME is one"
lake=$W/a/lake
"$GRANARY" build -q "$W/tree" "$lake/faces:v1" >"$W/out"
refused_there build "$W/tree" "$lake/images/faces:v1" "$lake"
refused_there build "$W/tree" "$lake/deep/er/faces:v1" "$lake"
refused_there build "$W/tree" "$W/a/lake" "$W/a"
refused_there copy "$lake/faces:v1" "$lake/other" "$lake"
"$GRANARY" build -q "$W/tree" "$W/b/images/faces:v1" >"$W/out"
refused_there build "$W/tree" "$W/b/faces:v1" "$W/b"
"$GRANARY" build -q "$W/tree" "$W/a/beside/faces:v1" >"$W/out"

echo "== there is one already: the outer store is listed and collected, and so is the inner one"
cp -a "$lake" "$W/outer"
cp -a "$W/b/images/." "$W/outer/images"
head -c 100 /dev/urandom >"$W/tree/1"
for store in "$W/outer" "$W/outer/images"; do
    "$GRANARY" build -q "$W/tree" "$store/faces:v2" >"$W/out" || fail "build into $store"
    "$GRANARY" images "$store" --json >"$W/json" 2>"$W/err" || fail "images of $store: $(cat "$W/err")"
    jq -e '.images | map(.tag) | contains(["v1", "v2"])' "$W/json" >"$W/null" || fail "images of $store: $(cat "$W/json")"
    "$GRANARY" gc "$store" --grace 0 >"$W/out" 2>"$W/err" || fail "gc of $store: $(cat "$W/err")"
    "$GRANARY" verify -q --deep "$store/faces:v1" || fail "$store/faces:v1"
    "$GRANARY" verify -q --deep "$store/faces:v2" || fail "$store/faces:v2"
done
"$GRANARY" images "$W/outer" >"$W/out" 2>"$W/err"
[ "$(grep -c 'is no tag, and is skipped' "$W/err")" = 1 ] || fail "the outer store's warning: $(cat "$W/err")"

echo "== unnest takes it out"
head -c 100 /dev/urandom >"$W/tree/1"
"$GRANARY" build -q "$W/tree" "$W/outer/faces:v2" >"$W/out" 2>"$W/null"
status=0
"$GRANARY" unnest -q "$W/outer" >"$W/out" 2>"$W/err" || status=$?
[ $status = 1 ] || fail "one name, two images: exit $status"
grep -q 'faces:v2 is one image in .* and another in' "$W/err" || fail "$(cat "$W/err")"
for tag in v1 v2; do
    "$GRANARY" copy -q "$W/outer/images/faces:$tag" "$W/outer/faces:inner-$tag" >"$W/out"
    "$GRANARY" rm "$W/outer/images/faces:$tag" >"$W/out"
done
find "$W/outer" | sort >"$W/before"
"$GRANARY" unnest -n "$W/outer" >"$W/out"
grep -q 'would copy 2 images with 2 tags' "$W/out" || fail "$(cat "$W/out")"
find "$W/outer" | sort | cmp - "$W/before" || fail "a dry run wrote something"
"$GRANARY" unnest -q --json "$W/outer" >"$W/json"
jq -e '.stores == [.stores[0]] and .stores[0].directory == "images" and .stores[0].tags == 2' "$W/json" >"$W/null" ||
    fail "$(cat "$W/json")"
[ ! -e "$W/outer/images/granary.json" ] || fail "the inner store is still there"
[ -z "$(find "$W/outer/images/packs" "$W/outer/images/manifests" -type f)" ] || fail "it left objects"
"$GRANARY" images "$W/outer" >"$W/out" 2>"$W/err"
[ ! -s "$W/err" ] || fail "images still warns: $(cat "$W/err")"
"$GRANARY" gc "$W/outer" --grace 0 >"$W/out"
"$GRANARY" gc "$W/outer" --grace 0 >"$W/out"
for tag in v1 v2 inner-v1 inner-v2; do "$GRANARY" verify -q --deep "$W/outer/faces:$tag" || fail "$tag"; done
"$GRANARY" unnest "$W/outer" >"$W/out"
grep -q '^there is no store among the images' "$W/out" || fail "$(cat "$W/out")"

# nested DIR: a store with another one in its images/
nested() {
    rm -rf "$1"
    cp -a "$lake" "$1"
    cp -a "$W/b/images/." "$1/images"
}

echo "== who waits for an unnest can be interrupted; a build fails when that has ended, and names the outer store"
nested "$W/closing"
inner=$W/closing/images
mkdir -p "$inner/trash"
printf '{"format":"granary-lease","version":1,"started":1,"renewed":%s,"host":"h","pid":1,"image":""}' "$(date +%s)" \
    >"$inner/trash/sweeping"
background env --default-signal=INT "$GRANARY" tag "$inner/faces:v1" later >"$W/out" 2>"$W/err"
wait_for 60 grep -q 'waits until a gc or unnest has removed its objects' "$W/err"
kill -INT "$BACKGROUND_PID"
status=0
wait "$BACKGROUND_PID" || status=$?
[ $status = 130 ] || fail "a tag that waits, interrupted: exit $status: $(cat "$W/err")"
[ -z "$(ls "$inner/builds")" ] || fail "its lease is left"
"$GRANARY" build -q "$W/tree" "$inner/faces:late" >"$W/out" 2>"$W/err" &
build=$!
wait_for 60 bash -c "compgen -G '$inner/builds/*' >'$W/null'"
rm "$inner/granary.json" "$inner/trash/sweeping"
status=0
wait $build || status=$?
[ $status = 1 ] || fail "a build into a store that has gone: exit $status: $(cat "$W/err")"
grep -q "images is no longer a store: .* has moved its images into .*/closing; nothing was published, write .*/closing/NAME" \
    "$W/err" || fail "it says $(cat "$W/err")"
[ ! -e "$inner/granary.json" ] || fail "it made the store anew"
[ -z "$(ls "$inner/builds")" ] || fail "its lease is left"

echo "== builds race an unnest: each is either in the outer store or has failed"
raced=0 closed=0
for ((round = 1; round <= 8 || raced == 0 || closed == 0; round++)); do
    [ $round -le 50 ] || fail "in 50 rounds $raced builds were published, and $closed found no store"
    nested "$W/race"
    builds=()
    for n in 1 2 3; do
        tenths=$((RANDOM % (n * round + 2))) # later each round, so that on a slow machine too some come after the unnest
        { sleep "$((tenths / 10)).$((tenths % 10))"
          "$GRANARY" build -q "$W/tree" "$W/race/images/dogs:r$n" >"$W/null" 2>"$W/err-$n"; } &
        builds+=($!)
    done
    for ((i = 0; ; i++)); do
        status=0
        "$GRANARY" unnest -q "$W/race" >"$W/out" 2>"$W/err" || status=$?
        [ $status != 0 ] || break
        grep -q 'a build into it is running\|was published meanwhile' "$W/err" || fail "round $round: $(cat "$W/err")"
        [ $i -lt 1000 ] || fail "round $round: unnest never comes to its turn"
    done
    for n in 1 2 3; do
        status=0
        wait "${builds[$((n - 1))]}" || status=$?
        if [ $status = 0 ]; then
            "$GRANARY" verify -q --deep "$W/race/dogs:r$n" || fail "round $round: what build $n published is lost"
            raced=$((raced + 1))
        else
            grep -q 'is no longer a store\|inside or around the store' "$W/err-$n" || fail "round $round: $(cat "$W/err-$n")"
            closed=$((closed + 1))
        fi
    done
    [ ! -e "$W/race/images/granary.json" ] || fail "round $round: the inner store was made anew"
    "$GRANARY" images "$W/race" >"$W/out" 2>"$W/err"
    [ ! -s "$W/err" ] || fail "round $round: images warns: $(cat "$W/err")"
done
echo "$raced builds were published, $closed found no store"

# no_reader_takes NAME:TAG SENTENCE: each verb that reads it refuses it so
no_reader_takes() {
    local verb status
    for verb in inspect ls verify; do
        status=0
        "$GRANARY" $verb "$lake/$1" >"$W/out" 2>"$W/err" || status=$?
        [ $status = 1 ] && grep -qF "$2" "$W/err" || fail "$verb: $status $(cat "$W/err")"
    done
}

echo "== a tag that was copied from another name"
"$GRANARY" build -q "$W/tree" "$lake/dogs:v1" >"$W/out"
cp "$lake/images/dogs/v1" "$lake/images/faces/v9"
no_reader_takes faces:v9 'images/faces/v9 is the tag dogs:v1, copied there'
"$GRANARY" images "$lake" >"$W/out" 2>"$W/err"
grep -qF 'images/faces/v9 is the tag dogs:v1' "$W/err" || fail "images does not warn: $(cat "$W/err")"
"$GRANARY" rm "$lake/faces:v9" >"$W/out" 2>"$W/err" || fail "rm: $(cat "$W/err")"
[ ! -e "$lake/images/faces/v9" ] || fail "rm left it"
"$GRANARY" tag "$lake/dogs:v1" v9 >"$W/out"
"$GRANARY" inspect "$lake/dogs:v9" >"$W/out"

echo "== a tag that was copied from another store, with everything it names; the store as a whole is another matter"
mkdir "$W/tree/more"
"$GRANARY" build -q "$W/tree" "$W/away/faces:new" >"$W/out"
cp -a "$W/away" "$W/moved"
"$GRANARY" inspect "$W/moved/faces:new" >"$W/out" || fail "a store that was copied as a whole"
cp -an "$W/away/." "$lake"
no_reader_takes faces:new 'images/faces/new was published in another store'
"$GRANARY" images "$lake" >"$W/out" 2>"$W/err"
grep -qF 'was published in another store' "$W/err" || fail "images does not warn: $(cat "$W/err")"
! "$GRANARY" inspect "$lake/faces:new" >"$W/out" 2>"$W/err" || fail "it can be read" # images warned of another tag
remedy=$(sed -n "s/.*name it here by 'granary \(tag [^']*\)'.*/\1/p" "$W/err")
[ "$remedy" ] || fail "no remedy: $(cat "$W/err")"
eval "\"$GRANARY\" $remedy" >"$W/out" || fail "the remedy: granary $remedy"
"$GRANARY" verify -q --deep "$lake/faces:new" || fail "the tag that was put anew"
