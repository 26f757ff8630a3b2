#!/bin/bash
# The S3 store against a real server (Ceph): the conformance program with its 2,500 keys, objects that another client
# (curl) put and gets, and every refusal with its one clear sentence.
# ctest: needs=ceph
. "$(dirname "$0")/../lib.sh"
. "$GRANARY_SOURCE/tests/flow/lib-ceph.sh"

CONFORMANCE=$GRANARY_BUILD/tests/unit/test_store_conformance
use_ceph conformance
GRANARY_TEST_S3=s3://conformance/prefix "$CONFORMANCE" || fail "the S3 store does not conform"

# curl's own signature over what our client wrote and will read
s3curl() { # s3curl PATH ARG...; prints the status
    local path=$1
    shift
    curl -s -w '%{http_code}' --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$@" "$AWS_ENDPOINT_URL/conformance$path"
}
answers() { # answers STATUS PATH ARG...
    local want=$1 got
    shift
    got=$(s3curl "$@" -o "$W/body")
    [ "$got" = "$want" ] || fail "$*: $got instead of $want"
}

base=$(s3curl '?list-type=2&max-keys=1&prefix=prefix%2F' | grep -o '<Key>prefix/conformance-[0-9]*' | sed 's/<Key>//')
[ -n "$base" ] || fail "the conformance run left no objects"
answers 200 "/$base/odd/%2541~%21%2A%27%28%29"
[ "$(cat "$W/body")" = "odd/%41~!*'()" ] || fail "curl reads other bytes than our client wrote"
answers 200 "/$base/odd/sp%20ace%2Bplus%26amp%3D%3F%23"
answers 404 "/$base/no/such/key"
# the server itself honours conditions: what the store reported was not an illusion
answers 412 "/$base/granary.json" -X PUT -H 'If-None-Match: *' -d other
answers 412 "/$base/granary.json" -X PUT -H 'If-Match: "0123"' -d other
answers 200 "/$base/granary.json"
[ "$(cat "$W/body")" = granary.json ] || fail "a refused put changed the object"
answers 412 "/$base/granary.json" -H 'If-Match: "0123"'
# pages: of 2,500 keys
s3curl "?list-type=2&max-keys=200&prefix=${base//\//%2F}%2Fmany%2F" >"$W/page"
[ "$(grep -o '<Key>' "$W/page" | wc -l)" = 200 ] || fail "the server does not page its listings"
grep -q '<IsTruncated>true' "$W/page" || fail "the server does not say that more follows"

# keys of a container's endpoint that are good for a second less than they are renewed ahead: each is good for some
# requests only, and the server must take them all
cat >"$W/endpoint.py" <<'END'
import http.server, json, os, sys, time

class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != "pod":
            return self.send_error(403)
        then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 299))
        body = json.dumps({"AccessKeyId": os.environ["AWS_ACCESS_KEY_ID"], "Expiration": then,
                           "SecretAccessKey": os.environ["AWS_SECRET_ACCESS_KEY"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", 0), Endpoint)
print(server.server_port, flush=True)
server.serve_forever()
END
python3 "$W/endpoint.py" >"$W/endpoint.port" 2>"$W/endpoint.log" &
endpoint=$!
extra_cleanup() {
    kill "$endpoint" 2>/dev/null || true
}
until [ -s "$W/endpoint.port" ]; do
    kill -0 "$endpoint" || fail "the endpoint for keys does not start"
    sleep 0.1
done
lent() {
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY HOME="$W" AWS_CONTAINER_AUTHORIZATION_TOKEN=pod \
        AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:$(cat "$W/endpoint.port")/keys" "$GRANARY" "$@"
}
lent build -q "$GRANARY_SOURCE/tests/flow" s3://conformance/lent/x >"$W/null" && lent verify -q --deep s3://conformance/lent/x ||
    fail "keys of a container's endpoint are not taken"
grep -q 'GET /keys' "$W/endpoint.log" || fail "the container's endpoint was not asked"

# Refusals. refused SENTENCE-PART ENV-ARGUMENT...: with this environment the store answers so, at once, without a secret
export GRANARY_TEST_S3=s3://conformance/refused
refused() {
    local part=$1
    shift
    env "$@" "$CONFORMANCE" >"$W/refused" 2>&1 && fail "accepted: $*"
    grep -qF -- "$part" "$W/refused" || { cat "$W/refused" >&2; fail "$*: not '$part'"; }
    ! grep -qE "$AWS_SECRET_ACCESS_KEY|not-the-secret" "$W/refused" || fail "$*: the secret stands in a message"
    ! grep -q "trying again" "$W/refused" || { cat "$W/refused" >&2; fail "$*: tried again"; }
}
refused "check AWS_SECRET_ACCESS_KEY (SignatureDoesNotMatch" AWS_SECRET_ACCESS_KEY=not-the-secret
refused "check AWS_ACCESS_KEY_ID" AWS_ACCESS_KEY_ID=nobody
refused "unset AWS_NO_SIGN_REQUEST" AWS_NO_SIGN_REQUEST=1
refused "the bucket does not exist; check its name and the endpoint" GRANARY_TEST_S3=s3://no-such-bucket/x
refused "check that the server speaks TLS on this port" AWS_ENDPOINT_URL="https${AWS_ENDPOINT_URL#http}"
refused "no S3 credentials: AWS_ACCESS_KEY_ID" -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY HOME="$W"
# another hour than the server's; the library that shifts a clock is a package of its own
if command -v faketime >/dev/null; then
    refused "set the clock" faketime -f +2h
else
    echo "no faketime here (apt-get install faketime): a clock that differs from the server's is not tested"
fi
