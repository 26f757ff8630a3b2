#!/bin/bash
# console.sh [SECONDS]: what the console costs a server of 1, 100 and 1000 images while one and eight ask once a second:
# CPU time of the server in percent of a CPU, less that of the same server while nobody asks; bytes of a document, as
# sent; resident memory. Half of the image is cached. SECONDS (20) of each.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
seconds=${1:-20}
tree=$(data_set 2000 200)
"$GRANARY" build --quiet "$tree" "$W/store/set" >&2
ADDRESS=127.0.0.1:19465

# ticks PID: CPU time so far, in hundredths of a second
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }
# percent PID: of a CPU, over the time
percent() {
    local before
    before=$(ticks "$1")
    sleep "$seconds"
    awk -v used=$(($(ticks "$1") - before)) -v seconds="$seconds" 'BEGIN { printf "%.2f", used / seconds }'
}
ask() { while curl -sS --noproxy '*' "http://$ADDRESS/api/status" -o "$W/document"; do sleep 1; done; }

# row IMAGES
row() {
    local images=() i pid idle one eight bytes
    for ((i = 0; i < $1; i++)); do images+=("set$i=$W/store/set"); done
    background "$GRANARY" serve "${images[@]}" --socket "$W/nbd.sock" --cache "$W/cache:1G" --warm none --console "$ADDRESS" >"$W/out" 2>"$W/err"
    until grep -q '^serving' "$W/out"; do sleep 0.2; done
    pid=$(pgrep -P "$BACKGROUND_PID")
    qemu-io -r -f raw "nbd+unix:///set0?socket=$W/nbd.sock" -c 'read -q 0 100M' >&2
    idle=$(percent "$pid")
    ask & askers=($!)
    sleep 5
    one=$(percent "$pid")
    bytes=$(stat -c %s "$W/document")
    for _ in {1..7}; do ask & askers+=($!); done
    eight=$(percent "$pid")
    kill "${askers[@]}"
    echo "| $1 | $idle | $one | $eight | $bytes | $(awk '$1 == "VmRSS:" { printf "%.1f", $2 / 1024 }' "/proc/$pid/status") |"
    end_background
}

echo "| images | CPU, %: nobody asks | one asks | eight ask | bytes of a document | resident, MiB |"
echo "| --- | --- | --- | --- | --- | --- |"
for images in 1 100 1000; do row $images; done
