#!/bin/bash
# The RPM packages, as far as Debian's rpm goes: built twice they are the same bytes, they have the files of CMake's
# components, and can be installed into an empty root and removed again, where a changed configuration file is kept.
# Their scripts and what they require are not tried: that needs a Fedora.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v rpmbuild >"$W/null" || skip "no rpmbuild here (apt-get install rpm)"
[ "$(id -u)" = 0 ] || skip "rpm --root needs root"

echo "== two builds, in directories of different names and by different settings, give the same bytes"
"$GRANARY_SOURCE/tools/package" rpm "$W/rpms" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
(
    umask 077
    export TZ=Asia/Tokyo LC_ALL=C.UTF-8 CCACHE_DISABLE=1
    "$GRANARY_SOURCE/tools/package" rpm "$W/the-same-rpms-again" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
)
(cd "$W/rpms" && sha256sum -- *.rpm) >"$W/sums"
(cd "$W/the-same-rpms-again" && sha256sum -c --quiet "$W/sums") || fail "two builds differ"

echo "== one package a component"
for component in granary granary-fuse granary-csi nbdkit-plugin-granary; do
    DESTDIR=$W/$component cmake --install "$GRANARY_BUILD" --prefix /usr --component $component >"$W/$component.log"
    (cd "$W/$component" && find . ! -type d -printf '/%P\n' | sort) >"$W/expected"
    rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$W/rpms/$component"-[0-9]*.rpm |
        awk '!/^d/ { print $2 }' | grep -vE '^/(etc|usr/lib/.build-id|usr/share/licenses)/' | sort | diff "$W/expected" - || fail "$component has other files"
done

[ "$(rpm -qp --qf '%{PACKAGER}' "$W/rpms"/granary-[0-9]*.rpm)" = "$(sed -n 's/^Maintainer: //p' "$GRANARY_SOURCE/debian/control")" ] ||
    fail "another packager than debian/control's maintainer"

echo "== installed and removed"
root=(--root "$W/installed" --nodeps --noscripts)
mkdir "$W/installed"
rpm "${root[@]}" -i "$W/rpms"/*.rpm || fail "rpm -i"
[ "$("$W/installed/usr/bin/granary" --version)" = "$("$GRANARY" --version)" ] || fail "another version"
rpm --root "$W/installed" -V --nodeps granary granary-fuse granary-csi nbdkit-plugin-granary || fail "rpm -V"
flags=$(rpm -qp --qf '[%{FILEFLAGS:fflags}|%{FILENAMES}\n]' "$W/rpms"/granary-[0-9]*.rpm | grep '^[^|]*c')
[ "$flags" = "cn|/etc/granary.conf" ] || fail "other configuration files than granary.conf, or not noreplace: $flags"
echo "# of this node" >>"$W/installed/etc/granary.conf"
rpm "${root[@]}" -e granary granary-fuse granary-csi nbdkit-plugin-granary || fail "rpm -e"
[ "$(find "$W/installed" -name '*granary*')" = "$W/installed/etc/granary.conf.rpmsave" ] ||
    fail "other files are left than the changed granary.conf"
