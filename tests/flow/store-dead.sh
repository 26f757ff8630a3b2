#!/bin/bash
# 256 readers of what is not cached while the store is dead, for seconds, or for 5 minutes with GRANARY_FULL=1: the log,
# the memory and the threads stay within their bounds, what is cached is read all the time, without the store, and when
# the store is back everything is.
. "$(dirname "$0")/lib-store-faults.sh"

CROWDS=4 EACH=64 CACHED=4194304
make_store 20
serve_store
head -c $CACHED "$W/image" >"$W/first"

memory_kb() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$SERVER_PID/status"; }
threads() { sed -n 's/^Threads:\t//p' "/proc/$SERVER_PID/status"; }
connections() { awk -v path="$W/sock" '$6 == "03" && $NF == path { n++ } END { print n + 0 }' /proc/net/unix; }
lines() { grep -c . "$W/log" || true; }

# dead_for FAULT SECONDS
dead_for() {
    local began crowds=() i most_threads=0 now failed="" early="" hits_before
    start timeout=1s readahead=0
    "$PROBE" "$URI" cache 0 $CACHED
    hits_before=$(count cache_hits_total)
    line "$1"
    began=$SECONDS
    for i in $(seq $CROWDS); do
        "$PROBE" "$URI" crowd $EACH 131072 $CACHED "$2" >"$W/crowd-$i" 2>&1 &
        crowds+=($!)
    done
    while kill -0 "${crowds[0]}" 2>"$W/null"; do
        "$PROBE" "$URI" read 0 $CACHED | cmp - "$W/first" || fail "what is cached cannot be read: $(tail -3 "$W/log")"
        now=$(threads)
        most_threads=$((now > most_threads ? now : most_threads))
        # early: the crowds are there, and since then as many chunks have failed as all their readers wait for at a time
        [ -n "$failed" ] || [ "$(connections)" -lt $CROWDS ] || failed=$(count fetch_errors_total)
        [ -n "$early" ] || [ -z "$failed" ] || [ "$(count fetch_errors_total)" -lt $((failed + 2 * CROWDS * EACH)) ] || early=$(memory_kb)
        sleep 0.2
    done
    early=${early:-$(memory_kb)}
    for i in $(seq $CROWDS); do
        wait "${crowds[$((i - 1))]}" || fail "a crowd ended early: $(cat "$W/crowd-$i")"
        [[ $(cat "$W/crowd-$i") =~ ^([0-9]+)\ of\ ([0-9]+)\ failed$ && ${BASH_REMATCH[1]} = "${BASH_REMATCH[2]}" ]] ||
            fail "not all reads behind the dead store failed: $(cat "$W/crowd-$i")"
    done
    printf '| %s for %s s | %s | %s | %s MB, then %s MB | %s | %s |\n' "$(jq -r .mode <<<"$1")" "$2" \
        "$(awk '{ n += $1 } END { print n }' "$W"/crowd-*)" "$(lines)" $((early / 1024)) $(($(memory_kb) / 1024)) "$most_threads" \
        $(($(count cache_hits_total) - hits_before))
    # of failed and of slow reads, 100 at once and one a second; a few about the store, and of the start
    [ "$(lines)" -le $((2 * (100 + SECONDS - began + 2) + 30)) ] || fail "$(lines) lines of log: $(tail -5 "$W/log")"
    [ $(($(memory_kb) - early)) -le 65536 ] || fail "memory grew from $early to $(memory_kb) kB"
    # nbdkit's for each connection, for one more and for those that ended just now, the fetch's 64, completion's 8,
    # those that fill, and a few
    [ "$most_threads" -le $(((CROWDS + 4) * 65 + 64 + 8 + 4 + 20)) ] || fail "$most_threads threads"
    [ "$(count cache_hits_total)" -gt "$hits_before" ] || fail "what is cached was no hit"
    line '{"mode": "none"}'
    answered() { "$PROBE" "$URI" read $((2 * CACHED)) 4096 >"$W/null" 2>&1; }
    wait_for 120 answered
    read_everything "the store is back"
    stop
}

printf '| store | failed reads | lines of log | memory early, at the end | threads at most | hits |\n| --- | --- | --- | --- | --- | --- |\n'
dead_for '{"mode": "refuse"}' "$(seconds 4 300)"
dead_for '{"mode": "silent"}' "$(seconds 4 60)"

echo "== the file of a slow read is named"
at=$((2 * CACHED + 4096))
start slow-read=1s readahead=0 hedge=0
line '{"mode": "late", "delay_s": 1.1}'
"$PROBE" "$URI" read $at 4096 >"$W/null"
named() { grep -q "slow read at $at of image sha256:[0-9a-f]* was of the file " "$W/log"; }
wait_for 60 named
line '{"mode": "none"}'
sed -n "s/.*slow read at $at of .* was of the file //p" "$W/log" >"$W/named"
"$GRANARY" ls "$W/store/set" --at $at >"$W/at"
cmp "$W/named" "$W/at" || fail "the log names $(cat "$W/named"), ls $(cat "$W/at")"
stop
