#!/usr/bin/env python3
"""A proxy in front of a real HTTP server of ranges, whose line fails as told.

usage: faulty-proxy.py PORT UPSTREAM-PORT CONTROL-SOCKET [CERTIFICATE KEY]

It listens on 127.0.0.1:PORT, with TLS if it has a certificate, and asks 127.0.0.1:UPSTREAM-PORT. On the unix socket,
`POST /` with JSON sets the fault:

  {"mode": MODE, "after": N, "for_s": S, ...}     from the Nth request on (0: at once), for S seconds (0: until told)

  none          everything passes
  refuse        connections are reset, further ones are refused
  silent        connections stay, are accepted, and nothing comes any more; afterwards it goes on
  trickle       "rate" bytes a second on each connection
  pauses        of each "every" requests the last is answered "delay_s" later
  late          an answer comes "delay_s" later
  errors        "percent" of the requests get one of "kinds" at random ("seed"):
      500, 503    the answer; 503 with Retry-After: 1
      reset       the connection is reset before anything is answered
      cut         half of the body, then the connection is closed in an orderly way
      broken      half of the body, then it is reset
      short       a Content-Length of half the body, and no more bytes
      long        a Content-Length of 100 bytes more than come, then the connection is closed
      flip        one bit of the body is turned over; never in an answer that has a byte which was wrong before

{"certificate": [CERTIFICATE, KEY]} has it show another one, on connections that are all new. `GET /` answers JSON: the
mode in force and counts since the start: requests, faulted (answered in another way than the server's), connections.
"""
import http.client
import http.server
import json
import os
import random
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

NONE = {"mode": "none"}


class Line:
    """What is wrong at the moment, and everything that is connected."""

    def __init__(self, port, upstream, certificate):
        self.changed = threading.Condition()
        self.port, self.upstream = port, upstream
        self.fault, self.coming, self.requests_until, self.generation = NONE, None, 0, 0
        self.met = 0  # requests since the fault began
        self.random = random.Random(1)
        self.counts = {"requests": 0, "faulted": 0, "connections": 0}
        self.connections = set()
        self.flipped = []  # path and offset of every byte that was wrong once
        self.listener = None
        self.tls = self.context(certificate) if certificate else None

    @staticmethod
    def context(certificate):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*certificate)
        return made

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            with self.changed:
                if listener is not self.listener:
                    return reset(client)
                self.connections.add(client)
                self.counts["connections"] += 1
            threading.Thread(target=serve, args=(self, client), daemon=True).start()

    def reset_all(self):
        for client in self.connections:
            reset(client)
        self.connections.clear()

    def set(self, told):
        with self.changed:
            if "certificate" in told:
                self.tls = self.context(told["certificate"])
                return self.reset_all()
            self.begin(NONE)
            self.random = random.Random(told.get("seed", 1))
            self.coming, self.requests_until = told, told.get("after", 0)
            if not self.requests_until:
                self.begin(told)
        return None

    def begin(self, fault):
        """With the lock."""
        refused = self.fault["mode"] == "refuse"
        self.fault, self.coming, self.met = fault, None, 0
        self.generation += 1
        if fault["mode"] == "refuse":
            listener, self.listener = self.listener, None
            listener.shutdown(socket.SHUT_RDWR)  # wakes its accept
            listener.close()
            self.reset_all()
        elif refused:
            self.listen()
        if fault.get("for_s"):
            threading.Thread(target=self.end_later, args=(fault["for_s"], self.generation), daemon=True).start()
        self.changed.notify_all()

    def end_later(self, seconds, generation):
        time.sleep(seconds)
        with self.changed:
            if generation == self.generation:
                self.begin(NONE)

    def meet(self):
        """The fault of one request: the mode, and the kind of an error."""
        with self.changed:
            self.counts["requests"] += 1
            if self.coming:
                self.requests_until -= 1
                if self.requests_until < 0:
                    self.begin(self.coming)
            fault, kind = self.fault, None
            if fault["mode"] == "pauses":
                self.met += 1
                fault = fault if self.met % fault["every"] == 0 else NONE
            if fault["mode"] == "errors" and self.random.random() * 100 < fault["percent"]:
                kind = self.random.choice(fault["kinds"])
            if kind or fault["mode"] not in ("none", "errors"):
                self.counts["faulted"] += 1
            return fault, kind

    def spoil(self, target, first, body):
        """The body of `target` from byte `first` on, with one bit turned over, or as it is."""
        with self.changed:
            if not body or any(t == target and first <= at < first + len(body) for t, at in self.flipped):
                return body
            bit = self.random.randrange(8 * len(body))
            self.flipped.append((target, first + bit // 8))
            return body[: bit // 8] + bytes([body[bit // 8] ^ 1 << bit % 8]) + body[bit // 8 + 1 :]

    def wait_while_silent(self):
        with self.changed:
            while self.fault["mode"] == "silent":
                self.changed.wait()

    def send(self, client, data):
        """At the pace of the moment."""
        while data:
            self.wait_while_silent()
            fault = self.fault
            n = max(fault["rate"] // 10, 1) if fault["mode"] == "trickle" else 65536
            client.sendall(data[:n])
            data = data[n:]
            if fault["mode"] == "trickle":
                time.sleep(0.1)


def reset(client):
    try:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close() if not isinstance(client, ssl.SSLSocket) else socket.socket(fileno=client.detach()).close()
    except OSError:
        pass


def head_of(client, held):
    while b"\r\n\r\n" not in held:
        data = client.recv(65536)
        if not data:
            return None, b""
        held += data
    head, _, held = held.partition(b"\r\n\r\n")
    return head.decode("latin-1"), held


def ask(upstream, head):
    """The server's answer: status line and headers, body."""
    lines = head.split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line.lower().startswith(("range:", "if-match:", "granary-")))
    upstream.request(method, target, headers=headers)
    answer = upstream.getresponse()
    body = answer.read()
    kept = [(k, v) for k, v in answer.getheaders() if k.lower() in ("content-range", "etag", "last-modified", "granary-node")]
    length = answer.getheader("Content-Length") if method == "HEAD" else len(body)
    return answer.status, kept, body, int(length or 0)


def answer(line, client, head, upstream):
    """False: the connection has ended."""
    fault, kind = line.meet()
    if fault["mode"] in ("late", "pauses"):
        time.sleep(fault["delay_s"])
    line.wait_while_silent()
    if kind == "reset":
        reset(client)
        return False
    if kind in ("500", "503"):
        text = "Retry-After: 1\r\n" if kind == "503" else ""
        client.sendall(f"HTTP/1.1 {kind} told\r\n{text}Content-Length: 0\r\n\r\n".encode())
        return True
    status, headers, body, length = ask(upstream, head)
    if kind == "flip":
        first = next((v.split(" ")[1].split("-")[0] for k, v in headers if k.lower() == "content-range"), 0)
        body = line.spoil(head.split(" ")[1], int(first), body)
    if kind == "short":
        body, length = body[: len(body) // 2], length // 2
    if kind == "long":
        length += 100
    if kind in ("cut", "broken"):
        body = body[: len(body) // 2]
    text = "".join(f"{k}: {v}\r\n" for k, v in headers)
    line.send(client, f"HTTP/1.1 {status} told\r\n{text}Content-Length: {length}\r\n\r\n".encode("latin-1") + body)
    if kind == "broken":
        reset(client)
    return kind not in ("cut", "broken", "long")


def serve(line, plain):
    client, held = plain, b""
    upstream = http.client.HTTPConnection("127.0.0.1", line.upstream)
    try:
        line.wait_while_silent()
        if line.tls:
            client = line.tls.wrap_socket(plain, server_side=True)
            with line.changed:
                line.connections.discard(plain)
                line.connections.add(client)
        while True:
            head, held = head_of(client, held)
            if head is None or not answer(line, client, head, upstream):
                break
        client.close()
    except (OSError, ValueError, http.client.HTTPException):
        client.close()  # what a reset leaves behind
    with line.changed:
        line.connections.discard(client)
    upstream.close()


class Control(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def address_string(self):
        return ""

    def do_POST(self):
        self.server.line.set(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()

    def do_GET(self):
        line = self.server.line
        with line.changed:
            text = json.dumps({"mode": line.fault["mode"], **line.counts}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main(args):
    if len(args) not in (3, 5):
        sys.exit(__doc__)
    line = Line(int(args[0]), int(args[1]), args[3:])
    line.listen()
    server = Server(args[2] + ".new", Control)
    server.line = line
    os.rename(args[2] + ".new", args[2])
    server.serve_forever()


main(sys.argv[1:])
