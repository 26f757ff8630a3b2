"""Put a local tree into HDFS over WebHDFS, eight files at a time: hdfsput.py HOST:PORT LOCALDIR HDFSDIR

Names are bytes, mtimes are kept. `hdfs dfs -put` stumbles over blanks and % in names.
"""
import concurrent.futures
import http.client
import json
import os
import pwd
import string
import sys
import threading
import urllib.parse

namenode, source, target = sys.argv[1:]
user = pwd.getpwuid(os.getuid()).pw_name
source, target = os.fsencode(source), os.fsencode(target.rstrip("/"))
local = threading.local()


def ask(host, url, body=None):
    url = urllib.parse.quote(url, safe=string.printable)  # the address of a redirect holds raw UTF-8
    pool = local.__dict__.setdefault("connections", {})
    for again in (False, True):  # a kept connection may have been closed
        connection = pool.get(host) or pool.setdefault(host, http.client.HTTPConnection(host, timeout=60))
        if hasattr(body, "seek"):
            body.seek(0)
        try:
            connection.request("PUT", url, body, {"Content-Type": "application/octet-stream"} if body is not None else {})
            response = connection.getresponse()
            answer = response.read()
        except (http.client.HTTPException, OSError):
            pool.pop(host).close()
            if again:
                raise
            continue
        if response.status >= 400:
            raise SystemExit(f"{url}: {response.status} {answer[:300].decode()}")
        return answer


def change(path, **query):
    query = urllib.parse.urlencode({"user.name": user, **query})
    return ask(namenode, "/webhdfs/v1" + urllib.parse.quote(path) + "?" + query)


def put(file, path):
    answer = json.loads(change(path, op="CREATE", overwrite="true", noredirect="true"))
    location = urllib.parse.urlsplit(answer["Location"])
    status = os.stat(file)
    with open(file, "rb") as body:
        ask(location.netloc, location.path + "?" + location.query, body if status.st_size else b"")
    change(path, op="SETTIMES", modificationtime=status.st_mtime_ns // 10**6)


change(target, op="MKDIRS")
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    jobs = []
    for top, directories, files in os.walk(source):
        below = target + top[len(source) :].rstrip(b"/")
        for name in directories:
            change(below + b"/" + name, op="MKDIRS")
        jobs += [pool.submit(put, os.path.join(top, name), below + b"/" + name) for name in files]
    for job in jobs:
        job.result()
