#!/bin/bash
# `granary umount` with kernel nbd, killed at its steps by strace, inside the guest: as it starts the process that asks
# the kernel, ends keeper and server, writes something down, removes it. The next mount works, and after its umount
# nothing is left. And a kernel that does not come back from the detach does not hold it: the next umount goes on.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-killed.sh"

prepare_killed
{
    guest_killed
    cat <<'GUEST'
echo "== the kernel does not come back from the detach"
mount_it
# Stopped at the first word to the kernel, which is not sent.
if strace -f -qq -o /trace -e trace=sendmsg -e inject=sendmsg:retval=1:signal=STOP granary umount /mnt/data 2>/err; then
    echo "umount that could not detach"
    exit 1
fi
grep "the kernel does not detach /dev/nbd" /err || { cat /err; exit 1; }
if grep /mnt/data /proc/mounts; then exit 1; fi
granary umount /mnt/data
check_nothing_left "a detach without an answer"

echo "== killed"
for call in "clone,clone3,fork,vfork" "kill,pidfd_send_signal" rename "unlink,rmdir"; do
    n=1
    while mount_it || exit 1; killed $call $n granary umount /mnt/data; do
        check_healed $call $n
        n=$((n + 1))
    done
    [ $n -gt 1 ] || { echo "umount makes no $call"; exit 1; }
    check_nothing_left "not killed"
done
GUEST
} >"$W/guest.sh"
run_killed
