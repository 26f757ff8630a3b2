#!/bin/bash
# ./quickstart on a small directory, with the programs of this build tree in place of those that it would build, and
# the commands that it says do the same by hand.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tools/packages.sh"

needs_fuse
[ -z "$(packages_missing build run)" ] || skip "./quickstart would install packages here (apt-get install $(packages_missing build run | xargs))"

mkdir -p "$W/tree/tools" "$W/tree/build-quickstart/tests/tools" "$W/bin" "$W/data/below"
cp "$GRANARY_SOURCE/quickstart" "$W/tree/"
cp "$GRANARY_SOURCE/tools/packages.sh" "$W/tree/tools/"
ln -s "$GRANARY_BUILD/cli" "$W/tree/build-quickstart/cli"
ln -s "$TREECMP" "$W/tree/build-quickstart/tests/tools/treecmp"
printf '#!/bin/sh\n' >"$W/bin/cmake"
printf '#!/bin/sh\nexit 1\n' >"$W/bin/modprobe" # a driver that comes and goes would be noticed by other tests
chmod +x "$W"/bin/*
for i in {1..20}; do head -c $((i * 9973)) /dev/urandom >"$W/data/below/$i"; done
ln -s below/1 "$W/data/link"

echo "== it shows every step, and leaves nothing"
mkdir "$W/tmp"
(TMPDIR=$W/tmp PATH=$W/bin:$PATH "$W/tree/quickstart" "$W/data") >"$W/out" 2>&1 || fail "$(cat "$W/out")"
grep -q '^files  *20$' "$W/out" && grep -q ' hit ratio 100.0 %$' "$W/out" || fail "its figures: $(cat "$W/out")"
[ -z "$(ls "$W/tmp")" ] && [ -z "$(own_servers)" ] || fail "it left something: $(ls "$W/tmp"; own_servers)"

echo "== what it says to do by hand"
sed -n '/^== To do it by hand/,/^(all of this/p' "$W/out" | sed '1d;$d' |
    sed "s,/var/tmp/granary,$W/hand,g; s,/mnt/demo,$W/mnt,g; /^granary umount/i diff -r $W/data $W/mnt" >"$W/commands"
[ "$(wc -l <"$W/commands")" -ge 7 ] || fail "hardly any commands: $(cat "$W/commands")"
bash -euxo pipefail "$W/commands" >"$W/out" 2>&1 || fail "$(cat "$W/out")"
