# shellcheck shell=bash
# Sourced after lib.sh by the tests of S3 keys of one's own: the real server of lib-ceph.sh, and an environment that has
# no keys at all. Two users, alice and bob, each with a bucket that the other cannot read.
#
#   two_users SIZE              makes them with their first keys; image USER is of $W/USER, which has a file of random bytes
#   image USER                  its reference
#   new_keys USER NUMBER        a further pair of keys
#   end_keys USER NUMBER        the server refuses the pair from now on
#   with USERNUMBER COMMAND...  the command with the pair in its environment; the file $W/USERNUMBER has it, too
#
# The secret of a pair is ${PAD}hiddenUSERNUMBER-$ID.
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

no_keys
ID=$$ # what makes this run's users other than an earlier one's

keys_file() { printf 'AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%shidden%s\n' "$1$2-$ID" "${PAD:-}" "$1$2-$ID" >"$W/$1$2"; }
# shellcheck source=/dev/null
with() { (set -a && . "$W/$1" && shift && "$@"); }
image() { echo "s3://lake-$1-$ID/faces"; }

two_users() {
    local user
    for user in alice bob; do
        keys_file $user 1
        ceph_s3 admin user create --uid "$user-$ID" --display-name "$user" \
            --access-key "${user}1-$ID" --secret-key "${PAD:-}hidden${user}1-$ID" >"$W/out"
        ACCESS=${user}1-$ID SECRET=${PAD:-}hidden${user}1-$ID ceph_s3 bucket "lake-$user-$ID"
        mkdir "$W/$user"
        head -c "$1" /dev/urandom >"$W/$user/file"
        with ${user}1 "$GRANARY" build -q "$W/$user" "$(image $user)" >"$W/out"
    done
}

new_keys() {
    keys_file "$1" "$2"
    ceph_s3 admin key create --uid "$1-$ID" --access-key "$1$2-$ID" --secret-key "${PAD:-}hidden$1$2-$ID" >"$W/out"
}

end_keys() {
    ceph_s3 admin key rm --uid "$1-$ID" --access-key "$1$2-$ID" >"$W/out"
    wait_for 60 keys_refused "$1" "$2"
}
keys_refused() { ! with "$1$2" "$GRANARY" inspect "$(image "$1")" >"$W/out" 2>&1; }
