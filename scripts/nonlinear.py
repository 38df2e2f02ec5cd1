#!/usr/bin/env python3
"""The nonlinear spectrum of runs beside halofit, and their mass functions beside the fit of Watson et al. for friends of friends.

    scripts/nonlinear.py target/release/meshloom DIRECTORY [--particles 128] [--mesh 256] [--box 100] [--steps 20] [--pairs 1] [--seed 1]

A small box holds few waves of its own size, whose power scatters, and all that grows on them with it. So runs come in pairs whose initial waves all have the
expected amplitude and, in the second run, the opposite sign (Angulo & Pontzen 2016, MNRAS 462, L1), by --white-noise. Prints tables in Markdown: P(k) at
a = 1 (PCS, interlaced, deconvolved) over halofit in bands of k, and n(M) at three times over the fit, with Poisson errors. Runs that are there stay.
"""

import argparse
import pathlib
import subprocess

import numpy

EDGES = [0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0]
MOMENTS = {"2": "0.3333333333333333", "1": "0.5", "0": ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--particles", type=int, default=128)
    parser.add_argument("--mesh", type=int, default=256)
    parser.add_argument("--box", type=float, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    call = parser.parse_args()
    seeds = range(call.seed, call.seed + call.pairs)
    outs = [simulate(call, seed, sign) for seed in seeds for sign in (1, -1)]
    spectrum(outs)
    mass_functions(outs)


def simulate(call, seed, sign):
    """A run's directory."""
    out = call.directory / f"{call.particles}-{call.mesh}-{call.box:g}-{call.steps}-seed{seed}{'-+'[sign > 0]}"
    if (out / "power.csv").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    noise = call.directory / "noise.npy"
    numpy.save(noise, (sign * fixed_noise(call.particles, seed)).astype(numpy.float32))
    snapshots = ",".join(a for a in MOMENTS.values() if a)
    options = f"--particles {call.particles} --mesh {call.mesh} --box {call.box} --steps {call.steps} --snapshots {snapshots}"
    run([call.program, "simulate", "--out", str(out), "--white-noise", str(noise), "--quiet", *options.split()])
    options = f"--box {call.box} --mesh {2 * call.particles} --window pcs --interlace --deconvolve"
    run([call.program, "power", str(out / "positions.npy"), *options.split(), "-o", str(out / "power.csv")])
    noise.unlink()
    return out


def fixed_noise(n, seed):
    """Noise on a lattice whose modes all have the amplitude that those of white noise have on average."""
    modes = numpy.fft.rfftn(numpy.random.default_rng(seed).standard_normal((n, n, n)))
    return numpy.fft.irfftn(modes / numpy.abs(modes) * n**1.5, s=(n, n, n), axes=(0, 1, 2))


def table(path):
    return numpy.genfromtxt(path, delimiter=",", names=True)


def spectrum(outs):
    """The mean of all runs over halofit, of sums over the modes of a band."""
    print("| k in h/Mpc | P / halofit | modes of a run |")
    print("|---|---|---|")
    runs = [table(out / "power.csv") for out in outs]
    expected = table(outs[0] / "power_spectrum.csv")
    for low, high in zip(EDGES, EDGES[1:]):
        own = [(run["k"] >= low) & (run["k"] < high) for run in runs]
        modes = sum(run["modes"][mask].sum() for run, mask in zip(runs, own))
        if modes == 0 or high > expected["k"][-1]:
            continue
        power = sum((run["P"] * run["modes"])[mask].sum() for run, mask in zip(runs, own))
        fit = lambda k: numpy.exp(numpy.interp(numpy.log(k), numpy.log(expected["k"]), numpy.log(expected["P_halofit"])))
        halofit = sum((fit(run["k"]) * run["modes"])[mask].sum() for run, mask in zip(runs, own))
        print(f"| {low}-{high} | {power / halofit:.3f} | {modes / len(runs):.0f} |")


def mass_functions(outs):
    """Halos of all runs over the fit, with Poisson errors, by mass."""
    print("\n| members | " + " | ".join(f"z = {z}: halos | n / Watson" for z in MOMENTS) + " |")
    print("|---|" + "---|---|" * len(MOMENTS))
    moments = [[table(out / (f"snapshot_{a}" if a else "") / "mass_function.csv") for out in outs] for a in MOMENTS.values()]
    longest = max((run for runs in moments for run in runs), key=len)
    mass = longest["mass_low"][0] / 19.5
    for row, (low, high) in enumerate(zip(longest["mass_low"], longest["mass_high"])):
        cells = []
        for runs in moments:
            count = sum(run["count"][row] for run in runs if row < len(run))
            fit = [run["watson"][row] / run["dn_dlnM"][row] * run["count"][row] for run in runs if row < len(run) and run["count"][row]]
            # A run with halos in the bin gives how many the fit has in its volume.
            cells += [f"{count:.0f}", f"{count / (fit[0] * len(runs)):.2f} ± {count**0.5 / (fit[0] * len(runs)):.2f}"] if fit else ["0", ""]
        if any(cell not in ("0", "") for cell in cells):
            print(f"| {low / mass:.0f}-{high / mass:.0f} | " + " | ".join(cells) + " |")


def run(words):
    subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
