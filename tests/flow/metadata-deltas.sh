#!/bin/bash
# Daily builds whose changes are spread over the tree: chunks of metadata are deltas of older chunks, whose packs stay in
# the store for as long as an image needs them; servers, gc, copy, verify, export, join, further builds and --scrub know
# of both.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

store=$W/store
build() { "$GRANARY" build "$W/tree" "$@" --quiet --json; }
# deltas IMAGE: how many of its chunks are deltas
deltas() { "$GRANARY" inspect --json "$1" | jq .delta_chunks; }
bytes() { find "$store/packs" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }'; }

# is_as_full IMAGE WORDS: it has the files that the source has
is_as_full() {
    "$GRANARY" verify --deep --quiet "$1" >"$W/out" 2>&1 || fail "$2: $(cat "$W/out")"
    "$GRANARY" export --quiet "$1" "$W/image" >"$W/out"
    rm -rf "$W/extracted"
    fsck.erofs --extract="$W/extracted" "$W/image" >"$W/out" || fail "$2: fsck.erofs: $(cat "$W/out")"
    diff -r "$W/tree" "$W/extracted" >"$W/out" || fail "$2: wrong byte: $(head "$W/out")"
}

# is_served IMAGE: a server serves what export writes, in the cache of the images before
is_served() {
    "$GRANARY" export --quiet "$1" "$W/image" >"$W/out"
    serve_unix "$W/sock" "image=$1" "cache=$W/cache:256M" warm=metadata
    qemu-img compare -f raw -F raw "$W/image" "nbd+unix:///?socket=$W/sock" >"$W/out" || fail "wrong byte: $(cat "$W/out")"
    kill "$SERVER_PID"
    wait "$SERVER_PID" || true
    rm -f "$W/sock"
}

# only NAME: no other tag, and nothing in the store that only others need
only() {
    local tag
    for tag in $("$GRANARY" images --all --json "$store" | jq -r '.images[].tag' | grep -vx "$1"); do
        "$GRANARY" rm "$store/set:$tag" >"$W/removed"
    done
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
    "$GRANARY" gc "$store" --grace 0 >"$W/gc"
}

python3 - "$W/tree" <<'PYTHON'
import os, random, sys
r = random.Random(1)
for i in range(8000):
    folder = f"{sys.argv[1]}/class{i // 500:02d}"
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/image{i:05d}"
    with open(path, "wb") as file:
        file.write(r.randbytes(40))
    os.utime(path, (1700000000 + r.randrange(10**7), 1700000000 + r.randrange(10**7)))
PYTHON
# day: one file in 100 has other bytes
day() {
    python3 - "$W/tree" "$1" <<'PYTHON'
import glob, os, random, sys
for path in sorted(glob.glob(f"{sys.argv[1]}/*/*"))[int(sys.argv[2])::100]:
    with open(path, "wb") as file:
        file.write(random.Random(path + sys.argv[2]).randbytes(40))
    os.utime(path, (1800000000 + int(sys.argv[2]),) * 2)
PYTHON
}

# names N: one file in 100 is new, and another one gone
names() {
    python3 - "$W/tree" "$1" <<'PYTHON'
import glob, os, random, sys
day = int(sys.argv[2])
for i, path in enumerate(sorted(glob.glob(f"{sys.argv[1]}/*/*"))):
    if i % 100 == day + 20:
        with open(f"{path}.new{day}", "wb") as file:
            file.write(random.Random(path).randbytes(40))
        os.utime(f"{path}.new{day}", (1900000000 + day,) * 2)
    if i % 100 == day + 60:
        os.remove(path)
PYTHON
}

n=0
for fs in erofs ext4; do
    echo "== $fs: a day"
    build "$store/set:first" --fs $fs --parent none >"$W/first"
    [ "$(deltas "$store/set:first")" = 0 ] || fail "a build without a parent wrote deltas"
    day $((n += 1))
    before=$(bytes)
    build "$store/set:second" --fs $fs --parent "$store/set:first" >"$W/second"
    # without the bytes of the 80 files; in full are the chunks in whose place there are deltas now. 3 % is the goal.
    wrote=$(($(bytes) - before - 80 * 40)) full=$("$GRANARY" inspect --json "$store/set:second" | jq .foreign_bytes)
    echo "1 % of the files wrote $wrote bytes of metadata that takes $full in full"
    [ "$full" -ge 50000 ] && [ $wrote -gt 0 ] && [ $((100 * wrote)) -le $((3 * full)) ] || fail "$fs: that is too much, or nothing"
    [ "$(deltas "$store/set:second")" -ge 5 ] || fail "$fs: $(deltas "$store/set:second") deltas"
    [ $fs = ext4 ] || is_as_full "$store/set:second" "the second day"
    is_served "$store/set:second"

    echo "== $fs: gc keeps what deltas need"
    only second
    "$GRANARY" verify --deep --quiet "$store/set:second" >"$W/out" || fail "after gc the image is not whole"

    echo "== $fs: a copy has the bases, too"
    "$GRANARY" copy "$store/set:second" "$W/copied/set:second" --quiet >"$W/out"
    "$GRANARY" verify --deep --quiet "$W/copied/set:second" >"$W/out" || fail "the copy is not whole"

    echo "== $fs: a join reads inodes that are in deltas"
    "$GRANARY" join --at "a=$store/set:second" --at "b=$store/set:second" "$store/set:both" --quiet >"$W/out"
    "$GRANARY" verify --deep --quiet "$store/set:both" >"$W/out" || fail "the join is not whole"
    [ "$(deltas "$store/set:both")" = 0 ] || fail "a join wrote deltas"

    echo "== $fs: an unchanged source is the same image"
    build "$store/set:third" --fs $fs --parent "$store/set:second" >"$W/third"
    [ "$(jq -r .digest "$W/second")" = "$(jq -r .digest "$W/third")" ] || fail "an unchanged source is another image"

    if [ $fs = erofs ]; then
        echo "== $fs: a day of new and removed names"
        names $((n += 1))
        before=$(bytes)
        build "$store/set:names" --parent "$store/set:third" >"$W/names"
        wrote=$(($(bytes) - before - 80 * 40))
        echo "80 new and 80 removed names wrote $wrote bytes of metadata"
        [ "$wrote" -le 20000 ] || fail "that is too much"
        is_as_full "$store/set:names" "new and removed names"
    fi

    echo "== $fs: many days"
    for d in 2 3 4 5; do
        day $((n += 1))
        build "$store/set:later" --fs $fs --parent "$store/set:$([ $d = 2 ] && echo third || echo later)" >"$W/later"
    done
    only later
    [ "$(deltas "$store/set:later")" -ge 5 ] || fail "$fs: $(deltas "$store/set:later") deltas after many days"
    [ $fs = ext4 ] || is_as_full "$store/set:later" "many days"
    is_served "$store/set:later"

    echo "== $fs: --scrub leaves none"
    build "$store/set:scrubbed" --fs $fs --parent "$store/set:later" --scrub >"$W/scrubbed"
    [ "$(deltas "$store/set:scrubbed")" = 0 ] || fail "after --scrub there are $(deltas "$store/set:scrubbed") deltas"
    "$GRANARY" verify --deep --quiet "$store/set:scrubbed" >"$W/out" || fail "after --scrub the image is not whole"
    rm -rf "$store" "$W/cache" "$W/copied"
done

echo "== a missing base is named, and cannot be repaired from the source"
build "$store/set:first" >"$W/first"
pack=$(find "$store/packs" -type f -printf '%s %p\n' | sort -n | tail -1 | cut -d' ' -f2)
day $((n += 1))
build "$store/set:second" --parent "$store/set:first" >"$W/second"
mv "$pack" "$W/pack"
"$GRANARY" verify --quiet "$store/set:second" >"$W/out" 2>&1 && fail "verify finds nothing missing"
grep -q "${pack##*/}" "$W/out" || fail "verify says $(cat "$W/out")"
"$GRANARY" verify --deep --quiet "$store/set:second" >"$W/out" 2>&1 && fail "verify --deep finds nothing missing"
grep -q 'the base of a delta cannot be used' "$W/out" || fail "verify --deep says $(cat "$W/out")"
mv "$W/pack" "$pack"
is_as_full "$store/set:second" "with its pack again"
