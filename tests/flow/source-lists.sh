#!/bin/bash
# What goes into an image: patterns, a stripped prefix, several sources below different directories, other attributes.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-source.sh"

mkdir -p "$W/tree/train/a" "$W/tree/test" "$W/tree/.cache/locked"
for f in train/1.jpg train/a/2.jpg train/a/2.txt test/3.jpg .cache/x .cache/locked/y top; do echo "$f" >"$W/tree/$f"; done

built all "$W/tree"
[ "$(listed all)" = ".cache/ .cache/locked/ .cache/locked/y .cache/x test/ test/3.jpg top train/ train/1.jpg train/a/ train/a/2.jpg train/a/2.txt" ] || fail "all: $(listed all)"
built rules --exclude '.*/' --exclude '*.txt' "$W/tree"
[ "$(listed rules)" = "test/ test/3.jpg top train/ train/1.jpg train/a/ train/a/2.jpg" ] || fail "rules: $(listed rules)"
printf '# what is not wanted\n/*\n!/train\n!/test\n2.*\n!*.txt\n' >"$W/ignore"
built file --exclude-from "$W/ignore" "$W/tree"
[ "$(listed file)" = "test/ test/3.jpg train/ train/1.jpg train/a/ train/a/2.txt" ] || fail "file: $(listed file)"
built include --include '/train/' --exclude '*.txt' --exclude test "$W/tree"
[ "$(listed include)" = ".cache/ .cache/locked/ train/ train/1.jpg train/a/ train/a/2.jpg" ] || fail "include: $(listed include)"
refused "pattern 'a[': a '[' has no ']'" --exclude 'a[' "$W/tree"
refused "--exclude-from: cannot read the patterns of $W/none" --exclude-from "$W/none" "$W/tree"

# A directory that is left out is not opened: what may not be read there is no error
as_nobody() { if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --clear-groups "$@"; else "$@"; fi; }
chmod 0 "$W/tree/.cache/locked"
chmod 755 "$W"
mkdir -m 777 "$W/theirs"
! as_nobody "$GRANARY" build --quiet "$W/tree" "$W/theirs/img" >"$W/out" 2>&1 || fail "read what may not be read"
as_nobody "$GRANARY" build --quiet --exclude locked/ "$W/tree" "$W/theirs/img" >"$W/out" 2>&1 ||
    { cat "$W/out" >&2; fail "a directory that is left out was opened"; }
chmod 755 "$W/tree/.cache/locked"

built strip --prefix-strip train --exclude '/*' --include /train/ "$W/tree"
[ "$(listed strip)" = "1.jpg a/ a/2.jpg a/2.txt" ] || fail "strip: $(listed strip)"
refused "does not lie below 'train', the prefix to strip" --prefix-strip train "$W/tree"
! grep "source: .*source: " "$W/out" || fail "the source is named twice"

mkdir -p "$W/labels/deep"
echo label >"$W/labels/deep/l"
built joined --add "labels/v1=$W/labels" --add "/again/=file://$W/labels" --exclude .cache --exclude '*.jpg' "$W/tree"
[ "$(listed joined)" = "again/ again/deep/ again/deep/l labels/ labels/v1/ labels/v1/deep/ labels/v1/deep/l test/ top train/ train/a/ train/a/2.txt" ] ||
    fail "joined: $(listed joined)"
[ "$(cat "$W/back-joined/labels/v1/deep/l" "$W/back-joined/again/deep/l" "$W/back-joined/top" | xargs)" = "label label top" ] || fail "joined: bytes"
refused "where --add puts" --add "train=$W/labels" "$W/tree"
refused "is not DIR=SOURCE" --add "$W/labels" "$W/tree"

built other --uid 1234 --gid 70000 --mode 0604 --dir-mode 0711 --mtime 2001-02-03T04:05:06Z "$W/tree"
"$GRANARY" ls -R --json "$W/store/other" | jq -e -s 'all(.[]; .uid == 1234 and .gid == 70000 and .mtime == 981173106
    and .mtime_nsec == 0)' >/dev/null || fail "attributes"
[ "$(stat -c %a "$W/back-other/top" "$W/back-other/train" | xargs)" = "604 711" ] || fail "modes"
refused "--mode: '0999' is no mode" --mode 0999 "$W/tree"
refused "--mtime: 'yesterday' is no time" --mtime yesterday "$W/tree"

# Lists of files: a subset of a source, names on standard input
printf 'train/1.jpg\n./train//a/\n\ntop\n' >"$W/list"
built subset --files-from "$W/list" "$W/tree"
[ "$(listed subset)" = "top train/ train/1.jpg train/a/" ] || fail "subset: $(listed subset)"
[ "$(stat -c %a "$W/back-subset/train/a")" = "$(stat -c %a "$W/tree/train/a")" ] || fail "attributes of a subset"
printf 'top\nnone\nneither/x\n' >"$W/list"
refused "2 of the paths that $W/list names are not there" --files-from "$W/list" "$W/tree"
grep -q "names 'neither/x'" "$W/out" || fail "a missing path is not named"
built missing --ignore-missing --files-from "$W/list" "$W/tree"
[ "$(listed missing)" = "top" ] || fail "missing: $(listed missing)"
printf 'top\n../etc/passwd\n' >"$W/list"
refused "$W/list:2: a path with '..'" --files-from "$W/list" "$W/tree"
refused "cannot read the list of files $W/no" --files-from "$W/no" "$W/tree"
refused "-0: is about a list of files" -0 "$W/tree"
printf 'odd\nname' >"$W/tree/odd
name"
(cd "$W/tree" && find . -newer "$W/store/granary.json" -name 'odd*' -print0) >"$W/list"
(cd "$W/tree" && built stdin -0 - <"$W/list")
[ "$(cat "$W/back-stdin/odd
name" | xargs)" = "odd name" ] || fail "names that end with NUL"
printf '%s\n' "$W/tree/top" "$W/labels/deep/l" >"$W/list"
built absolute --prefix-strip "$W" - <"$W/list"
[ "$(listed absolute)" = "labels/ labels/deep/ labels/deep/l tree/ tree/top" ] || fail "absolute: $(listed absolute)"
refused "absolute and relative paths are mixed" - < <(printf '/a\nb\n')
refused "standard input is empty" - </dev/null
nothing_refused_is_there
