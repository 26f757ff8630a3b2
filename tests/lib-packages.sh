# shellcheck shell=bash
# Sourced after tests/lib.sh by the tests that build Debian packages and root directories to run them in.
. "$GRANARY_SOURCE/tools/debian-root.sh"

# need_debian: this machine can make root directories of its own release, or the test is skipped
need_debian() {
    local tool mirror
    [ "$(id -u)" = 0 ] || skip "a root directory of Debian needs root"
    for tool in dh lintian mmdebstrap; do
        command -v $tool >"$W/null" || skip "no $tool here (apt-get install debhelper lintian mmdebstrap)"
    done
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(SITE)/dists/$(RELEASE)/InRelease' 'Created-By: Packages' 'Origin: Debian' \
        'Component: main' | sed -n 1p)
    [ -n "$mirror" ] || skip "this machine has no mirror of Debian: the packages are tested on Debian only"
    curl -sS --fail --max-time 120 -o "$W/null" "$mirror" || skip "$mirror cannot be read: there is no root directory without it"
}

# newer_debs FROM TO: the packages in FROM, as packages of a later version
newer_debs() {
    local deb
    mkdir -p "$2"
    for deb in "$1"/*.deb; do
        rm -rf "$W/newer"
        dpkg-deb -R "$deb" "$W/newer"
        sed -Ei "s/^(Version: .*)/\1+newer/; s/(granary[a-z-]* \(= [^)]*)/\1+newer/g" "$W/newer/DEBIAN/control"
        dpkg-deb -b "$W/newer" "$2/$(basename "$deb")" >"$W/null"
    done
}
