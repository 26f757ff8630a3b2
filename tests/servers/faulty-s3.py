#!/usr/bin/env python3
"""An S3 server in memory that misbehaves as told, on a free port of 127.0.0.1.

usage: faulty-s3.py PORTFILE [BUCKET=DIR]...     buckets filled from directories; others are there, empty

It signs nobody in. Told by `POST /-/faults` with JSON {"percent": 5, "kinds": ["503", ...], "seed": 1, "match": "PUT"}:
that part of the requests (whose "METHOD /path" contains `match`) gets one of these at random.

  500, 503      the answer; 503 with Retry-After: 1
  denied        403 AccessDenied
  garbage       the answer is no HTTP, in one of GARBAGE's ways, and nothing is done
  reset         the connection is reset before anything is done
  lost          the request is carried out, then the connection is reset
  cut           half of the body, then the connection is closed in an orderly way
  broken        half of the body, then it is reset
  short, long   a Content-Length of half the body (and no more bytes; ranges and listings only, since nobody can tell
                this of a whole object), or of more than comes, and then nothing (not to HEAD, for the same reason)
  stall         half of the body, then nothing for 90 s
  slow          the answer comes a second late
  again         a listing's page begins with the key before it, too
  disorder      two keys of a listing's page change places

`POST /-/expire` with {"token": "..."}: from now on requests with that session token are answered 403 ExpiredToken.
`POST /-/revoke` with {"key": "..."}: requests signed with that access key are answered 403 InvalidAccessKeyId.
`POST /-/clock` with {"ahead": 600}: the answers' Date is that many seconds ahead.
`POST /-/page` with {"keys": 250}: a listing's page has that many at most, not 1000.
`GET /-/counts`: JSON, requests by method and faults by kind so far.
"""
import http.server
import json
import hashlib
import os
import random
import socket
import struct
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape


GARBAGE = (
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"<html>the proxy is starting</html>\n",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
    # not for HEAD, whose answer has no body
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)


class Store:
    def __init__(self):
        self.lock = threading.Lock()
        self.buckets = {}
        self.faults = {"percent": 0, "kinds": [], "match": ""}
        self.random = random.Random(1)
        self.expired = set()
        self.revoked = set()
        self.ahead = 0
        self.page = 1000
        self.counts = {}

    def bucket(self, name):
        return self.buckets.setdefault(name, {})

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def counted(self, what):
        with self.lock:
            return self.counts.get(what, 0)

    def draw(self, request):
        with self.lock:
            f = self.faults
            if not f["kinds"] or f.get("match", "") not in request or self.random.random() * 100 >= f["percent"]:
                return None
            return self.random.choice(f["kinds"])


STORE = Store()


def fill(bucket, top):
    top = os.fsencode(top)
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                put(bucket, os.path.relpath(path, top), file.read())


def put(bucket, key, body):
    STORE.bucket(bucket)[key] = (body, '"%s"' % hashlib.md5(body).hexdigest(), int(time.time()))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + STORE.ahead if timestamp is None else timestamp)

    def answer(self, status, body=b"", headers=(), whole=None):
        """whole: Content-Length of a HEAD."""
        fault, self.fault = self.fault, None
        if fault == "lost":
            return self.reset()
        if fault == "short" and status == 200 and not body.startswith(b"<List"):
            fault = None
        if fault == "long" and self.command == "HEAD":
            fault = None
        length = len(body) if whole is None else whole
        if fault in ("short", "long") and body:
            length = len(body) // 2 if fault == "short" else length + 100
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if fault in ("cut", "broken", "stall"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if fault == "stall":
                time.sleep(90)
            if fault == "cut":
                self.close_connection = True
                return None
            return self.reset()
        self.wfile.write(body if fault != "short" else body[:length])
        if fault == "long":
            self.close_connection = True
        return None

    def refuse(self, status, code, headers=()):
        self.answer(status, b"<Error><Code>%s</Code></Error>" % code.encode(), headers)

    def handle_request(self):
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.fault = None
        if url.path.startswith("/-/"):
            return self.control(url.path[3:], body)
        request = f"{self.command} {self.path}"
        STORE.count(self.command)
        fault = STORE.draw(request)
        if fault in ("again", "disorder") and "list-type=2" not in url.query:
            fault = None
        if fault:
            STORE.count(fault)
        if self.headers.get("x-amz-security-token") in STORE.expired:
            STORE.count("expired")
            return self.refuse(403, "ExpiredToken")
        signer = (self.headers.get("Authorization") or "").partition("Credential=")[2].partition("/")[0]
        if signer in STORE.revoked:
            STORE.count("revoked")
            return self.refuse(403, "InvalidAccessKeyId")
        if fault == "slow":
            time.sleep(1)
        elif fault == "reset":
            return self.reset()
        elif fault == "garbage":
            self.close_connection = True
            return self.wfile.write(GARBAGE[STORE.counted("garbage") % (len(GARBAGE) - (self.command == "HEAD"))])
        elif fault == "500":
            return self.refuse(500, "InternalError")
        elif fault == "503":
            return self.refuse(503, "SlowDown", [("Retry-After", "1")])
        elif fault == "denied":
            return self.refuse(403, "AccessDenied")
        else:
            self.fault = fault
        name, _, key = url.path[1:].partition("/")
        key = urllib.parse.unquote_to_bytes(key)
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True, encoding="latin-1")
        if not key:
            return self.listing(name, query)
        return getattr(self, "key_" + self.command.lower())(name, key, body)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_request

    def control(self, what, body):
        with STORE.lock:
            if what == "faults":
                STORE.faults = json.loads(body)
                STORE.random = random.Random(STORE.faults.get("seed", 1))
            elif what == "expire":
                STORE.expired.add(json.loads(body)["token"])
            elif what == "revoke":
                STORE.revoked.add(json.loads(body)["key"])
            elif what == "clock":
                STORE.ahead = json.loads(body)["ahead"]
            elif what == "page":
                STORE.page = json.loads(body)["keys"]
            text = json.dumps(STORE.counts)
        self.answer(200, text.encode())

    def listing(self, name, query):
        first = lambda key: query.get(key, [""])[0].encode("latin-1")
        prefix, after = first("prefix"), max(first("start-after"), first("continuation-token"))
        most = min(int(first("max-keys") or 1000), STORE.page)
        with STORE.lock:
            all_keys = sorted(k for k in STORE.bucket(name) if k.startswith(prefix))
            keys = [k for k in all_keys if k > after]
            before = [k for k in all_keys if k <= after][-1:]
            objects = {k: STORE.bucket(name)[k] for k in before + keys[:most]}
        more, keys = len(keys) > most, keys[:most]
        token = keys[-1] if keys else b""
        fault, self.fault = self.fault, None if self.fault in ("again", "disorder") else self.fault
        if fault == "again":
            keys = before + keys
        if fault == "disorder" and len(keys) > 3:
            keys[1], keys[2] = keys[2], keys[1]
        quote = lambda k: escape(urllib.parse.quote(k, safe="/"))
        text = ["<ListBucketResult><EncodingType>url</EncodingType>"]
        text.append("<IsTruncated>%s</IsTruncated>" % ("true" if more else "false"))
        if more:
            text.append("<NextContinuationToken>%s</NextContinuationToken>" % escape(token.decode("latin-1")))
        for k in keys:
            body, etag, mtime = objects[k]
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(mtime))
            text.append(
                f"<Contents><Key>{quote(k)}</Key><LastModified>{when}</LastModified><ETag>{escape(etag)}</ETag>"
                f"<Size>{len(body)}</Size></Contents>"
            )
        self.answer(200, "".join(text + ["</ListBucketResult>"]).encode("latin-1"))

    def found(self, name, key):
        with STORE.lock:
            return STORE.bucket(name).get(key)

    def key_get(self, name, key, _):
        o = self.found(name, key)
        if not o:
            return self.refuse(404, "NoSuchKey")
        body, etag, mtime = o
        if self.headers.get("If-Match") not in (None, etag):
            return self.refuse(412, "PreconditionFailed")
        headers = [("ETag", etag), ("Last-Modified", self.date_time_string(mtime))]
        wanted = self.headers.get("Range")
        if self.command == "HEAD" or not wanted:
            return self.answer(200, body, headers, len(body))
        begin, end = wanted.removeprefix("bytes=").split("-")
        begin, end = int(begin), min(int(end or len(body)), len(body) - 1)
        if begin >= len(body):
            return self.refuse(416, "InvalidRange")
        headers.append(("Content-Range", f"bytes {begin}-{end}/{len(body)}"))
        return self.answer(206, body[begin : end + 1], headers)

    key_head = key_get

    def key_put(self, name, key, body):
        with STORE.lock:
            there = STORE.bucket(name).get(key)
            if self.headers.get("If-None-Match") == "*" and there:
                refused = True
            else:
                refused = "If-Match" in self.headers and (not there or there[1] != self.headers["If-Match"])
            if not refused:
                put(name, key, body)
        if refused:
            return self.refuse(412, "PreconditionFailed")
        return self.answer(200, b"", [("ETag", self.found(name, key)[1])])

    def key_delete(self, name, key, _):
        with STORE.lock:
            STORE.bucket(name).pop(key, None)
        self.answer(204)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_):
        pass  # what a reset leaves behind


def main(args):
    if not args:
        sys.exit(__doc__)
    for arg in args[1:]:
        fill(*arg.split("=", 1))
    server = Server(("127.0.0.1", 0), Handler)
    with open(args[0] + ".new", "w", encoding="ascii") as file:
        file.write(str(server.server_address[1]))
    os.rename(args[0] + ".new", args[0])
    server.serve_forever()


main(sys.argv[1:])
