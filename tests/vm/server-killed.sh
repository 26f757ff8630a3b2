#!/bin/bash
# The server that `granary mount` started is killed with -9, the supervisor and not only its child, under readers of the
# mount (tests/tools/mount_reader.c): `granary mount -f` starts it again by itself, and the next `granary mount` does
# for mounts without one, with all images that had been added. No read fails, none is wrong, and all go on.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
for name in two three; do
    mkdir -p "$W/trees/$name"
    head -c 300000 /dev/urandom >"$W/trees/$name/file"
    "$GRANARY" build -q "$W/trees/$name" "file://$W/store/$name" >"$W/built"
done

{
    guest_readers
    cat <<'GUEST'
options="--cache /cache:64M --nbd-timeout 5s"
mkdir -p /mnt/two /mnt/three
# kill_server: the supervisor, which takes its child along
kill_server() {
    old=$(pidof granary-nbd)
    kill -9 $(sed -n 's/^PPid:[[:space:]]*//p' /proc/$old/status)
}

granary mount -f file:///store/perl /mnt/data $options >/mount.out 2>/mount.err &
mount=$!
until_true 'grep -q "is mounted on" /mount.out'
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
start_readers
kill_server
another_child
until_true 'grep "/mnt/data: its server was gone; it is started again" /mount.err'
end_readers "granary serve that granary mount -f started, killed with -9"
kill -TERM $mount
wait $mount
until_true '! pidof granary-nbd'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }

granary mount file:///store/perl /mnt/data $options
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
granary mount file:///store/two /mnt/two $options
start_readers
kill_server
granary mount file:///store/three /mnt/three $options 2>/err
grep "the server of other mounts had died; it is started again" /err || { cat /err; exit 1; }
end_readers "one that mounts share, killed with -9; another mount"
for name in two three; do cmp /trees/$name/file /mnt/$name/file; done
granary status --quick --json >/status # of a mount point its export alone
for name in perl two three; do grep -qF "\"name\":\"$name\"" /status || { cat /status; exit 1; }; done
granary umount /mnt/data
granary umount /mnt/two
cmp /trees/three/file /mnt/three/file
granary umount /mnt/three
until_true '! pidof granary-nbd'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }
GUEST
} >"$W/guest.sh"
run_readers 850 --file "$W/trees:/trees"
