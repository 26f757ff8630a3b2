#!/bin/bash
# The configuration file: what it says holds for servers, mounts and buckets, below the environment and the command
# line; show says from where; a wrong line is named before anything starts.
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$GRANARY_SOURCE/tests/lib.sh"
for tool in jq curl python3; do
    command -v $tool >/dev/null || skip "no $tool here (apt-get install jq curl python3)"
done

mkdir "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/one"
"$GRANARY" build -q "$W/tree" "$W/store/img" >"$W/built"
export GRANARY_CONFIG=$W/granary.conf
unset GRANARY_CACHE

# write LINE...
write() { printf '%s\n' "$@" >"$GRANARY_CONFIG"; }
# settings: every setting that has a value, "SECTION KEY VALUE FROM VARIABLE LINE"
settings() { "$GRANARY" config show --json | jq -r '.settings[] | select(.value) | [.section, .key, .value, .from, .variable // "-", .line // "-"] | join(" ")'; }
# has LINE: show has it
has() { settings >"$W/settings" && grep -qxF -- "$1" "$W/settings" || fail "no '$1' in: $(cat "$W/settings")"; }

# start NAME OPTION...: a server on $W/NAME
start() {
    local name=$1
    shift
    : >"$W/$name.out"
    background "$GRANARY" serve "$W/store/img" --socket "$W/$name" "$@" >"$W/$name.out" 2>"$W/$name.err"
    wait_for 60 grep -q "^serving " "$W/$name.out"
}
dirs() { curl -sS --fail --unix-socket "$W/$1.control" http://granary/status | jq -r '.cache_directories[] | "\(.path) \(.size)"'; }

echo "== a server takes what the command line and the environment leave open"
write '# of a test' '[server]' "cache = $W/a:64M" "cache = $W/b:128M" 'slow-read = 33s' 'cache-compressed = yes' "disk-timeout = $DISK_TIMEOUT"
start file
[ "$(dirs file)" = "$W/a 67108864"$'\n'"$W/b 134217728" ] || fail "$(dirs file)"
# runs_with WORD: the server's front end was started with it
runs_with() {
    tr '\0' '\n' <"/proc/$(pgrep -P "$BACKGROUND_PID" | tail -1)/cmdline" >"$W/words" && grep -qx -- "$1" "$W/words"
}
runs_with slow-read=33s && runs_with cache-compressed=yes || fail "$(cat "$W/words")"
sed -i 's/33s/34s/' "$GRANARY_CONFIG"
"$GRANARY" upgrade "$W/file" >"$W/upgraded" || fail "upgrade: $(cat "$W/upgraded" "$W/file.err")"
wait_for 60 runs_with slow-read=34s
end_background
GRANARY_CACHE=$W/c:64M start environment
[ "$(dirs environment)" = "$W/c 67108864" ] || fail "$(dirs environment)"
end_background
GRANARY_CACHE=$W/c:64M start options --cache "$W/d:64M" --slow-read 44s
[ "$(dirs options)" = "$W/d 67108864" ] || fail "$(dirs options)"
runs_with slow-read=44s || fail "$(cat "$W/words")"
end_background

start off --cache-compressed=no
runs_with cache-compressed=no || fail "$(cat "$W/words")"
end_background

echo "== what is for a disk cache is left out without one; a set default yields to the file"
GRANARY_CACHE=none start none
[ -z "$(dirs none)" ] || fail "$(dirs none)"
end_background
write '[server]' 'cache = none' 'warm = none # not at the start'
start warm
runs_with warm=none || fail "$(cat "$W/words")"
end_background
write '# of a test' '[server]' "cache = $W/a:64M" "cache = $W/b:128M"

echo "== show says what applies, and where it comes from"
has "server cache $W/a:64M file - 3"
has "server cache $W/b:128M file - 4"
has "server readahead 1M default - -"
export GRANARY_CACHE=$W/c:64M
has "server cache $W/c:64M environment GRANARY_CACHE -"
unset GRANARY_CACHE
! grep -q "$W/a" "$W/settings" || fail "show has a cache that does not hold"
write '[server]' 'metrics = 127.0.0.1:1' '[s3://data]' 'endpoint = https://user:hidden@host'
"$GRANARY" config show >"$W/shown"
grep -q '^metrics = 127.0.0.1:1 .*# line 2$' "$W/shown" || fail "$(cat "$W/shown")"
! grep -q hidden "$W/shown" || fail "a secret is shown: $(cat "$W/shown")"
"$GRANARY" config check >"$W/checked" || fail "check"
[ "$(cat "$W/checked")" = "$GRANARY_CONFIG: no errors in 2 settings" ] || fail "$(cat "$W/checked")"
GRANARY_CONFIG=none "$GRANARY" config show >"$W/shown"
! grep -q 'metrics = 1' "$W/shown" || fail "GRANARY_CONFIG=none: $(cat "$W/shown")"

echo "== what nothing sets is shown with its default"
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION
export AWS_CONFIG_FILE=$W/none AWS_SHARED_CREDENTIALS_FILE=$W/none
write '[server]' 'metrics = 127.0.0.1:1'
directory=$HOME/.cache/granary
[ "$(id -u)" != 0 ] || directory=/var/cache/granary
XDG_CACHE_HOME='' has "server cache $directory default - -"
AWS_REGION=eu-central-1 has "s3:// endpoint https://s3.eu-central-1.amazonaws.com default - -"
AWS_REGION=cn-north-1 has "s3:// endpoint https://s3.cn-north-1.amazonaws.com.cn default - -"
AWS_REGION='' has "s3:// endpoint https://s3.us-east-1.amazonaws.com default - -"
has "s3:// profile default default - -"
AWS_PROFILE=work AWS_ENDPOINT_URL=http://host settings >"$W/settings"
grep -qxF "s3:// profile work environment AWS_PROFILE -" "$W/settings" || fail "$(cat "$W/settings")"
grep -qxF "s3:// endpoint http://host environment AWS_ENDPOINT_URL -" "$W/settings" || fail "$(cat "$W/settings")"
"$GRANARY" config show >"$W/shown"
for setting in "cache = $directory" 'endpoint = https://s3.us-east-1.amazonaws.com' 'profile = default'; do
    grep -qE "^#$setting +# default\$" "$W/shown" || fail "no '#$setting' in $(cat "$W/shown")"
done
# restated COUNT: what show prints is a file that means the same; COUNT of these are defaults with it, too
restated() {
    "$GRANARY" config show >"$W/shown" && "$GRANARY" config check "$W/shown" >"$W/checked" || fail "$(cat "$W/shown")"
    settings | cut -d' ' -f1-3 >"$W/settings"
    GRANARY_CONFIG=$W/shown settings >"$W/restated"
    cut -d' ' -f1-3 "$W/restated" | diff "$W/settings" - || fail "it means something else: $(cat "$W/shown")"
    defaults=$(grep -cE '^(server cache|s3:// (endpoint|profile)) .* default - -$' "$W/restated")
    [ "$defaults" = "$1" ] || fail "$(cat "$W/restated")"
}
restated 3
write '[server]' 'memory = 64M'
has "server cache none default - -" # memory alone keeps nothing on a disk
restated 3
write '[server]' "cache = $W/a:64M" "cache = $W/b:1G" '[s3://]' 'profile = work' '[s3://data]' 'endpoint = http://host'
restated 1

echo "== the file that is installed sets nothing, explains every setting, and shows the defaults"
installed=$GRANARY_SOURCE/deploy/granary.conf
[ "$("$GRANARY" config check "$installed")" = "$installed: no errors in 0 settings" ]
printf 'untrusted comment: of a test\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n' >"$W/release.pub"
openssl rand -hex 32 >"$W/peer-key"
mkdir "$W/peer-tls"
touch "$W/peer-tls/ca.crt" "$W/peer-tls/tls.crt" "$W/peer-tls/tls.key"
sed -n "s|/etc/granary/release.pub|$W/release.pub|; s|/etc/granary/peer-key|$W/peer-key|; s|/etc/granary/peer-tls|$W/peer-tls|; s/^#\([a-z0-9-]* = .*\|\[.*\]\)$/\1/p; /^\[/p" "$installed" >"$W/example"
"$GRANARY" config check "$W/example" >"$W/checked" || fail "$(cat "$W/example")"
undescribed=$(awk '/^#[a-z0-9-]+ = / && explained != "# " && !($1 in seen) { print } { explained = substr($0, 1, 2); seen[$1] = 1 }' "$installed")
[ -z "$undescribed" ] || fail "no line explains $undescribed"
GRANARY_CONFIG=none "$GRANARY" config show --json | jq -r '.settings[] | "\(.section) \(.key)"' | grep -v '^s3:' | sort >"$W/keys"
GRANARY_CONFIG=$W/example "$GRANARY" config show --json >"$W/settings.json"
jq -r '.settings[] | select(.from == "file") | "\(.section) \(.key)"' "$W/settings.json" | sort -u |
    grep -v '^s3:' | diff "$W/keys" - || fail "it has other settings (>) than there are (<)"
GRANARY_CONFIG=none settings | awk '$2 != "cache" { print $1, $2, $3 }' | sort >"$W/defaults"
GRANARY_CONFIG=$W/example settings | awk '{ print $1, $2, $3 }' | sort | comm -23 "$W/defaults" - >"$W/differ"
[ ! -s "$W/differ" ] || fail "other values than these defaults: $(cat "$W/differ")"

echo "== a wrong file stops every command that would use it, with its line"
# wrong SENTENCE COMMAND...: exit 2, nothing made
wrong() {
    local sentence=$1 status=0
    shift
    "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = 2 ] || fail "exit $status from $*: $(cat "$W/err")"
    [ ! -s "$W/out" ] && [ "$(cat "$W/err")" = "granary: $sentence" ] || fail "$*: $(cat "$W/out" "$W/err")"
}
write '[server]' 'cach = /x:1G'
wrong "config check: $GRANARY_CONFIG:2: [server] has no setting 'cach'; did you mean 'cache'?" "$GRANARY" config check
wrong "config show: $GRANARY_CONFIG:2: [server] has no setting 'cach'; did you mean 'cache'?" "$GRANARY" config show
wrong "serve: $GRANARY_CONFIG:2: [server] has no setting 'cach'; did you mean 'cache'?" "$GRANARY" serve "$W/store/img" --socket "$W/none"
write '[server]' 'memory = 12Q'
wrong "config check: $GRANARY_CONFIG:2: memory 12Q: write a size of at least 16M, or 0 for none" "$GRANARY" config check
write '[server]' 'cache-compressed = maybe'
wrong "config check: $GRANARY_CONFIG:2: cache-compressed: 'maybe' is neither yes nor no" "$GRANARY" config check
write '[mount]' 'connections = 100'
wrong "config check: $GRANARY_CONFIG:2: connections: '100' is not a number from 1 to 64" "$GRANARY" config check
write '[mount]' 'nbd-timeout = 2h'
wrong "config check: $GRANARY_CONFIG: --nbd-timeout must be from 1s to 1h: without one a lost request would wait for ever" "$GRANARY" config check
write '[server]' 'endpoint = http://h'
wrong "config check: $GRANARY_CONFIG:2: [server] has no endpoint; set it in [s3://BUCKET], or in [s3://] for every bucket" "$GRANARY" config check
write '[server]' 'quota = faces:1G'
wrong "config check: $GRANARY_CONFIG:2: [server] has no quota: that is for one server; give it --quota" "$GRANARY" config check
write '[server]' 'cache = granary:64M'
wrong "config check: $GRANARY_CONFIG:2: cache: write the whole path, from / on: commands run in any directory" "$GRANARY" config check
wrong "serve: $GRANARY_CONFIG:2: cache: write the whole path, from / on: commands run in any directory" "$GRANARY" serve "$W/store/img" --socket "$W/none"
write '[server]' 'trust = key.pub'
wrong "config check: $GRANARY_CONFIG:2: trust: write the whole path, from / on: commands run in any directory" "$GRANARY" config check
write '[mount]' 'dead-timeout = 31d'
wrong "config check: $GRANARY_CONFIG: --dead-timeout must be at most 30d" "$GRANARY" config check
write '[server]' 'memory = 1G' 'warm = none' 'memory = 2G'
wrong "config check: $GRANARY_CONFIG:4: line 2 sets 'memory' already" "$GRANARY" config check
write '[mount]' 'json = yes'
wrong "config check: $GRANARY_CONFIG:2: [mount] has no setting 'json'; 'granary config show' lists them" "$GRANARY" config check
wrong "config check: cannot read $W/nothing: No such file or directory" "$GRANARY" config check "$W/nothing"
write '[server]'
chmod 622 "$GRANARY_CONFIG"
wrong "config check: $GRANARY_CONFIG is refused: other users can write it; run chown root and chmod go-w on it" "$GRANARY" config check
rm "$GRANARY_CONFIG"
wrong "config show: cannot read $GRANARY_CONFIG: No such file or directory" "$GRANARY" config show

echo "== a bucket's endpoint and profile, for stores and sources"
unset http_proxy https_proxy AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL
export AWS_CONFIG_FILE=$W/none AWS_EC2_METADATA_DISABLED=true AWS_SHARED_CREDENTIALS_FILE=$W/credentials
background python3 "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port" "lake=$W/store" "raw=$W/tree"
wait_for 60 test -s "$W/port"
url=http://127.0.0.1:$(cat "$W/port")
printf '[%s]\naws_access_key_id = %s\naws_secret_access_key = hidden\n' default OLD work NEW >"$W/credentials"
curl -sSf --noproxy '*' "$url/-/revoke" -d '{"key": "OLD"}' >"$W/null"
write '[s3://]' "endpoint = $url" '[s3://lake]' 'profile = work'
"$GRANARY" images s3://lake >"$W/images" || fail "the bucket's profile is not used"
grep -q '^img  *latest ' "$W/images" || fail "$(cat "$W/images")"
! "$GRANARY" build -q s3://raw s3://lake/raw 2>"$W/err" >"$W/out" || fail "another bucket has the profile of this one"
grep -q 's3://raw.*AWS_ACCESS_KEY_ID' "$W/err" || fail "$(cat "$W/err")"
write '[s3://]' "endpoint = $url" 'profile = work'
"$GRANARY" build -q s3://raw s3://lake/raw >"$W/built" || fail "the profile of all buckets is not used"
! AWS_PROFILE=default "$GRANARY" images s3://lake >"$W/out" 2>"$W/err" || fail "the environment does not go before the file"
dead=http://127.0.0.1:9
write '[s3://]' "endpoint = $dead" 'profile = work'
AWS_ENDPOINT_URL=$url "$GRANARY" images s3://lake >"$W/images" || fail "the file's endpoint goes before the environment's"
AWS_ENDPOINT_URL=$dead "$GRANARY" images s3://lake --endpoint "$url" >"$W/images" || fail "the option does not go before both"
AWS_ENDPOINT_URL=$url settings >"$W/settings"
grep -qxF "s3:// endpoint $url environment AWS_ENDPOINT_URL -" "$W/settings" || fail "$(cat "$W/settings")"
write '[s3://]' 'endpoint = host'
! "$GRANARY" images s3://lake 2>"$W/err" || fail "a wrong endpoint is taken"
grep -q "$GRANARY_CONFIG:2: endpoint must look like https://HOST" "$W/err" || fail "$(cat "$W/err")"
! grep -rq hidden "$W/err" "$W/out" || fail "a secret in a message"
end_background

[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "the rest needs root, /dev/fuse and /dev/loop-control"
echo "== mounts share a server without an option, and take what [mount] says"
extra_cleanup() { for d in "$W/one" "$W/two" "$W/three"; do "$GRANARY" umount --force "$d" 2>/dev/null; done; }
"$GRANARY" build -q "$W/tree" "$W/store/more" >"$W/built"
write '[server]' "cache = $W/shared:64M" "disk-timeout = $DISK_TIMEOUT" '[mount]' 'fuse = yes' 'noexec = yes' 'dead-timeout = 1h' 'connections = 2'
"$GRANARY" mount --mkdir --json "$W/store/img" "$W/one" >"$W/one.json"
"$GRANARY" mount --mkdir --json "$W/store/more" "$W/two" >"$W/two.json"
[ "$(jq -r .method "$W/one.json")" != nbd ] || fail "mounted by nbd"
[ "$(jq .server_pid "$W/one.json")" = "$(jq .server_pid "$W/two.json")" ] || fail "two servers: $(cat "$W/one.json" "$W/two.json")"
[ "$(jq -r '.caches[].path' "$W/one.json")" = "$W/shared" ] || fail "$(cat "$W/one.json")"
grep -q " $W/one [^ ]* [^ ]*noexec" /proc/self/mounts || fail "$(grep -F " $W/one " /proc/self/mounts)"
cmp "$W/tree/one" "$W/one/one"
sed -i 's/^fuse = yes/fuse = no/' "$GRANARY_CONFIG"
"$GRANARY" mount --fuse --mkdir --json "$W/store/more" "$W/three" >"$W/three.json"
[ "$(jq .server_pid "$W/one.json")" = "$(jq .server_pid "$W/three.json")" ] || fail "another server after the file was changed"
"$GRANARY" umount "$W/one"
"$GRANARY" mount --fuse --noexec=no --mkdir "$W/store/img" "$W/one" >"$W/mounted"
! grep -q " $W/one [^ ]* [^ ]*noexec" /proc/self/mounts || fail "a yes of the file cannot be undone: $(grep -F " $W/one " /proc/self/mounts)"
"$GRANARY" umount "$W/one"
"$GRANARY" umount "$W/two"
"$GRANARY" umount "$W/three"
