#!/bin/bash
# Every shell script of the project passes shellcheck, and is executable unless it is there to be sourced.
# ctest: long
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v shellcheck >/dev/null || skip "no shellcheck here (apt-get install shellcheck)"

mapfile -t scripts < <(project_scripts)
[ ${#scripts[@]} -ge 5 ] || { echo "found only ${#scripts[@]} scripts"; exit 1; }
# A process a script: one for all of them follows what each sources, again and again, which takes minutes. So a variable
# may be another script's (SC2154, SC2034), and whether `cd` ends a script, too (SC2164).
printf '%s\0' "${scripts[@]}" | xargs -0 -n 1 -P "$(nproc)" shellcheck -S warning -e SC1091,SC2154,SC2034,SC2164
for file in "${scripts[@]}"; do
    if [ "$(head -c 2 "$file")" = '#!' ] && [ ! -x "$file" ]; then echo "$file: has #! but is not executable"; exit 1; fi
done
echo "${#scripts[@]} scripts"
