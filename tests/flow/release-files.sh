#!/bin/bash
# tools/release in a repository with this tree: the source, the packages for both architectures, and the image with its
# SBOM and the Helm chart, all in SHA256SUMS. A clone of that repository makes the same source, arm64 packages and chart,
# bit for bit; flow/packages, packages-rpm and packages-oci make the rest twice.
# ctest: long first
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-release.sh"
need_packages
[ "$(id -u)" = 0 ] || skip "the container image is made by root"
[ "$(dpkg --print-architecture)" = amd64 ] || skip "a release is made on amd64"

mkdir "$W/repository"
tar -c --exclude=./.git --exclude='./build*' . | tar -x -C "$W/repository"
cd "$W/repository"
git_init
set_released
commit
git tag "v$version"
mkdir -p "$GRANARY_SOURCE/build-roots"
# share_roots: the root directory for arm64 is that of this tree
share_roots() {
    ln -s "$GRANARY_SOURCE/build-roots" build-roots
    echo /build-roots >>.git/info/exclude
}
share_roots
tools/release "$W/files" >"$W/release.log" 2>&1 || fail "$(tail -30 "$W/release.log")"
cd "$W/files"
sha256sum -c --quiet SHA256SUMS || fail "the sums"
awk '{ print $2 }' SHA256SUMS | cat - <(echo SHA256SUMS) | sort | diff - <(printf '%s\n' * | sort) || fail "a file is not in SHA256SUMS"
for file in granary-"$version"{.tar.gz,-amd64.{oci.tar,spdx.json},.chart.tgz} {granary,granary-{fuse,csi},nbdkit-plugin-granary}{,-dbgsym}_"$version"_{amd64,arm64}.deb; do
    [ -s "$file" ] || fail "no $file"
done
[ "$(find . -name '*.rpm' | wc -l)" = 4 ] || fail "other RPM packages than four"
! find . -name '*.log' | grep . || fail "logs are left"
tar -x -z -f "granary-$version.tar.gz" -C "$W"
git -C "$W/repository" ls-files | sort >"$W/tracked"
(cd "$W/granary-$version" && find . ! -type d -printf '%P\n' | sort) | diff "$W/tracked" - || fail "the source lacks files"

umask 077
export TZ=Asia/Tokyo LC_ALL=C.UTF-8 CCACHE_DISABLE=1 DEB_BUILD_OPTIONS=parallel=3
git clone -q "$W/repository" "$W/a-clone-of-the-repository"
cd "$W/a-clone-of-the-repository"
share_roots
again=$W/the-same-files-again
git archive --format=tar --prefix="granary-$version/" HEAD | gzip -n -9 >"$W/again.tar.gz"
cmp "$W/files/granary-$version.tar.gz" "$W/again.tar.gz" || fail "two sources differ"
for kind in "deb --arch arm64" chart; do
    # shellcheck disable=SC2086
    tools/package $kind "$again" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
done
rm "$again"/*.log
(cd "$again" && sha256sum -- *) >"$W/sums"
[ "$(wc -l <"$W/sums")" -ge 11 ] || fail "too few files: $(cat "$W/sums")"
(cd "$W/files" && sha256sum -c --quiet "$W/sums") || fail "two releases differ"
