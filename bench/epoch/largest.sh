# shellcheck shell=bash disable=SC2034 # the scripts that source this read LARGEST
# Sourced by accelerators.sh and tests/flow/accelerators.sh.

# largest ENOUGH MOST: LARGEST becomes the largest number from 1 to MOST for which `ENOUGH NUMBER` succeeds, 0 if there is
# none, where what holds for a number holds for all below. Numbers are doubled until it fails, then the interval is
# halved until it is below a sixteenth. A failure is believed the second time: what disturbs a machine makes it slower.
largest() {
    local good=0 bad=0 next=1 # bad 0: not found yet
    LARGEST=0
    while [ $good -lt "$2" ] && ! ((bad && bad - good <= 1 + good / 16)); do
        if "$1" $next || "$1" $next; then good=$next; else bad=$next; fi
        next=$((bad ? (good + bad) / 2 : 2 * good < $2 ? 2 * good : $2))
    done
    LARGEST=$good
}
