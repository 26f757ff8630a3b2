#!/bin/bash
# fronts-vm.sh [SECONDS [MEMORY]]: the fronts beside each other on Debian 13's kernel, in an emulated VM (tests/vm/kit):
# kernel nbd, ublk, and a loop device on a file of granary-fuse. An image of 16 MB, all of it in the cache, whose disk is
# memory; with MEMORY (64M) also in a memory tier of that size. For each front: a second mount; files, read whole in a
# shuffled order by 4 processes, page cache dropped; reads of the device by fio past the page cache, 4 KiB at depth 1 and
# 128 KiB at depth 32, SECONDS (5) each. CPU is that of the whole guest. Three rounds; emulation makes everything slow, so
# only the ratios in a round mean something.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
suite=trixie
GRANARY_SOURCE=$SOURCE NBD=$GRANARY_BUILD/nbd/granary-nbd UBLK=$GRANARY_BUILD/ublk/granary-ublk
FUSE=$GRANARY_BUILD/fuse/granary-fuse READER=$GRANARY_BUILD/bench/epoch-reader
fail() { echo "$*" >&2; exit 1; }
. "$SOURCE/tests/vm/lib.sh"
prepare_guest
fuse=$(cd "$W/installed" && find . -name granary-fuse)
"$GRANARY" build --quiet /usr/share/perl "file://$W/store/set" >&2
"$READER" make /usr/share/perl >"$W/list"

cat >"$W/guest.sh" <<'GUEST'
set -e
cpu() { awk '/^cpu /{print $2 + $3 + $4 + $7 + $8}' /proc/stat; }
now() { awk '{print int($1 * 1000)}' /proc/uptime; }
# load NAME ARG...: fio on the device. Prints requests a second, the mean µs, MB a second of the guest's CPU
load() {
    local name=$1 before after
    shift
    before=$(cpu)
    fio --name=x --filename=$device --readonly --direct=1 --ioengine=libaio --rw=randread --time_based --runtime=$seconds \
        --size=12m --output-format=terse --terse-version=3 "$@" >/fio.out
    after=$(cpu)
    awk -F ';' -v f="$front" -v n="$name" -v ticks=$((after - before)) \
        '{printf "%s %s: %d IOPS, mean %d us, %.1f MB per CPU second\n", f, n, $8, $40, $6 / 1024 / (ticks / 100)}' /fio.out
}
mkdir -p /mnt/x /mnt/y
seconds=$1 memory=${2:+--memory $2}
for round in 1 2 3; do
    echo "round $round"
    for front in nbd ublk fuse; do
        option=--ublk=no
        [ $front = nbd ] || option=--$front
        granary mount $option file:///store/set /mnt/y --cache /cache-$front:64M $memory >/dev/null
        granary warm -q /mnt/y --all
        start=$(now) # the server runs: what the attach itself takes
        granary mount $option file:///store/set /mnt/x --cache /cache-$front:64M $memory >/dev/null
        echo "$front second mount: $(($(now) - start)) ms"
        device=$(grep ' /mnt/x ' /proc/mounts | cut -d ' ' -f 1)
        find /mnt/x -type f >/dev/null
        echo 1 >/proc/sys/vm/drop_caches
        before=$(cpu)
        echo "$front files: $(epoch-reader read /list /mnt/x 4 $round) CPU ticks $(($(cpu) - before))"
        load 4k-1 --bs=4k --iodepth=1
        load 128k-32 --bs=128k --iodepth=32
        granary umount /mnt/x
        granary umount /mnt/y
    done
done
GUEST
"$vm" run --timeout 1200 --mem 2048 "${PROGRAMS[@]}" --bin "$FUSE" --file "$W/installed/$fuse:/${fuse#./}" --bin "$(command -v fio)" --bin "$READER" \
    --file "$READER:/bin/epoch-reader" --file "$W/store:/store" --file "$W/list:/list" "$vm_dir" "$W/guest.sh" "${1:-5}" "${2:-}"
