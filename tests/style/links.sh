#!/bin/bash
# Relative links of every *.md lead somewhere, to a heading where they name one, and so do the files that README.md and
# CONTRIBUTING.md name in code (but placeholders like tests/flow/NAME.sh): those of a folder of the project by their
# whole path, source files and scripts also by the end of it. No table of a *.md is cut in two by an empty line, after
# which its rows are shown as text.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

PARTS=$(project_files '*' | awk -F/ 'NF > 2 {print $2}' | sort -u | paste -sd '|')

# anchors FILE: its headings as links name them
anchors() { sed -nE 's/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | LC_ALL=C sed 's/[^a-z0-9_-]//g'; }

check_links() {
    local file target path sources bad=0
    declare -A headings
    while IFS= read -r file; do
        while IFS= read -r target; do
            case $target in *://* | mailto:*) continue;; esac
            path=$file
            [ -z "${target%%#*}" ] || path=${file%/*}/${target%%#*}
            if [ ! -e "$path" ]; then
                echo "$file: no such file: ${target%%#*}"; bad=1
            elif [[ $target = *#* ]]; then
                [ "${headings[$path]:-}" ] || headings[$path]=$'\n'$(anchors "$path")$'\n'
                [[ ${headings[$path]} = *$'\n'"${target#*#}"$'\n'* ]] || { echo "$file: no such heading: $target"; bad=1; }
            fi
        done < <(grep -oE '\]\([^) ]+\)' "$file" | sed 's/^](//; s/)$//')
    done < <(project_files '*.md')
    sources=$'\n'$(project_files '*.c' '*.h' '*.sh')$'\n'
    while IFS= read -r target; do
        [ -e "$target" ] || [[ ! $target =~ ^($PARTS)/ && $sources = */"$target"$'\n'* ]] ||
            { echo "named in a *.md: no such file: $target"; bad=1; }
    done < <(project_files README.md CONTRIBUTING.md |
        xargs -r grep -ohE "\`(($PARTS)/[A-Za-z0-9_./-]+|[A-Za-z0-9_./-]+\.(c|h|sh))\`" |
        tr -d '\`' | grep -vE 'NAME|KIND|DECODER' | sort -u)
    return $bad
}

# A row after an empty line begins a table: dashes must follow.
check_tables() {
    local files
    mapfile -t files < <(project_files '*.md')
    awk 'FNR == 1 { row = begun = 0 }
        begun && !/^\|[ :|-]+$/ { print FILENAME ": " FNR - 1 ": a row of a table after an empty line"; bad = 1 }
        { begun = /^\|/ && !row; row = /^\|/ }
        END { exit bad }' "${files[@]}"
}

can_fail check_links a.md 'see [this](docs/none.md)' docs/none.md
can_fail check_links a.md $'# Here\n[there](#there)' '#there'
# shellcheck disable=SC2016
can_fail check_links README.md 'see `docs/none.md`' docs/none.md
# shellcheck disable=SC2016
can_fail check_links README.md 'see `ublk/none`' ublk/none
# shellcheck disable=SC2016
can_fail check_links README.md 'see `none.c`' none.c
can_fail check_tables a.md $'| a |\n| --- |\n| b |\n\n| c |\n| d |' 'a.md: 5'
check_links
check_tables
