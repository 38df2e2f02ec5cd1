#!/usr/bin/env python3
"""How much power a run keeps, by integrator, steps and mesh, beside a run of 40 steps.

    scripts/accuracy.py target/release/meshloom DIRECTORY [--particles 64] [--box 128] [--mesh 64,128] [--steps 5,10,20]

Runs `meshloom simulate` with equal initial conditions and `meshloom power` (PCS, interlaced, deconvolved) of the particles at a = 1, and prints a table in
Markdown: ratios of P(k) in bands of k to that of bullfrog with 40 steps on the same mesh, then that of each mesh to the finest. Runs that are there stay.
"""

import argparse
import pathlib
import subprocess

BANDS = [(0.05, 0.25), (0.25, 0.5), (0.5, 0.85), (0.85, 1.15), (1.15, 1.5)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--box", type=float, default=128)
    parser.add_argument("--mesh", default="64,128")
    parser.add_argument("--steps", default="5,10,20")
    parser.add_argument("--reference", type=int, default=40)
    call = parser.parse_args()
    meshes = [int(mesh) for mesh in call.mesh.split(",")]
    steps = [int(number) for number in call.steps.split(",")]
    references = {mesh: spectrum(call, mesh, "bullfrog", call.reference) for mesh in meshes}
    bands = " | ".join(f"{low}-{high}" for low, high in BANDS)
    print(f"| mesh | scheme | steps | {bands} |")
    print("|---|---|---|" + "---|" * len(BANDS))
    for mesh in meshes:
        for scheme in ("fastpm", "bullfrog"):
            for number in steps:
                row(mesh, scheme, number, spectrum(call, mesh, scheme, number), references[mesh])
    for mesh in meshes[:-1]:
        row(mesh, f"bullfrog / mesh {meshes[-1]}", call.reference, references[mesh], references[meshes[-1]])


def spectrum(call, mesh, scheme, steps):
    """Power by band: sums over the modes of the band."""
    out = call.directory / f"{scheme}-{steps}-{mesh}"
    power = out / "power.csv"
    if not power.exists():
        options = f"--particles {call.particles} --mesh {mesh} --box {call.box} --scheme {scheme} --steps {steps} --linking-parameter 0"
        run([call.program, "simulate", "--out", str(out), *options.split()])
        options = f"--box {call.box} --mesh {2 * call.particles} --window pcs --interlace --deconvolve"
        run([call.program, "power", str(out / "positions.npy"), *options.split(), "-o", str(power)])
    sums = [0.0] * len(BANDS)
    for line in power.read_text().splitlines()[1:]:
        k, p, modes = (float(word) for word in line.split(","))
        for band, (low, high) in enumerate(BANDS):
            if low <= k < high:
                sums[band] += p * modes
    return sums


def row(mesh, scheme, steps, found, reference):
    ratios = " | ".join(f"{a / b:.3f}" for a, b in zip(found, reference))
    print(f"| {mesh} | {scheme} | {steps} | {ratios} |", flush=True)


def run(words):
    subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
