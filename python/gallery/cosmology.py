"""Joint posterior of initial conditions and two cosmological parameters from the density of one box.

A Markov chain moves all white noise together with the matter density and the amplitude of the power
spectrum. The ellipse is the forecast of the Fisher matrix of the power spectrum, by finite differences.

Usage: python cosmology.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from meshloom import inference as mi
from meshloom import operators as op

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
n = int(sys.argv[1]) if len(sys.argv) > 1 else 16
picture = sys.argv[2] if len(sys.argv) > 2 else "cosmology.png"
run = op.simulation(n, n, 20.0 * n, steps=1, lpt=1, a_end=0.2, window="tsc", with_cosmology=True)
widths, noise, own = np.array([0.05, 0.2]), 0.04, run.own_cosmology


def physical(x):
    """Matter density and amplitude of standard normal numbers; the others keep their values."""
    return np.array([own[0] + widths[0] * x[0], *own[1:4], own[4] * np.exp(widths[1] * x[1]), *own[5:]])


def slopes(x):
    return np.array([[widths[0], 0], *[[0, 0]] * 3, [0, widths[1] * physical(x)[4]], *[[0, 0]] * 2])


two, all_of_run = op.Space(theta=op.parameters(2)), op.Space(cosmology=op.parameters(7))
parameters = op.custom(physical, lambda x, dx: slopes(x) @ dx, lambda x, dy: slopes(x).T @ dy, two, all_of_run)
white = mi.NormalPrior(0.0, 1.0, op.Space(white_noise=op.cells((n, n, n), size=20.0 * n)))
model = parameters.zip(white).then(run)

truth = {"theta": np.array([0.5, -0.5]), "white_noise": np.random.default_rng(1).standard_normal((n, n, n))}
clean = np.asarray(model(truth))
data = clean + noise * np.random.default_rng(2).standard_normal((n, n, n))
likelihood = mi.Gaussian(data, noise_std=noise).amend(model)

# The Fisher matrix of a Gaussian field follows from the power in each shell of wavenumbers.
squares = np.rint(n * np.fft.fftfreq(n)).astype(int) ** 2
_, shells, modes = np.unique((squares[:, None, None] + squares[:, None] + squares).ravel(), return_inverse=True, return_counts=True)


def power(theta):
    noises = np.random.default_rng(3).standard_normal((10, n, n, n))
    fields = [np.fft.fftn(np.asarray(model({"theta": theta, "white_noise": one}))).ravel() for one in noises]
    # Without the mean density, and with the noise of the data.
    return (np.bincount(shells, np.mean(np.abs(fields) ** 2, axis=0)) / n**3)[1:] + modes[1:] * noise**2


center, step = truth["theta"], 0.2
relative = [(power(center + step * e) - power(center - step * e)) / (2 * step * power(center)) for e in np.eye(2)]
fisher = [[np.sum(0.5 * modes[1:] * one * other) for one in relative] for other in relative]
forecast = np.linalg.inv(fisher + np.eye(2))

start, _ = mi.optimize_kl(likelihood, truth, n_total_iterations=1, n_samples=1, sample_mode="linear_resample")
warmup, count = (200, 300) if n >= 16 else (10, 12)
chains = mi.sample(likelihood, start, algorithm="adjusted_mclmc", n_warmup=warmup, n_draws=count, n_chains=2, seed=3)
draws = np.array([draw["theta"] for draw in chains])
error = np.sqrt(np.mean(((draws.mean(axis=0) - truth["theta"]) / draws.std(axis=0)) ** 2))
print(f"R-hat {np.max(chains.split_r_hat()['theta']):.3f}, error over standard deviation {error:.2f}")
print("standard deviations of draws over those of the forecast:", np.round(draws.std(axis=0) / np.sqrt(np.diag(forecast)), 2))

figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
values = np.array([physical(draw)[[0, 4]] for draw in draws])
axis.plot(values[:, 0], 1e9 * values[:, 1], ".", markersize=3, label="draws")
angles = np.linspace(0, 2 * np.pi, 100)
ellipse = center[:, None] + 2 * np.linalg.cholesky(forecast) @ [np.cos(angles), np.sin(angles)]
ellipse = np.array([physical(point)[[0, 4]] for point in ellipse.T])
axis.plot(ellipse[:, 0], 1e9 * ellipse[:, 1], "k-", label="two deviations of the forecast")
axis.plot(physical(center)[0], 1e9 * physical(center)[4], "r*", markersize=12, label="truth")
axis.set(xlabel="matter density", ylabel=r"amplitude $10^9 A_s$")
axis.legend()
figure.savefig(picture, dpi=90)
