#!/bin/bash
# The udev rule, in the guest with systemd-udevd and its own rules: a device that granary attached, by nbd or ublk, is
# neither probed by blkid nor watched, and udisks is told to ignore it; one that nbd-client attached is all that as ever.
# ctest: lock=vm long
suite=trixie
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"
rules=/usr/lib/udev/rules.d
[ -x /usr/bin/udevadm ] && [ -e $rules/60-block.rules ] || skip "no udev here (apt-get install udev)"

prepare_guest
mkdir "$W/tree" "$W/rules"
echo hello >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "file://$W/store/set"
cp $rules/60-block.rules $rules/60-persistent-storage.rules "$GRANARY_SOURCE/deploy/udev/59-granary.rules" "$W/rules"

{
    declare -f until_true
    cat <<'GUEST'
set -e
mkdir -p /mnt/data /run/udev
ln -s /usr/bin/udevadm /bin/systemd-udevd
systemd-udevd --daemon
udevadm control --ping
properties() { udevadm settle --timeout=300; udevadm info --query=property "$1"; }
watched() { [ -L "/run/udev/watch/b$(printf %d:%d 0x$(stat -c %t $1) 0x$(stat -c %T $1))" ]; }

# left_alone FRONT
left_alone() {
    granary mount "$1" file:///store/set /mnt/data
    device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
    properties $device >/ours
    cat /ours
    grep -qx UDISKS_IGNORE=1 /ours
    grep ID_FS /ours && { echo "it was probed"; exit 1; }
    watched $device && { echo "it is watched"; exit 1; }
    return 0
}
echo "== ours by ublk"
left_alone --ublk
granary umount /mnt/data
echo "== ours by nbd"
left_alone --ublk=no

echo "== another program's"
granary serve file:///store/set --socket /s.sock >/serve.log 2>&1 &
until_true "grep -qs 'serving ' /serve.log"
nbd-client -unix /s.sock /dev/nbd5 -N set -R
probed() { properties /dev/nbd5 >/other && grep -qx ID_FS_TYPE=erofs /other; }
until_true probed
grep UDISKS_IGNORE /other && { echo "it is ignored"; exit 1; }
watched /dev/nbd5
nbd-client -d /dev/nbd5

echo "== ours again"
granary umount /mnt/data
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --bin /usr/bin/udevadm --file "$W/rules:/usr/lib/udev/rules.d" \
    --file "$W/store:/store" "$vm_dir" "$W/guest.sh"
