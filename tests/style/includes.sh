#!/bin/bash
# Includes point one way (the layers: CONTRIBUTING.md). Also a step of every build: a wrong include fails it.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

check_includes() {
    find cachecore imagebuild attach server plugin fuse nbd cli -name '*.[ch]' -exec grep -nH '^ *# *include *"' {} + 2>/dev/null | awk '
        # which part a file, or an included name, belongs to
        function part_of(path, names) {
            sub(/^cachecore\//, "", path)
            if (path ~ /^stack[._]/) return "stack"
            split(path, names, "/")
            return names[1]
        }
        BEGIN {
            below = "base"
            sees["base"] = below
            sees["format"] = below " format"
            sees["net"] = below " net"
            sees["attach"] = below " format net attach"
            below = below " format net store"
            sees["store"] = below
            sees["upkeep"] = below " upkeep"
            sees["imagebuild"] = below " imagebuild"
            sees["fetch"] = below = below " fetch"
            sees["cache"] = below = below " cache"
            sees["image"] = below = below " image"
            sees["stack"] = stack = below = below " stack"
            sees["server"] = below = below " server"
            sees["plugin"] = below " plugin"
            sees["fuse"] = below " fuse"
            sees["nbd"] = below " nbd"
            sees["cli"] = stack " upkeep imagebuild attach cli"
        }
        {
            split($0, where, ":")
            split($0, quoted, "\"")
            from = part_of(where[1])
            to = quoted[2] ~ /\// || quoted[2] ~ /^stack[._]/ ? part_of(quoted[2]) : from
            if (!(from in sees)) { print where[1] ": no part " from " in tests/style/includes.sh"; bad = 1; next }
            if (index(" " sees[from] " ", " " to " ")) next
            print where[1] ":" where[2] ": " from " must not include " quoted[2] ": it sees " sees[from]
            bad = 1
        }
        END { exit bad }'
}

can_fail check_includes cachecore/base/x.h '#include "store/store.h"' "base must not include store/store.h"
can_fail check_includes imagebuild/x.c '#include "cache/cache.h"' "imagebuild must not include cache/cache.h"
can_fail check_includes server/x.c '#include "imagebuild/build.h"' "server must not include"
can_fail check_includes cachecore/image/x.c '#include "stack.h"' "image must not include stack.h"
check_includes
