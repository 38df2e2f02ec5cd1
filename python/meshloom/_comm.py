"""Ranks: this process alone, threads, or the processes of an MPI program."""

import functools
import pickle
import sys

import numpy as np

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


def exchanged(comm, own):
    """What all ranks have, in the order of the ranks. All ranks call it."""
    return [own] if comm.size == 1 else [pickle.loads(part) for part in comm.allgather(pickle.dumps(own))]


def _in_words(error):
    """The type of an error and its text, as any rank can raise it: as `Error` where its type is not known there, or is made of more than a text."""
    kind, text = type(error), str(error)
    try:
        pickle.loads(pickle.dumps(kind))(text)
        return kind, text
    except Exception:
        return Error, f"{kind.__name__}: {text}"


def gathered(comm, check, *arguments):
    """What ranks tell each other before they work together. All ranks call it.

    `check` gives three things of this rank's arguments: what stays on the rank, what must be the same on all of them (a dictionary), and what all
    of them are told. Returns the first, and the third of each rank. What `check` raises on one rank is raised on all, and so is what differs: in
    what follows they would wait for each other, or find something else.
    """
    if comm.size == 1:
        own, _, told = check(*arguments)
        return own, [told]
    own, error = None, None
    try:
        own, alike, told = check(*arguments)
        said = pickle.dumps((None, alike, told))
    except Exception as raised:
        error = raised
        said = pickle.dumps((_in_words(error), {}, None))
    failures, alike, told = zip(*map(pickle.loads, comm.allgather(said)))
    for rank, failure in enumerate(failures):
        if failure:
            kind, text = failure
            raise kind(text if len(set(failures)) == 1 else f"rank {rank}: {text}") from error
    for rank, theirs in enumerate(alike):
        for name in {**alike[0], **theirs}:
            first, other = alike[0].get(name), theirs.get(name)
            if other != first:
                raise ValueError(f"{name} differs: {first} on rank 0, {other} on rank {rank}; it must be the same on all ranks")
    return own, list(told)


def agreed(comm, check, *arguments):
    """What a check of this rank's arguments gives. What it raises on one rank is raised on all. All ranks call it."""
    return gathered(comm, lambda: (check(*arguments), {}, None))[0]


def same(comm, numbers, name):
    """Refuses numbers that differ among ranks. All ranks call it."""
    gathered(comm, lambda: (None, {name: list(numbers)}, None))


def block(items, ranks, rank):
    """The items of a rank, as `numpy.array_split` has them: blocks in order, of which the first may be longer by one."""
    least, longer = divmod(items, ranks)
    return rank * least + min(rank, longer), (rank + 1) * least + min(rank + 1, longer)


REDUCTIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def summand(array):
    """An array as `numpy.sum` adds it: truth values and small whole numbers with 64 bits, for their sum has more digits than they."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(array.dtype.kind)
    return array if wide is None else array.astype(wide, copy=False)


def allreduce(self, array, op="sum"):
    """One array of those of all ranks, element by element: the same bits on all ranks, who all call it.

    Every rank gets the arrays of all and joins them in the order of the ranks: this is for numbers, histograms and spectra, not for fields.

    Parameters
    ----------
    array : array_like
        Numbers, of the same shape and type on all ranks.
    op : {"sum", "min", "max"}
        How they become one. Truth values and whole numbers are added with 64 bits, as `numpy.sum` does.

    Returns
    -------
    ndarray or scalar

    Raises
    ------
    ValueError
        On all ranks, where shapes, types or `op` differ.

    Examples
    --------
    >>> import meshloom
    >>> [found.tolist() for found in meshloom.ranks(2, lambda comm: comm.allreduce([comm.rank, 1]))]
    [[1, 2], [1, 2]]
    """

    def check():
        if op not in REDUCTIONS:
            raise ValueError(f'op is {op!r}, not "sum", "min" or "max"')
        own = np.asarray(array)
        if own.dtype.kind not in "biufc":
            raise TypeError(f"{own.dtype} cannot be reduced; give real or complex numbers")
        return None, {"function": "allreduce", "op": op, "type": own.dtype.name, "shape": own.shape}, own

    arrays = gathered(self, check)[1]
    arrays = [summand(one) for one in arrays] if op == "sum" else arrays
    return functools.reduce(REDUCTIONS[op], arrays[1:], arrays[0].copy())[()]


def bcast(self, value=None, root=0):
    """What one rank has, on all ranks, who all call it.

    Parameters
    ----------
    value : object
        Anything that can be pickled, NumPy's arrays among them; those of other ranks than `root` are not looked at.
    root : int
        The rank whose value it is.

    Returns
    -------
    object

    Examples
    --------
    >>> import meshloom
    >>> meshloom.ranks(3, lambda comm: comm.bcast({"seed": comm.rank}, root=2))
    [{'seed': 2}, {'seed': 2}, {'seed': 2}]
    """

    def check():
        if whole_number(root, "root") >= self.size:
            raise ValueError(f"root is {root}; there are {self.size} ranks, from 0 on")
        return None, {"function": "bcast", "root": root}, value if self.rank == root else None

    return gathered(self, check)[1][root]


def barrier(self):
    """Returns once all ranks have called it."""
    gathered(self, lambda: (None, {"function": "barrier"}, None))


for _method in (allreduce, bcast, barrier):
    setattr(Comm, _method.__name__, _method)


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
