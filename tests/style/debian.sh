#!/bin/bash
# The version is the same in CMakeLists.txt, debian/changelog, CHANGELOG.md and the Helm chart, and it is unreleased in
# both changelogs or in neither. debian/control builds with what tools/packages.sh installs for a build, and has the
# maintainer's address, which the latest entry of debian/changelog repeats.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
. tools/packages.sh
. tools/versions.sh

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

can_fail versions_agree debian/changelog 'granary (9.9) UNRELEASED; urgency=medium' 'debian/changelog: 9.9, but'
can_fail versions_agree CHANGELOG.md '## 9.9 (2030-01-01)' 'CHANGELOG.md: 9.9, but'
can_fail versions_agree deploy/helm/granary/Chart.yaml 'appVersion: 9.9' 'Chart.yaml: appVersion 9.9, but'
can_fail versions_agree deploy/fluid/warm.yaml 'image: granary:9.9.9' 'warm.yaml:1:granary:9.9.9'
can_fail check_build_depends debian/control $'Build-Depends: cmake,\n    libodd-dev\nStandards-Version: 4' libodd-dev
can_fail check_maintainer debian/control 'Maintainer: A <a@b.example>' 'its latest entry is not by A'
versions_agree
check_build_depends
check_maintainer
