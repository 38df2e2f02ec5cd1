"""Fields and particles on any GPU: transforms, neighbours, groups, spectra, simulations.

Functions take NumPy arrays and give NumPy arrays; the work is done on a device that Vulkan, Metal or DX12 reaches, or by a software
renderer. The first call opens the device: the best one there is, or the one that the environment variable ``MESHLOOM_DEVICE`` names.

===================================  ==================================================================
`meshloom.fft`                       `numpy.fft` on the device
`KDTree`                             `scipy.spatial.KDTree` on the device
`fof`, `pair_counts`, `sort`         groups, pairs by distance, order along a curve
`power_spectrum`                     of points and of fields
`simulate`, `halo_mass_function`     cosmological particle-mesh runs, and the halos they are compared with
`asarray`, `Array`                   arrays that stay on the device between calls
`meshloom.operators`                 models of fields with their derivatives, of operators and functions in WGSL
`meshloom.inference`, `optimize_kl`  what data say of a model's latent values: likelihoods, priors, samples of the posterior
`map_items`, `map_reduce`            functions of many items, dealt to ranks
`ranks`, `Comm`, ``comm=``           the same over threads or the processes of an MPI program
===================================  ==================================================================

What a function cannot take is a `ValueError` or a `TypeError`; what fails on the way is a `meshloom.Error`.
A lack of host memory is a `MemoryError`.
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

__version__ = _native.version
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
    "power_spectrum",
    "ranks",
    "simulate",
    "sort",
    "white_noise",
]

# Threads of devices end before the interpreter does.
_atexit.register(_native.close)
