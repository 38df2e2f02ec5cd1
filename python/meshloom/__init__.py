"""Fields and particles on any GPU: transforms, neighbors, groups, spectra and simulations.

Functions take NumPy arrays and return NumPy arrays. The work runs on a device that Vulkan, Metal
or DX12 reaches, or on a software renderer. The first call opens the device: the best one, or the
one that the environment variable ``MESHLOOM_DEVICE`` names.

===================================  ===========================================================
`meshloom.fft`                       `numpy.fft` on the device
`KDTree`                             `scipy.spatial.KDTree` on the device
`fof`, `pair_counts`, `sort`         groups, pair counts by distance, order along a curve
`power_spectrum`                     power spectra of points and of fields
`simulate`, `halo_mass_function`     particle-mesh simulations of structure, models of halo counts
`asarray`, `Array`                   arrays on the device, with NumPy's arithmetic
`meshloom.operators`                 differentiable models of operators and functions in WGSL
`meshloom.inference`, `optimize_kl`  likelihoods, priors and posterior samples of such models
`map_items`, `map_reduce`            functions of many items, distributed over ranks
`ranks`, `Comm`, ``comm=``           the same functions on threads or on MPI processes
`meshloom.jax`, `meshloom.torch`     the same models as functions of JAX and of PyTorch
`meshloom.plot`                      pictures of results (needs matplotlib)
===================================  ===========================================================

Notes
-----
**Collective.** A call with ``comm=`` is collective: every rank must call it, in the same order,
with the same arguments. Only arrays differ, because each rank passes its own part of them.
Methods of objects that were made with ``comm=`` are collective too. The ranks compare their
arguments first. If one rank finds an error, all ranks raise it. The message names the rank unless
all ranks have the same error.

**Parts.** `numpy.array_split` along the first axis defines the part of each rank. A complete array
on each rank counts as a part and gives copies without an error. Results have the same bits on any
number of ranks.

**Errors.** An invalid value is a `ValueError`, an invalid type a `TypeError`. Failures of the
device, of ranks or of files are `meshloom.Error`. Lack of host memory is a `MemoryError`.
"""

import atexit as _atexit

from . import _native
from ._comm import Comm, devices, memory, ranks
from ._device_array import Array, asarray
from ._native import Error
from . import fft, inference, operators
from ._groups import Groups, fof
from ._kdtree import KDTree
from ._map import map_items, map_reduce
from ._optimize_kl import optimize_kl
from ._pairs import pair_counts
from ._sort import sort
from ._cosmology import Cosmology, halo_mass_function, linear_power, nonlinear_power
from ._power import PowerSpectrum, power_spectrum
from ._simulation import Simulation, simulate, white_noise
from . import jax, plot, torch

__version__ = _native.version
# A star import leaves the names `jax` and `torch` to these packages.
__all__ = [
    "Array",
    "Comm",
    "Cosmology",
    "Error",
    "Groups",
    "KDTree",
    "PowerSpectrum",
    "Simulation",
    "asarray",
    "devices",
    "fft",
    "fof",
    "halo_mass_function",
    "inference",
    "linear_power",
    "map_items",
    "map_reduce",
    "memory",
    "nonlinear_power",
    "operators",
    "optimize_kl",
    "pair_counts",
    "plot",
    "power_spectrum",
    "ranks",
    "simulate",
    "sort",
    "white_noise",
]

# Threads of devices end before the interpreter does.
_atexit.register(_native.close)
