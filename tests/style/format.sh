#!/bin/bash
# Every .c and .h is as clang-format writes it (clang-format -i FILE mends it).
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
format=$(command -v clang-format-14 || command -v clang-format) || skip "no clang-format here (apt-get install clang-format)"

check_format() {
    local files
    mapfile -t files < <(project_files '*.c' '*.h')
    "$format" --dry-run -Werror "--style=file:$GRANARY_SOURCE/.clang-format" "${files[@]}"
}

can_fail check_format a.c 'int  f(void) { return 1 ; }' a.c
check_format
