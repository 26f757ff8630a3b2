# shellcheck shell=bash
# The version, which CMakeLists.txt, debian/changelog, CHANGELOG.md and the Helm chart name, and examples in deploy/ and
# docs/. The packages take it from debian/changelog.
# tests/style/debian.sh and tools/release source this file.

# versions_first PATTERN FILE: what the pattern's two groups match in the first line that it matches
versions_first() { sed -nE "/$1/{s/$1/\1 \2/p;q}" "$2"; }

# versions_agree: that it is the same everywhere, and unreleased in both changelogs or in neither; else prints what
# differs
versions_agree() {
    local version debian heading key chart examples bad=0
    version=$(sed -nE 's/^project\(granary VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
    debian=$(versions_first '^granary \(([^)]+)\) ([A-Za-z]+);.*' debian/changelog)
    heading=$(versions_first '^## (Unreleased )?\(?([0-9.]+).*' CHANGELOG.md)
    [ "${debian% *}" = "$version" ] || { echo "debian/changelog: ${debian% *}, but CMakeLists.txt: $version"; bad=1; }
    [ "${heading##* }" = "$version" ] || { echo "CHANGELOG.md: ${heading##* }, but CMakeLists.txt: $version"; bad=1; }
    for key in version appVersion; do
        chart=$(sed -n "s/^$key: //p" deploy/helm/granary/Chart.yaml)
        [ "$chart" = "$version" ] || { echo "deploy/helm/granary/Chart.yaml: $key $chart, but CMakeLists.txt: $version"; bad=1; }
    done
    examples=$(grep -rsnoE 'granary[:-][0-9]+\.[0-9]+\.[0-9]+|imageTag: *[0-9.]+' deploy docs |
        grep -vE "[ :-]${version//./\\.}\$" || true)
    [ -z "$examples" ] || { echo "examples of another version than CMakeLists.txt's, $version: $examples"; bad=1; }
    if [[ $heading = Unreleased* ]]; then [[ $debian = *UNRELEASED ]]; else [[ $debian != *UNRELEASED ]]; fi ||
        { echo "debian/changelog: ${debian#* }, but CHANGELOG.md: $heading"; bad=1; }
    return $bad
}
