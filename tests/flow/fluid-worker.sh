#!/bin/bash
# A CacheRuntime's workers: two nginx as fluid-worker configures them, in front of a store that asks for no keys. A mount of
# fluid-mount reads through them; reportSummary's figures change as they fill; a DataLoad fills them, with exact progress,
# and afterwards the store sends nothing more; a worker that is gone costs no read; what is wrong gives one sentence.
# Workers of another SIZE and several networks have the configuration for them, and SIGTERM ends a worker's count.
# ctest: long
[ -n "${GRANARY_OWN_NET:-}" ] || ! unshare --net true 2>/dev/null || GRANARY_OWN_NET=1 exec unshare --net bash "$0" "$@"
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/flow/lib-l2.sh"

needs_fuse
[ -n "${GRANARY_OWN_NET:-}" ] || skip "no network namespace of its own here: it needs root"
ip link set lo up
for address in 10.0.0.1 10.0.0.2 10.0.0.3 192.168.7.7 172.16.7.7; do ip addr add $address/32 dev lo; done
mkdir "$W/etc"
mount -t tmpfs tmpfs "$W/etc"
mkdir "$W/etc/upper" "$W/etc/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$W/etc/upper,workdir=$W/etc/work" overlay /etc 2>"$W/err" ||
    skip "no overlay to put /etc/fluid into: $(cat "$W/err")"
dir=$W/runtime-mnt/cache/default/faces/cache-fuse
extra_cleanup() { granary umount --force "$dir" 2>"$W/null"; umount /etc "$W/etc"; }
export GRANARY_CACHE=none PATH=$GRANARY_BUILD/cli:$PATH
FLUID=$GRANARY_SOURCE/deploy/fluid
export FLUID_RUNTIME_CONFIG_PATH=/etc/fluid/config/runtime.json
mkdir -p /etc/fluid/config "$W/tree"
printf '10.0.0.%s faces-worker-%s.svc-faces-worker\n' 1 0 2 1 >>/etc/hosts # what the Service and the StatefulSet give

# Each build makes a pack of its own. Their names, and so their places, are the same in each run.
for i in 1 2 3 4 5 6; do
    head -c 2000000 /dev/zero | openssl enc -aes-128-ctr -K $i -iv 0 2>"$W/null" >"$W/tree/f$i"
    granary build -q "$W/tree" "$W/store/faces:v1" >"$W/out"
done
mkdir "$W/other"
echo other >"$W/other/file"
granary build -q "$W/other" "$W/store/other:v1" >"$W/out"
PACKS=$(granary inspect "$W/store/faces:v1" --json | jq .pack_bytes)
serve_store

# recorded [FILTER]: what Fluid gives all pods of the CacheRuntime, for this store; no pod here has the Secret
recorded() {
    sed "s|/runtime-mnt/|$W/runtime-mnt/|" "$GRANARY_SOURCE/tests/data/fluid/cache.json" |
        jq -c "del(.mounts[0].encryptOptions, .mounts[0].options.endpoint) | .mounts[0].mountPoint = \"http://127.0.0.1:$P/lake/faces:v1\"
            | .mounts[0].options += {fuse: \"true\", fill: \"off\", readahead: \"0\"} | .worker.options.store = \"http://127.0.0.1:$P/lake/\" | ${1:-.}" \
            >"$FLUID_RUNTIME_CONFIG_PATH"
}
recorded

# worker N: what the pod of worker N has
worker() {
    export NGINX_CONF_DIR=$W/conf$1 WORKER_RUN_DIR=$W/run$1 WORKER_CACHE_DIR=$W/kept$1
    export OWNER=0:0 SIZE=1g ALLOW=10.0.0.0/8 PAUSE=0.2 ASK_SECONDS=60
}
start_worker() {
    local n=$(($1 + 1))
    worker "$1"
    mkdir -p "$NGINX_CONF_DIR" "$WORKER_RUN_DIR" "$WORKER_CACHE_DIR"
    "$FLUID/fluid-worker" config
    sed "s|listen 8080|listen 10.0.0.$n:8080|" "$NGINX_CONF_DIR/granary-l2.conf" | nginx_config "worker$1"
    background nginx -c "$W/worker$1.conf" -g 'daemon off;'
    declare -g "NGINX$1=$BACKGROUND_PID"
    background "$FLUID/fluid-worker"
    declare -g "WATCH$1=$BACKGROUND_PID"
    wait_for 60 curl -sSf -o "$W/null" "http://10.0.0.$n:8080/held"
}
start_worker 0
start_worker 1

# reported FILTER: of what reportSummary prints in the first worker's pod
report() { (worker 0 && "$FLUID/fluid-worker" report) 2>"$W/report.err" >"$W/report"; }
reported() { report && jq -re "$1" "$W/report"; }
share() { reported '.cachedPercentage | rtrimstr("%") | tonumber'; }
is() { [ "$(reported "$1")" = "$2" ]; }

echo "== workers that hold nothing"
report || fail "$(cat "$W/report.err")"
[ "$(jq -c . "$W/report")" = '{"cached":"0.0KiB","cachedPercentage":"0.0%","cacheCapacity":"2.0GiB","cacheHitRatio":"N/A"}' ] ||
    fail "$(cat "$W/report")"

echo "== a mount reads through them, each part from one worker, and the figures change"
start_mount() {
    background "$FLUID/fluid-mount" >"$W/mount.out" 2>"$W/mount.err"
    POD=$BACKGROUND_PID
    wait_for 60 grep -qF "is mounted on $dir" "$W/mount.out"
}
all_right() { diff -r "$W/tree" "$dir" || fail "wrong byte"; }
end_mount() { kill -TERM "$POD" && wait "$POD" || fail "exit $? at SIGTERM: $(cat "$W/mount.err")"; }
start_mount
[ "$(cat /run/granary/fluid-workers)" = "http://faces-worker-0.svc-faces-worker:8080/lake
http://faces-worker-1.svc-faces-worker:8080/lake" ] || fail "the list: $(cat /run/granary/fluid-workers)"
for i in 1 2 3; do cmp "$W/tree/f$i" "$dir/f$i" || fail "wrong byte"; done
# On a machine that is too busy for a worker to answer in 5 s, the mount passes it over for a while.
partly() { awk -v share="$(share)" 'BEGIN { exit !(share > 0 && share < 100) }'; }
wait_for 120 partly
end_mount

echo "== a DataLoad fills them, and says exactly how far it is"
load() { (worker 0 && FLUID_DATALOAD_METADATA=true FLUID_DATALOAD_DATA_PATH=/ FLUID_DATALOAD_PATH_REPLICAS=1 "$FLUID/fluid-worker" load) >"$W/load.out" 2>"$W/load.err"; }
all_loaded() {
    local again
    for again in 1 2 3 4 5; do
        ! load || break
        grep -qF "were not answered by the worker that keeps the part" "$W/load.err" && [ $again != 5 ] || fail "load: $(cat "$W/load.out" "$W/load.err")"
    done
}
all_loaded
size=$(granary inspect "$W/store/faces:v1" --json | jq .size)
jq -es --argjson size "$size" 'map(select(.cached_bytes == $size and .failed_chunks == 0)) | length == 1' "$W/load.out" >"$W/null" ||
    fail "result: $(cat "$W/load.out")"
grep -F '"progress"' "$W/load.err" | tail -1 |
    jq -e --argjson size "$size" '.progress | .bytes_done == $size and .bytes_total == $size and has("bytes_per_s") and has("seconds_left")' \
        >"$W/null" || fail "progress: $(cat "$W/load.err")"
wait_for 60 is .cachedPercentage "100.0%"
for n in 0 1; do [ "$(jq .held "$W/run$n/held")" -gt 1000000 ] || fail "worker $n holds $(cat "$W/run$n/held")"; done
held=$(jq -s 'map(.held) | add' "$W"/run?/held)
[ "$held" -ge "$PACKS" ] && [ "$held" -lt $((PACKS * 102 / 100)) ] || fail "the workers say that they hold $held bytes, of $PACKS in packs"

echo "== a mount on another node finds all there: the store sends no part of the data"
rm -rf /run/granary/*
: >"$W/store.bytes"
start_mount
all_right
passed=$(granary status --json "$dir" | jq '[.. | objects | .granary_l2_fallthroughs_total, .granary_fetch_hedges_total | numbers] | add')
! grep -F /packs/ "$W/store.bytes" >"$W/sent" || [ "$passed" != 0 ] || fail "the store sent $(cat "$W/sent")"
hits() { awk -v ratio="$(reported '.cacheHitRatio | rtrimstr("%")')" 'BEGIN { exit !(ratio > 20 && ratio < 100) }'; }
wait_for 60 hits

echo "== who may read what"
# status OF: of a request
status() { curl -s -o "$W/null" -w '%{http_code}' "$@"; }
worker_url=http://10.0.0.1:8080
[ "$(status $worker_url/lake/images/faces/v1)" = 200 ] || fail "the tag"
[ "$(status $worker_url/lake/images/other/v1)" = 404 ] || fail "another image's tag"
[ "$(status -X PUT -d x $worker_url/lake/images/faces/v1)" = 403 ] || fail "PUT"
[ "$(status --interface 192.168.7.7 $worker_url/lake/images/faces/v1)" = 403 ] || fail "an address outside ALLOW"

echo "== two networks may read, and 2000 GiB fit into nginx's list of slices"
worker 2
mkdir "$NGINX_CONF_DIR" "$WORKER_RUN_DIR" "$WORKER_CACHE_DIR"
SIZE=2000g ALLOW="10.0.0.0/8 192.168.7.0/24" "$FLUID/fluid-worker" config
sed "s|listen 8080|listen 10.0.0.3:8080|" "$NGINX_CONF_DIR/granary-l2.conf" | nginx_config worker2
grep -qF "keys_zone=granary:301m" "$W/worker2.conf" || fail "$(cat "$W/worker2.conf")"
background nginx -c "$W/worker2.conf" -g 'daemon off;'
NGINX2=$BACKGROUND_PID
tag=http://10.0.0.3:8080/lake/images/faces/v1
wait_for 60 curl -sSf -o "$W/null" $tag
[ "$(status --interface 192.168.7.7 $tag)" = 200 ] || fail "an address of ALLOW's second network"
[ "$(status --interface 172.16.7.7 $tag)" = 403 ] || fail "an address outside both networks"
kill_nginx "$NGINX2"

echo "== SIGTERM ends what counts, though it is process 1 and pauses"
PAUSE=600 background unshare --pid --fork --kill-child "$FLUID/fluid-worker"
SPACE=$BACKGROUND_PID
wait_for 60 test -s "$WORKER_RUN_DIR/held"
[ "$(jq .capacity "$WORKER_RUN_DIR/held")" = $((2000 << 30)) ] || fail "$(cat "$WORKER_RUN_DIR/held")"
pkill -TERM -P "$SPACE"
wait_for 60 gone "$SPACE"
wait "$SPACE" || fail "exit $? at SIGTERM"

echo "== a worker that is gone costs no read; a DataLoad needs it"
kill_nginx "$NGINX1"
end_mount
start_mount
all_right
end_mount
report || fail "$(cat "$W/report.err")"
grep -qF "no answer: faces-worker-1.svc-faces-worker:8080/lake" "$W/report.err" || fail "$(cat "$W/report.err")"
[ "$(jq -r .cacheCapacity "$W/report")" = 1.0GiB ] || fail "$(cat "$W/report")"

# refused SENTENCE COMMAND...
refused() {
    local text=$1
    shift
    if (worker 0 && timeout 60 "$@") >"$W/out" 2>"$W/err"; then fail "not refused: $text"; fi
    [ "$(wc -l <"$W/err")" = 1 ] && grep -qF -- "$text" "$W/err" || fail "no '$text', or more: $(cat "$W/err")"
}
refused "no answer: faces-worker-1.svc-faces-worker:8080/lake: a DataLoad needs all workers" "$FLUID/fluid-worker" load

background nginx -c "$W/worker1.conf" -g 'daemon off;'
wait_for 60 curl -sSf -o "$W/null" "http://10.0.0.2:8080/held"

echo "== a DataLoad that cannot read a part says so, and goes on when it is run again"
find "$W"/kept? -type f -delete
find "$W/store/packs" -type f -size +1M >"$W/packs"
read -r pack <"$W/packs"
mv "$pack" "$W/away"
! load || fail "a DataLoad succeeds without ${pack##*/}"
grep -q "^granary: warm: .* chunks could not be cached, the first at offset" "$W/load.err" && grep -qF "${pack##*/} is not there" "$W/load.err" ||
    fail "the log: $(cat "$W/load.err")"
mv "$W/away" "$pack"
all_loaded

echo "== what is wrong gives one sentence"
refused "path can only be /" env FLUID_DATALOAD_DATA_PATH=/train "$FLUID/fluid-worker" load
refused "replicas: 2: each part of the image is in one worker" env FLUID_DATALOAD_DATA_PATH=/ FLUID_DATALOAD_PATH_REPLICAS=2 "$FLUID/fluid-worker" load
refused "SIZE: 1T is not a size" env SIZE=1T "$FLUID/fluid-worker" config
refused "ALLOW: me is not a network" env ALLOW=me "$FLUID/fluid-worker" config
refused "or several with a space between them" env ALLOW="10.0.0.0/8 me" "$FLUID/fluid-worker" config
# wrong SENTENCE FILTER [COMMAND]
wrong() { recorded "$2" && refused "$1" "$FLUID/fluid-worker" "${3:-config}"; }
wrong "this CacheRuntime has no workers" 'del(.worker)'
wrong "this CacheRuntime has no workers" '.worker.enabled = false'
wrong "option store of the workers is not a line of text" 'del(.worker.options)'
wrong "option store of the workers is not http(s)://HOST" '.worker.options.store = "s3://lake/images"'
wrong "option store of the workers is not http(s)://HOST" '.worker.options.store = "http://a; return 200"'
wrong "the service of the workers is not a line of text" 'del(.worker.service)'
wrong "the service of the workers is not a name of DNS" '.worker.service.name = ""'
wrong "there can be 1 to 1024 workers" 'del(.worker.replicas)'
wrong "there can be 1 to 1024 workers" '.worker.replicas = 2000'
wrong "tieredStore: the workers keep data in the volume of their class" '.worker.tieredStoreLevels = [{}]'
wrong "is not the name of an image" '.mounts[0].mountPoint = "s3://lake/images/"'
wrong "no worker gives the description of gone:v1" '.mounts[0].mountPoint = "s3://lake/images/gone:v1"' load
recorded
sed -i 's/max_size=1g/max_size=1m/' "$W/conf0/granary-l2.conf"
kill "$WATCH0"
wait_for 60 gone "$WATCH0"
worker 0
background "$FLUID/fluid-worker"
smaller() { [ "$(jq .capacity "$W/run0/held")" = 1048576 ]; }
wait_for 60 smaller
recorded '.worker.replicas = 1'
refused "and the workers keep 1048576: give them a larger SIZE" "$FLUID/fluid-worker" load
rm "$FLUID_RUNTIME_CONFIG_PATH"
refused "$FLUID_RUNTIME_CONFIG_PATH is missing, or is not JSON" "$FLUID/fluid-worker" load
