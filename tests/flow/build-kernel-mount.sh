#!/bin/bash
# A hostile tree becomes an image, as erofs and as ext4: the filesystem's checker finds nothing, the kernel's mount of
# the exported file equals the source in every byte and attribute, and a build with other parallelism has the same
# digest and sends nothing. The same for an erofs built upon it the day after, when much has changed.
# GRANARY_FULL=1: 66,000 subdirectories instead of 1,000, 100,000 names in a directory instead of 6,000, a file of more
# than 4 GiB instead of 200 MiB.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

[ "$(id -u)" = 0 ] || skip "needs root to mount"
command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
command -v e2fsck >/dev/null || skip "no e2fsck here (apt-get install e2fsprogs)"
command -v setfattr >/dev/null || skip "no setfattr here (apt-get install attr)"
for fs in erofs ext4; do
    grep -qw $fs /proc/filesystems || modprobe -q $fs || skip "this kernel has no $fs"
done

# tmpfs keeps attributes over a block, where the kernel has them there; elsewhere the tree leaves them out
mkdir "$W/source" "$W/mounted"
if mount -t tmpfs -o nr_inodes=0 granary-test "$W/source"; then MOUNTS+=("$W/source"); fi
mkdir "$W/source/tree"
"$GRANARY_BUILD/tests/tools/hostile_tree" "$W/source/tree" ${GRANARY_FULL:+full}

# build_twice FS: $W/store/FS:one and its export $W/image.FS
build_twice() {
    local fs=$1 image=$W/store/$1:one
    "$GRANARY" build --fs "$fs" --keep-special --jobs 16 "$W/source/tree" "$image" --json | tee "$W/$fs.json"
    "$GRANARY" build --fs "$fs" --keep-special --jobs 1 "$W/source/tree" "$W/store/$fs:two" --parent none --json >"$W/two.json"
    [ "$(digest_of "$image")" = "$(digest_of "$W/store/$fs:two")" ] || fail "$fs: --jobs 1 and --jobs 16 differ"
    jq -e '.packs_new == 0' "$W/two.json" >"$W/null" || fail "$fs: the second build sent packs"
    [ "$("$GRANARY" inspect --json "$image" | jq -r .filesystem)" = "$fs" ] || fail "inspect does not say $fs"
    "$GRANARY" verify --deep "$image"
    "$GRANARY" export "$image" "$W/image.$fs"
}

# compare FS: the mounted image and the source
compare() {
    mount -t "$1" -o ro,loop "$W/image.$1" "$W/mounted"
    "$TREECMP" "$W/source/tree" "$W/mounted"
    # readdir passes over entries whose inode number is 0
    ls -a "$W/mounted" >"$W/names"
    [ "$(grep -cx '\.\.\?' "$W/names")" = 2 ] || fail "$1: the root lists no . and .."
}

echo "== erofs"
build_twice erofs
[ "$(find "$W/store/manifests" -type f | wc -l)" = 1 ] || fail "one image, but not one manifest"
fsck.erofs "$W/image.erofs" || fail "fsck.erofs found errors"
compare erofs
umount "$W/mounted"

echo "== erofs, the day after"
find "$W/source/tree/crowd" -maxdepth 1 -name '*7' -delete
mkdir -p "$W/source/tree/later/deep"
for ((i = 0; i < 300; i++)); do echo "$i" >"$W/source/tree/later/deep/$i"; done
touch "$W/source/tree/crowd/"{a,m,z}-later
mv "$W/source/tree/attributes" "$W/source/tree/moved"
"$GRANARY" build --keep-special "$W/source/tree" "$W/store/erofs:one" --json >"$W/day.json"
jq -e '.rebuild.unchanged > 0' "$W/day.json" >"$W/null" || fail "nothing stayed: $(cat "$W/day.json")"
"$GRANARY" verify --deep "$W/store/erofs:one"
"$GRANARY" export "$W/store/erofs:one" "$W/image.erofs"
fsck.erofs "$W/image.erofs" || fail "fsck.erofs found errors"
compare erofs
umount "$W/mounted"
mv "$W/source/tree/moved" "$W/source/tree/attributes"

echo "== ext4, which has no room for the largest attributes"
build_twice ext4
e2fsck -fn "$W/image.ext4" || fail "e2fsck found errors"
dumpe2fs -h "$W/image.ext4" >"$W/dumpe2fs" 2>&1 || fail "dumpe2fs: $(cat "$W/dumpe2fs")"
grep -q '^Filesystem state: *clean$' "$W/dumpe2fs" || fail "dumpe2fs does not say clean"
debugfs -R 'stat /crowd' "$W/image.ext4" 2>&1 | grep 'Flags: 0x81000' >"$W/null" || fail "the names are not indexed"
too_large=$(getfattr --absolute-names -dm - "$W/source/tree/attributes/huge" | grep -o '^user.huge[0-9]' || true)
[ "$(jq .xattrs_skipped "$W/ext4.json")" = "$(wc -w <<<"$too_large")" ] || fail "not $too_large skipped: $(cat "$W/ext4.json")"
for name in $too_large; do setfattr -x "$name" "$W/source/tree/attributes/huge"; done
compare ext4
MOUNTS+=("$W/mounted")
! mount -o remount,rw "$W/mounted" 2>"$W/null" || fail "the image can be mounted for writing"

# the comparer can fail
chmod 0700 "$W/source/tree/empty file"
! "$TREECMP" "$W/source/tree" "$W/mounted" >"$W/compared" || fail "treecmp overlooked a changed mode"
grep -q '1 differences' "$W/compared" || fail "treecmp: $(cat "$W/compared")"
