#!/bin/bash
# A client and a server network namespace joined by a slow link, on kernels with or without netem (it is not used).
#
#   link.sh up NAME DELAY_MS RATE_MBIT   namespaces NAME-c and NAME-s; the server's address in NAME-s is 10.77.0.2
#   link.sh set NAME DELAY_MS RATE_MBIT  make the link again: delay and rate per direction (rate 0: no limit)
#   link.sh stats NAME                   packets, bytes, drops per direction (B: server to client)
#   link.sh down NAME
#
# QUEUE_MS (40): how long a packet may wait for its turn. MAX_SECONDS (21600): the link ends by itself after that.
# Needs root, /dev/net/tun, iproute2, a C compiler.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# -ge 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
verb=$1 name=$2 client=$2-c server=$2-s
state=/run/granary-link/$name
mkdir -p "$state"

unlink_ends() {
    local pid
    [ -f "$state/pid" ] || return 0
    pid=$(cat "$state/pid")
    rm -f "$state/pid"
    kill "$pid" 2>/dev/null || return 0
    timeout 5 tail --pid="$pid" -f /dev/null || kill -9 "$pid"
}

namespaces() {
    local ns allowed=/proc/sys/net/ipv4/tcp_allowed_congestion_control
    # the default of most machines; a namespace may only choose what is allowed globally
    grep -q cubic $allowed || echo "$(cat $allowed) cubic" >$allowed
    for ns in "$client" "$server"; do
        ip netns add "$ns"
        ip -n "$ns" link set lo up
        ip netns exec "$ns" sh -c 'echo cubic >/proc/sys/net/ipv4/tcp_congestion_control
            echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save' || echo "link.sh: note: TCP settings refused in $ns" >&2
    done
    ip -n "$server" addr add 10.77.0.2/32 dev lo
}

link_ends() {
    unlink_ends
    cc -O2 -Wall -D_GNU_SOURCE -o "$state/delaylink" "$here/delaylink.c"
    : >"$state/out"
    setsid "$state/delaylink" "$client" dl0 "$server" dl0 "$1" "$2" "${QUEUE_MS:-40}" "${MAX_SECONDS:-21600}" \
        >"$state/out" 2>&1 </dev/null &
    echo $! >"$state/pid"
    for _ in $(seq 50); do ! grep -q ready "$state/out" || break; sleep 0.1; done
    grep -q ready "$state/out" || { cat "$state/out" >&2; exit 1; }
    ip -n "$client" addr add 10.77.1.1/30 dev dl0
    ip -n "$server" addr add 10.77.1.2/30 dev dl0
    ip -n "$client" link set dl0 mtu 1500 txqueuelen 2000 up
    ip -n "$server" link set dl0 mtu 1500 txqueuelen 2000 up
    ip -n "$client" route add 10.77.0.0/24 via 10.77.1.2 dev dl0
}

case $verb in
    up) namespaces; link_ends "$3" "$4";;
    set) link_ends "$3" "$4";;
    stats) kill -USR1 "$(cat "$state/pid")"; sleep 0.2; tail -2 "$state/out";;
    down)
        unlink_ends
        ip netns del "$client" 2>/dev/null || true
        ip netns del "$server" 2>/dev/null || true
        rm -rf "$state"
        rmdir "$(dirname "$state")" 2>/dev/null || true;;
    *) echo "link.sh: unknown verb $verb" >&2; exit 2;;
esac
