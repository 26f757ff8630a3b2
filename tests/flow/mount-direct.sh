#!/bin/bash
# ctest: long
# granary mount --direct for real: the first mount is by a server and writes the whole image, the next is of that file
# without any process; never zeros, whatever was killed, flipped, filled up or planted; umount leaves nothing.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse
mkdir -p "$W/mnt" "$W/mnt2" "$W/tree/many" "$W/other"
extra_cleanup() {
    for d in "$W/mnt" "$W/mnt2" "$W/small"; do "$GRANARY" umount --force "$d" 2>/dev/null; umount "$d" 2>/dev/null; done
    umount -l /run/granary/fuse 2>/dev/null
    find "$W" -path '*/resident/*' -exec chattr -i {} + 2>/dev/null
}
head -c 30000000 /dev/urandom >"$W/tree/large"
truncate -s 3000000 "$W/tree/hole"
for i in $(seq 300); do head -c $((i * 40)) /dev/urandom >"$W/tree/many/$i"; done
"$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"
head -c 20000000 /dev/urandom >"$W/other/large"
"$GRANARY" build -q "$W/other" "$W/store/other" >"$W/built"

# Whether this kernel mounts files. If it should, it is a failure that it does not.
mkfs.erofs -T0 "$W/probe" "$W/other" >"$W/null" 2>&1 || skip "no mkfs.erofs here: apt-get install erofs-utils"
python3 - "$W/probe" "$W/mnt" <<'END' || skip "this kernel mounts no erofs from files (before Linux 6.12): mount --direct is not tested"
import ctypes, sys
libc = ctypes.CDLL(None)
image, at = (a.encode() for a in sys.argv[1:])
sys.exit(libc.mount(image, at, b"erofs", 1, None) != 0 or libc.umount(at) != 0)
END

CACHE=$W/cache
RESIDENT=$CACHE/resident
# direct IMAGE DIR ARG...
direct() { "$GRANARY" mount --direct --cache "$CACHE:200M" --disk-timeout "$DISK_TIMEOUT" "$@" >"$W/out" 2>"$W/err"; }
is_direct() { grep -F " $1 " /proc/self/mountinfo | grep -F " - erofs $RESIDENT/" >"$W/null"; }
complete() { compgen -G "$RESIDENT/*-65536" >"$W/null"; }
# whole IMAGE: complete, and no process is left of it
whole() { direct "$1" "$W/mnt"; wait_for 120 complete; "$GRANARY" umount "$W/mnt"; }
file() { compgen -G "$RESIDENT/*-65536"; }
none() { ! compgen -G "$RESIDENT/*" >"$W/null" || fail "left: $(ls "$RESIDENT")"; }

echo "== the first mount is by a server and writes the file; the next has no process"
direct "$W/store/set" "$W/mnt"
! is_direct "$W/mnt" || fail "a mount of a file that cannot be complete"
grep "is being written beside the cache" "$W/err" >"$W/null" || { cat "$W/err"; fail "it does not say what it does"; }
"$TREECMP" "$W/tree" "$W/mnt"
wait_for 120 complete
"$GRANARY" umount "$W/mnt"
direct "$W/store/set" "$W/mnt"
is_direct "$W/mnt" || fail "the second mount is not direct: $(cat "$W/out" "$W/err")"
[ -z "$(own_servers)" ] || fail "processes of a direct mount: $(own_servers)"
"$TREECMP" "$W/tree" "$W/mnt"
[ "$(stat -c %a "$(file)")" = 400 ] || fail "mode $(stat -c %a "$(file)")"
! truncate -s 0 "$(file)" 2>"$W/null" || fail "the file can be cut"
"$GRANARY" status "$W/mnt" | grep -F "mounted without a server from $RESIDENT/" >"$W/null" || fail "status does not know it"
"$GRANARY" status --json | jq -e --arg dir "$W/mnt" 'any(.direct[]; .dir == $dir)' >"$W/null" || fail "not in the list"
"$GRANARY" doctor --json >"$W/doctor" 2>"$W/err" || true # other things may be wrong on this machine
jq -e '[.findings[] | select(.check == "mounts")] | length > 0 and all(.level == "OK")' "$W/doctor" >"$W/null" ||
    { cat "$W/doctor"; fail "doctor finds a direct mount wrong"; }

echo "== two mounts share the file; it is not evicted before both are gone, nor while another namespace has it"
direct "$W/store/set" "$W/mnt2"
is_direct "$W/mnt2" || fail "the third mount is not direct"
[ "$(ls "$RESIDENT" | wc -l)" = 1 ] || fail "two files: $(ls "$RESIDENT")"
root=$(basename "$(file)")
root=${root%-*}
evict_refused() {
    ! "$GRANARY" cache resident "$CACHE" --evict "$root" 2>"$W/err" || fail "evicted while mounted: $1"
    grep "is in use" "$W/err" >"$W/null" || { cat "$W/err"; fail "no reason"; }
}
evict_refused "two mounts"
! fallocate --punch-hole --length 65536 "$(file)" 2>"$W/null" || fail "a hole was put into a mounted file"
"$GRANARY" cache resident "$CACHE" --json | jq -e --arg a "$W/mnt" --arg b "$W/mnt2" \
    '.images[0] | .state == "complete" and .in_use and (.mounts | sort) == ([$a, $b] | sort)' >"$W/null" || fail "the list is wrong"
background unshare -m sleep 1000
keeps=$BACKGROUND_PID
apart() { [ "$(readlink /proc/self/ns/mnt)" != "$(readlink "/proc/$keeps/ns/mnt")" ]; }
wait_for 60 apart
"$GRANARY" umount "$W/mnt"
"$GRANARY" umount "$W/mnt2"
evict_refused "another namespace"
kill "$keeps"
not_in_use() { "$GRANARY" cache resident "$CACHE" --json | jq -e '.images[0].in_use | not' >"$W/null"; }
wait_for 60 not_in_use
exec 9<"$(file)"
evict_refused "a descriptor"
exec 9<&-
loop=$(losetup --find --show --read-only "$(file)")
evict_refused "a loop device"
losetup --detach "$loop"
evicts() { "$GRANARY" cache resident "$CACHE" --evict "$root" 2>"$W/null"; }
wait_for 60 evicts
none
! grep -F " $W/mnt" /proc/self/mountinfo || fail "a mount is left"
[ -z "$(ls /run/granary)" ] || fail "left: $(ls /run/granary)"

echo "== killed while it writes: what is there is never mounted, and is written again"
# has KIB: of the file so much is written, or it is complete
has() { complete || { [ "$(du -sk "$RESIDENT" 2>"$W/null" | cut -f1)" -ge "$1" ] && compgen -G "$RESIDENT/*.filling" >"$W/null"; }; }
torn=0
for kib in 0 4 4000 12000 20000 28000; do
    rm -rf "$CACHE" # so that every chunk is fetched, slowly
    direct "$W/store/set" "$W/mnt" --bwlimit 10M
    wait_for 60 has "$kib"
    own_servers | xargs kill -9 2>"$W/null" || true # one may end by itself meanwhile
    "$GRANARY" umount --force "$W/mnt" 2>"$W/null"
    if complete; then
        "$GRANARY" cache resident "$CACHE" --check -q >"$W/null" || fail "wrong byte in a file that is complete, $kib"
    else
        torn=$((torn + 1))
    fi
    direct "$W/store/set" "$W/mnt"
    "$TREECMP" "$W/tree" "$W/mnt" || fail "wrong byte after a kill at $kib"
    "$GRANARY" umount "$W/mnt"
    "$GRANARY" cache resident "$CACHE" --evict-all -q 2>"$W/null"
done
[ "$torn" -ge 5 ] || fail "only $torn of 6 kills came while it was being written"
# The same by hand: a whole-looking file that nobody finished.
whole "$W/store/set"
chattr -i "$(file)" 2>"$W/null" || true
mv "$(file)" "$(file).filling"
direct "$W/store/set" "$W/mnt"
! is_direct "$W/mnt" || fail "an unfinished file is mounted"
wait_for 120 complete
"$GRANARY" umount "$W/mnt"

echo "== a flipped bit is found by the check; the file is never mounted again, and a live mount is named"
direct "$W/store/set" "$W/mnt"
is_direct "$W/mnt"
chattr -i "$(file)" 2>"$W/null" || true
chmod u+w "$(file)"
printf '\1' | dd of="$(file)" bs=1 seek=9000000 conv=notrunc status=none
sync "$(file)"
! "$GRANARY" cache resident "$CACHE" --check -q >"$W/out" 2>"$W/err" || fail "the check passed"
grep "its bytes are not those of its image; it is not mounted again, BUT IT IS MOUNTED NOW" "$W/err" >"$W/null" ||
    { cat "$W/err"; fail "a live mount is not reported"; }
grep -F "mounted on $W/mnt" "$W/err" >"$W/null" || { cat "$W/err"; fail "a live mount is not named"; }
! "$GRANARY" cache resident "$CACHE" --check -q >"$W/out" 2>"$W/err" || fail "the second check passed"
grep -F "in use still: umount it and mount it again: mounted on $W/mnt" "$W/err" >"$W/null" ||
    { cat "$W/err"; fail "the second check does not name a live mount"; }
"$GRANARY" cache resident "$CACHE" --json | jq -e --arg dir "$W/mnt" \
    '.images | length == 1 and (.[0] | .state == "bad" and .mounts == [$dir])' >"$W/null" || fail "the bad file's mount is not listed"
"$GRANARY" umount "$W/mnt"
direct "$W/store/set" "$W/mnt"
! is_direct "$W/mnt" || fail "a bad file is mounted"
"$TREECMP" "$W/tree" "$W/mnt"
wait_for 120 complete
"$GRANARY" umount "$W/mnt"
"$GRANARY" cache resident "$CACHE" --check -q | grep "complete, sound" >"$W/null" || fail "the new file is not sound"
direct "$W/store/set" "$W/mnt"
is_direct "$W/mnt" || fail "the new file is not mounted"
"$TREECMP" "$W/tree" "$W/mnt"
"$GRANARY" umount "$W/mnt"
"$GRANARY" cache resident "$CACHE" --evict-all -q

echo "== what others have planted is refused, and the mount is by a server"
whole "$W/store/set"
f=$(file)
chattr -i "$f" 2>"$W/null" || true
for plant in "chown 12345 $f" "chmod 666 $f" "ln $f $W/second" "chown 12345 $RESIDENT" "chmod 777 $RESIDENT"; do
    $plant
    direct "$W/store/set" "$W/mnt"
    ! is_direct "$W/mnt" || fail "mounted after $plant"
    ! "$GRANARY" warm "$W/mnt" --resident -q >"$W/out" 2>"$W/err" || fail "warm finds it well after $plant"
    "$TREECMP" "$W/tree" "$W/mnt"
    "$GRANARY" umount "$W/mnt"
    rm -f "$W/second"
    chown 0 "$RESIDENT" "$f" && chmod 700 "$RESIDENT" && chmod 400 "$f"
done
mv "$f" "$W/elsewhere" && ln -s "$W/elsewhere" "$f"
direct "$W/store/set" "$W/mnt"
! is_direct "$W/mnt" || fail "mounted by a symbolic link"
"$GRANARY" umount "$W/mnt"
rm -rf "$RESIDENT"

echo "== the budget: slots are given back, the second image takes the place of the first, and a third has none"
CACHE=$W/tight RESIDENT=$W/tight/resident
tight() { "$GRANARY" mount --direct --cache "$CACHE:64M" --disk-timeout "$DISK_TIMEOUT" "$@" >"$W/out" 2>"$W/err"; }
tight "$W/store/set" "$W/mnt"
wait_for 120 complete
"$GRANARY" warm "$W/mnt" --all -q >"$W/null" 2>&1 || true
[ "$(du -s --block-size=1M "$CACHE" | cut -f1)" -le 66 ] || fail "more than the budget: $(du -s "$CACHE")"
"$GRANARY" status "$W/mnt" --json | jq -e '.counters.granary_cache_resident_bytes > 30000000 and
    .counters.granary_cache_yielded_bytes >= .counters.granary_cache_resident_bytes - 4194304' >"$W/null" || fail "slots were not given back"
"$GRANARY" umount "$W/mnt"
tight "$W/store/set" "$W/mnt"
is_direct "$W/mnt"
tight "$W/store/other" "$W/mnt2"
! "$GRANARY" warm "$W/mnt2" --resident -q >"$W/out" 2>"$W/err" || fail "more than three quarters are taken"
grep "has no room for the whole image" "$W/err" >"$W/null" || { cat "$W/err"; fail "no reason"; }
is_direct "$W/mnt" || fail "the first image's mount has changed"
"$TREECMP" "$W/tree" "$W/mnt"
"$GRANARY" umount "$W/mnt"
first=$(file)
"$GRANARY" warm "$W/mnt2" --resident -q >"$W/out" || fail "not written after the other was unmounted"
[ ! -e "$first" ] && [ "$(ls "$RESIDENT" | wc -l)" = 1 ] || fail "the first image is still there"
"$GRANARY" umount "$W/mnt2"
"$GRANARY" cache resident "$CACHE" --evict-all -q

echo "== by itself: a file that is there is mounted, and none is written; not where an option wants a server"
CACHE=$W/auto RESIDENT=$W/auto/resident
auto() { "$GRANARY" mount --cache "$CACHE:200M" --disk-timeout "$DISK_TIMEOUT" "$W/store/set" "$W/mnt" "$@" >"$W/out" 2>"$W/err"; }
auto
! is_direct "$W/mnt" || fail "direct without a file"
"$GRANARY" warm "$W/mnt" --all -q >"$W/null"
"$GRANARY" umount "$W/mnt"
auto
! is_direct "$W/mnt" || fail "a file that nobody asked for"
[ ! -e "$RESIDENT" ] || none
"$GRANARY" warm "$W/mnt" --resident -q >"$W/null"
counted() { "$GRANARY" status "$W/mnt" --json | jq -e "$1" >"$W/null"; }
wait_for 60 counted '.counters | .granary_cache_resident_images == 1 and .granary_cache_resident_bytes > 29000000 and
    .granary_cache_resident_bad == 0 and .granary_cache_resident_filling_bytes == 0'
"$GRANARY" umount "$W/mnt"
auto
is_direct "$W/mnt" || { cat "$W/err"; fail "a file that is there is not mounted"; }
"$TREECMP" "$W/tree" "$W/mnt"
[ -z "$(own_servers)" ] || fail "processes: $(own_servers)"
"$GRANARY" status "$W/mnt" --json | jq -e '.health == "healthy" and .direct[0].dir == $d' --arg d "$W/mnt" >"$W/null" || fail "status"
"$GRANARY" warm "$W/mnt" --all --json | jq -e '.direct and .cached_bytes == .bytes and .bytes > 30000000' >"$W/null" || fail "warming what is there fails"
"$GRANARY" warm "$W/mnt" --path '*' | grep "mounted without a server" >"$W/null" || fail "warming does not say how it is mounted"
! "$GRANARY" warm "$W/mnt" --files-from "$W/nothing" 2>"$W/null" || fail "it warms by a list that is not there"
! "$GRANARY" warm "$W/mnt" --all --export other 2>"$W/null" || fail "it has an export"
! "$GRANARY" cache ls "$W/mnt" 2>"$W/err" || fail "it has no server"
grep -- "--direct=no" "$W/err" >"$W/null" || { cat "$W/err"; fail "no remedy"; }
printf '[server]\ncache = %s:200M\n' "$W/unused" >"$W/conf"
env -u GRANARY_CACHE GRANARY_CONFIG="$W/conf" "$GRANARY" cache resident --check -q | grep -F "mounted on $W/mnt" >"$W/null" ||
    fail "the check does not find the cache of a mount"
umount "$W/mnt"
! "$GRANARY" warm "$W/mnt" --all -q >"$W/null" 2>&1 || fail "what is not mounted is warm"
"$GRANARY" umount "$W/mnt"
for options in --direct=no "--metrics 127.0.0.1:0" "--slow-read 5s" --fuse; do
    # shellcheck disable=SC2086 # an option and its value
    auto $options
    ! is_direct "$W/mnt" || fail "direct, though there was: $options"
    "$GRANARY" umount "$W/mnt"
done
printf '[server]\ncache = %s:200M\n' "$CACHE" >"$W/conf"
joins() { env -u GRANARY_CACHE GRANARY_CONFIG="$W/conf" "$GRANARY" mount "$W/store/set" "$W/mnt" >"$W/out" 2>"$W/err"; }
joins
is_direct "$W/mnt" || { cat "$W/err"; fail "not direct, though there is no server to join"; }
"$GRANARY" umount "$W/mnt"
mkdir -p /run/granary/fuse
background "$GRANARY" serve --fuse /run/granary/fuse --cache none >"$W/serve.out" 2>&1
serve=$BACKGROUND_PID
wait_for 60 listens /run/granary/fuse.control
joins
! is_direct "$W/mnt" || fail "direct, past the server that it would join"
"$GRANARY" umount "$W/mnt"
kill "$serve"
wait "$serve" || true
rmdir /run/granary/fuse
printf '[mount]\ndirect = no\n' >"$W/conf"
GRANARY_CONFIG=$W/conf auto
! is_direct "$W/mnt" || fail "direct = no"
"$GRANARY" umount "$W/mnt"

echo "== by itself: whatever is wrong with the file, a server serves the mount"
root=$(file)
chattr -i "$root" 2>"$W/null" || true
cp --sparse=always "$root" "$W/kept"
head -c 4096 /dev/zero | dd of="$root" conv=notrunc status=none # no superblock
auto
! is_direct "$W/mnt" || fail "it mounts a file without a superblock"
grep "mounting by a server" "$W/err" >"$W/null" || { cat "$W/err"; fail "it does not say that the file is not mounted"; }
"$TREECMP" "$W/tree" "$W/mnt"
"$GRANARY" umount "$W/mnt"
chattr -i "$root" 2>"$W/null" || true # the try has noted its time
dd if="$W/kept" of="$root" bs=4096 count=1 conv=notrunc status=none

echo "== a pinned file stays; the commands find the cache of the configuration file"
printf '[server]\ncache = %s:200M\n' "$CACHE" >"$W/conf"
resident() { env -u GRANARY_CACHE GRANARY_CONFIG="$W/conf" "$GRANARY" cache resident "$@"; }
root=$(basename "$(file)")
root=${root%-*}
resident --pin "$root"
resident | grep "complete, pinned" >"$W/null" || fail "not pinned: $(resident)"
! resident --evict "$root" 2>"$W/err" || fail "evicted though it is pinned"
grep "is pinned" "$W/err" >"$W/null" || { cat "$W/err"; fail "no reason"; }
resident --evict-all 2>"$W/null"
complete || fail "--evict-all removed a pinned file"
resident --check -q | grep "pinned, sound" >"$W/null" || fail "a pinned file is not checked"
resident --unpin "$root"
resident --evict "$root"
none

echo "== a full disk: the file is not completed, and nothing of it stays"
mkdir "$W/small"
truncate -s 100M "$W/disk" && mkfs.ext4 -q "$W/disk" && mount -o loop "$W/disk" "$W/small"
MOUNTS+=("$W/small")
CACHE=$W/small/cache RESIDENT=$W/small/cache/resident
"$GRANARY" mount --cache "$CACHE:64M" "$W/store/set" "$W/mnt" >"$W/out" 2>"$W/err"
head -c 90M /dev/zero >"$W/small/others" 2>"$W/null" || true
background env "$GRANARY" warm "$W/mnt" --resident -q 2>"$W/full.err"
full=$BACKGROUND_PID
while kill -0 "$full" 2>"$W/null"; do head -c 90M /dev/zero >>"$W/small/others" 2>"$W/null" || true; sleep 0.02; done
! complete || fail "complete on a full disk"
grep -E "cannot (write|complete|make room).*No space left" "$W/full.err" >"$W/null" || { cat "$W/full.err"; fail "it ended, but not for a full disk"; }
none
"$TREECMP" "$W/tree" "$W/mnt"
"$GRANARY" umount "$W/mnt"

echo "== two versions share what they have in common, on xfs; a wrong byte of the first is not taken over"
mkdir "$W/xfs"
truncate -s 600M "$W/xfs.disk"
if mkfs.xfs -q -m reflink=1 "$W/xfs.disk" >"$W/null" 2>&1 && mount -o loop "$W/xfs.disk" "$W/xfs" 2>"$W/null"; then
    MOUNTS+=("$W/xfs")
    CACHE=$W/xfs/cache RESIDENT=$W/xfs/cache/resident
    written() { "$GRANARY" warm "$W/mnt" --resident -q --json >"$W/warmed"; }
    on_xfs() { "$GRANARY" mount --direct=no --fuse --cache "$CACHE:300M" --disk-timeout "$DISK_TIMEOUT" "$W/store/set" "$W/mnt" >"$W/out" 2>"$W/err"; }
    on_xfs
    written
    jq -e '.shared == 0 and .bytes > 30000000' "$W/warmed" >"$W/null" || { cat "$W/warmed"; fail "shared with nothing"; }
    "$GRANARY" umount "$W/mnt"
    first=$(file)
    # A block of the disk goes bad, while its bytes are in memory as they were written: nobody notices.
    cat "$first" >"$W/null"
    block=$(filefrag -b4096 -e "$first" | awk '$1 ~ /^[0-9]+:$/ {
        gsub(/[.:]+/, " "); if ($2 <= 2200 && 2200 <= $3) { print $4 + 2200 - $2; exit } }')
    sync
    head -c 4096 /dev/urandom | dd of="$(losetup --noheadings --output NAME --associated "$W/xfs.disk")" bs=4096 seek="$block" \
        conv=notrunc,fsync oflag=direct status=none
    date >"$W/tree/many/7"
    "$GRANARY" build -q "$W/tree" "$W/store/set" >"$W/built"
    on_xfs
    written
    jq -e '.shared > 25000000 and .shared < .bytes' "$W/warmed" >"$W/null" || { cat "$W/warmed"; fail "not shared"; }
    "$GRANARY" umount "$W/mnt"
    ! "$GRANARY" cache resident "$CACHE" --check -q --json >"$W/checked" 2>"$W/err" || fail "wrong byte: the first file passes the check"
    jq -e '[.images[].check] | sort == ["NOT sound", "sound"]' "$W/checked" >"$W/null" || { cat "$W/checked"; fail "wrong byte taken over"; }
    "$GRANARY" mount --direct --cache "$CACHE:300M" "$W/store/set" "$W/mnt" >"$W/out" 2>"$W/err"
    is_direct "$W/mnt" || { cat "$W/err"; fail "the second version's file is not mounted"; }
    "$TREECMP" "$W/tree" "$W/mnt"
    "$GRANARY" umount "$W/mnt"
    "$GRANARY" cache resident "$CACHE" --evict-all -q
else
    echo "NOT TESTED: sharing ranges by reflink: no xfs here (mkfs.xfs of xfsprogs, and a kernel with xfs)"
fi

echo "== what cannot be: tmpfs, ext4, no cache"
mkdir "$W/tmpfs" && mount -t tmpfs tmpfs "$W/tmpfs"
MOUNTS+=("$W/tmpfs")
refused() {
    local text=$1
    shift
    ! "$@" >"$W/out" 2>"$W/err" || fail "not refused: $*"
    grep -qE "$text" "$W/err" || { cat "$W/err"; fail "no '$text' said by: $*"; }
}
refused "the kernel does not mount" "$GRANARY" mount --direct --cache "$W/tmpfs:64M" "$W/store/set" "$W/mnt"
refused "needs a cache on disk" "$GRANARY" mount --direct --cache none "$W/store/set" "$W/mnt"
refused "[-]-direct.*--follow" "$GRANARY" mount --direct --follow "$W/store/set" "$W/mnt"
if grep -qw ext4 /proc/filesystems; then
    "$GRANARY" build -q --fs ext4 "$W/other" "$W/store/ext4" >"$W/built"
    refused "is for erofs, and this image is ext4" "$GRANARY" mount --direct --cache "$W/c4:64M" "$W/store/ext4" "$W/mnt"
    printf '[mount]\ndirect = yes\n' >"$W/conf"
    GRANARY_CONFIG=$W/conf "$GRANARY" mount --cache "$W/c4:64M" "$W/store/ext4" "$W/mnt" 2>"$W/err" || fail "the configuration file made it an error"
    grep "leave it out: mounting by a server" "$W/err" >"$W/null" || { cat "$W/err"; fail "it does not say so"; }
    "$GRANARY" umount "$W/mnt"
fi
[ -z "$(ls /run/granary)" ] || fail "left: $(ls /run/granary)"
