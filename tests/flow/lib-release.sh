# shellcheck shell=bash
# Sourced by release*.sh, after tests/lib.sh: a repository with this tree as a released version.

cd "$GRANARY_SOURCE" || exit 1
version=$(dpkg-parsechangelog -S Version)

need_git() { command -v git >"$W/null" || skip "no git here (apt-get install git)"; }

# git_init: a repository in the working directory, in which whoever runs the test commits
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
