#!/bin/bash
# Web servers as sources: nginx's index pages as HTML and as JSON, Apache's fancy index, lists with sizes and digests,
# files that change, servers that refuse.
. "$(dirname "$0")/../lib.sh"

command -v nginx >/dev/null || skip "no nginx here (apt-get install nginx-light)"
command -v apache2 >/dev/null || skip "no Apache here (apt-get install apache2-bin)"
command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
unset http_proxy https_proxy

# No umlaut outside UTF-8 in the tree for Apache: its index is in one character set
mkdir -p "$W/tree/many" "$W/tree/odd/a+b"
for i in $(seq 300); do echo "file $i" >"$W/tree/many/$i"; done
head -c 20000000 /dev/urandom >"$W/tree/large" # two parts
mkdir -p "$W/part/dead" "$W/part/there"
echo x | tee "$W/part/there/x" >"$W/part/dead/y"
echo space >"$W/tree/odd/with space"
echo percent >"$W/tree/odd/100%41"
echo plus >"$W/tree/odd/a+b/c&d=e"
echo unicode >"$W/tree/odd/ü"
echo quotes >"$W/tree/odd/'\"<>&;#?"
: >"$W/tree/odd/no bytes"
touch -d 2020-02-03T04:05:06Z "$W/tree/large"

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
P=$((20000 + RANDOM % 10000))
while taken "$P" || taken $((P + 1)); do P=$((P + 2)); done
{
    echo "user root; worker_processes 1; pid $W/nginx.pid; error_log $W/error.log; events { worker_connections 200; }"
    echo "http { access_log $W/access.log; client_body_temp_path $W/t1; proxy_temp_path $W/t2; fastcgi_temp_path $W/t3;"
    echo "uwsgi_temp_path $W/t4; scgi_temp_path $W/t5; server { listen 127.0.0.1:$P; "
    echo "location /html/ { alias $W/tree/; autoindex on; }"
    echo "location /json/ { alias $W/tree/; autoindex on; autoindex_format json; }"
    echo "location /bare/ { alias $W/tree/; autoindex on; etag off; add_header Last-Modified ''; max_ranges 0; }"
    echo "location /part/ { alias $W/part/; autoindex on; } location /part/dead/ { return 404; }"
    echo "location /page/ { default_type text/html; return 200 '<html><title>Welcome</title><a href=x>x</a></html>'; }"
    echo "location /moved/ { return 302 http://127.0.0.1:1/elsewhere/; } location /forbidden/ { deny all; } } }"
} >"$W/nginx.conf"
background nginx -c "$W/nginx.conf" -g 'daemon off;'
M=/usr/lib/apache2/modules
cat >"$W/apache.conf" <<END
ServerName localhost
ServerRoot $W
PidFile $W/apache.pid
Listen 127.0.0.1:$((P + 1))
DocumentRoot $W/tree
ErrorLog $W/apache.log
LoadModule mpm_event_module $M/mod_mpm_event.so
LoadModule authz_core_module $M/mod_authz_core.so
LoadModule dir_module $M/mod_dir.so
LoadModule alias_module $M/mod_alias.so
LoadModule autoindex_module $M/mod_autoindex.so
Alias /fancy/ $W/tree/
<Directory $W/tree>
    Options +Indexes
    IndexOptions FancyIndexing HTMLTable IconsAreLinks Charset=UTF-8
    AddIcon /icons/x.gif ^^DIRECTORY^^
    DefaultIcon /icons/y.gif
    Require all granted
</Directory>
END
background apache2 -f "$W/apache.conf" -DFOREGROUND
wait_for 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$P"
wait_for 20 bash -c "exec 3<>/dev/tcp/127.0.0.1/$((P + 1))"
N=http://127.0.0.1:$P A=http://127.0.0.1:$((P + 1))

# built NAME SOURCE OPTION...: an image, extracted below $W/back-NAME
built() {
    local name=$1
    shift
    "$GRANARY" build --quiet "$@" "$W/store/$name" >"$W/out" 2>&1 || { cat "$W/out" >&2; fail "build of $name"; }
    "$GRANARY" export --quiet "$W/store/$name" "$W/image" >/dev/null
    fsck.erofs --extract="$W/back-$name" "$W/image" >/dev/null || fail "fsck.erofs found errors in $name"
}
# refused SENTENCE-PART OPTION...
refused() {
    local part=$1
    shift
    "$GRANARY" build --quiet "$@" "$W/store/refused" >"$W/out" 2>&1 && fail "accepted: $*"
    grep -qF -- "$part" "$W/out" || { cat "$W/out" >&2; fail "$*: not '$part'"; }
}

for kind in "html $N/html" "json $N/json/" "apache $A/fancy/" "bare $N/bare/"; do
    read -r name url <<<"$kind"
    [ "$name" != bare ] || mv "$W/tree/large" "$W/large" # without ranges a file of several parts cannot be read
    built "$name" "$url"
    diff -r "$W/tree" "$W/back-$name" || fail "$name: the image differs from the tree"
    [ "$name" = bare ] || [ "$(stat -c %Y "$W/back-$name/large")" = 1580702706 ] || fail "$name: time"
    [ "$(stat -c %a "$W/back-$name/many/1" "$W/back-$name/many" | xargs)" = "644 755" ] || fail "$name: modes"
done
mv "$W/large" "$W/tree/large"
[ "$(grep -c 'HEAD /json/' "$W/access.log")" = 0 ] || fail "the JSON index says it all, yet files were asked for"
[ "$(grep -c 'GET /json/many/ ' "$W/access.log")" = 1 ] || fail "an index page was read twice"
built rules --exclude /many/ --exclude '/odd/*b' "$N/json/"
[ "$(grep -c 'GET /json/many/ ' "$W/access.log")" = 1 ] || fail "a directory that is left out was asked for"
[ ! -e "$W/back-rules/many" ] && [ ! -e "$W/back-rules/odd/a+b" ] && [ -e "$W/back-rules/odd/ü" ] || fail "rules"

# a directory that the index names and that is not there is left out, and counted
"$GRANARY" build --quiet "$N/part" "$W/store/part" | grep -q '^  gone when listed *1$' || fail "what is gone is not said"
"$GRANARY" build --json --quiet "$N/part" "$W/store/part" >"$W/part.json"
jq -e '.listing_vanished == 1 and .owners_unknown == 0 and .counts.files == 1' "$W/part.json" >/dev/null ||
    fail "counts: $(cat "$W/part.json")"
refused "'dead' vanished while it was listed; --strict" --strict "$N/part"

# directories that the index does not list as such are given attributes too
"$GRANARY" build --quiet --uid 1234 --gid 5 --mode 0640 --dir-mode 0711 --mtime 0 --exclude /large "$A/fancy" "$W/store/owned" >/dev/null
"$GRANARY" ls -R --json "$W/store/owned" | jq -e -s 'length > 300 and all(.[]; .uid == 1234 and .gid == 5 and .mtime == 0)' \
    >/dev/null || fail "attributes"
"$GRANARY" ls -l "$W/store/owned" | grep -q '^drwx--x--x .* many' || fail "modes: $("$GRANARY" ls -l "$W/store/owned")"

# lists
sha=$(sha256sum "$W/tree/many/7" | cut -d' ' -f1)
printf '# a comment\nmany/7\t7\t%s\n%s/html/odd/with%%20space\nodd/100%%41\nlarge\t20000000\n' "$sha" "$N" >"$W/list"
built list --files-from "$W/list" "$N/html/"
(cd "$W/back-list" && find . -type f | sort | xargs -d '\n' sha256sum) >"$W/a"
(cd "$W/tree" && sha256sum ./large ./many/7 ./odd/100%41 "./odd/with space") >"$W/b"
diff "$W/a" "$W/b" || fail "list: the image differs"
[ "$(grep -c 'HEAD /html/many/7 ' "$W/access.log")" = 1 ] || fail "size and digest are given, yet the file was asked for"
printf 'many/8\t7\t%s\n' "$sha" >"$W/list"
refused "'many/8' does not have the SHA-256 that the list of files says" --files-from "$W/list" "$N/html/"
printf 'many/8\t8\n' >"$W/list"
refused "7 bytes, the list says 8" --files-from "$W/list" "$N/html/"
printf 'none\t7\t%s\n' "$sha" >"$W/list"
refused "names 'none', which is not there" --files-from "$W/list" "$N/html/"
printf 'many/8\nnone\n' >"$W/list"
refused "1 of the paths" --files-from "$W/list" "$N/html/"
printf '%s\n' "$A/x" >"$W/list"
refused "does not lie below $N/html/" --files-from "$W/list" "$N/html/"

refused "is no index page of nginx or Apache" "$N/page/"
refused "$N/none/ is not there" "$N/none"
refused "redirects $N/moved/ to http://127.0.0.1:1/elsewhere/" "$N/moved"
refused "check its access rules" "$N/forbidden/"
[ -z "$("$GRANARY" images "$W/store" | grep refused)" ] || fail "a failed build published something"

# Nobody listens: whoever waits is told why
"$GRANARY" build --quiet http://127.0.0.1:1/data "$W/store/refused" >"$W/out" 2>"$W/waiting" &
waiting=$!
wait_for 20 grep -q "warning: source: http://127.0.0.1:1/data: .*trying again for up to 300 s" "$W/waiting"
kill -TERM "$waiting"
wait "$waiting" && fail "a build from nowhere"
[ "$(grep -c warning "$W/waiting")" = 1 ] || { cat "$W/waiting"; fail "more than one warning"; }
