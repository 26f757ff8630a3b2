#!/bin/bash
# million.sh [FILES]: the most memory a build of 1,000,000 empty files takes. The tree is made in memory (/dev/shm).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-1000000}

SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
empty_tree "$SHM/tree" "$files"
used "$GRANARY" build "$SHM/tree" "file://$W/store/million" --quiet
