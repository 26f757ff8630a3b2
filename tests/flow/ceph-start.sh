#!/bin/bash
# Starts the S3 server of the tests that need a real one, after stopping what an interrupted run left.
# ctest: setup=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"
[ -n "${GRANARY_FULL:-}" ] || export PAGE=300 # few objects make listings of several pages
ceph_s3 stop
ceph_s3 start || fail "Ceph does not start"
ceph_s3 status
