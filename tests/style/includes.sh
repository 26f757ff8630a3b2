#!/bin/bash
# A module includes only modules below it (the drawing in CONTRIBUTING.md), and of those only the public headers that
# `doors` lists. Every build runs this check too.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

check_includes() {
    project_files '*.[ch]' | sed 's|^\./||' | grep -v '^\(tests\|bench\)/' | LC_ALL=C xargs -d '\n' grep -nH '^ *# *include *"' | awk '
        # the module that a file, or an included name, belongs to
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
            sees["store"] = below " net store"
            below = below " format net store repository"
            sees["repository"] = below
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
            sees["ublk"] = below " ublk"
            sees["cli"] = stack " upkeep imagebuild attach cli"
            sees["csi"] = "base format net attach csi"
            sees["labels"] = "base format net attach labels"
        }
        BEGIN {
            # the public headers; every header of base and format is public
            doors["net"] = "net/http.h net/listen.h net/peer_key.h net/nbd_wire.h net/aws/s3.h net/aws/s3_keys.h net/hdfs/webhdfs.h"
            doors["store"] = "store/store.h"
            doors["repository"] = "repository/repository.h repository/resolver.h repository/lease.h" \
                " repository/nesting.h repository/gc_marks.h repository/trust.h" \
                " repository/read/catalog_glob.h repository/read/catalog_read.h repository/read/chunk_read.h" \
                " repository/read/index_read.h"
            doors["upkeep"] = "upkeep/upkeep.h"
            doors["fetch"] = "fetch/fetch.h"
            doors["cache"] = "cache/cache.h cache/cache_tools.h cache/resident.h"
            doors["image"] = "image/image.h image/warm/warm_run.h"
            doors["stack"] = "stack.h stack_options.h"
            doors["imagebuild"] = "imagebuild/imagebuild.h"
            doors["attach"] = "attach/attach.h"
            doors["server"] = "server/serving.h server/front_end.h"
        }
        {
            split($0, where, ":")
            split($0, quoted, "\"")
            from = part_of(where[1])
            to = quoted[2] ~ /\// || quoted[2] ~ /^stack[._]/ ? part_of(quoted[2]) : from
            if (!(from in sees)) { print where[1] ": no part " from " in tests/style/includes.sh"; bad = 1; next }
            inside = from == to || to == "base" || to == "format"
            if (index(" " sees[from] " ", " " to " ")) {
                if (inside || index(" " doors[to] " ", " " quoted[2] " ")) next
                print where[1] ":" where[2] ": " quoted[2] " is private to " to ": from outside include " doors[to]
                bad = 1
                next
            }
            print where[1] ":" where[2] ": " from " must not include " quoted[2] ": it sees " sees[from]
            bad = 1
        }
        END { exit bad }'
}

can_fail check_includes cachecore/base/x.h '#include "store/store.h"' "base must not include store/store.h"
can_fail check_includes imagebuild/x.c '#include "cache/cache.h"' "imagebuild must not include cache/cache.h"
can_fail check_includes server/x.c '#include "imagebuild/build.h"' "server must not include"
can_fail check_includes another/x.c '#include "base/error.h"' "no part another in tests/style/includes.sh"
can_fail check_includes cachecore/image/x.c '#include "stack.h"' "image must not include stack.h"
can_fail check_includes server/x.c '#include "cache/memory_tier.h"' "cache/memory_tier.h is private to cache"
check_includes
