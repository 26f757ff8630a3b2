#!/bin/bash
# What the configuration file says in [mount] holds for kernel nbd, inside the guest, and `granary bench` measures such a
# mount.
# ctest: long lock=vm
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-images.sh"

prepare_images
{
    guest_images
    cat <<'GUEST'
mkdir -p /mnt/data /etc/granary
cat >/etc/granary.conf <<'CONF'
[server]
memory = 64M
[mount]
connections = 1
nbd-timeout = 7s
noexec = yes
CONF
granary mount file:///store/perl /mnt/data
grep '^/dev/nbd[0-9]* /mnt/data erofs ro,[^ ]*noexec' /proc/mounts
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
d=/sys/block/${device#/dev/}
[ "$(ls $d/mq | wc -l)" = 1 ] || { echo "other connections than one"; exit 1; }
[ "$(cat $d/queue/io_timeout)" = 7000 ] || { echo "the kernel waits for $(cat $d/queue/io_timeout) ms"; exit 1; }
granary bench --seconds 6 --json /mnt/data | tr -d ' \n' >/bench
cat /bench; echo
for figure in '"first_files":{[^}]*"raw":null,"granary":[1-9]' '"again_bytes":{[^}]*"raw":[1-9][0-9]*,"granary":[1-9]' \
    '"first_fetched":{[^}]*"granary":[1-9]' '"image":"file:///store/perl' '"notes":\[\]'; do
    grep -q "$figure" /bench || { echo "no $figure"; exit 1; }
done
granary umount /mnt/data
rm /etc/granary.conf
GUEST
} >"$W/guest.sh"
run_images
