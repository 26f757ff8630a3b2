#!/bin/bash
# Tars that are odd, damaged or made to do harm: what tar -x makes a tree of is that tree in the image, all else is
# refused by one sentence that names the shard, and nothing of it published.
. "$(dirname "$0")/../lib.sh"

command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
command -v dump.erofs >/dev/null || skip "no dump.erofs here (apt-get install erofs-utils)"
python3 "$GRANARY_SOURCE/tests/tools/hostile_tar.py" "$W" || fail "no tars"
umask 022

# links_below DIR: each further name of a file, and the first one in byte order
links_below() {
    (cd "$1" && LC_ALL=C find . -mindepth 1 ! -type d -links +1 -printf '%i %P\n') | LC_ALL=C sort -k2 |
        awk '{ i = $1; sub(/^[0-9]+ /, "") } i in first { print $0 " link to " first[i]; next } { first[i] = $0 }'
}
links_in() { "$GRANARY" ls -lR "$1" | sed -n 's/^[^ ]* *[^ ]* [^ ]* *[^ ]* [^ ]* \(.* link to .*\)/\1/p'; }

# All that are sound, each below a directory of its name
"$GRANARY" build --quiet --tar-dirs "tar:$W/same" "$W/store/same" >"$W/out" 2>&1 || { cat "$W/out"; fail "build"; }
"$GRANARY" export --quiet "$W/store/same" "$W/image"
fsck.erofs --extract="$W/back" "$W/image" >/dev/null || fail "fsck.erofs found errors"
for shard in "$W"/same/*.tar; do
    name=$(basename "$shard" .tar)
    mkdir -p "$W/tree/$name"
    tar -C "$W/tree/$name" -xpf "$shard" 2>"$W/out" || { cat "$W/out"; fail "tar -x does not take $name"; }
    rmdir "$W/tree/$name" 2>/dev/null || true # a shard without members has no directory
done
"$TREECMP" --ignore mtime,nlink,links "$W/tree" "$W/back" || fail "tar -x makes another tree"
times() { (cd "$1" && find . -type f -printf "%P %T@\n" | sort); }
diff <(times "$W/tree") <(times "$W/back") || fail "times"
links_below "$W/tree" >"$W/links-tree"
links_in "$W/store/same" >"$W/links-image"
[ -s "$W/links-tree" ] || fail "no hard links were made"
diff "$W/links-tree" "$W/links-image" || fail "hard links"
inode() { dump.erofs --path="$1" "$W/image" | grep -oE 'NID: [0-9]+|Links: [0-9]+' | xargs; }
[ "$(inode /link/a)" = "$(inode /link/z)" ] && [ "$(inode /link/m)" = "$(inode /link/z)" ] || fail "several inodes: $(inode /link/a), $(inode /link/z)"
[[ $(inode /link/z) = *"Links: 3"* ]] || fail "the count of links: $(inode /link/z)"
"$GRANARY" verify --deep --quiet "$W/store/same" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify"; }
digest=$(digest_of "$W/store/same")
"$GRANARY" build --quiet --tar-dirs "tar:$W/same" "$W/store/same" >"$W/out" 2>&1 || { cat "$W/out"; fail "rebuild"; }
[ "$(digest_of "$W/store/same")" = "$digest" ] || fail "a rebuild of the same shards gives another image"

# What would be lost or wrong
[ "$(wc -l <"$W/sentences")" -ge 30 ] || fail "few tars"
while IFS=$'\t' read -r name sentence; do
    shard=$W/refused/$name
    "$GRANARY" build --quiet "tar:$shard" "$W/store/refused" >"$W/out" 2>&1 && fail "$name was accepted"
    [ "$(wc -l <"$W/out")" = 1 ] || { cat "$W/out"; fail "$name: not one line"; }
    grep -qF -- "$sentence" "$W/out" || { cat "$W/out"; fail "$name: not '$sentence'"; }
    grep -qF -- "$name" "$W/out" || { cat "$W/out"; fail "$name is not named"; }
done <"$W/sentences"
mkdir "$W/cut"
tar -C "$W/tree" -cf - link sparse-pax | zstd -q >"$W/whole.tar.zst"
head -c $(($(stat -c %s "$W/whole.tar.zst") - 5)) "$W/whole.tar.zst" >"$W/cut/cut.tar.zst"
"$GRANARY" build --quiet "tar:$W/cut" "$W/store/refused" >"$W/out" 2>&1 && fail "a cut zstd stream was accepted"
grep -qF "cut.tar.zst is damaged, or no tar of its name's kind: the packed stream is cut short" "$W/out" || fail "$(cat "$W/out")"
"$GRANARY" images "$W/store" >"$W/out"
! grep -q refused "$W/out" || fail "a failed build published something"

# Patterns and names that are left out
"$GRANARY" build --quiet --exclude /z "tar:$W/same/link.tar" "$W/store/part" >"$W/out" 2>&1 && fail "a link whose target is left out"
grep -qF "link.tar: 'a': 'a' is a hard link to 'z'" "$W/out" || fail "$(cat "$W/out")"
"$GRANARY" build --quiet --exclude /z --exclude /a --exclude /m "tar:$W/same/link.tar" "$W/store/part" >"$W/out" 2>&1 || fail "$(cat "$W/out")"
[ "$("$GRANARY" ls -R "$W/store/part" | xargs)" = good ] || fail "left out: $("$GRANARY" ls -R "$W/store/part")"
"$GRANARY" build --quiet --exclude /a "tar:$W/refused/link-missing.tar" "$W/store/part" >"$W/out" 2>&1 || fail "$(cat "$W/out")"
"$GRANARY" build --quiet --skip-bad-names --json "tar:$W/refused/component.tar" "$W/store/part" >"$W/out" 2>"$W/warned" || fail "$(cat "$W/warned")"
[ "$(jq .names_skipped "$W/out")" = 1 ] || fail "counted: $(cat "$W/out")"
python3 - "$W/bad-target.tar" <<'END'
import sys, tarfile
with tarfile.open(sys.argv[1], "w") as tar:
    def add(name, **fields):
        member = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(member, field, value)
        tar.addfile(member)
    bad = "x" * 256
    add(bad)
    add("one", type=tarfile.LNKTYPE, linkname=bad)
    add("two", type=tarfile.LNKTYPE, linkname="one")
    add("good")
    add("good-too", type=tarfile.LNKTYPE, linkname="good")
END
"$GRANARY" build --quiet --skip-bad-names --json "tar:$W/bad-target.tar" "$W/store/part" >"$W/out" 2>"$W/warned" || fail "$(cat "$W/warned")"
[ "$(jq .names_skipped "$W/out")" = 3 ] || fail "counted: $(cat "$W/out")"
[ "$(links_in "$W/store/part" | xargs)" = "good-too link to good" ] || fail "links to what was left out"
grep -q "left out: a hard link to a name that was left out: 'two'" "$W/warned" || fail "$(cat "$W/warned")"
mkdir "$W/sub"
tar -C "$W/tree/link" --transform 's,^,sub/,' -cf "$W/sub/x.tar" a m z good
"$GRANARY" build --quiet --prefix-strip sub "tar:$W/sub" "$W/store/part" >"$W/out" 2>&1 || fail "$(cat "$W/out")"
[ "$(links_in "$W/store/part" | xargs)" = "m link to a z link to a" ] || fail "stripped: $(links_in "$W/store/part")"

# devices count as in a directory, names of one too
"$GRANARY" build --quiet --json "tar:$W/devices.tar" "$W/store/special" >"$W/out" || fail "special files"
[ "$(jq .special_skipped "$W/out")" = 3 ] || fail "skipped: $(cat "$W/out")"
"$GRANARY" build --quiet --keep-special "tar:$W/devices.tar" "$W/store/special" >"$W/out" 2>&1 || fail "$(cat "$W/out")"
[ "$("$GRANARY" ls -lR "$W/store/special" | cut -c 1 | xargs)" = "c p c" ] || fail "kept: $("$GRANARY" ls -lR "$W/store/special")"
[ "$(links_in "$W/store/special")" = "second link to null" ] || fail "kept: $("$GRANARY" ls -lR "$W/store/special")"
