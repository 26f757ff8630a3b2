#!/bin/bash
# granary cache simulate: what it prints of a trace, and what it says of one that is damaged.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

# refused STATUS TEXT ARGUMENT...: that exit status, and TEXT (a regex) on standard error
refused() {
    local want=$1 text=$2 status=0
    shift 2
    "$GRANARY" cache simulate "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = "$want" ] || { cat "$W/err"; fail "exit $status instead of $want: $*"; }
    grep -qE -- "$text" "$W/err" || { cat "$W/err"; fail "no '$text' said of: $*"; }
    [ "$(wc -l <"$W/err")" = 1 ] || { cat "$W/err"; fail "more than one sentence of: $*"; }
}

echo "== four epochs of 100 chunks, in turn, through a cache of 50: lru has always just lost what is wanted"
for epoch in 1 2 3 4; do
    echo "# epoch $epoch"
    for i in $(seq 100 199); do echo "$i"; done
    echo epoch
done >"$W/trace"
"$GRANARY" cache simulate --trace "$W/trace" --size 3200K --json >"$W/json"
hits() { jq ".results[] | select(.policy == \"$1\").hits" "$W/json"; }
[ "$(jq -c '[.asks, .chunks, .bytes, .size]' "$W/json")" = "[400,100,6553600,3276800]" ] || fail "$(cat "$W/json")"
[ "$(hits lru)" = 0 ] || fail "lru: $(hits lru) hits"
for policy in auto sticky optimum; do
    [ "$(hits $policy)" = 150 ] || fail "$policy: $(hits $policy) hits"
done
jq -e '[.results[] | select(.policy == "auto").epochs[].hit_ratio] == [0, 0.5, 0.5, 0.5]' "$W/json" >/dev/null || fail "epochs"

echo "== as text, one policy, from a pipe"
"$GRANARY" cache simulate --trace - --size 3200K --policy sticky <"$W/trace" >"$W/text"
grep -qE '^sticky +150 +0\.3750' "$W/text" || { cat "$W/text"; fail "no line of sticky"; }
grep -qE '^sticky +0\.0000 0\.5000 0\.5000 0\.5000$' "$W/text" || { cat "$W/text"; fail "no epochs of sticky"; }
! grep -q '^lru' "$W/text" || fail "lru was not asked for"

echo "== lengths and digests"
digest=$(printf x | sha256sum | cut -d' ' -f1)
printf '%s 64K\n%s 64K # again\n\n' "$digest" "$digest" >"$W/trace"
"$GRANARY" cache simulate --trace "$W/trace" --size 64K --policy lru --json | jq -e '.results[0] | .hits == 1 and .hit_bytes == 65536' >/dev/null ||
    fail "one chunk of 64 KiB is hit the second time"

echo "== refusals"
for line in 'not-hex' 'aa 12x' 'aa 0' 'aa 5M' 'aa 1K more' 'aa -1' 'epoch 2'; do
    printf 'aa\n# fine\n%s\n' "$line" >"$W/bad"
    refused 1 'bad, line 3: ' --trace "$W/bad" --size 1M
done
printf 'aa 1K\naa 2K\n' >"$W/bad"
refused 1 'bad, line 2: the chunk had another length before' --trace "$W/bad" --size 1M
: >"$W/empty"
refused 1 'it names no chunk' --trace "$W/empty" --size 1M
refused 1 'No such file' --trace "$W/absent" --size 1M
refused 1 'cannot be read' --trace "$W" --size 1M
refused 2 "'fifo' is none of auto, lru, s3fifo, sticky" --trace "$W/trace" --size 1M --policy fifo
refused 2 'give --trace FILE and --size SIZE' --size 1M
refused 2 'give --trace FILE and --size SIZE' --trace "$W/trace"
