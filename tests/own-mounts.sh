# shellcheck shell=bash
# Sourced by flow tests that run `granary mount`, before tests/lib.sh: a mount namespace of the test's own with an empty
# /run/granary. What this machine has mounted by granary does not meddle with the test, nor the test with that; and a
# namespace that another test makes has no copy of the test's mounts, for which `granary umount` would refuse to detach.
if [ -n "${GRANARY_OWN_MOUNTS:-}" ]; then
    for dir in /run/granary /run/mount; do
        mkdir -p $dir
        mount -t tmpfs -o mode=755 tmpfs $dir
    done
    unset GRANARY_OWN_MOUNTS dir
elif unshare --mount true 2>/dev/null; then
    GRANARY_OWN_MOUNTS=1 exec unshare --mount --propagation private bash "$0" "$@"
fi # otherwise it is not root, and the test says so
