# shellcheck shell=bash
# Sourced after lib.sh by the tests of a real S3 server: the Ceph that flow/ceph-start starts for all of them and
# flow/ceph-stop stops; or one of the test's own in CEPH_DIR, at CEPH_ADDRESS, if it sets these before. Skips where there
# is no Ceph.

command -v radosgw >/dev/null || skip "no Ceph here (apt-get install ceph-mon ceph-osd radosgw)"
SERVERS=$GRANARY_SOURCE/tests/servers
ceph_s3() { DIR=${CEPH_DIR:-$GRANARY_BUILD/ceph} BIND=${CEPH_ADDRESS:-127.0.0.1} bash "$SERVERS/ceph-s3.sh" "$@"; }

# use_ceph BUCKET...: its endpoint and keys in the environment, and buckets that are this test's own
use_ceph() {
    local bucket
    eval "$(ceph_s3 env)"
    unset http_proxy
    for bucket in "$@"; do ceph_s3 bucket "$bucket" || fail "cannot make the bucket $bucket"; done
}
