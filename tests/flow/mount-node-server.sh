#!/bin/bash
# A node's own server: started without an image at the usual place, here of FUSE, and mounts without options of a server
# add their images to it. It does not end with the last of them, and is shared by none that has options.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

extra_cleanup() {
    for d in one two own strict; do "$GRANARY" umount --force "$W/$d" 2>"$W/null"; done
    umount -l /run/granary/fuse 2>"$W/null"
}
mkdir -p /run/granary/fuse "$W"/{one,two,own,tree1,tree2}
head -c 1000000 /dev/urandom >"$W/tree1/file"
head -c 300000 /dev/urandom >"$W/tree2/file"
"$GRANARY" build -q "$W/tree1" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/tree2" "$W/store/two" >"$W/built"

echo "== a server without an image, by NBD"
background "$GRANARY" serve --socket "$W/nbd.sock" --cache none >"$W/nbd.out" 2>"$W/nbd.err"
wait_for 60 listens "$W/nbd.sock.control"
curl -sS -G -X PUT --unix-socket "$W/nbd.sock.control" --data-urlencode "image=$W/store/one" http://granary/exports/one >"$W/answer"
"$GRANARY" export -q "$W/store/one" "$W/one.img"
nbdcopy "nbd+unix:///one?socket=$W/nbd.sock" - | cmp - "$W/one.img" || fail "wrong byte: $(cat "$W/answer" "$W/nbd.err")"

echo "== by FUSE"
! "$GRANARY" mount --fuse --join "$W/store/one" "$W/one" 2>"$W/mount.err" || fail "mounted without a server to join"
grep -q "no server answers at /run/granary/fuse, and this mount may start none" "$W/mount.err" || fail "$(cat "$W/mount.err")"
[ -z "$(find /run/granary -name 'server-*')" ] || fail "a server was started"
printf '[mount]\njoin = yes\n' >"$W/join.conf"
! GRANARY_CONFIG=$W/join.conf "$GRANARY" mount --fuse --memory 32M "$W/store/one" "$W/one" 2>"$W/mount.err" || fail "joined with an option of a server"
grep -q -- "--memory is the server's" "$W/mount.err" || fail "$(cat "$W/mount.err")"
background "$GRANARY" serve --fuse /run/granary/fuse --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 listens /run/granary/fuse.control
wait_for 60 grep -qx 'serving no image yet; mounts add theirs to /run/granary/fuse' "$W/serve.out"
curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -e '.exports == []' >"$W/null" || fail "it has exports"

echo "== an image is warmed that nothing has mounted"
exports() { curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -c '.exports | map(.name)'; }
warm_two() { "$GRANARY" warm --image "$W/store/two" --all --json "$@" /run/granary/fuse >"$W/warm.json" 2>"$W/warm.err"; }
warm_two --dry-run || fail "$(cat "$W/warm.err")"
# the server may have begun to warm the metadata by itself
jq -e '.needed_bytes > 300000' "$W/warm.json" >"$W/null" || fail "dry: $(cat "$W/warm.json")"
warm_two || fail "$(cat "$W/warm.err")"
jq -e '.cached_bytes == .bytes and .warmed_bytes > 300000 and .export == "two@latest"' "$W/warm.json" >"$W/null" || fail "$(cat "$W/warm.json")"
[ "$(exports)" = '[]' ] || fail "an export is left: $(exports)"
! "$GRANARY" warm --image "$W/store/three" --all /run/granary/fuse 2>"$W/warm.err" || fail "an image that is not there is warm"
grep -q "three" "$W/warm.err" || fail "$(cat "$W/warm.err")"
code=0
"$GRANARY" warm --image two --all /run/granary/fuse 2>"$W/warm.err" || code=$?
[ $code = 2 ] || fail "a wrong reference: $code, $(cat "$W/warm.err")"

echo "== a warming that is interrupted leaves no export, either"
background "$GRANARY" warm --image "$W/store/one" --all --bwlimit 64K /run/granary/fuse >"$W/warm.out" 2>"$W/warm.err"
one_is_there() { [ "$(exports)" = '["one@latest"]' ]; }
wait_for 60 one_is_there
kill "$BACKGROUND_PID"
code=0
wait "$BACKGROUND_PID" || code=$?
[ $code = 130 ] || fail "interrupted: $code, $(cat "$W/warm.err")"
[ "$(exports)" = '[]' ] || fail "an export is left: $(exports)"

echo "== mounts add their images"
for image in one two; do
    GRANARY_CONFIG=$W/join.conf "$GRANARY" mount --fuse --json "$W/store/$image" "$W/$image" >"$W/$image.json" 2>"$W/mount.err" || fail "$(cat "$W/mount.err")"
    [ "$(jq -r .control "$W/$image.json")" = /run/granary/fuse.control ] || fail "$image has another server: $(cat "$W/$image.json")"
done
cmp "$W/tree1/file" "$W/one/file" || fail "wrong byte in the first image"
mv "$W/store" "$W/away"
cmp "$W/tree2/file" "$W/two/file" || fail "wrong byte in the second image, or it was not warm"
mv "$W/away" "$W/store"
warm_two || fail "$(cat "$W/warm.err")"
[ "$(exports)" = '["one","two"]' ] || fail "warming changed the exports of mounts: $(exports)"
"$GRANARY" mount --fuse --json --memory 32M "$W/store/one" "$W/own" >"$W/own.json"
[ "$(jq -r .control "$W/own.json")" != /run/granary/fuse.control ] || fail "a mount with options of a server joined one without them"

echo "== a mount in cache-only mode by itself, beside one of the same image that is not"
strict() { GRANARY_CONFIG=$W/join.conf "$GRANARY" mount --fuse --mkdir "$@" "$W/store/one" "$W/strict" >"$W/strict.out" 2>"$W/mount.err"; }
! strict --fence often || fail "a fence that there is not"
grep -q -- "--fence is none or warmed, not 'often'" "$W/mount.err" || fail "$(cat "$W/mount.err")"
! strict --fence warmed --memory 32M || fail "joined with an option of a server"
"$GRANARY" cache evict -q --all --control /run/granary/fuse.control >"$W/null"
strict --fence warmed || fail "$(cat "$W/mount.err")"
fenced() { curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -c '.exports | map(select(.fence == "warmed").name)'; }
[[ $(fenced) == '["one@'*'-warmed"]' ]] || fail "behind a fence: $(fenced)"
! cat "$W/strict/file" >"$W/null" 2>&1 || fail "it is fetched for a reader"
"$GRANARY" status /run/granary/fuse >"$W/status" && [ "$(grep -c '^    cache-only mode' "$W/status")" = 1 ] || fail "status: $(cat "$W/status")"
"$GRANARY" warm --json --all "$W/strict" >"$W/warm.json" 2>"$W/warm.err" || fail "it is not warmed: $(cat "$W/warm.err")"
jq -e '.warmed_bytes > 900000 and (.export | endswith("-warmed"))' "$W/warm.json" >"$W/null" || fail "$(cat "$W/warm.json")"
cmp "$W/tree1/file" "$W/strict/file" || fail "what is warm cannot be read"
"$GRANARY" cache evict -q --all --control /run/granary/fuse.control >"$W/null"
forget_pages "$W/one/file"
cmp "$W/tree1/file" "$W/one/file" || fail "the other mount is behind the fence, too"
"$GRANARY" umount "$W/strict"
[ "$(exports)" = '["one","two"]' ] || fail "an export is left: $(exports)"
! strict --quota one:15M || fail "a quota that is too small"
grep -q -- "--quota one:15M: at least 16M" "$W/mount.err" || fail "$(cat "$W/mount.err")"
! strict --quota two:16M || fail "a quota of another image"
grep -q -- "--quota two:16M is of another image than 'one'" "$W/mount.err" || fail "$(cat "$W/mount.err")"
strict --quota one:16M || fail "$(cat "$W/mount.err")"
quotas() { curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -c '.exports | map([(.name | sub("@[0-9a-f]*"; "@DIGITS")), .quota, .image_quota])'; }
[ "$(quotas)" = '[["one",0,16777216],["two",0,0],["one@DIGITS-quota16777216",16777216,16777216]]' ] || fail "quotas: $(quotas)"
"$GRANARY" status /run/granary/fuse >"$W/status"
[ "$(grep -c '^    quota of the image, all versions: 16.0 MiB, ' "$W/status")" = 2 ] || fail "status shows no quota: $(cat "$W/status")"
cmp "$W/tree1/file" "$W/strict/file" || fail "wrong byte in an image with a quota"
! GRANARY_CONFIG=$W/join.conf "$GRANARY" mount --fuse --mkdir --quota 32M "$W/store/one" "$W/refused" 2>"$W/mount.err" || fail "two quotas of one image"
grep -q "has a quota of 16.0 MiB here already, by another export" "$W/mount.err" || fail "$(cat "$W/mount.err")"
"$GRANARY" umount "$W/strict"
[ "$(quotas)" = '[["one",0,0],["two",0,0]]' ] || fail "quotas after the mount that had one: $(quotas)"
strict --quota 32M || fail "$(cat "$W/mount.err")"
"$GRANARY" umount "$W/strict"
strict --fence none || fail "$(cat "$W/mount.err")"
[ "$(exports)" = '["one","two"]' ] || fail "no fence is another export: $(exports)"
"$GRANARY" umount "$W/strict"

echo "== a mount whose metadata is not warmed"
# so much data that what the mount itself reads is no reason to complete the rest
mkdir "$W/tree3"
head -c 6000000 /dev/urandom >"$W/tree3/file"
(cd "$W/tree3" && seq -f %0200.0f 1500 | xargs touch)
"$GRANARY" build -q "$W/tree3" "$W/store/many" >"$W/built"
many() { env -u GRANARY_CACHE GRANARY_CONFIG="$W/join.conf" "$GRANARY" mount --fuse "$@" "$W/store/many" "$W/strict" >"$W/strict.out" 2>"$W/mount.err" || fail "$(cat "$W/mount.err")"; }
metadata_needed() { "$GRANARY" warm --json --metadata --dry-run "$W/strict" | jq .needed_bytes; }
many --warm none
needed=$(metadata_needed)
[ "$needed" -gt 200000 ] || fail "of the metadata only $needed bytes are not cached"
[ "$(find "$W/strict" -type f | wc -l)" = 1501 ] || fail "what is not warm cannot be read"
"$GRANARY" umount "$W/strict"
many
[ "$(metadata_needed)" = 0 ] || fail "of the metadata $(metadata_needed) bytes are not cached"
"$GRANARY" umount "$W/strict"

echo "== the front end dies while one is read"
kill -9 "$(pgrep -P "$SERVE")"
forget_pages "$W/one/file"
cmp "$W/tree1/file" "$W/one/file" || fail "wrong byte after the front end was killed"

echo "== the server stays when the mounts go"
for d in one two own; do "$GRANARY" umount "$W/$d"; done
wait_for 60 no_loop_on /run/granary/fuse/one
wait_for 60 no_loop_on /run/granary/fuse/two
[ ! -e "$(dirname "$(jq -r .control "$W/own.json")")" ] || fail "the server of a mount is left"
curl -sS --unix-socket /run/granary/fuse.control http://granary/status | jq -e '.exports == []' >"$W/null" || fail "an export is left"
"$GRANARY" mount --fuse "$W/store/two" "$W/two"
cmp "$W/tree2/file" "$W/two/file" || fail "wrong byte in a later mount"
"$GRANARY" umount "$W/two"
kill "$SERVE"
wait "$SERVE" || fail "the server failed: $(cat "$W/serve.err")"

echo "== an export that waits for its keys has a name that no mount takes"
printf 'granary added exports 1\nuser-keys\0two\0s3://lake/two@sha256:%064d\0' 1 >/run/granary/fuse.control.exports
background "$GRANARY" serve --fuse /run/granary/fuse --cache none >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
grep -q "export 'two' waits for its keys" "$W/serve.err" || fail "it does not wait: the test proves nothing: $(cat "$W/serve.err")"
"$GRANARY" mount --fuse "$W/store/two" "$W/two" 2>"$W/mount.err" || fail "$(cat "$W/mount.err")"
cmp "$W/tree2/file" "$W/two/file" || fail "wrong byte beside an export that waits"
[[ $(exports) == '["two@'* ]] || fail "another name: $(exports)"
"$GRANARY" umount "$W/two"
kill "$SERVE"
wait "$SERVE" || fail "the server failed: $(cat "$W/serve.err")"
rm /run/granary/fuse.control.exports
