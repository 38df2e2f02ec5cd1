#!/usr/bin/env python3
"""Reads rows at strides in memory of CUDA, by a kernel in Triton: beside `meshloom bench memory`, it tells the card from Vulkan's memory.

Needs PyTorch and Triton on a machine with an NVIDIA GPU. Prints one JSON object.
"""

import argparse
import json
import statistics

import torch
import triton
import triton.language as tl


@triton.jit
def read_rows(x, sums, count, row_bits, rows_bits, stride_bits, BLOCK: tl.constexpr, LOADS: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(LOADS):
        i = lane + k * count
        row = i >> row_bits
        column = row >> rows_bits
        place = ((row & ((1 << rows_bits) - 1)) << stride_bits) + (column << row_bits) + (i & ((1 << row_bits) - 1))
        # Two words, as a complex number.
        total += tl.load(x + 2 * place) + tl.load(x + 2 * place + 1)
    tl.store(sums + lane, total, mask=total == 3.0e38)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", type=int, nargs="*", default=[1 << 31, 1 << 33])
    arguments = parser.parse_args()
    results = []
    for size in arguments.size:
        x = torch.rand(size // 4, device="cuda")
        count = size // 8 // 8
        sums = torch.zeros(count, device="cuda")
        for row in (32, 64, 128, 256):
            for stride in (1 << 16, 1 << 20, 1 << 24):
                bits = [(row // 8).bit_length() - 1, (size // stride).bit_length() - 1, (stride // 8).bit_length() - 1]
                seconds = []
                for run in range(arguments.runs + 2):
                    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    start.record()
                    read_rows[(count // 256,)](x, sums, count, *bits, BLOCK=256, LOADS=8)
                    end.record()
                    torch.cuda.synchronize()
                    seconds.append(start.elapsed_time(end) / 1e3)
                median = statistics.median(seconds[2:])
                spread = {"median": median, "min": min(seconds[2:]), "max": max(seconds[2:])}
                results.append({"what": "rows in CUDA", "row": row, "stride": stride, "bytes": {"device": size}, "seconds": spread,
                                "bytes_per_second": size / median})
        del x, sums
    print(json.dumps({"subject": "rows in CUDA", "device": torch.cuda.get_device_name(), "results": results}))


if __name__ == "__main__":
    main()
