#!/usr/bin/env python3
"""A store behind plain HTTP whose every answer takes DELAY_MS: slow-store.py ROOT DELAY_MS PORT_FILE LOG

The log has a line for each request: when it came, when its answer began (seconds), method, path, range. With --rounds
LOG it counts: requests, repeats, and rounds. A round is what was asked before the first of it was answered."""
import http.server, os, sys, threading, time


def count(log):
    requests = sorted((float(came), float(answered), what) for came, answered, what in
                      (line.rstrip("\n").split(" ", 2) for line in open(log)))
    rounds, until = 0, -1.0
    for came, answered, _ in requests:
        if came >= until:
            rounds, until = rounds + 1, answered
        until = min(until, answered)
    print(f"requests {len(requests)} repeats {len(requests) - len({r[2] for r in requests})} rounds {rounds}")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        came = time.monotonic()
        time.sleep(self.server.delay)
        asked = self.headers.get("Range", "-")
        with self.server.lock:
            self.server.log.write(f"{came:.6f} {time.monotonic():.6f} {self.command} {self.path} {asked}\n")
        try:
            with open(os.path.join(self.server.root, self.path[1:]), "rb") as f:
                data = f.read()
        except OSError:
            return self.answer(404, b"")
        if asked == "-":
            return self.answer(200, data)
        first, last = asked.split("=")[1].split("-")
        first, last = (int(first), min(int(last or len(data)), len(data) - 1)) if first else (
            max(len(data) - int(last), 0), len(data) - 1)
        self.answer(206, data[first:last + 1], f"bytes {first}-{last}/{len(data)}")

    do_HEAD = do_GET

    def answer(self, status, body, part=None):
        self.send_response(status)
        if part:
            self.send_header("Content-Range", part)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that hung up


def main():
    if sys.argv[1] == "--rounds":
        return count(sys.argv[2])
    root, delay_ms, port_file, log = sys.argv[1:]
    server = Server(("127.0.0.1", 0), Handler)
    server.root, server.delay, server.lock = root, float(delay_ms) / 1000, threading.Lock()
    server.log = open(log, "a", buffering=1)
    with open(port_file + ".new", "w") as f:
        f.write(str(server.server_port))
    os.rename(port_file + ".new", port_file)
    server.serve_forever()


main()
