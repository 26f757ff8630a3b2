#!/bin/bash
# Includes point one way (DESIGN of the layers: CONTRIBUTING.md). Also a step of every build: a wrong include fails it.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

# part: the parts it may include
declare -A SEES=(
    [base]="base"
    [format]="base format"
    [net]="base net"
    [store]="base format net store"
    [fetch]="base format net store fetch"
    [cache]="base format net store fetch cache"
    [image]="base format net store fetch cache image"
    [stack]="base format net store fetch cache image stack"
    [plugin]="base format net store fetch cache image stack plugin"
    [attach]="base format net attach"
    [imagebuild]="base format net store imagebuild"
    [cli]="base format net store fetch cache image stack imagebuild attach cli"
)

# part_of PATH: which part a file, or an included name, belongs to; empty for none
part_of() {
    case ${1#./} in
        cachecore/stack.* | stack.h) echo stack;;
        cachecore/*/*) local rest=${1#*cachecore/}; echo "${rest%%/*}";;
        */*) local rest=${1#./}; echo "${rest%%/*}";;
    esac
}

check_includes() {
    local file line include from to bad=0
    while IFS=: read -r file line include; do
        from=$(part_of "$file")
        include=${include#*\"}; include=${include%%\"*}
        case $include in
            */* | stack.h) to=$(part_of "$include");;
            *) to=$from;; # a neighbour in the same directory
        esac
        [ -n "${SEES[$from]:-}" ] || { echo "$file: no part '$from' in tests/style/includes.sh"; bad=1; continue; }
        case " ${SEES[$from]} " in
            *" $to "*) ;;
            *) echo "$file:$line: $from must not include $include: it sees ${SEES[$from]}"; bad=1;;
        esac
    done < <(find cachecore imagebuild attach plugin cli -name '*.[ch]' -exec grep -nH '^ *# *include *"' {} + 2>/dev/null)
    return $bad
}

can_fail check_includes cachecore/base/x.h '#include "store/store.h"' "base must not include store/store.h"
can_fail check_includes imagebuild/x.c '#include "cache/cache.h"' "imagebuild must not include cache/cache.h"
can_fail check_includes plugin/x.c '#include "imagebuild/build.h"' "plugin must not include"
can_fail check_includes cachecore/image/x.c '#include "stack.h"' "image must not include stack.h"
check_includes
