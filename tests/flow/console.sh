#!/bin/bash
# The console of a server that granary started: the page, its figures, who may look and act, by curl. Tokens stand in no
# command line and in no log. flow/console-browser looks at the page itself.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in curl jq ss; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install curl jq iproute2)"
done

mkdir -p "$W/tree/a"
for i in {1..40}; do head -c 300000 /dev/urandom >"$W/tree/a/$i"; done
"$GRANARY" build -q "$W/tree" "$W/store/faces:v1" >"$W/built"
openssl rand -hex 32 >"$W/token"
openssl rand -hex 32 >"$W/admin"
free_port
PORT=$FREE_PORT

# get PATH [CURL-OPTION]...: from the console
get() {
    local path=$1
    shift
    curl -sS --noproxy '*' --max-time 120 "$@" "http://127.0.0.1:$PORT$path"
}
# code PATH [CURL-OPTION]...: the answer's status
code() { get "$@" -o "$W/body" -w '%{http_code}'; }
# with_token FILE: a header, in a file for curl, whose command line is no place for it
with_token() { printf 'Authorization: Bearer %s\n' "$(cat "$1")" >"$1.header" && echo "@$1.header"; }
document() { get /api/status -H "$(with_token "$W/token")"; }
# act PATH: an action of an administrator's; its lines
act() { get "$1" -X POST -H 'Granary-Console: 1' -H "$(with_token "$W/admin")"; }

# serve OPTION...
serve() {
    : >"$W/serve.out"
    background "$GRANARY" serve "$W/store/faces:v1" --socket "$W/nbd.sock" --cache "$W/cache:64M" --warm none \
        --disk-timeout "$DISK_TIMEOUT" "$@" >"$W/serve.out" 2>"$W/serve.err"
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
read_all() { nbdcopy "nbd+unix:///faces?socket=$W/nbd.sock" null:; }

echo "== the page and its figures, on an address of this machine"
serve --console "127.0.0.1:$PORT"
[ "$(code /)" = 200 ] && grep -q '<title>Granary</title>' "$W/body" || fail "the page: $(cat "$W/body")"
size=0
files=(/ /nodes.html /console.css /console.js /nodes.js /model.js /draw.js /gate.js /actions.js /icon.svg)
for file in "${files[@]}"; do
    [ "$(code "$file")" = 200 ] || fail "$file: $(cat "$W/body")"
    size=$((size + $(stat -c %s "$W/body")))
done
[ $size -lt 102400 ] || fail "the page has $size bytes"
# It names no other place: the policy would refuse that, and a console works without internet.
for file in "${files[@]}"; do get "$file"; done |
    grep -oE '(https?:)?//[a-z0-9.-]+\.[a-z]+' | grep -vx 'http://www.w3.org' >"$W/elsewhere" || true
[ ! -s "$W/elsewhere" ] || fail "the page names $(cat "$W/elsewhere")"
get /api/status >"$W/status"
jq -e '.health == "healthy" and .exports[0].name == "faces" and .acts == false and (.hops | map(.hop)) == ["reads", "memory", "disk", "proxies", "store"]' \
    "$W/status" >"$W/null" || fail "the document: $(cat "$W/status")"
read_all
# strip_is PATTERN: of all cells
strip_is() { get /api/status >"$W/status" && jq -re '.exports[0].strip' "$W/status" | grep -Ex "$1" >"$W/null"; }
wait_for 60 strip_is '(9|-)+' || fail "a strip after all was read: $(jq -r '.exports[0].strip' "$W/status")"
jq -e '.exports[0].cached_share == 1 and .hops[0].bytes > 12000000 and .hops[4].requests > 0' "$W/status" >"$W/null" || fail "$(cat "$W/status")"
before=$(jq .saved.requests "$W/status")
read_all
saves_more() { [ "$(get /api/status | jq .saved.requests)" -gt "$before" ]; }
wait_for 60 saves_more || fail "a read that the cache served saved nothing: $(get /api/status | jq .saved)"
[ "$(code '/api/cache/evict?export=faces' -X POST -H 'Granary-Console: 1')" = 403 ] || fail "anybody acts: $(cat "$W/body")"
[ "$(code /api/status -H 'X-Forwarded-For: 10.0.0.1')" = 421 ] || fail "behind a proxy anybody may read it: $(cat "$W/body")"
[ "$(code /api/status -H 'Host: evil.example')" = 421 ] || fail "a page of another name may read it: $(cat "$W/body")"
end_background

echo "== it is not there unless it is asked for, and not for other machines without a token"
serve
! (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>"$W/null" || fail "somebody listens at $PORT"
end_background
refused() {
    ! timeout 60 "$GRANARY" serve "$W/store/faces:v1" --socket "$W/no.sock" --cache "$W/no:64M" "${@:2}" 2>"$W/err" || fail "it serves with ${*:2}"
    grep -q -- "$1" "$W/err" || fail "${*:2}: $(cat "$W/err")"
}
refused 'can be reached from other machines, so it needs a token' --console "0.0.0.0:$PORT"
refused 'console-token: .*/absent' --console "127.0.0.1:$PORT" --console-token "$W/absent"
refused 'need console=HOST:PORT' --console-token "$W/token"
echo short >"$W/short"
refused 'is no line of 16 printable characters or more; make one by: openssl rand' --console "127.0.0.1:$PORT" --console-token "$W/short"

echo "== tokens: one to look, one to act; neither is shown anywhere"
serve --console "127.0.0.1:$PORT" --console-token "$W/token" --console-admin-token "$W/admin"
[ "$(code /api/status)" = 401 ] || fail "without a token: $(cat "$W/body")"
[ "$(code /api/status -H 'Authorization: Bearer 00000000000000000')" = 401 ] || fail "with a wrong one: $(cat "$W/body")"
document | jq -e .acts >"$W/null" || fail "it takes no actions"
[ "$(code '/api/cache/evict?export=faces' -X POST -H 'Granary-Console: 1' -H "$(with_token "$W/token")")" = 401 ] || fail "who looks acts: $(cat "$W/body")"
[ "$(code '/api/cache/evict?export=faces' -X POST -H "$(with_token "$W/admin")")" = 403 ] || fail "another site's page acts: $(cat "$W/body")"
act '/api/cache/evict?export=faces' >"$W/lines"
jq -se '.[-1].result.ok and any(.image.changed_chunks > 100)' "$W/lines" >"$W/null" || fail "evict: $(cat "$W/lines")"
is_empty() { [ "$(document | jq '.exports[0].cached_share // 1')" = 0 ]; }
wait_for 60 is_empty || fail "what was evicted is there: $(document | jq .exports)"
act '/api/warm?what=all&export=faces' >"$W/lines"
jq -se '.[-1].result.ok and any(.warm.cached_bytes > 12000000)' "$W/lines" >"$W/null" || fail "warm: $(cat "$W/lines")"
act '/api/cache/pin?export=faces' >"$W/lines"
jq -se '.[-1].result.ok and any(.image.changed_chunks > 100)' "$W/lines" >"$W/null" || fail "pin: $(cat "$W/lines")"
act '/api/cache/evict?export=faces' >"$W/lines"
jq -se 'any(.image.refused_chunks > 100)' "$W/lines" >"$W/null" || fail "what is pinned was evicted: $(cat "$W/lines")"
act '/api/cache/unpin?export=faces' >"$W/lines"
act '/api/warm?what=all&export=absent' >"$W/lines"
jq -se '.[0].error | test("absent")' "$W/lines" >"$W/null" || fail "an image that is not there: $(cat "$W/lines")"
for pid in "$BACKGROUND_PID" $(pgrep -P "$BACKGROUND_PID"); do
    for token in token admin; do
        ! grep -aqF "$(cat "$W/$token")" "/proc/$pid/cmdline" "/proc/$pid/environ" || fail "the $token of process $pid is for everybody to see"
    done
done
for token in token admin; do
    ! grep -rqF "$(cat "$W/$token")" "$W/serve.out" "$W/serve.err" "$W/nbd.sock".* 2>"$W/null" || fail "the $token is in a log"
done

echo "== a server whose token is gone is not replaced"
mv "$W/token" "$W/away"
! "$GRANARY" upgrade "$W/nbd.sock" >"$W/upgraded" 2>&1 || fail "it is replaced: $(cat "$W/upgraded")"
mv "$W/away" "$W/token"
grep -q "console-token: .*$W/token" "$W/upgraded" || fail "it does not say why: $(cat "$W/upgraded")"
document | jq -e .pid >"$W/null" || fail "the console is gone"

echo "== a server that is upgraded has its console again"
"$GRANARY" upgrade "$W/nbd.sock" >"$W/upgraded" 2>&1 || fail "upgrade: $(cat "$W/upgraded")"
is_back() { document | jq -e '.health == "healthy"' >"$W/null" 2>&1; }
wait_for 60 is_back || fail "no console after the upgrade"

echo "== drain: nothing is left to write, and it serves on"
is_drained() { act /api/quiesce >"$W/lines" && jq -e '.unwritten_bytes == 0' "$W/lines" >"$W/null"; }
wait_for 60 is_drained || fail "drain: $(cat "$W/lines")"
read_all

echo "== a console that answers many who ask at once"
header=$(with_token "$W/token") # a file, which only one of them could write
for _ in {1..6}; do
    { for _ in {1..20}; do get /api/status --fail -H "$header" >"$W/null" || exit 1; done; } &
    askers+=($!)
done
for pid in "${askers[@]}"; do wait "$pid" || fail "somebody got no answer"; done
