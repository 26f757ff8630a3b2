#!/usr/bin/env python3
"""table.py RESULTS [RUN]: what bench/epoch.sh measured, medians of its rounds, and the targets beside it. RUN: only that one."""
import collections
import json
import statistics
import sys

STEPS = {
    "attach": "attach",
    "find": "`find`",
    "ls": "`ls -lR`",
    "cold": "cold epoch",
    "second": "second, page cache dropped",
    "third": "third, page cache kept",
    "sequential": "sequential, cold",
    "sample": "sample, cold",
    "half-1": "half cache, 1st",
    "half-2": "2nd",
    "half-3": "3rd",
    "import": "`import`, cold",
    "import-again": "again",
    "lmdb": "LMDB, cold",
    "lmdb-again": "again",
    "loader": "DataLoader, cold",
    "loader-again": "again",
}
DETAILED = ("cold", "second", "sequential", "sample")
COLD = ("cold", "sequential", "sample", "import", "lmdb", "loader")
WARM = ("second", "import-again", "lmdb-again", "loader-again")


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
    merged["errors"] = sum(line.get("errors", 0) for line in lines)
    return merged


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def table(title, *columns):
    print(f"\n{title}\n")
    row(*columns)
    row(*["---"] * len(columns))


def seconds(line):
    if not line:
        return "–"
    return f"{line['seconds']:.2f}" + (f" **{line['errors']:.0f} errors**" if line["errors"] else "")


def print_matrix(found, contenders, title, cell):
    steps = [step for step in STEPS if any((c, step) in found for c in contenders)]
    table(title, "step", *contenders)
    for step in steps:
        row(STEPS[step], *[cell(found.get((c, step))) for c in contenders])


def print_details(found, contenders):
    table("**In detail**", "step", "contender", "s", "MB/s", "p50 / p99 ms a file", "link MB", "requests", "CPU s", "PSS MiB")
    for step in DETAILED:
        for c in contenders:
            x = found.get((c, step))
            if x:
                row(STEPS[step], c, seconds(x), f"{x['bytes'] / x['seconds'] / 1e6:.0f}", f"{x['p50_ms']:.1f} / {x['p99_ms']:.0f}",
                    f"{x['link_bytes'] / 1e6:.1f}", f"{x['requests']:.0f}", f"{x['cpu']:.1f}", f"{x['pss_mib']:.0f}")


def verdict(what, value, limit):
    print(f"- {what}: **{value:.2f}** (target at most {limit:g}): {'met' if value <= limit else 'MISSED'}")


def print_against_peers(found, contenders, steps, limit, what):
    for step in steps:
        peers = [(found[c, step]["seconds"], c) for c in contenders
                 if not c.startswith("granary") and c not in ("local", "nbdkit-file") and (c, step) in found]
        if peers and ("granary", step) in found:
            best, name = min(peers)
            verdict(f"{what}: {step}, seconds over {name}'s, the best peer", found["granary", step]["seconds"] / max(best, 1e-3), limit)


def print_targets(found, contenders):
    def over(step, other, other_step=None, field="seconds"):
        mine, theirs = found.get(("granary", step)), found.get((other, other_step or step))
        return mine[field] / max(theirs[field], 1e-3) if mine and theirs else None

    def check(what, value, limit):
        if value is not None:
            verdict(what, value, limit)

    print("\n**Targets**, granary against the others\n")
    link, cold = found.get(("link", "link")), found.get(("granary", "cold"))
    if link and cold:
        rate = link["bytes"] / link["seconds"]
        print(f"- the link: {rate / 1e6:.1f} MB/s by ranged gets over 16 connections")
        for step in ("cold", "sequential"):
            if ("granary", step) in found:
                verdict(f"{STEPS[step]} over bytes / link", found["granary", step]["seconds"] * rate / cold["bytes"], 1.15)
    check("sample, seconds over rclone's", over("sample", "rclone"), 1)
    check("sample, link bytes over rclone's", over("sample", "rclone", field="link_bytes"), 3)
    check("second epoch over nbdkit-file's", over("second", "nbdkit-file"), 1)
    for step in ("cold", "second", "third"):
        value = over(step, "local")
        if value is not None:
            print(f"- {STEPS[step]} over the local directory's: {value:.2f}")
    print_against_peers(found, contenders, COLD, 1, "cold")
    print_against_peers(found, contenders, WARM, 1, "SSD-warm")
    print_against_peers(found, contenders, ("third",), 1.1, "hot")
    halves = [c for c in contenders if (c, "half-3") in found]
    if halves:
        table("**A cache of half the set**: link bytes per byte read", "contender", "1st", "2nd", "3rd", "all three")
    for c in halves:
        x = [found[c, f"half-{i}"] for i in (1, 2, 3)]
        row(c, *[f"{e['link_bytes'] / e['bytes']:.2f}" for e in x], f"{sum(e['link_bytes'] for e in x) / sum(e['bytes'] for e in x):.2f}")


def main(path, run=None):
    found = load(path, int(run) if run else None)
    contenders = list(dict.fromkeys(c for c, _ in found if c != "link"))
    any_line = next(iter(found.values()))
    loads = [x["load"] for x in found.values()]
    print(f"{any_line['set']:.0f} files, 1 Gbit/s, 10 ms round trip, medians of {max(x['rounds'] for x in found.values())} rounds; "
          f"load of the machine {min(loads):.0f} to {max(loads):.0f}")
    print_matrix(found, contenders, "**Seconds**", seconds)
    print_matrix(found, contenders, "**MB over the link**", lambda x: f"{x['link_bytes'] / 1e6:.1f}" if x else "–")
    print_details(found, contenders)
    print_targets(found, contenders)


main(*sys.argv[1:])
