#!/bin/bash
# What needs no ublk in the kernel: options that exclude each other, the check of a server's parameters, and the sentences
# where ublk is missing. The rest is vm/ublk.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

mkdir "$W/tree" "$W/mnt"
echo words >"$W/tree/file"
"$GRANARY" build "$W/tree" "$W/store/set"

refused 2 "--ublk and --socket exclude each other" "$GRANARY" serve --ublk "$W/u" --socket "$W/s" "$W/store/set"
refused 2 "--ublk and --listen exclude each other" "$GRANARY" serve --ublk "$W/u" --listen 127.0.0.1:0 "$W/store/set"
refused 2 "--ublk and --fuse exclude each other" "$GRANARY" serve --ublk "$W/u" --fuse "$W/f" "$W/store/set"
refused 2 "--ublk and --fuse exclude each other" "$GRANARY" mount --ublk --fuse "$W/store/set" "$W/mnt"
refused 2 "--ublk and --connections exclude each other" "$GRANARY" mount --ublk -C 2 "$W/store/set" "$W/mnt"
refused 2 "--ublk and --nbd-timeout, --dead-timeout exclude each other" \
    "$GRANARY" mount --ublk --nbd-timeout 5s "$W/store/set" "$W/mnt"

printf '[mount]\nublk = yes\nfuse = yes\n' >"$W/both.conf"
GRANARY_CONFIG=$W/both.conf refused 2 "both.conf: ublk and fuse exclude each other" "$GRANARY" config check

"$GRANARY" serve --ublk "$W/u" --check "$W/store/set"

if [ ! -e /dev/ublk-control ]; then
    refused 1 "granary-ublk does not start: this kernel has no ublk" "$GRANARY" serve --ublk "$W/u" "$W/store/set"
    [ ! -e "$W/u" ] || fail "the socket is left"
    [ "$(id -u)" != 0 ] || refused 1 "this kernel has no ublk" "$GRANARY" mount --ublk "$W/store/set" "$W/mnt"
    refused 1 "this kernel has no ublk" "$UBLK" --remove 0 1
    refused 1 "this kernel has no ublk" "$UBLK" --probe
fi
refused 2 "--remove" "$UBLK" --remove x 1
