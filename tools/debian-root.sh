# shellcheck shell=bash
# Root directories of this machine's release of Debian: those in which this tree is built for another architecture, and
# those in which its packages are tested. tools/package and tests source this file.
#
#   debian_release           prints the release's name: bookworm
#   debian_strap TARGET ARG...
#                            makes TARGET from this machine's mirrors, by mmdebstrap with ARG...
#   debian_root ARCH         in the directory of the source: sets ROOT to build-roots/RELEASE-ARCH, which has a cross
#                            compiler, what debian/control and the unit tests need, and qemu to run what is made. It is
#                            made where it is not there yet, or where debian/control has changed since
#   in_root DIR COMMAND...   runs COMMAND in ROOT. There, DIR of this machine is /srv, and the working directory

debian_release() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

debian_strap() {
    local target=$1 mirrors
    shift
    # shellcheck disable=SC2016
    mapfile -t mirrors < <(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 'Component: main')
    mmdebstrap --quiet --mode=root --variant=apt --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io "$@" "$(debian_release)" "$target" "${mirrors[@]}"
}

debian_root() {
    local arch=$1
    ROOT=$PWD/build-roots/$(debian_release)-$arch
    export ROOT
    mkdir -p build-roots
    exec 8>"$ROOT.lock"
    flock 8 # two builds may need it at once
    if ! cmp -s debian/control "$ROOT/granary.control"; then
        rm -rf --one-file-system "$ROOT" "$ROOT.new"
        # shellcheck disable=SC2016
        debian_strap "$ROOT.new" --architectures="$(dpkg --print-architecture),$arch" \
            --include="crossbuild-essential-$arch,libcmocka-dev:$arch,qemu-user" \
            --customize-hook='mkdir "$1/srv/debian"' --customize-hook='copy-in debian/control /srv/debian' \
            --customize-hook='chroot "$1" apt-get -q -y build-dep --host-architecture '"$arch"' /srv' \
            --customize-hook='mv "$1/srv/debian/control" "$1/granary.control"; rmdir "$1/srv/debian"' >"$ROOT.log"
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
