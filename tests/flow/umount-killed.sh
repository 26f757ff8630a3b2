#!/bin/bash
# granary umount killed at its steps, one after the other: the next mount works, and after the next umount nothing is
# left: no process, device, directory or mount.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-killed.sh"

steps=0
for call in "${calls[@]}"; do
    for ((n = 1; ; n++)); do
        mount_it >"$W/out"
        killed "$call" "$n" "$GRANARY" umount "$dir" || break
        steps=$((steps + 1))
        check_healed "an umount killed at $call $n" "$n"
    done
    echo "umount: $call $((n - 1))"
done
[ "$steps" -gt 10 ] || fail "umount was killed at $steps steps only"
