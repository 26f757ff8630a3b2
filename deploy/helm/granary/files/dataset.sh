#!/bin/bash
# The Job of a dataset: each pod warms a node, and the first one builds before and moves the tag afterwards.
#
#   pod 0        build IMAGE:job-ID      warm    wait for all others    move IMAGE:TAG, add IMAGE:job-ID-0    gc
#   pods 1, 2... wait for IMAGE:job-ID   warm    add IMAGE:job-ID-POD
#
# With PARTS above 1, each of the first PARTS pods builds a part before, IMAGE-part-POD-of-PARTS:job-ID, and pod 0 joins
# them. Parts are images of their own names, so that gc counts their builds apart. They stay: tomorrow's parts are built
# upon them.
#
# The pods know of each other by tags in the store, which pod 0 removes at the end: they need no access to Kubernetes. A pod
# that failed is replaced by another one, which goes on where that ended.
#
#   dataset.sh build [OPTION...]   the first container, which no pod goes beyond before there is an image
#   dataset.sh warm [OPTION...]    the second one; without options nothing is warmed
#   dataset.sh use TAG             the other Job, which goes back to a version
#
# Environment: IMAGE, TAG, JOB_ID, JOB_COMPLETION_INDEX, NODES, PARTS; of build SOURCE; of warm SOCKET, KEEP_LAST.
# Standard error has the progress, a JSON object a second; standard output the results. The last result is the pod's
# termination message; a failure's is the last lines of the log.
set -euo pipefail

step=$1
shift
new=$IMAGE:job-${JOB_ID:-}
message=${TERMINATION_LOG:-/dev/termination-log}
pause=${PAUSE:-10}
index=${JOB_COMPLETION_INDEX:-}
parts=${PARTS:-1}

is_there() { granary inspect "$1" --json >/dev/null 2>&1; }
wait_for() { # says why it waits: wrong credentials look like an image that is not there yet
    local why said=""
    echo "waiting for $1" >&2
    until why=$(granary inspect "$1" --json 2>&1 >/dev/null); do
        [ "$why" = "$said" ] || echo "$why" >&2
        said=$why
        sleep "$pause"
    done
}
forget() { ! is_there "$1" || granary rm "$1" --json; }
result() {
    local text
    text=$("$@" --json)
    echo "$text"
    echo "$text" >"$message"
}

part() { echo "$IMAGE-part-$1-of-$parts:job-$JOB_ID"; }
build() {
    local i parents=()
    if [ "$parts" -gt 1 ]; then
        is_there "$(part "$index")" || result granary build --part "$index/$parts" "$SOURCE" "$(part "$index")" "$@"
        [ "$index" = 0 ] || return 0
        for ((i = 0; i < parts; i++)); do
            wait_for "$(part $i)"
            parents+=(--parent "$(part $i)")
        done
    fi
    result granary build "${parents[@]}" "$SOURCE" "$new" "$@"
}

case $step in
    build)
        if [ "$index" -lt "$parts" ] && ! is_there "$new" && ! is_there "$new-0"; then build "$@"; fi
        if [ "$index" != 0 ] && [ "$index" -lt "$NODES" ]; then wait_for "$new"; fi;;
    warm)
        [ "$index" -lt "$NODES" ] || exit 0 # it has built a part
        if ! is_there "$new-0"; then
            [ $# = 0 ] || result granary warm --image "$new" "$@" "$SOCKET"
            if [ "$index" != 0 ]; then
                granary tag "$new" "job-$JOB_ID-$index" --json
                exit
            fi
            for ((i = 1; i < NODES; i++)); do wait_for "$new-$i"; done
            result granary tag "$new" "$TAG"
            granary tag "$new" "job-$JOB_ID-0" --json
        fi
        # A gc that fails is tomorrow's to repeat; the version is out.
        [ "${KEEP_LAST:-0}" = 0 ] || granary gc "${IMAGE%/*}" --keep-last "$KEEP_LAST" --json || true
        for ((i = NODES - 1; i >= 1; i--)); do forget "$new-$i"; done
        for ((i = 0; parts > 1 && i < parts; i++)); do forget "$(part $i)"; done
        forget "$new"
        forget "$new-0";;
    use)
        result granary tag "$IMAGE:$1" "$TAG";;
esac
