# shellcheck shell=bash
# Sourced by the tests in tests/flow and tests/vm: where the programs are, a directory of one's own, a server to talk to.
#
#   GRANARY, PLUGIN, TREECMP   the programs under test, and the comparer of trees
#   W                 a scratch directory, gone at the end; every process started by `background` is gone by then too

set -euo pipefail
: "${GRANARY_BUILD:?run by ctest, or with GRANARY_BUILD=build-debug}"
GRANARY_BUILD=$(readlink -f "$GRANARY_BUILD")
export GRANARY_SOURCE=${GRANARY_SOURCE:-$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")}
export GRANARY=$GRANARY_BUILD/cli/granary
export PLUGIN=$GRANARY_BUILD/plugin/nbdkit-granary-plugin.so
export TREECMP=$GRANARY_BUILD/tests/tools/treecmp
export LC_ALL=C

. "$GRANARY_SOURCE/tools/processes.sh"

W=$(mktemp -d)
MOUNTS=()
FAULTY=()

fail() { echo "FAILED: $*" >&2; exit 1; }

# skip REASON: the last line says why, ./test repeats it. Never in CI for something apt can install.
skip() {
    [[ -z ${CI:-} || $* != *"apt-get install"* ]] || fail "CI installs what is needed, yet: $*"
    echo "$*"
    exit 77
}

cleanup() {
    local status=$? i
    set +e
    for i in "${FAULTY[@]}"; do echo off >"$i/.faults"; done # what hangs could not be killed
    for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do umount "${MOUNTS[$i]}" 2>/dev/null || umount -l "${MOUNTS[$i]}" 2>/dev/null; done
    [ -z "${LOOP:-}" ] || losetup -d "$LOOP" 2>/dev/null
    end_background
    declare -F extra_cleanup >/dev/null && extra_cleanup
    rm -rf "$W"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A disk of this machine that is busy for seconds is not to be taken for one that hangs: hits would become fetches.
export DISK_TIMEOUT=60s

# serve_unix SOCKET ARG...: nbdkit with the plugin on a unix socket; its process id is in SERVER_PID
serve_unix() {
    local socket=$1
    shift
    background nbdkit -f -t 64 --unix "$socket" "$PLUGIN" disk-timeout=$DISK_TIMEOUT "$@"
    export SERVER_PID=$BACKGROUND_PID
    wait_for 20 test -S "$socket"
}

# mount_export SOCKET: the export under $W/mnt through nbdfuse and a direct-I/O loop device, where this machine can
mount_export() {
    [ -e /dev/fuse ] || skip "no /dev/fuse here: the mount is not tested"
    mkdir -p "$W/nbd" "$W/mnt"
    : >"$W/nbd/file"
    background nbdfuse -r "$W/nbd/file" --unix "$1"
    wait_for 20 test -s "$W/nbd/file"
    LOOP=$(losetup -r --direct-io=on -f --show "$W/nbd/file") || skip "no loop device to be had here: the mount is not tested"
    mount -t erofs -o ro,nodev,nosuid "$LOOP" "$W/mnt" || skip "this kernel does not mount erofs: the mount is not tested"
    MOUNTS+=("$W/mnt")
}

# faulty DIR BACKING: BACKING (made if missing) seen at DIR through tests/tools/faultfs.c, whose head says what may be
# written to DIR/.faults; its process id is in FAULTFS_PID
faulty() {
    [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] || skip "no /dev/fuse here, or not root: faults of a disk are not tested"
    mkdir -p "$1" "$2"
    background "$GRANARY_BUILD/tests/tools/faultfs" "$2" "$1"
    export FAULTFS_PID=$BACKGROUND_PID
    FAULTY+=("$1")
    MOUNTS+=("$1")
    wait_for 20 test -e "$1/.faults"
}

# serve_tcp ARG...: nbdkit with the plugin on a free TCP port of 127.0.0.1, left in PORT
serve_tcp() {
    local try
    for try in 1 2 3 4 5 6 7 8; do
        PORT=$((20000 + (RANDOM + try) % 20000))
        (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && continue
        background nbdkit -f -t 256 -i 127.0.0.1 -p "$PORT" "$PLUGIN" "$@"
        wait_for 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$PORT || ! kill -0 $BACKGROUND_PID"
        ! kill -0 "$BACKGROUND_PID" 2>/dev/null || return 0
    done
    fail "no server came up on a TCP port"
}

# digest_of IMAGE: the image digest by `granary inspect --json`
digest_of() { "$GRANARY" inspect --json "$1" | jq -r .digest; }

# manifest_of_tree DIR: a line for every path: its type, mode, owner, mtime, size or target, and the digests of files.
# The same text from GNU and busybox tools.
manifest_of_tree() {
    (
        cd "$1"
        find . ! -type d -print0 | xargs -0 stat -c '%n|%F|%a|%u|%g|%Y|%s' | sed 's/regular empty file/regular file/' | sort
        find . -type d -print0 | xargs -0 stat -c '%n|%F|%a|%u|%g|%Y' | sort
        find . -type f -print0 | xargs -0 sha256sum | sort
        find . -type l -exec sh -c 'for l; do echo "$l -> $(readlink "$l")"; done' sh {} + | sort
    )
}
