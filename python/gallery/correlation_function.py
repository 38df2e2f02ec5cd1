"""Correlation function of dark matter and of halos.

Usage: python correlation_function.py [PARTICLES] [PICTURE]
"""

import sys

import numpy as np

import meshloom
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
particles = int(sys.argv[1]) if len(sys.argv) > 1 else 64
picture = sys.argv[2] if len(sys.argv) > 2 else "correlation_function.png"
box = float(particles)  # Mpc/h, so that particles are 1 Mpc/h apart on average.

run = meshloom.simulate(particles=particles, box=box, window="tsc")
groups = meshloom.fof(run.positions, linking_parameter=0.2, box=box, min_members=20)

# A quarter of the box is within the range where pair counts of periodic boxes are complete.
edges = np.geomspace(0.4, box / 4, 13)
axes = None
for points, label in ((run.positions, "dark matter"), (groups.center, f"{len(groups)} halos")):
    counts = meshloom.pair_counts(points, edges, box=box)
    axes = plot.correlation_function(edges, counts, len(points), [box] * 3, label=label, ax=axes)
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_ylim(0.01, 100.0)
axes.set_title(f"{particles}$^3$ particles in a box of {box:g} Mpc/h at z = 0")
axes.figure.savefig(picture, dpi=110)
