#!/bin/bash
# The files of a module call each other in one direction: what its objects define and use, as nm tells it, has no loop.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v nm >/dev/null || skip "no nm here (apt-get install binutils)"

# calls_of ARCHIVE: "user definer" for each pair of its objects.
calls_of() {
    nm "$1" | awk '
        /^[^ ]+\.o:$/ { object = substr($1, 1, length($1) - 1); next }
        $2 ~ /^[TDBRVW]$/ { definer[$3] = object }
        $1 == "U" { uses[object, $2] = 1 }
        END {
            for (key in uses) {
                split(key, use, SUBSEP)
                if (use[2] in definer && definer[use[2]] != use[1]) print use[1], definer[use[2]]
            }
        }' | sort -u
}

# check_circles ARCHIVE
check_circles() {
    local loops
    loops=$(calls_of "$1" | { tsort 2>&1 >/dev/null || true; })
    [ -z "$loops" ] || { echo "$1: files that call each other in a circle:"; echo "$loops"; return 1; }
}

mapfile -t archives < <(find "$GRANARY_BUILD" -name 'libgr_*.a' -not -path '*/tests/*' | LC_ALL=C sort)
[ ${#archives[@]} -ge 15 ] || { echo "hardly any module was built in $GRANARY_BUILD"; exit 1; }
bad=0
for archive in "${archives[@]}"; do check_circles "$archive" || bad=1; done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf 'int b(void);\nint a(void) { return b(); }\n' >"$scratch/a.c"
printf 'int a(void);\nint b(void) { return a(); }\n' >"$scratch/b.c"
(cd "$scratch" && cc -c a.c b.c && ar rcs circle.a a.o b.o)
! check_circles "$scratch/circle.a" >"$scratch/said" || { echo "a circle of two files is passed over"; exit 1; }
exit $bad
