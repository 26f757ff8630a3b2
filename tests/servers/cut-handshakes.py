#!/usr/bin/env python3
"""cut-handshakes.py PORT-FILE CUTS-FILE TO COUNT: a way to port TO of 127.0.0.1 for TLS, from a free port that is written
to PORT-FILE. The first COUNT connections that do not offer HTTP/2 end in their handshake, each a line in CUTS-FILE."""
import os
import socket
import sys
import threading

port_file, cuts_file, to, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lock = threading.Lock()
cuts = open(cuts_file, "w")
left = count


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client):
    global left
    hello = client.recv(65536)  # the offer is in clear in it
    with lock:
        cut = b"\x02h2" not in hello and left > 0
        left -= cut
    if cut:
        cuts.write("cut\n")
        cuts.flush()
        client.close()
        return
    server = socket.create_connection(("127.0.0.1", to))
    server.sendall(hello)
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
    pump(client, server)


listener = socket.create_server(("127.0.0.1", 0), backlog=64)
with open(port_file + ".new", "w") as f:
    f.write(str(listener.getsockname()[1]))
os.rename(port_file + ".new", port_file)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
