#!/bin/bash
# tools/release refuses what is no release: changes that are not committed, versions that differ, an unreleased one, a
# commit without its tag, and a directory that is there. It refuses to begin where a tool that it will need is missing.
# flow/release-files makes one.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-release.sh"
need_packages

mkdir "$W/repository"
cp -r --parents -t "$W/repository" tools debian deploy/helm CMakeLists.txt CHANGELOG.md
cd "$W/repository"
git_init

# refuses SENTENCE: so does tools/release, and makes nothing
refuses() {
    local status=0
    tools/release "$W/files" >"$W/out" 2>&1 || status=$?
    [ $status = 1 ] || fail "exit $status: $(cat "$W/out")"
    grep -qF -- "$1" "$W/out" || fail "not '$1', but $(cat "$W/out")"
    [ ! -e "$W/files" ] || fail "it made $W/files"
}

sed -i "1s/^granary (.*) [A-Za-z]*;/granary ($version) UNRELEASED;/" debian/changelog
sed -i "s/^## .*$version.*/## Unreleased ($version)/" CHANGELOG.md
commit
refuses "$version is unreleased"
set_released
refuses "the tree is not clean"
refuses "debian/changelog"
commit
refuses "git tag -a v$version"
touch new
refuses "?? new"
rm new
sed -i "s/^project(granary VERSION [0-9.]*/project(granary VERSION 99.0.0/" CMakeLists.txt
commit
refuses "debian/changelog: $version, but CMakeLists.txt: 99.0.0"
git tag "v$version"
git reset -q --hard HEAD^
refuses "this commit is not tagged"
mkdir "$W/there"
! tools/release "$W/there" >"$W/out" 2>&1 || fail "a directory that is there"
grep -qF "$W/there exists" "$W/out" || fail "$(cat "$W/out")"

mkdir "$W/bin"
cat >"$W/bin/dpkg-query" <<'END'
#!/bin/sh
case $* in
    *' lintian' | *' umoci') exit 1;;
esac
exec /usr/bin/dpkg-query "$@"
END
chmod +x "$W/bin/dpkg-query"
PATH=$W/bin:$PATH refuses "packages are missing: lintian umoci; install them: . tools/packages.sh && packages_ensure"
