#!/bin/bash
# The Helm chart's version is the project's, and the table in docs/operations/helm.md has a row for each of its values.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

check_version() {
    local version
    version=$(sed -nE 's/^project\(granary VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
    printf '%s\n' "version: $version" "appVersion: $version" | diff - <(grep -E '^(version|appVersion):' deploy/helm/granary/Chart.yaml) ||
        { echo "deploy/helm/granary/Chart.yaml (>) has another version than CMakeLists.txt (<)"; return 1; }
}

# values: the path of each value of values.yaml that has none below it. What is commented out there counts.
values() {
    sed -E 's/^#( +[a-zA-Z"])/\1/' deploy/helm/granary/values.yaml | awk '
        match($0, /^ *[a-zA-Z]+:/) {
            key = substr($0, 1, RLENGTH - 1); indent = match(key, /[a-zA-Z]/) - 1
            path[indent / 2] = substr(key, indent + 1); text = path[0]
            for (i = 1; i <= indent / 2; i++) text = text "." path[i]
            print text }' | sed 's/^datasets\.faces/datasets.NAME/' | grep -vE '^(config|env)\.' | LC_ALL=C sort -u |
        awk '{ all[NR] = $0 } END { for (i = 1; i <= NR; i++) if (index(all[i + 1], all[i] ".") != 1) print all[i] }'
}
check_page() {
    # shellcheck disable=SC2016 # the backquotes are the page's
    diff <(values) <(sed -nE 's/^\| `([a-zA-Z.]+)` \|.*/\1/p' docs/operations/helm.md | LC_ALL=C sort) ||
        { echo "docs/operations/helm.md (>) has other values than values.yaml (<)"; return 1; }
}

bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
mkdir -p "$bad"/{deploy/helm/granary,docs/operations}
sed 's/VERSION [0-9.]*/VERSION 9.9.9/' CMakeLists.txt >"$bad/CMakeLists.txt"
cp deploy/helm/granary/{Chart,values}.yaml "$bad/deploy/helm/granary"
sed '/cache.size/d' docs/operations/helm.md >"$bad/docs/operations/helm.md"
! (cd "$bad" && check_version) >/dev/null || { echo "the check does not see another version"; exit 1; }
! (cd "$bad" && check_page) >/dev/null || { echo "the check does not see a value without a row"; exit 1; }
check_version
check_page
