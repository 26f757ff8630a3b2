#!/bin/bash
# clang-tidy finds nothing in the product's code with the checks of .clang-tidy, which says what is left out and why.
# ctest: long
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v clang-tidy >/dev/null || skip "no clang-tidy here (apt-get install clang-tidy)"

commands=$GRANARY_BUILD/compile_commands.json
product() { jq -r '.[].file' "$commands" | grep -v "^$GRANARY_SOURCE/\(tests\|bench\)/" | sort -u; }
[ "$(product | wc -l)" -ge 200 ] || { echo "the product has hardly any files: is $commands the release tree's?"; exit 1; }
# one file each: of several clang-tidy 14 loses where va_start() is
product | xargs -P "$(nproc)" -n 1 clang-tidy -p "$GRANARY_BUILD" --quiet 2>/dev/null

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf 'int f(void);\nint f(void)\n{\n    int x;\n    return x;\n}\n' >"$scratch/wrong.c"
if clang-tidy --quiet --config-file="$GRANARY_SOURCE/.clang-tidy" "$scratch/wrong.c" -- >"$scratch/said" 2>&1; then
    echo "an uninitialized value is passed over"
    exit 1
fi
