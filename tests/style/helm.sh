#!/bin/bash
# The table in docs/reference/helm-values.md has a row for each value of the Helm chart.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

# values: the path of each value of values.yaml that has none below it. What is commented out there counts.
values() {
    sed -E 's/^#( +[a-zA-Z"])/\1/' deploy/helm/granary/values.yaml | awk '
        match($0, /^ *[a-zA-Z]+:/) {
            key = substr($0, 1, RLENGTH - 1); indent = match(key, /[a-zA-Z]/) - 1
            path[indent / 2] = substr(key, indent + 1); text = path[0]
            for (i = 1; i <= indent / 2; i++) text = text "." path[i]
            print text }' | sed 's/^datasets\.faces/datasets.NAME/; s/^storageClasses\.lake/storageClasses.NAME/' | grep -vE '^(config|env)\.' | LC_ALL=C sort -u |
        awk '{ all[NR] = $0 } END { for (i = 1; i <= NR; i++) if (index(all[i + 1], all[i] ".") != 1) print all[i] }'
}
check_page() {
    # shellcheck disable=SC2016 # the backquotes are the page's
    diff <(values) <(sed -nE 's/^\| `([a-zA-Z.]+)` \|.*/\1/p' docs/reference/helm-values.md | LC_ALL=C sort) ||
        { echo "docs/reference/helm-values.md (>) has other values than values.yaml (<)"; return 1; }
}

bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
mkdir -p "$bad"/{deploy/helm/granary,docs/reference}
cp deploy/helm/granary/values.yaml "$bad/deploy/helm/granary"
sed '/cache.size/d' docs/reference/helm-values.md >"$bad/docs/reference/helm-values.md"
! (cd "$bad" && check_page) >/dev/null || { echo "the check does not see a value without a row"; exit 1; }
check_page
