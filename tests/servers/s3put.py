#!/usr/bin/env python3
"""Fill an S3 bucket, with any key S3 takes, by nothing but Python's own library.

usage: s3put.py tree BUCKET PREFIX  DIR           every regular file below DIR as PREFIX/path, 16 at a time
       s3put.py key BUCKET KEY [FILE]            one object; KEY is taken as it is (bytes); no FILE: empty
       s3put.py delete BUCKET KEY

Server and credentials: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION.
"""
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import threading
import urllib.parse

ENDPOINT = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
REGION = os.environ.get("AWS_REGION", "us-east-1")
LOCAL = threading.local()


def signed_headers(method, path, payload_hash):
    """AWS signature version 4 of a request without a query."""
    now = datetime.datetime.utcnow().strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": ENDPOINT.netloc, "x-amz-content-sha256": payload_hash, "x-amz-date": now}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, path, "", lines, names, payload_hash])
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, "
        f"SignedHeaders={names}, Signature={key.hex()}"
    )
    return headers


def request(method, bucket, key, body=b""):
    """One object; a connection a thread, kept open. key: bytes."""
    path = f"/{bucket}/" + urllib.parse.quote(key, safe="/-_.~")
    headers = signed_headers(method, path, hashlib.sha256(body).hexdigest())
    for attempt in range(3):
        if not getattr(LOCAL, "connection", None):
            LOCAL.connection = http.client.HTTPConnection(ENDPOINT.hostname, ENDPOINT.port, timeout=60)
        try:
            LOCAL.connection.request(method, path, body=body, headers=headers)
            answer = LOCAL.connection.getresponse()
            text = answer.read()
            if answer.status not in (200, 204):
                raise SystemExit(f"s3put.py: {method} {path}: {answer.status} {text[:300]}")
            return
        except (OSError, http.client.HTTPException) as error:
            LOCAL.connection = None
            if attempt == 2:
                raise SystemExit(f"s3put.py: {method} {path}: {error}") from error


def put_file(bucket, key, path):
    with open(path, "rb") as file:
        request("PUT", bucket, key, file.read())


def put_tree(bucket, prefix, top):
    top = os.fsencode(top)
    jobs = []
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                jobs.append((os.path.join(os.fsencode(prefix), os.path.relpath(path, top)), path))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for result in [pool.submit(put_file, bucket, key, path) for key, path in jobs]:
            result.result()
    print(f"{len(jobs)} objects")


def main(args):
    if len(args) == 4 and args[0] == "tree":
        put_tree(*args[1:])
    elif len(args) in (3, 4) and args[0] == "key":
        put_file(args[1], os.fsencode(args[2]), args[3] if len(args) == 4 else os.devnull)
    elif len(args) == 3 and args[0] == "delete":
        request("DELETE", args[1], os.fsencode(args[2]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
