"""A map of dust in three dimensions from the reddening of stars, some of which have a wrong distance.

The extinction of a star is the integral of the dust density along its line of sight. Student's t
distribution allows for stars far off.

Usage: python dust.py [CELLS] [PICTURE]
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
cells = int(sys.argv[1]) if len(sys.argv) > 1 else 20
picture = sys.argv[2] if len(sys.argv) > 2 else "dust.png"
rng, side, stars = np.random.default_rng(2), 100.0, 4 * cells**2

maker = mi.CorrelatedFieldMaker("dust")
maker.set_amplitude_total_offset(-4.0, (0.3, 0.1))
maker.add_fluctuations((cells,) * 3, side / cells, fluctuations=(0.7, 0.2), loglogavgslope=(-4.0, 0.5))
log_density = maker.finalize()
density = op.exp(log_density)

# The observer is in the middle. The box is periodic: stars keep to the inner part.
sun = np.full((stars, 3), side / 2)
places = side * (0.1 + 0.8 * rng.random((stars, 3)))
extinction = density.then(op.lines_of_sight(density.target, sun, places, side / cells / 2))
truth, noise = density.random(seed=4), 0.1
data = np.asarray(extinction(truth)) + noise * rng.standard_t(4.0, stars)

likelihood = mi.StudentT(data, 4.0, noise).amend(extinction)
samples, reports = mi.optimize_kl(likelihood, n_total_iterations=4, n_samples=4 if cells >= 20 else 2, sample_mode="linear_resample")
mean, std = (np.asarray(value) for value in samples.mean_and_std(log_density))
error = np.sqrt(np.mean((np.asarray(log_density(truth)) - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
slabs = [np.asarray(field)[:, :, cells // 2] for field in (*samples.mean_and_std(density), density(truth))]
plot.posterior(*slabs, size=side, unit="pc", label="extinction per pc", ax=axes)
figure.savefig(picture, dpi=90)
