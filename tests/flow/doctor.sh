#!/bin/bash
# granary doctor: a sound node has no FAIL; what is wrong with it, with an image or its store is a FAIL or a WARN of its
# own check, with the remedy; nothing is left behind or written to the store.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
for tool in jq curl python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install jq curl python3)"
done

mkdir "$W/tree" "$W/cache"
head -c 3000000 /dev/urandom >"$W/tree/one"
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"
export GRANARY_CACHE=$W/cache:64M
chmod 700 "$W/cache"

# examine STATUS ARG...: the findings as "LEVEL CHECK TEXT: REMEDY" in $W/findings
examine() {
    local expected=$1 status=0
    shift
    "$GRANARY" doctor --json "$@" >"$W/doctor.json" || status=$?
    jq -r '.findings[] | "\(.level) \(.check) \(.text): \(.remedy)"' "$W/doctor.json" >"$W/findings"
    [ $status = "$expected" ] || fail "exit $status: $(cat "$W/findings")"
    [ "$(jq '[.ok, .warn, .fail] | add' "$W/doctor.json")" = "$(wc -l <"$W/findings")" ] || fail "$(cat "$W/doctor.json")"
}
# found LINE: a regular expression for one of them
found() { grep -qE -- "^$1\$" "$W/findings" || fail "no '$1' in: $(cat "$W/findings")"; }

[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "no /dev/fuse or no /dev/loop-control here: is this node sound?"
echo "== a sound node"
find "$W/store" -type f | sort >"$W/before"
examine 0 "$W/store/img"
! grep '^FAIL' "$W/findings" || fail "a check fails"
for check in kernel-nbd ublk erofs granary-nbd granary-ublk granary-fuse nbdkit-plugin open-files threads memlock io-uring clock config cache mounts image store-ranges store-latency store-speed; do
    found "(OK|WARN) $check .*"
done
! grep '^WARN kernel-nbd' "$W/findings" ||
    found "WARN kernel-nbd .*; mounts use FUSE, which is slower, and fail when granary serve ends: null"
! grep '^WARN.*: null$' "$W/findings" | grep -v kernel-nbd || fail "a warning without a remedy"
found "OK image $W/store/img is sha256:[0-9a-f]{64}, 1 files, 2.9 MiB; one chunk read and verified: null"
find "$W/store" -type f | sort | cmp - "$W/before" || fail "something was written to the store"
[ -z "$(ls -A "$W/cache")" ] || fail "something is left in the cache directory"
"$GRANARY" doctor "$W/store/img" >"$W/text" || fail "as text"
grep -q '^OK    store-speed    .* over one connection, ' "$W/text" || fail "$(cat "$W/text")"

echo "== the cache directory"
GRANARY_CACHE=$W/cache:900T examine 1
found "FAIL cache $W/cache is set to 900.0 TiB, but only .* is available: give it a smaller size, or free space"
chmod 777 "$W/cache"
examine 1
found "FAIL cache .*$W/cache.*"
chmod 700 "$W/cache"
GRANARY_CACHE=$W/none:64M examine 0
found "OK cache $W/none is not there yet; the first server makes it: null"
GRANARY_CACHE=$W/none/deep:64M examine 1
found "FAIL cache $W/none/deep: there is no $W/none: mount its disk, or make the directory"
GRANARY_CACHE=none examine 0
! grep ' cache ' "$W/findings" || fail "a cache is checked where there is none"
GRANARY_CACHE=wrong examine 1
found "FAIL config GRANARY_CACHE.*"
mkdir -m 700 "$W/other"
examine 0 "$W/other"
found "OK cache $W/other: .* available, to .*: null"
found "OK cache $W/cache: $(findmnt -no FSTYPE -T "$W/cache"), 64.0 MiB of .*"
if [ "$(id -u)" = 0 ]; then
    chmod 711 "$W"
    chown nobody "$W/other" # a server's that runs as another user
    GRANARY_CACHE=none examine 0 "$W/other"
    found "OK cache $W/other: .* available, to .*nobody.*: null"
    found "[A-Z]* cache-disk $W/other: writes .*"
    [ -z "$(ls -A "$W/other")" ] || fail "something is left in it"
    chown root "$W/other"
    mkdir "$W/memory"
    mount -t tmpfs -o mode=700,size=1G tmpfs "$W/memory"
    MOUNTS+=("$W/memory")
    chown nobody "$W/memory"
    GRANARY_CACHE=none examine 0 "$W/memory"
    found "OK cache $W/memory: tmpfs, 1.0 GiB available, to .*nobody.*: null"
    umount "$W/memory"
fi
chmod 777 "$W/other"
GRANARY_CACHE=none examine 1 "$W/store/img" "$W/other"
found "FAIL cache .*$W/other.*"
found "OK image $W/store/img .*"
if [ "$(id -u)" = 0 ]; then
    faulty "$W/hung" "$W/behind"
    kill -STOP "$FAULTFS_PID"
    began=$SECONDS
    GRANARY_CACHE=none examine 1 "$W/store/img" "$W/hung"
    found "FAIL cache-disk $W/hung: its disk has given no answer for 10 seconds: look at the disk: .*"
    found "OK image $W/store/img .*"
    GRANARY_CACHE=$W/hung/cache:64M examine 1
    found "FAIL cache-disk $W/hung/cache: its disk .*"
    [ $((SECONDS - began)) -lt 60 ] || fail "doctor waited for $((SECONDS - began)) s"
    kill -CONT "$FAULTFS_PID"
fi
printf '[mount]\nfuse = perhaps\n' >"$W/granary.conf"
GRANARY_CONFIG=$W/granary.conf examine 1
found "FAIL config $W/granary.conf:2: fuse: .*"
printf '[server]\nmemori = 1\n' >"$W/granary.conf"
GRANARY_CONFIG=$W/granary.conf examine 1
found "FAIL config $W/granary.conf:2: .*did you mean 'memory'.*"

export GRANARY_CACHE=none # its disk has been measured often enough
echo "== programs and limits"
printf '#!/bin/sh\necho granary 0.0.1\n' >"$W/old"
printf '#!/bin/sh\nexit 1\n' >"$W/broken"
chmod +x "$W/old" "$W/broken"
GRANARY_NBD=$W/old examine 1
found "FAIL granary-nbd $W/old says 'granary 0.0.1', and this is granary [0-9.]*: install all packages of Granary in one version"
GRANARY_FUSE=$W/broken examine 0
found "WARN granary-fuse $W/broken --version fails: install the package granary-fuse, .*"
mkdir "$W/bin"
printf '#!/bin/sh\nprintf "path=x\\nname=granary\\nversion=0.0.1\\napi_version=2\\n"\n' >"$W/bin/nbdkit"
chmod +x "$W/bin/nbdkit"
PATH=$W/bin:$PATH examine 0
found "WARN nbdkit-plugin nbdkit loads plugin granary 0.0.1, and this is granary [0-9.]*: install all packages of Granary in one version"
printf '#!/bin/sh\nexit 1\n' >"$W/bin/nbdkit"
PATH=$W/bin:$PATH examine 0
found "OK nbdkit-plugin nbdkit has no plugin granary; mounts do not need it: null"
printf '#!/bin/sh\nexec nbdkit-here --dump-plugin "$PLUGIN"\n' >"$W/bin/nbdkit"
ln -s "$(command -v nbdkit)" "$W/bin/nbdkit-here"
PATH=$W/bin:$PATH examine 0
found "OK nbdkit-plugin nbdkit loads plugin granary [0-9.]*: null"
(ulimit -n 1024 && examine 0 && found "WARN open-files a process may open 1024 files; .*: raise it: LimitNOFILE= .*")

echo "== the image and its store"
examine 1 "$W/store/none"
examine 1 --write
found "FAIL store-write --write needs an IMAGE: .*"
examine 1 "$W/store/none"
found "FAIL image .*none.*"
background python3 "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port" "lake=$W/store"
wait_for 60 test -s "$W/port"
AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$W/port")
export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=KEY AWS_SECRET_ACCESS_KEY=hidden
unset http_proxy https_proxy AWS_PROFILE AWS_SESSION_TOKEN
examine 0 s3://lake/img
found "OK store-speed .*"
found "OK clock-skew this clock and the store's differ by [0-2] seconds: null"
! grep store-write "$W/findings" || fail "something was written unasked"
found "OK credentials S3 credentials are taken from the environment \(AWS_ACCESS_KEY_ID\): null"
url=$AWS_ENDPOINT_URL
AWS_ENDPOINT_URL=http://127.0.0.1:1 examine 0 --endpoint "$url" s3://lake/img
AWS_ENDPOINT_URL=http://127.0.0.1:1 examine 1 --timeout 1s s3://lake/img
found "FAIL image .*http://127.0.0.1:1: .*gave up after [0-9]+ tries in [12]\.[0-9] s.*"
control() { curl -sSf --noproxy '*' "$AWS_ENDPOINT_URL/-/$1" -d "$2"; }
control counts '' >"$W/counts"
! jq -e .PUT "$W/counts" >"$W/null" || fail "something was written unasked: $(cat "$W/counts")"
control clock '{"ahead": 600}' >"$W/null"
examine 0 --write s3://lake/img
found "WARN clock-skew this clock is (599|60[01]) seconds behind the store's: run an NTP client: .*"
found "OK store-write the store honours conditional puts: null"
control clock '{"ahead": -600}' >"$W/null"
examine 0 s3://lake/img
found "WARN clock-skew this clock is (599|60[01]) seconds ahead of the store's: .*"
control faults '{"percent": 100, "kinds": ["denied"], "match": "PUT"}' >"$W/counts"
examine 1 --write s3://lake/img
found "FAIL store-write .*"
jq -e '.DELETE > 0' "$W/counts" >"$W/null" || fail "what was tried is still there: $(cat "$W/counts")"
control faults '{"percent": 0, "kinds": []}' >"$W/null"
curl -sSf --noproxy '*' "$AWS_ENDPOINT_URL/-/revoke" -d '{"key": "KEY"}' >"$W/null"
examine 1 s3://lake/img
found "FAIL image .*AWS_ACCESS_KEY_ID.*"
! grep -q hidden "$W/findings" || fail "a secret is shown"
end_background
background python3 -u -m http.server --bind 127.0.0.1 --directory "$W/store" 0 >"$W/plain.log" 2>&1 # it knows no ranges
wait_for 60 grep -q ' port ' "$W/plain.log"
examine 1 "http://127.0.0.1:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$W/plain.log")/img"
found "FAIL store-ranges .* ignores Range requests .*"
! grep -qE ' (image|credentials) ' "$W/findings" || fail "$(cat "$W/findings")"
end_background
pack=$(find "$W/store/packs" -type f)
truncate -s 0 "$pack"
examine 1 "$W/store/img"
found "FAIL image .*$(basename "$pack").*"
truncate -s 1000 "$pack"
examine 1 "$W/store/img"
found "FAIL image .*$(basename "$pack").*"

[ "$(id -u)" = 0 ] || skip "the rest needs root"
echo "== a container without FUSE and loop devices is told how to get them"
W=$W unshare --mount bash -c 'mkdir "$W/dev"
    for d in null urandom; do touch "$W/dev/$d" && mount --bind "/dev/$d" "$W/dev/$d"; done
    mount --rbind "$W/dev" /dev && exec "$GRANARY" doctor --json' >"$W/doctor.json" || true # where nbd is missing, too: 1
jq -r '.findings[] | "\(.level) \(.check) \(.text): \(.remedy)"' "$W/doctor.json" >"$W/findings"
found "WARN fuse no /dev/fuse: no mounts by FUSE: .*fuse.*; a container needs to be given the device"
found "WARN fuse no /dev/loop-control: no mounts by FUSE: .*loop.*; a container needs to be given the device"

echo "== a mount, and what is left of one whose server was killed"
extra_cleanup() { "$GRANARY" umount --force "$W/mnt" 2>/dev/null; }
"$GRANARY" build -q "$W/tree" "$W/sound/img" >"$W/built"
"$GRANARY" mount --fuse --mkdir --json "$W/sound/img" "$W/mnt" >"$W/mount.json"
examine 0
found "OK mounts [0-9]* with device and server: null"
umount -i "$W/mnt" # and not by granary
examine 0
found "WARN mounts $W/mnt: it is not mounted any more, and its device or server is left: granary umount .*grep -lF '$W/mnt' /proc/\*/mountinfo.*"
"$GRANARY" umount "$W/mnt"
"$GRANARY" mount --fuse --mkdir --json "$W/sound/img" "$W/mnt" >"$W/mount.json"
supervisor=$(jq .server_pid "$W/mount.json")
front=$(pgrep -P "$supervisor")
kill -9 "$supervisor" "$front"
wait_for 60 gone "$front"
examine 1
found "FAIL mounts $W/mnt: its server does not answer: .*"
"$GRANARY" umount --force "$W/mnt"
examine 0

echo "== a bundle has what a report needs, and no secret"
cat >"$W/bin/journalctl" <<'END'
#!/bin/sh
case " $* " in
*" -u granary* "*) printf '%s\n' "$*" 'granary-serve@a: AWS_SECRET_ACCESS_KEY=hidden' 'get https://me:hidden@host/a fails' ;;
*" -k "*) printf '%s\n' 'block nbd0: Connection timed out' 'usb 1-1: new' 'erofs: (device nbd0): mounted' ;;
*) exit 1 ;;
esac
END
chmod +x "$W/bin/journalctl"
mount -t tmpfs tmpfs /run # of this namespace: the unit's directory is not to be seen by other tests
mkdir /run/granary /run/granary-unit
background "$GRANARY" serve "$W/sound/img" --cache none --socket /run/granary-unit/nbd.sock >"$W/unit.out" 2>"$W/unit.err"
wait_for 60 grep -q '^serving ' "$W/unit.out"
printf '[server]\nl2 = http://user:hidden@proxy\n' >"$W/granary.conf"
AWS_SECRET_ACCESS_KEY=hidden "$GRANARY" mount --fuse --mkdir "$W/sound/img" "$W/mnt" >"$W/mounted"
GRANARY_CONFIG=$W/granary.conf PATH=$W/bin:$PATH "$GRANARY" doctor --bundle "$W/bundle.tar.gz" >"$W/text" || fail "$(cat "$W/text")"
grep -qx "bundle: $W/bundle.tar.gz" "$W/text" || fail "$(cat "$W/text")"
[ "$(stat -c %a "$W/bundle.tar.gz")" = 600 ] || fail "others may read the bundle"
mkdir "$W/bundle"
tar -C "$W/bundle" -xzf "$W/bundle.tar.gz"
for file in doctor.json versions settings.json mountinfo servers/{0,1}/status.json servers/{0,1}/metrics journal kernel; do
    [ -s "$W/bundle/$file" ] || fail "no $file: $(cd "$W/bundle" && find . -type f)"
done
grep -q "\"$W/mnt\"" "$W"/bundle/state/*/state.json || fail "no state of the mount"
grep -rq 'serving ' "$W/bundle/logs" || fail "no log of its server"
front=$(pgrep -P "$BACKGROUND_PID")
jq .pid "$W"/bundle/servers/*/status.json >"$W/pids"
grep -qx "$front" "$W/pids" || fail "no status of the unit's server $front"
grep -q -- '-n 2000 ' "$W/bundle/journal" && grep -qxF 'get https://* fails' "$W/bundle/journal" || fail "$(cat "$W/bundle/journal")"
[ "$(cut -d: -f1 "$W/bundle/kernel" | xargs)" = 'block nbd0 erofs' ] || fail "$(cat "$W/bundle/kernel")"
jq -e '.findings | length > 10' "$W/bundle/doctor.json" >"$W/null" || fail "$(cat "$W/bundle/doctor.json")"
! grep -r hidden "$W/bundle" || fail "a secret is in the bundle"
sum=$(sha256sum <"$W/bundle.tar.gz")
! "$GRANARY" doctor --bundle "$W/bundle.tar.gz" >"$W/text" 2>"$W/err" || fail "a file that exists is taken"
grep -q "cannot make $W/bundle.tar.gz: File exists" "$W/err" || fail "$(cat "$W/err")"
[ "$(sha256sum <"$W/bundle.tar.gz")" = "$sum" ] || fail "a file that exists was changed"
cat >"$W/bin/journalctl" <<'END'
#!/bin/sh
[ "$LC_ALL" = C ] && echo 'Failed to add filter for units: No data available' || echo 'in another language'
exit 1
END
LC_ALL=POSIX PATH=$W/bin:$PATH "$GRANARY" doctor --bundle "$W/without.tar.gz" >"$W/text" || fail "$(cat "$W/text")"
! grep -q journal "$W/text" || fail "no unit is no failure: $(cat "$W/text")"
printf '#!/bin/sh\necho "it is broken"\nexit 1\n' >"$W/bin/journalctl"
PATH=$W/bin:$PATH "$GRANARY" doctor --bundle "$W/broken.tar.gz" >"$W/text" || fail "$(cat "$W/text")"
grep -q 'WARN  bundle  *journal is left out: journalctl fails: it is broken' "$W/text" || fail "$(cat "$W/text")"
end_background
"$GRANARY" umount "$W/mnt"
