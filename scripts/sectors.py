#!/usr/bin/env python3
"""Adds up, by kernel, what the sanitizer counts of the accesses of dispatches.

    MESHLOOM_PROFILE=gpu MESHLOOM_SANITIZE=32 MESHLOOM_LOG=meshloom=debug meshloom bench sort --size 65536 --runs 1 2>&1 | scripts/sectors.py

Of accesses to buffers by subgroups of 32: how many, the kilobytes they want, those of the 32-byte sectors they touch (no cache is
counted) and their ratio; of accesses to workgroup memory: cycles over those that their bytes need.
"""
import collections
import re
import sys

NUMBER = r"([\d.e+-]+)"
LINE = re.compile(
    r'kernel="?([^" ]+)"? groups=.*requests: %s, wanted: %s, moved: %s, needed: %s, cycles: %s' % ((NUMBER,) * 5)
)


def main():
    kernels = collections.defaultdict(lambda: [0.0] * 6)
    for line in sys.stdin:
        found = LINE.search(re.sub(r"\x1b\[[0-9;]*m", "", line))
        if found:
            sums = kernels[found[1]]
            sums[0] += 1
            for n in range(5):
                sums[n + 1] += float(found[n + 2])
    head = ("kernel", "dispatches", "requests", "wanted kB", "moved kB", "ratio", "conflicts")
    print("%-34s %10s %10s %10s %10s %6s %9s" % head)
    for kernel, (count, requests, wanted, moved, needed, cycles) in sorted(kernels.items(), key=lambda item: -item[1][3]):
        ratio, conflicts = moved / wanted if wanted else 0, cycles / needed if needed else 0
        row = (kernel, count, requests, wanted / 1e3, moved / 1e3, ratio, conflicts)
        print("%-34s %10d %10d %10.1f %10.1f %6.2f %9.2f" % row)


main()
