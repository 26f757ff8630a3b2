#!/bin/bash
# The two pods of the Helm chart on a node with kernel nbd, each with a cgroup and namespaces as the chart gives it: the
# server, without privileges, and the driver, whose mounts join it. Everything in the server's cgroup is killed under
# readers of a mount (tests/tools/mount_reader.c), then everything in the driver's, then both at once, and a new pod comes
# each time. No read fails, none is wrong, and all go on.
# ctest: lock=vm long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
. "$GRANARY_SOURCE/tests/vm/lib-readers.sh"

mkdir "$W/tree"
for i in $(seq 40); do head -c 100000 /dev/urandom >"$W/tree/$i"; done
export tree=$W/tree
prepare_readers
# What the driver's pod does before it becomes granary-csi, by the chart itself.
sed -n '/^ *for state in/,/^ *done/p' "$GRANARY_SOURCE/deploy/helm/granary/templates/driver.yaml" >"$W/adopt"
grep -q 'granary keep' "$W/adopt" || fail "the chart's driver starts no keepers: $(cat "$W/adopt")"

{
    guest_readers
    cat <<'GUEST'
pods=/sys/fs/cgroup/pods
mount -t tmpfs mnt /mnt
mkdir -p $pods /pods /run/granary /cache /mnt/data
mount --make-shared /mnt
printf '[server]\ncache = /var/cache/granary:64M\n[mount]\njoin = yes\n' >/etc/granary.conf

# The server's pod: namespaces of its own, no capability, and of the node's directories only those of the chart.
start_server() {
    mkdir -p /pods/server/rootfs
    mount --bind / /pods/server/rootfs
    mount --make-private /pods/server/rootfs
    cat >/pods/server/config.json <<'JSON'
{"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": true},
 "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/bin/sh", "-c", "exec granary serve --slow-read 2s"], "noNewPrivileges": true,
  "env": ["PATH=/bin:/sbin:/usr/bin:/usr/sbin", "TMPDIR=/scratch"], "capabilities": {}},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
  {"destination": "/run/granary", "type": "bind", "source": "/run/granary", "options": ["rbind", "rprivate"]},
  {"destination": "/var/cache/granary", "type": "bind", "source": "/cache", "options": ["bind"]},
  {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs"}],
 "linux": {"cgroupsPath": "/pods/server",
  "namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]}}
JSON
    # The guest's root cannot be pivoted. What is mounted there stays in the container, unseen; but not the images.
    unshare --mount sh -c 'umount -l /mnt; exec crun run --no-pivot -b /pods/server server' >>/server.log 2>&1 &
}

# The driver's pod: all privileges, the processes and the network of the node, and a mount namespace of its own whose
# mounts the node sees. in_driver COMMAND...: in the pod
start_driver() {
    mkdir -p $pods/driver
    rm -f /driver.pid
    unshare --mount --propagation shared sh -c "echo 0 >$pods/driver/cgroup.procs; . /adopt; echo \$\$ >/driver.pid; exec sleep 1000000" \
        >>/driver.log 2>&1 &
    until_true '[ -s /driver.pid ]'
}
in_driver() { sh -c "echo 0 >$pods/driver/cgroup.procs; exec nsenter -t $(cat /driver.pid) -m \"\$@\"" - "$@"; }

# kill_pod NAME: all of its processes, at once
kill_pod() {
    echo 1 >$pods/$1/cgroup.kill
    until_true "! grep -q . $pods/$1/cgroup.procs 2>/gone"
    [ $1 != server ] || { until_true '! crun state server >/gone 2>&1 || crun delete -f server'; umount -l /pods/server/rootfs; }
}
# kept: a keeper of the device is in the driver's pod
kept() { until_true 'sed "s|.*|/proc/&/cmdline|" $pods/driver/cgroup.procs | xargs grep -qs keep.*$device'; }

start_server
start_driver
until_true '[ -S /run/granary/nbd.sock.control ]'
in_driver granary mount --nbd-timeout 5s file:///store/perl /mnt/data
device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
[ -n "$device" ] || { echo "the driver's mount does not reach the node"; exit 1; }
grep -q '/pods/server$' /proc/$(pidof granary-nbd)/cgroup
kept

start_readers
kill_pod server
[ -z "$(pidof granary-nbd)" ]
start_server
end_readers "everything of the server's pod killed, a new one started"

start_readers
kill_pod driver
go_on
start_driver
kept
kill_pod server
start_server
end_readers "the driver's pod killed, then the server's"

start_readers
kill_pod driver
kill_pod server
start_driver
start_server
end_readers "both pods killed"
kept

in_driver granary umount /mnt/data
! grep ' /mnt/data ' /proc/mounts || { echo "the mount is left"; exit 1; }
[ "$(cat /sys/block/${device#/dev/}/size)" = 0 ]
kill_pod driver
kill_pod server
GUEST
} >"$W/guest.sh"
run_readers 850 --bin "$(command -v crun)" --file "$W/adopt:/adopt"
