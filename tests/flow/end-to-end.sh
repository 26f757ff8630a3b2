#!/bin/bash
# The whole way on this machine: a tree of every awkward kind -> image in a file store -> the plugin -> the tools of
# others (nbdinfo, nbdcopy, qemu-img, fsck.erofs, dump.erofs) and a kernel mount, path by path the same as the source.
# GRANARY_FULL=1: over 4 GiB.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

sparse=$((64 << 20))
[ -z "${GRANARY_FULL:-}" ] || sparse=$((5 << 30))

make_tree() {
    mkdir -p "$1"/{empty,deep/er/and/deeper,many}
    (
        cd "$1"
        cp -a /usr/share/perl perl 2>/dev/null || cp -a /usr/share/doc perl
        for i in $(seq 3000); do echo "$i" >"many/file-$i"; done
        : >zero
        printf 'x' >one-byte
        head -c 4096 /dev/urandom >one-block
        head -c 4097 /dev/urandom >one-block-and-a-byte
        head -c 20000000 /dev/urandom >large
        cp large copy-of-large
        truncate -s $sparse sparse
        printf 'end' | dd of=sparse bs=1 seek=$((sparse - 120)) conv=notrunc status=none
        printf 'a' >'with space'
        printf 'b' >$'with\nnewline'
        printf 'c' >$'not-utf8-\xff\xfe'
        printf 'd' >"$(head -c 255 /dev/zero | tr '\0' n)"
        ln -s one-byte link
        ln -s "$(head -c 4000 /dev/zero | tr '\0' t)" long-link
        ln -s nowhere dangling
        ln one-byte deep/hard
        ln one-byte hard2
        printf 'e' >deep/er/and/deeper/owner
        chown 100000:2000000000 deep/er/and/deeper/owner
        chmod 0000 deep/er/and/deeper/owner
        chmod 1777 empty
        touch -d '1950-02-03 04:05:06.123456789Z' one-block
        touch -d '2400-01-01 00:00:00.5Z' one-block-and-a-byte
        touch -h -d '2001-01-01 00:00:00.25Z' link
        if setfattr -n user.granary -v 'a value' zero; then
            setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' v)" large
            setfattr -n user.dir -v d empty
        else
            echo "note: no extended attributes in this filesystem"
        fi
    )
}

make_tree "$W/tree"
image=file://$W/store/tree:v1
"$GRANARY" build "$W/tree" "$image" --json >"$W/build.json"
digest=$(digest_of "$image")
grep -q "$digest" "$W/build.json" || fail "build --json and inspect disagree about the digest"

echo "== the same tree gives the same digest, whatever the parallelism"
for jobs in 1 16; do
    "$GRANARY" build "$W/tree" "file://$W/store-$jobs/tree" --jobs $jobs
    [ "$(digest_of "file://$W/store-$jobs/tree")" = "$digest" ] || fail "--jobs $jobs gives another digest"
done

echo "== verify, export, fsck.erofs, dump.erofs"
"$GRANARY" verify "$image" --deep
"$GRANARY" export "$image" "$W/image"
fsck.erofs "$W/image" >"$W/fsck.log" 2>&1 || { tail "$W/fsck.log"; fail "fsck.erofs"; }
dump.erofs -s "$W/image" >"$W/dump.log"
grep -q 'Filesystem magic number: *0xE0F5E1E2' "$W/dump.log" || { cat "$W/dump.log"; fail "dump.erofs"; }

echo "== nbdinfo, nbdcopy, qemu-img"
serve_unix "$W/sock" "image=$image" "cache=$W/cache:512M"
uri="nbd+unix:///?socket=$W/sock"
nbdinfo --json "$uri" >"$W/info.json"
jq -e '.exports[0] | .is_read_only and .can_multi_conn and ."export-size" > '$sparse "$W/info.json" >"$W/jq.out" ||
    { cat "$W/info.json"; fail "nbdinfo"; }
nbdinfo --map --totals "$uri" | tee "$W/map"
grep -q hole "$W/map" || fail "no holes in the map of an image with a sparse file"
nbdcopy "$uri" "$W/copy"
cmp "$W/image" "$W/copy"
rm "$W/copy"
qemu-img compare -f raw -F raw "$W/image" "$uri"

echo "== kernel mount"
mount_export "$W/sock"
"$TREECMP" "$W/tree" "$W/mnt"
! touch "$W/mnt/new" 2>/dev/null || fail "the mount is writable"
umount "$W/mnt"
MOUNTS=()
losetup -d "$LOOP"
LOOP=

echo "== the cache survives kill -9: the same bytes, with every pack of the store gone"
"$GRANARY_BUILD/tests/tools/nbdprobe" "$uri" cache 0 0 # fills follow the reads they are for, and may be left out
kill -9 "$SERVER_PID"
wait "$SERVER_PID" || true
rm -r "$W/store/packs"
rm -f "$W/sock"
serve_unix "$W/sock" "image=$image" "cache=$W/cache:512M"
qemu-img compare -f raw -F raw "$W/image" "$uri"
