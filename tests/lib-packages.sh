# shellcheck shell=bash
# Sourced after tests/lib.sh by the tests of Debian packages, and of root directories to run them in.
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

# make_debs DIR: this tree's Debian packages, in DIR. Whoever asks first compiles them for all tests from this build tree.
make_debs() {
    local made=$GRANARY_BUILD/packages-debs tree lock
    exec {lock}>"$made.lock"
    flock $lock
    tree=$(tar -c --sort=name --exclude=./.git --exclude='./build*' -C "$GRANARY_SOURCE" . | sha256sum)
    if [ "$(cat "$made.made-of" 2>"$W/null")" != "$tree" ]; then
        rm -rf "$made"
        "$GRANARY_SOURCE/tools/package" deb "$made" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
        rm "$made/build.log"
        echo "$tree" >"$made.made-of"
    fi
    mkdir -p "$1"
    cp "$made"/* "$1"
    exec {lock}>&-
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
