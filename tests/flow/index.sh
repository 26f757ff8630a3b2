#!/bin/bash
# granary index: exactly the files of the tree with their sizes, of any names, at the offsets where their bytes are; of
# an image and of a mount; globs; output to a file, which is whole or as it was; refusals.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

extra_cleanup() { "$GRANARY" umount --force "$W/mnt" 2>"$W/null"; }
store=$W/store
mkdir -p "$W/tree/train/deep" "$W/tree/val" "$W/tree/empty-dir" "$W/empty"
for i in 1 2 3; do head -c $((i * 50000)) /dev/urandom >"$W/tree/train/$i.jpg"; done
echo deep >"$W/tree/train/deep/1.txt"
: >"$W/tree/val/nothing"
ln "$W/tree/train/1.jpg" "$W/tree/val/hard link"
ln -s ../train "$W/tree/val/link"
printf tab >"$W/tree/val/"$'a\ttab'
printf bytes >"$W/tree/val/"$'\e[31m\xff'
printf quote >"$W/tree/val/"$'"\\'
"$GRANARY" build -q "$W/tree" "$store/plain" >"$W/built"
cp -a "$W/tree" "$W/lines"
printf '11\t0\tval/made-up' >"$W/lines/val/"$'new\n5\t0\tline'
"$GRANARY" build -q "$W/lines" "$store/lines" >"$W/built"
"$GRANARY" build -q "$W/empty" "$store/empty" >"$W/built"

echo "== the files and sizes are those of find"
"$GRANARY" index "$store/plain" >"$W/index"
LC_ALL=C sort -t $'\t' -k 2 <(cd "$W/tree" && find . -type f -printf '%s\t%P\n') | diff <(cut -f 1,3- "$W/index") - || fail "other files than find"
"$GRANARY" index -0 "$store/lines" >"$W/index0"
(cd "$W/lines" && find . -type f -printf '%s\t%P\0') | sort -z | diff <(cut -z -f 1,3- "$W/index0" | sort -z) - || fail "other files than find, with -0"
cut -z -f 3- "$W/index0" | cmp - <(cut -z -f 3- "$W/index0" | sort -z) || fail "not in the order of the paths"

echo "== a file's bytes are at its offset; JSON says the same, and the digest"
"$GRANARY" export -q "$store/plain" "$W/image"
while IFS=$'\t' read -r size offset path; do
    [ "$size" = 0 ] && [ "$offset" = 0 ] || [ "$offset" -gt 0 ] || fail "$path is at $offset"
    cmp -n "$size" -i "$offset:0" "$W/image" "$W/tree/$path" || fail "wrong bytes: $path is not at $offset"
done <"$W/index"
"$GRANARY" index --json "$store/lines" >"$W/json"
python3 - "$W/json" "$W/index0" "$W/lines" <<'PYTHON'
import hashlib, json, os, sys

lines = [line.split(b"\t", 2) for line in open(sys.argv[2], "rb").read().split(b"\0")[:-1]]
for (size, offset, path), text in zip(lines, open(sys.argv[1], "rb"), strict=True):
    entry = json.loads(text)
    name = bytes.fromhex(entry["path_hex"]) if "path_hex" in entry else entry["path"].encode()
    data = open(os.path.join(sys.argv[3].encode(), path), "rb").read()
    digest = "sha256:" + hashlib.sha256(data).hexdigest() if data else None
    found = (name, entry["size"], entry["offset"], entry["content"])
    assert found == (path, int(size), int(offset), digest), (found, path)
PYTHON

echo "== globs"
paths() { "$GRANARY" index "$@" | cut -f 3- | paste -sd ' '; }
[ "$(paths "$store/plain" --path train)" = "train/1.jpg train/2.jpg train/3.jpg train/deep/1.txt" ] || fail "a directory"
[ "$(paths "$store/plain" --path '*.txt' --path /train/1.jpg --path 'train/1*')" = "train/1.jpg train/deep/1.txt" ] || fail "several globs, each file once"
[ "$(paths "$store/plain" --path 'val/h*' --path 'train/[23].jpg')" = "train/2.jpg train/3.jpg val/hard link" ] || fail "globs without a common beginning"
refused 1 "no file of the image matches --path 'trai'" "$GRANARY" index "$store/plain" --path train --path trai
refused 1 "no file of the image matches --path 'empty-dir'" "$GRANARY" index "$store/plain" --path empty-dir
refused 2 "a path glob has 1 to 1024 bytes" "$GRANARY" index "$store/plain" --path /

echo "== an empty image has an empty index; a terminal gets escapes"
[ -z "$("$GRANARY" index "$store/empty")" ] && [ -z "$("$GRANARY" index --json "$store/empty")" ] || fail "files in an empty image"
script -qec "'$GRANARY' index '$store/plain'" "$W/typescript" >"$W/null" </dev/null
grep -qF 'val/\x1b[31m\xff' "$W/typescript" || fail "not escaped: $(cat -v "$W/typescript")"

echo "== to a file, which is whole or as it was"
"$GRANARY" index "$store/plain" -o "$W/out.tsv"
cmp "$W/out.tsv" "$W/index" && [ "$(stat -c %a "$W/out.tsv")" = 644 ] || fail "the file differs from standard output"
# unchanged CODE TEXT ARG...: index ARG... -o there fails so, the file is as it was, and no other is left
unchanged() {
    echo before >"$W/there"
    refused "$1" "$2" "$GRANARY" index "${@:3}" -o "$W/there"
    [ "$(cat "$W/there")" = before ] && [ "$(compgen -G "$W/there*")" = "$W/there" ] || fail "left behind: $(compgen -G "$W/there*")"
}
unchanged 1 "a name has a newline, after 'val/new'; use -0 or --json" "$store/lines"
unchanged 1 "no file of the image matches" "$store/plain" --path none
unchanged 2 "-0 and --json exclude each other" "$store/plain" -0 --json
refused 1 "is not a regular file" "$GRANARY" index "$store/plain" -o "$W/empty"
refused 1 "cannot create $W/none/out" "$GRANARY" index "$store/plain" -o "$W/none/out"
refused 2 "IMAGE" "$GRANARY" index
mkdir "$W/full"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=4k tmpfs "$W/full"; then
    MOUNTS+=("$W/full")
    mkdir "$W/many"
    (cd "$W/many" && seq -f 'a-file-with-a-long-name-%g' 500 | xargs touch)
    "$GRANARY" build -q "$W/many" "$store/many" >"$W/built"
    refused 1 "cannot write $W/full/out: No space left on device" "$GRANARY" index "$store/many" -o "$W/full/out"
    [ -z "$(ls -A "$W/full")" ] || fail "left behind: $(ls "$W/full")"
fi

echo "== interrupted"
serve_silent "$store"
"$GRANARY" index "$STORE_URL/plain" | cmp - "$W/index" || fail "over HTTP it is another"
echo before >"$W/there"
: >"$W/dead"
begun() { compgen -G "$W/there.*" >"$W/null"; }
"$GRANARY" index --timeout 10m "$STORE_URL/plain" -o "$W/there" 2>"$W/err" &
pid=$!
wait_for 60 begun
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status = 130 ] && [ "$(cat "$W/there")" = before ] && [ "$(compgen -G "$W/there*")" = "$W/there" ] || fail "exit $status: $(cat "$W/err"); $(compgen -G "$W/there*")"

echo "== a mount point is the image mounted there, also when its tag names another by now"
needs_fuse
mkdir "$W/mnt"
"$GRANARY" mount --fuse "$store/plain" "$W/mnt" >"$W/mounted"
"$GRANARY" build -q "$W/lines" "$store/plain" >"$W/null"
"$GRANARY" index -0 "$store/plain" | cut -z -f 1,3- | cmp - <(cut -z -f 1,3- "$W/index0") || fail "the tag names the old image still"
"$GRANARY" index "$W/mnt" | cmp - "$W/index" || fail "another index than the image's"
(cd "$W" && "$GRANARY" index mnt/) | cmp - "$W/index" || fail "a relative path to the mount"
if command -v setpriv >"$W/null"; then
    chmod 755 "$W"
    refused 1 "root's alone to read" setpriv --reuid 65534 --clear-groups "$GRANARY" index "$W/mnt"
fi
"$GRANARY" umount "$W/mnt"
refused 1 "nothing is mounted on $W/mnt, nor is it an image: " "$GRANARY" index "$W/mnt"
"$GRANARY" build -q "$W/tree" "$W/mnt/images/set" >"$W/null"
mkdir "$W/mnt/images/set"
"$GRANARY" index "$W/mnt/images/set" | cmp - "$W/index" || fail "a directory beside it hides an image"
