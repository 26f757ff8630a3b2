#!/bin/bash
# granary join: a hostile tree that was built in parts is joined, as erofs and as ext4, and the kernel's mount of it
# equals the source in every byte and attribute; images below directories of their own; later builds, diff and gc; what
# cannot be joined is refused.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

[ "$(id -u)" = 0 ] || skip "needs root to mount"
command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
command -v e2fsck >/dev/null || skip "no e2fsck here (apt-get install e2fsprogs)"
command -v setfattr >/dev/null || skip "no setfattr here (apt-get install attr)"
for fs in erofs ext4; do
    grep -qw $fs /proc/filesystems || modprobe -q $fs || skip "this kernel has no $fs"
done

store=$W/store
mkdir -p "$W/source/tree" "$W/mounted"
"$GRANARY_BUILD/tests/tools/hostile_tree" "$W/source/tree"

# build ARG...: without progress, with everything that a file may be
build() { "$GRANARY" build --keep-special --quiet "$@"; }

# check FS: the checker finds nothing in the exported image
check() {
    case $1 in
        erofs) fsck.erofs "$W/image" >"$W/log" 2>&1 ;;
        ext4) e2fsck -fn "$W/image" >"$W/log" 2>&1 ;;
    esac || { cat "$W/log"; fail "fsck of $1"; }
}

for fs in erofs ext4; do
    echo "== $fs: three parts, joined"
    skipped=0
    for i in 0 1 2; do
        build --fs $fs --part $i/3 "$W/source/tree" "$store/$fs:part-$i" --json >"$W/part"
        skipped=$((skipped + $(jq .xattrs_skipped "$W/part")))
    done
    build --fs $fs "$W/source/tree" "$W/other/$fs:one" --json >"$W/one"
    "$GRANARY" join "$store/$fs":part-{0,1,2} "$store/$fs:whole" --quiet --json >"$W/joined"
    jq -se '.[0].counts == .[1].counts and .[1].images == 3 and .[1].bytes_reused == .[0].counts.bytes
            and .[1].bytes_uploaded > 0 and .[1].xattrs_skipped == 0' "$W/one" "$W/joined" >"$W/null" ||
        fail "$fs: the whole is $(cat "$W/one"), the join says $(cat "$W/joined")"
    "$GRANARY" diff "$W/other/$fs:one" "$store/$fs:whole" --exit-code || fail "$fs: one build of all is another tree"
    "$GRANARY" verify "$store/$fs:whole" --deep --quiet >"$W/null" || fail "$fs: verify"
    rm -f "$W/image"
    "$GRANARY" export "$store/$fs:whole" "$W/image" --quiet
    check $fs
    mount -t $fs -o ro,loop "$W/image" "$W/mounted"
    if [ $skipped = 0 ]; then
        "$TREECMP" "$W/source/tree" "$W/mounted"
    else
        "$TREECMP" --ignore xattr "$W/source/tree" "$W/mounted"
    fi
    umount "$W/mounted"
    "$GRANARY" inspect "$store/$fs:whole" --json >"$W/inspect"
    jq -e '.provenance.parents == 3 and (.provenance.sources | length == 3 and all(test(":part-[0-2]@sha256:")))' \
        "$W/inspect" >"$W/null" || fail "$fs: the joined image says $(jq .provenance "$W/inspect")"

    echo "== $fs: the next build has it as its parent, under any tag"
    build --fs $fs "$W/source/tree" "$store/$fs:next" --json >"$W/next"
    jq -e ".rebuild.parent_name == \"$fs:whole\" and .bytes_read == 0" "$W/next" >"$W/null" ||
        fail "$fs: the next build says $(cat "$W/next")"

    echo "== $fs: it needs no tag of a part"
    "$GRANARY" images "$store" --all --json | jq -r '.. | objects | select(.tag?) | .name + ":" + .tag' | sort -u >"$W/tags"
    grep "^$fs:" "$W/tags" | grep -v "^$fs:whole\$" | while read -r tag; do "$GRANARY" rm "$store/$tag" >"$W/null"; done
    n=$(find "$store" -type f | wc -l)
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
    [ "$(find "$store" -type f | wc -l)" -lt "$n" ] || fail "$fs: gc took nothing: $(cat "$W/gc")"
    "$GRANARY" verify "$store/$fs:whole" --deep --quiet >"$W/null" || fail "$fs: gc took what the joined image uses"
done

echo "== images below directories of their own"
mkdir -p "$W"/{a,b}/sub
echo one >"$W/a/sub/file"
echo two >"$W/b/sub/file"
echo top >"$W/b/top"
build "$W/a" "$store/a:v1"
build "$W/b" "$store/b:v1"
build "$W/b" "$store/c:v1"
"$GRANARY" join "$store/b:v1" --at "x/y=$store/a:v1" --at "sub=$store/b:v1" "$store/both" >"$W/said"
grep -q ' reused .*, none of it read$' "$W/said" || fail "the join says $(cat "$W/said")"
"$GRANARY" ls "$store/both" --recursive >"$W/list"
for path in top sub/file sub/top sub/sub/file x/y/sub/file; do
    grep -qE "(^|[ /])$path\$" "$W/list" || fail "$path is not in $(cat "$W/list")"
done

echo "== a join may replace a join"
"$GRANARY" join "$store/b:v1" "$store/both" --quiet >"$W/said"
"$GRANARY" ls "$store/both" --recursive >"$W/list"
! grep -q x/y "$W/list" || fail "it is the old one"

echo "== what cannot be joined is refused"
refused() { # refused TEXT ARG...
    local text=$1
    shift
    ! "$GRANARY" join "$@" --quiet 2>"$W/err" || fail "$*: was joined"
    grep -qF -- "$text" "$W/err" || fail "$*: $(cat "$W/err")"
}
refused 'granary copy' "$store/a:v1" "$W/other/erofs:one" "$store/wrong"
refused 'in a:v1 and in b:v1' "$store/a:v1" "$store/b:v1" "$store/wrong"
refused "'sub/file'" "$store/a:v1" "$store/b:v1" "$store/wrong"
refused 'nothing to join' "$store/wrong"
refused 'is not DIR=PART' --at "$store/a:v1" "$store/wrong"
refused 'cannot be a directory' --at "a/../b=$store/a:v1" "$store/wrong"
refused 'd:v1' "$store/a:v1" "$store/d:v1" "$store/wrong"
refused 'is ext4 with chunks of' "$store/a:v1" --at "e=$store/ext4:whole" "$store/wrong"
refused 'c:v1 is an image that no join made' "$store/a:v1" "$store/b:v1" "$store/c:v1"
refused 'under a tag' "$store/a:v1" "$store/wrong@sha256:$(printf '0%.0s' {1..64})"
"$GRANARY" images "$store" --all >"$W/images"
! grep -q wrong "$W/images" || fail "a refused join published something"
