# shellcheck shell=bash
# Sourced by flow tests that mount, before tests/lib.sh: a mount namespace of the test's own with an empty
# /run/granary and nothing of the units. What this machine has mounted and serves by granary does not meddle with the
# test, nor the test with that; and a namespace that another test makes has no copy of the test's mounts, for which
# `granary umount` would refuse to detach.
#
# The servers of mounts are no children of the test, so they would outlive one that fails, or that ctest kills because it
# takes too long: lib.sh ends them in the first case, by own_mounts_end, and a process that waits for the test's end in
# the second.
#
#   needs_fuse      skips a test that cannot mount by FUSE here; called after lib.sh
#   own_servers     the numbers of granary's processes in this namespace, but for granary-csi
needs_fuse() {
    [ "$(id -u)" = 0 ] || skip "mounting needs root"
    [ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here"
}

if [ -n "${GRANARY_OWN_MOUNTS:-}" ]; then
    for dir in /run/granary /run/granary-versions /run/mount $(compgen -G "/run/granary-*" | grep -v versions); do # the last: what units have
        mkdir -p $dir
        mount -t tmpfs -o mode=755 tmpfs $dir
    done
    unset GRANARY_OWN_MOUNTS dir
    own_servers() { pgrep --ns $BASHPID --nslist mnt -x 'granary(-nbd|-fuse|-ublk)?' 2>/dev/null; } # it warns of a long pattern
    own_mounts_end() {
        local left
        left=$(own_servers | xargs)
        [ -n "$left" ] || return 0
        echo "ended at the end of the test: $left" >&2
        xargs kill -9 <<<"$left" 2>/dev/null
        grep " $W/" /proc/self/mounts | cut -d' ' -f2 | tac | xargs -rn1 umount -l 2>/dev/null
    }
    ( (tail --pid=$$ -f /dev/null; own_servers | xargs -r kill -9) </dev/null >/dev/null 2>&1 & ) # a child of nobody here
elif unshare --mount true 2>/dev/null; then
    GRANARY_OWN_MOUNTS=1 exec unshare --mount --propagation private bash "$0" "$@"
fi # otherwise it is not root, and the test says so
