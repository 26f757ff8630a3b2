#!/bin/bash
# A device that was attached by the name of an export that follows a tag, and a keeper: the server is killed, and when it
# is back the name leads to the next version. The keeper refuses that: reads wait, and not one byte of the new version
# appears on the device. When the tag names the first version again the device goes on; so does one that was attached by
# the version's own name, without waiting.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

prepare_readers
prepare_other_image
"$GRANARY" build "${tree:?}" "file://$W/store/perl:first"
"$GRANARY" build "$W/other" "file://$W/store/perl:second"
first=$(digest_of "file://$W/store/perl:first")
[ "$(digest_of "file://$W/store/perl:latest")" = "$first" ] || fail "the readers' copy is not the first version"
[ "$(digest_of "file://$W/store/perl:second")" != "$first" ] || fail "the second version is the first"

{
    guest_readers
    echo "first=$first"
    cat <<'GUEST'
move() { granary tag file:///store/perl:$1 daily; }
follow() {
    rm -f /serve.log
    granary serve --follow --poll 1s --hook /hook file:///store/perl:daily --socket /s.sock --cache /cache:64M >/serve.log 2>&1 &
    server=$!
    said /serve.log serving
}
# moves TAG: and new connections get that version
moves() {
    rm -f /hooked
    move $1
    until_true 'grep -qs "switched perl" /hooked'
}
printf '#!/bin/sh\necho "$GRANARY_EVENT $GRANARY_EXPORT" >>/hooked\n' >/hook
chmod +x /hook
move first
follow

echo "== by the name that follows: another version is refused, and reads wait"
device=/dev/nbd5
nbd-client -unix /s.sock $device -N perl -R
keep --socket /s.sock --export perl --nbd-timeout 5s
mount -t erofs -o ro $device /mnt/data
start_readers
kill -9 $server
until_true '! pidof granary-nbd'
move second
follow
until_true 'grep -q "REFUSED.*another image" /keep.log'
move first
end_readers "the name led to another version for a while"
grep "REFUSED" /keep.log
umount /mnt/data
nbd-client -d $device
wait $keeper

echo "== by the name of the version: nothing waits for the tag"
nbd-client -unix /s.sock $device -N perl@$first -C 4 -R
keep --socket /s.sock --export perl@$first --nbd-timeout 5s
mount -t erofs -o ro $device /mnt/data
start_readers
moves second
kill_child
another_child
end_readers "the name leads elsewhere, the front end was killed"
until_true 'grep "new connections after" /keep.log'
grep REFUSED /keep.log && { echo "the version's own name was refused"; exit 1; }
umount /mnt/data
nbd-client -d $device
wait $keeper

echo "== a mount by that server's socket takes the version's own name"
moves first
granary mount file:///store/perl:daily /mnt/data --socket /s.sock --nbd-timeout 5s
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
start_readers
moves second
kill -9 $server
until_true '! pidof granary-nbd'
follow
end_readers "the name leads elsewhere, the server was killed and started again"
cat /run/granary/*/keep.log >/mount-keep.log
grep REFUSED /mount-keep.log && { echo "the mount's version was refused"; exit 1; }
granary umount /mnt/data
kill $server
wait $server
GUEST
} >"$W/guest.sh"
run_readers 850
