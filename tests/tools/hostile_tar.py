#!/usr/bin/env python3
"""hostile_tar.py DIR: tars as nobody should make them, one for each thing that is odd about it. In DIR/same those of
which tar -x makes a tree all the same, in DIR/refused the others; DIR/sentences has a line for each of these: the name,
a tab, what is to be said of it. DIR/devices.tar has a device of two names, and a pipe."""
import gzip
import os
import sys


def field(number, width):
    if number < 0 or number >= 8 ** (width - 1):
        return (number & ((1 << (8 * width)) - 1) | 1 << (8 * width - 1)).to_bytes(width, "big")
    return b"%0*o\0" % (width - 1, number)


def header(name, size=0, kind=b"0", link=b"", mode=0o644, magic=b"ustar\00000", prefix=b"", tail=None):
    h = bytearray(512)
    h[0:len(name)] = name
    h[100:108], h[108:116], h[116:124] = field(mode, 8), field(0, 8), field(0, 8)
    h[124:136], h[136:148], h[148:156] = field(size, 12), field(1000000000, 12), b" " * 8
    h[156:157], h[157:157 + len(link)], h[257:265] = kind, link, magic
    h[345:345 + len(prefix)] = prefix
    if tail:
        h[345:345 + len(tail)] = tail
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def padded(data):
    return data + bytes(-len(data) % 512)


def member(name, data=b"", **more):
    return header(name, len(data), **more) + padded(data)


def pax(records, kind=b"x"):
    data = b""
    for key, value in records:
        body = b" " + key + b"=" + value + b"\n"
        n = len(body)
        while len(str(n)) + len(body) != n:
            n = len(str(n)) + len(body)
        data += str(n).encode() + body
    return member(b"PaxHeaders/x", data, kind=kind)


def gnu_long(kind, name):
    return member(b"././@LongLink", name + b"\0", kind=kind, magic=b"ustar  \0")


END = bytes(1024)
good = member(b"good", b"good\n")


def sparse_gnu(pieces, real, data):
    tail = bytearray(167)
    for i, (at, n) in enumerate(pieces):
        tail[41 + 24 * i:53 + 24 * i], tail[53 + 24 * i:65 + 24 * i] = field(at, 12), field(n, 12)
    tail[138:150] = field(real, 12)
    return header(b"sparse", len(data), kind=b"S", magic=b"ustar  \0", tail=tail) + padded(data)


def sparse_1_0(text, real, data):
    body = padded(text) + data
    return pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"sparse"),
                (b"GNU.sparse.realsize", b"%d" % real)]) + member(b"GNUSparseFile.0/sparse", body)


long = b"d/" + b"/".join([b"x" * 200] * 12) + b"/leaf"
same = {
    "absolute": member(b"/etc/absolute", b"a") + member(b"//two//slashes/./x", b"b") + END,
    "twice": good + member(b"a", b"first") + member(b"b", b"between") + member(b"a", b"the second") + END,
    "twice-kinds": member(b"a", b"file") + member(b"a", kind=b"2", link=b"good") + good + END,
    "twice-directory": member(b"d/", kind=b"5", mode=0o700) + member(b"d/", kind=b"5", mode=0o755) + END,
    "link": good + member(b"z", b"z") + member(b"a", kind=b"1", link=b"z") + member(b"m", kind=b"1", link=b"./a") + END,
    "link-then-replaced": member(b"a", b"one") + member(b"b", kind=b"1", link=b"a") + member(b"a", b"two")
    + member(b"c", kind=b"1", link=b"b") + member(b"d", kind=b"1", link=b"a") + END,
    "link-replaces": member(b"a", b"one") + member(b"b", b"two") + member(b"b", kind=b"1", link=b"a") + END,
    "link-to-symlink": good + member(b"s", kind=b"2", link=b"good") + member(b"r", kind=b"1", link=b"s") + END,
    "link-to-itself": member(b"a", b"one") + member(b"a", kind=b"1", link=b"a") + END,
    "link-to-empty": member(b"a") + member(b"b", kind=b"1", link=b"a") + END,
    "link-of-other-attributes": member(b"b", b"1", mode=0o600) + member(b"a", kind=b"1", link=b"b", mode=0o777) + END,
    "long-pax": pax([(b"path", long)]) + member(b"short", b"long") + END,
    "long-gnu": gnu_long(b"L", long) + member(b"short", b"long", magic=b"ustar  \0") + END,
    "long-link": pax([(b"path", long)]) + member(b"short", b"long")
    + pax([(b"linkpath", long)]) + member(b"link", kind=b"1", link=b"short") + END,
    "nul-in-pax-path": good + pax([(b"path", b"a\0b")]) + member(b"short", b"x") + END,
    "sparse-gnu": sparse_gnu([(4096, 512), (1000000, 512), (1500000, 0)], 1500000, b"a" * 512 + b"b" * 512) + good
    + END,
    "sparse-pax": sparse_1_0(b"3\n4096\n512\n1000000\n512\n1500000\n0\n", 1500000, b"a" * 512 + b"b" * 512) + good
    + END,
    "sparse-all": sparse_gnu([(1500000, 0)], 1500000, b"") + good + END,
    "no-end": good + member(b"b", b"b"),
    "garbage-behind": good + END + bytes(range(256)) * 20,
    "second-archive-behind": good + END + member(b"second", b"2") + END,
    "empty": bytes(10240),
    "global-pax": pax([(b"comment", b"x" * 1000)], kind=b"g") + good + END,
    "old": member(b"old", b"v7", magic=bytes(8)) + member(b"dir/", magic=bytes(8), mode=0o755) + END,
    "before-1970": pax([(b"mtime", b"-12345")]) + good + END,
    "unknown-kind": good + member(b"odd", b"odd", kind=b"Q") + END,
}

DAMAGED = "is damaged, or no tar of its name's kind: "
CUT = DAMAGED + "Truncated tar archive"
MISSING = "which does not come before it in its archive"
noise = bytes(i * i * 7 % 251 for i in range(9000))
refused = {
    "dotdot.tar": (good + member(b"a/../../up", b"x") + END, "'a/../../up' has '..' in its path"),
    "dotdot-link.tar": (good + member(b"a", kind=b"1", link=b"../../etc/passwd") + END,
                        "'../../etc/passwd' has '..' in its path"),
    "link-missing.tar": (good + member(b"a", kind=b"1", link=b"gone") + END, "'a' is a hard link to 'gone', " + MISSING),
    "link-forward.tar": (member(b"a", kind=b"1", link=b"good") + good + END, "'a' is a hard link to 'good', " + MISSING),
    "link-to-directory.tar": (member(b"d/", kind=b"5", mode=0o755) + member(b"a", kind=b"1", link=b"d") + END,
                              "'a' is a hard link to 'd', " + MISSING),
    "component.tar": (good + pax([(b"path", b"y" * 256)]) + member(b"short", b"x") + END, "a component over 255 bytes"),
    "path.tar": (good + pax([(b"path", b"/".join([b"x" * 200] * 400))]) + member(b"short", b"x") + END,
                 "has a path of over 65535 bytes"),
    "through-symlink.tar": (member(b"a", kind=b"2", link=b"/etc") + member(b"a/passwd", b"x") + END,
                            "a file has the name of a directory: 'a'"),
    "through-file.tar": (member(b"a", b"x") + member(b"a/b", b"x") + END, "a file has the name of a directory: 'a'"),
    "no-name.tar": (good + member(b"", b"x") + END, "an empty component cannot be a file name"),
    "root.tar": (good + member(b"/", b"x") + END, DAMAGED),
    "no-target.tar": (good + member(b"a", kind=b"2") + END, "'a': a symbolic link's text must have 1 to 4095 bytes"),
    "huge-pax.tar": (pax([(b"size", b"9223372036854775807")]) + good + END, DAMAGED),
    "huger-pax.tar": (pax([(b"size", b"99999999999999999999999")]) + good + END, DAMAGED),
    "negative-pax.tar": (pax([(b"size", b"-5")]) + good + END, DAMAGED),
    "negative.tar": (header(b"a", -5) + good + END, DAMAGED),
    "large-pax.tar": (pax([(b"size", b"5000000000")]) + good + END, CUT),
    "huge-pax-header.tar": (header(b"PaxHeaders/x", 1 << 40, kind=b"x") + good + END, DAMAGED),
    "huge-long-name.tar": (header(b"././@LongLink", 1 << 40, kind=b"L", magic=b"ustar  \0") + good + END, DAMAGED),
    "bad-pax.tar": (member(b"PaxHeaders/x", b"99999 path=x\n", kind=b"x") + good + END, DAMAGED),
    "checksum.tar": (good + b"X" + good[1:] + END, DAMAGED),
    "cut-body.tar": (good + member(b"b", b"x" * 5000)[:2000], CUT),
    "cut-header.tar": (good + member(b"b", b"x")[:300], CUT),
    "garbage.tar": (noise[:4096], DAMAGED),
    "no-bytes.tar": (b"", DAMAGED + "it has no bytes"),
    "sparse-beyond.tar": (sparse_gnu([(4096, 1024)], 4096, b"a" * 1024) + good + END,
                          "'sparse' does not have the 4096 bytes"),
    "sparse-backwards.tar": (sparse_gnu([(100000, 512), (4096, 512)], 200000, b"a" * 1024) + good + END,
                             "'sparse' does not have the 200000 bytes"),
    "sparse-short.tar": (sparse_1_0(b"2\n4096\n512\n1000000\n99999\n", 1500000, b"a" * 1024) + good + END,
                         "'sparse' does not have the 1500000 bytes"),
    "sparse-huge.tar": (sparse_gnu([(1 << 62, 512)], (1 << 62) + 512, b"a" * 512) + good + END,
                        "'sparse': build: the image would pass 1 EiB"),
    "sparse-no-numbers.tar": (sparse_1_0(b"x\ny\n", 1500000, b"a" * 1024) + good + END, DAMAGED),
    "packed-no-bytes.tgz": (b"", DAMAGED + "it has no bytes"),
    "packed-garbage-behind.tgz": (gzip.compress(good + END) + b"garbage", DAMAGED + "gzip"),
    "packed-cut.tgz": (gzip.compress(good + member(b"r", noise) + END, 1)[:200], DAMAGED + "the packed stream is cut short"),
    "packed-cut-checksum.tgz": (gzip.compress(good + END)[:-3], DAMAGED + "the packed stream is cut short"),
}

devices = member(b"null", kind=b"3") + member(b"pipe", kind=b"6") + member(b"second", kind=b"1", link=b"null") + END

if __name__ == "__main__":
    with open(os.path.join(sys.argv[1], "devices.tar"), "wb") as f:
        f.write(devices)
    for kind in "same", "refused":
        os.mkdir(os.path.join(sys.argv[1], kind))
    for name, data in same.items():
        with open(os.path.join(sys.argv[1], "same", name + ".tar"), "wb") as f:
            f.write(data)
    with open(os.path.join(sys.argv[1], "sentences"), "w") as sentences:
        for name, (data, sentence) in refused.items():
            print(name, sentence, sep="\t", file=sentences)
            with open(os.path.join(sys.argv[1], "refused", name), "wb") as f:
                f.write(data)
