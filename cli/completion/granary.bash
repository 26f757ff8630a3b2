# bash completion for granary(1). The lists are checked against the program's tables by tests/style/docs.sh.
# shellcheck shell=bash

_granary_verbs="build join images inspect ls index diff verify export copy tag sign rm gc unnest serve mount umount keep upgrade status top cache warm trace leave config doctor bench help"
_granary_server_options="--cache --cache-compressed --quota --watermark --disk-timeout --memory --eviction --fence --warm --metrics --console --console-token --console-admin-token --l2 --peer-listen --peer-key --peer-tls --peer-keep --trust --bwlimit --timeout --slow-read --readahead --fill --hedge --store-connections --index-memory --endpoint"
_granary_cache_commands="ls evict pin fsck resident simulate"
_granary_trace_commands="record"
_granary_config_commands="show check"

_granary_options() {
    case $1 in
        build) echo "--files-from --ignore-missing --tar-dirs --include --exclude --exclude-from --add --prefix-strip --uid --gid --mode --dir-mode --mtime" \
            "--parent --part --trust --compact-budget --scrub --checkpoint --fs --chunk-size --compress --compress-level --jobs --bwlimit --tmpdir --endpoint --timeout --skip-bad-names --strict --strict-tags" \
            "--map-user --map-group --hdfs-token-file --http-token-file --keep-special --dry-run --json --quiet";;
        join) echo "--at --trust --tmpdir --endpoint --timeout --strict-tags --json --quiet";;
        images) echo "--endpoint --timeout --all --json";;
        rm) echo "--endpoint --timeout --json";;
        inspect) echo "--trust --endpoint --timeout --json --quiet";;
        ls) echo "--long --recursive --at --json --endpoint --timeout";;
        index) echo "--path --output --json --endpoint --timeout";;
        diff) echo "--stat --exit-code --json --endpoint --timeout";;
        verify) echo "--deep --against --sample --all --repair --add --prefix-strip --hdfs-token-file --http-token-file --jobs --endpoint --timeout" \
            "--json --quiet";;
        export) echo "--jobs --trust --endpoint --timeout --json --quiet";;
        copy) echo "--jobs --strict-tags --endpoint --timeout --to-endpoint --json --quiet";;
        tag) echo "--endpoint --timeout --strict-tags --json";;
        sign) echo "--key --trusted-comment --signature --trust --message --endpoint --timeout --json";;
        gc) echo "--grace --keep-last --dry-run --endpoint --timeout --json";;
        unnest) echo "--jobs --strict-tags --dry-run --endpoint --timeout --json --quiet";;
        serve) echo "$_granary_server_options --follow --poll --keep-versions --hook --socket --listen --ublk --fuse --control --threads --check --socket-mode --socket-owner --control-mode --control-owner --tls-certificates --tls-psk --tls-verify-peer";;
        mount) echo "$_granary_server_options --direct --ublk --fuse --mkdir --foreground --follow --poll --keep-versions --hook --noexec --env-file --keys --socket --join --connections --nbd-timeout --dead-timeout --json";;
        keep) echo "--socket --connect --export --nbd-timeout --dead-timeout";;
        upgrade) echo "--json";;
        umount) echo "--force --json";;
        status) echo "--quick --verbose --json";;
        top) echo "--once --count --interval";;
        "cache ls") echo "--control --json --quiet";;
        "cache evict") echo "--all --pinned --control --json --quiet";;
        "cache pin") echo "--off --all --control --json --quiet";;
        "cache fsck") echo "--repair --jobs --json --quiet";;
        "cache resident") echo "--check --evict --evict-all --pin --unpin --json --quiet";;
        "cache simulate") echo "--trace --size --policy --json";;
        "trace record") echo "--export --for --json --quiet";;
        "config show") echo "--json";;
        "config check") echo "";;
        doctor) echo "--write --bundle --endpoint --timeout --json";;
        bench) echo "--seconds --endpoint --timeout --json";;
        warm) echo "--metadata --all --resident --files-from --path --trace --image --export --bwlimit --cluster --dry-run --json --quiet";;
        leave) echo "--wait --json";;
        help) echo "--all";;
    esac
}

_granary() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]:-}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$_granary_verbs --help --version" -- "$word")
        return
    fi
    if [ "$verb" = cache ] || [ "$verb" = trace ] || [ "$verb" = config ]; then
        if [ "$COMP_CWORD" -eq 2 ]; then
            local commands=_granary_${verb}_commands
            mapfile -t COMPREPLY < <(compgen -W "${!commands} --help" -- "$word")
            return
        fi
        verb="$verb ${COMP_WORDS[2]}"
    fi
    # bash splits --fuse=no at the equals sign
    local equals=
    if [ "$word" = = ]; then
        equals="=" word=""
    elif [ "$before" = = ]; then
        equals="=" before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case "$verb $before$equals" in
        "mount --ublk=" | "mount --fuse=" | "mount --join=" | "mount --noexec=" | *" --cache-compressed=") mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$word"); return;;
    esac
    case $before in
        --policy | --eviction) mapfile -t COMPREPLY < <(compgen -W "auto lru s3fifo sticky" -- "$word"); return;;
        --peer-keep) mapfile -t COMPREPLY < <(compgen -W "all hot none" -- "$word"); return;;
        --fs) mapfile -t COMPREPLY < <(compgen -W "erofs ext4" -- "$word"); return;;
        --compress) mapfile -t COMPREPLY < <(compgen -W "zstd none" -- "$word"); return;;
        --cache | --peer-key | --peer-tls | --console-token | --console-admin-token | --key | --signature | --trust | --socket | --control | --tls-certificates | --tls-psk | --env-file | --keys | --hook | --trace | --bundle | --exclude-from | --files-from | --output) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
        --chunk-size | --compress-level | --jobs | --endpoint | --timeout | --l2 | --peer-listen | --bwlimit | --at | --grace | --wait | --size | --keep-last | --poll | --keep-versions | --listen | --metrics | --console | --count | --seconds | --interval | --threads | \
            --connections | --export | --path | --for) return;;
    esac
    case $word in
        -*) mapfile -t COMPREPLY < <(compgen -W "$(_granary_options "$verb") --help" -- "$word");;
        *)
            if [ "$verb" = help ]; then
                mapfile -t COMPREPLY < <(compgen -W "$_granary_verbs" -- "$word")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            ;;
    esac
}

complete -o filenames -F _granary granary
