#!/bin/bash
# The keeper as a process: it has two of root's capabilities and no more, and with those reaches a server of another
# user, whose socket is that user's alone, after that died. Where systemd runs and has the keeper's unit, systemd starts
# it; else granary does.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"
[ "$(id -u)" = 0 ] || skip "only root can be several users"

prepare_guest
mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "file://$W/store/set"

{
    declare -f until_true
    cat <<'GUEST'
set -e
mkdir -p /mnt/data /home/server
chown 1001 /home/server
chmod 755 /store
keeper_of() { granary keep $device 2>&1 | sed -n 's/^.*granary: keep: process \([0-9]*\) keeps .* already$/\1/p'; }
mount_it() {
    granary mount file:///store/set /mnt/data "$@"
    device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
    keeper=$(keeper_of)
    [ -n "$keeper" ]
}

echo "== little is left of root"
/usr/bin/setpriv --reuid 1001 --regid 1001 --clear-groups granary serve file:///store/set --socket /home/server/s >/serve.log 2>&1 &
server=$!
until_true "grep -q 'serving ' /serve.log"
[ "$(stat -c '%a %u' /home/server/s)" = "600 1001" ]
mount_it --socket /home/server/s
grep -E '^(Cap|NoNew)' /proc/$keeper/status
for set in Prm Eff Bnd; do
    grep -qE "^Cap$set:[[:space:]]+0000000000200002\$" /proc/$keeper/status # CAP_SYS_ADMIN, CAP_DAC_OVERRIDE
done
grep -qE '^CapInh:[[:space:]]+0+$' /proc/$keeper/status
grep -qE '^NoNewPrivs:[[:space:]]+1$' /proc/$keeper/status

echo "== and it is enough"
old=$(pidof granary-nbd)
kill -9 $old
until_true 'grep -q "new connections after" /run/granary/*/keep.log'
cmp /tree/file /mnt/data/file

echo "== the server knows which process keeps its device, and how old its last report is"
# status_has TEXT: part of the status, of its reconnect daemons
status_has() { granary status --quick --json /home/server/s | grep -o '"keepers":.*' | grep -E "$1" >/found; }
until_true 'status_has "\"device\":\"$device\",\"state\":\"keeping\",\"pid\":$keeper,\"reconnects\":[1-9]"'
kill -9 $keeper
until_true 'status_has "\"pid\":$keeper,\"reconnects\":[0-9]+,\"report_age_s\":([2-9]|[1-9][0-9])"'
granary umount --force /mnt/data
status_has '"keepers":\[\]'
kill $server
wait $server

echo "== systemd starts it, where it has the unit"
mkdir -p /run/systemd/system
cat >/bin/systemctl <<'SYSTEMCTL'
#!/bin/sh
echo "$*" >>/systemctl.log
[ -e /run/systemd/system/granary-keep@.service ] || { echo "Unit not found." >&2; exit 5; }
device=/dev/${2#granary-keep@}
granary keep ${device%.service} >/unit.log 2>&1 &
echo $! >/unit.pid
while ! grep -q ^keeping /unit.log; do sleep 0.1; done
SYSTEMCTL
chmod +x /bin/systemctl
mount_it
cat /systemctl.log
grep -qx "start granary-keep@${device#/dev/}.service" /systemctl.log
[ ! -e /unit.pid ]
granary umount /mnt/data
: >/run/systemd/system/granary-keep@.service
mount_it
[ "$(cat /unit.pid)" = $keeper ]
granary umount /mnt/data
until_true '! pidof granary-nbd granary >/dev/null'
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 850 --mem 1536 "${PROGRAMS[@]}" --bin /usr/bin/setpriv --file "$W/store:/store" --file "$W/tree:/tree" \
    "$GRANARY_BUILD/vm" "$W/guest.sh"
