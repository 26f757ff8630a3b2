#!/usr/bin/env python3
"""loads.py lmdb DIR | loads.py loader DIR: reads of a program, checked and timed; prints one JSON object.

  lmdb    2,000 keys in random order from the database in DIR by 8 processes; every value's CRC-32 is compared
  loader  one epoch of a torch DataLoader, 8 workers, shuffled, batches of 64, over torchvision's ImageFolder of DIR:
          each JPEG decoded and made 224 pixels wide
"""
import json
import multiprocessing
import random
import sys
import time
import warnings
import zlib

READERS = 8


def lmdb_part(args):
    import lmdb

    top, part = args
    times, size, errors = [], 0, 0
    env = lmdb.open(top, readonly=True, lock=False, readahead=False)
    with env.begin(buffers=True) as txn:
        for key, crc in part:
            start = time.monotonic()
            value = txn.get(key)
            errors += value is None or zlib.crc32(value) != crc
            times.append(time.monotonic() - start)
            size += len(value or b"")
    return times, size, errors


def run_lmdb(top):
    with open(f"{top}/keys.txt", encoding="ascii") as file:
        keys = [(line.split()[0].encode(), int(line.split()[1])) for line in file]
    random.Random(7).shuffle(keys)
    keys = keys[:2000]
    with multiprocessing.Pool(READERS) as pool:
        start = time.monotonic()
        parts = pool.map(lmdb_part, [(top, keys[i::READERS]) for i in range(READERS)], chunksize=1)
        seconds = time.monotonic() - start
    times = sorted(t for part in parts for t in part[0])
    return {
        "files": len(keys),
        "bytes": sum(part[1] for part in parts),
        "errors": sum(part[2] for part in parts),
        "seconds": round(seconds, 3),
        "p50_ms": round(times[len(times) // 2] * 1e3, 2),
        "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 2),
    }


def run_loader(top):
    import os

    import torch
    import torchvision

    warnings.simplefilter("ignore")  # 8 workers are more than this machine has processors
    torch.manual_seed(1)
    torch.set_num_threads(1)
    transforms = torchvision.transforms
    start = time.monotonic()
    images = torchvision.datasets.ImageFolder(
        top, transforms.Compose([transforms.Resize(224), transforms.ToTensor()])
    )
    loader = torch.utils.data.DataLoader(images, batch_size=64, shuffle=True, num_workers=READERS)
    labels = torch.cat([label for _, label in loader])
    seconds = time.monotonic() - start
    expected = torch.tensor([label for _, label in images.samples])
    return {
        "files": len(labels),
        "bytes": sum(os.path.getsize(path) for path, _ in images.samples),
        "errors": int(not torch.equal(labels.sort().values, expected.sort().values)),
        "seconds": round(seconds, 3),
    }


result = {"lmdb": run_lmdb, "loader": run_loader}[sys.argv[1]](sys.argv[2])
print(json.dumps(result))
sys.exit(result["errors"] != 0)
