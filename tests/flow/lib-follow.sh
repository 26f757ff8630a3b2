# shellcheck shell=bash
# Sourced by the tests of `granary mount --follow`: versions of a tree under a tag, a mount behind the fence, where a
# read of what is not cached is an error, and readers.
#
#   publish N            a new version of the tree, by whose number `shows` and `held` know it
#   follow_first         version 1 is followed; a reader reads on, and a process holds the version's directory
#   end_readers          no read failed
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"

needs_fuse

dir=$W/data
extra_cleanup() { "$GRANARY" umount --force "$dir" 2>/dev/null; }
mkdir -p "$dir" "$W/tree/deep"
head -c 12000000 /dev/urandom >"$W/tree/deep/same"
cat >"$W/hook" <<HOOK
#!/bin/sh
echo "\$GRANARY_EVENT \$GRANARY_DIR \$GRANARY_IMAGE \$GRANARY_DIGEST \$GRANARY_BEFORE \$GRANARY_VERSION \$GRANARY_REASON" >>"$W/hooked"
HOOK
chmod +x "$W/hook"
: >"$W/hooked"

# publish N: version N of the tree under the tag, and under vN; its digest in DIGESTS
declare -A DIGESTS
publish() {
    echo "$1" >"$W/tree/number"
    head -c 3000000 /dev/urandom >"$W/tree/deep/new$1"
    (cd "$W/tree" && find . -type f ! -name sums -print0 | sort -z | xargs -0 sha256sum >"$W/sums" && mv "$W/sums" sums)
    "$GRANARY" build -q "$W/tree" "$W/store/faces:daily" >"$W/built"
    "$GRANARY" tag "$W/store/faces:daily" "v$1" >"$W/out"
    DIGESTS[$1]=$(digest_of "$W/store/faces:daily")
}
# version_dir N: its directory
version_dir() { echo "$dir/@$(cut -c8-19 <<<"${DIGESTS[$1]}")"; }
follow=("$GRANARY" mount --follow --poll 1s --keep-versions 2 --hook "$W/hook" --fuse --cache "$W/cache:400M"
    --disk-timeout "$DISK_TIMEOUT" --fence warmed "$W/store/faces:daily" "$dir")
shows() { [ "$(cat "$dir/current/number")" = "$1" ]; }
state() { cat /run/granary/tag-*/follow.json; }
reason() { state | jq -r .reason; }
follower() { state | jq .pid; }
# metric NAME: of the followed directory
metric() { metrics "$control" | sed -n "s|^granary_follow_$1{dir=\"$dir\"} ||p"; }
log() { cat "$LOGS_DIRECTORY"/follow-tag-*.log; }

# read_on: everything, again and again, by a handle each time, so that all that it reads is of one version
read_on() {
    until [ -e "$W/enough" ]; do
        (cd "$dir/current" && sha256sum --quiet -c sums) >"$W/reader.out" 2>&1 || { : >"$W/reader.failed"; exit 1; }
    done
}
held() {
    (cd "/proc/$HOLDER/cwd" && sha256sum --quiet -c sums) || fail "a held version has other bytes"
    [ "$(cat "/proc/$HOLDER/cwd/number")" = "$1" ] || fail "a held version changed"
}
follow_first() {
    publish 1
    "${follow[@]}" --json >"$W/mount.json" || fail "not mounted: $(log)"
    control=$(jq -r .control "$W/mount.json")
    SERVER_PID=$(jq .server_pid "$W/mount.json")
    "$GRANARY" warm -q --all "$dir" >"$W/out"
    shows 1 || fail "current does not show it"
    read_on &
    READER=$!
    ours "$READER"
    (cd "$dir/current" && exec sleep 1000) &
    HOLDER=$!
    ours "$HOLDER"
    wait_for 60 test -e "/proc/$HOLDER/cwd/number"
}
end_readers() {
    touch "$W/enough"
    wait "$READER" || fail "a reader: $(cat "$W/reader.out")"
    [ ! -e "$W/reader.failed" ] || fail "a reader: $(cat "$W/reader.out")"
    [ "$("$GRANARY" status "$control" --quick --json | jq '[.exports[].fence_refusals] | add')" = 0 ] || fail "a read was refused by the fence"
}
