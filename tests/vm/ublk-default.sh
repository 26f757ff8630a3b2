#!/bin/bash
# Which front a mount takes on Debian 13's kernel when none is named: ublk; but kernel nbd where an option or a setting asks
# for it, where a server for nbd is there that the mount would share or join, and where ublk is refused. A node has more
# than the 64 ublk devices that the driver allows by itself.
# ctest: lock=vm long
suite=trixie
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-images.sh"

prepare_images
{
    guest_images
    cat <<'GUEST'
mkdir -p /mnt/data /mnt/second
# takes FRONT ARG...: a mount with these options has that front, and its files are right
takes() {
    local front=$1
    shift
    granary mount file:///store/perl /mnt/data "$@" >/out.txt 2>/err.txt || { cat /err.txt; exit 1; }
    cat /out.txt /err.txt
    grep "($front, /dev/" /out.txt
    few_same /mnt/data
}
gone() { granary umount /mnt/data; }
[ -e /dev/ublk-control ] || { echo "this kernel has no ublk"; exit 1; }

takes ublk --cache /cache:64M
granary doctor >/doctor || true
grep "^OK *ublk  *.*mounts use it" /doctor
gone
takes "kernel nbd" --ublk=no; gone
takes "kernel nbd" --connections 1; gone
takes "kernel nbd" --dead-timeout 5m; gone

echo "== the configuration file"
mkdir -p /etc
printf '[mount]\nublk = no\n' >/etc/granary.conf
takes "kernel nbd"; gone
takes ublk --ublk; gone
printf '[mount]\nnbd-timeout = 7s\n' >/etc/granary.conf
takes "kernel nbd"; gone
printf '[mount]\nublk = yes\nnbd-timeout = 7s\n' >/etc/granary.conf
takes ublk; gone
takes "kernel nbd" --ublk=no; gone
printf '[mount]\nublk = no\n' >/etc/granary.conf
takes "kernel nbd" --fuse=no; gone
rm /etc/granary.conf

echo "== a server that is there"
granary mount --ublk=no file:///store/perl /mnt/second --cache /cache:64M >/dev/null
takes "kernel nbd" --cache /cache:64M; gone
granary umount /mnt/second
granary mount --ublk file:///store/perl /mnt/second --cache /cache:64M >/dev/null
granary mount --dead-timeout 5m file:///store/perl /mnt/data --cache /cache:64M 2>/err.txt && { echo "one cache, two servers"; exit 1; }
cat /err.txt
grep "the server with these options is for ublk, and this mount is not.*mount the others with --ublk=no" /err.txt
granary umount /mnt/second
granary serve --socket /run/granary/nbd.sock file:///store/perl >/serve.log 2>&1 &
server=$!
until_true 'grep -q serving /serve.log'
takes "kernel nbd"; gone
takes "kernel nbd" --join; gone
kill $server
wait $server
granary mount --join file:///store/perl /mnt/data 2>/err.txt && { echo "joined nothing"; exit 1; }
grep "no server answers at /run/granary/nbd.sock" /err.txt

echo "== /dev shows no new devices"
mkdir /dev.own
mount -t tmpfs none /dev.own
cp -a /dev/. /dev.own
mount --bind /dev.own /dev
takes "kernel nbd"
grep "no ublk: a new ublk device would not appear in this /dev" /err.txt
gone
umount -l /dev

echo "== ublk is refused"
mv /dev/ublk-control /dev/away
takes "kernel nbd"; gone
granary mount --ublk file:///store/perl /mnt/data 2>/err.txt && { echo "mounted without the driver"; exit 1; }
grep "this kernel has no ublk" /err.txt
mv /dev/away /dev/ublk-control
echo 2 >/proc/sys/kernel/io_uring_disabled
takes "kernel nbd"
grep "no ublk: .*io_uring may be off" /err.txt
gone
echo 0 >/proc/sys/kernel/io_uring_disabled

# Later kernels of 6.12 count unprivileged devices alone against the limit; before, the server raises it.
echo "== more devices than the driver allows by itself"
[ "$(cat /sys/module/ublk_drv/parameters/ublks_max)" = 64 ]
granary serve --ublk /u.sock file:///store/perl --cache /cache:64M >/serve.log 2>&1 &
server=$!
until_true 'grep -q serving /serve.log'
for i in $(seq 66); do
    mkdir -p /many/$i
    granary mount --ublk file:///store/perl /many/$i --socket /u.sock >/dev/null
done
cat /serve.log
grep -Ex "64|4096" /sys/module/ublk_drv/parameters/ublks_max
few_same /many/66
for i in $(seq 66); do granary umount /many/$i; done
until_true '! ls /dev/ublkc* >/dev/null 2>&1'
kill $server
GUEST
} >"$W/guest.sh"
run_images
