#!/usr/bin/env python3
"""Times of `meshloom bench fft` beside those of cuFFT (torch.fft), on one machine with an NVIDIA GPU.

    cargo build --release --features cli
    python3 benches/compare_gpu.py                         # 256, 512 and 1024, complex and real, forward and inverse
    python3 benches/compare_gpu.py --cpu --size 16,24      # tries the script itself, with NumPy, on any machine

Both sides are measured one after the other: medians of warmed runs, out of place, with the device idle before and after.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time


def fail(message):
    sys.exit(f"compare_gpu: {message}")


class Torch:
    name = "cuFFT"

    def __init__(self):
        try:
            import torch
        except ImportError:
            fail("PyTorch is missing; install it with CUDA (https://pytorch.org), or use --cpu to try the script")
        if not torch.cuda.is_available():
            fail("PyTorch finds no CUDA device; run on a machine with an NVIDIA GPU, or use --cpu to try the script")
        if getattr(torch.version, "cuda", None) is None:
            fail("this PyTorch was not built for CUDA, so its transforms are not cuFFT's")
        self.torch, self.device = torch, f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
        self.where = dict(device="cuda")

    def wait(self):
        self.torch.cuda.synchronize()

    def work(self, kind, n):
        torch, fft = self.torch, self.torch.fft
        dtype = torch.complex64 if kind == "complex" else torch.float32
        field = torch.randn((n, n, n), dtype=dtype, **self.where)
        if kind == "complex":
            return lambda: fft.fftn(field), lambda: fft.ifftn(field)
        spectrum = fft.rfftn(field)
        return lambda: fft.rfftn(field), lambda: fft.irfftn(spectrum, s=(n, n, n))

    def copy(self, n):
        source = self.torch.empty(n, dtype=self.torch.uint8, **self.where)
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source)

    def release(self):
        self.torch.cuda.empty_cache()


class NumPy:
    name, device = "NumPy", "processor (a test of the script, not a comparison)"

    def __init__(self):
        try:
            import numpy
        except ImportError:
            fail("NumPy is missing; --cpu needs it")
        self.numpy = numpy

    def wait(self):
        pass

    def work(self, kind, n):
        fft, numpy = self.numpy.fft, self.numpy
        field = numpy.random.default_rng(1).standard_normal((n, n, n), dtype=numpy.float32)
        if kind == "complex":
            field = field.astype(numpy.complex64)
            return lambda: fft.fftn(field), lambda: fft.ifftn(field)
        spectrum = fft.rfftn(field)
        return lambda: fft.rfftn(field), lambda: fft.irfftn(spectrum, s=(n, n, n), axes=(0, 1, 2))

    def copy(self, n):
        source, target = self.numpy.ones(n, dtype="uint8"), self.numpy.empty(n, dtype="uint8")
        return lambda: self.numpy.copyto(target, source)

    def release(self):
        pass


def median(side, work, runs):
    """Median seconds of one run; quick work is repeated within a run."""

    def took(repeats):
        side.wait()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        side.wait()
        return (time.perf_counter() - start) / repeats

    took(1)
    repeats = min(100, max(1, round(0.01 / took(1))))
    return statistics.median(took(repeats) for _ in range(runs))


def ours(arguments, sizes):
    """What `meshloom bench fft --json` prints."""
    command = [arguments.meshloom, "bench", "fft", "--json", "--runs", str(arguments.runs)]
    command += ["--size", ",".join(map(str, sizes))]
    if arguments.device:
        command += ["--device", arguments.device]
    if shutil.which(arguments.meshloom) is None:
        fail(f"there is no program {arguments.meshloom}; build it with `cargo build --release --features cli`")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        fail(f"`{' '.join(command)}` failed with exit code {done.returncode}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="256,512,1024", help="cells along each axis, with commas between")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--meshloom", default="target/release/meshloom", help="the program")
    parser.add_argument("--device", help="adapter, as `meshloom devices` lists them")
    parser.add_argument("--cpu", action="store_true", help="NumPy instead of cuFFT, to try the script")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.size.split(",")]

    side = NumPy() if arguments.cpu else Torch()
    report = ours(arguments, sizes)
    device = report["device"]
    if not arguments.cpu and "nvidia" not in json.dumps(device).lower():
        fail(f"meshloom ran on {json.dumps(device)}, which is no NVIDIA GPU; choose one with --device")

    bytes_copied = 1 << (26 if arguments.cpu else 30)
    copied = 2 * bytes_copied / median(side, side.copy(bytes_copied), arguments.runs)
    side.release()
    print(f"meshloom: {json.dumps(device)}, copies {report['copy']['bytes_per_second'] / 1e9:.1f} GB/s")
    print(f"{side.name}: {side.device}, copies {copied / 1e9:.1f} GB/s")
    print("copies count what is read and what is written; a ratio above 1: meshloom takes longer\n")
    print(f"{'mesh':>6} {'values':<8} {'direction':<9} {'meshloom':>12} {side.name:>12} {'ratio':>6} {'of copy':>8}")
    for result in report["results"]:
        n, kind = result["shape"][0], result["values"]
        for direction, work in zip(("forward", "inverse"), side.work(kind, n)):
            mine, theirs = result[direction]["seconds"]["median"], median(side, work, arguments.runs)
            print(
                f"{n:>5}^3 {kind:<8} {direction:<9} {mine * 1e3:>9.3f} ms {theirs * 1e3:>9.3f} ms"
                f" {mine / theirs:>6.2f} {result[direction]['of_copy']:>8.2f}"
            )
        work = None
        side.release()


if __name__ == "__main__":
    main()
