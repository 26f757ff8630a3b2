#!/bin/bash
# The names a store goes by change while its image is read: the name service fails for a while, the certificate is
# renewed, and replaced by one that nobody trusts. What passes is no error of a read; the last one is, says what to do,
# and is over when a good certificate is back.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/own-mounts.sh"
. "$(dirname "$0")/lib-store-faults.sh"
command -v openssl >/dev/null || skip "no openssl here (apt-get install openssl)"

make_store 20

# authority NAME: a certificate authority of that name, and certificates for the store by it: NAME-1, NAME-2
certify() { openssl "$@" 2>"$W/openssl" || { cat "$W/openssl"; fail "openssl"; }; }
authority() {
    local n
    certify req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$1" -keyout "$W/$1.key" -out "$W/$1.pem"
    for n in 1 2; do
        certify req -newkey rsa:2048 -nodes -subj "/CN=store.test" -keyout "$W/$1-$n.key" -out "$W/$1-$n.csr"
        certify x509 -req -in "$W/$1-$n.csr" -CA "$W/$1.pem" -CAkey "$W/$1.key" -CAcreateserial -days 2 -out "$W/$1-$n.pem" \
            -extfile <(echo "subjectAltName=DNS:store.test,IP:127.0.0.1")
    done
}
show() { line "{\"certificate\": [\"$W/$1.pem\", \"$W/$1.key\"]}"; }
authority good
authority strange

echo "== the certificate is renewed while the image is read"
serve_store "$W/good-1.pem" "$W/good-1.key"
export AWS_CA_BUNDLE=$W/good.pem
start readahead=0 connections=1
line '{"mode": "silent", "after": 2}' # not over before it is renewed
background nbdcopy "$URI" "$W/copy" 2>"$W/copy.err"
READER=$BACKGROUND_PID
wait_for 60 line_is silent
connections=$(line_says connections) # of which one is in use, and stays so without a reason
show good-2
line '{"mode": "none"}'
wait "$READER" || { cat "$W/copy.err" "$W/log"; fail "a read failed when the certificate was renewed"; }
cmp "$W/copy" "$W/image" || fail "wrong bytes"
[ "$(line_says connections)" -gt "$connections" ] || fail "nobody saw the new certificate"
stop

echo "== one that nobody trusts"
start readahead=0
"$PROBE" "$URI" read 0 4096 | cmp - <(head -c 4096 "$W/image") || fail "the first read"
show strange-1
"$PROBE" "$URI" whole $CHUNK "$W/image" >"$W/read" 2>"$W/read.err" || fail "wrong bytes"
! grep -q '^0 of ' "$W/read" || fail "it was read from a server that nobody trusts"
grep -q 'certificate.*AWS_CA_BUNDLE' "$W/log" || { tail -5 "$W/log"; fail "the log does not say what to do"; }
show good-1
read_everything "a good certificate again"
stop
unset AWS_CA_BUNDLE

echo "== the name service fails for a while"
unshare -m true 2>"$W/null" || { echo "no mount namespaces here: the name service is not tested"; exit 0; }
# Names come from a file of the test's own, and from nowhere else.
echo "hosts: files" >"$W/nsswitch"
echo "127.0.0.1 localhost store.test" >"$W/hosts"
cat >"$W/with-names" <<END
#!/bin/sh
mount --bind $W/hosts /etc/hosts && mount --bind $W/nsswitch /etc/nsswitch.conf && exec "\$@"
END
chmod +x "$W/with-names"
begin_again
serve_store
background unshare -m --propagation private "$W/with-names" nbdkit -f -t 64 --unix "$W/sock" "$PLUGIN" \
    "http://store.test:$LINE_PORT/set" control="$W/control" cache="$W/cache:128M" disk-timeout="$DISK_TIMEOUT" 2>"$W/log"
export SERVER_PID=$BACKGROUND_PID
wait_for 60 listens "$W/sock"
requests=$(line_says requests) faulted=$(line_says faulted)
echo "127.0.0.1 localhost" >"$W/hosts" # in place: it is the mounted file
(read_everything "no name service") &
READERS=$!
wait_for 120 grep -q 'store.test.*check the address and the name service' "$W/log"
sleep "$(seconds 0 60)"
echo "127.0.0.1 localhost store.test" >"$W/hosts"
wait $READERS || fail "reads failed while the name service did"
[ "$(count fetch_errors_total)" = 0 ] || fail "$(count fetch_errors_total) fetches failed"
say_head
say_row "no name service for $(seconds 'a few' 60) s" "$requests" "$faulted"
stop
