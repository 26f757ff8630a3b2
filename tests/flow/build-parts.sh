#!/bin/bash
# A source built in parts, by the processes that the pods of deploy/kubernetes/build-parts.yaml would be, and joined: the
# joined image is the tree, and needs no tag of a part. A build upon the parts reads no file again but what changed.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

python3 -c 'import yaml' || skip "apt-get install python3-yaml"
store=$W/store
mkdir -p "$W/tree"/{a,b,c/d}
python3 -c 'import os, sys
for i in range(1, 901):
    with open(os.path.join(sys.argv[1], ("a", "b", "c/d")[i % 3], str(i)), "wb") as f:
        f.write(os.urandom(i * 37 % 900 + 1))
for i in range(1, 9):
    with open(os.path.join(sys.argv[1], f"large{i}"), "wb") as f:
        f.write(os.urandom(1100000 + i))' "$W/tree"
ln "$W/tree/a/3" "$W/tree/c/linked"
ln -s large1 "$W/tree/c/link"
mkdir -m 700 "$W/tree/empty"
chmod 604 "$W/tree/b/4"

# args JOB [INDEX]: the arguments of a Job's container as kubelet would make them, a line each, with places of this test
args() {
    python3 -c 'import sys, yaml
jobs = {job["metadata"]["name"]: job for job in yaml.safe_load_all(open(sys.argv[1]))}
job = jobs[sys.argv[2]]["spec"]
assert sys.argv[3] == "-" or (job["completionMode"] == "Indexed" and job["completions"] == 4)
for arg in job["template"]["spec"]["containers"][0]["args"]:
    print(arg.replace("$(JOB_COMPLETION_INDEX)", sys.argv[3]).replace("s3://lake/raw/faces", sys.argv[4] + "/tree")
             .replace("s3://lake/images", sys.argv[4] + "/store"))' \
        "$GRANARY_SOURCE/deploy/kubernetes/build-parts.yaml" "$1" "${2:--}" "$W"
}
run_job() { # run_job OUT JOB [INDEX]
    local out=$1 words
    shift
    readarray -t words < <(args "$@")
    "$GRANARY" "${words[@]}" --json >"$out"
}
build_parts() {
    local pids=() i
    for i in 0 1 2 3; do
        run_job "$W/part$i" granary-parts-faces $i &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "a part failed"; done
}
join() { run_job "$W/joined" granary-join-faces; }

# same_tree IMAGE: what stands in it is the tree, by fsck.erofs' own reading of the image
same_tree() {
    rm -rf "$W/out" "$W/image"
    "$GRANARY" export "$1" "$W/image" --quiet
    fsck.erofs --extract="$W/out" "$W/image" >"$W/log" 2>&1 || { cat "$W/log"; fail "fsck.erofs of $1"; }
    diff -r --no-dereference "$W/tree" "$W/out" || fail "$1 is not the tree"
    (cd "$W/tree" && find . -printf '%P %y %m %U %G %T@ %l\n' | sort) >"$W/want"
    (cd "$W/out" && find . -printf '%P %y %m %U %G %T@ %l\n' | sort) >"$W/got"
    diff "$W/want" "$W/got" || fail "$1: attributes"
}

echo "== four parts at the same time, and the whole of them"
build_parts
bytes=$(jq -s 'map(.bytes_read) | add' "$W"/part?)
[ "$bytes" = "$(find "$W/tree" -type f ! -name linked -printf '%s\n' | jq -s add)" ] || fail "the parts read $bytes"
jq -se '(map(.counts.files) | add) == 908 and all(.counts.files > 0)' "$W"/part? >"$W/null" || fail "the parts are $(cat "$W"/part?)"
join
jq -e ".images == 4 and .counts.files == 908 and .bytes_reused == $bytes and .bytes_uploaded < 300000" "$W/joined" \
    >"$W/null" || fail "the join cost $(cat "$W/joined")"
same_tree "$store/faces:whole"
"$GRANARY" build "$W/tree" "$W/other/faces:one" --quiet
"$GRANARY" diff "$W/other/faces:one" "$store/faces:whole" --exit-code || fail "one build of all is another tree"
"$GRANARY" inspect "$store/faces:whole" --json >"$W/inspect"
jq -e '(.provenance.sources | length == 4 and all(test("/faces:part-[0-3]@sha256:"))) and .provenance.parents == 4
       and .provenance.part == null and .parent == null' "$W/inspect" >"$W/null" || fail "the joined image says $(jq .provenance "$W/inspect")"
"$GRANARY" inspect "$store/faces:part-2" >"$W/inspect"
grep -q ', part 2/4$' "$W/inspect" || fail "a part does not say which"

echo "== the next day"
head -c 5000 /dev/urandom >"$W/tree/b/7"
printf 'new' >"$W/tree/c/d/new"
chmod 750 "$W/tree/a"
build_parts
join
jq -e '.bytes_uploaded < 300000' "$W/joined" >"$W/null" || fail "the second join cost $(cat "$W/joined")"
same_tree "$store/faces:whole"
"$GRANARY" build --part 1/4 "$W/tree" "$store/faces:tomorrow" --dry-run --quiet --json >"$W/plan"
jq -e '.rebuild.parent_name == "faces:part-1" and .rebuild.bytes_to_read == 0' "$W/plan" >"$W/null" ||
    fail "part 1 under a new tag is built upon $(cat "$W/plan")"
"$GRANARY" build "$W/tree" "$store/faces:tomorrow" --dry-run --quiet --json >"$W/plan"
jq -e '.rebuild.parent_name == "faces:whole" and .rebuild.bytes_to_read == 0' "$W/plan" >"$W/null" ||
    fail "the whole under a new tag is built upon $(cat "$W/plan")"

echo "== a build upon the parts reads what changed after they were built"
head -c 4321 /dev/urandom >"$W/tree/b/7"
"$GRANARY" build "$W/tree" "$store/faces:whole" --parent "$store/faces:part-0" --parent "$store/faces:part-1" \
    --parent "$store/faces:part-2" --parent "$store/faces:part-3" --quiet --json >"$W/joined"
jq -e '.bytes_read == 4321 and .rebuild.parents == 4 and .rebuild.parent == null' "$W/joined" >"$W/null" ||
    fail "the build upon the parts read $(cat "$W/joined")"
same_tree "$store/faces:whole"

echo "== the joined image needs no tag of a part"
"$GRANARY" images "$store" --all --json | jq -r '.. | objects | select(.tag?) | .name + ":" + .tag' | sort -u >"$W/tags"
grep -v '^faces:whole$' "$W/tags" | while read -r tag; do "$GRANARY" rm "$store/$tag" >"$W/null"; done
"$GRANARY" gc "$store" --grace 0 >"$W/gc"
"$GRANARY" gc "$store" --grace 0 >"$W/gc"
"$GRANARY" verify "$store/faces:whole" --deep --quiet >"$W/null" || fail "gc took what the joined image uses"
same_tree "$store/faces:whole"

echo "== what is wrong is said"
refused() { # refused TEXT ARG...
    local text=$1
    shift
    ! "$GRANARY" build "$@" --quiet 2>"$W/err" || fail "$*: was built"
    grep -qF -- "$text" "$W/err" || fail "$*: $(cat "$W/err")"
}
for part in 4/4 1 -1/4 1/0 a/b 1/4x 1/99999; do
    refused "--part: '$part' is no part" --part "$part" "$W/tree" "$store/faces:wrong"
done
refused 'tar shards' --part 0/2 "tar:$W/tree" "$store/faces:wrong"
refused 'stands alone' --parent none --parent "$store/faces:whole" "$W/tree" "$store/faces:wrong"
refused 'of another store' --parent "$store/faces:whole" --parent "$W/other/faces:one" "$W/tree" "$store/faces:wrong"
refused 'part-7' --parent "$store/faces:whole" --parent "$store/faces:part-7" "$W/tree" "$store/faces:wrong"
"$GRANARY" images "$store" --all >"$W/images"
! grep -q wrong "$W/images" || fail "a refused build published something"
