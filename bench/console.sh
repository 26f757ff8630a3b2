#!/bin/bash
# console.sh [SECONDS [IMAGES]...]: what the console costs a server of 1, 100 and 1000 images while nobody, one and eight
# ask once a second: CPU time of the server in percent of a CPU; bytes of a document, as sent; resident memory. Each image
# is an export of its own; half of what they all are is cached. SECONDS (20) of each.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
seconds=${1:-20}
shift || true
tree=$(data_set 2000 200)
"$GRANARY" build --quiet "$tree" "$W/store/set" >&2
ADDRESS=127.0.0.1:19465

# nanoseconds PID: CPU time of the process so far, by its clock
nanoseconds() { python3 -c "import time; print(time.clock_gettime_ns((~$1 << 3) | 2))"; }
# percent PID: of a CPU, over the time
percent() {
    local before
    before=$(nanoseconds "$1")
    sleep "$seconds"
    awk -v used=$(($(nanoseconds "$1") - before)) -v seconds="$seconds" 'BEGIN { printf "%.2f", used / seconds / 1e7 }'
}
ask() { while curl -sS --noproxy '*' "http://$ADDRESS/api/status" -o "$W/document.$1"; do sleep 1; done; }

# row IMAGES
row() {
    local i pid idle one eight bytes askers
    background "$GRANARY" serve "$W/store/set" --socket "$W/nbd.sock" --cache "$W/cache:1G" --warm none --console "$ADDRESS" >"$W/out" 2>"$W/err"
    until grep -q '^serving' "$W/out"; do sleep 0.2; done
    for ((i = 1; i < $1; i++)); do
        curl -sS -G -X PUT --unix-socket "$W/nbd.sock.control" --data-urlencode "image=$W/store/set" "http://granary/exports/set$i" >"$W/added"
    done
    pid=$(pgrep -P "$BACKGROUND_PID")
    qemu-io -r -f raw "nbd+unix:///set?socket=$W/nbd.sock" -c 'read -q 0 100M' >&2
    sleep 5
    idle=$(percent "$pid")
    ask 0 & askers=($!)
    sleep 10
    one=$(percent "$pid")
    bytes=$(stat -c %s "$W/document.0")
    for i in {1..7}; do ask "$i" & askers+=($!); done
    eight=$(percent "$pid")
    kill "${askers[@]}"
    wait "${askers[@]}" || true
    echo "| $1 | $idle | $one | $eight | $bytes | $(awk '$1 == "VmRSS:" { printf "%.1f", $2 / 1024 }' "/proc/$pid/status") |"
    end_background
}

echo "| images | CPU, %: nobody asks | one asks | eight ask | bytes of a document | resident, MiB |"
echo "| --- | --- | --- | --- | --- | --- |"
[ $# -gt 0 ] || set -- 1 100 1000
for images; do row "$images"; done
