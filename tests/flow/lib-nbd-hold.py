"""A client of NBD that holds a connection to one export, on a unix socket: it reads commands from standard input, a line
each, and answers each with a line.

    SOCKET EXPORT: sum   the SHA-256 of all bytes of the export; end: the end
"""
import hashlib, socket, struct, sys


def take(s, n):
    data = s.recv(n, socket.MSG_WAITALL)
    if len(data) < n:
        raise EOFError
    return data


def connect(path, export):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    take(s, 18)
    s.sendall(struct.pack(">I", 3))
    name = export.encode()
    s.sendall(struct.pack(">8sIII", b"IHAVEOPT", 7, 6 + len(name), len(name)) + name + struct.pack(">H", 0))
    size = None
    while True:
        _, _, kind, length = struct.unpack(">QIII", take(s, 20))
        data = take(s, length)
        if kind == 1:
            return s, size
        if kind & 1 << 31:
            raise OSError("the server refuses " + export)
        if data[:2] == b"\0\0":
            size = struct.unpack(">Q", data[2:10])[0]


def digest(s, size):
    sums = hashlib.sha256()
    for at in range(0, size, 1 << 20):
        n = min(1 << 20, size - at)
        s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, at, at, n))
        _, error, _ = struct.unpack(">IIQ", take(s, 16))
        if error:
            raise OSError("a read failed with %d" % error)
        sums.update(take(s, n))
    return sums.hexdigest()


sock, size = connect(sys.argv[1], sys.argv[2])
print("connected", flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        break
    print(digest(sock, size), flush=True)
