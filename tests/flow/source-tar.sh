#!/bin/bash
# Tar shards as a source: plain, gzip and zstd, one, numbered sets, directories, from disk and from a web server; each
# read once; hard links; ext4; rebuilds, which use freed room again; what a stream cannot do is refused.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-source.sh"

command -v nginx >/dev/null || skip "no nginx here (apt-get install nginx-light)"

# Everything a tar may hold, in each kind of shard
mkdir -p "$W/tree/sub" "$W/tree/ü"
for i in $(seq 100); do
    head -c $((RANDOM * 2)) /dev/urandom >"$W/tree/sub/$i.jpg"
    echo "label $((i % 3))" >"$W/tree/sub/$i.txt"
done
head -c 20000000 /dev/urandom >"$W/tree/large"
: >"$W/tree/no bytes"
printf 'bytes' >"$W/tree/$(printf '\377\376')"
echo unicode >"$W/tree/ü/ñ"
ln -s sub/1.jpg "$W/tree/link"
mkdir -m 700 "$W/tree/private"
chmod 600 "$W/tree/large"
truncate -s 3M "$W/tree/sparse"
echo middle >>"$W/tree/sparse"
truncate -s 6M "$W/tree/sparse"
mkdir "$W/kinds"
tar -C "$W/tree" --format=pax -cf "$W/kinds/plain.tar" .
tar -C "$W/tree" --format=pax -czf "$W/kinds/packed.tgz" --sparse .
tar -C "$W/tree" --format=gnu -cf - . | zstd -q >"$W/kinds/small.tar.zst"
for shard in plain.tar packed.tgz small.tar.zst; do
    built "${shard%%.*}" "tar:$W/kinds/$shard"
    diff -r --no-dereference "$W/tree" "$W/back-${shard%%.*}" || fail "$shard: the image differs"
    diff <(cd "$W/tree" && find . -printf '%p %m %l %Ts\n' | sort) \
        <(cd "$W/back-${shard%%.*}" && find . -printf '%p %m %l %Ts\n' | sort) || fail "$shard: attributes"
done
built again --jobs 1 --parent none "tar:$W/kinds/plain.tar"
[ "$(digest_of "$W/store/again")" = "$(digest_of "$W/store/plain")" ] || fail "--jobs 1 gives another image"
built rules --exclude '*.jpg' --exclude /large --prefix-strip sub --exclude '/*' --include /sub "tar:$W/kinds/plain.tar"
[ "$(find "$W/back-rules" -name '*.txt' | wc -l) $(find "$W/back-rules" -type f | wc -l)" = "100 100" ] || fail "rules"
"$GRANARY" verify --deep --quiet "$W/store/small" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify"; }

# Files of several names, as a directory has them: listing and inodes are the same
mkdir "$W/names" "$W/names/d" "$W/linked"
echo body >"$W/names/z"
echo other >"$W/names/other"
head -c 300000 /dev/urandom >"$W/names/large"
: >"$W/names/empty"
ln -s z "$W/names/symlink"
for n in z large empty symlink; do ln "$W/names/$n" "$W/names/a-$n"; ln "$W/names/$n" "$W/names/d/$n"; done
find "$W/names" -exec touch -hd @1000000 {} +
(cd "$W/names" && find . -mindepth 1 ! -type d -print0 | tar -cf "$W/linked/names.tar" --null -T -)
tar -C "$W/tree" -cf "$W/linked/other.tar" sub/1.txt
mkdir "$W/names/sub"
cp -p "$W/tree/sub/1.txt" "$W/names/sub/"
touch -d "@$(stat -c %Y "$W/tree/sub/1.txt")" "$W/names/sub/1.txt"
names_are() { # names_are IMAGE: what it lists but for directories is what the directory's own image does
    diff <("$GRANARY" ls -lR "$W/store/names" | grep -v ^d) <("$GRANARY" ls -lR "$W/store/$1" | grep -v ^d) || fail "$1: names differ"
}
built names "$W/names"
built linked "tar:$W/linked"
names_are linked
diff -r --no-dereference "$W/names" "$W/back-linked" || fail "hard links: the image differs"
[ "$("$GRANARY" ls -lR "$W/store/linked" | grep -c ' link to ')" = 8 ] || fail "hard links: $("$GRANARY" ls -lR "$W/store/linked")"
tar -C "$W/tree" -cf "$W/linked/other.tar" sub/1.txt sub/2.txt # the names come from the parent's catalog now
built linked --json "tar:$W/linked"
[ "$(jq .rebuild.unchanged "$W/out")" -gt 0 ] || fail "nothing was taken from the parent: $(cat "$W/out")"
cp -p "$W/tree/sub/2.txt" "$W/names/sub/"
touch -d "@$(stat -c %Y "$W/tree/sub/2.txt")" "$W/names/sub/2.txt"
built names "$W/names"
names_are linked
built full --parent none "tar:$W/linked"
"$TREECMP" "$W/back-full" "$W/back-linked" || fail "hard links: a rebuild gives another tree"
cp "$W/linked/names.tar" "$W/more.tar"
built both --add "one=tar:$W/more.tar" --add "two=tar:$W/linked/names.tar" "tar:$W/linked/other.tar"
for dir in one two; do
    [ "$("$GRANARY" ls -lR "$W/store/both" | grep -c " $dir/.* link to $dir/")" = 8 ] || fail "links from one source into another"
done

# ext4 needs to know all before the first body: read twice, also upon a parent
if command -v e2fsck >/dev/null; then
    extracted_ext4() { # extracted_ext4 NAME: below $W/back-NAME
        "$GRANARY" export --quiet "$W/store/$1" "$W/image" >/dev/null
        e2fsck -fn "$W/image" >"$W/out" 2>&1 || { cat "$W/out"; fail "e2fsck found errors in $1"; }
        rm -rf "$W/back-$1" && mkdir "$W/back-$1"
        debugfs -R "rdump / $W/back-$1" "$W/image" >"$W/out" 2>&1
        rm -rf "$W/back-$1/lost+found"
    }
    "$GRANARY" build --quiet --fs ext4 "tar:$W/linked" "$W/store/ext" >"$W/out" 2>&1 || { cat "$W/out"; fail "ext4"; }
    extracted_ext4 ext
    diff -r --no-dereference "$W/names" "$W/back-ext" || fail "ext4: the image differs"
    names_are ext
    tar -C "$W/tree" -cf "$W/linked/other.tar" sub/1.txt sub/3.jpg
    tar -C "$W/tree" -rf "$W/linked/other.tar" sub/1.txt # twice
    "$GRANARY" build --quiet --json --fs ext4 "tar:$W/linked" "$W/store/ext" >"$W/out" 2>&1 || { cat "$W/out"; fail "ext4 again"; }
    [ "$(jq .rebuild.unchanged "$W/out")" -gt 0 ] || fail "ext4: nothing was taken from the parent: $(cat "$W/out")"
    extracted_ext4 ext
    cmp "$W/tree/sub/3.jpg" "$W/back-ext/sub/3.jpg" && cmp "$W/names/large" "$W/back-ext/d/large" || fail "ext4: a rebuild differs"
    "$GRANARY" verify --deep --quiet "$W/store/ext" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify of ext4"; }
fi

# What a shard leaves when it changes is used again: the image does not grow by rebuilds, and is what it would be anew
mkdir "$W/room"
tar -C "$W/tree" -cf "$W/room/last.tar" sub/7.txt
sizes=
for i in 1 2 3 4 5 6; do
    head -c $((2000000 + i % 2 * 10000)) /dev/urandom >"$W/changing"
    tar -C "$W" -cf "$W/room/changing.tar" changing
    [ "$i" = 1 ] && tar -C "$W/tree" -cf "$W/room/before.tar" sub/1.jpg sub/1.txt
    built room "tar:$W/room"
    cmp "$W/changing" "$W/back-room/changing" && cmp "$W/tree/sub/1.jpg" "$W/back-room/sub/1.jpg" && cmp "$W/tree/sub/7.txt" "$W/back-room/sub/7.txt" ||
        fail "rebuild $i: other bytes"
    sizes+="$("$GRANARY" inspect --json "$W/store/room" | jq .size) "
done
read -r first second rest <<<"$sizes"
[ "$second" -lt $((first + 3000000)) ] || fail "two builds: $sizes"
for size in $rest; do [ "$size" -le "$((second + 200000))" ] || fail "the image grows: $sizes"; done
"$GRANARY" verify --deep --quiet "$W/store/room" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify after rebuilds"; }

# Room that one source's shards leave, while another's that come later stay, from build 3 on with a directory
mkdir -p "$W/first" "$W/second/d"
head -c 3000000 /dev/urandom >"$W/second/d/stays"
tar -C "$W/tree" -cf "$W/first/stays.tar" sub/7.txt
tar -C "$W/second" -cf "$W/second/stays.tar" d/stays
tar -C "$W/second" -cf "$W/second/too.tar" --transform s,stays,too, d/stays
for i in 1 2 3 4; do
    head -c 3000000 /dev/urandom >"$W/changing"
    tar -C "$W" -cf "$W/first/changing.tar" changing
    [ "$i" = 3 ] && tar -C "$W/second" -cf "$W/second/stays.tar" d
    built parts --json --add "x=tar:$W/second" "tar:$W/first"
    cmp "$W/changing" "$W/back-parts/changing" && cmp "$W/tree/sub/7.txt" "$W/back-parts/sub/7.txt" &&
        cmp "$W/second/d/stays" "$W/back-parts/x/d/stays" && cmp "$W/second/d/stays" "$W/back-parts/x/d/too" ||
        fail "two sources, build $i: other bytes"
    [ $((i % 2)) = 1 ] || [ "$(jq .rebuild.unchanged "$W/out")" = 3 ] || fail "two sources, build $i: $(cat "$W/out")"
done
"$GRANARY" verify --deep --quiet "$W/store/parts" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify of two sources"; }

# Sets: WebDataset's way, three shards with keys of their own
mkdir "$W/set"
for s in 0000 0001 0002; do
    mkdir "$W/shard"
    for k in a b; do echo "$s$k" >"$W/shard/$s$k.cls"; done
    tar -C "$W/shard" -cf "$W/set/train-$s.tar" "${s}a.cls" "${s}b.cls"
    rm -r "$W/shard"
done
all="0000a.cls 0000b.cls 0001a.cls 0001b.cls 0002a.cls 0002b.cls"
built directory "tar:$W/set"
[ "$(listed directory)" = "$all" ] || fail "directory: $(listed directory)"
built range "tar:$W/set/train-{0001..0002}.tar"
[ "$(listed range)" = "0001a.cls 0001b.cls 0002a.cls 0002b.cls" ] || fail "range: $(listed range)"
built joined --add "labels=tar:$W/set/train-0001.tar" "$W/tree/sub"
[ "$(find "$W/back-joined/labels" -type f | wc -l) $(find "$W/back-joined" -name '*.jpg' | wc -l)" = "2 100" ] || fail "joined"
rm -r "$W/back-joined/labels"
diff -r "$W/tree/sub" "$W/back-joined" || fail "joined: the image differs"
cp "$W/set/train-0000.tar" "$W/set/copy.tar"
refused "--tar-dirs gives each a directory" "tar:$W/set"
built dirs --tar-dirs "tar:$W/set"
[ "$(listed dirs | wc -w)" = 12 ] && [ "$(cat "$W/back-dirs/copy/0000a.cls" "$W/back-dirs/train-0000/0000a.cls" | xargs)" = "0000a 0000a" ] ||
    fail "dirs: $(listed dirs)"
rm "$W/set/copy.tar"

# From a web server, every byte once
free_port
P=$FREE_PORT
serve_nginx "server { listen 127.0.0.1:$P; location / { root $W; autoindex on; } }"
wait_for 60 answers "$P"
# sent_of URI: bytes of that file sent so far
sent_of() { logged "$P" | awk -v file="$1" '$1 == "GET" && $2 == file { n += $3 } END { print n + 0 }'; }
built http "tar:http://127.0.0.1:$P/kinds/plain.tar"
diff -r --no-dereference "$W/tree" "$W/back-http" || fail "http: the image differs"
sent=$(sent_of /kinds/plain.tar)
[ "$sent" = "$(stat -c %s "$W/kinds/plain.tar")" ] || fail "$sent bytes were sent, the shard has $(stat -c %s "$W/kinds/plain.tar")"
built web "tar:http://127.0.0.1:$P/set"
[ "$(listed web)" = "$all" ] || fail "web: $(listed web)"

# A shard that the index names and that is not there is counted, or an error
mkdir "$W/gone"
cp "$W/set/train-0000.tar" "$W/gone/"
ln -s nowhere "$W/gone/train-0001.tar"
for fs in erofs ext4; do
    "$GRANARY" build --quiet --json --fs "$fs" "tar:http://127.0.0.1:$P/gone" "$W/store/gone" >"$W/out" 2>"$W/err" || fail "gone, $fs: $(cat "$W/err")"
    grep -qF "'train-0001.tar' was named" "$W/err" || fail "gone, $fs: nobody says what: $(cat "$W/err")"
    [ "$(jq '.listing_vanished, .counts.files' "$W/out" | xargs)" = "1 2" ] || fail "gone: $(cat "$W/out")"
done
refused "'train-0001.tar' vanished while it was listed; --strict" --strict "tar:http://127.0.0.1:$P/gone"

# A rebuild reads the shards that changed; the tree is that of a full build
sizes() { for s in 0000 0001 0002; do sent_of "/set/train-$s.tar"; done | xargs; }
before=$(sizes) web=$(digest_of "$W/store/web")
built web "tar:http://127.0.0.1:$P/set"
[ "$(digest_of "$W/store/web")" = "$web" ] || fail "another image of unchanged shards"
[ "$(sizes)" = "$before" ] || fail "unchanged shards were read again"
mkdir "$W/shard" "$W/shard/new"
echo changed >"$W/shard/0001a.cls"
ln -s 0001a.cls "$W/shard/link"
tar -C "$W/shard" -cf "$W/set/train-0001.tar" 0001a.cls link new
built web "tar:http://127.0.0.1:$P/set"
read -r a b c <<<"$before"
[ "$(sizes)" = "$a $((b + $(stat -c %s "$W/set/train-0001.tar"))) $c" ] || fail "shards read: $(sizes), before: $before"
built full --parent none "tar:http://127.0.0.1:$P/set"
"$TREECMP" "$W/back-full" "$W/back-web" || fail "a rebuild gives another tree"
[ "$(listed web)" = "0000a.cls 0000b.cls 0001a.cls 0002a.cls 0002b.cls linkl new/" ] || fail "rebuilt: $(listed web)"
before=$(sizes)
built web --exclude '*b.cls' "tar:http://127.0.0.1:$P/set"
[ "$(sizes)" != "$before" ] || fail "other rules, yet the parent's members were taken"
built web "tar:http://127.0.0.1:$P/set"
[ "$("$GRANARY" ls -R "$W/store/web" | wc -l)" = 7 ] || fail "members that were excluded before are missing"
"$GRANARY" verify --deep --quiet "$W/store/web" >"$W/out" 2>&1 || { cat "$W/out"; fail "verify of a rebuilt image"; }

# A directory in several shards, of which the newer entry goes
mkdir -p "$W/shared" "$W/one/d" "$W/two/d"
echo a >"$W/one/d/a"
echo b >"$W/two/d/b"
chmod 700 "$W/one/d"
touch -d @1000 "$W/one/d"
touch -d @2000 "$W/two/d"
tar -C "$W/one" -cf "$W/shared/one.tar" d
tar -C "$W/two" -cf "$W/shared/two.tar" d
built shared "tar:$W/shared"
rm "$W/shared/two.tar"
built shared "tar:$W/shared"
built full --parent none "tar:$W/shared"
"$TREECMP" "$W/back-full" "$W/back-shared" || fail "a directory is not what the shards say that are left"

# What an earlier build was told to leave out is an error for one that was not
rm -r "$W/shared"
mkdir "$W/shared"
touch "$W/one/only-one" "$W/one/only-other"
tar -C "$W/one" -cf "$W/shared/one.tar" d/a only-one
tar -C "$W/one" -cf "$W/shared/other.tar" d/a only-other
built shared --skip-bad-names "tar:$W/shared"
"$GRANARY" build --quiet "tar:$W/shared" "$W/store/shared" >"$W/out" 2>&1 && fail "a path that two shards have is no error"
grep -Eq "listed twice, in (one.tar and in other.tar|other.tar and in one.tar): 'd/a'" "$W/out" || fail "$(cat "$W/out")"
"$GRANARY" build --quiet --parent none --add x="tar:$W/shared" "$W/one" "$W/store/shared" >"$W/out" 2>&1 && fail "a path that two shards have is no error"
grep -Eq "listed twice, in (one.tar and in other.tar|other.tar and in one.tar): 'x/d/a'" "$W/out" || fail "$(cat "$W/out")"

# Much that is left out is passed over, and can be interrupted: the build has begun when its lease is there
python3 -c 'import sys, tarfile
member = tarfile.TarInfo("endless"); member.size = 1 << 42
header = member.tobuf(tarfile.GNU_FORMAT)
with open(sys.argv[1], "wb") as f: f.write(header); f.truncate(len(header) + member.size + 1024)' "$W/endless.tar"
background "$GRANARY" build --quiet --exclude endless "tar:$W/endless.tar" "$W/store-endless/i"
wait_for 60 bash -c "compgen -G '$W/store-endless/builds/*'"
kill -INT "$BACKGROUND_PID"
wait_for 60 bash -c "! kill -0 $BACKGROUND_PID 2>/dev/null"

# What cannot be
refused "train-0003.tar" "tar:$W/set/train-{0002..0003}.tar"
refused "there is no tar shard" "tar:$W/tree/sub"
refused "braces are for one range of numbers" "tar:$W/set/{a,b}.tar"
head -c 10000000 "$W/kinds/plain.tar" >"$W/cut.tar"
refused "cut.tar is damaged" "tar:$W/cut.tar"
{ head -c 100000 "$W/kinds/packed.tgz"; head -c 100000 /dev/zero; } >"$W/bad.tgz"
refused "bad.tgz is damaged" "tar:$W/bad.tgz"
# one bit within what is stored, past which the tar goes on: gzip's checksum alone knows; zstd has one too
flip() { # flip FROM TO OFFSET: a copy with that byte changed
    cp "$1" "$2"
    python3 -c 'import sys; f = open(sys.argv[1], "rb"); f.seek(int(sys.argv[2])); sys.stdout.buffer.write(bytes([f.read(1)[0] ^ 1]))' \
        "$1" "$3" | dd of="$2" bs=1 seek="$3" conv=notrunc status=none
}
head -c 300000 /dev/urandom >"$W/tree/noise"
tar -C "$W/tree" -czf "$W/noise.tgz" noise
tar -C "$W/tree" -cf - noise | zstd -q --check >"$W/noise.tar.zst"
flip "$W/noise.tgz" "$W/flipped.tgz" 150000
flip "$W/noise.tar.zst" "$W/flipped.tar.zst" 150000
refused "flipped.tgz is damaged" "tar:$W/flipped.tgz"
refused "flipped.tar.zst is damaged" "tar:$W/flipped.tar.zst"
cat "$W/noise.tgz" "$W/noise.tgz" >"$W/two.tgz" # two streams, the first tar ends the archive
built two "tar:$W/two.tgz"
cp "$W/kinds/packed.tgz" "$W/other.tar"
refused "other.tar is damaged, or no tar of its name's kind" "tar:$W/other.tar"
tar -C "$W/tree" -cPf "$W/up.tar" ../tree/link
refused "has '..' in its path" "tar:$W/up.tar"
echo 0000a.cls >"$W/list"
refused "can only be listed as a whole" --files-from "$W/list" "tar:$W/set"
nothing_refused_is_there
