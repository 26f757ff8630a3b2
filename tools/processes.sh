# shellcheck shell=bash
# Sourced by tests/lib.sh and bench/lib.sh: processes in the background, and waiting for things.

PIDS=()
declare -A BEGAN=()

# began PID: when it was started, in ticks: what tells a process from a later one that was given its number
began() {
    local stat
    { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 0
    stat=${stat##*) } # behind the name, which may hold anything
    # shellcheck disable=SC2086
    set -- $stat
    echo "${20}"
}

# ours PID: end_background ends it too
ours() {
    PIDS+=("$1")
    BEGAN[$1]=$(began "$1")
}

# background COMMAND...: started in the background, ended by end_background; its process id is in BACKGROUND_PID
background() {
    "$@" &
    BACKGROUND_PID=$!
    ours "$BACKGROUND_PID"
}

# The last started first; killed when 10 seconds do not do. Most have ended by then, and their numbers, of which there
# may be no more than 32,768 for processes and threads, may be those of another test's.
end_background() {
    local i pid
    for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do
        pid=${PIDS[$i]}
        [ -n "${BEGAN[$pid]}" ] && [ "$(began "$pid")" = "${BEGAN[$pid]}" ] || continue
        kill "$pid" 2>/dev/null && { timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid"; }
    done
    PIDS=()
    BEGAN=()
}

# gone PID: it has ended, all of its threads with what they held; its parent may not know yet
gone() {
    [ ! -e "/proc/$1" ] ||
        awk '$1 == "State:" { zombie = $2 == "Z" } $1 == "Threads:" { alone = $2 <= 1 } END { exit !(zombie && alone) }' "/proc/$1/status"
}

# wait_for SECONDS COMMAND...: until the command succeeds. It is tried ten times a second, and three times after the
# first: many try a program, whose start takes more than what it asks.
wait_for() {
    local end=$((SECONDS + $1)) pause=0.1 tries=0
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { echo "FAILED: waited in vain for: $*" >&2; exit 1; }
        sleep $pause
        [ $((++tries)) -lt 10 ] || pause=0.3
    done
}
