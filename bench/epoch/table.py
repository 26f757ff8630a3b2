#!/usr/bin/env python3
"""table.py RESULTS [RUN]: what bench/epoch.sh measured, medians of its rounds, and the targets beside it. RUN: only that one."""
import collections
import json
import statistics
import sys

STEPS = {
    "attach": "attach, metadata warm-up included",
    "find": "`find`",
    "ls": "`ls -lR`",
    "cold": "cold shuffled epoch",
    "second": "second, page cache dropped",
    "third": "third, page cache kept",
    "sequential": "sequential epoch, cold",
    "sample": "sample of the files, cold",
    "half-1": "a cache of half the set, 1st of three epochs",
    "half-2": "2nd",
    "half-3": "3rd",
    "import": "`import numpy, torch`, cold",
    "import-again": "again, page cache dropped",
    "lmdb": "LMDB, 2,000 random values, cold",
    "lmdb-again": "again, page cache dropped",
    "loader": "DataLoader, 2,000 JPEGs, cold",
    "loader-again": "again, page cache dropped",
}
DETAILED = ("cold", "second", "third", "sequential", "sample")
COLD = ("cold", "sequential", "sample", "import", "lmdb", "loader")
WARM = ("second", "import-again", "lmdb-again", "loader-again")
NAMES = {
    "local": "local ext4",
    "rclone": "rclone mount",
    "nbdkit-curl-cow": "nbdkit curl + cow",
    "nbdkit-curl-cache": "nbdkit curl + cache",
    "s3fs": "s3fs, cache",
}
CEILINGS = ("local", "nbdkit-file")  # they read a local disk: to compare with, not to beat


def load(path, run):
    lines = collections.defaultdict(list)
    with open(path, encoding="ascii") as file:
        for text in file:
            line = json.loads(text)
            if run in (None, line["run"]):
                lines[line["contender"], line["step"]].append(line)
    return {key: merge(same) for key, same in lines.items()}


def merge(lines):
    """Medians of what is a number; errors are added up."""
    merged = {"rounds": len(lines)}
    for name, value in lines[0].items():
        if isinstance(value, (int, float)):
            merged[name] = statistics.median(line.get(name, 0) for line in lines)
    for name in ("errors", "status"):
        merged[name] = sum(line.get(name, 0) for line in lines)
    merged["limit"] = max(line.get("limit", 0) for line in lines)
    return merged


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def table(title, *columns):
    print(f"\n{title}\n")
    row(*columns)
    row(*["---"] * len(columns))


def whole(line):
    """Whether the step was done, within the time and without an error."""
    return bool(line) and not (line["limit"] or line["errors"] or line["status"])


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def seconds(line):
    if not line:
        return "–"
    if line["limit"]:
        return f"> {line['limit']:.0f}"
    if not whole(line):
        return f"failed ({line['errors']:.0f} errors)" if line["errors"] else "failed"
    return number(line["seconds"])


def crossed(contender, step, line):
    """What came over the link, where that is the point."""
    shown = step in COLD or step.startswith("half")
    return f" ({line['link_bytes'] / 1e6:,.0f})" if shown and whole(line) and contender not in CEILINGS else ""


def print_matrix(found, contenders):
    table("**Seconds**, and MB over the link in parentheses", "what", *[NAMES.get(c, c) for c in contenders])
    for step, name in STEPS.items():
        lines = {c: found.get((c, step)) for c in contenders}
        if not any(lines.values()):
            continue
        times = [x["seconds"] for c, x in lines.items() if c not in CEILINGS and whole(x)]
        cells = {c: seconds(x) + crossed(c, step, x) for c, x in lines.items()}
        row(name, *[f"**{cells[c]}**" if c not in CEILINGS and whole(x) and x["seconds"] == min(times) else cells[c]
                    for c, x in lines.items()])


def print_details(found, contenders):
    table("**In detail**", "step", "contender", "s", "MB/s", "p50 / p99 ms a file", "link MB", "requests", "device MB", "CPU s", "PSS MiB")
    for step in DETAILED:
        for c in contenders:
            x = found.get((c, step))
            if whole(x):
                row(STEPS[step], c, seconds(x), f"{x['bytes'] / x['seconds'] / 1e6:.0f}", f"{x['p50_ms']:.1f} / {x['p99_ms']:.0f}",
                    f"{x['link_bytes'] / 1e6:.1f}", f"{x['requests']:.0f}", f"{x.get('device_bytes', 0) / 1e6:.1f}", f"{x['cpu']:.1f}",
                    f"{x['pss_mib']:.0f}")


def verdict(what, value, limit):
    row(what, f"**{value:.2f}**", f"at most {limit:g}", "met" if value <= limit else "missed")


def print_against_peers(found, contenders, steps, limit, what):
    for step in steps:
        peers = [(found[c, step]["seconds"], c) for c in contenders
                 if not c.startswith("granary") and c not in CEILINGS and whole(found.get((c, step)))]
        if peers and whole(found.get(("granary", step))):
            best, name = min(peers)
            verdict(f"{what}: {step}, seconds over {name}'s, the best peer", found["granary", step]["seconds"] / max(best, 1e-3), limit)


def print_targets(found, contenders):
    def over(step, other, field="seconds"):
        mine, theirs = found.get(("granary", step)), found.get((other, step))
        return mine[field] / max(theirs[field], 1e-3) if whole(mine) and whole(theirs) else None

    def check(what, value, limit):
        if value is not None:
            verdict(what, value, limit)

    table("**Targets**, granary against the others", "what", "measured", "target", "")
    link = found.get(("link", "link"))
    for step in ("cold", "sequential"):
        mine = found.get(("granary", step))
        if link and whole(mine):
            verdict(f"{STEPS[step]} over bytes / link", mine["seconds"] * link["bytes"] / link["seconds"] / mine["bytes"], 1.15)
    check("sample, seconds over rclone's", over("sample", "rclone"), 1)
    check("sample, link bytes over rclone's", over("sample", "rclone", "link_bytes"), 3)
    check("second epoch over nbdkit-file's", over("second", "nbdkit-file"), 1)
    print_against_peers(found, contenders, COLD, 1, "cold")
    print_against_peers(found, contenders, WARM, 1, "SSD-warm")
    print_against_peers(found, contenders, ("third",), 1.1, "hot")
    for step, name in (("third", "nbdkit-file"), ("cold", "local"), ("second", "local"), ("third", "local")):
        if over(step, name) is not None:
            row(f"{STEPS[step]} over {name}'s", f"{over(step, name):.2f}", "–", "")


def print_halves(found, contenders):
    """What a byte that was read cost in bytes over the link."""
    steps = ("half-1", "half-2", "half-3")
    halves = [c for c in contenders if all(whole(found.get((c, step))) for step in steps)]
    if halves:
        table("**A cache of half the set**: link bytes per byte read", "contender", "1st", "2nd", "3rd", "all three")
    for c in halves:
        x = [found[c, step] for step in steps]
        row(c, *[f"{e['link_bytes'] / e['bytes']:.2f}" for e in x], f"{sum(e['link_bytes'] for e in x) / sum(e['bytes'] for e in x):.2f}")


def main(path, run=None):
    found = load(path, int(run) if run else None)
    contenders = list(dict.fromkeys(c for c, _ in found if c != "link"))
    link = found.get(("link", "link"))
    any_line = next(iter(found.values()))
    loads = [x["load"] for x in found.values()]
    print(f"{any_line['set']:.0f} files, 1 Gbit/s, 10 ms round trip, medians of {max(x['rounds'] for x in found.values())} rounds; "
          f"load of the machine {min(loads):.0f} to {max(loads):.0f}"
          + (f"; the link: {link['bytes'] / link['seconds'] / 1e6:.1f} MB/s by ranged gets over 16 connections" if link else ""))
    print_matrix(found, contenders)
    print_details(found, contenders)
    print_halves(found, contenders)
    print_targets(found, contenders)


main(*sys.argv[1:])
