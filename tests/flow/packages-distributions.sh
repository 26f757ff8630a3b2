#!/bin/bash
# The packages that Debian 12 builds, in bare roots of Debian 12 and 13: they are installed, but for the one that
# docs/operations/packages.md names; they build an image, list it and serve it, and the volume driver of Kubernetes
# listens. So do those that Debian 13 and Ubuntu 26.04 build by the commands of that page. Says how long it takes from
# the packages to the first read of a small image. The kernel is this machine's in all of them.
# ctest: long first
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"

[ "$(id -u)" = 0 ] || skip "a chroot needs root"
for tool in dh mmdebstrap nbdcopy; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install debhelper mmdebstrap libnbd-bin)"
done
[ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = bookworm ] || skip "this is not Debian 12"
debian=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Codename: bookworm' | sed -n 1p)
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e $debian_keys ] || skip "no $debian_keys here: the packages are tested on Debian only"
fetch() { curl -sS --fail --max-time 120 -o "$2" "$1"; }
fetch "$debian/dists/trixie/InRelease" "$W/null" || skip "$debian cannot be read"

# Debian has no package of Ubuntu's keys.
ubuntu=http://archive.ubuntu.com/ubuntu
ubuntu_keys=$W/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg
if fetch "$ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb" "$W/keys.deb"; then
    sha256sum --quiet -c <<<"36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $W/keys.deb" || fail "other keys of Ubuntu"
    dpkg-deb -x "$W/keys.deb" "$W/keys"
    chmod 711 "$W" # apt reads the keys as a user of its own
else
    ubuntu=""
fi

make_debs "$W/debs"
cp -r "$GRANARY_SOURCE/docs" "$W/tree"
"$GRANARY" build -q "$W/tree" "$W/store/docs:v1" >"$W/built"
"$GRANARY" export -q "$W/store/docs:v1" "$W/image"
"$GRANARY" ls -R "$W/store/docs:v1" >"$W/list"

# make_root RELEASE: a bare root in $ROOT, from an archive that is kept for all runs from this build tree. This test's
# files are in its /srv.
make_root() {
    local archive=$GRANARY_BUILD/packages-roots/$1.tar mirror="deb [signed-by=$debian_keys] $debian $1 main"
    local how=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
    if [ "$1" = resolute ]; then
        mirror="deb $ubuntu $1 main universe"
        how=(--keyring="$ubuntu_keys") # its base-files has the links of a merged /usr, for which Debian needs the hook
    fi
    ROOT=$W/$1
    mkdir -p "$(dirname "$archive")" "$ROOT"
    if [ ! -e "$archive" ]; then
        mmdebstrap --mode=root --variant=apt --format=tar --dpkgopt=force-unsafe-io "${how[@]}" \
            --aptopt='Acquire::Retries "3"' "$1" "$archive.new" "$mirror" >"$W/root.log" 2>&1 || fail "$(tail -20 "$W/root.log")"
        mv "$archive.new" "$archive"
    fi
    tar -x -f "$archive" -C "$ROOT"
    cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
    cp -r "$W/debs" "$W/tree" "$W/store" "$ROOT/srv/"
    mount -t proc proc "$ROOT/proc"
    MOUNTS+=("$ROOT/proc")
    INSIDE=(chroot "$ROOT" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin)
}
remove_root() {
    umount "$ROOT/proc"
    rm -rf "$ROOT"
}
inside() { "${INSIDE[@]}" "$@"; }
apt() { inside apt-get -q -y -o Acquire::Retries=3 --no-install-recommends "$@" >"$W/apt.log" 2>&1 </dev/null; }
# package NAME: its path in the root
package() { (cd "$ROOT/srv/debs" && echo /srv/debs/"$(echo "$1"_*.deb)"); }

# first_read: granary is installed, and serves the image to this machine, which reads it
first_read() {
    local start=${EPOCHREALTIME/./} uri="nbd+unix:///docs?socket=$ROOT/srv/nbd.sock"
    apt install "$(package granary)" || fail "$(tail -20 "$W/apt.log")"
    grep -E '^(Need to get|After this operation)' "$W/apt.log"
    background "${INSIDE[@]}" granary serve /srv/store/docs:v1 --cache none --socket /srv/nbd.sock >"$W/serve.out" 2>"$W/serve.err"
    wait_for 60 grep -q '^serving' "$W/serve.out"
    nbdcopy "$uri" - | cmp - "$W/image" || fail "wrong bytes from the socket"
    echo "from the packages to the first read: $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
    end_background
}

# csi_runs: granary-csi is installed: its unit, its pages and its programs are there, and the driver listens for kubelet
csi_runs() {
    local unit=$ROOT/usr/lib/systemd/system/granary-csi.service program page
    program=$(sed -nE 's/^ExecStart=([^ ]+) .*/\1/p' "$unit") || fail "no unit of granary-csi"
    [ "$(inside "$program" --version)" = "$("$GRANARY" --version)" ] || fail "another version of granary-csi"
    inside granary-node-labels --help >"$W/out" || fail "granary-node-labels"
    for page in granary-csi granary-node-labels; do
        [ -s "$ROOT/usr/share/man/man8/$page.8.gz" ] || fail "no page of $page"
    done
    mkdir -p "$ROOT/srv/kubelet/plugins_registry"
    background "${INSIDE[@]}" "$program" --kubelet-dir /srv/kubelet >"$W/csi.out" 2>"$W/csi.err"
    wait_for 60 grep -q 'serving /srv/kubelet/plugins_registry/' "$W/csi.err"
    end_background
}

# try RELEASE PACKAGE...: granary and these packages can be installed there and run, others cannot
try() {
    local name
    echo "== $1"
    make_root "$1"
    apt update || fail "$(tail -5 "$W/apt.log")"
    first_read
    [ "$(inside granary --version)" = "$("$GRANARY" --version)" ] || fail "another version"
    inside granary build -q /srv/tree /srv/built/docs:v1 >"$W/built" || fail "granary build"
    inside granary ls -R /srv/built/docs:v1 | diff "$W/list" - || fail "granary ls"
    for name in granary-fuse granary-csi nbdkit-plugin-granary; do
        if [[ " $* " = *" $name "* ]]; then
            apt install "$(package $name)" || fail "$(tail -20 "$W/apt.log")"
        else
            ! apt install "$(package $name)" || fail "$name can be installed: docs/operations/packages.md says it cannot"
            grep -q 'unmet dependencies' "$W/apt.log" || fail "$(cat "$W/apt.log")"
        fi
    done
    [[ " $* " != *" granary-csi "* ]] || csi_runs
    remove_root
}

# build_on RELEASE: the packages that are tried from now on are built there
build_on() {
    echo "== built on $1"
    make_root "$1"
    mkdir "$ROOT/srv/granary"
    tar -c -C "$GRANARY_SOURCE" --exclude=./.git --exclude='./build*' . | tar -x -C "$ROOT/srv/granary"
    inside bash -ec 'cd /srv/granary
        . tools/packages.sh && packages_ensure build package
        tools/package deb' >"$W/package.log" 2>&1 </dev/null || fail "$(cat "$W/package.log")"
    rm -r "$W/debs"
    cp -r "$ROOT/srv/granary/build-packages" "$W/debs"
    remove_root
}

try bookworm granary-fuse granary-csi nbdkit-plugin-granary
try trixie granary-csi nbdkit-plugin-granary
build_on trixie
try trixie granary-fuse granary-csi nbdkit-plugin-granary
[ "$ubuntu" ] || skip "archive.ubuntu.com cannot be read: Ubuntu is not tested; Debian 12 and 13 pass"
build_on resolute
try resolute granary-fuse granary-csi nbdkit-plugin-granary
