"""Halos of a simulation: a map of the density with the largest halos, and their mass function.

Usage: python halo_catalog.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt

import meshloom
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
particles = int(sys.argv[1]) if len(sys.argv) > 1 else 64
picture = sys.argv[2] if len(sys.argv) > 2 else "halo_catalog.png"
box = float(particles)

cosmology = meshloom.Cosmology()
run = meshloom.simulate(particles=particles, box=box, cosmology=cosmology, window="tsc", steps=20)
groups = meshloom.fof(
    run.positions, linking_parameter=0.2, box=box, velocities=run.velocities, min_members=20
)
masses = groups.count * cosmology.particle_mass(box, particles)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
plot.projected_density(run.positions, box, cells=3 * particles // 2, ax=left)
left.scatter(*groups.center[:20, :2].T, s=60, facecolors="none", edgecolors="cyan")
left.set_title("density and the 20 largest halos")
models = ["press-schechter", "sheth-tormen", "watson"]
plot.mass_function(masses, box, models=models, cosmology=cosmology, label="friends of friends", ax=right)
right.set_title(f"{len(groups)} halos of 20 particles or more, z = 0")
figure.savefig(picture, dpi=90)

print("members  mass [Msun/h]  velocity dispersion [km/s]")
for count, mass, dispersion in list(zip(groups.count, masses, groups.velocity_dispersion))[:5]:
    print(f"{count:7d}  {mass:13.3e}  {dispersion:26.0f}")
