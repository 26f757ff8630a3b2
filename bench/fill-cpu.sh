#!/bin/bash
# fill-cpu.sh [FILES]: the CPU that filling a cache takes, against curl's for a download of the same bytes. FILES (4,000:
# 0.4 GB), incompressible, in a store behind nginx: on this machine's loopback, and 1 Gbit/s and 10 ms away (WHERE:
# some of `loopback link`). Each from nothing cached:
#
#   curl    the packs by 16 kept-alive connections, ranges of 4 MiB, to /dev/null
#   warm    `granary mount --fuse`, then `granary warm --all`
#   epoch   the same mount, all files read once in a shuffled order by 8 processes
#
# A line each: seconds of CPU of all processes of curl, or of granary from the mount to the end of its server, readers not
# counted; seconds a GB of the files; changes of thread; how often curl's CPU in the same turn. REPEATS turns (3),
# medians. BEFORE=BUILD: another build to compare with, which takes turns.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-4000}
WHERE=${WHERE:-loopback link}
STEPS=${STEPS:-warm epoch}
READER=$GRANARY_BUILD/bench/epoch-reader
READERS=8 CONNECTIONS=16 RANGE=4194304

data=$(data_set "$files" 200)
"$READER" make "$data" >"$W/list"
bytes=$(awk '{ n += $2 } END { printf "%.0f", n }' "$W/list")
SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
"$GRANARY" build --quiet "$data" "file://$SHM/set" >&2
mkdir -p "$W/mnt" "$W/nginx"
is_mounted() { findmnt -n -M "$W/mnt" >/dev/null; }
extra_cleanup() { ! is_mounted || "$GRANARY" umount "$W/mnt"; }

# serve_store ADDRESS COMMAND...: nginx, run by the command
serve_store() {
    mkdir -p "$W/nginx/$1"
    cat >"$W/nginx/$1/conf" <<CONFIGURATION
user root; worker_processes 2; pid $W/nginx/$1/pid; error_log $W/nginx/$1/error.log; daemon off;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 300;
  server { listen $1:8087; location / { root $SHM; } }
}
CONFIGURATION
    background "${@:2}" nginx -p "$W/nginx/$1" -c "$W/nginx/$1/conf"
}

at_loopback() { "$@"; }
at_link() { nsenter "--net=/run/netns/$LINK-c" "$@"; } # the mount must be everyone's
declare -A URL=([loopback]=http://127.0.0.1:8087 [link]=http://10.77.0.2:8087)
for where in $WHERE; do
    if [ "$where" = link ]; then
        link_up 10 1000
        serve_store 10.77.0.2 "${IN_SERVER[@]}"
    else
        serve_store 127.0.0.1
    fi
    wait_for 10 "at_$where" curl -s --noproxy '*' -o /dev/null "${URL[$where]}/set/"
done

# by_curl WHERE: "cpu changes" on stdout
by_curl() {
    rm -f "$W"/ranges.*
    (cd "$SHM" && find packs -type f -printf '%s %p\n') | sort -k 2 | awk -v base="${URL[$1]}/" -v at="$W/ranges" \
        -v connections=$CONNECTIONS -v range=$RANGE '{
            for (from = 0; from < $1; from += range) {
                to = (from + range < $1 ? from + range : $1) - 1
                printf "%surl=\"%s%s\"\nrange=%d-%d\noutput=/dev/null\nsilent\nshow-error\nfail\nnoproxy=*\n", \
                    used[c]++ ? "next\n" : "", base, $2, from, to >(at "." c)
                c = (c + 1) % connections
            } }'
    "at_$1" python3 - "$W"/ranges.* <<'PYTHON'
import resource, subprocess, sys
curls = [subprocess.Popen(["curl", "-K", ranges]) for ranges in sys.argv[1:]]
status = [curl.wait() for curl in curls]
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{used.ru_utime + used.ru_stime:.2f} {used.ru_nvcsw + used.ru_nivcsw}")
sys.exit(max(status))
PYTHON
}

# by_granary BUILD STEP WHERE: "cpu changes" on stdout, of all its processes from the mount to the end of the server, for
# which this is the parent of what loses its own; not of the readers
by_granary() {
    rm -rf "$W/cache"
    "at_$3" "${PREFIX[@]}" python3 - "$1/cli/granary" "$2" "${URL[$3]}/set" "$W" "$READER" $READERS <<'PYTHON'
import ctypes, os, resource, subprocess, sys
granary, step, url, work, reader, readers = sys.argv[1:]
mnt = f"{work}/mnt"
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
run = lambda *command: subprocess.run(command, stdout=sys.stderr, check=True)
run(granary, "mount", "--fuse", "--cache", f"{work}/cache:2G", url, mnt)
if step == "warm":
    run(granary, "warm", "--quiet", mnt, "--all")
    readers_used = None
else:
    pid = os.posix_spawn(reader, [reader, "read", f"{work}/list", mnt, readers, "1"], os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    _, status, readers_used = os.wait4(pid, 0)
    assert status == 0
run(granary, "umount", mnt)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu, changes = (sum(getattr(used, name) - getattr(readers_used, name, 0) for name in names)
                for names in (("ru_utime", "ru_stime"), ("ru_nvcsw", "ru_nivcsw")))
print(f"{cpu:.2f} {changes}")
PYTHON
}

# column N FILE: the median of its Nth column
column() {
    local values
    mapfile -t values < <(cut -d ' ' -f "$1" "$2")
    median "${values[@]}"
}

# row WHERE NAME: of the turns' lines "cpu changes ratio"
row() {
    local at=$W/$1.$2 cpu
    cpu=$(column 1 "$at")
    echo "| $1 | $2 | $cpu | $(awk -v c="$cpu" -v b="$bytes" 'BEGIN { printf "%.2f", c * 1e9 / b }') | $(column 2 "$at") | $(column 3 "$at") |"
}

for ((i = 0; i < REPEATS; i++)); do
    for where in $WHERE; do
        by_curl "$where" >"$W/turn"
        read -r curl changes <"$W/turn"
        echo "$curl $changes 1" >>"$W/$where.curl"
        for step in $STEPS; do
            for build in ${BEFORE:+"$BEFORE"} "$GRANARY_BUILD"; do
                by_granary "$build" "$step" "$where" >"$W/turn"
                read -r cpu changes <"$W/turn"
                name=$step
                [ "$build" = "$GRANARY_BUILD" ] || name=$step-before
                echo "$cpu $changes $(ratio "$cpu" "$curl")" >>"$W/$where.$name"
                note "$where $name: $cpu s, $changes; curl $curl s; load $(cut -d ' ' -f 1 /proc/loadavg)"
            done
        done
    done
done
echo "$files files, $bytes bytes, load $(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo "| store | what | CPU s | s/GB | changes of thread | times curl's CPU |"
echo "| --- | --- | --- | --- | --- | --- |"
for where in $WHERE; do
    for name in curl ${BEFORE:+warm-before} warm ${BEFORE:+epoch-before} epoch; do
        [ ! -e "$W/$where.$name" ] || row "$where" "$name"
    done
done
