#!/bin/bash
# granary mount killed at its steps, one after the other: the next mount works, and after the next umount nothing is left:
# no process, device, directory or mount.
# ctest: lock=loop
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-killed.sh"

steps=0
for call in "${calls[@]}"; do
    for ((n = 1; ; n++)); do
        killed "$call" "$n" "${mounting[@]}" || break
        steps=$((steps + 1))
        # Every second time the next call is an umount, which may find that there is nothing.
        if ((n % 2)) || mountpoint -q "$dir"; then
            "$GRANARY" umount "$dir" 2>"$W/err" || grep -q "nothing is mounted" "$W/err" || fail "umount after a mount killed at $call $n: $(cat "$W/err")"
        fi
        mount_it >"$W/out" 2>"$W/err" || fail "mount after one killed at $call $n: $(cat "$W/err")"
        cmp "$W/tree/file" "$dir/file"
        "$GRANARY" umount "$dir" || fail "umount after a mount killed at $call $n"
        check_nothing_left "mount killed at $call $n"
    done
    mountpoint -q "$dir" && "$GRANARY" umount "$dir"
    echo "mount: $call $((n - 1))"
done
[ "$steps" -gt 20 ] || fail "mount was killed at $steps steps only"
