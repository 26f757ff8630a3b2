#!/bin/bash
# granary mount killed at its steps, one after the other: the next mount works, and after the next umount nothing is
# left: no process, device, directory or mount.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-killed.sh"

steps=0
for call in "${calls[@]}"; do
    for ((n = 1; ; n++)); do
        killed "$call" "$n" "${mounting[@]}" || break
        steps=$((steps + 1))
        check_healed "a mount killed at $call $n" "$n"
    done
    mountpoint -q "$dir" && "$GRANARY" umount "$dir"
    echo "mount: $call $((n - 1))"
done
[ "$steps" -gt 20 ] || fail "mount was killed at $steps steps only"
