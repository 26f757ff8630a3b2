#!/bin/bash
# Functions with a better form in cachecore/base or libc, and marks of unfinished work. Tests may call what they like.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

# unbounded copies; conversions without errors; static results shared by threads; shells; stack by input
BANNED='strcpy|strcat|strncat|stpcpy|sprintf|vsprintf|gets|scanf|atoi|atol|atoll|atof|strtok|asctime'
BANNED+='|ctime|gmtime|localtime|inet_ntoa|gethostbyname|readdir_r|rand|srand|tmpnam|mktemp|tempnam|alloca'
BANNED+='|system|popen'

check_banned() {
    local files bad=0
    mapfile -t files < <(project_files '*.c' '*.h' | grep -v '^\./tests/')
    ! code_of "${files[@]}" | grep -E "(^|[^A-Za-z0-9_>.])($BANNED) ?\(" || bad=1
    mapfile -t files < <(project_files '*.c' '*.h' '*.sh' '*.txt' '*.cmake' | grep -v '/banned.sh$')
    ! grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${files[@]}" || bad=1
    return $bad
}

can_fail check_banned a.c 'void f(void) { strcpy(a, b); }' strcpy
can_fail check_banned a.c 'int x = atoi (s);' atoi
can_fail check_banned a.c '/* FIXME */' FIXME
check_banned
