#!/bin/bash
# The console's scripts have the types that their comments say.
# ctest: long
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v tsc >/dev/null || skip "no tsc here (apt-get install node-typescript)"

page_files() { project_files '*' | grep '^\./server/console/'; }
check_types() {
    local files
    mapfile -t files < <(page_files | grep '\.js$')
    tsc --noEmit --allowJs --checkJs --strict --noUnusedLocals --noImplicitReturns --target es2022 --module es2022 \
        --lib es2022,dom,dom.iterable "${files[@]}"
}

# shellcheck disable=SC2016
can_fail check_types server/console/a.js $'// @ts-check\n/** @param {number} n */\nexport const f = (n) => n.length;' "Property 'length' does not exist"
can_fail check_types server/console/a.js $'// @ts-check\nexport const f = (n) => n;' "implicitly has an 'any' type"
check_types
