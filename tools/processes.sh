# shellcheck shell=bash
# Sourced by tests/lib.sh and bench/lib.sh: processes in the background, and waiting for things.

PIDS=()

# background COMMAND...: started in the background, ended by end_background; its process id is in BACKGROUND_PID
background() {
    "$@" &
    BACKGROUND_PID=$!
    PIDS+=("$BACKGROUND_PID")
}

# The last started first; killed when 10 seconds do not do.
end_background() {
    local i pid
    for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do
        pid=${PIDS[$i]}
        kill "$pid" 2>/dev/null && { timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid"; }
    done
    PIDS=()
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { echo "FAILED: waited in vain for: $*" >&2; exit 1; }
        sleep 0.1
    done
}
