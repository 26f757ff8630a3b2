# shellcheck shell=bash
# Root directories in which this tree is built for another architecture. tools/package and flow/arm64 source this file, in
# the directory of the source.
#
#   debian_root ARCH         has the path of one in ROOT: build-roots/RELEASE-ARCH, with this machine's release of
#                            Debian, a cross compiler, what debian/control and the unit tests need, and qemu to run
#                            what is made. It is made where it is not there yet, or where debian/control has changed
#                            since
#   in_root DIR COMMAND...   runs COMMAND in ROOT. There, DIR of this machine is /srv, and the working directory

debian_root() {
    local arch=$1 release mirrors
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    export ROOT=$PWD/build-roots/$release-$arch
    mkdir -p build-roots
    exec 8>"$ROOT.lock"
    flock 8 # two builds may need it at once
    if ! cmp -s debian/control "$ROOT/granary.control"; then
        # shellcheck disable=SC2016
        mapfile -t mirrors < <(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' \
            'Created-By: Packages' 'Origin: Debian' 'Component: main')
        rm -rf --one-file-system "$ROOT" "$ROOT.new"
        # shellcheck disable=SC2016
        mmdebstrap --quiet --mode=root --variant=apt --architectures="$(dpkg --print-architecture),$arch" \
            --include="crossbuild-essential-$arch,libcmocka-dev:$arch,qemu-user" \
            --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"' \
            --customize-hook='mkdir "$1/srv/debian"' --customize-hook='copy-in debian/control /srv/debian' \
            --customize-hook='chroot "$1" apt-get -q -y build-dep --host-architecture '"$arch"' /srv' \
            --customize-hook='mv "$1/srv/debian/control" "$1/granary.control"; rmdir "$1/srv/debian"' \
            "$release" "$ROOT.new" "${mirrors[@]}" >"$ROOT.log"
        mv "$ROOT.new" "$ROOT"
    fi
    exec 8>&-
}

# The mounts end with the command.
in_root() {
    local dir=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -c '
        mount --bind "$1" "$0/srv"
        mount -t proc proc "$0/proc"
        shift
        exec chroot "$0" "$@"' "$ROOT" "$dir" env -i -C /srv HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}
