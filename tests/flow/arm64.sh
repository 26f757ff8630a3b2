#!/bin/bash
# The packages for arm64, cross-compiled on another machine. Emulated by qemu, their granary builds images with the
# digests of this machine's, and verifies those of this machine, as this machine does those; their NBD server serves
# them through a disk cache. Unit tests for arm64 pass, those of memory also where pages have 64 KiB.
# ctest: long first
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/lib-packages.sh"
[ "$(uname -m)" != aarch64 ] || skip "this machine is arm64: all other tests are tests of arm64"
need_debian
cd "$GRANARY_SOURCE"

echo "== packages"
tools/package deb --arch arm64 "$W/debs" >"$W/package.log" 2>&1 || fail "$(cat "$W/package.log")"
for package in granary granary-csi granary-fuse nbdkit-plugin-granary; do
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

echo "== a server with a disk cache"
"$GRANARY" export -q "$W/shared/here/erofs" "$W/image"
# shellcheck disable=SC2016
background in_root "$W/shared" perl -MIO::Socket::UNIX -MPOSIX=dup2 -e '
    my $socket = IO::Socket::UNIX->new(Local => "nbd.sock", Listen => 64) or die $!;
    dup2(fileno $socket, 9);
    print $$;
    close STDOUT;
    exec "qemu-aarch64", @ARGV' arm64/usr/libexec/granary/granary-nbd 9 image=/srv/here/erofs cache=/srv/cache:64M \
    control=/srv/control disk-timeout=$DISK_TIMEOUT >"$W/pid" 2>"$W/nbd.err"
wait_for 60 test -s "$W/pid"
ours "$(cat "$W/pid")"
for round in fetched cached; do
    nbdcopy "nbd+unix:///erofs?socket=$W/shared/nbd.sock" - | cmp - "$W/image" || fail "$round: other bytes than the export"
done
metrics "$W/shared/control" | grep '^granary_cache_pread_reads_total [1-9]' || fail "nothing was read from the disk cache"

echo "== unit tests"
mkdir "$W/shared/granary"
tar -c --exclude=./.git --exclude='./build*' . | tar -x -C "$W/shared/granary"
# Of those that are not named, most would take minutes: simulations, races, and whole builds, which are emulated above.
# test_source_local needs openat2, which qemu 7.2 does not have. test_store_l2_lists measures time, and
# test_store_l2_names waits for a thread no longer than a machine of its own needs.
named='(base|format|net|repository)/test_.*|csi/test_grpc|fetch/test_fetch(_again|_queue|_gone|_wait|_ahead)?
    |image/test_(demand|recorder|select|slow_read|streams)
    |upkeep/test_(copy|gc|gc_meanwhile|gc_race|image_stats|verify_files)
    |store/test_(breaker|store_file|store_hdfs|store_l2|store_retry|store_s3)|imagebuild/test_verify_source
    |imagebuild/test_(alloc|build_changes|build_lease|content_parent|content_writer|http_index|live_map|nodes)
    |imagebuild/test_(parent_index|read_concurrency|rules|shard_reader|source_listed|source_s3|source_shape|walk)'
mapfile -t tests < <(sed -nE 's/^ *granary_unit_test\(([^ ]*) .*/\1/p' tests/unit/CMakeLists.txt |
    grep -xE "$(tr -d ' \n' <<<"$named")" | sed 's/.*\///')
regex="^unit/($(IFS='|' && echo "${tests[*]}"))\$"
in_root "$W/shared" env -C granary cmake --preset arm64 >"$W/build.log" 2>&1 || fail "$(cat "$W/build.log")"
in_root "$W/shared" cmake --build granary/build-arm64 -j "$(nproc)" --target "${tests[@]}" >"$W/build.log" 2>&1 ||
    fail "$(tail -30 "$W/build.log")"
in_root "$W/shared" ctest --test-dir granary/build-arm64 -j "$(nproc)" --output-on-failure -R "$regex" >"$W/tests.log" ||
    fail "$(sed 's/^/  /' "$W/tests.log")"
[ "$(grep -c ' Passed ' "$W/tests.log")" = ${#tests[@]} ] || fail "not ${#tests[@]} tests: $(cat "$W/tests.log")"
in_root "$W/shared" qemu-aarch64 -p 65536 granary/build-arm64/tests/unit/test_pages >"$W/tests.log" 2>&1 || fail "$(cat "$W/tests.log")"
