#!/bin/bash
# million.sh [FILES]: the most memory a build of 1,000,000 empty files takes. The tree is made in memory (/dev/shm).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-1000000}

SHM=$(mktemp -d /dev/shm/granary-bench.XXXXXX)
empty_tree "$SHM/tree" "$files"
python3 - "$GRANARY" build "$SHM/tree" "file://$W/store/million" --quiet <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if status:
    sys.exit(status)
print(f"peak memory {used.ru_maxrss / 1024:.0f} MiB, {time.monotonic() - start:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU")
PYTHON
