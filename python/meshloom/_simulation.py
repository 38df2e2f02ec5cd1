"""Cosmological particle-mesh runs."""

from . import _native
from ._arrays import real_array
from ._comm import resolve
from ._cosmology import parameters
from ._power import PowerSpectrum

import numpy as np


class Simulation:
    """Particles of a run at one time; those of earlier times are its `snapshots`.

    Attributes
    ----------
    a : float
        Scale factor.
    positions : ndarray of float32, shape (particles**3, 3)
        In Mpc/h, in ``[0, box)``, in Lagrangian order: row ``(i n + j) n + k`` is the particle of site ``(i, j, k)``. With several ranks this
        rank's part.
    velocities : ndarray of float32, shape (particles**3, 3)
        Peculiar velocities in km/s.
    power : PowerSpectrum
        Of the density on the force mesh: h/Mpc and (Mpc/h)^3.
    box : float
    snapshots : list of Simulation
        At the scale factors that were asked for, before the end.
    """

    def __init__(self, found, box, snapshots=()):
        self.a, self.box, self.snapshots = found["a"], box, list(snapshots)
        self.positions = found["positions"].reshape(-1, 3)
        self.velocities = found["velocities"].reshape(-1, 3)
        self.power = PowerSpectrum(found["k"], found["power"], found["modes"])

    def __repr__(self):
        return f"<meshloom.Simulation: {len(self.positions)} particles at a = {self.a:g}>"


def _reporter(progress):
    """A function ``(step, steps, a)`` of a callback of that form, or of a bar with `update` (tqdm's)."""
    if progress is None or callable(progress):
        return progress
    if not hasattr(progress, "update"):
        raise TypeError("progress must be a function of (step, steps, a), or a bar with update and total as tqdm's")

    def report(step, steps, a):
        progress.total = steps
        if step > 0:
            progress.update(1)

    return report


def run_options(particles, mesh, box, *, cosmology=None, seed=1, lpt=2, a_start=0.0625, a_end=1.0, steps=10, scheme="bullfrog", window="cic", snapshots=()):
    """Options of a run as the library takes them."""
    options = {
        "particles": int(particles),
        "mesh": 2 * int(particles) if mesh is None else int(mesh),
        "box": float(box),
        "cosmology": parameters(cosmology),
        "seed": int(seed),
        "lpt": int(lpt),
        "a_start": float(a_start),
        "a_end": float(a_end),
        "steps": int(steps),
        "scheme": scheme,
        "window": window,
        "snapshots": [float(a) for a in snapshots],
    }
    negative = [name for name in ("particles", "mesh", "seed", "lpt", "steps") if options[name] < 0]
    if negative:
        raise ValueError(f"{negative[0]} is {options[negative[0]]}; it must not be negative")
    return options


def simulate(
    particles=64,
    mesh=None,
    box=128.0,
    *,
    cosmology=None,
    seed=1,
    noise=None,
    lpt=2,
    a_start=0.0625,
    a_end=1.0,
    steps=10,
    scheme="bullfrog",
    window="cic",
    snapshots=(),
    progress=None,
    comm=None,
):
    """Run a cosmological particle-mesh simulation.

    Parameters
    ----------
    particles : int
        Particles along each axis.
    mesh : int, optional
        Cells of the force mesh along each axis; twice the particles unless given. On a mesh that is no whole multiple of them the lattice of particles makes
        a false wave.
    box : float
        Side of the periodic box in Mpc/h.
    cosmology : Cosmology, optional
    seed : int
        Seed of the white noise of the initial conditions.
    noise : array_like, shape (particles, particles, particles), optional
        White noise in place of the seed's, rounded to float32; with `comm` this rank's part of the first axis.
    lpt : {1, 2}
        Order of the Lagrangian perturbation theory that the run starts from.
    a_start, a_end : float
        Scale factors of the start and of the end.
    steps : int
        Steps, linear in the scale factor.
    scheme : {"bullfrog", "fastpm"}
        Integrator.
    window : {"cic", "tsc", "pcs"}
        Window of painting and readout; "tsc" where displacements at the start are small beside a cell (large boxes, early starts).
    snapshots : sequence of float
        Scale factors at which the particles are kept, too.
    progress : callable or tqdm bar, optional
        Called as ``progress(step, steps, a)`` at the start and after each step; or a bar that is advanced.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the work. All ranks call it with the same arguments; particles are the same to the bit on any number of ranks.

    Returns
    -------
    Simulation
        The particles at the end, with the snapshots before.

    Examples
    --------
    >>> from meshloom import simulate
    >>> run = simulate(particles=8, box=32.0, steps=2)
    >>> run.positions.shape, run.positions.dtype, run.a
    ((512, 3), dtype('float32'), 1.0)
    """
    options = run_options(
        particles, mesh, box, cosmology=cosmology, seed=seed, lpt=lpt, a_start=a_start, a_end=a_end, steps=steps, scheme=scheme,
        window=window, snapshots=snapshots,
    )
    particles = options["particles"]
    if noise is not None:
        noise = real_array(noise, "noise")
        if noise.ndim != 3 or noise.shape[1:] != (particles, particles):
            raise ValueError(f"noise has the shape {noise.shape}; it must be {(particles,) * 3}, or a part of its first axis")
        noise = np.ascontiguousarray(noise, dtype=np.float32)
    *before, last = _native.simulate(resolve(comm), options, noise, _reporter(progress))
    return Simulation(last, options["box"], [Simulation(found, options["box"]) for found in before])
