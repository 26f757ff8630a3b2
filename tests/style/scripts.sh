#!/bin/bash
# Every shell script of the project passes shellcheck, and is executable unless it is there to be sourced.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v shellcheck >/dev/null || skip "no shellcheck here (apt-get install shellcheck)"

mapfile -t scripts < <(project_files '*' | LC_ALL=C xargs -d '\n' awk 'FNR == 1 {
    if (/^#!.*sh$|^# shellcheck shell=/) print FILENAME; nextfile }')
[ ${#scripts[@]} -ge 5 ] || { echo "found only ${#scripts[@]} scripts"; exit 1; }
shellcheck -S warning -e SC1091 "${scripts[@]}"
for file in "${scripts[@]}"; do
    if head -c 2 "$file" | grep -q '#!' && [ ! -x "$file" ]; then echo "$file: has #! but is not executable"; exit 1; fi
done
echo "${#scripts[@]} scripts"
