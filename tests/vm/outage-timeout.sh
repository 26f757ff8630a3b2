#!/bin/bash
# A store that is silent for longer than the server's --timeout, and so for several times as long as the kernel waits
# for a reply, is EIO, then and not before; reads are right again when it is back.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"
. "$GRANARY_SOURCE/tests/vm/lib-far.sh"

prepare_far
{
    guest_readers
    guest_far
    cat <<'GUEST'
server_timeout=20
serve_far --timeout ${server_timeout}s
attach 5
start_readers
host dead
began=$(date +%s)
until_true '[ -s /readers.err ]'
took=$(($(date +%s) - began))
echo "store silent for longer than --timeout ${server_timeout}s: EIO after $took s"
[ $took -ge $((server_timeout / 2)) ]
host alive
go_on
kill -TERM $readers
wait $readers && { echo "not one read failed"; exit 1; }
tell "store silent for longer than --timeout"
grep -v "Input/output error" /readers.err && exit 1
[ "$(sed -n 's/^[a-z]* [0-9]* [0-9]* \([0-9]*\) .*/\1/p' /readers.out | xargs)" = "0 0" ]
start_readers
end_readers "store back"
detach
GUEST
} >"$W/guest.sh"
run_readers 850 "${FAR[@]}"
