"""X-ray photons of a diffuse sky with point sources, seen through a blur that grows to the edge of the image.

The sky is the sum of a correlated log-normal field and inverse gamma numbers, most of which are faint.
Patches of the image have a window and a point spread function each.

Usage: python photon_sources.py [CELLS] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from meshloom import inference as mi
from meshloom import operators as op
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
cells = int(sys.argv[1]) if len(sys.argv) > 1 else 40
picture = sys.argv[2] if len(sys.argv) > 2 else "photon_sources.png"

maker = mi.CorrelatedFieldMaker("diffuse")
maker.set_amplitude_total_offset(1.0, (0.3, 0.1))
maker.add_fluctuations((cells, cells), 1 / cells, fluctuations=(0.7, 0.2), loglogavgslope=(-4.0, 0.5))
field = maker.finalize()
diffuse = op.exp(field)
points = mi.InvGammaPrior(1.5, 0.05, field.target).rename(domain={"field": "points"})
sky = diffuse + points

# Two patches with smooth windows that add up to 1: the inner one is sharper.
x = (np.arange(cells) + 0.5) / cells - 0.5
radius = np.hypot(x[:, None], x)
inner = 1 / (1 + np.exp((radius - 0.3) / 0.05))
steps = np.minimum(np.arange(cells), cells - np.arange(cells)) / cells
patches = []
for window, width in ((inner, 0.02), (1 - inner, 0.05)):
    psf = np.exp(-(steps[:, None] ** 2 + steps**2) / (2 * width**2))
    patches.append((op.diagonal(sky.target, window)).then(op.convolution(sky.target, psf / psf.sum())))
rate = sky.then(patches[0] + patches[1])

truth, exposure = sky.random(seed=8), 20.0
counts = np.random.default_rng(5).poisson(exposure * np.maximum(np.asarray(rate(truth)), 0))

likelihood = mi.Poissonian(counts, exposure=exposure).amend(rate)
samples, reports = mi.optimize_kl(likelihood, n_total_iterations=4, n_samples=4, sample_mode="linear_resample")
mean, std = (np.asarray(value) for value in samples.mean_and_std(field))
error = np.sqrt(np.mean((np.asarray(field(truth)) - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
image = axes[0].imshow(counts.T, origin="lower", extent=(0, 1, 0, 1))
axes[0].set(title="photons", xlabel="x [deg]", ylabel="y [deg]")
figure.colorbar(image, ax=axes[0], label="photons per cell", shrink=0.9)
plot.posterior(*samples.mean_and_std(sky), sky(truth), size=1.0, unit="deg", label="rate per cell", ax=axes[1:])
figure.savefig(picture, dpi=90)
