#!/bin/bash
# An S3 server for tests: one Ceph mon, one osd in memory and radosgw, without cephadm, systemd or root's own paths.
# Debian 12: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw curl
#
# usage: DIR=/tmp/x [PORT=n] ceph-s3.sh start|stop|env|status|bucket NAME|admin WORD...
#   start   returns once S3 answers; prints nothing but errors. PORT: a free one is taken when not given.
#   env     prints the exports a client needs (AWS_*, GRANARY_TEST_ENDPOINT)
#   bucket  creates a bucket, of the user with ACCESS and SECRET
#   admin   runs radosgw-admin: other users, their keys
#   stop    ends the daemons that `start` of this DIR started, and removes DIR
# Also: BIND=127.0.0.1, SIZE_GB=2 (of the store in memory), PAGE=1000 (keys in an answer to a listing), ACCESS=...,
# SECRET=...
set -u
: "${DIR:?DIR= must name a directory of the server\'s own}"
BIND=${BIND:-127.0.0.1}
SIZE_GB=${SIZE_GB:-2}
PAGE=${PAGE:-1000}
ACCESS=${ACCESS:-granarytest0access}
SECRET=${SECRET:-granarytest0secret0granarytest0secret0000}
CONF=$DIR/ceph.conf
DAEMONS="rgw osd mon"

die() {
    echo "ceph-s3.sh: $1" >&2
    [ -z "${2:-}" ] || tail -n 20 "$2" >&2
    halt
    exit 1
}

wait_for() { # wait_for SECONDS COMMAND...
    local tries=$(($1 * 10))
    shift
    while [ "$tries" -gt 0 ]; do
        "$@" >/dev/null 2>&1 && return 0
        tries=$((tries - 1))
        sleep 0.1
    done
    return 1
}

free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000)) # below the ephemeral ports
        (exec 3<>"/dev/tcp/$BIND/$port") 2>/dev/null || {
            echo "$port"
            return
        }
    done
    die "found no free port"
}

# The process of a daemon of this DIR: its command line names our configuration, so that a reused pid is not taken.
pid_of() {
    local pid
    pid=$(cat "$DIR/$1.pid" 2>/dev/null) || return 1
    grep -zqsF -- "$CONF" "/proc/$pid/cmdline" && echo "$pid"
}

spawn() { # spawn NAME COMMAND...
    local name=$1
    shift
    setsid "$@" >"$DIR/$name.out" 2>&1 </dev/null &
    echo $! >"$DIR/$name.pid"
}

halt() {
    local name pid
    for name in $DAEMONS; do
        pid=$(pid_of "$name") || continue
        kill -TERM "$pid" 2>/dev/null
        wait_for 5 sh -c "! kill -0 $pid" || kill -KILL "$pid" 2>/dev/null
    done
}

configure() { # configure FSID PORT MONPORT
    cat >"$CONF" <<CONFIGURATION
[global]
fsid = $1
mon host = v2:$BIND:$3/0
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
public addr = $BIND
cluster addr = $BIND
ms bind ipv6 = false
ms mon client mode = crc
run dir = $DIR/run
admin socket = $DIR/run/\$name.asok
log file = $DIR/log/\$name.log
mon cluster log file = $DIR/log/cluster.log
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
mon data avail warn = 1
mon data avail crit = 1
paxos propose interval = 0.02
paxos min wait = 0.01
osd op num shards = 2
osd memory target = 939524096
osd class update on start = false
osd scrub load threshold = 0
[mon]
mon data = $DIR/mon
[osd]
osd data = $DIR/osd
osd objectstore = memstore
memstore device bytes = $((SIZE_GB << 30))
[client.rgw.a]
rgw data = $DIR/rgw
rgw frontends = beast endpoint=$BIND:$2 tcp_nodelay=1
rgw dns name = s3.test
rgw thread pool size = 64
rgw max listing results = $PAGE
rgw enable usage log = false
rgw enable ops log = false
rgw run sync thread = false
rgw override bucket index max shards = 1
rgw dynamic resharding = false
rgw enable quota threads = false
rgw gc obj min wait = 1
rgw gc processor period = 2
rgw gc max concurrent io = 64
CONFIGURATION
}

start() {
    local fsid osd_uuid port
    for part in ceph-mon ceph-osd radosgw radosgw-admin monmaptool ceph curl; do
        command -v "$part" >/dev/null || {
            echo "ceph-s3.sh: $part is missing: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw curl" >&2
            exit 1
        }
    done
    mkdir "$DIR" 2>/dev/null || [ -z "$(ls -A "$DIR" 2>/dev/null)" ] || {
        echo "ceph-s3.sh: $DIR is in use: stop it first" >&2
        exit 1
    }
    mkdir -p "$DIR"/{mon,osd,run,log,rgw} || exit 1
    fsid=$(cat /proc/sys/kernel/random/uuid)
    osd_uuid=$(cat /proc/sys/kernel/random/uuid)
    port=${PORT:-$(free_port)}
    local mon_port
    mon_port=$(free_port)
    configure "$fsid" "$port" "$mon_port"
    echo "$port" >"$DIR/port"
    export CEPH_CONF=$CONF

    { monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:$BIND:$mon_port/0]" "$DIR/monmap" &&
        ceph-mon -c "$CONF" --mkfs -i a --monmap "$DIR/monmap"; } >"$DIR/mkfs-mon.out" 2>&1 ||
        die "the mon's store cannot be made" "$DIR/mkfs-mon.out"
    spawn mon ceph-mon -c "$CONF" -f -i a
    ceph-osd -c "$CONF" -i 0 --mkfs --osd-uuid "$osd_uuid" >"$DIR/mkfs-osd.out" 2>&1 ||
        die "the osd's store cannot be made" "$DIR/mkfs-osd.out"
    timeout 300 ceph -c "$CONF" --connect-timeout 290 -s >"$DIR/status.out" 2>&1 || die "the mon does not answer" "$DIR/mon.out"
    timeout 300 ceph -c "$CONF" osd new "$osd_uuid" 0 >"$DIR/osd-new.out" 2>&1 || die "the osd is refused" "$DIR/osd-new.out"
    spawn osd ceph-osd -c "$CONF" -f -i 0
    wait_for 300 sh -c "timeout 30 ceph -c '$CONF' osd stat | grep '1 up' >'$DIR/osd.up'" || die "the osd does not come up" "$DIR/osd.out"
    timeout 300 radosgw-admin -c "$CONF" -n client.rgw.a user create --uid granary --display-name granary \
        --access-key "$ACCESS" --secret-key "$SECRET" >"$DIR/user.out" 2>&1 || die "no S3 user" "$DIR/user.out"
    spawn rgw radosgw -c "$CONF" -f -n client.rgw.a
    wait_for 300 curl -sf --noproxy '*' -o /dev/null --max-time 20 "http://$BIND:$port/" ||
        die "radosgw does not answer" "$DIR/log/client.rgw.a.log"
}

port() {
    cat "$DIR/port" 2>/dev/null || {
        echo "ceph-s3.sh: no server was started in $DIR" >&2
        exit 1
    }
}

bucket() {
    local answer
    answer=$(curl -s --noproxy '*' --max-time 60 -o "$DIR/bucket.out" -w '%{http_code}' -X PUT \
        --aws-sigv4 aws:amz:us-east-1:s3 --user "$ACCESS:$SECRET" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        "http://$BIND:$(port)/$1")
    [ "$answer" = 200 ] || {
        echo "ceph-s3.sh: creating bucket $1: answer $answer" >&2
        cat "$DIR/bucket.out" >&2
        exit 1
    }
}

case ${1:-} in
start) start ;;
stop)
    [ -e "$CONF" ] || exit 0
    halt
    rm -rf "$DIR"
    ;;
env)
    p=$(port) || exit 1
    echo "export AWS_ACCESS_KEY_ID=$ACCESS AWS_SECRET_ACCESS_KEY=$SECRET AWS_REGION=us-east-1" \
        "AWS_ENDPOINT_URL=http://$BIND:$p GRANARY_TEST_ENDPOINT=http://$BIND:$p"
    ;;
admin)
    shift
    timeout 300 radosgw-admin -c "$CONF" -n client.rgw.a --admin-socket= "$@"
    ;;
status)
    for name in $DAEMONS; do
        if pid=$(pid_of "$name"); then echo "$name: pid $pid"; else echo "$name: not running"; fi
    done
    ;;
bucket) bucket "${2:?bucket needs a NAME}" ;;
*)
    sed -n '2,12p' "$0"
    exit 2
    ;;
esac
