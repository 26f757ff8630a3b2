#!/usr/bin/env python3
"""Traces for bench/eviction.sh, to standard output: eviction.py WORKLOAD CHUNKS ASKS SEED [NUMBER]

A workload yields the numbers of chunks, or pairs of such a number and how many of its pages are wanted.
"""

import itertools
import math
import random
import sys


PAGES = 32  # of a chunk


def shuffled(keys):
    """Epochs without end: every key once, in a fresh order each time."""
    keys = list(keys)
    while True:
        random.shuffle(keys)
        yield from keys


def zipf(n, alpha):
    weights = list(itertools.accumulate((i + 1) ** -alpha for i in range(n)))
    while True:
        yield from random.choices(range(n), cum_weights=weights, k=10000)


def epochs(n, _):
    keys = list(range(n))
    while True:
        random.shuffle(keys)
        yield from keys
        yield "epoch"


def files(n, mean):
    """Shuffled epochs of whole files, `mean` chunks long on average; small ones share a chunk."""
    return epochs_of_files(n, lambda: random.expovariate(1 / mean) * PAGES)


def images(n, pages):
    """The same with the sizes of data.py, in chunks of this many pages of 4 KiB."""
    return epochs_of_files(n, lambda: min(max(60000 * math.exp(random.gauss(0, 1)), 2048), 8 << 20) / 4096 * PAGES / pages)


def epochs_of_files(n, pages):
    ends = [0]
    while ends[-1] < (n - 1) * PAGES:
        ends.append(min(ends[-1] + max(math.ceil(pages()), 1), (n - 1) * PAGES))
    spans = list(zip(ends, ends[1:]))
    while True:
        random.shuffle(spans)
        for begin, end in spans:
            for chunk in range(begin // PAGES, (end - 1) // PAGES + 1):
                yield chunk, min(end, (chunk + 1) * PAGES) - max(begin, chunk * PAGES)
        yield "epoch"


def change(n, part):
    """Shuffled epochs; after each a part of the chunks is replaced by new ones for good."""
    keys, fresh = list(range(n)), itertools.count(n)
    while True:
        random.shuffle(keys)
        yield from keys
        yield "epoch"
        for i in random.sample(range(n), int(n * part)):
            keys[i] = next(fresh)


def jobs(n, own):
    """Two jobs in shuffled epochs at the same speed: own 1: a dataset each, one half as large; 0: the same."""
    a = shuffled(range(n))
    b = shuffled(range(n, n + n // 2) if own else range(n))
    while True:
        yield next(a if random.random() < 0.5 else b)


def scans(n, alpha):
    """By turns n/4 asks of a Zipf trace and a scan of n/4 chunks that are never wanted again."""
    popular, fresh = zipf(n, alpha), itertools.count(n)
    while True:
        yield from itertools.islice(popular, n // 4)
        yield from itertools.islice(fresh, n // 4)


def polluted(n, alpha):
    """The same, every other ask."""
    popular, fresh = zipf(n, alpha), itertools.count(n)
    while True:
        yield next(popular if random.random() < 0.5 else fresh)


def renewed(n, part):
    """Zipf; every 2n asks a part of the chunks is replaced by new ones."""
    names, fresh = list(range(n)), itertools.count(n)
    random.shuffle(names)
    ranks = zipf(n, 0.9)
    while True:
        for rank in itertools.islice(ranks, 2 * n):
            yield names[rank]
        for i in random.sample(range(n), int(n * part)):
            names[i] = next(fresh)


def upset(n, period):
    """Zipf; after every `period` asks all popularities are dealt out anew."""
    names, ranks = list(range(n)), zipf(n, 1.0)
    while True:
        random.shuffle(names)
        for rank in itertools.islice(ranks, int(period)):
            yield names[rank]


def moving(n, speed):
    """A window of n chunks, evenly asked for, that moves by `speed` chunks an ask."""
    for i in itertools.count():
        yield int(i * speed) + random.randrange(n)


def main():
    name, chunks, asks, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    number = float(sys.argv[5]) if len(sys.argv) > 5 else 0
    random.seed(f"{name} {seed}")
    trace = globals()[name](chunks, number)
    left = asks
    while left > 0:
        ask = next(trace)
        left -= ask != "epoch"
        if ask == "epoch":
            sys.stdout.write("epoch\n")
        elif isinstance(ask, tuple):
            sys.stdout.write(f"{ask[0]:x} 64K {ask[1] * 2}K\n")
        else:
            sys.stdout.write(f"{ask:x}\n")


main()
