#!/bin/bash
# bench/accelerators.sh without its contenders: the search finds the number that is enough, and no more accelerators are
# fed than readers of a known speed can feed. A busy machine feeds fewer, so only the upper bound is checked.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/bench/epoch/largest.sh"
reader=$GRANARY_BUILD/bench/epoch-reader
[ -x "$reader" ] || skip "no bench/epoch-reader in this build: the load of accelerators is not tested"

echo "-- every answer is found, to a sixteenth, in few trials; a failure that is not repeated is none"
enough() {
    ((++trials <= 20)) || fail "$answer of $most: no end of trials"
    if ((trials == disturbed)); then return 1; fi
    (($1 <= answer))
}
for most in 1 2 7 50; do
    for ((answer = 0; answer <= 52; answer++)); do
        want=$((answer < most ? answer : most)) trials=0 disturbed=$((answer % 8))
        largest enough "$most"
        ((LARGEST <= want && want - LARGEST <= LARGEST / 16)) || fail "$answer of $most: found $LARGEST"
        ((LARGEST < most || LARGEST == most && want == most)) || fail "$answer of $most: found $LARGEST"
    done
done

echo "-- four readers of 10 ms a file feed ten accelerators that take 40 files/s each, eleven to 91 % and twelve to 83 %"
python3 "$GRANARY_SOURCE/bench/data.py" "$W/data" 400 10 1 2500 100
"$reader" make "$W/data/set" >"$W/list"
feed() { "$reader" feed "$W/list" "$W/data/set" 4 1 "$1" 2 50 "${2:-0.5}" 10 >"$W/out" || fail "feed $1: $(cat "$W/out")"; }
fed() {
    feed "$1"
    jq -e '.errors == 0 and .au >= 0.85' "$W/out" >/dev/null
}
feed 1
jq -e '.accelerators == 1 and .errors == 0 and .au <= 1 and .files > 0' "$W/out" >/dev/null || fail "one: $(cat "$W/out")"
feed 30
jq -e '.au < 0.45' "$W/out" >/dev/null || fail "30 accelerators cannot be fed to more than a third: $(cat "$W/out")"
largest fed 40
echo "found: $LARGEST"
[ "$LARGEST" -le 12 ] || fail "$LARGEST accelerators were fed"

echo "-- too few files for five steps are refused; a changed byte is found"
! "$reader" feed "$W/list" "$W/data/set" 4 1 41 2 50 0.5 2>"$W/err" || fail "41 accelerators of 400 files"
grep -q "400 files are less than 5 steps of 41 accelerators" "$W/err" || fail "another sentence: $(cat "$W/err")"
LC_ALL=C sed -i 's/^\(.\)...../\1wrong/' "$W"/data/set/*/*
! "$reader" feed "$W/list" "$W/data/set" 4 1 1 2 50 0.5 >"$W/out" 2>"$W/err" || fail "changed files were taken for good"
grep -q "not what was made" "$W/err" || fail "nothing says which: $(cat "$W/err")"
