#!/bin/bash
# What else a device of an export can stand on, under the same readers and faults as Granary's own mounts: nbd-client
# alone, with -persist, and nbdfuse under a loop device. It prints a row for docs/internals/attachment.md each, and
# fails only where Granary does.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"
. "$GRANARY_SOURCE/tests/vm/lib-far.sh"

prepare_far
{
    guest_readers
    guest_far
    cat <<'GUEST'
granary_up() { attach 5; }
granary_down() { granary umount /mnt/data; }
nbd_client_up() {
    device=/dev/nbd5
    nbd-client -unix /s.sock $device -N perl -C 4 -R $1 >/dev/null
    mount -t erofs -o ro $device /mnt/data
}
nbd_client_cut() { nbd-client -d $device >/dev/null; }
nbd_client_down() { umount /mnt/data; }
persist_up() { nbd_client_up -persist; }
persist_cut() { nbd_client_cut; }
persist_down() { nbd_client_down; }
nbdfuse_up() {
    mkdir -p /run/nbdfuse
    : >/run/nbdfuse/file
    nbdfuse -r /run/nbdfuse/file "nbd+unix:///perl?socket=/s.sock" >/nbdfuse.log 2>&1 &
    until_true '[ -s /run/nbdfuse/file ]'
    device=$($losetup -r --direct-io=on -f --show /run/nbdfuse/file)
    mount -t erofs -o ro $device /mnt/data
}
nbdfuse_cut() { :; }
nbdfuse_down() {
    umount /mnt/data
    $losetup -d $device
    umount /run/nbdfuse/file 2>/dev/null || umount -l /run/nbdfuse/file
}

killed() {
    kill_child
    another_child
}
silent() {
    host dead
    sleep 25
    host alive
}
# goes_on: what fails does so in the ten seconds after the fault, and within five minutes from then on both kinds have
# read on
goes_on() {
    sleep 10
    set -- $(cat /progress) $(wc -l </readers.err)
    for i in $(seq 300); do
        ! reads_since $1 $2 || break
        sleep 1
    done
    reads_since $1 $2 && [ $(wc -l </readers.err) = $3 ]
}
# row NAME FAULT WORDS: what comes of it
row() {
    ${1}_up
    start_readers
    $2
    on=yes
    goes_on || on=no
    errors=$(wc -l </readers.err)
    [ $1 = granary ] || ${1}_cut
    kill -TERM $readers
    good=0
    wait $readers || good=$?
    longest=$(awk '$5 > most { most = $5 } END { printf "%.1f", most / 1000 }' /readers.out)
    echo "| $1 | $3 | $(awk '{ n += $2 } END { print n }' /readers.out) | $errors | $on | $longest s |"
    ${1}_down
    [ $1 != granary ] || [ "$good $on" = "0 yes" ]
}
serve_far
echo "| by | fault | reads | errors | reads go on | longest |"
for fault in "killed server killed, started again" "silent store silent for 25 s"; do
    for by in granary nbd_client persist nbdfuse; do
        row $by ${fault%% *} "${fault#* }"
    done
done
kill $server
wait $server
GUEST
} >"$W/guest.sh"
run_readers 1500 "${FAR[@]}" --bin "$(command -v nbdfuse)" --bin "$(command -v losetup)" --env "losetup=$(command -v losetup)"
