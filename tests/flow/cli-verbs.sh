#!/bin/bash
# The verbs over a file store: images, inspect, ls against find, export, tag, rm, gc, exit codes and refusals.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

# expect STATUS TEXT COMMAND...: that exit status, and TEXT (a regex) on standard error
expect() {
    local want=$1 text=$2 status=0
    shift 2
    "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = "$want" ] || { cat "$W/err"; fail "exit $status instead of $want: $*"; }
    grep -qE -- "$text" "$W/err" || { cat "$W/err"; fail "no '$text' said by: $*"; }
}

mkdir -p "$W/tree/dir/sub" "$W/tree/dir-2" "$W/other"
printf 'a body' >"$W/tree/dir/file"
head -c 300000 /dev/urandom >"$W/tree/dir/sub/large"
printf 'x' >"$W/tree/dir-2/x"
ln -s ../dir "$W/tree/dir-2/link"
ln "$W/tree/dir/file" "$W/tree/hard"
: >"$W/tree/dir/empty"
printf 'hostile' >"$W/tree/"$'evil\n\x1b[31mname\xff'
head -c 200000 /dev/urandom >"$W/other/only-here"
store=$W/store

echo "== build, twice: the second uploads nothing"
"$GRANARY" build "$W/tree" "$store/set:v1" --json >"$W/first.json"
"$GRANARY" build "$W/tree" "$store/set:v2" --json >"$W/second.json"
[ "$(jq -r .digest "$W/first.json")" = "$(jq -r .digest "$W/second.json")" ] || fail "another digest for the same tree"
[ "$(jq .packs_new "$W/second.json")" = 0 ] || fail "the second build uploaded packs again"
[ "$(jq .counts.files "$W/first.json")" = 5 ] || fail "counts: $(jq -c .counts "$W/first.json")"

echo "== images and inspect"
"$GRANARY" images "$store" >"$W/images"
short=$(jq -r .digest "$W/first.json" | cut -c 8-19)
grep -qE "^set  *v1  *5  .* $short\$" "$W/images" && grep -qE '^set  *v2  ' "$W/images" || fail "images lists: $(cat "$W/images")"
[ "$(wc -l <"$W/images")" = 3 ] && grep -qE '^NAME  *TAG  *FILES  *SIZE  *AGE  *DIGEST$' "$W/images" || fail "images: $(cat "$W/images")"
"$GRANARY" images "$store" set --all >"$W/images"
grep -q "^set  *$(jq -r .unique_tag "$W/first.json") " "$W/images" || fail "images --all: $(cat "$W/images")"
"$GRANARY" images "$store" other >"$W/images" && [ ! -s "$W/images" ] || fail "images of another name: $(cat "$W/images")"
"$GRANARY" images "$store" --json | jq -e --arg tag "$(jq -r .unique_tag "$W/first.json")" \
    '.images | map(.tag) | contains(["v1", "v2", $tag])' >"$W/null" || fail "a tag is missing from images --json"
"$GRANARY" inspect "$store/set:v1" --json >"$W/inspect.json"
jq -e '.size > 0 and .packs == 1 and .chunks > .holes and .chunk_size == 65536 and .counts.hard_links == 1
       and .compression_ratio >= 1 and .filesystem == "erofs" and .tag == "v1"' "$W/inspect.json" >"$W/null" ||
    fail "inspect says $(cat "$W/inspect.json")"
jq -e '([.sizes[].files] | add) == .counts.files and ([.sizes[].bytes] | add) == .counts.bytes
       and .dead_bytes < .chunk_size and .foreign_bytes == 0 and .packs_missing == 0 and .dedupe_ratio >= 1' "$W/inspect.json" \
    >"$W/null" || fail "inspect says $(cat "$W/inspect.json")"
digest=$(jq -r .digest "$W/inspect.json")
[ "$digest" = "$(jq -r .digest "$W/first.json")" ] || fail "inspect and build disagree"
[ "$(digest_of "$store/set@$digest")" = "$digest" ] || fail "the image is not found by its digest"

echo "== ls is find"
(cd "$W/tree" && find . -mindepth 1 -printf '%P\0' | sort -z) >"$W/want"
"$GRANARY" ls -R -0 "$store/set:v1" | sort -z >"$W/got"
cmp "$W/want" "$W/got" || fail "ls -R differs from find"
"$GRANARY" ls -R -0 "$store/set:v1" >"$W/order"
cmp "$W/order" <(sort -z "$W/order") || fail "ls is not in the byte order of the full path"
[ "$("$GRANARY" ls "$store/set:v1" dir | tr '\n' ' ')" = "dir/empty dir/file dir/sub " ] || fail "ls dir"
[ "$("$GRANARY" ls "$store/set:v1" /dir/file)" = dir/file ] || fail "ls of a file"
"$GRANARY" ls -l "$store/set:v1" dir-2 | grep -E '^lrwx.* dir-2/link -> \.\./dir$' >"$W/null" || fail "ls -l of a link"
"$GRANARY" ls -l "$store/set:v1" | grep -E ' hard link to dir/file$' >"$W/null" || fail "ls -l of a hard link"
expect 1 "no path 'dir/none'" "$GRANARY" ls "$store/set:v1" dir/none
expect 1 "no path 'di'" "$GRANARY" ls "$store/set:v1" di
offset=$("$GRANARY" ls --json "$store/set:v1" dir/sub/large | jq '.extents[0].offset')
[ "$("$GRANARY" ls --at $((offset + 299999)) "$store/set:v1")" = dir/sub/large ] || fail "ls --at"
expect 1 "metadata" "$GRANARY" ls --at 0 "$store/set:v1"
expect 1 "past the image's end" "$GRANARY" ls --at 1T "$store/set:v1"

echo "== hostile names: bytes to a file, escaped on a terminal, UTF-8 in JSON"
script -qec "'$GRANARY' ls '$store/set:v1'" "$W/typescript" >"$W/null" </dev/null
grep -qF 'evil\n\x1b[31mname\xff' "$W/typescript" || { cat -A "$W/typescript"; fail "not escaped on a terminal"; }
! grep -q $'\x1b\[31m' "$W/typescript" || fail "an escape sequence reached the terminal"
"$GRANARY" ls --json "$store/set:v1" | jq -es 'map(.path_hex // empty) == ["6576696c0a1b5b33316d6e616d65ff"]' >"$W/null" ||
    fail "path_hex"

echo "== export"
"$GRANARY" export "$store/set:v1" "$W/image" --json | jq -e '.size > 0' >"$W/null"
fsck.erofs "$W/image" >"$W/fsck" 2>&1 || { cat "$W/fsck"; fail "fsck.erofs"; }
"$GRANARY" export "$store/set:v1" - | cmp - "$W/image" || fail "export to a pipe differs"
mkdir "$W/a-directory"
expect 1 "not a regular file" "$GRANARY" export "$store/set:v1" "$W/a-directory"
expect 1 "cannot write standard output: No space left" bash -c "'$GRANARY' export '$store/set:v1' - >/dev/full"
expect 1 "cannot create $W/none/image: No such file" "$GRANARY" export "$store/set:v1" "$W/none/image"
[ "$(find "$W" -maxdepth 1 -name 'image.*' | wc -l)" = 0 ] || fail "a temporary file is left"

echo "== tag, rm, gc"
"$GRANARY" build "$W/other" "$store/other:v1" --json >"$W/other.json"
packs() { find "$store/packs" -type f | wc -l; }
[ "$(packs)" = 2 ] || fail "two images of different bytes have two packs, not $(packs)"
"$GRANARY" tag "$store/set:v1" stable
[ "$(digest_of "$store/set:stable")" = "$digest" ] || fail "tag points elsewhere"
expect 1 "v9" "$GRANARY" tag "$store/set:v9" stable
expect 2 "tag" "$GRANARY" tag "$store/set:v1" 'no/tag'
expect 2 "only tags are removed" "$GRANARY" rm "$store/set@$digest"
[ "$("$GRANARY" gc --grace 0 --json "$store" | jq .swept)" = 0 ] || fail "gc removed what is needed"
"$GRANARY" rm "$store/other:v1" >"$W/removed"
grep -qF "lists them" "$W/removed" && eval "$(sed -n "s/.*; '\\(granary images .*\\)' lists them$/\\1/p" "$W/removed" | sed "s|^granary|'$GRANARY'|")" >"$W/left" &&
    grep -q "$(jq -r .unique_tag "$W/other.json")" "$W/left" || fail "what still keeps it is not found by what rm says: $(cat "$W/removed")"
expect 1 "v1" "$GRANARY" rm "$store/other:v1"
expect 1 "other:v1|no .*v1" "$GRANARY" inspect "$store/other:v1"
"$GRANARY" rm "$store/other:$(jq -r .unique_tag "$W/other.json")"
says() { grep -qE "^$1" "$W/gc" || fail "gc does not say '$1': $(cat "$W/gc")"; }
"$GRANARY" gc --dry-run --grace 0 "$store" >"$W/gc"
says 'would free 0 B in 0 objects$'
says '1 image, [0-9]+ objects: [1-9] needed, 0 younger than the grace period, 0 marked before$'
says 'would mark [0-9.]+ KiB in [2-9] objects for a later gc'
[ "$(packs)" = 2 ] || fail "gc --dry-run removed a pack"
"$GRANARY" gc "$store"
[ "$(packs)" = 2 ] || fail "gc removed a pack inside its grace period"
"$GRANARY" gc --grace 0 "$store" >"$W/gc"
says 'marked [0-9.]+ KiB in [2-9] objects for a later gc'
"$GRANARY" gc --dry-run --grace 0 "$store" >"$W/gc"
says 'would free [0-9.]+ KiB in [2-9] objects$'
[ "$(packs)" = 2 ] || fail "gc --dry-run removed what is due"
"$GRANARY" gc --grace 0 "$store" >"$W/gc"
says 'freed [0-9.]+ KiB in [2-9] objects$'
says '1 image, '
[ "$(packs)" = 1 ] || fail "gc left what nothing needs: $(packs) packs"
"$GRANARY" verify --deep "$store/set:stable"
! "$GRANARY" inspect "$store/set:stable" | grep -E '(^|[ :])1 (files|paths)' || fail "1 is not many"
"$GRANARY" verify --deep "$store/set:v1" --json | jq -e '.ok and .files == 4 and .chunks_bad == 0' >"$W/null" || fail "verify --json"

echo "== wrong usage is 2, failure is 1, and both have a sentence"
expect 2 "usage|IMAGE" "$GRANARY" build
expect 2 "^usage: granary VERB" "$GRANARY"
[ ! -s "$W/out" ] || fail "the usage that nobody asked for is on standard output"
"$GRANARY" help 2>"$W/null" | grep "^usage: granary VERB" >"$W/null" || fail "help is not on standard output"
expect 2 "s3://.*names no bucket: write s3://BUCKET/PREFIX" "$GRANARY" images s3://
expect 2 "Google Cloud Storage speaks S3.*--endpoint https://storage.googleapis.com" "$GRANARY" inspect gs://bucket/set
expect 2 "Alibaba OSS speaks S3" "$GRANARY" images oss://bucket
expect 2 "Azure does not speak S3" "$GRANARY" images az://container
expect 2 "source: .gs://bucket/in': Google Cloud Storage speaks S3" "$GRANARY" build gs://bucket/in "$store/x"
expect 2 "a relative path; write it from the root on, as .*PWD/store" "$GRANARY" images ./store
expect 2 '"faces" is no store' "$GRANARY" images faces
expect 2 "names a store and no image in it" "$GRANARY" ls s3://bucket
expect 2 "unknown verb 'stauts'; did you mean 'granary status'\?$" "$GRANARY" stauts
expect 2 "unknown verb 'stauts'; did you mean 'granary help status'\?$" "$GRANARY" help stauts
expect 2 "unknown verb 'evict'; did you mean 'granary cache evict'\?$" "$GRANARY" evict --all
expect 2 "^granary: cache: 'evcit' is no command of 'cache'; did you mean 'granary cache evict'\?$" "$GRANARY" cache evcit --all x
expect 2 "^granary: trace: 'recrod' is no command of 'trace'; did you mean 'granary trace record'\?$" "$GRANARY" trace recrod
expect 2 "'evcit' is no command of 'cache'; did you mean 'granary cache evict'\?$" "$GRANARY" help cache evcit
expect 2 "'ls' has no commands; 'granary help ls' shows its options" "$GRANARY" help ls evict
expect 2 "unknown option --timeuot; did you mean --timeout?" "$GRANARY" images --timeuot 3 "$store"
expect 2 "unknown option --frobnicate; 'granary help images' lists" "$GRANARY" images --frobnicate "$store"
expect 0 "no differences" "$GRANARY" diff "$store/set:v1" "$store/set:v1"
expect 2 "unknown verb 'frobnicate'; there are build, join" "$GRANARY" frobnicate
expect 2 "unknown option --frob" "$GRANARY" build --frob a b
expect 2 "unexpected operand" "$GRANARY" inspect a b
expect 2 "chunk-size" "$GRANARY" build --chunk-size 100000 "$W/tree" "$store/x"
expect 2 "zstd.none" "$GRANARY" build --compress lz4 "$W/tree" "$store/x"
expect 2 "digest" "$GRANARY" build "$W/tree" "$store/x@$digest"
expect 1 "^granary: build: --tmpdir $W/nowhere: No such" "$GRANARY" build --tmpdir "$W/nowhere" "$W/tree" "$store/x"
expect 2 "name a command; there are ls, evict" "$GRANARY" cache
expect 2 "'frob' is no command; there are ls, evict" "$GRANARY" cache frob
expect 2 "names no store; write STORE/NAME" "$GRANARY" inspect "not a reference"
expect 2 "is not DIR=SOURCE" "$GRANARY" build --add labels "$W/tree" "$store/x"
expect 2 "'ftp://host/x' is of no known kind" "$GRANARY" build ftp://host/x "$store/x"
expect 2 "is no host" "$GRANARY" build --add a=hdfs:// "$W/tree" "$store/x"
expect 2 "http://a:1 and https://a:1 are two servers" \
    "$GRANARY" build --http-token-file "$W/none" --add b="$W/tree" --add c=tar:https://a:1/c http://a:1/b "$store/x"
expect 2 "exclude each other" "$GRANARY" serve "$store/set:v1" --socket a --listen b:1
expect 2 "--metrics: '9464' is not HOST:PORT" "$GRANARY" serve "$store/set:v1" --metrics 9464
expect 2 "--listen: 'nowhere' is not HOST:PORT" "$GRANARY" serve "$store/set:v1" --listen nowhere
expect 2 "would both be exported as 'set'; serve them by two servers" "$GRANARY" serve "$store/set:v1" "$store/set@$digest"
expect 2 "^granary: serve: --quota 1G: write --quota NAME:SIZE" "$GRANARY" serve "$store/set:v1" --cache "$W/c:64M" --quota 1G
expect 2 "^granary: serve: --watermark 80:90: write --watermark HIGH:LOW" "$GRANARY" serve "$store/set:v1" --cache "$W/c:64M" --watermark 80:90
expect 2 "^granary: serve: --disk-timeout 1x: write a time" "$GRANARY" serve "$store/set:v1" --cache "$W/c:64M" --disk-timeout 1x
expect 2 "^granary: serve: --memory 1M: write a size of at least 16M, or 0 for none" "$GRANARY" serve "$store/set:v1" --memory 1M
expect 2 "^granary: serve: --cache $W/c:1M: at least 16M" "$GRANARY" serve "$store/set:v1" --cache "$W/c:1M"
expect 2 "'000000000000101%' is not a share from 1% to 99%" "$GRANARY" serve "$store/set:v1" --cache "$W/c:000000000000101%"
expect 2 "^granary: serve: --l2 ...: write the http" "$GRANARY" serve "$store/set:v1" --l2 cache1:8080
expect 2 "'101%' is not a share from 0% to 100%" "$GRANARY" build --compact-budget 101% "$W/tree" "$store/x"
expect 2 "--endpoint: 'localhost:9000' is no address; write https://HOST" "$GRANARY" images --endpoint localhost:9000 s3://bucket/x
expect 2 "--to-endpoint: 'x' is no address" "$GRANARY" copy --to-endpoint x "$store/set:v1" s3://bucket/x
expect 2 "up to 65535" "$GRANARY" serve "$store/set:v1" --listen 127.0.0.1:65536
expect 2 "give it another path" "$GRANARY" serve "$store/set:v1" --socket "$W/nbd.sock" --control "$W/nbd.sock"

echo "== what can only be read is not written to, and not waited for"
nobody=http://127.0.0.1:1/store
while read -r words; do
    # shellcheck disable=SC2086
    expect 2 "a store behind plain HTTP can only be read" timeout 60 "$GRANARY" $words
done <<END
build $W/tree $nobody/x
copy $store/set:v1 $nobody
join $nobody/x:a $nobody/y
tag $nobody/x:a b
rm $nobody/x:a
gc $nobody
gc --dry-run $nobody
verify --repair --against $W/tree $nobody/x
END

echo "== options that would have no effect"
image=$store/set:v1
while read -r words; do
    # shellcheck disable=SC2086
    expect 2 "exclude each other: .|needs --cache|no source|neither a source" "$GRANARY" $words
done <<END
diff --stat -0 $image $image
diff --json -0 $image $image
ls --json -0 $image
ls --at 0 -R $image
ls --at 0 $image dir
help --all ls
verify --against $W/tree --all --sample 3 $image
build --compress none --compress-level 3 $W/tree $store/x
build --parent none --compact-budget 0 $W/tree $store/x
build --parent $image --checkpoint 1G $W/tree $store/x
build --checkpoint 1G --add t=tar:$W/tree $W/tree $store/x
build --tar-dirs $W/tree $store/x
build --map-user a=1 tar:hdfs://127.0.0.1:1/x $store/x
build --map-group a=1 --add a=$W/tree $W/tree $store/x
build --map-group a=1 --gid 3 hdfs://127.0.0.1:1/x $store/x
build --map-user a=1 --uid 3 hdfs://127.0.0.1:1/x $store/x
build --hdfs-token-file $W/none $W/tree $store/x
build --http-token-file $W/none s3://bucket/x $store/x
serve --quota a:1G $image
serve --watermark 90:80 $image
serve --eviction lru $image
serve --cache-compressed $image
END
expect 1 "is not a Granary store: granary.json is not there" "$GRANARY" images "$W/nowhere"
expect 1 "is not a Granary store: granary.json is not there" "$GRANARY" inspect "$W/nowhere/set"
expect 1 "^granary: ls: file://$store is a store, and an image is needed; 'granary images file://$store' lists" "$GRANARY" ls "$store"
expect 1 "file://$store/set:v1 is not a Granary store, but file://$store is one; give the store alone" "$GRANARY" images "$store/set:v1"
expect 1 "cannot open the directory $W/nowhere" "$GRANARY" build "$W/nowhere" "$store/x"
expect 1 "there is no image none:latest" "$GRANARY" inspect "$store/none"
expect 1 "no server" "$GRANARY" status "$W/none.sock"
expect 1 "cannot write the output: No space left" bash -c "'$GRANARY' images '$store' >/dev/full"
"$GRANARY" help >"$W/out" && "$GRANARY" --version | grep '^granary [0-9]' >"$W/null" || fail "help and --version"
mapfile -t verbs < <(sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p' "$W/out")
[ ${#verbs[@]} -ge 20 ] || fail "help names ${#verbs[@]} verbs only: $(cat "$W/out")"
for verb in "${verbs[@]}"; do
    "$GRANARY" "$verb" --help | grep "^usage: granary $verb" >"$W/null" || fail "$verb --help"
done

echo "== a standard stream that was closed is not the next file that is opened"
mkfifo "$W/names"
exec 5<>"$W/names"
background bash -c "exec '$GRANARY' build --files-from '$W/names' '$W/tree' '$store/closed' 5>&- <&- >&- 2>&-"
reads_names() {
    [ "/proc/$BACKGROUND_PID/exe" -ef "$GRANARY" ] && find "/proc/$BACKGROUND_PID/fd" -lname "$W/names" | grep . >"$W/null"
}
wait_for 60 reads_names
for fd in 0 1 2; do
    [ "$(readlink "/proc/$BACKGROUND_PID/fd/$fd")" = /dev/null ] || fail "stream $fd is $(readlink "/proc/$BACKGROUND_PID/fd/$fd")"
done
echo dir/file >&5
exec 5>&-
status=0
wait "$BACKGROUND_PID" || status=$?
[ $status = 1 ] || fail "what could not be printed was not missed: exit $status"
"$GRANARY" verify --deep "$store/closed" >"$W/null"

echo "== what serves and mounts says the default of their own"
for verb in serve mount; do
    "$GRANARY" $verb --help | sed -n '/ --warm /,/^  -/p' | tr -s ' \n' ' ' >"$W/out"
    grep -q 'the default of granary serve and mount' "$W/out" && ! grep -q '(default none)' "$W/out" || fail "$verb --help: $(cat "$W/out")"
done

echo "== a store and a cache whose paths are not UTF-8: all JSON is, and what was served is found again without the store"
odd=$W/$'st\xffre' oddcache=$W/$'c\xffche'
cp -a "$store" "$odd"
# json VERB ARG...: it ends well, and prints one JSON object
json() {
    "$GRANARY" "$@" --json >"$W/json" 2>"$W/err" || fail "$*: $(cat "$W/err")"
    jq -es 'length == 1' "$W/json" >"$W/null" || fail "$*: no JSON: $(cat "$W/json")"
}
json build "$W/other" "$odd/other:v1"
json copy -q "$store/set:v1" "$odd/copied:v1"
json join -q "$odd/copied:v1" "$odd/joined:v1"
for words in images "tag $odd/set:v1 odd" "rm $odd/set:odd" 'gc -n' 'unnest -n' "inspect $odd/set:v1" "verify --deep $odd/set:v1"; do
    [[ $words = *$odd* ]] || words="$words $odd"
    # shellcheck disable=SC2086 # words
    json $words
    [[ $words = verify* ]] || jq -e --arg w "$W" '.store == "file://\($w)/st\ufffdre"' "$W/json" >"$W/null" || fail "$words: $(cat "$W/json")"
done
serve_odd() {
    background "$GRANARY" serve "$odd/set:v1" --socket "$W/odd.sock" --cache "$oddcache:64M" >"$W/serve.out" 2>"$W/serve.err"
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
serve_odd
json status "$W/odd.sock"
jq -e '(.stores[0].url_hex | test("ff")) and (.cache_directories[0].path_hex | test("ff"))' "$W/json" >"$W/null" || fail "$(cat "$W/json")"
kill "$BACKGROUND_PID" && wait "$BACKGROUND_PID"
json cache fsck "$oddcache"
mv "$odd" "$W/away"
serve_odd
kill "$BACKGROUND_PID" && wait "$BACKGROUND_PID"
mv "$W/away" "$odd"
rm -r "$odd/packs"
! "$GRANARY" verify "$odd/set:v1" --json >"$W/json" 2>"$W/err" || fail "verify without packs"
jq -e '.problem_count > 0 and (.problems | length) == .problem_count' "$W/json" >"$W/null" || fail "problems are missing: $(cat "$W/json")"

echo "== completion"
# shellcheck source=/dev/null
. "$GRANARY_SOURCE/cli/completion/granary.bash"
COMP_WORDS=(granary build --compr) COMP_CWORD=2
_granary
[ "${COMPREPLY[*]}" = "--compress --compress-level" ] || fail "completion gives '${COMPREPLY[*]}'"
