"""A sky in several frequency bands: brightness and spectral index by direction, and deviations of each band.

The brightness is exp(a + alpha ln(nu / nu0) + d); a and alpha have two axes, d has three. Each band has
its own point spread function.

Usage: python multi_frequency.py [CELLS] [PICTURE]
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
cells = int(sys.argv[1]) if len(sys.argv) > 1 else 24
picture = sys.argv[2] if len(sys.argv) > 2 else "multi_frequency.png"
rng, frequencies = np.random.default_rng(4), np.geomspace(1.0, 4.0, 3)
shape, bands = (cells, cells), len(frequencies)


def field(prefix, mean, std):
    maker = mi.CorrelatedFieldMaker(prefix)
    maker.set_amplitude_total_offset(mean, (0.3, 0.1))
    maker.add_fluctuations(shape, 1 / cells, fluctuations=(std, 0.2 * std), loglogavgslope=(-4.0, 0.4))
    return maker.finalize()


brightness, index = field("brightness", 1.0, 0.7), field("index", -0.7, 0.3)
maker = mi.CorrelatedFieldMaker("deviation")
maker.set_amplitude_total_offset(0.0, 0.1)
maker.add_fluctuations(bands, 1.0, fluctuations=0.1, loglogavgslope=0.0, prefix="band")
maker.add_fluctuations(shape, 1 / cells, fluctuations=0.1, loglogavgslope=-4.0, prefix="direction")
deviation = maker.finalize()

cube = deviation.target
log_ratio = np.broadcast_to(np.log(frequencies)[:, None, None], (bands, *shape))
repeated = brightness.then(op.broadcast(brightness.target, cube, axis=0))
sky = op.exp(repeated + index.then(op.broadcast(index.target, cube, axis=0)) * log_ratio + deviation)

# Each band is a part of the cube, blurred by a Gaussian whose width falls with the frequency.
truth, noise, likelihood = sky.random(seed=6), 0.5, None
x = np.minimum(np.arange(cells), cells - np.arange(cells)) / cells
for band, frequency in enumerate(frequencies):
    psf = np.exp(-(x[:, None] ** 2 + x**2) / (2 * (0.06 / frequency) ** 2))
    part = op.crop(cube, [(band, bands - 1 - band), (0, 0), (0, 0)])
    seen = part.then(op.convolution(part.target, psf / psf.sum()))
    data = np.asarray(sky.then(seen)(truth)) + noise * rng.standard_normal(shape)
    of_band = mi.Gaussian(data, noise_std=noise, name=f"band {band}").amend(seen)
    likelihood = of_band if likelihood is None else likelihood + of_band

samples, reports = mi.optimize_kl(likelihood.amend(sky), n_total_iterations=3, n_samples=2, sample_mode="linear_resample")
mean, std = (np.asarray(value) for value in samples.mean_and_std(index))
error = np.sqrt(np.mean((np.asarray(index(truth)) - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
plot.posterior(mean, std, index(truth), size=1.0, unit="deg", label="spectral index", ax=axes)
figure.savefig(picture, dpi=90)
