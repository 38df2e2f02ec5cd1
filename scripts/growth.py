#!/usr/bin/env python3
"""How displacements grow beside linear theory, by box and window. Needs NumPy.

    scripts/growth.py target/release/meshloom DIRECTORY [--particles 32] [--mesh 64] [--boxes 64,128,320,640] [--steps 20] [--a-start 0.0625] [--a-end 1]

Runs `meshloom simulate` and prints a table in Markdown: the rms displacement along an axis at the start in cells, and the amplitude of the displacements at the
end over that at the start and over D(end) / D(start), in bins of the wavenumber in units of the box's fundamental mode. Runs that are there stay.
"""

import argparse
import json
import pathlib
import subprocess

import numpy as np

BINS = [1, 3, 6, 10]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--particles", type=int, default=32)
    parser.add_argument("--mesh", type=int, default=64)
    parser.add_argument("--boxes", default="64,128,320,640")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--a-start", type=float, default=0.0625)
    parser.add_argument("--a-end", type=float, default=1)
    call = parser.parse_args()
    print(f"| box | window | rms displacement at the start in cells | {' | '.join(str(bin) for bin in BINS)} |")
    print("|---|---|---|" + "---|" * len(BINS))
    for box in (float(box) for box in call.boxes.split(",")):
        for window in ("cic", "tsc"):
            row(call, box, window)


def row(call, box, window):
    out = call.directory / f"{window}-{box:g}-{call.a_start:g}-{call.a_end:g}"
    if not (out / "run.json").exists():
        options = f"--particles {call.particles} --mesh {call.mesh} --box {box} --window {window} --steps {call.steps} --linking-parameter 0"
        epochs = f"--a-start {call.a_start} --a-end {call.a_end} --snapshots {call.a_start}"
        subprocess.run([call.program, "simulate", "--quiet", "--out", str(out), *options.split(), *epochs.split()], check=True)
    first = displacements(call, box, out / f"snapshot_{call.a_start:g}" / "positions.npy")
    last = displacements(call, box, out / "positions.npy")
    rms = np.sqrt(np.mean(first**2)) * call.mesh / box
    growth = linear_growth(json.loads((out / "run.json").read_text()), call.a_end) / linear_growth(json.loads((out / "run.json").read_text()), call.a_start)
    ratios = " | ".join(f"{ratio / growth:.3f}" for ratio in by_bin(first, last))
    print(f"| {box:g} | {window} | {rms:.3f} | {ratios} |", flush=True)


def displacements(call, box, path):
    n = call.particles
    sites = np.stack(np.meshgrid(*[np.arange(n) * box / n] * 3, indexing="ij"), -1)
    moved = np.load(path).astype(float).reshape(n, n, n, 3) - sites
    return moved - box * np.round(moved / box)


def by_bin(first, last):
    """The amplitude of the modes of `last` that those of `first` have become."""
    modes = [np.fft.fftn(field, axes=(0, 1, 2)) for field in (first, last)]
    along = np.fft.fftfreq(first.shape[0], 1 / first.shape[0])
    bins = np.rint(np.sqrt(along[:, None, None] ** 2 + along[:, None] ** 2 + along**2))
    for bin in BINS:
        one, other = (field[bins == bin] for field in modes)
        yield np.sum(np.real(other * one.conj())) / np.sum(np.abs(one) ** 2)


def linear_growth(run, a):
    """D(a) without its scale: the equation of growth in ln a by Runge and Kutta, from the solution before equality."""
    c = run["cosmology"]
    matter, radiation, dark = c["Omega_m"], c["Omega_r"], 1 - c["Omega_m"] - c["Omega_r"]
    steps, start = 20000, np.log(1e-7)
    h = (np.log(a) - start) / steps

    def slope(x, state):
        a = np.exp(x)
        parts = matter / a**3, radiation / a**4, dark
        total = sum(parts)
        drag = 2 - 0.5 * (3 * parts[0] + 4 * parts[1]) / total
        return np.array([state[1], 1.5 * parts[0] / total * state[0] - drag * state[1]])

    begin = np.exp(start)
    state = np.array([begin + 2 / 3 * radiation / matter, begin])
    for i in range(steps):
        x = start + i * h
        k1 = slope(x, state)
        k2 = slope(x + h / 2, state + h / 2 * k1)
        k3 = slope(x + h / 2, state + h / 2 * k2)
        k4 = slope(x + h, state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state[0]


if __name__ == "__main__":
    main()
