"""Ranks: this process alone, threads, or the processes of an MPI program."""

import functools
import os
import pickle
import sys
import threading
import warnings
import zlib

import numpy as np

from . import _native
from ._arguments import whole_number
from ._native import Comm, Error

_KEYVAL = None
_PACKAGE = os.path.dirname(__file__)


def _check_library(MPI):
    """Refuses a communicator of another MPI library than this package was built for: its handles are numbers in one and addresses in the other."""
    size, name = _native.mpi_library()
    theirs = MPI.Get_library_version()
    if (size, name) != (MPI._sizeof(MPI.Comm), theirs):
        ours, theirs = (" ".join(text.split()[:3]) for text in (name, theirs))
        raise Error(
            f"meshloom was built for another MPI library ({ours}) than mpi4py works with ({theirs}): MPI4PY_MPIABI=mpich or openmpi chooses that of mpi4py's wheel, and "
            "MPICC=mpicc.mpich, say, before maturin that of meshloom"
        )


def _of_mpi(comm):
    """The rank of this process in a communicator of mpi4py, kept with it: made once, and again after ranks were out of step, when what they have sent each other
    is not told apart any more."""
    global _KEYVAL
    from mpi4py import MPI

    if not hasattr(_native, "from_mpi"):
        raise Error("this build of meshloom has no MPI; build it with: maturin build --release --features mpi")
    if _KEYVAL is None:
        _check_library(MPI)
        _KEYVAL = MPI.Comm.Create_keyval()
    own = comm.Get_attr(_KEYVAL)
    if own is None or own._out_of_step:
        own = _native.from_mpi(MPI._addressof(comm))
        comm.Set_attr(_KEYVAL, own)
    return own


@functools.cache
def _warn_of_independent_processes():
    """Warns once where a launcher started several processes and this one works alone.

    It is no error: independent Python processes under a launcher are usual. With mpi4py the program
    decides itself which process does what.
    """
    ranks, mpi = _native.launched_ranks(), sys.modules.get("mpi4py.MPI")
    if ranks is None or (mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1):
        return
    text = (
        f"this is one of {ranks} processes of a launcher, and each does the whole work; to share it, pass comm=mpi4py.MPI.COMM_WORLD "
        "and use the launcher of mpi4py's MPI library; ignore this warning if the processes are independent"
    )
    warnings.warn(text, RuntimeWarning, stacklevel=4)


@functools.cache
def _warn_of_unused_hardware():
    """Warns once where a software renderer takes the work although there is a hardware GPU."""
    text = _native.unused_hardware()
    if text is not None:
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def resolve(comm):
    """The rank that a call runs on."""
    if comm is None:
        _warn_of_independent_processes()
        own = _native.alone()
        _warn_of_unused_hardware()
        return own
    if isinstance(comm, Comm):
        return comm
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        _warn_of_independent_processes()
        own = _of_mpi(comm)
        _warn_of_unused_hardware()
        return own
    raise TypeError(f"comm must be None, a meshloom.Comm or a communicator of mpi4py, not {type(comm).__name__}")


class _AllGroups:
    """All ranks of the groups of samples of which a rank is in one."""

    def __init__(self, comm):
        self.size, self._number, self._allgather = comm._ranks_of_all_groups, (comm._number, "all groups"), comm._allgather_of_all_groups


def all_groups(comm):
    """The ranks of all groups of samples, of which `comm` is one, as `gathered` takes them."""
    return comm if comm._ranks_of_all_groups == comm.size else _AllGroups(comm)


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

    It is the one thing that ranks tell each other here, so that a rank that fails is heard wherever the others are.
    """
    if comm.size == 1:
        own, _, told = check(*arguments)
        return own, [told]
    own, error = None, None
    try:
        own, alike, told = check(*arguments)
        said = pickle.dumps((None, alike, told))
    except Exception as raised:
        if getattr(raised, "_not_to_be_told", None) == comm._number:
            raise
        error = raised
        said = pickle.dumps((_in_words(error), {}, None))
    try:
        parts = comm._allgather(said)
    except Error:
        # Ranks that are out of step cannot be told; what this one has found says why they are.
        if error is not None:
            raise error
        raise
    failures, alike, told = zip(*map(pickle.loads, parts))
    wrong = _what_is_wrong(failures, alike)
    if wrong is not None:
        # All ranks have it already, also where this is a part of some work.
        wrong._not_to_be_told = comm._number
        raise wrong from error
    return own, list(told)


def _what_is_wrong(failures, alike):
    """The error of what has failed on ranks, or of what is not alike on them; None where all is well."""
    failed = [(rank, *failure) for rank, failure in enumerate(failures) if failure]
    if failed:
        rank, kind, text = failed[0]
        return kind(text if len(set(failures)) == 1 else f"rank {rank}: {text}")
    for rank, theirs in enumerate(alike):
        for name in {**alike[0], **theirs}:
            first, other = alike[0].get(name), theirs.get(name)
            # A number that is none is not equal to itself.
            if other != first and repr(other) != repr(first):
                return ValueError(f"{name} differs: {first} on rank 0, {other} on rank {rank}; it must be the same on all ranks")
    return None


def exchanged(comm, own):
    """What all ranks have, in the order of the ranks. All ranks call it."""
    return gathered(comm, lambda: (None, {}, own))[1]


def _warn_caller(text):
    """Warn with the place of the caller of this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def agreed(comm, work, *arguments):
    """What some work gives on this rank. What it raises on one rank is raised on all, but for what fails on the way (a device, memory, ranks): the others may wait
    for this rank in the middle of the work, where they do not hear what it says here. All ranks call it."""

    def done():
        try:
            found = work(*arguments)
        except Error as failure:
            failure._not_to_be_told = comm._number
            raise
        finally:
            texts = _native.take_warnings()
        for text in texts:
            _warn_caller(text)
        return found, {}, None

    return gathered(comm, done)[0]


def heard(comm, callback):
    """A callback of a rank's, whose errors all ranks hear: an `Error` that it raises is none of their work, as which `agreed` would keep it to itself."""
    if comm.size == 1:
        return callback

    def called(*arguments):
        try:
            return callback(*arguments)
        except Error as failure:
            raise RuntimeError(str(failure)) from failure

    return called


def together(comm, check, work):
    """What a call of all ranks gives: `work` of what `check` has found, as `gathered` gives it. What either raises on one rank is raised on all."""
    return agreed(comm, work, *gathered(comm, check))


def given_or_not(value):
    """What ranks tell each other of an argument that each has its own of, or none has."""
    return "not given" if value is None else "given"


def summary(array):
    """A few words that tell an array from others: what ranks tell each other of one that must be the same on all of them."""
    return None if array is None else f"an array of the shape {array.shape} and the sum {zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def block(items, ranks, rank):
    """The items of a rank, as `numpy.array_split` has them: blocks in order, of which the first may be longer by one."""
    least, longer = divmod(items, ranks)
    return rank * least + min(rank, longer), (rank + 1) * least + min(rank + 1, longer)


def check_parts(rows, axes=2):
    """Refuses parts of other lengths than ranks have: an array of one axis lies on the first rank, others are cut along the first axis."""
    whole = sum(rows)
    for rank, have in enumerate(rows):
        first, end = block(whole, len(rows), rank) if axes > 1 else (0, whole * (rank == 0))
        if have != end - first:
            how = "numpy.array_split cuts the first axis as ranks have it" if axes > 1 else "an array of one axis lies on the first rank as a whole"
            raise ValueError(f"rank {rank} has {have} of {whole} rows, where it must have {end - first}: {how}")


REDUCTIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def summand(array):
    """An array as `numpy.sum` adds it: truth values and small whole numbers with 64 bits, for their sum has more digits than they."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(array.dtype.kind)
    return array if wide is None else array.astype(wide, copy=False)


def allgather(self, data):
    """Bytes of all ranks, of any length, in a list in the order of the ranks, who all call it.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.ranks(2, lambda comm: comm.allgather(b"ab"[: comm.rank]))
    [[b'', b'a'], [b'', b'a']]
    """
    return gathered(self, lambda: (None, {"function": "allgather"}, memoryview(data).tobytes()))[1]


def allreduce(self, array, op="sum"):
    """One array of those of all ranks, element by element: the same bits on all ranks, who all call it.

    Every rank gets the arrays of all and joins them in the order of the ranks: this is for numbers, histograms and spectra, not for fields.

    Parameters
    ----------
    array : array_like
        Numbers, of the same shape and type on all ranks.
    op : {"sum", "min", "max"}
        The reduction. Booleans and integers are added with 64 bits, as `numpy.sum` does.

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


for _method in (allgather, allreduce, bcast, barrier):
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
        return lambda body: _run_ranks(count, body)
    return _run_ranks(count, body)


_THREAD = threading.local()


def _run_ranks(count, body):
    """Run `body` on threads that know that they are ranks."""
    if not callable(body):
        raise TypeError(f"body must be a function of a rank, not {type(body).__name__}")

    def on_rank(comm):
        _THREAD.is_rank = True
        try:
            return body(comm)
        except Exception as error:
            # Errors of calls that ranks make together are the same on all of them.
            if count > 1 and not hasattr(error, "_not_to_be_told") and hasattr(error, "add_note"):
                error.add_note(f"raised on rank {comm.rank} of {count}")
            raise

    return _native.run_ranks(count, on_rank)


def is_alone():
    """Whether no other rank can wait for a call of this thread: it is no rank of several, and no launcher started the process."""
    return not getattr(_THREAD, "is_rank", False) and _native.launched_ranks() is None


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
