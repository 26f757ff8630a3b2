#!/bin/bash
# No function over 80 lines, no file of code over 700. The aim is half of that.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

check_lengths() {
    local files
    mapfile -t files < <(project_files '*.c' '*.h')
    LC_ALL=C awk '
        FNR == 1 { if (count > 700) { print file ": " count " lines"; bad = 1 } file = FILENAME }
        { count = FNR }
        /^[A-Za-z_].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
        /^\{/ { start = FNR }
        /^\}/ && start {
            if (FNR - start + 1 > 80) { print FILENAME ": " name "() has " FNR - start + 1 " lines"; bad = 1 }
            start = 0
        }
        END { if (count > 700) { print file ": " count " lines"; bad = 1 } exit bad }' "${files[@]}"
}

can_fail check_lengths a.c "$(printf 'int f(void)\n{\n'; seq 79; printf '}')" "f() has 81 lines"
can_fail check_lengths b.c "$(seq 701)" "b.c: 701 lines"
check_lengths
