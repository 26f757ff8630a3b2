#!/bin/bash
# cppcheck finds nothing in the product's code.
# ctest: long
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v cppcheck >/dev/null || skip "no cppcheck here (apt-get install cppcheck)"

suppressed=(
    missingIncludeSystem
    memleak                                        # it knows neither CLEANUP() nor steal_ptr()
    internalAstError                               # 2.10 has no grammar for `c ? (struct t){0} : x`
    uninitvar legacyUninitvar uninitStructMember   # it takes &x for a read of x; style/tidy looks for them
    shiftTooManyBitsSigned                         # arithmetic with gcc and clang, and wanted: zigzag
)
# --std: the newest that 2.10 has for C; C17 differs from it by corrections alone.
check() {
    cppcheck -j "$(nproc)" --quiet --error-exitcode=1 --enable=warning,performance,portability --std=c11 \
        -I "$GRANARY_SOURCE/cachecore" -I "$GRANARY_SOURCE" -D_GNU_SOURCE '-DGRANARY_VERSION="x"' \
        "${suppressed[@]/#/--suppress=}" "$@"
}

mapfile -t product < <(project_files '*.c' | grep -v '^\./\(tests\|bench\)/')
[ ${#product[@]} -ge 200 ] || { echo "the product has hardly any files"; exit 1; }
check "${product[@]}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf 'int f(void);\nint f(void)\n{\n    int x[3] = {0};\n    return x[3];\n}\n' >"$scratch/wrong.c"
if check "$scratch/wrong.c" >"$scratch/said" 2>&1; then
    echo "an index beyond an array is passed over"
    exit 1
fi
