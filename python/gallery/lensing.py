"""Matter from weak lensing: the posterior of the initial conditions given a map of the convergence.

The light cone has three shells, each a box at the time when its light was emitted, seen along another
axis. Particles are weighted by the lensing kernel at their distance (Born approximation), and the
derivative runs back through the planes, the weights and the whole simulation.

Usage: python lensing.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import meshloom
from meshloom import inference as mi
from meshloom import operators as op
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
n = int(sys.argv[1]) if len(sys.argv) > 1 else 16
picture = sys.argv[2] if len(sys.argv) > 2 else "lensing.png"
box, shells, cosmology = 600.0, 3, meshloom.Cosmology()
source = box * shells

# The scale factor at the middle of each shell.
table = np.linspace(0.3, 1.0, 200)
distances = np.array([cosmology.comoving_distance(a) for a in table])
times = np.interp([-(box * (shell + 0.5)) for shell in range(shells)], -distances, table)
run = op.simulation(n, n, box, steps=4, lpt=2, window="tsc", observables=["displacement"], snapshots=times)

particles, planes = op.cells((n, n, n), size=box, components=3), None
for shell, a in enumerate(times):
    # The distance of each particle's site in its shell; the lensing kernel is that at the particle.
    sites = np.moveaxis(np.broadcast_to(np.arange(n) * box / n, (n, n, n)), 2, shell)
    strength = 1.5 * cosmology.omega_m / 2997.92458**2 / a * box
    text = f"""fn weight(moved: vec3<f32>, site: f32) -> f32 {{
        let distance = {box * shell} + site + moved[{shell}];
        return {strength:.9e} * distance * (1.0 - distance / {source});
    }}"""
    weight = op.pointwise(text, "weight", op.Space(moved=particles), "weight", constants={"site": sites})
    one_cell = [1 if axis == shell else n for axis in range(3)]
    painted = op.paint(op.Space(moved=particles, weight=op.cells((n, n, n), size=box)), op.cells(one_cell, size=box))
    plane = painted.substitute(weight).then(op.reshape(painted.target, op.Space(convergence=op.cells((n, n), size=box))))
    plane = plane.rename(domain={"moved": f"snapshot_{shell}/displacement"})
    planes = plane if planes is None else planes + plane

convergence = run.giving(*planes.domain).then(planes)
truth = meshloom.white_noise(n, seed=4)
signal = np.squeeze(convergence(truth))
sigma = 0.5 * signal.std()
data = signal + sigma * np.random.default_rng(5).standard_normal((n, n))
likelihood = mi.Gaussian(data, noise_std=sigma).amend(convergence)
samples, reports = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2, sample_mode="linear_resample")
mean, std = (np.squeeze(value) for value in samples.mean_and_std(convergence))
error = np.sqrt(np.mean((signal - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
image = axes[0].imshow((data - data.mean()).T, origin="lower", extent=(0, box, 0, box), cmap="inferno")
axes[0].set(title="data", xlabel="x [Mpc/h]", ylabel="y [Mpc/h]")
figure.colorbar(image, ax=axes[0], label="convergence", shrink=0.9)
maps = (mean - signal.mean(), std, signal - signal.mean())
plot.posterior(*maps, size=box, unit="Mpc/h", label="convergence", ax=axes[1:])
figure.savefig(picture, dpi=90)
