#!/bin/bash
# granary diff: what two trees have otherwise, by lines, objects and counts.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir -p "$W/tree/a" "$W/tree/b"
printf 'same' >"$W/tree/a/same"
printf 'one' >"$W/tree/a/changed"
printf 'mode' >"$W/tree/b/mode"
printf 'gone' >"$W/tree/b/gone"
printf 'file' >"$W/tree/kind"
ln -s a/same "$W/tree/link"
touch -d 2020-01-01 "$W/tree/kind" "$W/tree/a"/* "$W/tree/b"/*
store=$W/store
"$GRANARY" build "$W/tree" "$store/set:one" --quiet
printf 'two' >"$W/tree/a/changed"
chmod 600 "$W/tree/b/mode"
rm "$W/tree/b/gone" "$W/tree/kind" "$W/tree/link"
mkdir "$W/tree/kind"
ln -s a/changed "$W/tree/link"
printf 'new' >"$W/tree/b/"$'new\nline\xff'
"$GRANARY" build "$W/tree" "$W/other/set:two" --quiet

echo "== lines"
"$GRANARY" diff "$store/set:one" "$W/other/set:two" -0 | tr '\0' '|' >"$W/got"
printf 'M a/changed|D b/gone|m b/mode|A b/new\nline\xff|M kind|M link|' >"$W/want"
cmp "$W/want" "$W/got" || { cat "$W/got"; fail "the lines of diff"; }
"$GRANARY" diff "$W/other/set:two" "$store/set:one" -0 | tr '\0' '|' >"$W/got"
printf 'M a/changed|A b/gone|m b/mode|D b/new\nline\xff|M kind|M link|' >"$W/want"
cmp "$W/want" "$W/got" || { cat "$W/got"; fail "the lines of the opposite diff"; }

echo "== objects and counts"
"$GRANARY" diff "$store/set:one" "$W/other/set:two" --json >"$W/json"
[ "$(jq -r 'select(.change == "added") | .path_hex' "$W/json")" = 622f6e65770a6c696e65ff ] || fail "$(cat "$W/json")"
[ "$(jq -r .change "$W/json" | sort | uniq -c | awk '{print $2 $1}' | tr '\n' ' ')" = "added1 attributes1 changed3 removed1 " ] ||
    fail "changes: $(cat "$W/json")"
"$GRANARY" diff "$store/set:one" "$W/other/set:two" --stat --json |
    jq -e '.added == {paths: 1, bytes: 3} and .removed == {paths: 1, bytes: 4} and .changed == {paths: 3, bytes: 3}
           and .attributes == {paths: 1, bytes: 4} and .unchanged == {paths: 4, bytes: 4}' >"$W/null" || fail "--stat --json"
"$GRANARY" diff "$store/set:one" "$W/other/set:two" --stat | grep -x 'added        1 path, files of 3 B' >"$W/null" || fail "--stat"

echo "== exit codes"
status=0
"$GRANARY" diff --exit-code "$store/set:one" "$W/other/set:two" >"$W/null" 2>"$W/err" || status=$?
[ "$status" = 3 ] && [ ! -s "$W/err" ] || fail "--exit-code of a difference: $status $(cat "$W/err")"
"$GRANARY" diff --exit-code "$store/set:one" "$store/set:one" >"$W/out" || fail "--exit-code of the same image"
[ ! -s "$W/out" ] || fail "an image differs from itself: $(cat "$W/out")"
status=0
"$GRANARY" diff "$store/set:one" "$store/set:none" >"$W/null" 2>"$W/err" || status=$?
[ "$status" = 1 ] && grep -q none "$W/err" || fail "a missing image: $status $(cat "$W/err")"
