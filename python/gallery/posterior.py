"""Posterior of a sky from photon counts: a correlated field with an inferred power spectrum.

Usage: python posterior.py [CELLS] [PICTURE]
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
cells = int(sys.argv[1]) if len(sys.argv) > 1 else 64
picture = sys.argv[2] if len(sys.argv) > 2 else "posterior.png"

maker = mi.CorrelatedFieldMaker("sky")
maker.set_amplitude_total_offset(1.5, (0.3, 0.1))
maker.add_fluctuations(
    (cells, cells), 1 / cells, fluctuations=(1.0, 0.3), loglogavgslope=(-4.0, 0.5), flexibility=(0.5, 0.2)
)
sky = maker.finalize()
flux = sky.then(op.pointwise("fn flux(field: f32) -> f32 { return exp(field); }", "flux", sky.target, "flux"))

# A mock observation with a blind stripe.
truth = np.asarray(flux(flux.random(seed=7)))
exposure = np.full((cells, cells), 1.0)
exposure[:, cells // 2 : cells // 2 + cells // 8] = 0.0
counts = np.random.default_rng(1).poisson(exposure * truth)

likelihood = mi.Poissonian(counts, exposure=exposure).amend(flux)
iterations, pairs = (6, 6) if cells >= 64 else (2, 1)
samples, reports = mi.optimize_kl(
    likelihood, n_total_iterations=iterations, n_samples=pairs, sample_mode="nonlinear_resample"
)
mean, std = samples.mean_and_std(flux)
print(f"reduced chi-squared of the data: {reports[-1].reduced_chi_squared:.2f}")

figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
shown = np.ma.masked_where(exposure == 0, counts)
image = axes[0].imshow(shown.T, origin="lower", extent=(0, 1, 0, 1), cmap="viridis")
axes[0].set(title="data, with a blind stripe", xlabel="x [deg]", ylabel="y [deg]")
figure.colorbar(image, ax=axes[0], label="photons per cell", shrink=0.9)
plot.posterior(mean, std, truth, size=1.0, unit="deg", label="photons per cell", ax=axes[1:])
figure.savefig(picture, dpi=90)
