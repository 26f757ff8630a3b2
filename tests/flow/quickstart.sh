#!/bin/bash
# ./quickstart on a small directory, with the programs of this build tree in place of those that it would build, and
# the commands that it gives at its end; and how far apt has come, by status lines of apt.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
. "$GRANARY_SOURCE/tools/packages.sh"

echo "== apt's progress: nothing before fifteen seconds, then how far it is"
cat >"$W/status" <<'LINES'
dlstatus:1:20.5:Retrieving file 1 of 2
Need to get 35.1 MB of archives.
pmstatus:libc6:amd64:40.1234:Unpacking libc6:amd64
pmstatus:gcc-12:62.5:Unpacking gcc-12 (amd64)
LINES
[ "$(apt_progress <"$W/status")" = "  Need to get 35.1 MB of archives." ] || fail "early: $(apt_progress <"$W/status")"
slowly() { # each line ten seconds after the one before, for a clock that apt_progress reads
    local line
    sed 's/"\$SECONDS"/"$((CLOCK += 10))"/' <(declare -f apt_progress) >"$W/slow"
    (CLOCK=$SECONDS && . "$W/slow" && apt_progress <"$W/status")
}
[[ $(slowly) = *" s: Unpacking gcc-12 (amd64), 62 %" ]] || fail "late: $(slowly)"

needs_fuse
[ -z "$(packages_missing build run)" ] ||
    skip "./quickstart would install packages here (apt-get install $(packages_missing build run | xargs))"

mkdir -p "$W/tree/tools" "$W/tree/build-quickstart/tests/tools" "$W/bin" "$W/some data/below"
cp "$GRANARY_SOURCE/quickstart" "$W/tree/"
cp "$GRANARY_SOURCE/tools/packages.sh" "$W/tree/tools/"
ln -s "$GRANARY_BUILD/cli" "$W/tree/build-quickstart/cli"
ln -s "$TREECMP" "$W/tree/build-quickstart/tests/tools/treecmp"
printf '#!/bin/sh\n' >"$W/bin/cmake"
printf '#!/bin/sh\nexit 1\n' >"$W/bin/modprobe" # a driver that comes and goes would be noticed by other tests
chmod +x "$W"/bin/*
for i in {1..20}; do head -c $((i * 9973)) /dev/urandom >"$W/some data/below/$i"; done
ln -s below/1 "$W/some data/link"
mkdir "$W/tmp"
export TMPDIR=$W/tmp PATH=$W/bin:$PATH

# left: what it left, but for the build
left() { find "$W/tmp" "$W/log" -mindepth 1 2>/dev/null; own_servers; }

echo "== it shows every step, and leaves nothing; DIR is relative to where it is called"
(cd "$W/some data" && "$W/tree/quickstart" .) >"$W/out" 2>&1 || fail "$(cat "$W/out")"
grep -q '^files  *20, ' "$W/out" && grep -q ' hit ratio 100.0 %$' "$W/out" && grep -q ': no difference$' "$W/out" ||
    fail "its figures: $(cat "$W/out")"
grep -qE "^By (FUSE, because this kernel has no nbd module|ublk, because|the kernel's nbd driver, because)" "$W/out" ||
    fail "why: $(cat "$W/out")"
[ "$(grep -cE '^granary .* since |^    cached |^    .* reads, hit ratio ' "$W/out")" = 3 ] ||
    fail "the status: $(cat "$W/out")"
[ -z "$(left)" ] || fail "it left something: $(left)"

echo "== the commands that it gives at its end: three, and how to take it down"
grep "$W/tree/build-quickstart/cli/granary [a-z]" "$W/out" >"$W/commands"
[ "$(wc -l <"$W/commands")" = 4 ] || fail "the commands: $(cat "$W/commands")"
sed -i "4i diff -r '$W/some data' '$W/tmp/granary-demo/demo'" "$W/commands"
LOGS_DIRECTORY=$W/hand bash -euxo pipefail "$W/commands" >"$W/next" 2>&1 || fail "$(cat "$W/next")"
[ -z "$(ls "$W/tmp")" ] && [ -z "$(own_servers)" ] || fail "they left something: $(left)"

echo "== it removes all when it is interrupted"
rm "$W/tree/build-quickstart/tests/tools/treecmp"
cat >"$W/tree/build-quickstart/tests/tools/treecmp" <<'SCRIPT'
#!/bin/bash
kill -INT -- -"$(ps -o pgid= $$ | tr -d ' ')"
SCRIPT
chmod +x "$W/tree/build-quickstart/tests/tools/treecmp"
status=0
setsid --wait "$W/tree/quickstart" "$W/some data" >"$W/out" 2>&1 || status=$?
[ $status = 130 ] && [ -z "$(left)" ] || fail "status $status; it left $(left): $(cat "$W/out")"
