"""A light cone from snapshots: each shell of distance shows the snapshot at its time.

The program writes exact light cones, `meshloom simulate --light-cone`: it finds where each particle
crosses the cone. This script takes the nearest of a few snapshots.

Usage: python light_cone.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import meshloom

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
particles = int(sys.argv[1]) if len(sys.argv) > 1 else 64
picture = sys.argv[2] if len(sys.argv) > 2 else "light_cone.png"
box, boxes, opening = 300.0, 4, 7.0  # Mpc/h, repetitions, degrees to each side

cosmology = meshloom.Cosmology()
edges = np.arange(boxes + 1) * box
# Scale factors by comoving distance, from a table.
table = np.linspace(0.4, 1.0, 500)
distance = cosmology.comoving_distance(table)
scale_factor = np.interp(edges[:-1] + box / 2, distance[::-1], table[::-1])
run = meshloom.simulate(
    particles=particles, box=box, steps=12, window="tsc", cosmology=cosmology, snapshots=np.sort(scale_factor)
)

figure, axes = plt.subplots(figsize=(10, 3.4), layout="constrained")
for near, snapshot in zip(edges, run.snapshots[::-1]):
    # The observer is at the origin and looks along x. Shells show the box from different sides.
    x, y, z = np.roll(snapshot.positions, int(near / box), axis=1).T
    thin = z < 20.0
    distance, y = x[thin] + near, y[thin] - box / 2
    inside = np.abs(np.degrees(np.arctan2(y, distance))) < opening
    axes.plot(distance[inside], y[inside], ".", ms=0.5, color="black")
reach = edges[-1] * np.tan(np.radians(opening))
axes.plot([edges[-1], 0, edges[-1]], [-reach, 0, reach], color="gray", lw=0.8)
axes.set(xlim=(0, edges[-1]), ylim=(-reach, reach), xlabel="comoving distance [Mpc/h]", ylabel="y [Mpc/h]")
redshifts = np.array([0.1, 0.2, 0.3, 0.4])
top = axes.secondary_xaxis("top")
top.set_xticks(cosmology.comoving_distance(1 / (1 + redshifts)), redshifts)
top.set_xlabel("redshift")
axes.set_title(f"slice of 20 Mpc/h through a cone of {boxes} snapshots, opening {2 * opening:g} degrees")
figure.savefig(picture, dpi=90)
