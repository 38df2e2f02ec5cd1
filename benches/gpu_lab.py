#!/usr/bin/env python3
"""Puts the results of `scripts/gpu_lab.sh` into one file, and compares their times with those of an earlier run.

    python3 benches/gpu_lab.py DIR                      # writes DIR/lab.json
    python3 benches/gpu_lab.py DIR --against OLD.json   # and prints the ratio of each time, new over old
"""

import argparse
import datetime
import json
import pathlib


# Numbers that tell measurements of a step apart.
KEYS = ("what", "shape", "size", "values", "bits", "keys", "k", "row", "stride", "sectors", "bytes", "chunk", "window", "linking_parameter")


def name_of(result):
    """Names a measurement by what was measured."""
    parts = []
    for key in KEYS:
        value = result.get(key)
        if isinstance(value, dict):
            value = next(iter(value.values()), None)
        if isinstance(value, (str, int, float, list)):
            parts.append(f"{key}={value}")
    return " ".join(parts)


def medians(value, path=""):
    """Yields all medians below a value, with the keys that lead to them."""
    if isinstance(value, dict):
        if isinstance(value.get("median"), (int, float)):
            yield path, value["median"]
        for key, below in value.items():
            if key != "kernels":
                yield from medians(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            name = name_of(below) if isinstance(below, dict) else ""
            yield from medians(below, f"{path}[{name or number}]")


def times(lab):
    """Returns the medians of a run, and the sums over its kernels, by name."""
    found = {}
    for step, report in lab["steps"].items():
        found.update((f"{step}: {path}", seconds) for path, seconds in medians(report))
        for number, measurement in enumerate(report.get("kernels") or []):
            for kernel in measurement["kernels"]:
                found[f"{step}: measurement {number}: {kernel['kernel']}"] = kernel["seconds"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    arguments = parser.parse_args()
    steps = {path.stem: json.loads(path.read_text()) for path in sorted(arguments.directory.glob("*.json")) if path.stem != "lab"}
    devices = arguments.directory / "devices.txt"
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    lab = {"date": date, "devices": devices.read_text() if devices.exists() else None, "steps": steps}
    (arguments.directory / "lab.json").write_text(json.dumps(lab, indent=1) + "\n")
    if arguments.against:
        old, new = times(json.loads(arguments.against.read_text())), times(lab)
        for name in sorted(old.keys() & new.keys(), key=lambda name: new[name] / old[name] if old[name] else 0):
            if old[name]:
                print(f"{new[name] / old[name]:8.3f}  {name}")
        print(f"{len(new.keys() - old.keys())} times are new, {len(old.keys() - new.keys())} are gone")


if __name__ == "__main__":
    main()
