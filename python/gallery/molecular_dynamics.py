"""Molecular dynamics of a Lennard-Jones liquid: pairs from a `KDTree`, forces in NumPy.

Units are those of the potential (length, energy and mass of 1).

Usage: python molecular_dynamics.py [ATOMS_PER_SIDE] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import meshloom

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
side = int(sys.argv[1]) if len(sys.argv) > 1 else 10
picture = sys.argv[2] if len(sys.argv) > 2 else "molecular_dynamics.png"
steps, dt, cutoff, density, temperature = 3 * side**2, 0.004, 2.5, 0.8, 1.0
box = side / density ** (1 / 3)


def forces(positions):
    """Forces, and the potential energy of all pairs within the cutoff."""
    pairs = meshloom.KDTree(positions % box % box, boxsize=box).query_pairs(cutoff, output_type="ndarray")
    i, j = pairs.T
    apart = positions[i] - positions[j]
    apart -= box * np.round(apart / box)
    inverse6 = 1.0 / np.sum(apart**2, axis=1) ** 3
    # The potential is shifted to 0 at the cutoff.
    energy = np.sum(4 * inverse6 * (inverse6 - 1)) - len(i) * 4 * cutoff**-6 * (cutoff**-6 - 1)
    pull = (48 * inverse6 * (inverse6 - 0.5) / np.sum(apart**2, axis=1))[:, None] * apart
    force = [np.bincount(i, pull[:, axis], len(positions)) - np.bincount(j, pull[:, axis], len(positions)) for axis in range(3)]
    return np.stack(force, axis=1), energy


rng = np.random.default_rng(1)
positions = (np.indices((side,) * 3).reshape(3, -1).T + 0.5) * box / side
velocities = rng.normal(0.0, np.sqrt(2 * temperature), positions.shape)
velocities -= velocities.mean(axis=0)
force, potential = forces(positions)
energies = []
for _ in range(steps):
    velocities += 0.5 * dt * force
    positions += dt * velocities
    force, potential = forces(positions)
    velocities += 0.5 * dt * force
    kinetic = 0.5 * np.sum(velocities**2)
    energies.append(np.array([kinetic, potential, kinetic + potential]) / len(positions))

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for values, label in zip(np.transpose(energies), ("kinetic", "potential", "total")):
    left.plot(dt * np.arange(1, steps + 1), values, label=label)
left.set(xlabel="time", ylabel="energy per atom", title=f"{len(positions)} atoms, density {density:g}")
left.legend(loc="center right", bbox_to_anchor=(1.0, 0.64))
edges = np.linspace(0.5, box / 2, 80)
counts = meshloom.pair_counts(positions % box, edges, box=box)
shells = 4 / 3 * np.pi * np.diff(edges**3) * len(positions) ** 2 / box**3
right.stairs(counts / shells, edges, baseline=None)
right.axhline(1.0, color="gray", lw=0.8)
right.set(xlabel="distance", ylabel="g(r)", title="radial distribution of the liquid")
figure.savefig(picture, dpi=100)
