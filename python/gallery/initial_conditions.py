"""Gradient descent on the initial conditions of a simulation, so that its density matches data.

The derivative runs back through the whole simulation, and SciPy's L-BFGS follows it.

Usage: python initial_conditions.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import meshloom
from meshloom import inference as mi, operators as op

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
particles = int(sys.argv[1]) if len(sys.argv) > 1 else 32
picture = sys.argv[2] if len(sys.argv) > 2 else "initial_conditions.png"
box = 8.0 * particles

run = op.simulation(particles, particles, box, steps=5, window="tsc")
observed = np.asarray(run(meshloom.white_noise(particles, seed=5)))

# The misfit with noise of a standard deviation of 0.3, and the prior of standard normal noise.
likelihood = mi.Gaussian(observed, noise_std=0.3).amend(run)
losses, start = [], np.zeros(observed.shape)
steps = 60 if particles >= 32 else 5
found = mi.minimize(likelihood, start, callback=lambda x: losses.append(likelihood(x) / x.size), options={"maxiter": steps})
final = np.asarray(run(found.position))
correlation = np.corrcoef(final.ravel(), observed.ravel())[0, 1]
print(f"misfit per cell {likelihood(start) / start.size:.3g} -> {losses[-1]:.3g}, correlation of densities {correlation:.3f}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for ax, field, title in zip(axes, (observed, final), ("observed density", "density of the result")):
    slab = field[:, :, : max(particles // 8, 1)].mean(axis=2)
    image = ax.imshow(slab.T, origin="lower", extent=(0, box, 0, box), vmin=0, vmax=2.5, cmap="inferno")
    ax.set(title=title, xlabel="x [Mpc/h]", ylabel="y [Mpc/h]")
figure.colorbar(image, ax=axes[:2], label="density / mean", extend="max")
axes[2].semilogy(losses)
axes[2].set(xlabel="iteration", ylabel="misfit per cell", title="descent")
figure.savefig(picture, dpi=90, bbox_inches="tight")
