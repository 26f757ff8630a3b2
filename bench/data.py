#!/usr/bin/env python3
"""data.py DIR [FILES=20000] [DIRECTORIES=200] [SEED=1] [MEAN DEVIATION]: a synthetic set of images.

Incompressible, no two alike, sizes log-normal (median 60 KB, sigma 1, from 2 KB to 8 MB): 20,000 files are 2.0 GB.
With MEAN and DEVIATION, normal, in bytes.
The same arguments give the same bytes. Nothing is done when DIR holds such a set already.
"""
import math
import os
import random
import sys


def main(top, files=20000, directories=200, seed=1, mean=0, deviation=0):
    done = os.path.join(top, ".complete")
    if os.path.exists(done):
        return
    sizes = random.Random(seed)
    pool = random.Random(seed + 1).randbytes(64 << 20)
    for i in range(directories):
        os.makedirs(f"{top}/set/class{i:03d}", exist_ok=True)
    total = 0
    for i in range(files):
        size = sizes.gauss(mean, deviation) if mean else 60000 * math.exp(sizes.gauss(0, 1.0))
        size = int(min(8 << 20, max(2048, size)))
        at = sizes.randrange(len(pool) - size)
        head = b"\xff\xd8\xff\xe0%016x" % sizes.getrandbits(64)
        with open(f"{top}/set/class{i % directories:03d}/img{i:06d}.jpg", "wb") as file:
            file.write((head + pool[at : at + size])[:size])
        total += size
    with open(done, "w", encoding="ascii") as file:
        file.write(f"{files} {total}\n")


main(sys.argv[1], *map(int, sys.argv[2:]))
