# shellcheck shell=bash
# Sourced by the tests in the guest that do something to a server under readers of its mount
# (tests/tools/mount_reader.c), after tests/lib.sh. The guest script begins with `guest_readers`, the guest is run by
# `run_readers`.
. "$GRANARY_SOURCE/tests/vm/lib.sh"

# prepare_readers: an image of $tree, which is one of this machine where it is not set, in $W/store, what the readers
# compare with, and the guest
prepare_readers() {
    tree=${tree:-/usr/share/perl}
    [ -d "$tree" ] || tree=/usr/share/doc
    prepare_guest
    "$GRANARY" build "$tree" "file://$W/store/perl"
    "$GRANARY" export "file://$W/store/perl" "$W/image"
    (cd "$tree" && find . -type f) >"$W/list"
}

# prepare_other_image: $W/store2 has the same tree with one other byte
prepare_other_image() {
    cp -a "$tree" "$W/other"
    find "$W/other" -type f -size +4k | LC_ALL=C sort | sed -n 1p | xargs sed -i '1s/^./X/' # not a byte longer
    "$GRANARY" build "$W/other" "file://$W/store2/perl"
}

# run_readers TIMEOUT [WORD...]: $W/guest.sh, with more words for `vm.sh run`
run_readers() {
    local timeout=$1
    shift
    "$vm" run --timeout "$timeout" --mem 1536 "${PROGRAMS[@]}" --bin "$GRANARY_BUILD/tests/tools/mount_reader" \
        --file "$GRANARY_BUILD/tests/tools/mount_reader:/bin/mount_reader" \
        --file "$W/store:/store" --file "$tree:/copy" --file "$W/image:/image" --file "$W/list:/list" "$@" \
        "$vm_dir" "$W/guest.sh"
}

# guest_readers: the beginning of a guest script
guest_readers() {
    echo "set -e"
    declare -f until_true
    cat <<'GUEST'
# reads_since DIRECT BUFFERED: both kinds of readers have done some more
reads_since() {
    set -- "$1" "$2" $(cat /progress)
    [ "$3" -gt $(($1 + 8)) ] && [ "$4" -gt $(($2 + 8)) ]
}
go_on() { until_true "reads_since $(cat /progress)"; }
start_readers() {
    rm -f /progress
    mount_reader "$device" /image /mnt/data /copy /list /progress >/readers.out 2>/readers.err &
    readers=$!
    until_true '[ -s /progress ]'
    go_on
}
# tell FAULT: what they said
tell() {
    sed "s/^\([a-z]*\) \([0-9]*\) \([0-9]*\) \([0-9]*\) \([0-9]*\)/$1: \1: \2 reads, \3 errors, \4 wrong, longest \5 ms/" /readers.out
}
# end_readers FAULT: they went on, and not one read was bad
end_readers() {
    go_on
    kill -TERM $readers
    if ! wait $readers; then
        echo "== $1: bad reads"
        cat /readers.out /readers.err /run/granary/*/*.log /*.log
        dmesg | tail -n 30
        exit 1
    fi
    tell "$1"
    cat /run/granary/*/serve.log /serve.log 2>/dev/null | grep "slow read" || true
}
front=nbd listen=--socket # a test of another front end sets its own
kill_child() {
    old=$(pidof granary-$front)
    kill -9 $old
}
another_child() { until_true 'new=$(pidof granary-$front) && [ "$new" != "$old" ]'; }
# said LOG WORDS: a program that is started now says them there; what an earlier one said does not count
said() { until_true "grep -qsE '(^| )$2' $1"; }
# serve STORE SOCKET LOG
serve() {
    rm -f $3
    granary serve file:///$1/perl $listen $2 --cache /cache-$1:64M --slow-read 2s >$3 2>&1 &
    server=$!
    said $3 serving
}
# keep ARG...: a keeper of the device, in the background
keep() {
    rm -f /keep.log
    granary keep $device "$@" >/keep.log 2>&1 &
    keeper=$!
    said /keep.log "keeping $device"
}
mkdir -p /mnt/data
GUEST
}
