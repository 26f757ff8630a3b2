#!/bin/bash
# follow=: an export's name stays while its tag moves. Connections keep the version that they opened, new ones get the
# newest; going back, a store that is away or lacks a pack, a server that is killed, and the bound of versions.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nbdinfo nbdcopy jq curl minisign; do command -v $tool >"$W/null" || skip "no $tool here (apt-get install libnbd-bin jq curl minisign)"; done

mkdir "$W/tree"
head -c 6000000 /dev/urandom >"$W/tree/same"
cat >"$W/hook" <<HOOK
#!/bin/sh
echo "\$GRANARY_EVENT \$GRANARY_EXPORT \$GRANARY_DIGEST \$GRANARY_BEFORE \$GRANARY_VERSION" >>"$W/hooked"
HOOK
chmod +x "$W/hook"
: >"$W/hooked"
: >"$W/server.err"
declare -A DIGESTS SUMS
# make N: another version, as tag vN; DIGESTS and SUMS have what it is
make() {
    local parent=()
    [ "$1" = 1 ] || parent=(--parent "$W/store/faces:v$(($1 - 1))")
    head -c 1000000 /dev/urandom >"$W/tree/new"
    "$GRANARY" build -q "${parent[@]}" "$W/tree" "$W/store/faces:v$1" >"$W/built"
    DIGESTS[$1]=$(digest_of "$W/store/faces:v$1")
    "$GRANARY" export -q "$W/store/faces:v$1" "$W/image"
    SUMS[$1]=$(sha256sum "$W/image" | cut -d' ' -f1)
}
move() { "$GRANARY" tag "$W/store/faces:v$1" daily >"$W/out"; }
publish() { make "$1" && move "$1"; }
WORDS=(follow="$W/store/faces:daily" poll=1s keep-versions=2 hook="$W/hook" cache="$W/cache:64M"
    control="$W/control" exports="$W/exports" timeout=2s)
serve() {
    rm -f "$W/sock"
    cat "$W/server.err" >>"$W/servers.err"
    serve_unix "$W/sock" "${WORDS[@]}" 2>"$W/server.err"
}
killed() {
    kill -9 "$SERVER_PID"
    wait "$SERVER_PID" || true
}
uri() { echo "nbd+unix:///$1?socket=$W/sock"; }
named() { nbdinfo --json "$(uri faces)" | jq -r '.exports[0].description' | sed 's/.* image \([^ ]*\).*/\1/'; } 2>>"$W/named.err"
shows() { [ "$(named)" = "${DIGESTS[$1]}" ]; }
metric() { metrics "$W/control" | sed -n "s/^granary_follow_$1{dir=\"faces\"} //p"; }
versions() { curl -sS --unix-socket "$W/control" http://granary/status | jq '[.exports[].name] | length'; }
says() { grep -qF "$1" "$W/server.err"; }
behind() { [ "$(metric behind_seconds)" -gt 0 ]; }
caught_up() { [ "$(metric behind_seconds)" = 0 ]; }
# copied N [EXPORT]: a new connection gets every byte of version N
copied() {
    nbdcopy "$(uri "${2-faces}")" "$W/copy" && [ "$(sha256sum "$W/copy" | cut -d' ' -f1)" = "${SUMS[$1]}" ] ||
        fail "wrong byte in version $1"
}
# hold NAME EXPORT; held NAME N; let_go NAME: a connection that stays open, and reads all of version N. The pipes are
# opened for both directions, which waits for nobody.
hold() {
    local in out line
    mkfifo "$W/$1.in" "$W/$1.out"
    exec {in}<>"$W/$1.in" {out}<>"$W/$1.out"
    # by a shell: bash gives a process in the background /dev/null, whatever the function's standard input is
    background sh -c 'exec python3 "$0" "$1" "$2" <"$3.in" >"$3.out" 2>"$3.err"' "$GRANARY_SOURCE/tests/flow/lib-nbd-hold.py" \
        "$W/sock" "$2" "$W/$1"
    eval "$1_in=$in $1_out=$out $1_pid=$BACKGROUND_PID"
    answer "$1"
    [ "$line" = connected ] || fail "$1 does not connect: $line"
}
answer() {
    local out=$1_out pid=$1_pid part
    line=
    until read -r -t 1 -u "${!out}" part; do # what came before the time was up is gone from the pipe
        line+=$part
        kill -0 "${!pid}" 2>"$W/null" || fail "the connection $1 ended: $(cat "$W/$1.err")"
    done
    line+=$part
}
held() {
    local in=$1_in line
    echo sum >&"${!in}"
    answer "$1"
    [ "$line" = "${SUMS[$2]}" ] || fail "wrong byte: the connection $1 has not version $2 any more, but $line"
}
let_go() {
    local in=$1_in pid=$1_pid
    echo end >&"${!in}"
    wait "${!pid}" || fail "$(cat "$W/$1.err")"
}

echo "== the tag moves while a client reads"
publish 1
serve
shows 1 || fail "$(named)"
hold first faces
held first 1
packs() { find "$W/store/packs" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }'; }
before=$(counter_of "$W/control" store_get_bytes_total)
delta=$(packs)
publish 2
wait_for 60 shows 2
held first 1
copied 2
fetched=$(($(counter_of "$W/control" store_get_bytes_total) - before)) delta=$(($(packs) - delta))
[ $fetched -ge $delta ] && [ $((fetched * 10)) -le $((delta * 12)) ] || fail "$fetched bytes were fetched for $delta new ones"
echo "$fetched bytes were fetched for $delta new ones"
[ "$(metric switches_total) $(metric behind_seconds) $(metric versions)" = "1 0 2" ] || fail "$(metrics "$W/control" | grep follow)"
"$GRANARY" status --quick "$W/control" >"$W/status"
grep -qFx "  export faces  $W/store/faces:daily, ${DIGESTS[2]}" "$W/status" || fail "$(cat "$W/status")"
grep -qFx "    2 versions, 1 change" "$W/status" || fail "$(cat "$W/status")"
wait_for 60 grep -qFx "switched faces ${DIGESTS[2]} ${DIGESTS[1]} faces@${DIGESTS[2]}" "$W/hooked"
nbdinfo --list "$(uri '')" | grep -F 'export="faces":' >"$W/null" || fail "the name is not listed"

echo "== only by a version's own name may a client have several connections: these are of one version"
! nbdinfo --can multi-conn "$(uri faces)" || fail "two connections may be of two versions"
! nbdinfo --can multi-conn "$(uri '')" || fail "the same without a name"
nbdinfo --can multi-conn "$(uri "faces@${DIGESTS[1]}")" || fail "a version's own name is always the same image's"

echo "== back, and forth"
move 1
wait_for 60 shows 1
copied 1
move 2
wait_for 60 shows 2

echo "== the store is away"
mv "$W/store" "$W/away"
wait_for 60 behind
held first 1
copied 2
mv "$W/away" "$W/store"
wait_for 60 caught_up

echo "== at most two versions, and a new one as soon as one is free"
publish 3
wait_for 90 says "all 2 versions are in use"
shows 2 && [ "$(versions)" = 2 ] || fail "a third version is there"
held first 1
let_go first
wait_for 60 shows 3
copied 3
[ "$(versions)" = 2 ] || fail "$(versions) versions"
! nbdinfo --size "$(uri "faces@${DIGESTS[1]}")" 2>"$W/null" || fail "the version that nobody uses is still there"

echo "== the store loses a pack during the switch: the name stays, what was shown is read on"
hold second faces
find "$W/store" -type f | sort >"$W/files"
make 4
find "$W/store" -type f -size +900k | sort | comm -13 "$W/files" - >"$W/packs"
[ "$(wc -l <"$W/packs")" = 1 ] || fail "not one new pack: $(cat "$W/packs")"
mv "$(cat "$W/packs")" "$W/pack"
move 4
wait_for 90 says "changed chunks are not cached yet"
shows 3 || fail "a version is shown that is not cached: $(named)"
held second 3
copied 3

echo "== killed then: what a client had is there by its own name, and never another's"
killed
serve
copied 3 "faces@${DIGESTS[3]}"
mv "$W/pack" "$(cat "$W/packs")"
wait_for 90 shows 4
copied 4
copied 3 "faces@${DIGESTS[3]}"

echo "== killed, and the tag moves meanwhile: versions are kept until their clients had time to come back"
killed
publish 5
make 6
serve
shows 5 || fail "after the start: $(named)"
copied 3 "faces@${DIGESTS[3]}"
copied 4 "faces@${DIGESTS[4]}"
move 6
wait_for 60 says "versions are" # kept after the start, or in use: these clients have just left
wait_for 90 shows 6
copied 6
copied 5 "faces@${DIGESTS[5]}"
! nbdinfo --size "$(uri "faces@${DIGESTS[3]}")" 2>"$W/null" || fail "an old version was not let go"
[ "$(versions)" = 2 ] || fail "$(versions) versions"

echo "== killed, and the store is away at the start: all versions are there, and the name leads where it led"
move 5
wait_for 60 shows 5
killed
mv "$W/store" "$W/away"
serve
copied 5
copied 5 "faces@${DIGESTS[5]}"
nbdinfo --size "$(uri "faces@${DIGESTS[6]}")" >"$W/null" || fail "version 6 is gone"
mv "$W/away" "$W/store"

echo "== killed, and the tag is gone at the start: all versions are there, and the name leads nowhere until it is back"
killed
tag=$(find "$W/store" -type f -name 'daily*')
[ -f "$tag" ] || fail "not one tag: $tag"
mv "$tag" "$W/tag"
serve
says "leads nowhere yet" || fail "$(tail "$W/server.err")"
! nbdinfo --size "$(uri faces)" 2>"$W/null" || fail "the name leads somewhere"
copied 5 "faces@${DIGESTS[5]}"
nbdinfo --list "$(uri '')" | grep -F "export=\"faces@${DIGESTS[6]}\":" >"$W/null" || fail "version 6 is not listed"
mv "$W/tag" "$tag"
wait_for 60 shows 5

echo "== an end does not wait for a hook"
echo '[ "$GRANARY_EVENT" = waiting ] || exec sleep 600' >>"$W/hook"
publish 7
wait_for 90 grep -q "^switched faces ${DIGESTS[7]}" "$W/hooked"
kill "$SERVER_PID"
wait "$SERVER_PID" || fail "exit $?: $(tail "$W/server.err")"
says "did not end before this process" || fail "the hook's 60 seconds were waited for: $(tail "$W/server.err")"
! grep -hE "wrong|corrupt" "$W/servers.err" "$W/server.err" || fail "the log above"

echo "== the same by granary serve: two names, each its own tag; the front end is killed"
sed -i '$d' "$W/hook"
"$GRANARY" build -q "$W/tree" "$W/store/again:daily" >"$W/built"
"$GRANARY" export -q "$W/store/again:daily" "$W/image"
SUMS[again]=$(sha256sum "$W/image" | cut -d' ' -f1)
background "$GRANARY" serve --follow --poll 1s --keep-versions 2 --hook "$W/hook" --cache "$W/cache:64M" \
    --control "$W/control" --socket "$W/sock" --timeout 2s "$W/store/faces:daily" "$W/store/again:daily" 2>>"$W/serve.err"
front_pid=$BACKGROUND_PID
answers() { nbdinfo --size "$(uri faces)" >"$W/null" 2>&1; }
wait_for 60 answers
shows 7
copied again again
! nbdinfo --can multi-conn "$(uri faces)" || fail "granary-nbd: two connections may be of two versions"
nbdinfo --can multi-conn "$(uri "faces@${DIGESTS[7]}")" || fail "granary-nbd: a version's own name"
hold third faces
publish 8
wait_for 60 shows 8
held third 7
copied 8
copied again again
nbdinfo --list "$(uri '')" | grep -F 'nbd+unix:///again?' >"$W/null" || fail "the name is not listed"
pkill -9 -P "$front_pid" granary-nbd
wait_for 60 shows 8
copied 7 "faces@${DIGESTS[7]}"
copied 8
copied again again
kill "$front_pid"
wait "$front_pid" || fail "exit $?: $(tail "$W/serve.err")"

echo "== with a trusted key: a version that it has not signed is not shown; killed, without the store, both are there"
minisign -G -W -p "$W/key.pub" -s "$W/key.key" >"$W/out"
signed() { "$GRANARY" sign "$W/store/faces:daily" --key "$W/key.key" >"$W/out"; }
move 1
signed
WORDS=(follow="$W/store/faces:daily" poll=1s cache="$W/cache2:64M" control="$W/control" exports="$W/exports2" timeout=2s
    trust="$W/key.pub")
serve
shows 1 || fail "$(named)"
copied 1
move 2
wait_for 90 says "has no signature"
shows 1 || fail "a version without a signature is shown"
signed
wait_for 90 shows 2
copied 2
killed
mv "$W/store" "$W/away"
serve
shows 2 || fail "$(named)"
copied 1 "faces@${DIGESTS[1]}"
mv "$W/away" "$W/store"

echo "== the same after going back"
move 1
signed
wait_for 90 shows 1
killed
mv "$W/store" "$W/away"
serve
shows 1 || fail "the tables lead to another version than before: $(named)"
copied 2 "faces@${DIGESTS[2]}"
mv "$W/away" "$W/store"

echo "== the same, and the tag names a version at the start that the key has not signed"
killed
move 3
serve
says "leads nowhere yet" || fail "$(tail "$W/server.err")"
copied 2 "faces@${DIGESTS[2]}"
signed
wait_for 60 shows 3
kill "$SERVER_PID"
wait "$SERVER_PID" || fail "exit $?: $(tail "$W/server.err")"

echo "== what is refused"
refused_by() {
    ! timeout 60 nbdkit -f -t 64 -U "$W/no" "$PLUGIN" "${@:2}" 2>"$W/err" && grep -qF -- "$1" "$W/err" || fail "$(cat "$W/err")"
}
refused_by "give a tag" follow="$W/store/faces@${DIGESTS[3]}"
refused_by "two images would be exported as 'faces'" follow="$W/store/faces:daily" follow="$W/store/faces:v1"
printf 'granary added exports 1\nmounts\0faces\0%s\0' "$W/store/faces@${DIGESTS[1]}" >"$W/taken"
cp "$W/taken" "$W/taken.before"
refused_by "'faces' cannot follow a tag here" follow="$W/store/faces:daily" exports="$W/taken"
cmp "$W/taken" "$W/taken.before" || fail "the mounts' export is forgotten"
refused_by "absolute path" follow="$W/store/faces:daily" hook=no
refused 2 "needs --follow" "$GRANARY" serve --poll 1s "$W/store/faces:daily" --socket "$W/no"
refused 2 "only NBD clients keep a version" "$GRANARY" serve --follow --fuse "$W/no" "$W/store/faces:daily"
refused 2 "--follow needs an image" "$GRANARY" serve --follow --socket "$W/no"
refused 2 "give a tag" "$GRANARY" serve --check --follow "$W/store/faces@${DIGESTS[3]}"
refused 2 "absolute path" "$GRANARY" serve --follow --hook ./no "$W/store/faces:daily" --socket "$W/no"
