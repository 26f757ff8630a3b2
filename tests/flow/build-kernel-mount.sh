#!/bin/bash
# A hostile tree becomes an image: fsck.erofs finds nothing, the kernel's mount of the exported file equals the source in
# every byte and attribute, and a build with other parallelism has the same digest and sends nothing.
# GRANARY_FULL=1: 66,000 subdirectories instead of 3,000.
# ctest: serial
. "$(dirname "$0")/../lib.sh"

[ "$(id -u)" = 0 ] || skip "needs root to mount"
command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
grep -qw erofs /proc/filesystems || modprobe -q erofs || skip "this kernel has no erofs"

# tmpfs keeps attributes over a block, where the kernel has them there; elsewhere the tree leaves them out
mkdir "$W/source" "$W/mounted"
if mount -t tmpfs -o nr_inodes=0 granary-test "$W/source"; then MOUNTS+=("$W/source"); fi
mkdir "$W/source/tree"
"$GRANARY_BUILD/tests/tools/hostile_tree" "$W/source/tree" ${GRANARY_FULL:+full}

image=$W/store/hostile:one
"$GRANARY" build --keep-special --jobs 16 "$W/source/tree" "$image" --json | tee "$W/one.json"
"$GRANARY" build --keep-special --jobs 1 "$W/source/tree" "$W/store/hostile:two" --json >"$W/two.json"
[ "$(digest_of "$image")" = "$(digest_of "$W/store/hostile:two")" ] || fail "--jobs 1 and --jobs 16 differ"
[ "$(find "$W/store/manifests" -type f | wc -l)" = 1 ] || fail "one image, but not one manifest"

"$GRANARY" verify --deep "$image"
"$GRANARY" export "$image" "$W/image.erofs"
fsck.erofs "$W/image.erofs" || fail "fsck.erofs found errors"

mount -t erofs -o ro,loop "$W/image.erofs" "$W/mounted"
MOUNTS+=("$W/mounted")
"$TREECMP" "$W/source/tree" "$W/mounted"
# readdir passes over entries whose inode number is 0
ls -a "$W/mounted" >"$W/names"
[ "$(grep -cx '\.\.\?' "$W/names")" = 2 ] || fail "the root lists no . and .."

# the comparer can fail
chmod 0700 "$W/source/tree/empty file"
! "$TREECMP" "$W/source/tree" "$W/mounted" >"$W/compared" || fail "treecmp overlooked a changed mode"
grep -q '1 differences' "$W/compared" || fail "treecmp: $(cat "$W/compared")"
