#!/bin/bash
# Relative links of every *.md lead somewhere, and so do the files that README.md and CONTRIBUTING.md name in code
# (but placeholders like tests/flow/NAME.sh).
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

PARTS='docs|tests|tools|bench|deploy|cachecore|imagebuild|server|plugin|fuse|nbd|attach|cli'

check_links() {
    local file target bad=0
    while IFS= read -r file; do
        while IFS= read -r target; do
            target=${target%%#*}
            case $target in '' | *://* | mailto:*) continue;; esac
            [ -e "$(dirname "$file")/$target" ] || { echo "$file: no such file: $target"; bad=1; }
        done < <(grep -oE '\]\([^) ]+\)' "$file" | sed 's/^](//; s/)$//')
    done < <(project_files '*.md')
    while IFS= read -r target; do
        [ -e "$target" ] || { echo "named in a *.md: no such file: $target"; bad=1; }
    done < <(project_files README.md CONTRIBUTING.md | xargs -r grep -ohE "\`($PARTS)/[A-Za-z0-9_./-]+\`" |
        tr -d '\`' | grep -vE 'NAME|KIND|DECODER' | sort -u)
    return $bad
}

can_fail check_links a.md 'see [this](docs/none.md)' docs/none.md
# shellcheck disable=SC2016
can_fail check_links README.md 'see `docs/none.md`' docs/none.md
check_links
