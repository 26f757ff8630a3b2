#!/bin/bash
# A file store behind nginx, as docs/reference/stores.md shows it, plain and over TLS: an image is read and verified
# through it; what is not for readers is hidden; unknown authorities, other hosts' certificates, servers without ranges
# and redirects are refused, each with its sentence.
. "$(dirname "$0")/../lib.sh"

command -v nginx >/dev/null || skip "no nginx here (apt-get install nginx-light)"
unset http_proxy https_proxy AWS_CA_BUNDLE

mkdir -p "$W/tree/sub"
for i in $(seq 50); do echo "file $i" >"$W/tree/sub/$i"; done
head -c 3000000 /dev/urandom >"$W/tree/large"
"$GRANARY" build "$W/tree" "$W/store/img" >"$W/build.log" 2>&1 || { cat "$W/build.log"; fail "no image"; }

# An authority, a certificate for 127.0.0.1 and one for somebody else
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$W/ca.key" -out "$W/ca.pem" 2>/dev/null
certificate() { # certificate NAME SUBJECT-ALTERNATIVE
    openssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout "$W/$1.key" -out "$W/$1.csr" 2>/dev/null
    openssl x509 -req -in "$W/$1.csr" -CA "$W/ca.pem" -CAkey "$W/ca.key" -CAcreateserial -days 2 -out "$W/$1.pem" \
        -extfile <(echo "subjectAltName=$2") 2>/dev/null
}
certificate mine IP:127.0.0.1
certificate other DNS:other.example

server() { # server "LISTEN" "DIRECTIVES"
    echo "server { listen 127.0.0.1:$1; $2
        location /store/ {
            alias $W/store/;
            location ~ ^/store/(\\.granary-tmp|builds|trash)/ { return 404; }
        }
        location /noranges/ { alias $W/store/; max_ranges 0; }
        location /moved/ { return 302 http://127.0.0.1:1/elsewhere?signature=secret; }
        location /forbidden/ { deny all; }
    }"
}
free_port
P=$FREE_PORT
free_port
MINE=$FREE_PORT
free_port
OTHER=$FREE_PORT
serve_nginx "$(server "$P" "")
$(server "$MINE ssl" "ssl_certificate $W/mine.pem; ssl_certificate_key $W/mine.key;")
$(server "$OTHER ssl" "ssl_certificate $W/other.pem; ssl_certificate_key $W/other.key;")"
wait_for 60 answers "$P"

digest=$(digest_of "$W/store/img")
[ "$(digest_of "http://127.0.0.1:$P/store/img")" = "$digest" ] || fail "another digest over HTTP"
"$GRANARY" verify --deep "http://127.0.0.1:$P/store/img" >"$W/verify.log" 2>&1 || { cat "$W/verify.log"; fail "verify"; }
"$GRANARY" export "http://127.0.0.1:$P/store/img" "$W/a" && "$GRANARY" export "$W/store/img" "$W/b" && cmp "$W/a" "$W/b"
AWS_CA_BUNDLE=$W/ca.pem "$GRANARY" inspect "https://127.0.0.1:$MINE/store/img" >/dev/null || fail "TLS"
[ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$P/store/.granary-tmp/lock")" = 404 ] || fail "not hidden"

# refused SENTENCE-PART COMMAND...
refused() {
    local part=$1
    shift
    "$@" >"$W/out" 2>&1 && fail "accepted: $*"
    grep -qF -- "$part" "$W/out" || { cat "$W/out" >&2; fail "$*: not '$part'"; }
}
refused "trust the server's authority with AWS_CA_BUNDLE" "$GRANARY" inspect "https://127.0.0.1:$MINE/store/img"
refused "or check the address" env AWS_CA_BUNDLE="$W/ca.pem" "$GRANARY" inspect "https://127.0.0.1:$OTHER/store/img"
refused "check the file named by AWS_CA_BUNDLE" env AWS_CA_BUNDLE="$W/none.pem" \
    "$GRANARY" inspect "https://127.0.0.1:$MINE/store/img"
refused "ignores Range" "$GRANARY" export "http://127.0.0.1:$P/noranges/img" "$W/c"
refused "redirects granary.json to http://127.0.0.1:1/elsewhere" "$GRANARY" inspect "http://127.0.0.1:$P/moved/img"
! grep -q secret "$W/out" || fail "a signature is shown"
refused "check its access rules" "$GRANARY" inspect "http://127.0.0.1:$P/forbidden/img"
refused "is not there" "$GRANARY" inspect "http://127.0.0.1:$P/nothing/img"
refused "use the s3:// or file:// address" "$GRANARY" images "http://127.0.0.1:$P/store"
refused "write to what the web server serves, by file://" "$GRANARY" build "$W/tree" "http://127.0.0.1:$P/store/img2"
refused "credentials" "$GRANARY" inspect "http://me:secret@127.0.0.1:$P/store/img"
! grep -q secret "$W/out" || fail "the password is shown"
