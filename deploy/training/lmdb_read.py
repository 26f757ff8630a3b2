"""lmdb_read.py ENVIRONMENT: every record of an LMDB on a mount, in shuffled order.

lock=False: a lock file cannot be written there, and needs not be, since nobody writes. readahead=False: LMDB's pages are
read at random, and what the kernel would read ahead of each is not wanted.
"""
import random
import sys

import lmdb

environment = lmdb.open(sys.argv[1], readonly=True, lock=False, readahead=False, subdir=True)
with environment.begin() as transaction:
    keys = [key for key, _ in transaction.cursor()]
    random.shuffle(keys)
    size = sum(len(transaction.get(key)) for key in keys)
print(f"{len(keys)} records, {size} bytes")
