# bash completion for granary(1). The lists are checked against the program's tables by tests/style/docs.sh.
# shellcheck shell=bash

_granary_verbs="build images inspect ls verify export tag rm gc serve mount umount status help"

_granary_options() {
    case $1 in
        build) echo "--chunk-size --compress --compress-level --jobs --endpoint --skip-bad-names --strict --strict-tags" \
            "--keep-special --dry-run --json --quiet";;
        images | inspect | rm) echo "--endpoint --json";;
        ls) echo "--long --recursive --at --json --endpoint";;
        verify) echo "--deep --jobs --endpoint --json --quiet";;
        export) echo "--jobs --endpoint --json --quiet";;
        tag) echo "--endpoint --strict-tags --json";;
        gc) echo "--grace --keep-last --dry-run --endpoint --json";;
        serve) echo "--cache --socket --listen --control --threads --endpoint";;
        mount) echo "--cache --fuse --socket --connections --endpoint --json";;
        umount | status) echo "--json";;
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
    case $before in
        --compress) mapfile -t COMPREPLY < <(compgen -W "zstd none" -- "$word"); return;;
        --cache | --socket | --control) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
        --chunk-size | --compress-level | --jobs | --endpoint | --at | --grace | --keep-last | --listen | --threads | \
            --connections) return;;
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
