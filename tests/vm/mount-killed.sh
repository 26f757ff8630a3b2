#!/bin/bash
# `granary mount` with kernel nbd, killed at its steps by strace, inside the guest: as it tells the kernel to attach,
# writes something down, starts a process, mounts. The next mount works, and after its umount nothing is left.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-killed.sh"

prepare_killed
{
    guest_killed
    cat <<'GUEST'
for call in sendmsg rename "clone,clone3,fork,vfork" mount; do
    n=1
    while killed $call $n granary mount --warm none file:///store/set /mnt/data; do
        check_healed $call $n
        n=$((n + 1))
    done
    [ $n -gt 1 ] || { echo "mount makes no $call"; exit 1; }
    cmp /tree/file /mnt/data/file
    granary umount /mnt/data
    check_nothing_left "not killed"
done
GUEST
} >"$W/guest.sh"
run_killed
