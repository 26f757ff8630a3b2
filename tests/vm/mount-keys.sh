#!/bin/bash
# A kernel nbd mount with S3 keys of its own (--keys, from a pipe), whose server is killed with -9, the supervisor and
# not only its child: the next server has no keys, so its reads wait, and `granary status` says for what. They go on
# when the mount is given keys again. Another mount of the same image, with the server's keys, is not joined with it.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib.sh"

prepare_guest
mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "file://$W/store/set" >"$W/built"
background python3 "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port" "lake=$W/store"
wait_for 60 test -s "$W/port"

{
    declare -f until_true
    cat <<'GUEST'
set -e
mkdir -p /mnt/data /mnt/other /etc/granary
options="--cache /cache:64M"
# mount_keys KEY: or new keys for the mount
mount_keys() {
    printf 'AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=hidden\n' $1 |
        granary mount --keys /proc/self/fd/0 s3://lake/set /mnt/data $options
}
mount_keys one
cmp /tree/file /mnt/data/file
old=$(pidof granary-nbd)
kill -9 $(sed -n 's/^PPid:[[:space:]]*//p' /proc/$old/status)
until_true '! pidof granary-nbd'
echo 3 >/proc/sys/vm/drop_caches

echo "== the next mount starts it again, without the keys"
granary mount file:///store/set /mnt/other $options
cmp /tree/file /mnt/other/file
status=0
granary status --quick >/status || status=$?
[ $status = 3 ] || { echo "status: $status"; cat /status; exit 1; }
grep "^failing: the export 'set@[0-9a-f]*' waits for its keys" /status || { cat /status; exit 1; }
grep -A 1 "^  set@[0-9a-f]*  waits for its keys" /status | grep "mounted on /mnt/data" || { cat /status; exit 1; }
cmp /tree/file /mnt/data/file &
reader=$!
sleep 3
kill -0 $reader || { echo "the reader did not wait"; exit 1; }

echo "== keys again: its reads go on"
mount_keys two
wait $reader
granary status --quick >/status || { cat /status; exit 1; }
grep "^  set@[0-9a-f]*  [0-9]" /status || { cat /status; exit 1; }
granary umount /mnt/other
cmp /tree/file /mnt/data/file
granary umount /mnt/data
until_true '! pidof granary-nbd'
[ -z "$(find /run/granary ! -type d)" ] || { ls -lR /run/granary; exit 1; }
GUEST
} >"$W/guest.sh"
"$vm" run --timeout 600 "${PROGRAMS[@]}" --file "$W/store:/store" --file "$W/tree:/tree" \
    --env "AWS_ENDPOINT_URL=http://10.0.2.2:$(cat "$W/port")" --env AWS_EC2_METADATA_DISABLED=true \
    "$GRANARY_BUILD/vm" "$W/guest.sh"
