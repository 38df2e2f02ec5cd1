"""Orbit of a planet from the velocities of its star: a function of one's own, its Jacobian and its posterior.

The function of time and parameters is NumPy, with its derivatives. The Jacobian at the best fit gives
a Gaussian approximation; the No-U-Turn Sampler gives the posterior itself.

Usage: python radial_velocity.py [MEASUREMENTS] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from meshloom import inference as mi
from meshloom import operators as op

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
picture = sys.argv[2] if len(sys.argv) > 2 else "radial_velocity.png"
rng, noise = np.random.default_rng(1), 6.0
names = ("speed [m/s]", "frequency [1/d]", "phase", "offset [m/s]")
means, widths = np.array([50.0, 0.25, 1.0, 0.0]), np.array([10.0, 0.005, 0.5, 5.0])


def derivatives(time, x):
    """The derivative of each velocity by the four parameters."""
    speed, frequency, phase, _ = x
    sine, cosine = np.sin(2 * np.pi * frequency * time + phase), np.cos(2 * np.pi * frequency * time + phase)
    return np.stack([cosine, -2 * np.pi * time * speed * sine, -speed * sine, np.ones_like(time)], axis=1)


def value(time, x):
    return x[0] * np.cos(2 * np.pi * x[1] * time + x[2]) + x[3]


times = np.sort(60 * rng.random(count))
products = (value, lambda t, x, dx: derivatives(t, x) @ dx, lambda t, x, dy: derivatives(t, x) * dy[:, None])
velocities = op.map_items(products, times, op.Space(orbit=op.parameters(4)), chunk=1024)
orbit = mi.NormalPrior(means, widths, op.Space(latent=op.parameters(4)), "orbit")
model = orbit.then(velocities)
truth = orbit.inverse(means + widths * [0.5, -0.4, 0.8, 0.3])
data = np.asarray(model(truth)) + noise * rng.standard_normal(count)
likelihood = mi.Gaussian(data, noise_std=noise).amend(model)

best = mi.minimize(likelihood, np.zeros(4)).x
jacobian = model.at(best).jacobian() / noise
covariance = np.linalg.inv(jacobian.T @ jacobian + np.eye(4))
chains = mi.sample(likelihood, best, n_warmup=60, n_draws=100, n_chains=2, seed=2)
draws = np.array([np.asarray(draw) for draw in chains])
error = np.sqrt(np.mean(((draws.mean(axis=0) - truth) / draws.std(axis=0)) ** 2))
print(f"R-hat {np.max(chains.split_r_hat()):.3f}, error over standard deviation {error:.2f}")
print("standard deviations of draws over those by the Jacobian:", np.round(draws.std(axis=0) / np.sqrt(np.diag(covariance)), 2))

figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
axes[0].plot(times, data, "k.", markersize=3, label="data")
grid = np.linspace(0, 60, 1000)
physical = means + widths * draws
for draw in physical[::20]:
    axes[0].plot(grid, value(grid, draw), color="tab:blue", alpha=0.2)
axes[0].set(xlabel="time [d]", ylabel="velocity [m/s]", title="data and draws of the posterior")
axes[1].plot(*physical[:, 1:3].T, ".", markersize=3, label="draws")
angles, root = np.linspace(0, 2 * np.pi, 100), np.linalg.cholesky(covariance[1:3, 1:3])
ellipse = means[1:3, None] + widths[1:3, None] * (best[1:3, None] + 2 * root @ [np.cos(angles), np.sin(angles)])
axes[1].plot(*ellipse, "k-", label="two deviations by the Jacobian")
axes[1].plot(*(means + widths * truth)[1:3], "r*", markersize=12, label="truth")
axes[1].set(xlabel=names[1], ylabel=names[2], title="posterior")
axes[1].legend()
figure.savefig(picture, dpi=90)
