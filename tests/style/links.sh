#!/bin/bash
# Relative links of every *.md lead somewhere, to a heading where they name one, and so do the files that README.md and
# CONTRIBUTING.md name in code (but placeholders like tests/flow/NAME.sh).
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

PARTS='docs|tests|tools|bench|deploy|cachecore|imagebuild|server|plugin|fuse|nbd|attach|cli'

# anchors FILE: its headings as links name them
anchors() { sed -nE 's/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | LC_ALL=C sed 's/[^a-z0-9_-]//g'; }

check_links() {
    local file target path bad=0
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
    while IFS= read -r target; do
        [ -e "$target" ] || { echo "named in a *.md: no such file: $target"; bad=1; }
    done < <(project_files README.md CONTRIBUTING.md | xargs -r grep -ohE "\`($PARTS)/[A-Za-z0-9_./-]+\`" |
        tr -d '\`' | grep -vE 'NAME|KIND|DECODER' | sort -u)
    return $bad
}

can_fail check_links a.md 'see [this](docs/none.md)' docs/none.md
can_fail check_links a.md $'# Here\n[there](#there)' '#there'
# shellcheck disable=SC2016
can_fail check_links README.md 'see `docs/none.md`' docs/none.md
check_links
