"""A spectrum from a spectrograph whose resolution varies and whose detector saturates.

The response is a matrix of SciPy and a function of NumPy with its derivatives.

Usage: python spectrograph.py [CHANNELS] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from meshloom import inference as mi
from meshloom import operators as op
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
channels = int(sys.argv[1]) if len(sys.argv) > 1 else 256
picture = sys.argv[2] if len(sys.argv) > 2 else "spectrograph.png"

maker = mi.CorrelatedFieldMaker("spectrum")
maker.set_amplitude_total_offset(0.5, (0.3, 0.1))
maker.add_fluctuations(channels, 1 / channels, fluctuations=(0.7, 0.2), loglogavgslope=(-3.0, 0.4))
logarithm = maker.finalize()
spectrum = op.exp(logarithm)

# Each pixel collects wavelengths around its own; lines are wider in the red.
wavelength = (np.arange(channels) + 0.5) / channels
width = 0.005 + 0.02 * wavelength
lines = np.exp(-(((wavelength[:, None] - wavelength) / width[:, None]) ** 2) / 2)
lines[lines < 1e-4] = 0.0
matrix = sparse.csr_array(lines / lines.sum(axis=1, keepdims=True))

# The detector saturates: of bright light it counts a smaller part.
full = 20.0


def value(light):
    return light / (1 + light / full)


def product(light, change):
    return change / (1 + light / full) ** 2


light = spectrum.then(op.matrix(matrix, spectrum.target))
detector = op.custom(value, product, product, light.target, name="detector")
seen = light.then(detector)
# An error if the derivatives are wrong.
seen.check_derivative()

truth, noise = spectrum.random(seed=9), 0.1
data = np.asarray(seen(truth)) + noise * np.random.default_rng(6).standard_normal(channels)
samples, reports = mi.optimize_kl(mi.Gaussian(data, noise_std=noise).amend(seen), n_total_iterations=4, n_samples=4, sample_mode="linear_resample")
mean, std = (np.asarray(value) for value in samples.mean_and_std(logarithm))
error = np.sqrt(np.mean((np.asarray(logarithm(truth)) - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
plot.posterior(*samples.mean_and_std(spectrum), spectrum(truth), size=1.0, unit="micrometers", label="flux", ax=axes)
figure.savefig(picture, dpi=90)
