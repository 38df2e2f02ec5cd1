"""Image of a radio interferometer: a log-normal sky from noisy visibilities at scattered places of the Fourier plane.

The Fourier sum is an operator of NumPy functions; the sky, its power spectrum and the fit are on the device.

Usage: python interferometer.py [CELLS] [PICTURE]
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
picture = sys.argv[2] if len(sys.argv) > 2 else "interferometer.png"
rng = np.random.default_rng(3)

maker = mi.CorrelatedFieldMaker("sky")
maker.set_amplitude_total_offset(0.0, (0.5, 0.2))
maker.add_fluctuations((cells, cells), 1 / cells, fluctuations=(1.0, 0.3), loglogavgslope=(-4.0, 0.5))
log_sky = maker.finalize()
sky = op.exp(log_sky)

# The beam of an antenna, and tracks of baselines in periods per side of the image.
x = (np.arange(cells) + 0.5) / cells - 0.5
beam = np.exp(-((x[:, None] ** 2 + x**2) / (2 * 0.22**2)))
length, angle = cells / 3 * rng.random(10 * cells), np.pi * rng.random(10 * cells)
u, v = length * np.cos(angle), length * np.sin(angle)
along_x, along_y = np.exp(-2j * np.pi * u[:, None] * x), np.exp(-2j * np.pi * v[:, None] * x)


def visibilities(image):
    """The Fourier sum at each baseline: all real parts, then all imaginary parts."""
    found = np.einsum("kx,xy,ky->k", along_x, image, along_y, optimize=True) / cells
    return np.concatenate([found.real, found.imag])


def adjoint(numbers):
    real, imaginary = np.split(numbers, 2)
    return np.einsum("k,kx,ky->xy", real - 1j * imaginary, along_x, along_y, optimize=True).real / cells


seen = sky * beam
to = op.Space(visibilities=op.vector(2 * len(u)))
response = seen.then(op.custom(visibilities, lambda _, dx: visibilities(dx), lambda _, dy: adjoint(dy), seen.target, to))
truth = sky.random(seed=5)
noise = 0.1 * np.std(np.asarray(response(truth)))
data = np.asarray(response(truth)) + noise * rng.standard_normal(2 * len(u))

likelihood = mi.Gaussian(data, noise_std=noise).amend(response)
samples, reports = mi.optimize_kl(likelihood, n_total_iterations=5, n_samples=4, sample_mode="linear_resample")
mean, std = (np.asarray(value) for value in samples.mean_and_std(log_sky))
error = np.sqrt(np.mean((np.asarray(log_sky(truth)) - mean) ** 2) / np.mean(std**2))
print(f"reduced chi-squared {reports[-1].reduced_chi_squared:.2f}, error over standard deviation {error:.2f}")

figure, axes = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
axes[0].plot([u, -u], [v, -v], "k.", markersize=1)
axes[0].set(title="baselines", xlabel="u [periods per side]", ylabel="v [periods per side]", aspect="equal")
plot.posterior(*samples.mean_and_std(seen), seen(truth), size=1.0, unit="sides", label="brightness in the beam", ax=axes[1:])
figure.savefig(picture, dpi=90)
