#!/bin/bash
# Daily builds whose changes are spread over the tree: pages of the catalog are deltas of older pages, which stay in the
# store for as long as an image needs them; gc, copy, verify, diff, further builds and --scrub know of both.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

store=$W/store
image=$store/set:daily
build() { "$GRANARY" build "$W/tree" "$@" --quiet --json; }
pages() { find "$store/catalogs" -type f -printf '%s\n' | awk '{ n++; bytes += $1 } END { print n + 0, bytes + 0 }'; }
# paths IMAGE FILE: what its catalog says, without where the bytes are
paths() {
    "$GRANARY" ls -R --json "$1" | jq -c 'del(.extents)' >"$2"
    [ -s "$2" ] || fail "ls of $1 shows nothing"
}

# is_as_full IMAGE DAY WORDS: its catalog says what that of a build without a parent says
is_as_full() {
    build "$W/other/set:$2" --parent none >"$W/full"
    paths "$W/other/set:$2" "$W/wanted"
    paths "$1" "$W/found"
    cmp "$W/wanted" "$W/found" || fail "$3"
}

# deltas: how many pages of the store are deltas: GRCT, version 2, level 0
deltas() {
    local n=0 file
    while read -r file; do
        [ "$(od -An -tx1 -N6 "$file" | tr -d ' ')" = 475243540200 ] && n=$((n + 1))
    done < <(find "$store/catalogs" -type f)
    echo $n
}

# is_all NAME: the store's pages are those that a copy of the image into a new store has, and no others
is_all() {
    "$GRANARY" copy "$image" "$W/$1/set:daily" --quiet
    diff <(cd "$store/catalogs" && find . -type f | sort) <(cd "$W/$1/catalogs" && find . -type f | sort) ||
        fail "the store has other pages than the image needs"
}

# full_pages: how many pages are too large to be deltas
full_pages() { find "$store/catalogs" -type f -size +8k | wc -l; }

# only_daily: no other tag, and nothing in the store that only others need
only_daily() {
    local tag
    for tag in $("$GRANARY" images --all --json "$store" | jq -r '.images[].tag' | grep -vx daily); do
        "$GRANARY" rm "$store/set:$tag" >"$W/removed"
    done
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
}

python3 - "$W/tree" <<'PYTHON'
import os, random, sys
r = random.Random(1)
for i in range(6000):
    folder = f"{sys.argv[1]}/class{i // 500:02d}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/image{i:05d}", "wb") as file:
        file.write(r.randbytes(40))
PYTHON
# day: one file in 100 has other bytes
day() {
    python3 - "$W/tree" "$1" <<'PYTHON'
import glob, random, sys
for path in sorted(glob.glob(f"{sys.argv[1]}/*/*"))[int(sys.argv[2])::100]:
    with open(path, "wb") as file:
        file.write(random.Random(path + sys.argv[2]).randbytes(40))
PYTHON
}

echo "== a day"
build "$image" >"$W/first"
read -r pages_before bytes_before < <(pages)
[ "$pages_before" -gt 3 ] || fail "$pages_before pages only"
[ "$(deltas)" = 0 ] || fail "a build without a parent wrote deltas"
day 1
build "$image" >"$W/second"
read -r pages_after bytes_after < <(pages)
[ "$(deltas)" -ge 3 ] || fail "no deltas: $pages_after pages"
[ $((100 * (bytes_after - bytes_before))) -le $((3 * bytes_before)) ] ||
    fail "1 % of the files wrote $((bytes_after - bytes_before)) bytes of a catalog of $bytes_before"
is_as_full "$image" second "the catalog is not that of a full build"
build "$image" >"$W/same"
[ "$(jq -r .digest "$W/second")" = "$(jq -r .digest "$W/same")" ] || fail "an unchanged source is another image"
[ "$("$GRANARY" diff "$store/set:$(jq -r .unique_tag "$W/first")" "$image" | wc -l)" = 60 ] || fail "diff finds another number of files"

echo "== gc keeps what deltas need, and no more"
only_daily
"$GRANARY" verify --deep --quiet "$image" || fail "after gc the image is not whole"
is_as_full "$image" second "after gc the catalog is another"

echo "== a copy has the bases too"
is_all copied
"$GRANARY" verify --deep --quiet "$W/copied/set:daily" || fail "the copy is not whole"
is_as_full "$W/copied/set:daily" second "the copy has another catalog"

echo "== a base that is gone is named"
base=$(find "$store/catalogs" -type f -size +8k -print -quit)
mv "$base" "$W/base"
"$GRANARY" verify --quiet "$image" >"$W/out" 2>&1 && fail "verify finds nothing missing"
grep -q "${base##*/}" "$W/out" || fail "verify says $(cat "$W/out")"
mv "$W/base" "$base"

echo "== many days: pages are written in full again, and the catalog stays what it is"
before=$(full_pages)
for d in $(seq 2 29); do
    day "$d"
    [ $((d % 4)) != 1 ] || build "$image" >"$W/daily"
done
[ "$(full_pages)" -gt "$before" ] || fail "no page was written in full again"
"$GRANARY" verify --deep --quiet "$image" || fail "after many days the image is not whole"
is_as_full "$image" later "after many days the catalog is another"

echo "== --scrub leaves no name of a removed file"
find "$W/tree" -name 'image0012*' -delete
build "$image" --scrub >"$W/scrubbed"
only_daily
[ "$(deltas)" = 0 ] || fail "after --scrub there are $(deltas) deltas"
is_all after-scrub
"$GRANARY" verify --deep --quiet "$image" || fail "after --scrub the image is not whole"
is_as_full "$image" scrubbed "after --scrub the catalog is another"
