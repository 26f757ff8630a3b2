#!/bin/bash
# Web servers as sources: nginx's index pages as HTML and as JSON, Apache's fancy index, lists with sizes and digests,
# files that change, servers that refuse.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-source.sh"

command -v nginx >/dev/null || skip "no nginx here (apt-get install nginx-light)"
command -v apache2 >/dev/null || skip "no Apache here (apt-get install apache2-bin)"

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
mkdir "$W/one" "$W/two"
echo one >"$W/one/file"
echo two >"$W/two/file"
touch -d 2020-02-03T04:05:06Z "$W/tree/large" "$W/one/file" "$W/two/file"

free_port
P=$FREE_PORT
serve_nginx "server { listen 127.0.0.1:$P;
    location /html/ { alias $W/tree/; autoindex on; }
    location /json/ { alias $W/tree/; autoindex on; autoindex_format json; }
    location /bare/ { alias $W/tree/; autoindex on; etag off; add_header Last-Modified ''; max_ranges 0; }
    location /one/ { alias $W/one/; autoindex on; } location /two/ { alias $W/two/; autoindex on; }
    location /part/ { alias $W/part/; autoindex on; } location /part/dead/ { return 404; }
    location /page/ { default_type text/html; return 200 '<html><title>Welcome</title><a href=x>x</a></html>'; }
    location /moved/ { if (\$request_uri ~ ^/moved/(.*)\$) { return 302 http://localhost:$P/part/../json/\$1; } }
    location /token/ { if (\$http_authorization != 'Bearer a-token') { return 401; } alias $W/tree/; autoindex on; }
    location /token/large { return 302 http://localhost:$P/public/large?signature=x; }
    location /password/ { auth_basic x; auth_basic_user_file $W/passwords; alias $W/tree/; autoindex on; }
    location /password/large { return 302 http://localhost:$P/public/large?signature=x; }
    location /public/ { if (\$http_authorization) { return 400; } alias $W/tree/; }
    location /loop/ { return 302 /loop/; } location /forbidden/ { deny all; } }"
free_port
M=/usr/lib/apache2/modules
cat >"$W/apache.conf" <<END
ServerName localhost
ServerRoot $W
PidFile $W/apache.pid
Listen 127.0.0.1:$FREE_PORT
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
wait_for 60 answers "$P"
wait_for 60 answers "$FREE_PORT"
N=http://127.0.0.1:$P A=http://127.0.0.1:$FREE_PORT
asked() { logged "$P" | grep -c -- "$1" || true; } # asked REQUEST: how often

for kind in "html $N/html" "json $N/json/" "apache $A/fancy/" "bare $N/bare/"; do
    read -r name url <<<"$kind"
    [ "$name" != bare ] || mv "$W/tree/large" "$W/large" # without ranges a file of several parts cannot be read
    built "$name" "$url"
    diff -r "$W/tree" "$W/back-$name" || fail "$name: the image differs from the tree"
    [ "$name" = bare ] || [ "$(stat -c %Y "$W/back-$name/large")" = 1580702706 ] || fail "$name: time"
    [ "$(stat -c %a "$W/back-$name/many/1" "$W/back-$name/many" | xargs)" = "644 755" ] || fail "$name: modes"
done
mv "$W/large" "$W/tree/large"
[ "$(asked 'HEAD /json/')" = 0 ] || fail "the JSON index says it all, yet files were asked for"
[ "$(asked 'GET /json/many/ ')" = 1 ] || fail "an index page was read twice"
built rules --exclude /many/ --exclude '/odd/*b' "$N/json/"
[ "$(asked 'GET /json/many/ ')" = 1 ] || fail "a directory that is left out was asked for"
[ ! -e "$W/back-rules/many" ] && [ ! -e "$W/back-rules/odd/a+b" ] && [ -e "$W/back-rules/odd/ü" ] || fail "rules"

# what a server only leads to, on a host of another name
built moved --exclude /many/1* "$N/moved"
diff -r -x '1*' "$W/tree" "$W/back-moved" || fail "redirected: the image differs from the tree"

# behind a token, which a redirect to another server does not get: that one would refuse it
printf '  a-token\n' >"$W/token"
built token --exclude /many/1* --http-token-file "$W/token" "$N/token"
diff -r -x '1*' "$W/tree" "$W/back-token" || fail "with a token: the image differs from the tree"
[ "$(asked 'GET /public/large ')" -gt 0 ] && [ "$(asked 'GET /token/odd/')" -gt 0 ] || fail "the token's paths were not asked for"
! grep -r a-token "$W/out" "$W/store" || fail "the token is somewhere"
refused "check its access rules, and what --http-token-file or ~/.netrc say" "$N/token"
# by name and password, of which the redirect's target must not see those of its own host either
printf 'machine 127.0.0.1 login me password a-password\nmachine localhost login me password other\n' >"$W/netrc"
printf 'me:{PLAIN}a-password\n' >"$W/passwords"
NETRC=$W/netrc built password --exclude /many/1* "$N/password"
diff -r -x '1*' "$W/tree" "$W/back-password" || fail "with a password: the image differs from the tree"
! grep -r a-password "$W/out" "$W/store" || fail "the password is somewhere"
NETRC=$W/none refused "status 401" "$N/password"
mkdir "$W/home"
mv "$W/netrc" "$W/home/.netrc"
unset NETRC
HOME=$W/home built home --exclude /many "$N/password"
printf 'two words' >"$W/bad-token"
refused "--http-token-file: $W/bad-token holds no token" --http-token-file "$W/bad-token" "$N/token"
refused "--http-token-file: the token cannot be read from $W/none: No such" --http-token-file "$W/none" "$N/token"

# a directory that the index names and that is not there is left out, and counted
"$GRANARY" build --quiet "$N/part" "$W/store/part" | grep '^  gone when listed *1$' >"$W/null" || fail "what is gone is not said"
"$GRANARY" build --json --quiet "$N/part" "$W/store/part" >"$W/part.json"
jq -e '.listing_vanished == 1 and .owners_unknown == 0 and .counts.files == 1' "$W/part.json" >/dev/null ||
    fail "counts: $(cat "$W/part.json")"
refused "'dead' vanished while it was listed; --strict" --strict "$N/part"

# directories that the index does not list as such are given attributes too
"$GRANARY" build --quiet --uid 1234 --gid 5 --mode 0640 --dir-mode 0711 --mtime 0 --exclude /large "$A/fancy" "$W/store/owned" >/dev/null
"$GRANARY" ls -R --json "$W/store/owned" | jq -e -s 'length > 300 and all(.[]; .uid == 1234 and .gid == 5 and .mtime == 0)' \
    >/dev/null || fail "attributes"
"$GRANARY" ls -l "$W/store/owned" | grep '^drwx--x--x .* many' >"$W/null" || fail "modes: $("$GRANARY" ls -l "$W/store/owned")"

# lists
sha=$(sha256sum "$W/tree/many/7" | cut -d' ' -f1)
printf '# a comment\nmany/7\t7\t%s\n%s/html/odd/with%%20space\nodd/100%%41\nlarge\t20000000\n' "$sha" "$N" >"$W/list"
built list --files-from "$W/list" "$N/html/"
(cd "$W/back-list" && find . -type f | sort | xargs -d '\n' sha256sum) >"$W/a"
(cd "$W/tree" && sha256sum ./large ./many/7 ./odd/100%41 "./odd/with space") >"$W/b"
diff "$W/a" "$W/b" || fail "list: the image differs"
[ "$(asked 'HEAD /html/many/7 ')" = 1 ] || fail "size and digest are given, yet the file was asked for"
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
# equal path, size and ETag, other bytes: what the tag names is of another source, so it is read
built same "$N/one/"
built same "$N/two/"
[ "$(cat "$W/back-same/file")" = two ] || fail "wrong bytes of a file of another source: $(cat "$W/back-same/file")"

refused "$N/none/ is not there" "$N/none"
refused "$N/loop/: it is redirected more than 10 times, the last time to '$N/loop/'" "$N/loop"
refused "check its access rules" "$N/forbidden/"
nothing_refused_is_there

# Nothing listens: the user who waits is told why
"$GRANARY" build --quiet http://127.0.0.1:1/data "$W/store/refused" >"$W/out" 2>"$W/waiting" &
waiting=$!
wait_for 60 grep -q "warning: source: http://127.0.0.1:1/data: .*trying again for up to 300 s" "$W/waiting"
kill -TERM "$waiting"
wait "$waiting" && fail "a build from nowhere"
[ "$(grep -c warning "$W/waiting")" = 1 ] || { cat "$W/waiting"; fail "more than one warning"; }
