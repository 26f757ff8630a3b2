#!/bin/bash
# Mounts with S3 keys of their own (--keys), by FUSE: two users of a real server whose buckets exclude each other, with
# one server of the node. A mount's keys read its image and no other's; they are replaced under the mount; neither
# processes nor files of the mount have them.
# ctest: needs=ceph
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-keys.sh"

needs_fuse

extra_cleanup() { for d in "$W/a" "$W/b" "$W/c"; do "$GRANARY" umount --force "$d" 2>"$W/null"; done; }
mkdir "$W/a" "$W/b" "$W/c"
# mount_it KEYS IMAGE DIR: with the keys from a pipe
mount_it() { "$GRANARY" mount --fuse --json --cache "$W/cache:64M" --keys <(cat "$W/$1") "$2" "$3" >"$W/mount.json"; }

two_users 2000000
digest=$(with bob1 "$GRANARY" inspect --json "$(image bob)" | jq -r .digest)

echo "== two mounts with keys of their own, of a server that has none"
mount_it alice1 "$(image alice)" "$W/a" || fail "alice's mount"
cmp "$W/alice/file" "$W/a/file"
mount_it bob1 "$(image bob)" "$W/b" || fail "bob's mount"
cmp "$W/bob/file" "$W/b/file"
control=$(jq -r .control "$W/mount.json")
SERVER=$(jq .server_pid "$W/mount.json")
"$GRANARY" status --json "$control" >"$W/status"
jq -e --arg a "$W/a" --arg b "$W/b" '.exports | map([.own_keys, .mounts]) == [[true, [$a]], [true, [$b]]]' "$W/status" >"$W/null" ||
    fail "status: $(jq -c '.exports | map([.name, .own_keys, .mounts])' "$W/status")"

echo "== no mount gets by another's keys what its own do not open"
mount_refused() {
    local word=$1
    shift
    if "$GRANARY" mount --fuse --cache "$W/cache:64M" "$@" "$W/c" >"$W/out" 2>"$W/err"; then fail "not refused: $*"; fi
    grep -q -- "$word" "$W/err" || fail "no '$word': $(cat "$W/err")"
}
mount_refused "refuses these credentials" --keys "$W/alice1" "$(image bob)"
mount_refused "refuses these credentials" --keys "$W/alice1" "$(image bob)@$digest"
mount_refused "no S3 credentials" "$(image bob)"
mount_refused "no S3 credentials" "$(image bob)@$digest"
printf 'AWS_ACCESS_KEY_ID=alice1\nAWS_SECRET_KEY=hidden\n' >"$W/wrong"
mount_refused "$W/wrong: keys: line 2 is wrong" --keys "$W/wrong" "$(image alice)"
! grep -q hidden "$W/err" || fail "a secret in the sentence: $(cat "$W/err")"
refused 2 "exclude each other" "$GRANARY" mount --socket "$W/nbd.sock" --keys "$W/alice1" "$(image alice)" "$W/c"

echo "== the same image with the same keys is an export of its own, too"
mount_it bob1 "$(image bob)" "$W/c" || fail "bob's second mount"
cmp "$W/bob/file" "$W/c/file"
[ "$("$GRANARY" status --json "$control" | jq '.exports | length')" = 3 ] || fail "bob's two mounts share an export"
"$GRANARY" umount "$W/c"
cmp "$W/bob/file" "$W/b/file"

echo "== a mount without keys does not join the export of one with keys, though the image is the same"
"$GRANARY" build -q "$W/bob" "$W/store/faces" >"$W/out"
[ "$(digest_of "$W/store/faces")" = "$digest" ] || fail "another image: the test proves nothing"
"$GRANARY" mount --fuse --cache "$W/cache:64M" "$W/store/faces" "$W/c" >"$W/out" || fail "a mount without keys"
"$GRANARY" status --json "$control" | jq -e --arg c "$W/c" '.exports[2] | [.own_keys, .mounts] == [false, [$c]]' >"$W/null" ||
    fail "exports: $("$GRANARY" status --json "$control" | jq -c '.exports | map([.name, .own_keys, .mounts])')"
cmp "$W/bob/file" "$W/c/file"
"$GRANARY" umount "$W/c"

echo "== new keys for a mount, and the old ones end"
new_keys bob 2
if mount_it alice1 "$(image bob)" "$W/b" 2>"$W/err"; then fail "bob's mount took alice's keys"; fi
grep -q "refuses these credentials" "$W/err" || fail "alice's keys for bob's mount: $(cat "$W/err")"
if mount_it bob2 "$(image alice)" "$W/b" 2>"$W/err"; then fail "another image with new keys"; fi
grep -q "is mounted on $W/b; umount it first" "$W/err" || fail "another image: $(cat "$W/err")"
mount_it bob2 "$(image bob)" "$W/b" || fail "bob's new keys"
[ "$(jq -r .dir "$W/mount.json")" = "$W/b" ] || fail "the answer: $(cat "$W/mount.json")"
end_keys bob 1
"$GRANARY" cache evict --all --control "$control" >"$W/out"
forget_pages "$W/b/file"
cmp "$W/bob/file" "$W/b/file" || fail "bob's mount with the new keys"
[ "$("$GRANARY" status --json "$control" | jq '.exports | length')" = 2 ] || fail "the new keys made another export"

echo "== they are in no process's command line or environment, and in no file of the mounts"
# shellcheck disable=SC2046
for pid in "$SERVER" $(pgrep -P "$SERVER"); do
    ! grep -qsF hidden "/proc/$pid/cmdline" "/proc/$pid/environ" || fail "a secret in $(tr '\0' ' ' <"/proc/$pid/cmdline")"
done
! grep -rqsF hidden /run/granary "$W/cache/exports" || fail "a secret in $(grep -rlsF hidden /run/granary "$W/cache/exports")"
log=$("$GRANARY" status --json "$control" | jq -r .log)
! grep -qF hidden "$log" || fail "a secret in the log"

echo "== a front end that was killed has them again"
front=$(pgrep -P "$SERVER")
kill -9 "$front"
back() { [ "$(pgrep -P "$SERVER")" != "$front" ] && "$GRANARY" status --json "$control" 2>"$W/null" | jq -e '.exports | length == 2' >"$W/null"; }
wait_for 60 back

echo "== umount takes the exports along, and the server with the last"
"$GRANARY" umount --force "$W/b" # before Linux 6.9 no FUSE mount survives its front end
"$GRANARY" status --json "$control" | jq -e '.exports | length == 1' >"$W/null" || fail "bob's export stays"
"$GRANARY" umount --force "$W/a"
wait_for 60 gone "$SERVER"

echo "== new keys leave a mount behind its fence and its quota, also at a server that has lost its export"
mkdir -p /run/granary/fuse
node_server() {
    background "$GRANARY" serve --fuse /run/granary/fuse --cache "$W/node:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
    SERVER=$BACKGROUND_PID
    wait_for 60 listens /run/granary/fuse.control
}
strict() { "$GRANARY" mount --fuse --join --fence warmed --quota 16M --keys "$W/bob2" "$(image bob)" "$W/c" >"$W/out" 2>"$W/err"; }
fences() { "$GRANARY" status --json /run/granary/fuse.control | jq -c '.exports | map([.own_keys, .fence, .quota])'; }
node_server
strict || fail "$(cat "$W/err")"
[ "$(fences)" = '[[true,"warmed",16777216]]' ] || fail "exports: $(fences)"
kill -9 "$SERVER" "$(pgrep -P "$SERVER")"
wait_for 60 gone "$SERVER"
rm /run/granary/fuse.control.exports
umount -l /run/granary/fuse 2>"$W/null"
node_server
strict || fail "$(cat "$W/err")"
[ "$(fences)" = '[[true,"warmed",16777216]]' ] || fail "exports: $(fences)"
"$GRANARY" umount --force "$W/c"
