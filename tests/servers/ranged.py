"""An HTTP server of a directory's files that knows Range, for tests that have their own idea of when it answers:

    import ranged
    class Handler(ranged.Files):
        def ready(self): ...    # before each answer; false: it was sent already
    ranged.serve(Handler, root, port_file)
"""
import http.server
import os


class Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root = None

    def ready(self):
        return True

    def empty(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if not self.ready():
            return
        try:
            with open(self.root + self.path, "rb") as f:
                data = f.read()
        except OSError:
            self.empty(404)
            return
        total, asked = len(data), self.headers.get("Range")
        self.send_response(206 if asked else 200)
        if asked:
            first, last = asked.split("=")[1].split("-")
            first, last = int(first), min(int(last or total), total - 1)
            data = data[first:last + 1]
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args):
        pass


def serve(handler, root, port_file):
    """On a free port of 127.0.0.1, which port_file names once it listens; for ever."""
    handler.root = root
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with open(port_file + ".new", "w") as f:
        f.write(str(server.server_port))
    os.rename(port_file + ".new", port_file)
    server.serve_forever()
