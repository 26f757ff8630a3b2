#!/bin/bash
# rebuild.sh [FILES] [MEDIAN]: a build of 100,000 files (sizes log-normal, median 20,000 bytes) of which 1 % changed,
# 1 % are new and 1 % are gone, upon the image of the day before, against a build of all of them; then one of an
# unchanged tree. Time is wall clock and CPU of the process. The tree is local and in the page cache: the hardest case
# for the ratio.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-100000} median=${2:-20000}

note "making $files files"
python3 - "$W/tree" "$files" "$median" <<'PYTHON'
import math, os, random, sys
top, files, middle = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sizes, pool = random.Random(1), random.Random(2).randbytes(16 << 20)
for i in range(files):
    folder = f"{top}/class{i % 300:03d}"
    if i < 300:
        os.makedirs(folder)
    size = int(min(4 << 20, middle * math.exp(sizes.gauss(0, 1.0))))
    at = sizes.randrange(len(pool) - size)
    with open(f"{folder}/img{i:06d}.jpg", "wb") as file:
        file.write((b"%016x" % sizes.getrandbits(64) + pool[at : at + size])[: size + 16])
PYTHON

# measured FILE COMMAND...: its JSON in FILE, "wall cpu" on stdout
measured() {
    python3 - "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
with open(sys.argv[1], "wb") as out:
    status = subprocess.run(sys.argv[2:], stdout=out).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{time.monotonic() - start:.2f} {used.ru_utime + used.ru_stime:.2f} {used.ru_maxrss // 1024}")
sys.exit(status)
PYTHON
}

# what the run before wrote must not stand before this one's
build() {
    sync
    measured "$1" "$GRANARY" build "$W/tree" "$2/set:daily" --quiet --json
}
paths() { "$GRANARY" ls -R --json "$1" | jq -c 'del(.extents)' | sha256sum; }

note "the first build"
build "$W/first" "$W/store" >"$W/first.time"
note "a day"
changed=$(python3 - "$W/tree" "$median" <<'PYTHON'
import os, random, sys
top, middle = sys.argv[1], int(sys.argv[2])
r = random.Random(3)
paths = sorted(os.path.join(d, f) for d, _, names in os.walk(top) for f in names)
part, total = len(paths) // 100, 0
chosen = r.sample(paths, 2 * part)
for path in chosen[:part]:
    os.remove(path)
for path in chosen[part:] + [p[:-4] + "-new.jpg" for p in r.sample(paths, part)]:
    size = int(middle * 2.718 ** r.gauss(0, 1.0))
    with open(path, "wb") as file:
        file.write(r.randbytes(size))
    total += size
print(total)
PYTHON
)
for ((i = 0; i < REPEATS; i++)); do
    rm -rf "$W/rebuilt" "$W/full"
    cp -al "$W/store" "$W/rebuilt" # objects never change, tags are replaced whole
    build "$W/day" "$W/rebuilt" >>"$W/day.time"
    build "$W/all" "$W/full" >>"$W/all.time"
done
build "$W/same" "$W/rebuilt" >"$W/same.time"
[ "$(paths "$W/rebuilt/set:daily")" = "$(paths "$W/full/set:daily")" ] || { echo "the rebuilt tree differs" >&2; exit 1; }

column() {
    local values
    mapfile -t values < <(awk -v c="$2" '{ print $c }' "$W/$1.time")
    median "${values[@]}"
}
count=$(jq .counts.files "$W/day")
read=$(jq .bytes_read "$W/day") uploaded=$(jq .bytes_uploaded "$W/day")
cat <<REPORT
$count files, $(jq .counts.bytes "$W/day") bytes; new and changed: $changed bytes

| build | s | CPU s | MiB | read from the source | uploaded |
| --- | --- | --- | --- | --- | --- |
| all of it | $(column all 1) | $(column all 2) | $(column all 3) | $(jq .bytes_read "$W/all") | $(jq .bytes_uploaded "$W/all") |
| the day | $(column day 1) | $(column day 2) | $(column day 3) | $read | $uploaded |
| nothing changed | $(column same 1) | $(column same 2) | $(column same 3) | $(jq .bytes_read "$W/same") | $(jq .bytes_uploaded "$W/same") |

read / new and changed: $(ratio "$read" "$changed") (target 1.05)
uploaded beyond them: $(ratio $((uploaded - changed)) "$count") bytes a file (target 150)
time / full build: $(ratio "$(column day 1)" "$(column all 1)"), CPU $(ratio "$(column day 2)" "$(column all 2)") (target 0.10)
REPORT
