# shellcheck shell=bash
# Sourced by the style tests: which files are the project's own.

cd "$GRANARY_SOURCE" || exit 1

# project_files PATTERN...: the paths (./a/b) of files whose names match, build trees left out.
project_files() {
    local pattern expr=()
    for pattern in "$@"; do expr+=(-o -name "$pattern"); done
    find . \( -name .git -o -path './build*' \) -prune -o -type f \( "${expr[@]:1}" \) -print | LC_ALL=C sort
}

skip() { echo "$*"; exit 77; }
