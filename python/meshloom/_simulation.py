"""Cosmological particle-mesh runs."""

import warnings

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array, single
from ._comm import agreed, gathered, given_or_not, heard, resolve, together
from ._cosmology import parameters
from ._power import _MAX_SIDE, PowerSpectrum

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
        Peculiar velocities a dx/dt in km/s.
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


def _reporter(progress, comm):
    """A function ``(step, steps, a)`` of a callback of that form, or of a bar with `update` (tqdm's)."""
    if progress is None:
        return None
    if callable(progress):
        return heard(comm, progress)
    if not hasattr(progress, "update"):
        raise TypeError("progress must be a function of (step, steps, a), or a bar with update and total as tqdm's")

    def report(step, steps, a):
        progress.total = steps
        if step > 0:
            progress.update(1)

    return heard(comm, report)


def _whole(value, name, least, most):
    """An integer of a range, which is at most what the library counts with."""
    number = whole_number(value, name, least)
    if number > most:
        raise ValueError(f"{name} is {number}; it must be at most {most}")
    return number


def _seed(seed):
    return _whole(seed, "seed", 0, 2**64 - 1)


def _particles(particles):
    return _whole(particles, "particles", 1, _MAX_SIDE)


def run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window):
    """Options of a run as the library takes them."""
    particles = _particles(particles)
    return {
        "particles": particles,
        "mesh": 2 * particles if mesh is None else _whole(mesh, "mesh", 1, _MAX_SIDE),
        "box": real_number(box, "box"),
        "cosmology": parameters(cosmology),
        "lpt": _whole(lpt, "lpt", 1, 2),
        "a_start": real_number(a_start, "a_start"),
        "a_end": real_number(a_end, "a_end"),
        "steps": _whole(steps, "steps", 1, 2**32 - 1),
        "scheme": scheme,
        "window": window,
    }


def warn(comm, texts):
    """Says once what the caller of a run should know of it: who has called the function in which all ranks have `agreed` on this."""
    if comm.rank == 0:
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=6)


def _own_noise(noise, particles, comm):
    """White noise of this rank's part of the first axis in float32, or None."""
    if noise is None:
        return None
    noise = real_array(noise, "noise")
    own = len(np.array_split(range(particles), comm.size)[comm.rank])
    if noise.shape != (own, particles, particles):
        part = "" if comm.size == 1 else f", this rank's part of {(particles,) * 3}: numpy.array_split along the first axis"
        raise ValueError(f"noise has the shape {noise.shape}; it must be {(own, particles, particles)}{part}")
    return np.ascontiguousarray(single(noise))


def white_noise(particles, seed, *, noise_by="mode", comm=None):
    """The white noise that a run of a seed begins with: ``simulate(noise=white_noise(particles, seed))`` is ``simulate(seed=seed)``.

    Parameters
    ----------
    particles : int
        Particles along each axis.
    seed : int
    noise_by : {"mode", "site"}
        As in `simulate`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. All ranks call it with the same arguments.

    Returns
    -------
    ndarray of float32, shape (particles, particles, particles)
        Standard normal numbers; with `comm` this rank's part of the first axis.

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
    progress=None,
    comm=None,
):
    """Run a cosmological particle-mesh simulation.

    What spoils its physics is a `RuntimeWarning`: a mesh that is no whole multiple of the particles, and displacements at the start that are too small a part of
    a cell for the window "cic".

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
    noise_by : {"mode", "site"}
        What the seed's white noise is a function of: "mode", the wave vector, so that more particles refine the same field; "site", the place among all sites.
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
    >>> run = simulate(particles=8, box=16.0, steps=2)
    >>> run.positions.shape, run.positions.dtype, run.a
    ((512, 3), dtype('float32'), 1.0)
    """
    comm = resolve(comm)

    def check():
        if np.ndim(snapshots) != 1:
            raise TypeError(f"snapshots must be a sequence of scale factors, not {snapshots!r}")
        options = run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window)
        options["seed"], options["noise_by"] = _seed(seed), noise_by
        options["snapshots"] = [real_number(a, "snapshots") for a in snapshots]
        own = _own_noise(noise, options["particles"], comm), _native.run_warnings(options), _reporter(progress, comm)
        return (options, *own), {"function": "simulate", **options, "noise": given_or_not(noise)}, None

    (options, noise, said, report), _ = gathered(comm, check)
    agreed(comm, warn, comm, said)
    *before, last = agreed(comm, _native.simulate, comm, options, noise, report)
    return Simulation(last, options["box"], [Simulation(found, options["box"]) for found in before])
