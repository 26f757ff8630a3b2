#!/bin/bash
# Stops the S3 server that flow/ceph-start started.
# ctest: cleanup=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"
ceph_s3 stop
[ ! -e "$GRANARY_BUILD/ceph" ] || fail "Ceph is left in $GRANARY_BUILD/ceph"
