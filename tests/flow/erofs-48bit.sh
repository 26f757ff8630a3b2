#!/bin/bash
# erofs above 16 TiB: two images of 9 TiB, which any kernel mounts, are joined to one with 48-bit block numbers. The
# kernel's mount of it equals the sources in every byte and attribute. Nearly all of the addresses are holes
# (tests/tools/build_far.c). GRANARY_FULL=1: so do a build upon it and a further join; warming and NBD up there.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse
command -v nbdinfo >/dev/null || skip "no nbdinfo here (apt-get install libnbd-bin)"

store=$W/store
dir=$W/mnt
extra_cleanup() { "$GRANARY" umount --force "$dir" 2>/dev/null; }
mkdir -p "$dir" "$W/whole"/{one,two}/many
for part in one two; do
    (
        cd "$W/whole/$part"
        head -c 300000 /dev/urandom >file
        ln file many/hard
        ln -s ../file many/link
        ln -s "$(printf '%04090d' 0)" long
        mkfifo fifo
        : >empty
        for ((i = 0; i < 300; i++)); do echo $i >many/name-$i; done
    )
    "$GRANARY_BUILD/tests/tools/build_far" "$W/whole/$part" "$store/$part" $((9 << 40)) >"$W/null"
done

# says IMAGE RELEASE: inspect says that it needs that Linux
says() { "$GRANARY" inspect "$1" --json | jq -e --arg release "$2" '.linux == $release' >"$W/null" || fail "$1 is not for Linux $2"; }
# same IMAGE: the kernel's mount of it equals the source
same() {
    "$GRANARY" mount --fuse --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" "$1" "$dir" >"$W/mounted"
    for part in "$W/whole"/*; do "$TREECMP" "$part" "$dir/${part##*/}"; done
    [ "$(find "$dir" | wc -l)" = "$(find "$W/whole" | wc -l)" ] || fail "$1: find"
    [ "$(stat -c %i "$dir/one/file")" = "$(stat -c %i "$dir/one/many/hard")" ] || fail "$1: two inodes of one file"
    if [ -n "${GRANARY_FULL:-}" ]; then
        "$GRANARY" warm "$dir" --path 'two/*' --json --quiet | tail -n 1 | jq -e '.files >= 300' >"$W/null" || fail "$1: warmed by path"
        "$GRANARY" warm "$dir" --all --quiet >"$W/warmed"
    fi
    "$GRANARY" umount "$dir"
}

echo "== two images of 9 TiB are joined to one of 18 TiB"
says "$store/one" 5.4
"$GRANARY" join "$store/whole" --at one="$store/one" --at two="$store/two" --quiet >"$W/joined"
grep -F "Linux 6.15 or later, since the image has more than 16 TiB" "$W/joined" >"$W/null" || fail "it says $(cat "$W/joined")"
says "$store/whole" 6.15
"$GRANARY" inspect "$store/whole" | grep -x "filesystem *erofs, for Linux 6.15 and later" >"$W/null" || fail "inspect as text"
"$GRANARY" verify --deep --quiet "$store/whole" >"$W/null"

[ -e /sys/fs/erofs ] || modprobe -q erofs || skip "this kernel has no erofs: the mounts are not tested"
if [ ! -e /sys/fs/erofs/features/48bit ]; then
    echo "== this kernel is too old for it, and the error says so"
    refused 1 "boot Linux 6.15 or later" "$GRANARY" mount --fuse --cache none "$store/whole" "$dir"
    skip "this kernel's erofs has no 48-bit block numbers (before Linux 6.15): their mount is not tested"
fi
same "$store/whole"
[ -n "${GRANARY_FULL:-}" ] || exit 0

echo "== its size over NBD is that of the image"
background "$GRANARY" serve "$store/whole" --socket "$W/sock" >"$W/serve.out" 2>"$W/serve.err"
wait_for 60 grep -q '^serving' "$W/serve.out"
size=$("$GRANARY" inspect "$store/whole" --json | jq .size)
[ "$size" -gt $((18 << 40)) ] && [ "$(nbdinfo --size "nbd+unix:///whole?socket=$W/sock")" = "$size" ] || fail "its size over NBD"

echo "== a build upon it keeps its files, and puts new ones between"
echo changed >"$W/whole/two/many/name-7"
head -c 5000000 /dev/urandom >"$W/whole/two/new"
"$GRANARY" build --keep-special --quiet --json "$W/whole" "$store/whole" >"$W/built"
jq -e '.linux == "6.15" and .rebuild.unchanged == 603 and .rebuild.added == 1 and .rebuild.changed == 1' "$W/built" >"$W/null" ||
    fail "built upon it: $(cat "$W/built")"
same "$store/whole"

echo "== it is a part of another join"
"$GRANARY" join "$store/whole" "$store/three" --at three="$store/one" --quiet >"$W/joined"
says "$store/three" 6.15
"$GRANARY" verify --deep --quiet "$store/three" >"$W/null"
cp -a "$W/whole/one" "$W/whole/three"
same "$store/three"
