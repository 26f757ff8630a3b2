#!/bin/bash
# TLS of granary serve against certificates that are wrong or missing, and against clients that speak it and do harm:
# they leave with replies unread, ask for all in one record, break a record, begin a handshake and stay; a reader reads
# on.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v certtool >"$W/null" || skip "no certtool here (apt-get install gnutls-bin)"

mkdir "$W/tree" "$W/tls" "$W/client"
head -c 8000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q --chunk-size 64K "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" export -q "$W/store/one" "$W/image"

# certificate FILE LINE...: one of the authority for localhost, with these lines in its template
certificate() {
    { printf 'cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\n'; printf '%s\n' "${@:2}"; } >"$W/template"
    certtool --generate-certificate --load-ca-certificate "$W/tls/ca-cert.pem" --load-ca-privkey "$W/ca-key.pem" \
        --load-privkey "$W/tls/server-key.pem" --template "$W/template" --outfile "$1" 2>"$W/null"
}
certtool --generate-privkey --key-type=ecdsa --outfile "$W/ca-key.pem" 2>"$W/null"
certtool --generate-privkey --key-type=ecdsa --outfile "$W/tls/server-key.pem" 2>"$W/null"
printf 'cn = test\nca\ncert_signing_key\n' >"$W/template"
certtool --generate-self-signed --load-privkey "$W/ca-key.pem" --template "$W/template" --outfile "$W/tls/ca-cert.pem" 2>"$W/null"
cp "$W/tls/ca-cert.pem" "$W/client"
serve=("$GRANARY" serve --listen 127.0.0.1:0 --control "$W/c.sock" --warm none "$W/store/one")

echo "== what is wrong with the files is said, by --check too"
refused 1 "there is no $W/tls/server-cert.pem; put" "${serve[@]}" --tls-certificates "$W/tls"
certificate "$W/tls/server-cert.pem" 'activation_date = "2020-01-01 00:00:00"' 'expiration_date = "2021-01-01 00:00:00"'
refused 1 "$W/tls/server-cert.pem has expired" "${serve[@]}" --tls-certificates "$W/tls"
refused 1 "$W/tls/server-cert.pem has expired" "${serve[@]}" --tls-certificates "$W/tls" --check
certificate "$W/tls/server-cert.pem" 'activation_date = "2090-01-01 00:00:00"' 'expiration_date = "2091-01-01 00:00:00"'
refused 1 "server-cert.pem is not valid yet" "${serve[@]}" --tls-certificates "$W/tls"
echo nonsense >"$W/tls/server-cert.pem"
refused 1 "server-cert.pem holds no certificate in PEM" "${serve[@]}" --tls-certificates "$W/tls"
certificate "$W/tls/server-cert.pem"
cp "$W/tls/server-key.pem" "$W/key"
cp "$W/ca-key.pem" "$W/tls/server-key.pem"
refused 1 "server-key.pem is not the key of $W/tls/server-cert.pem" "${serve[@]}" --tls-certificates "$W/tls"
cp "$W/key" "$W/tls/server-key.pem"
refused 1 "cannot read $W/keys" "${serve[@]}" --tls-psk "$W/keys"
: >"$W/keys"
refused 1 "there is no key in $W/keys; add one" "${serve[@]}" --tls-psk "$W/keys"

background "${serve[@]}" --tls-certificates "$W/tls" --cache "$W/cache:64M" --disk-timeout "$DISK_TIMEOUT" >"$W/out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/out"
CHILD=$(pgrep -P "$SERVE")
[ "$(cat "/proc/$CHILD/comm")" = granary-nbd ] || fail "it is $(cat "/proc/$CHILD/comm") that serves"
port=$(sed -n 's|^serving .* at nbd://127.0.0.1:\([0-9]*\)/one$|\1|p' "$W/out")
uri="nbds://localhost:$port/one?tls-certificates=$W/client"

cat >"$W/hostile.py" <<'PY'
import os, socket, ssl, struct, sys
port, authority, image = int(sys.argv[1]), sys.argv[2], open(sys.argv[3], "rb").read()
context = ssl.create_default_context(cafile=authority)
def take(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        assert part, "ended"
        data += part
    return data
def option(number, data=b""):
    return struct.pack(">8sII", b"IHAVEOPT", number, len(data)) + data
def read(cookie, offset, length):
    return struct.pack(">IHHQQI", 0x25609513, 0, 0, cookie, offset, length)
def plain():
    s = socket.create_connection(("127.0.0.1", port))
    s.settimeout(120)
    take(s, 18)
    s.sendall(struct.pack(">I", 3) + option(5))
    assert struct.unpack(">QIII", take(s, 20))[2] == 1, "no ACK"
    return s
def secure(s):
    return context.wrap_socket(s, server_hostname="localhost")
def attach():
    s = secure(plain())
    s.sendall(option(1, b"one"))
    take(s, 10)
    return s
def check(s, offset, length):
    assert struct.unpack(">IIQ", take(s, 16)) == (0x67446698, 0, offset)
    assert take(s, length) == image[offset:offset + length], "wrong byte"

# begun and left open: they hold a place each, and nothing else
stalled = [plain() for _ in range(20)]
for s in stalled[:10]:
    s.sendall(b"\x16\x03\x01\x02\x00\x01")

# everything in one record, of the options too, and more than the server's buffer holds
s = secure(plain())
s.sendall(option(77, bytes(7000)) + option(5) + option(1, b"one"))
for number, kind in (77, 0x80000001), (5, 0x80000003):
    magic, answered, said, length = struct.unpack(">QIII", take(s, 20))
    assert (answered, said) == (number, kind), (answered, hex(said))
    take(s, length)
take(s, 10)
s.sendall(b"".join(read(i, 4096 * i, 4096) for i in range(580)))
left = set(range(580))
while left:
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert error == 0 and cookie in left, (error, cookie)
    left.remove(cookie)
    assert take(s, 4096) == image[4096 * cookie:4096 * (cookie + 1)], "wrong byte"

# replies unread, some of them under way; nbdkit 1.32 aborts here
for i in range(200):
    t = attach()
    t.sendall(b"".join(read(k, 65536 * k, 65536) for k in range(32)))
    if i % 2:
        take(t, 1)
    t.close()
s.send(read(0, 0, 65536))
check(s, 0, 65536)

# a record that was changed on its way: nothing of it is taken for a request
t = attach()
raw = socket.socket(fileno=os.dup(t.fileno()))
raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
raw.settimeout(120)
try:
    while raw.recv(4096):
        pass
except ConnectionResetError:
    pass
s.send(read(0, 0, 65536))
check(s, 0, 65536)
PY
echo "== hostile clients beside a reader"
(while [ ! -e "$W/over" ]; do nbdcopy "$uri" - | cmp - "$W/image" || exit 1; done) & reader=$!
python3 "$W/hostile.py" "$port" "$W/tls/ca-cert.pem" "$W/image"
: >"$W/over"
wait "$reader" || fail "the reader beside the hostile clients"
[ "$(nbdinfo --size "$uri")" = "$(stat -c %s "$W/image")" ] || fail "the size"
[ "$(pgrep -P "$SERVE")" = "$CHILD" ] || fail "the server was started again: $(cat "$W/serve.err")"
! grep -a -e 'PRIVATE KEY' "$W/serve.err" "/proc/$CHILD/cmdline" || fail "a key is told"
