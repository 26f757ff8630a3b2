#!/bin/bash
# A build whose disk for temporary data is full: a sentence that names it, nothing published, nothing left behind.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$(dirname "$0")/lib-build-faults.sh"

build_synthetic=$GRANARY_BUILD/bench/build-synthetic
[ -x "$build_synthetic" ] || skip "no bench/build-synthetic in this build: a full --tmpdir is not tested"
mkdir "$W/small"
mount -t tmpfs -o size=20m tmpfs "$W/small" 2>"$W/err" || skip "no tmpfs here: a full --tmpdir is not tested"
MOUNTS+=("$W/small")
! "$build_synthetic" 400000 "file://$W/full" "$W/small" >"$W/out" 2>"$W/err" || fail "20 MiB were enough for 400,000 files"
grep -q "$W/small: No space left on device; .*--tmpdir" "$W/err" || { cat "$W/err"; fail "another sentence"; }
nothing_published "file://$W/full"
[ -z "$(find "$W/small" -type f)" ] && [ "$(df --output=used "$W/small" | tail -1)" -eq 0 ] || fail "temporary data is left"
