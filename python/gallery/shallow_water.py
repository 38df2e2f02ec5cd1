"""A jet in a shallow sea, computed by the program: the Python package has no shallow-water model.

The program `meshloom` must be in the search path, or MESHLOOM_PROGRAM must name it.

Usage: python shallow_water.py [CELLS] [PICTURE]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import numpy as np

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
cells = int(sys.argv[1]) if len(sys.argv) > 1 else 360
picture = sys.argv[2] if len(sys.argv) > 2 else "shallow_water.png"
hours = 240 * (cells / 360) ** 2

with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "water"
    program = os.environ.get("MESHLOOM_PROGRAM", "meshloom")
    size = f"{cells}x{cells // 2}"
    subprocess.run([program, "shallow-water", "--out", out, "--cells", size, "--hours", f"{hours:g}"], check=True)
    elevation = np.load(out / "height.npy") - 100.0
    u, v = np.load(out / "velocity.npy")

spacing = 5.0  # km
figure, axes = plt.subplots(2, 1, figsize=(8, 7.4), layout="constrained", sharex=True)
extent = (0, cells * spacing, 0, cells // 2 * spacing)
# Vorticity on the corners of cells, from differences of faces; x is periodic.
vorticity = ((np.roll(v, -1, axis=1) - v)[:-1] - (u[1:] - u[:-1])) / (1000 * spacing)
for ax, field, label in (
    (axes[0], elevation, "elevation [m]"),
    (axes[1], 1e5 * vorticity, "vorticity [10$^{-5}$/s]"),
):
    reach = np.abs(field).max()
    image = ax.imshow(field, origin="lower", extent=extent, cmap="RdBu_r", vmin=-reach, vmax=reach)
    figure.colorbar(image, ax=ax, label=label)
    ax.set_ylabel("y [km]")
axes[0].set_title(f"after {hours:g} hours")
axes[1].set_xlabel("x [km]")
figure.savefig(picture, dpi=70)
