# shellcheck shell=bash
# Sourced after tests/lib.sh by the tests that kill granary at its steps inside the guest: as it asks the kernel for
# something, writes something down, starts and ends processes.
. "$GRANARY_SOURCE/tests/vm/lib.sh"

# prepare_killed: prepare_guest, and a small image in $W/store of $W/tree
prepare_killed() {
    command -v strace >"$W/null" || skip "no strace here (apt-get install strace)"
    prepare_guest
    mkdir "$W/tree"
    head -c 300000 /dev/urandom >"$W/tree/file"
    "$GRANARY" build -q "$W/tree" "file://$W/store/set" >"$W/built"
}

# guest_killed: the beginning of the guest's script
guest_killed() {
    declare -f until_true mount_it check_nothing_left killed check_healed
    echo 'set -e; mkdir -p /mnt/data /mnt/other /etc/granary'
}

run_killed() {
    "$vm" run --timeout 850 "${PROGRAMS[@]}" --bin "$(command -v strace)" \
        --file "$W/store:/store" --file "$W/tree:/tree" "$GRANARY_BUILD/vm" "$W/guest.sh"
}

# The rest is for the guest. mount_it [DIR]
mount_it() { granary mount --warm none file:///store/set "${1:-/mnt/data}" >/mount.out; }

check_nothing_left() {
    until_true '! pidof granary-nbd granary >/dev/null'
    ! grep /mnt/ /proc/mounts || { echo "$1: the mount is left"; exit 1; }
    until_true "! cat /sys/block/nbd*/size | grep -v '^0\$'" # 0 when the last who had it open is gone
    [ -z "$(ls /run/granary)" ] || { echo "$1: state is left"; ls -lR /run/granary; exit 1; }
}

# killed CALL N COMMAND...: killed at its N-th such call, or (1) it came to its end without one
killed() {
    local call=$1 n=$2 status=0
    shift 2
    strace -qq -o /trace -e "trace=$call" -e "inject=$call:signal=KILL:when=$n" "$@" >/killed.out 2>/err || status=$?
    [ $status = 0 ] || [ $status -ge 128 ] || { echo "killed at $call $n it ended by itself"; cat /err; exit 1; }
    [ $status != 0 ]
}

# check_healed WHAT N: a mount works, and leaves nothing. The call before it, or it, finds what was left: every second
# time an umount, which may find nothing, else a mount on another directory
check_healed() {
    local dir=/mnt/other
    if [ $(($2 % 2)) = 1 ] || grep -q ' /mnt/data ' /proc/mounts; then
        dir=/mnt/data
        granary umount $dir 2>/err || { echo "umount after $1 $2:"; cat /err; exit 1; }
    fi
    mount_it $dir || { echo "mount after $1 $2 failed"; exit 1; }
    cmp /tree/file $dir/file
    granary umount $dir || { echo "the second umount after $1 $2 failed"; exit 1; }
    check_nothing_left "killed at $1 $2"
    echo "killed at $1 $2: healed"
}
