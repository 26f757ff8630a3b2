#!/bin/bash
# The packages for arm64, cross-compiled on another machine. Emulated by qemu, their granary builds images with the digests of this
# machine's, and verifies those of this machine, as this machine does those.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"
[ "$(uname -m)" != aarch64 ] || skip "this machine is arm64: all other tests are tests of arm64"
need_debian
cd "$GRANARY_SOURCE"

echo "== packages"
tools/package deb --arch arm64 "$W/debs" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
for package in granary granary-fuse nbdkit-plugin-granary; do
    [ "$(dpkg-deb -f "$W"/debs/${package}_*.deb Architecture)" = arm64 ] || fail "$package is not for arm64"
done
mkdir "$W/shared"
dpkg-deb -x "$W"/debs/granary_*.deb "$W/shared/arm64"
readelf -h "$W/shared/arm64/usr/bin/granary" >"$W/header"
grep -q 'Machine: *AArch64' "$W/header" || fail "$(cat "$W/header")"
debian_root arm64
# emulated ARG...: the granary of the packages; /srv is $W/shared there
emulated() { in_root "$W/shared" env GRANARY_CONFIG=none qemu-aarch64 arm64/usr/bin/granary "$@"; }
version=$(emulated --version)
[ "$version" = "$("$GRANARY" --version)" ] || fail "it is $version"

echo "== images of the same files have the same digests"
mkdir "$W/shared/tree"
cp -r docs "$W/shared/tree/"
ln "$W/shared/tree/docs/README.md" "$W/shared/tree/hard"
ln -s docs/README.md "$W/shared/tree/symbolic"
head -c 1000000 /dev/urandom >"$W/shared/tree/large"
truncate -s 3M "$W/shared/tree/sparse"
# digest IMAGE: its digest
digest() { "$GRANARY" inspect --json "$1" | jq -r .digest; }
for fs in erofs ext4; do
    "$GRANARY" build -q --fs $fs "$W/shared/tree" "$W/shared/here/$fs" >"$W/built"
    emulated build -q --fs $fs /srv/tree /srv/there/$fs >"$W/built"
    here=$(digest "$W/shared/here/$fs") there=$(digest "$W/shared/there/$fs")
    [ "$here" = "$there" ] || fail "$fs: $here here, $there on arm64"
    "$GRANARY" verify -q --deep "$W/shared/there/$fs" || fail "$fs: arm64's image is not verified here"
    emulated verify -q --deep /srv/here/$fs || fail "$fs: this machine's image is not verified on arm64"
done
