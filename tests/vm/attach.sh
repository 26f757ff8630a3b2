#!/bin/bash
# An image of a real tree, served here over TCP, attached by the guest with plain nbd-client over four connections and
# mounted: every path is the same there. Then two containers share the one attachment through read-only bind mounts:
# both read it right, neither can write.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
vm=$GRANARY_SOURCE/tests/vm/kit/vm.sh

tree=/usr/share/perl
[ -d $tree ] || tree=/usr/share/doc
"$vm" prepare "$GRANARY_BUILD/vm"
"$GRANARY" build "$tree" "file://$W/store/perl"
serve_tcp "image=file://$W/store/perl" "cache=$W/cache:256M"
manifest_of_tree "$tree" >"$W/want"
[ "$(wc -l <"$W/want")" -gt 1000 ] || fail "$tree is too small to prove anything"

{
    declare -f manifest_of_tree
    cat <<'GUEST'
set -e
nbd-client 10.0.2.2 "$1" /dev/nbd0 -C 4 -t 300 -N ""
mkdir -p /mnt/data
mount -t erofs -o ro,nodev,nosuid /dev/nbd0 /mnt/data
manifest_of_tree /mnt/data >/run/got
cmp /run/got /want || { diff /run/got /want | sed -n 1,20p; exit 1; }
echo "$(wc -l </run/got) lines of the tree agree"

# bundle DIR COMMAND: a container with a busybox root, its own namespaces and the mount bound read-only
bundle() {
    mkdir -p $1/rootfs/bin $1/rootfs/data $1/rootfs/proc $1/rootfs/dev
    cp /bin/busybox $1/rootfs/bin/
    for a in sh touch cat grep find xargs sha256sum sort cut; do ln -s busybox $1/rootfs/bin/$a; done
    cat >$1/config.json <<JSON
{"ociVersion":"1.0.2","process":{"user":{"uid":0,"gid":0},"args":["sh","-c","$2"],"env":["PATH=/bin"],"cwd":"/",
 "capabilities":{"bounding":["CAP_DAC_OVERRIDE"],"effective":["CAP_DAC_OVERRIDE"],"permitted":["CAP_DAC_OVERRIDE"]}},
 "root":{"path":"rootfs"},"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
 {"destination":"/data","type":"bind","source":"/mnt/data","options":["rbind","ro"]}],
 "linux":{"namespaces":[{"type":"pid"},{"type":"mount"},{"type":"ipc"},{"type":"uts"}]}}
JSON
}
work="touch /data/x 2>/err && echo WROTE; grep -q Read-only /err || cat /err; find /data -type f | sort | xargs sha256sum | cut -c 1-64 | sha256sum"
want=$(find /mnt/data -type f | sort | xargs sha256sum | cut -c 1-64 | sha256sum)
echo 3 >/proc/sys/vm/drop_caches
for c in one two; do
    bundle /run/$c "$work"
    crun run --no-pivot -b /run/$c $c >/run/$c.out 2>&1 &
done
wait
for c in one two; do
    [ "$(cat /run/$c.out)" = "$want" ] || { echo "container $c:"; cat /run/$c.out; exit 1; }
    echo "container $c read every file and could not write"
done
[ "$(grep -c ' /mnt/data ' /proc/mounts)" = 1 ]
umount /mnt/data
nbd-client -d /dev/nbd0
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --bin "$(command -v crun)" --file "$W/want:/want" \
    "$GRANARY_BUILD/vm" "$W/guest.sh" "$PORT"
