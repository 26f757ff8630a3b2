#!/bin/bash
# cache-read.sh [short]: random reads of what is cached, over NBD on a unix socket. Contenders take turns:
#
#   raw           fio on the same bytes with io_uring and O_DIRECT: the disk's limit
#   granary       granary-nbd with an SSD cache
#   plugin        nbdkit with the plugin, the same cache
#   file          nbdkit's file plugin, the image in the page cache
#   tier          granary-nbd with a memory tier that holds the image
#   plugin-tier   nbdkit with the plugin and such a tier
#   memory        nbdkit's memory plugin: the protocol's limit
#
# Every size (SIZES: 4k 32k 128k 1m) at every depth of a connection (DEPTHS: 1 16 32) over 1 and 4 connections
# (CONNECTIONS: 1 4); each contender for SECONDS_EACH (1), REPEATS rounds (3) after one warm-up. A figure is the median of
# its rounds, a ratio the median of the ratios within a round. CPU per request is the server's user and system time; of
# raw, fio's own, which the others do not count. FILES (10,000: 1.0 GB). CONTENDERS: some of them, in the order of their
# turns. RESTART=1: granary and plugin are started again once their caches are filled. short: 4k and 128k at 1 and 32
# over one connection, one round. PREFIX: before every program, e.g. on a busy machine `chrt -f 1`, which keeps other work
# off the CPUs, though not off the disk.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
if [ "${1:-}" = short ]; then
    SIZES=${SIZES:-4k 128k} DEPTHS=${DEPTHS:-1 32} CONNECTIONS=${CONNECTIONS:-1} REPEATS=1
fi
each=$(awk -v s="${SECONDS_EACH:-1}" 'BEGIN { printf "%dms\n", s * 1000 }')
contenders=${CONTENDERS:-raw granary plugin file tier plugin-tier memory}

data=$(data_set "${FILES:-10000}" 200)
note "building and exporting the image"
"$GRANARY" build "$data" "file://$W/store/set" --quiet >&2
"$GRANARY" export "file://$W/store/set" "$W/sparse"
cp --sparse=never "$W/sparse" "$W/image" # a hole would be read from no disk
rm "$W/sparse"
sync "$W/image"

declare -A SERVER STARTED # the process that answers, and the one that was started
# serve_nbdkit NAME ARGUMENT...
serve_nbdkit() {
    local name=$1
    shift
    background "${PREFIX[@]}" nbdkit -f -t 64 --unix "$W/$name.sock" "$@"
    SERVER[$name]=$BACKGROUND_PID STARTED[$name]=$BACKGROUND_PID
    wait_for 20 test -S "$W/$name.sock"
}
# serve_plugin NAME [PARAMETER...]
serve_plugin() { serve_nbdkit "$1" "$PLUGIN" "image=$image" "cache=$W/cache.$1:$room" "control=$W/$1.control" "${@:2}"; }

# serve_granary NAME [OPTION...]: the process that answers is the supervisor's child
serve_granary() {
    background "${PREFIX[@]}" "$GRANARY" serve --socket "$W/$1.sock" --control "$W/$1.control" --cache "$W/cache.$1:$room" "${@:2}" "$image" >&2
    wait_for 20 test -S "$W/$1.sock"
    wait_for 20 pgrep -P "$BACKGROUND_PID" >/dev/null
    STARTED[$1]=$BACKGROUND_PID
    SERVER[$1]=$(pgrep -P "$BACKGROUND_PID")
}
uri() { echo "nbd+unix:///?socket=$W/$1.sock"; }

image=file://$W/store/set
size=$(stat -c %s "$W/image")
room=$((size * 5 / 4))
start() {
    case $1 in
        raw) ;;
        granary) serve_granary granary ;;
        plugin) serve_plugin plugin ;;
        file) serve_nbdkit file -r file "$W/image" ;;
        tier) serve_granary tier --memory $room ;;
        plugin-tier) serve_plugin plugin-tier memory=$room ;;
        memory) serve_nbdkit memory memory "$size" ;;
        *) echo "cache-read.sh: no contender '$1'" >&2; exit 1 ;;
    esac
}
for name in $contenders; do start "$name"; done

# counter CONTENDER NAME: granary_cache_NAME of its server
counter() {
    curl -sSf --noproxy '*' --unix-socket "$W/$1.control" http://granary/metrics |
        awk -v name="granary_cache_$2" '$1 == name { print $2 }'
}
# What a warm contender reads nothing from.
declare -A SOURCE_OF=([granary]=misses_total [plugin]=misses_total [tier]=uring_reads_total [plugin-tier]=uring_reads_total) USED
warm() {
    local before
    for _ in 1 2 3 4 5 6; do
        before=$(counter "$1" "${SOURCE_OF[$1]}")
        nbdcopy "$(uri "$1")" null:
        sleep 1 # for the fills
        USED[$1]=$(counter "$1" "${SOURCE_OF[$1]}")
        [ "${USED[$1]}" != "$before" ] || return 0
    done
}
note "warming up"
for name in $contenders; do
    case $name in
        granary | plugin | tier | plugin-tier) warm "$name" ;;
        memory) nbdcopy "$W/image" "$(uri memory)" ;;
    esac
done

# Those that have filled their cache, with the threads that waited for the store, end, and others open it.
if [ -n "${RESTART:-}" ]; then
    for name in granary plugin; do
        [[ " $contenders " = *" $name "* ]] || continue
        kill "${STARTED[$name]}"
        wait "${STARTED[$name]}" || true
        rm -f "$W/$name.sock" "$W/$name.control"
        start "$name"
        warm "$name"
    done
fi

# turn ROUND CONTENDER SIZE DEPTH CONNECTIONS: one line in $W/results
turn() {
    local name=$2 before=0 after=0 engine
    if [ "$name" = raw ]; then
        engine=(--ioengine=io_uring --direct=1 "--filename=$W/image")
    else
        engine=(--ioengine=nbd "--uri=$(uri "$name")")
        [ "$name" != file ] || cat "$W/image" >/dev/null # other programs may have pushed it out
        before=$(ticks "${SERVER[$name]}")
    fi
    "${PREFIX[@]}" fio --name=x "${engine[@]}" --rw=randread "--bs=$3" "--iodepth=$4" "--numjobs=$5" --group_reporting --time_based \
        "--runtime=$each" --norandommap --randrepeat=0 --output-format=json >"$W/fio.json" 2>"$W/fio.err" ||
        { cat "$W/fio.err" >&2; exit 1; }
    [ "$name" = raw ] || after=$(ticks "${SERVER[$name]}")
    python3 "$BENCH/cache_read.py" line "$W/fio.json" $((after - before)) "$@" >>"$W/results"
}

for round in $(seq 0 "$REPEATS"); do
    for connections in ${CONNECTIONS:-1 4}; do
        for size in ${SIZES:-4k 32k 128k 1m}; do
            for depth in ${DEPTHS:-1 16 32}; do
                [ "$round" = 0 ] && [ "$depth-$connections" != 32-1 ] && continue # the warm-up
                for name in $contenders; do turn "$round" "$name" "$size" "$depth" "$connections"; done
            done
        done
    done
    note "round $round of $REPEATS"
done
for name in "${!USED[@]}"; do
    more=$(($(counter "$name" "${SOURCE_OF[$name]}") - USED[$name]))
    [ $more = 0 ] || note "$name was not warm all the time: ${SOURCE_OF[$name]} rose by $more"
done
cp "$W/results" "$BENCH_DIR/cache-read.tsv" # every turn
python3 "$BENCH/cache_read.py" table "$W/results"
