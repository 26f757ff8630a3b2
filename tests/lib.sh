# shellcheck shell=bash
# Sourced by the tests in tests/flow and tests/vm: where the programs are, a directory of one's own, a server to talk
# to.
#
#   GRANARY, PLUGIN, NBD, UBLK, TREECMP   the programs under test, and the comparer of trees
#   W                 a scratch directory, gone at the end; every process started by `background` is gone by then too

set -euo pipefail
: "${GRANARY_BUILD:?run by ctest, or with GRANARY_BUILD=build-debug}"
GRANARY_BUILD=$(readlink -f "$GRANARY_BUILD")
export GRANARY_SOURCE=${GRANARY_SOURCE:-$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")}
export GRANARY=$GRANARY_BUILD/cli/granary
export PLUGIN=$GRANARY_BUILD/plugin/nbdkit-granary-plugin.so
export NBD=$GRANARY_BUILD/nbd/granary-nbd
export UBLK=$GRANARY_BUILD/ublk/granary-ublk
export TREECMP=$GRANARY_BUILD/tests/tools/treecmp
export LC_ALL=C
# What tools/packages.sh installs goes before others of its name: the python3 of a pyenv takes 0.15 s to start, not 0.02.
export PATH=/usr/bin:$PATH

# No test leaves a cache in this machine's /var/cache, or reads by one that it did not ask for.
export GRANARY_CACHE=none
export GRANARY_CONFIG=none # nor settings of this machine

. "$GRANARY_SOURCE/tools/processes.sh"

W=$(mktemp -d)
export LOGS_DIRECTORY=$W/log # not in this machine's /var/log
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
    declare -F own_mounts_end >/dev/null && own_mounts_end
    rm -rf "$W"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# A disk of this machine that is busy for seconds is not to be taken for one that hangs: hits would become fetches.
export DISK_TIMEOUT=60s

# listens PATH: a server listens on that unix socket. Between its making and that it would refuse.
listens() { awk -v path="$1" '$4 == "00010000" && $NF == path { found = 1 } END { exit !found }' /proc/net/unix; }

# serve_unix SOCKET ARG...: nbdkit with the plugin on a unix socket; its process id is in SERVER_PID
serve_unix() {
    local socket=$1
    shift
    background nbdkit -f -t 64 --unix "$socket" "$PLUGIN" disk-timeout=$DISK_TIMEOUT "$@"
    export SERVER_PID=$BACKGROUND_PID
    wait_for 60 listens "$socket"
}

# mount_export SOCKET: the export under $W/mnt through nbdfuse and a direct-I/O loop device, where this machine can
mount_export() {
    [ -e /dev/fuse ] || skip "no /dev/fuse here: the mount is not tested"
    mkdir -p "$W/nbd" "$W/mnt"
    : >"$W/nbd/file"
    background nbdfuse -r "$W/nbd/file" --unix "$1"
    wait_for 60 test -s "$W/nbd/file"
    LOOP=$(losetup -r --direct-io=on -f --show "$W/nbd/file") || skip "no loop device here: the mount is not tested"
    mount -t erofs -o ro,nodev,nosuid "$LOOP" "$W/mnt" || skip "this kernel does not mount erofs: the mount is not tested"
    MOUNTS+=("$W/mnt")
}

# forget_pages FILE...: the kernel has no pages of these files, so that their next reader asks the server. drop_caches
# would take everybody's: for each use, every program of this machine is read from its disk again.
forget_pages() {
    local file
    for file in "$@"; do dd if="$file" iflag=nocache count=0 status=none; done
}

# no_loop_on PATH: no loop device stands on a file there. Wait for it: the kernel takes its time, and a test in another
# mount namespace may have a file of that path.
no_loop_on() { ! losetup -ln -O BACK-FILE | grep -F "$1" >"$W/null"; }

# metrics CONTROL: the document of a server's control socket
metrics() { curl -sS --fail --max-time 60 --unix-socket "$1" http://granary/metrics; }
# counter_of CONTROL NAME: its counter granary_NAME. By sed, because jq takes 25 ms to start, and many poll.
counter_of() {
    curl -sS --fail --unix-socket "$1" http://granary/status | sed -nE 's/.*"granary_'"$2"'":(-?[0-9.]+).*/\1/p'
}
# metric_is CONTROL LINE: it has this line
metric_is() { metrics "$1" | grep -Fx "$2" >"$W/null"; }

# faulty DIR BACKING: BACKING (made if missing) seen at DIR through tests/tools/faultfs.c, whose head says what may be
# written to DIR/.faults; its process id is in FAULTFS_PID
faulty() {
    [ -e /dev/fuse ] && [ "$(id -u)" = 0 ] || skip "no /dev/fuse here, or not root: faults of a disk are not tested"
    mkdir -p "$1" "$2"
    background "$GRANARY_BUILD/tests/tools/faultfs" "$2" "$1"
    export FAULTFS_PID=$BACKGROUND_PID
    FAULTY+=("$1")
    MOUNTS+=("$1")
    wait_for 60 test -e "$1/.faults"
}

# answers PORT: somebody listens there on 127.0.0.1
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port: one of 127.0.0.1 that nobody listens on, in FREE_PORT; no other test is given it as long as this one runs.
# Below those that the kernel gives to clients.
free_port() {
    local held
    mkdir -p "${TMPDIR:-/tmp}/granary-test-ports"
    while :; do
        FREE_PORT=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        exec {held}>"${TMPDIR:-/tmp}/granary-test-ports/$FREE_PORT"
        if flock -n "$held" && ! answers "$FREE_PORT"; then return 0; fi
        exec {held}>&-
    done
}

# serve_tcp ARG...: nbdkit with the plugin on a free TCP port of 127.0.0.1, left in PORT
serve_tcp() {
    free_port
    PORT=$FREE_PORT
    background nbdkit -f -t 256 -i 127.0.0.1 -p "$PORT" "$PLUGIN" "$@"
    wait_for 60 answers "$PORT"
}

# serve_nginx HTTP-DIRECTIVES: nginx with these, logging requests to $W/access.log as `METHOD URI BYTES-OF-BODY`. One
# process, so that a request is in the log before the next one is answered: see logged.
serve_nginx() {
    {
        echo "user root; worker_processes 1; pid $W/nginx.pid; error_log $W/error.log; events { worker_connections 200; }"
        echo "http { log_format sent '\$request_method \$uri \$body_bytes_sent'; access_log $W/access.log sent;"
        echo "client_body_temp_path $W/t1; proxy_temp_path $W/t2; fastcgi_temp_path $W/t3; uwsgi_temp_path $W/t4;"
        echo "scgi_temp_path $W/t5; $1 }"
    } >"$W/nginx.conf"
    background nginx -c "$W/nginx.conf" -g 'daemon off;'
    export NGINX_PID=$BACKGROUND_PID
}

# serve_silent ROOT: an HTTP server of ROOT's files at $STORE_URL, which answers nobody while $W/dead exists
serve_silent() {
    PYTHONDONTWRITEBYTECODE=1 background python3 "$GRANARY_SOURCE/tests/servers/silent.py" "$1" "$W/port" "$W/dead" 2>"$W/server.err"
    wait_for 60 test -s "$W/port"
    STORE_URL=http://127.0.0.1:$(cat "$W/port")
    export STORE_URL
}

# logged PORT: the log of that nginx, with all that was answered before
logged() {
    curl -s -o "$W/null" --noproxy '*' "http://127.0.0.1:$1/everything-before-this" || fail "nginx does not answer on $1"
    cat "$W/access.log"
}

# digest_of IMAGE: the image digest by `granary inspect --json`
digest_of() { "$GRANARY" inspect --json "$1" | jq -r .digest; }

# refused CODE TEXT COMMAND...: it exits with CODE and says TEXT; what it printed is in $W/out and $W/err
refused() {
    local code=$1 text=$2 status=0
    shift 2
    "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = "$code" ] && grep -qF -- "$text" "$W/err" || { cat "$W/err" >&2; fail "exit $status, not $code with '$text': $*"; }
}

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

# make_faces DIR: two kinds of files, of 2 MB and 0.3 MB, an empty file and an empty directory
make_faces() {
    mkdir -p "$1/train" "$1/val/deep" "$1/empty"
    local i
    for i in $(seq 12); do
        head -c 2000000 /dev/urandom >"$1/train/$i.jpg"
        head -c 300000 /dev/urandom >"$1/val/deep/$i.txt"
    done
    : >"$1/val/nothing"
}
