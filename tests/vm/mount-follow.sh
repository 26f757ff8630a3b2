#!/bin/bash
# `granary mount --follow` with kernel nbd on Debian's kernel (6.1 in Debian 12): a tag moves three times under readers
# that take a handle each time, while the front end, the server, a reconnect daemon and the follower are killed. No read
# fails, none is of two versions. A container with propagation sees the new version, one without keeps its own; a
# version that was let go is detached; umount leaves nothing.
# ctest: long lock=vm
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"

prepare_guest
mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/same"
for n in 1 2 3; do
    echo $n >"$W/tree/number"
    head -c 500000 /dev/urandom >"$W/tree/new$n"
    (cd "$W/tree" && find . -type f ! -name sums -print0 | xargs -0 sha256sum >"$W/sums" && mv "$W/sums" sums)
    "$GRANARY" build -q "$W/tree" "file://$W/store/faces:daily"
    "$GRANARY" tag "file://$W/store/faces:daily" v$n
done
"$GRANARY" tag "file://$W/store/faces:v1" daily

{
    declare -f until_true
    cat <<'GUEST'
set -e
mkdir -p /mnt/data
ls /run >/before
fail() {
    echo "FAILED: $*"
    cat /var/log/granary/*.log /reader.out
    dmesg | tail -n 20
    exit 1
}
follow="granary mount --follow --poll 1s --keep-versions 2 --nbd-timeout 5s --cache /cache:64M file:///store/faces:daily /mnt/data"
shows() { [ "$(cat /mnt/data/current/number)" = "$1" ]; }
move() { granary tag file:///store/faces:v$1 daily; }
follower() { sed -n 's/^ *"pid": \([0-9]*\).*/\1/p' /run/granary/tag-*/follow.json; }
keepers() {
    for p in $(pidof granary); do
        case "$(tr '\0' ' ' </proc/$p/cmdline 2>/gone)" in *" keep /dev/nbd"*) echo $p ;; esac
    done
}
attached() { cat /sys/block/nbd*/size | grep -vcx 0; }
# read_on: everything by one handle; another tree's bytes do not match its sums
read_on() {
    until [ -e /enough ]; do
        (cd /mnt/data/current && sha256sum -c sums) >/reader.out 2>&1 || { : >/reader.failed; break; }
        echo 1 >/proc/sys/vm/drop_caches
        echo >>/rounds
    done
}
more_rounds() { [ "$(wc -l </rounds)" -gt "$1" ]; }
go_on() { until_true "more_rounds $(($(wc -l </rounds) + 1)) || [ -e /reader.failed ]"; }

: >/rounds
$follow
shows 1 || fail "not the first version"
[ "$(attached)" = 1 ] || fail "$(attached) devices"
grep -q '^/dev/nbd[0-9]* /mnt/data/current erofs ro' /proc/mounts || fail "$(cat /proc/mounts)"
read_on &
reader=$!
(cd /mnt/data/current && exec sleep 100000) &
holder=$!
unshare --mount --propagation slave sleep 100000 &
slave=$!
go_on

echo "== a new version, while the front end is killed"
move 2
kill -9 $(pidof granary-nbd)
until_true 'shows 2'
[ "$(attached)" = 2 ] || fail "$(attached) devices"
[ "$(cat /proc/$holder/cwd/number)" = 1 ] || fail "the held version changed"
[ "$(nsenter -t $slave -m cat /mnt/data/current/number)" = 2 ] || fail "the container with propagation sees another version"
mkdir /mnt/container
unshare --mount --propagation slave sh -c 'mount --rbind /mnt/data /mnt/container && mount --make-rprivate /mnt/container &&
    umount -l /mnt/data && exec sleep 100000' &
private=$!
contained() { [ "$(nsenter -t $private -m cat /mnt/container/current/number)" = "$1" ]; }
until_true 'contained 2'
go_on

echo "== the server is killed, and a reconnect daemon: the follower starts them again"
kill -9 $(cat /run/granary/server-*/server | tr '\0' '\n' | sed -n 2p)
go_on
keeper=$(keepers | sed -n 1p)
kill -9 $keeper
until_true '[ "$(keepers | grep -vcx $keeper)" = 2 ]'
go_on

echo "== the follower is killed; another one goes on, and waits for a version that is let go"
kill -9 $(follower)
go_on
$follow
move 3
until_true 'grep -q "all 2 versions are in use" /run/granary/tag-*/follow.json'
shows 2 || fail "current did not stay"
[ "$(cat /proc/$holder/cwd/number)" = 1 ] || fail "the held version changed"
kill $holder
until_true 'shows 3'
[ "$(attached)" = 2 ] || fail "$(attached) devices"
contained 2 || fail "the container without propagation sees another version"
go_on

echo "== the tag goes back"
move 2
until_true 'shows 2'
go_on
: >/enough
wait $reader
[ ! -e /reader.failed ] || fail "a reader"
echo "$(wc -l </rounds) rounds of readers, no error"

echo "== umount: refused while a container has a version, then nothing is left"
if granary umount /mnt/data; then fail "umount of what a container reads"; fi
kill $slave $private
until_true 'granary umount /mnt/data'
until_true '! pidof granary-nbd granary >/dev/null'
! grep /mnt/data /proc/mounts || fail "a mount is left"
[ "$(attached || true)" = 0 ] || fail "a device is left"
[ -z "$(find /run/granary ! -type d)" ] || fail "$(find /run/granary)"
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --file "$W/store:/store" "$GRANARY_BUILD/vm" "$W/guest.sh"
