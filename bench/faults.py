#!/usr/bin/env python3
"""faults.py LIST DIR READERS N: N files of a list of epoch-reader's, spread evenly over it, mapped and read page by page.

The kernel is told to expect random access, so each page is a fault and a request of its own. One JSON object is printed,
as by epoch-reader.
"""
import json
import mmap
import multiprocessing
import sys
import time


def fault_in(path):
    began = time.monotonic()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        pages.madvise(mmap.MADV_RANDOM)
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at]
        return len(pages), (time.monotonic() - began) * 1000


def main(names, top, readers, count):
    with open(names, encoding="utf-8") as file:
        paths = [f"{top}/{line.rstrip().split(' ', 2)[2]}" for line in file]
    chosen = [paths[i * len(paths) // count] for i in range(count)]
    with multiprocessing.Pool(readers) as pool:
        began = time.monotonic()
        read = pool.map(fault_in, chosen, chunksize=1)
        seconds = time.monotonic() - began
    times = sorted(ms for _, ms in read)
    late = round(times[len(times) * 99 // 100], 2)
    print(json.dumps({"bytes": sum(length for length, _ in read), "seconds": round(seconds, 3), "p99_ms": late}))


main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
