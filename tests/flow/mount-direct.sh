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
    own_servers | xargs kill -9
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
