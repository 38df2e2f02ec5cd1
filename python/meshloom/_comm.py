"""Ranks: this process alone, threads, or the processes of an MPI program."""

import sys

from . import _native
from ._arguments import whole_number
from ._native import Comm, Error

_KEYVAL = None


def _of_mpi(comm):
    """The rank of this process in a communicator of mpi4py, made once and kept with it."""
    global _KEYVAL
    from mpi4py import MPI

    if not hasattr(_native, "from_mpi"):
        raise Error("this build of meshloom has no MPI; build it with: maturin build --release --features mpi")
    if _KEYVAL is None:
        _KEYVAL = MPI.Comm.Create_keyval()
    own = comm.Get_attr(_KEYVAL)
    if own is None:
        own = _native.from_mpi(MPI._addressof(comm))
        comm.Set_attr(_KEYVAL, own)
    return own


def resolve(comm):
    """The rank that a call runs on."""
    if comm is None:
        return _native.alone()
    if isinstance(comm, Comm):
        return comm
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        return _of_mpi(comm)
    raise TypeError(f"comm must be None, a meshloom.Comm or a communicator of mpi4py, not {type(comm).__name__}")


def ranks(count, body=None):
    """Run a function on several ranks, each a thread of this process.

    Ranks share the device if there is one, and take devices in turn if there are several. The interpreter's lock is free while the
    device works.

    Parameters
    ----------
    count : int
        Number of ranks.
    body : callable
        Called as ``body(comm)`` on every rank, with the `Comm` of that rank. Left out, ``ranks(count)`` is a decorator that
        runs the function at once.

    Returns
    -------
    list
        What `body` returned on each rank.

    Raises
    ------
    Exception
        What the first rank that failed raised; the others end, too.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> points = np.random.default_rng(1).random((300, 3), dtype=np.float32)
    >>> def labels(comm):
    ...     own = np.array_split(points, comm.size)[comm.rank]
    ...     return meshloom.fof(own, 0.05, comm=comm).labels
    >>> together = np.concatenate(meshloom.ranks(3, labels))
    >>> bool((together == meshloom.fof(points, 0.05).labels).all())
    True
    """
    count = whole_number(count, "count", 1)
    if body is None:
        return lambda body: _native.run_ranks(count, body)
    if not callable(body):
        raise TypeError(f"body must be a function of a rank, not {type(body).__name__}")
    return _native.run_ranks(count, body)


def devices():
    """Devices of this machine: a list of dictionaries with ``name``, ``kind``, ``backend``, ``driver`` and ``f64``.

    ``MESHLOOM_DEVICE`` chooses one by its place in this list, its name or its PCI address, before the first call.
    """
    return _native.devices()


def memory(comm=None):
    """Memory of the device that this process holds: a dictionary.

    ``allocated`` are bytes of buffers, in use or to be used again; ``allocations`` counts the buffers that were asked of the driver
    so far. A call that was made before asks for none. ``kernels`` are compiled kernels that are kept: 256 at most, those that were used last.
    """
    comm = resolve(comm)
    return {"allocated": comm.allocated, "allocations": comm.allocations, "kernels": comm.kernels}
