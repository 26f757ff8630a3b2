#!/bin/bash
# What `cmake --install` puts where: each component is what one package holds and none is forgotten, the installed
# program serves and mounts by what lies beside it, the units call it, and every program has been linked and compiled
# hardened.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

cached() { sed -n "s/^$1:[A-Z]*=//p" "$GRANARY_BUILD/CMakeCache.txt"; }
prefix=$(cached CMAKE_INSTALL_PREFIX)

# installed COMPONENT: its files and links below the prefix
installed() {
    DESTDIR=$W/$1 cmake --install "$GRANARY_BUILD" --component "$1" >"$W/$1.log" || fail "$1: $(cat "$W/$1.log")"
    (cd "$W/$1$prefix" && find . ! -type d -printf '%P\n' | sort)
}

echo "== four components, which are everything"
installed granary >"$W/granary.files"
installed granary-fuse >"$W/granary-fuse.files"
installed nbdkit-plugin-granary >"$W/nbdkit-plugin-granary.files"
installed granary-csi >"$W/granary-csi.files"
DESTDIR=$W/all cmake --install "$GRANARY_BUILD" >"$W/all.log"
(cd "$W/all$prefix" && find . ! -type d -printf '%P\n' | sort) >"$W/all.files"
sort "$W"/{granary,granary-fuse,nbdkit-plugin-granary,granary-csi}.files | diff - "$W/all.files" || fail "a file is in no component, or in two"
echo "libexec/granary/granary-fuse" | diff - "$W/granary-fuse.files"
printf '%s\n' "$(cached GRANARY_NBDKIT_PLUGINDIR)/nbdkit-granary-plugin.so" share/man/man1/nbdkit-granary-plugin.1 |
    sort | diff - "$W/nbdkit-plugin-granary.files"
{
    printf '%s\n' sbin/granary-node-labels share/man/man8/granary-node-labels.8
    [ ! -x "$GRANARY_BUILD/csi/granary-csi" ] || # it is built where its libraries are
        printf '%s\n' lib/systemd/system/granary-csi.service sbin/granary-csi share/man/man8/granary-csi.8
} | sort | diff - "$W/granary-csi.files"
for file in bin/granary sbin/mount.granary sbin/umount.granary libexec/granary/{fluid-config,fluid-mount,fluid-worker,fluid-worker.conf,granary-nbd,granary-ublk} lib/sysusers.d/granary.conf \
    lib/udev/rules.d/59-granary.rules share/man/{man1/granary.1,man8/mount.granary.8,man8/umount.granary.8} \
    share/bash-completion/completions/granary \
    share/doc/granary/examples/{fluid/dataset.yaml,grafana/granary.json,helm/granary/Chart.yaml,kubernetes/csi-volume.yaml,nginx/granary-l2.conf,prometheus/granary.rules.yml,training/stream.py,varnish/granary-l2.vcl}; do
    grep -qFx "$file" "$W/granary.files" || fail "granary: no $file"
done
(cd "$GRANARY_SOURCE/deploy" && printf 'lib/systemd/system/%s\n' *.service *.timer | sort) |
    diff - <(grep '^lib/systemd/' "$W/granary.files") || fail "the units"

echo "== programs only: nothing to compile or link against"
! grep -E '\.(h|pc|a|cmake)$|\.so\.|^include/|pkgconfig' "$W/all.files" || fail "these files are for developers"

echo "== the units call the installed program, the helpers are it"
! grep -h '^Exec' "$W/granary$prefix"/lib/systemd/system/* | grep -v "^Exec[A-Za-z]*=-\?$prefix/bin/granary " || fail "a unit calls something else"
[ "$(readlink -f "$W/granary$prefix/sbin/mount.granary")" = "$W/granary$prefix/bin/granary" ] || fail "mount.granary"

echo "== the servers say what they take, and what is wrong"
for server in granary-nbd granary-ublk granary-fuse; do
    program=$W/all$prefix/libexec/granary/$server
    "$program" --help >"$W/help" 2>&1 || fail "$server --help fails"
    sed -n 1p "$W/help" | grep "^usage: $server " >"$W/null" || fail "$server --help: $(cat "$W/help")"
    [ "$("$program" --version)" = "$("$W/granary$prefix/bin/granary" --version)" ] || fail "$server --version"
    status=0
    "$program" -t 0 3 2>"$W/err" || status=$?
    [ $status = 2 ] || fail "$server -t 0: exit $status"
    grep -qF -e "-t: '0' is not a number from 1 to " "$W/err" || fail "$server -t 0: $(cat "$W/err")"
done

echo "== it serves by the server beside it"
mkdir "$W/tree"
head -c 300000 /dev/urandom >"$W/tree/file"
GRANARY=$W/granary$prefix/bin/granary
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"
background "$GRANARY" serve "$W/store/img" --socket "$W/nbd.sock" >"$W/serve.out"
wait_for 60 grep -q '^serving' "$W/serve.out"
readlink "/proc/$(pgrep -P "$BACKGROUND_PID")/exe" | grep -Fx "$W/granary$prefix/libexec/granary/granary-nbd" || fail "another server"
"$GRANARY" export -q "$W/store/img" "$W/image"
nbdcopy "nbd+unix:///img?socket=$W/nbd.sock" - | cmp - "$W/image" || fail "other bytes than the export"

echo "== hardened: no entry point at a known address, no writable jump table, no executable stack, checked copies"
while read -r file; do
    program=$W/all$prefix/$file
    readelf -hlW "$program" >"$W/elf"
    readelf -dW "$program" >"$W/dynamic"
    readelf --dyn-syms -W "$program" >"$W/symbols"
    grep -q 'Type: *DYN' "$W/elf" || fail "$file: not position independent"
    grep -q GNU_RELRO "$W/elf" || fail "$file: no relro"
    grep -q 'GNU_STACK.* RW  *0x' "$W/elf" || fail "$file: the stack"
    grep -q 'BIND_NOW\|Flags: .*NOW' "$W/dynamic" || fail "$file: bound late"
    grep -q __stack_chk_fail "$W/symbols" || fail "$file: no stack protector"
    case $(cached CMAKE_BUILD_TYPE) in
        Debug) ;; # not optimized, where no copy is fortified
        *) grep -q '_chk@' "$W/symbols" || fail "$file: no fortified function" ;;
    esac
done < <(grep -E 'bin/granary(-csi)?$|libexec/granary/granary-|\.so$' "$W/all.files")

echo "== without the tests' packages there are no tests, and nothing else is missing"
mkdir "$W/pkgconfig"
IFS=: read -r -a directories <<<"$(pkg-config --variable pc_path pkg-config)"
for directory in "${directories[@]}"; do
    [ ! -d "$directory" ] || ln -sf "$directory"/*.pc "$W/pkgconfig"
done
rm "$W/pkgconfig/cmocka.pc"
export PKG_CONFIG_LIBDIR=$W/pkgconfig
cmake -S "$GRANARY_SOURCE" -B "$W/out" -G Ninja >"$W/configured" 2>&1 || fail "$(cat "$W/configured")"
grep -q 'Without the tests' "$W/configured" || fail "$(cat "$W/configured")"
if cmake -S "$GRANARY_SOURCE" -B "$W/out" -DGRANARY_TESTS=ON >"$W/configured" 2>&1; then fail "tests without cmocka"; fi
grep -q libcmocka-dev "$W/configured" || fail "$(cat "$W/configured")"
