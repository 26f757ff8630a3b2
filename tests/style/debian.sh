#!/bin/bash
# The version is the same in CMakeLists.txt, debian/changelog and CHANGELOG.md, and it is unreleased in both of these or
# in neither. debian/control builds with what tools/packages.sh installs for a build, and has the maintainer's address,
# which the latest entry of debian/changelog repeats.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
. tools/packages.sh

# first PATTERN FILE: what the pattern's groups match in the first line that it matches
first() { sed -nE "/$1/{s/$1/\1 \2/p;q}" "$2"; }

check_versions() {
    local version debian heading bad=0
    version=$(sed -nE 's/^project\(granary VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
    debian=$(first '^granary \(([^)]+)\) ([A-Za-z]+);.*' debian/changelog)
    heading=$(first '^## (Unreleased )?\(?([0-9.]+).*' CHANGELOG.md)
    [ "${debian% *}" = "$version" ] || { echo "debian/changelog: ${debian% *}, but CMakeLists.txt: $version"; bad=1; }
    [ "${heading##* }" = "$version" ] || { echo "CHANGELOG.md: ${heading##* }, but CMakeLists.txt: $version"; bad=1; }
    if [[ $heading = Unreleased* ]]; then [[ $debian = *UNRELEASED ]]; else [[ $debian != *UNRELEASED ]]; fi ||
        { echo "debian/changelog: ${debian#* }, but CHANGELOG.md: $heading"; bad=1; }
    return $bad
}

# build_depends: the packages in debian/control, without those of debhelper
build_depends() {
    sed -n '/^Build-Depends:/,/^Standards/{/^Standards/d;s/^Build-Depends://;p}' debian/control |
        sed -E 's/[ ,]*([a-z0-9.+-]+).*/\1/' | grep -vE '^(debhelper|dh-sequence)' | LC_ALL=C sort
}

check_build_depends() {
    local differ
    # gcc and libc6-dev are there wherever packages are built
    differ=$(printf '%s\n' ${PACKAGES[build]} | grep -vxE 'gcc|libc6-dev' | LC_ALL=C sort | diff - <(build_depends)) ||
        { echo "debian/control builds with other packages (>) than tools/packages.sh installs (<): $differ"; return 1; }
}

check_maintainer() {
    local maintainer
    maintainer=$(sed -n 's/^Maintainer: //p' debian/control)
    [[ $(sed -n '/^ -- /{p;q}' debian/changelog) = " -- $maintainer  "* ]] ||
        { echo "debian/changelog: its latest entry is not by $maintainer, as debian/control has it"; return 1; }
}

can_fail check_versions debian/changelog 'granary (9.9) UNRELEASED; urgency=medium' 'debian/changelog: 9.9, but'
can_fail check_versions CHANGELOG.md '## 9.9 (2030-01-01)' 'CHANGELOG.md: 9.9, but'
can_fail check_build_depends debian/control $'Build-Depends: cmake,\n    libodd-dev\nStandards-Version: 4' libodd-dev
can_fail check_maintainer debian/control 'Maintainer: A <a@b.example>' 'its latest entry is not by A'
check_versions
check_build_depends
check_maintainer
