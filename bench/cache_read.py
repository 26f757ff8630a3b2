#!/usr/bin/env python3
"""cache_read.py line FIO.json TICKS ROUND CONTENDER SIZE DEPTH CONNECTIONS: one turn as a line of tab-separated values.
cache_read.py table RESULTS: those lines as tables, of medians over the rounds; round 0 is the warm-up.

A line: round, contender, size, depth, connections, MB/s, requests a second, mean and p99 latency in microseconds,
CPU microseconds a request.
"""
import collections
import json
import os
import statistics
import sys

RATE, REQUESTS, MEAN, P99, CPU = range(5)


def line(path, ticks, *turn):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    job = json.loads(text[text.index("{") :])["jobs"][0]
    read = job["read"]
    used = int(ticks) / os.sysconf("SC_CLK_TCK") * 1e6
    if turn[1] == "raw":
        used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e3
    latency = read["clat_ns"]
    values = (
        read["bw_bytes"] / 1e6,
        read["iops"],
        latency["mean"] / 1e3,
        latency["percentile"]["99.000000"] / 1e3,
        used / read["total_ios"],
    )
    print(*turn, *(f"{value:.2f}" for value in values), sep="\t")


class Results:
    """By row (connections, size, depth) and contender: the values of each round."""

    def __init__(self, path):
        self.rows = collections.defaultdict(lambda: collections.defaultdict(dict))
        with open(path, encoding="utf-8") as file:
            for text in file:
                turn, name, size, depth, connections, *values = text.split()
                if turn != "0":
                    self.rows[connections, size, depth][name][turn] = [float(value) for value in values]
        self.names = list(next(iter(self.rows.values())))

    def median(self, row, name, what):
        return statistics.median(values[what] for values in self.rows[row][name].values())

    def ratio(self, row, what, name, *others):
        """Median over the rounds of name's value over the sum of the others'; None: one is missing."""
        if any(other not in self.rows[row] for other in (name, *others)):
            return None
        of = self.rows[row]
        return statistics.median(of[name][t][what] / sum(of[other][t][what] for other in others) for t in of[name])


def row_of(*cells):
    print("| " + " | ".join(cells) + " |")


def heading(title, *cells):
    print(f"\n{title}\n")
    row_of("connections", "size", "depth", *cells)
    row_of(*["---"] * (3 + len(cells)))


def show(value):
    return "" if value is None else f"{value:.2f}"


def digits(value):
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def rates(results):
    pairs = ("granary", "raw"), ("plugin", "raw"), ("granary", "file"), ("tier", "memory"), ("plugin-tier", "memory")
    heading("MB/s (CPU µs a request)", *results.names, *map(" / ".join, pairs))
    for row in results.rows:
        row_of(
            *row,
            *(f"{results.median(row, name, RATE):,.0f} ({digits(results.median(row, name, CPU))})" for name in results.names),
            *(show(results.ratio(row, RATE, *pair)) for pair in pairs),
        )


def latencies(results):
    heading("latency, mean (p99), µs", *results.names, "granary / (raw + memory)")
    for row in results.rows:
        row_of(
            *row,
            *(f"{results.median(row, name, MEAN):,.0f} ({results.median(row, name, P99):,.0f})" for name in results.names),
            show(results.ratio(row, MEAN, "granary", "raw", "memory")) if row[2] == "1" else "",
        )


def table(path):
    results = Results(path)
    rates(results)
    latencies(results)


if sys.argv[1] == "line":
    line(*sys.argv[2:])
else:
    table(sys.argv[2])
