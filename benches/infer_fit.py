#!/usr/bin/env python3
"""One fit of counts, by meshloom or by NIFTy.re, in a process of its own: a part of `compare_gpu.py infer`.

    python3 benches/infer_fit.py meshloom 64x64 DIR          # prints times as JSON, and writes DIR/meshloom.npz
    python3 benches/infer_fit.py nifty 64x64 DIR             # the same fit by NIFTy.re, and DIR/nifty.npz
    python3 benches/infer_fit.py judge 64x64 DIR             # prints energies and errors of both results, computed by NIFTy.re in f64

Counts have a log-normal rate with an inferred power spectrum. Both sides have the same counts, priors, start and stopping rules.
Their random numbers differ, so energies scatter with `--seed`: at 128x128 the mean energy of the samples by about 600 nats.
The first fit begins after the imports and ends with the position on the host: it opens the device, creates the model and compiles.
Further fits repeat `optimize_kl` with the same likelihood.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

# Priors: mean and standard deviation.
OFFSET_MEAN, OFFSET_STD = 1.5, (0.3, 0.1)
PRIORS = {"fluctuations": (1.0, 0.3), "loglogavgslope": (-4.0, 0.5), "flexibility": (0.5, 0.2), "asperity": (0.5, 0.2), "non_parametric_kind": "power"}
# Latent values of meshloom and their names in NIFTy.re.
NAMES = {
    "sky/asperity": "skyasperity",
    "sky/flexibility": "skyflexibility",
    "sky/fluctuations": "skyfluctuations",
    "sky/slope": "skyloglogavgslope",
    "sky/spectrum": "skyspectrum",
    "sky/xi": "skyxi",
    "sky/zero_mode": "skyzeromode",
}
# Fall of the energy for each latent value, in nats, below which conjugate gradients of samples and minimizations end.
ABSDELTA = 1e-5


def problem(shape):
    """The true logarithm of the rate, and counts."""
    random = np.random.default_rng(1)
    axes = [np.fft.fftfreq(n, 1 / n) for n in shape]
    k = np.sqrt(sum(axis**2 for axis in np.meshgrid(*axes, indexing="ij")))
    k.flat[0] = np.inf
    field = np.fft.ifftn(np.fft.fftn(random.standard_normal(shape)) / k**2).real
    truth = OFFSET_MEAN + field / field.std()
    return truth, random.poisson(np.exp(truth)).astype(np.int32)


def start(sizes):
    """Latent values at which both fits begin, by the names of meshloom."""
    random = np.random.default_rng(2)
    return {name: (0.1 * random.standard_normal(sizes[name])).astype(np.float32) for name in sorted(sizes)}


def rules(arguments, latent):
    """Options of `optimize_kl` for both sides; limits grow with the number of latent values."""
    return {
        "n_total_iterations": arguments.iterations,
        "n_samples": arguments.pairs,
        "sample_mode": "linear_resample",
        "draw_linear_kwargs": {"cg_kwargs": {"absdelta": ABSDELTA * latent, "maxiter": 200}},
        "kl_kwargs": {"minimize_kwargs": {"absdelta": ABSDELTA * latent, "miniter": 5, "maxiter": 35}},
    }


def maker(maker, shape):
    """The maker of a library with the priors."""
    maker.set_amplitude_total_offset(OFFSET_MEAN, OFFSET_STD)
    maker.add_fluctuations(shape, 1 / shape[0], **PRIORS)
    return maker


class Meshloom:
    """Fits of meshloom."""

    def __init__(self):
        import meshloom

        self.meshloom, self.version = meshloom, importlib.metadata.version("meshloom")

    def prepare(self, arguments, counts):
        from meshloom import inference, operators

        sky = maker(inference.CorrelatedFieldMaker("sky"), counts.shape).finalize()
        rate = sky.then(operators.pointwise("fn f(s: f32) -> f32 { return exp(s); }", "f", sky.target, "rate"))
        self.likelihood = inference.Poissonian(counts).amend(rate)
        sizes = {name: int(np.prod(shape)) for name, shape in sky.domain.items()}
        self.position = {name: value.reshape(sky.domain[name]) for name, value in start(sizes).items()}
        self.rules, self.seed = rules(arguments, sum(sizes.values())), arguments.seed

    def fit(self):
        """Fits; the position, and what was counted."""
        samples, reports = self.meshloom.optimize_kl(self.likelihood, self.position, seed=self.seed, **self.rules)
        self.samples = samples
        counted = [
            {
                "seconds": report.seconds,
                "sample_steps": report.sample_steps,
                "unconverged": report.unconverged_samples,
                "newton_steps": report.steps,
                "metrics": report.applications,
            }
            for report in reports
        ]
        return self.host(samples.pos), counted

    def drawn(self):
        return [self.host(self.samples[i]) for i in range(len(self.samples))]

    def host(self, latent):
        return {name: np.asarray(latent[name]).ravel() for name in NAMES}

    def device(self):
        return self.meshloom.devices()[0]

    def device_bytes(self):
        return self.meshloom.memory()["allocated"]


class Nifty:
    """Fits of NIFTy.re."""

    def __init__(self):
        import jax
        import nifty.re

        self.jax, self.jft, self.version = jax, nifty.re, importlib.metadata.version("nifty")
        nifty.re.logger.setLevel("CRITICAL")

    def prepare(self, arguments, counts):
        jax, jft = self.jax, self.jft
        sky = maker(jft.CorrelatedFieldMaker("sky"), counts.shape).finalize()
        self.shapes = {name: sky.domain[theirs].shape for name, theirs in NAMES.items()}
        self.log_rate = sky
        self.likelihood = jft.Poissonian(jax.numpy.asarray(counts)).amend(lambda latent: jax.numpy.exp(sky(latent)), domain=jft.Vector(sky.domain))
        sizes = {name: int(np.prod(shape)) for name, shape in self.shapes.items()}
        self.position = self.vector(start(sizes))
        self.rules, self.seed = rules(arguments, sum(sizes.values())), arguments.seed
        # Conjugate gradients report no number of steps where they converge.
        self.rules["draw_linear_kwargs"] |= {"cg": self.counted}

    def vector(self, latent):
        """Latent values by the names of meshloom."""
        return self.jft.Vector({theirs: self.jax.numpy.asarray(latent[name].reshape(self.shapes[name])) for name, theirs in NAMES.items()})

    def counted(self, *arguments, **options):
        result = self.jft.conjugate_gradient._cg(*arguments, **options)
        self.steps.append(int(result.nit))
        return result.x, result.info

    def fit(self):
        counted, self.steps, clock = [], [], [time.perf_counter()]

        def report(_, state):
            clock.append(time.perf_counter())
            counted.append(
                {
                    "seconds": clock[-1] - clock[-2],
                    "sample_steps": max(self.steps, default=0),
                    # A pair is drawn once.
                    "unconverged": 2 * sum(int(info) > 0 for info in state.sample_state),
                    "newton_steps": int(state.minimization_state.nit),
                    "metrics": int(state.minimization_state.nhev),
                }
            )
            self.steps.clear()

        key = self.jax.random.PRNGKey(self.seed)
        samples, _ = self.jft.optimize_kl(self.likelihood, self.position, key=key, callback=report, **self.rules)
        self.samples = samples
        return self.host(samples.pos), counted

    def drawn(self):
        return [self.host(sample) for sample in self.samples]

    def host(self, latent):
        return {name: np.asarray(latent.tree[theirs]).ravel() for name, theirs in NAMES.items()}

    def device(self):
        device = self.jax.devices()[0]
        return {"name": device.device_kind, "backend": self.jax.default_backend()}

    def device_bytes(self):
        return (self.jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def measure(arguments):
    """Fits once with compilation, then again, and keeps the result."""
    began = time.perf_counter()
    side = {"meshloom": Meshloom, "nifty": Nifty}[arguments.what]()
    imported = time.perf_counter()
    if arguments.what == "nifty" and arguments.gpu and side.jax.default_backend() != "gpu":
        sys.exit("JAX finds no GPU; run on a machine with an NVIDIA GPU, or use --cpu to try the script")
    opened = time.perf_counter()
    _, counts = problem(arguments.shape)
    begun = time.perf_counter()
    side.prepare(arguments, counts)
    prepared = time.perf_counter()
    position, counted = side.fit()
    first = time.perf_counter() - begun + opened - imported
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    again, counted_again, all_again = [], counted, time.perf_counter()
    while len(again) < arguments.runs and (not again or time.perf_counter() - all_again + again[-1] < arguments.seconds):
        start_of_one = time.perf_counter()
        position, counted_again = side.fit()
        again.append(time.perf_counter() - start_of_one)
    arrays = {f"pos {name}": value for name, value in position.items()}
    for name in NAMES:
        arrays[f"samples {name}"] = np.stack([sample[name] for sample in side.drawn()])
    np.savez(arguments.directory / f"{arguments.what}.npz", **arrays)
    found = {
        "version": side.version,
        "device": side.device(),
        "import_seconds": imported - began,
        "model_seconds": prepared - begun,
        "first_seconds": first,
        "again_seconds": again,
        "first_iterations": counted,
        "again_iterations": counted_again,
        "host_bytes": peak,
        "device_bytes": side.device_bytes(),
    }
    print(json.dumps(found))


def judge(arguments):
    """Evaluates both results by one model in f64."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    side, (truth, counts) = Nifty(), problem(arguments.shape)
    side.prepare(arguments, counts)
    jax, jft = side.jax, side.jft
    energy = jax.jit(lambda latent: side.likelihood(latent) + 0.5 * jft.vdot(latent, latent))
    log_rate, found = jax.jit(side.log_rate), {}
    for name in ("meshloom", "nifty"):
        arrays = np.load(arguments.directory / f"{name}.npz")
        drawn = len(arrays[f"samples {next(iter(NAMES))}"])
        position = side.vector({leaf: arrays[f"pos {leaf}"].astype(float) for leaf in NAMES})
        samples = [side.vector({leaf: arrays[f"samples {leaf}"][i].astype(float) for leaf in NAMES}) for i in range(drawn)]
        logs = np.array([log_rate(sample.tree) for sample in samples])
        found[name] = {
            "energy_of_position": float(energy(position)),
            "mean_energy": float(np.mean([energy(sample) for sample in samples])),
            "error_of_log_rate": float(np.sqrt(np.mean((logs.mean(axis=0) - truth) ** 2))),
            "std_of_log_rate": float(np.sqrt(np.mean(logs.var(axis=0, ddof=1)))),
        }
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["meshloom", "nifty", "judge"])
    parser.add_argument("shape", type=lambda text: tuple(int(n) for n in text.split("x")), help="cells along each axis, as 64x64")
    parser.add_argument("directory", type=Path, help="directory for the results")
    parser.add_argument("--iterations", type=int, default=4, help="draws of samples, each followed by a minimization")
    parser.add_argument("--pairs", type=int, default=3, help="mirrored pairs of samples")
    parser.add_argument("--seed", type=int, default=1, help="seed of the samples")
    parser.add_argument("--runs", type=int, default=3, help="fits after the first one, at most")
    parser.add_argument("--seconds", type=float, default=60, help="no further fit begins that would end later")
    parser.add_argument("--gpu", action="store_true", help="fail if JAX finds no GPU")
    arguments = parser.parse_args()
    (judge if arguments.what == "judge" else measure)(arguments)


if __name__ == "__main__":
    main()
