# shellcheck shell=bash
# Debian packages by purpose, in one place: ./test, ./quickstart, .ci/run and bench/ source this file.
#
#   packages_ensure GROUP...     installs what is missing of the named groups (build run style test vm package training
#                                bench epoch), and says what, how large it is, and every fifteen seconds how far apt
#                                has come
#   packages_missing GROUP...    prints the missing ones, one a line

declare -A PACKAGES=(
    [build]="gcc libc6-dev cmake ninja-build pkg-config libcurl4-openssl-dev libssl-dev liburing-dev libzstd-dev
        libjansson-dev libexpat1-dev libmicrohttpd-dev nbdkit-plugin-dev libnbd-dev libnl-3-dev
        libnl-genl-3-dev libmount-dev libfuse3-dev libext2fs-dev comerr-dev libarchive-dev zlib1g-dev libgnutls28-dev
        libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler"
    [run]="nbdkit libnbd-bin fuse3 mount kmod ca-certificates"
    [style]="shellcheck clang-format clang-tidy cppcheck jq node-typescript"
    [test]="libcmocka-dev binutils clang libclang-rt-14-dev llvm erofs-utils e2fsprogs xfsprogs qemu-utils nbdkit libnbd-bin fuse3 strace curl
        jq zstd python3 procps psmisc attr ceph-mon ceph-osd ceph-common radosgw nginx-light varnish apache2-bin libnginx-mod-http-echo
        minisign python3-grpcio python3-yaml default-jre-headless maven iproute2 faketime prometheus gnutls-bin systemd udev
        containerd podman skopeo chromium fonts-dejavu-core"
    [vm]="qemu-system-x86 seabios busybox-static nbd-client cpio kmod crun containerd runc
        containernetworking-plugins"
    [package]="build-essential debhelper lintian mmdebstrap umoci jq crun rpm git"
    [bench]="fio rclone curl iproute2 nbdkit libnbd-bin python3 python3-grpcio e2fsprogs erofs-utils zstd time jq"
    [training]="python3-torch python3-torchvision python3-lmdb python3-venv"
    [epoch]="nginx-light s3fs s3backer python3-numpy python3-pil python3-lmdb python3-torch python3-torchvision"
)

packages_missing() {
    local group package
    for group in "$@"; do
        for package in ${PACKAGES[$group]}; do
            [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
        done
    done | sort -u
}

# apt_progress: apt's status lines on stdin ("dlstatus:3:41.2:Retrieving file 3 of 9"); a line every fifteen seconds
apt_progress() {
    local line began=$SECONDS next=$((SECONDS + 15))
    while IFS= read -r line; do
        if [[ $line = "Need to get "* || $line = "After this operation"* ]]; then echo "  $line"; fi
        [ "$SECONDS" -ge "$next" ] && [[ $line =~ ^(dl|pm)status:.*:([0-9]+)(\.[0-9]+)?:([^:]*)$ ]] || continue
        echo "  $((SECONDS - began)) s: ${BASH_REMATCH[4]:-apt works}, ${BASH_REMATCH[2]} %"
        next=$((SECONDS + 15))
    done
}

packages_ensure() {
    local missing log
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    set -- $missing
    echo "apt installs $# packages, and what they depend on: $*"
    if [ "$(id -u)" != 0 ]; then
        echo "not root; install them yourself and run again: apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    log=$(mktemp)
    # Only apt itself has the pipe: a daemon that an installation starts would keep it open.
    if ! (
        set -o pipefail
        export DEBIAN_FRONTEND=noninteractive LC_ALL=C
        {
            apt-get update -q -o APT::Status-Fd=3 || exit
            apt-get install -q --assume-no --no-install-recommends "$@" 3>&- |
                grep -E '^(Need to get|After this operation)' >&3
            apt-get install -y -q --no-install-recommends -o APT::Status-Fd=3 "$@"
        } 3>&1 >"$log" 2>&1 </dev/null | apt_progress
    ); then
        tail -20 "$log" >&2
        echo "apt could not install: $* (whole output: $log)" >&2
        return 1
    fi
    rm -f "$log"
}
