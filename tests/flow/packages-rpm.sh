#!/bin/bash
# The RPM packages, as far as Debian's rpm goes: they are built, have the files of CMake's components, and can be installed
# into an empty root and removed again. Their scripts and what they require are not tried: that needs a Fedora.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v rpmbuild >"$W/null" || skip "no rpmbuild here (apt-get install rpm)"
[ "$(id -u)" = 0 ] || skip "rpm --root needs root"

"$GRANARY_SOURCE/tools/package" rpm "$W/rpms" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"

echo "== one package a component"
for component in granary granary-fuse granary-csi nbdkit-plugin-granary; do
    DESTDIR=$W/$component cmake --install "$GRANARY_BUILD" --prefix /usr --component $component >"$W/$component.log"
    (cd "$W/$component" && find . ! -type d -printf '/%P\n' | sort) >"$W/expected"
    rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$W/rpms/$component"-[0-9]*.rpm |
        awk '!/^d/ { print $2 }' | grep -vE '^/usr/(lib/.build-id|share/licenses)/' | sort | diff "$W/expected" - || fail "$component has other files"
done

echo "== installed and removed"
root=(--root "$W/installed" --nodeps --noscripts)
mkdir "$W/installed"
rpm "${root[@]}" -i "$W/rpms"/*.rpm || fail "rpm -i"
[ "$("$W/installed/usr/bin/granary" --version)" = "$("$GRANARY" --version)" ] || fail "another version"
rpm --root "$W/installed" -V --nodeps granary granary-fuse granary-csi nbdkit-plugin-granary || fail "rpm -V"
rpm "${root[@]}" -e granary granary-fuse granary-csi nbdkit-plugin-granary || fail "rpm -e"
[ -z "$(find "$W/installed" -name '*granary*')" ] || fail "files are left"
