# shellcheck shell=bash
# Sourced after tests/lib.sh by the tests in the guest that mount images of a real tree from a store copied in. The
# guest script begins with `guest_images`, the guest is run by `run_images`.
. "$GRANARY_SOURCE/tests/vm/lib.sh"

# prepare_images: $W/store has perl (erofs) and ext4, of one tree; $W/want its manifest, $W/few digests of a few files
prepare_images() {
    local tree=/usr/share/perl
    [ -d $tree ] || tree=/usr/share/doc
    prepare_guest
    if [ -z "${GRANARY_FULL:-}" ]; then # hashing is slow in the guest
        mkdir "$W/part"
        (cd $tree && find . -type f | LC_ALL=C sort | awk 'NR % 16 == 1' | cpio -pdm --quiet "$W/part")
        tree=$W/part
    fi
    "$GRANARY" build "$tree" "file://$W/store/perl"
    "$GRANARY" build --fs ext4 "$tree" "file://$W/store/ext4"
    manifest_of_tree "$tree" >"$W/want"
    (cd "$tree" && find . -type f | LC_ALL=C sort | awk 'NR % 25 == 1' | xargs -d '\n' sha256sum) >"$W/few"
    root=$("$GRANARY" inspect --json "file://$W/store/perl" | jq -r .content_root)
}

guest_images() {
    declare -f manifest_of_tree until_true few_same
    echo "set -e"
}

# In the guest. few_same DIR: the files of the list are as they should be; the first mount compares all
few_same() {
    (cd "$1" && sha256sum -c /few) >/few.out || {
        grep -v ': OK$' /few.out
        exit 1
    }
}

run_images() {
    "$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --env "root=$root" --env "full=${GRANARY_FULL:-}" \
        --file "$W/store:/store" --file "$W/want:/want" --file "$W/few:/few" "$vm_dir" "$W/guest.sh"
}
