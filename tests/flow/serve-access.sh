#!/bin/bash
# Who may read: builder and server run as an ordinary user without any privilege; a user who is not in the socket's
# group cannot read an image, one in it can, and the control socket is apart from that. Over TCP with TLS a client with
# the key reads, one without it, with another one, or in plaintext is refused.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

[ "$(id -u)" = 0 ] || skip "only root can be several users"
for tool in setpriv certtool psktool; do
    command -v $tool >"$W/null" || skip "no $tool here (apt-get install util-linux gnutls-bin)"
done

# The build tree may be in a directory of root's own.
chmod 711 "$W"
mkdir "$W/bin" "$W/home"
cp "$GRANARY" "$NBD" "$W/bin"
chown 54321:54321 "$W/home"
export GRANARY_NBD=$W/bin/granary-nbd HOME=$W/home
# as UID GROUPS COMMAND...
as() { setpriv --reuid "$1" --regid "$1" --groups "$2" --no-new-privs --bounding-set=-all --inh-caps=-all "${@:3}"; }
granary=$W/bin/granary
elsewhere=()
serve() {
    background "${elsewhere[@]}" setpriv --reuid 54321 --regid 54321 --groups 54321,54330,54331 --no-new-privs --bounding-set=-all --inh-caps=-all \
        "$granary" serve "$W/home/store/one" --cache "$W/home/cache:64M" "$@" >"$W/serve.out" 2>"$W/serve.err"
    SERVE=$BACKGROUND_PID
    wait_for 60 grep -q '^serving' "$W/serve.out"
}
stop() {
    kill -TERM "$SERVE"
    wait "$SERVE" || fail "SIGTERM: exit $?"
}

echo "== build and serve as an ordinary user"
mkdir "$W/tree"
head -c 400000 /dev/urandom >"$W/tree/file"
as 54321 54321 "$granary" build -q "$W/tree" "$W/home/store/one"
as 54321 54321 "$granary" export -q "$W/home/store/one" "$W/home/image"
chmod 644 "$W/home/image"
socket=$W/home/nbd.sock
uri="nbd+unix:///one?socket=$socket"
serve --socket "$socket" --socket-owner :54330 --control-owner :54331 --control-mode 0620
for pid in "$SERVE" "$(pgrep -P "$SERVE")"; do
    grep -qE '^Uid:\s54321\s54321\s54321\s54321$' "/proc/$pid/status" || fail "$(grep Uid "/proc/$pid/status")"
    grep -qE '^CapEff:\s0+$' "/proc/$pid/status" || fail "$(grep Cap "/proc/$pid/status")"
done
as 54321 54321 nbdcopy "$uri" - | cmp - "$W/home/image"

echo "== the socket's group reads, nobody else does"
[ "$(stat -c '%a %u %g' "$socket")" = "660 54321 54330" ] || fail "the socket is $(stat -c '%a %u %g' "$socket")"
[ "$(stat -c '%a %u %g' "$socket.control")" = "620 54321 54331" ] || fail "the control socket is $(stat -c '%a %u %g' "$socket.control")"
as 54322 54330 nbdcopy "$uri" - | cmp - "$W/home/image" || fail "a member of the group cannot read"
refused 1 "Permission denied" as 54322 54331 nbdinfo --size "$uri"
as 54322 54331 "$granary" status --quick "$socket.control" >"$W/null"
! as 54322 54330 "$granary" status --quick "$socket.control" >"$W/null" 2>&1 || fail "the control socket is the readers' too"

echo "== after a restart of the server the control socket is its group's again"
kill -9 "$(pgrep -P "$SERVE")"
control_is_back() { [ "$(stat -c '%a %g' "$socket.control")" = "620 54331" ] && as 54322 54331 "$granary" status --quick "$socket.control"; }
wait_for 60 grep -q 'up again' "$W/serve.err"
control_is_back >"$W/null" || fail "$(stat -c '%a %g' "$socket.control")"
stop

echo "== what cannot be is said"
refused 2 "there is no group 'nobody-has-this'" "$GRANARY" serve --socket-owner :nobody-has-this "$W/home/store/one"
refused 2 "--control-mode: '0888' is no mode" "$GRANARY" serve --control-mode 0888 "$W/home/store/one"
refused 1 "cannot give the socket" as 54321 54321 "$granary" serve --socket "$socket" --socket-owner :54339 "$W/home/store/one"
refused 2 "--tls-psk needs --listen" "$GRANARY" serve --tls-psk "$W/keys" "$W/home/store/one"
refused 2 "exclude each other" "$GRANARY" serve --listen 127.0.0.1:0 --tls-psk "$W/keys" --tls-certificates "$W" "$W/home/store/one"
refused 2 "--tls-verify-peer needs" "$GRANARY" serve --listen 127.0.0.1:0 --tls-verify-peer "$W/home/store/one"

# Where every socket is given nothing is wanted of /run, where an ordinary user can make nothing.
if unshare --mount true 2>"$W/null"; then
    # shellcheck disable=SC2016 # for the other shell
    elsewhere=(unshare --mount --propagation private sh -c 'mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"' -)
fi

# serve_tls OPTION...: leaves PORT
serve_tls() {
    serve --listen 127.0.0.1:0 --control "$W/home/c.sock" "$@"
    PORT=$(sed -n 's|^serving .* at nbd://127.0.0.1:\([0-9]*\)/one$|\1|p' "$W/serve.out")
}
# no_entry URI: not even the size is told
no_entry() { ! nbdinfo --size "$1" >"$W/out" 2>"$W/err" || fail "let in: $1"; }

echo "== TLS by keys"
psktool -u alice -p "$W/home/keys" >"$W/null" 2>&1
psktool -u alice -p "$W/other" >"$W/null" 2>&1
chown 54321 "$W/home/keys"
serve_tls --tls-psk "$W/home/keys"
nbdcopy "nbds://alice@localhost:$PORT/one?tls-psk-file=$W/home/keys" - | cmp - "$W/home/image"
no_entry "nbd://localhost:$PORT/one"
no_entry "nbds://alice@localhost:$PORT/one?tls-psk-file=$W/other"
no_entry "nbds://localhost:$PORT/one"
stop

echo "== TLS by certificates, the client's too"
certify() { certtool --generate-privkey --key-type=ecdsa --outfile "$1/$2-key.pem" 2>"$W/null"; }
# authority DIR: one of its own
authority() {
    mkdir -p "$1"
    certify "$1" ca
    printf 'cn = test\nca\ncert_signing_key\ncrl_signing_key\n' >"$W/template"
    certtool --generate-self-signed --load-privkey "$1/ca-key.pem" --template "$W/template" --outfile "$1/ca-cert.pem" 2>"$W/null"
}
# certificate AUTHORITY DIR server|client LINE...: with these lines in its template
certificate() {
    mkdir -p "$2"
    certify "$2" "$3"
    printf 'cn = localhost\ndns_name = localhost\ntls_www_%s\nsigning_key\n' "$3" >"$W/template"
    printf '%s\n' "${@:4}" >>"$W/template"
    certtool --generate-certificate --load-ca-certificate "$1/ca-cert.pem" --load-ca-privkey "$1/ca-key.pem" \
        --load-privkey "$2/$3-key.pem" --template "$W/template" --outfile "$2/$3-cert.pem" 2>"$W/null"
}
authority "$W/ca"
authority "$W/ca2"
certificate "$W/ca" "$W/home/tls" server
certificate "$W/ca" "$W/client" client
certificate "$W/ca2" "$W/stranger" client
cp "$W/ca/ca-cert.pem" "$W/home/tls"
cp "$W/ca/ca-cert.pem" "$W/client"
cp "$W/ca/ca-cert.pem" "$W/stranger"
mkdir "$W/nobody"
cp "$W/ca/ca-cert.pem" "$W/nobody"
chown -R 54321 "$W/home/tls"
serve_tls --tls-certificates "$W/home/tls" --tls-verify-peer
nbdcopy "nbds://localhost:$PORT/one?tls-certificates=$W/client" - | cmp - "$W/home/image"
no_entry "nbd://localhost:$PORT/one"
no_entry "nbds://localhost:$PORT/one?tls-certificates=$W/stranger"
no_entry "nbds://localhost:$PORT/one?tls-certificates=$W/nobody"
certificate "$W/ca" "$W/late" client 'activation_date = "2020-01-01 00:00:00"' 'expiration_date = "2021-01-01 00:00:00"'
cp "$W/ca/ca-cert.pem" "$W/late"
no_entry "nbds://localhost:$PORT/one?tls-certificates=$W/late"
stop

echo "== a client's certificate that was revoked"
certificate "$W/ca" "$W/revoked" client
cp "$W/ca/ca-cert.pem" "$W/revoked"
printf 'expiration_days = 10\ncrl_number = 1\n' >"$W/template"
certtool --generate-crl --load-ca-certificate "$W/ca/ca-cert.pem" --load-ca-privkey "$W/ca/ca-key.pem" \
    --load-certificate "$W/revoked/client-cert.pem" --template "$W/template" --outfile "$W/crl.pem" 2>"$W/null"
serve_tls --tls-certificates "$W/home/tls" --tls-verify-peer
nbdcopy "nbds://localhost:$PORT/one?tls-certificates=$W/revoked" - | cmp - "$W/home/image"
stop
install -o 54321 "$W/crl.pem" "$W/home/tls/ca-crl.pem"
serve_tls --tls-certificates "$W/home/tls" --tls-verify-peer
nbdcopy "nbds://localhost:$PORT/one?tls-certificates=$W/client" - | cmp - "$W/home/image"
no_entry "nbds://localhost:$PORT/one?tls-certificates=$W/revoked"
stop

echo "== without --tls-verify-peer any client that trusts the authority"
serve_tls --tls-certificates "$W/home/tls"
nbdcopy "nbds://localhost:$PORT/one?tls-certificates=$W/nobody" - | cmp - "$W/home/image"
cp "$W/ca2/ca-cert.pem" "$W/nobody"
no_entry "nbds://localhost:$PORT/one?tls-certificates=$W/nobody"
no_entry "nbd://localhost:$PORT/one"
stop
