#!/usr/bin/env python3
"""extra.py DIR [SEED=1]: a second dataset, for programs that read in other ways than file by file.

  python/   the standard library, numpy and torch of this Debian, with torch's shared libraries: what an `import` reads
  lmdb/     one LMDB database of 10,000 values, 4 KB to 60 KB, incompressible; keys.txt lists keys and their CRC-32
  images/   2,000 JPEGs in 20 classes, as torchvision's ImageFolder wants them

The LMDB and the images are the same for the same seed. Nothing is done when DIR holds the set already.
"""
import glob
import os
import random
import shutil
import sys
import zlib

import lmdb
import numpy
from PIL import Image


def python_environment(top):
    # torch/lib has its libraries by other names, of which one is opened by that name
    twins = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libcaffe2*", "libc10.so", "libshm.so")
    ignore = shutil.ignore_patterns("__pycache__", "test", "tests", "*.a", "include", *twins)
    version = "python%d.%d" % sys.version_info[:2]
    shutil.copytree(f"/usr/lib/{version}", f"{top}/lib/{version}", ignore=ignore)
    os.mkdir(f"{top}/packages")
    for package in ("numpy", "torch", "typing_extensions.py"):
        source = f"/usr/lib/python3/dist-packages/{package}"
        if os.path.isdir(source):
            shutil.copytree(source, f"{top}/packages/{package}", ignore=ignore)
        elif os.path.exists(source):
            shutil.copy(source, f"{top}/packages/")
    os.mkdir(f"{top}/shared")
    for library in glob.glob("/usr/lib/*-linux-gnu/libtorch*.so.*") + glob.glob("/usr/lib/*-linux-gnu/libc10*.so.*"):
        if library.count(".") == 3:  # libX.so.1.13, the names that are looked up
            shutil.copy(library, f"{top}/shared/")


def database(top, seed):
    values = random.Random(seed)
    env = lmdb.open(top, map_size=1 << 30)
    with env.begin(write=True) as txn, open(f"{top}/keys.txt", "w", encoding="ascii") as keys:
        for i in range(10000):
            key, value = b"%08d" % i, values.randbytes(values.randrange(4000, 60000))
            txn.put(key, value)
            keys.write(f"{key.decode()} {zlib.crc32(value)}\n")
    env.close()
    os.remove(f"{top}/lock.mdb")


def images(top, seed):
    noise = numpy.random.default_rng(seed)
    for i in range(2000):
        os.makedirs(f"{top}/class{i % 20:02d}", exist_ok=True)
        pixels = noise.integers(0, 256, (60, 60, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).resize((300, 300)).save(f"{top}/class{i % 20:02d}/{i:05d}.jpg", quality=90)


def main(top, seed=1):
    done = f"{top}/.complete"
    if os.path.exists(done):
        return
    shutil.rmtree(top, ignore_errors=True)
    for name in ("python", "lmdb", "images"):
        os.makedirs(f"{top}/set/{name}")
    python_environment(f"{top}/set/python")
    database(f"{top}/set/lmdb", seed)
    images(f"{top}/set/images", seed)
    with open(done, "w", encoding="ascii"):
        pass


main(sys.argv[1], *map(int, sys.argv[2:]))
