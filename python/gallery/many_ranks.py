"""One simulation on many ranks: each has a slab of the initial lattice, and results are the same.

Ranks are threads here. With MPI, `comm` is `mpi4py.MPI.COMM_WORLD` instead, and the script is
started with `mpirun -n 4 python program.py`.

Usage: python many_ranks.py [PARTICLES] [PICTURE]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import meshloom
from meshloom import plot

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
particles = int(sys.argv[1]) if len(sys.argv) > 1 else 64
picture = sys.argv[2] if len(sys.argv) > 2 else "many_ranks.png"
box = float(particles)


def body(comm):
    """Simulate together, and find groups of the particles of all ranks."""
    run = meshloom.simulate(particles=particles, box=box, window="tsc", comm=comm)
    groups = meshloom.fof(run.positions, linking_parameter=0.2, box=box, comm=comm)
    return run.positions, run.power, comm.allreduce(groups.count.sum())


alone = meshloom.ranks(1, body)[0]
parts = meshloom.ranks(4, body)
same_particles = np.array_equal(np.concatenate([part[0] for part in parts]), alone[0])
same_power = all(np.array_equal(part[1].power, alone[1].power) for part in parts)
same_groups = all(part[2] == alone[2] for part in parts)
print(f"same bits on 1 and 4 ranks: {same_particles}, {same_power}, {same_groups}")
assert same_particles and same_power and same_groups

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for rank, (positions, _, _) in enumerate(parts):
    thin = positions[:, 2] < box / 10
    left.plot(*positions[thin, :2].T, ".", ms=1.5, label=f"rank {rank}")
left.set(xlim=(0, box), ylim=(0, box), xlabel="x [Mpc/h]", ylabel="y [Mpc/h]", aspect="equal")
left.set_title("particles by the rank that has them")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, markerscale=6)
power = alone[1]
plot.power_spectrum(power.k, power.power, label="1 rank", ax=right)
power = parts[-1][1]
plot.power_spectrum(power.k, power.power, label="4 ranks", ls="none", marker="o", ms=4, ax=right)
right.set_title("power spectrum at z = 0")
figure.savefig(picture, dpi=80)
