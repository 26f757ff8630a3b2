#!/bin/bash
# Where an image came from: a build notes it beside the tag, copies and other tags carry it as it is, inspect shows it,
# and no hostile one hides an image.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

mkdir "$W/tree" "$W/more"
seq 2000 >"$W/tree/numbers"
seq 300 >"$W/more/labels"
store=$W/store
# noted TAG_FILE: its provenance, as it is
noted() { jq -cS .provenance "$1"; }
# inspected FILTER IMAGE: what inspect says of it fulfils this filter of jq
inspected() {
    "$GRANARY" inspect -q --json "$2" >"$W/out"
    jq -e "$1" "$W/out" >"$W/null" || fail "inspect $2: $(jq -c '[.provenance, .provenance_error]' "$W/out")"
}

echo "== a build notes it under both tags, and the digest does not depend on it"
(cd "$W" && "$GRANARY" build -q --json --add labels=more "$W/tree" "$store/faces:v1") >"$W/first"
first=$(jq -r .digest "$W/first")
v1=$store/images/faces/v1
jq -e --arg tree "$W/tree" --arg more "$W/more" --arg tool "$("$GRANARY" --version)" \
    '.created == .provenance.built and (.provenance | .sources == [$tree, $more] and .source_count == 2 and .files == 2
     and .tool == $tool and (has("parent") | not))' "$v1" >"$W/null" || fail "$(noted "$v1")"
[ "$(noted "$v1")" = "$(noted "$store/images/faces/$(jq -r .unique_tag "$W/first")")" ] || fail "the build tag says something else"
"$GRANARY" build -q --json --add "labels=$W/more" "file://$W/tree" "$W/store2/faces:v1" >"$W/out"
[ "$(jq -r .digest "$W/out")" = "$first" ] || fail "another address gives another digest"
[ "$(noted "$W/store2/images/faces/v1")" != "$(noted "$v1")" ] || fail "the address is not noted as it was given"
inspected '.provenance.bytes == .counts.bytes and .provenance.files == .counts.files and .provenance.built == .created' "$store/faces:v1"
"$GRANARY" inspect -q "$store/faces:v1" >"$W/out"
grep -q "^built from  *$W/tree$" "$W/out" && grep -q " 2 files, .* by granary " "$W/out" || fail "$(cat "$W/out")"
echo more >>"$W/tree/numbers"
"$GRANARY" build -q "$W/tree" "$store/faces:v3" --parent "$store/faces:v1" >"$W/out"
inspected ".provenance.parent == \"$first\"" "$store/faces:v3"
tar -cf "$W/shard.tar" -C "$W" tree
(cd "$W" && "$GRANARY" build -q tar:shard.tar "$store/shards:v1") >"$W/out"
inspected ".provenance.sources == [\"tar:$W/shard.tar\"]" "$store/shards:v1"
for n in 0 1; do tar -cf "$W/shard-$n.tar" --transform "s/^/$n-/" -C "$W" tree; done
(cd "$W" && "$GRANARY" build -q "tar:shard-{0..1}.tar" "$store/shards:v2") >"$W/out"
inspected ".provenance.sources == [\"tar:$W/shard-{0..1}.tar\"]" "$store/shards:v2"
(cd "$W/tree" && "$GRANARY" build -q . "$store/here:v1") >"$W/out"
inspected ".provenance.sources == [\"$W/tree\"]" "$store/here:v1"

echo "== other tags and copies carry it, with what a later version may have added"
jq -c '.provenance.later = {a: [1, null, "ä"]}' "$v1" >"$W/doc"
cp "$W/doc" "$v1"
before=$(noted "$v1")
"$GRANARY" tag "$store/faces:v1" v2 >"$W/out"
[ "$(noted "$store/images/faces/v2")" = "$before" ] || fail "tag: $(noted "$store/images/faces/v2")"
"$GRANARY" copy -q --json "$store/faces:v2" "$W/store3/other:now" >"$W/out"
for tag in now "$(jq -r .unique_tag "$W/out")"; do
    [ "$(noted "$W/store3/images/other/$tag")" = "$before" ] || fail "copy: $(noted "$W/store3/images/other/$tag")"
done
inspected '.provenance.source_count == 2' "$W/store3/other:now"
"$GRANARY" tag "$store/faces:v1@$first" v5 >"$W/out"
[ "$(noted "$store/images/faces/v5")" = "$before" ] || fail "tag by digest: $(noted "$store/images/faces/v5")"

echo "== without one, as from an earlier build; and hostile ones"
# shows VALUE FILTER: with this provenance in the tag, the image is read, and inspect says so
shows() {
    jq -c ".provenance = $1" "$W/doc" >"$v1"
    inspected "$2" "$store/faces:v1"
    "$GRANARY" export -q "$store/faces:v1" "$W/image"
}
jq -c 'del(.provenance)' "$W/doc" >"$v1"
inspected '.provenance == null and .provenance_error == null' "$store/faces:v1"
"$GRANARY" tag "$store/faces:v1" v4 >"$W/out"
jq -e 'has("provenance") | not' "$store/images/faces/v4" >"$W/null" || fail "a tag without provenance got one"
inspected '.provenance == null' "$store/faces@$first"
shows '"text"' '.provenance == null and .provenance_error == null'
shows '{sources: ["x" * 2000]}' '.provenance == null and .provenance_error == null'
shows '{sources: "all"}' '.provenance == null and (.provenance_error | contains("\"sources\" is missing or no list"))'
"$GRANARY" inspect -q "$store/faces:v1" >"$W/out"
grep -q '^built from  *not known: provenance: "sources"' "$W/out" || fail "$(cat "$W/out")"
