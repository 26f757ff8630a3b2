# shellcheck shell=bash
# Sourced after lib.sh by the tests of a real S3 server: the Ceph that flow/ceph-start starts for all of them and
# flow/ceph-stop stops; or one of the test's own in CEPH_DIR, at CEPH_ADDRESS, started by CEPH_IN in a network namespace
# for example, if it sets these before. Skips where there is no Ceph.

command -v radosgw >/dev/null || skip "no Ceph here (apt-get install ceph-mon ceph-osd radosgw)"
SERVERS=$GRANARY_SOURCE/tests/servers
ceph_s3() { DIR=${CEPH_DIR:-$GRANARY_BUILD/ceph} BIND=${CEPH_ADDRESS:-127.0.0.1} "${CEPH_IN[@]}" bash "$SERVERS/ceph-s3.sh" "$@"; }

# use_ceph BUCKET...: its endpoint and keys in the environment, and buckets that are this test's own
use_ceph() {
    local bucket
    eval "$(ceph_s3 env)"
    unset http_proxy
    for bucket in "$@"; do ceph_s3 bucket "$bucket" || fail "cannot make the bucket $bucket"; done
}

# no_keys: its endpoint in the environment, and no keys that a program could find
no_keys() {
    eval "$(ceph_s3 env)"
    unset http_proxy AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE
    export AWS_SHARED_CREDENTIALS_FILE=$W/none AWS_CONFIG_FILE=$W/none AWS_EC2_METADATA_DISABLED=true
}
