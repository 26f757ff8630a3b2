# shellcheck shell=bash
# Sourced by release*.sh, after tests/lib.sh: a repository with this tree as a released version.

cd "$GRANARY_SOURCE" || exit 1
. tools/packages.sh
version=$(dpkg-parsechangelog -S Version)

# need_packages: what tools/release needs is installed
need_packages() {
    local missing
    missing=$(packages_missing build package | xargs)
    [ -z "$missing" ] || skip "packages are missing (apt-get install $missing)"
}

# git_init: a repository in the working directory, with an author for commits
git_init() {
    git init -q
    git config user.name "A test"
    git config user.email test@example.invalid
}

commit() { git add -A && git commit -q -m "a commit"; }

# set_released: both changelogs have a release of $version
set_released() {
    sed -i "1s/^granary (.*) [A-Za-z]*;/granary ($version) unstable;/" debian/changelog
    sed -i "s/^## .*$version.*/## $version (2030-01-01)/" CHANGELOG.md
}
