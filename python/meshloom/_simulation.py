"""Cosmological particle-mesh simulations."""

import warnings

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array, single
from ._comm import agreed, gathered, given_or_not, heard, resolve, together
from ._cosmology import parameters
from ._power import _MAX_SIDE, PowerSpectrum

class Simulation:
    """Particles of a simulation at one time, the result of `simulate`.

    Attributes
    ----------
    a : float
        Scale factor.
    box : float
        Side length of the box in Mpc/h.
    positions : ndarray of float32, shape (particles**3, 3)
        Comoving positions in Mpc/h, in ``[0, box)``. They are in Lagrangian order: row ``(i * n +
        j) * n + k`` is the particle of site ``(i, j, k)``. On several ranks, the part of this rank.
    velocities : ndarray of float32, shape (particles**3, 3)
        Peculiar velocities ``a dx/dt`` in km/s.
    power : PowerSpectrum
        Power spectrum of the density on the force mesh; k in h/Mpc, power in (Mpc/h)^3.
    snapshots : list of Simulation
        Particles at the requested scale factors before the end.

    Notes
    -----
    Each particle has the mass ``cosmology.particle_mass(box, particles)`` in Msun/h, with the
    `Cosmology` and the number of particles along an axis of the call.
    """

    def __init__(self, found, box, snapshots=()):
        self.a, self.box, self.snapshots = found["a"], box, list(snapshots)
        self.positions = found["positions"].reshape(-1, 3)
        self.velocities = found["velocities"].reshape(-1, 3)
        self.power = PowerSpectrum(found["k"], found["power"], found["modes"])

    def __repr__(self):
        return f"<meshloom.Simulation: {len(self.positions)} particles at a = {self.a:g}>"


def _reporter(progress, comm):
    """Return a function ``(step, steps, a)`` for a callback of that form or a progress bar."""
    if progress is None:
        return None
    if callable(progress):
        return heard(comm, progress)
    if not hasattr(progress, "update"):
        raise TypeError("progress: expected a function of (step, steps, a) or a tqdm bar")

    def report(step, steps, a):
        progress.total = steps
        if step > 0:
            progress.update(1)

    return heard(comm, report)


def _whole(value, name, least, most):
    """Return an integer in ``least..=most``."""
    number = whole_number(value, name, least)
    if number > most:
        raise ValueError(f"{name}: expected at most {most}, got {number}")
    return number


def _seed(seed):
    return _whole(seed, "seed", 0, 2**64 - 1)


def _particles(particles):
    return _whole(particles, "particles", 1, _MAX_SIDE)


def run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window):
    """Return the options of a simulation as the extension module takes them."""
    particles = _particles(particles)
    return {
        "particles": particles,
        "mesh": 2 * particles if mesh is None else _whole(mesh, "mesh", 1, _MAX_SIDE),
        "box": real_number(box, "box"),
        "cosmology": parameters(cosmology),
        "lpt": _whole(lpt, "lpt", 1, 3),
        "a_start": real_number(a_start, "a_start"),
        "a_end": real_number(a_end, "a_end"),
        "steps": _whole(steps, "steps", 1, 2**32 - 1),
        "scheme": scheme,
        "window": window,
    }


def warn(comm, texts):
    """Warn once, on rank 0, at the line of the caller of a simulation."""
    if comm.rank == 0:
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=6)


def _own_noise(noise, particles, comm):
    """Return the white noise of this rank's part of the first axis as float32, or None."""
    if noise is None:
        return None
    noise = real_array(noise, "noise")
    own = len(np.array_split(range(particles), comm.size)[comm.rank])
    if noise.shape != (own, particles, particles):
        part = "" if comm.size == 1 else f"; pass this rank's part of {(particles,) * 3}, with numpy.array_split along the first axis"
        raise ValueError(f"noise: expected shape {(own, particles, particles)}, got {noise.shape}{part}")
    return np.ascontiguousarray(single(noise))


def white_noise(particles, seed, *, noise_by="mode", comm=None):
    """Return the white noise of a seed, from which `simulate` starts.

    ``simulate(noise=white_noise(particles, seed))`` is ``simulate(seed=seed)``.

    Parameters
    ----------
    particles : int
        Number of particles along each axis, 1 to 16384.
    seed : int
        Seed of the random numbers, 0 to 2**64 - 1.
    noise_by : {"mode", "site"}, default "mode"
        As in `simulate`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. Default: this process alone.

    Returns
    -------
    ndarray of float32, shape (particles, particles, particles)
        Standard normal numbers; with `comm`, the part of this rank along the first axis.

    Raises
    ------
    ValueError
        If `particles`, `seed` or `noise_by` is out of range, or differs between ranks.

    Notes
    -----
    Collective with `comm`. The numbers are the same on any number of ranks.

    Examples
    --------
    >>> from meshloom import white_noise
    >>> white_noise(8, seed=1).shape
    (8, 8, 8)
    """
    comm = resolve(comm)

    def check():
        own = {"particles": _particles(particles), "seed": _seed(seed), "noise_by": noise_by}
        return own, {"function": "white_noise", **own}, None

    def draw(own, _):
        particles = own["particles"]
        return _native.noise_of_seed(comm, particles, own["seed"], noise_by).reshape(-1, particles, particles)

    return together(comm, check, draw)


def simulate(
    particles=64,
    mesh=None,
    box=128.0,
    *,
    cosmology=None,
    seed=1,
    noise_by="mode",
    noise=None,
    lpt=2,
    a_start=0.0625,
    a_end=1.0,
    steps=10,
    scheme="bullfrog",
    window="cic",
    snapshots=(),
    migrate="never",
    progress=None,
    comm=None,
):
    """Run a particle-mesh simulation of structure formation.

    Parameters
    ----------
    particles : int, default 64
        Number of particles along each axis, 1 to 16384.
    mesh : int, optional
        Number of cells of the force mesh along each axis. Default: twice `particles`. If it is not
        a multiple of `particles`, the particle lattice adds a spurious wave.
    box : float, default 128.0
        Side length of the periodic box in Mpc/h.
    cosmology : Cosmology, optional
        Default: ``Cosmology()``.
    seed : int, default 1
        Seed of the white noise of the initial conditions, 0 to 2**64 - 1.
    noise_by : {"mode", "site"}, default "mode"
        Key of the random numbers. "mode": the wave vector, so that more particles refine the same
        field. "site": the index of the lattice site.
    noise : array_like, shape (particles, particles, particles), optional
        White noise instead of that of `seed`, rounded to float32; with `comm`, the part of this
        rank along the first axis.
    lpt : {1, 2, 3}, default 2
        Order of the Lagrangian perturbation theory of the initial conditions.
    a_start : float, default 0.0625
        Scale factor of the start.
    a_end : float, default 1.0
        Scale factor of the end.
    steps : int, default 10
        Number of steps, equal in the scale factor.
    scheme : {"bullfrog", "fastpm"}, default "bullfrog"
        Time integrator.
    window : {"cic", "tsc", "pcs"}, default "cic"
        Window of mass assignment and force readout. Choose "tsc" if displacements at the start are
        small compared with a cell (large boxes, early starts).
    snapshots : sequence of float, optional
        Scale factors at which the particles are kept.
    migrate : {"auto", "never"} or int, default "never"
        When particles move to the ranks of their cells: "auto" if that saves bytes between ranks;
        an integer: every n-th step. The particles that are returned do not depend on it.
    progress : callable or tqdm bar, optional
        Called as ``progress(step, steps, a)`` at the start and after each step; or a progress bar.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the work. Default: this process alone.

    Returns
    -------
    Simulation
        The particles at `a_end`, with the snapshots.

    Raises
    ------
    ValueError
        If an option is out of range, the noise has another shape or is not finite, or arguments
        differ between ranks.
    meshloom.Error
        If the device is out of memory or lost.

    Warns
    -----
    RuntimeWarning
        If the options make the result inaccurate.

    Notes
    -----
    Collective with `comm`. Particles have the same bits on any number of ranks.

    Examples
    --------
    >>> from meshloom import simulate
    >>> run = simulate(particles=8, box=16.0, steps=2)
    >>> run.positions.shape, run.positions.dtype, run.a
    ((512, 3), dtype('float32'), 1.0)
    """
    comm = resolve(comm)

    def check():
        if np.ndim(snapshots) != 1:
            raise TypeError(f"snapshots: expected a sequence of scale factors, got {snapshots!r}")
        options = run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window)
        options["seed"], options["noise_by"] = _seed(seed), noise_by
        options["migrate"] = migrate
        options["snapshots"] = [real_number(a, "snapshots") for a in snapshots]
        own = _own_noise(noise, options["particles"], comm), _native.run_warnings(options), _reporter(progress, comm)
        return (options, *own), {"function": "simulate", **options, "noise": given_or_not(noise)}, None

    (options, noise, said, report), _ = gathered(comm, check)
    agreed(comm, warn, comm, said)
    *before, last = agreed(comm, _native.simulate, comm, options, noise, report)
    return Simulation(last, options["box"], [Simulation(found, options["box"]) for found in before])
