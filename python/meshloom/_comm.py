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
    """Raise an error if mpi4py works with another MPI library than this package was built for.

    Handles of communicators are numbers in one library and addresses in another.
    """
    size, name = _native.mpi_library()
    theirs = MPI.Get_library_version()
    if (size, name) != (MPI._sizeof(MPI.Comm), theirs):
        ours, theirs = (" ".join(text.split()[:3]) for text in (name, theirs))
        raise Error(
            f"meshloom was built for another MPI library ({ours}) than mpi4py works with ({theirs}): MPI4PY_MPIABI=mpich or openmpi chooses that of mpi4py's wheel, and "
            "MPICC=mpicc.mpich, say, before maturin that of meshloom"
        )


def _of_mpi(comm):
    """Return the rank of this process in an mpi4py communicator.

    The rank is stored with the communicator. It is made again after ranks were out of step, because
    old messages could then be taken for new ones.
    """
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
    """Warn once if a launcher started several processes and this one works alone.

    It is not an error: independent Python processes under a launcher are usual. With mpi4py the
    program decides itself which process does what.
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
    """Warn once if a software renderer does the work although there is a hardware GPU."""
    text = _native.unused_hardware()
    if text is not None:
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def resolve(comm):
    """Return the `Comm` that a call runs on."""
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
    raise TypeError(f"comm: expected None, a meshloom.Comm or a communicator of mpi4py, got {type(comm).__name__}")


class _AllGroups:
    """All ranks of the sample groups that a rank belongs to."""

    def __init__(self, comm):
        self.size, self.rank = comm._ranks_of_all_groups, comm._rank_of_all_groups
        self._number, self._allgather = (comm._number, "all groups"), comm._allgather_of_all_groups


def all_groups(comm):
    """Return the ranks of all sample groups, of which `comm` is one."""
    return comm if comm._ranks_of_all_groups == comm.size else _AllGroups(comm)


def in_words(error):
    """Return the type and text of an error so that any rank can raise it.

    An error that cannot be made from a text alone becomes a `meshloom.Error`.
    """
    kind, text = type(error), str(error)
    try:
        pickle.loads(pickle.dumps(kind))(text)
        return kind, text
    except Exception:
        return Error, f"{kind.__name__}: {text}"


def gathered(comm, check, *arguments):
    """Compare the arguments of all ranks before they work together. Collective.

    `check` returns three values for this rank's arguments: data that stays on the rank, a
    dictionary that must be the same on all ranks, and a value for all ranks. Returns the first, and
    the third of each rank. An error of `check` on one rank, or a difference, is raised on all
    ranks: otherwise they would wait for each other.

    It is the only exchange of this kind, so a rank that fails is noticed wherever the others are.
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
        said = pickle.dumps((in_words(error), {}, None))
    try:
        parts = comm._allgather(said)
    except Error:
        # Ranks out of step cannot exchange errors; the error of this rank has the cause.
        if error is not None:
            raise error
        raise
    failures, alike, told = zip(*map(pickle.loads, parts))
    wrong = _what_is_wrong(failures, alike)
    if wrong is not None:
        # All ranks have this error already; an outer call must not exchange it again.
        wrong._not_to_be_told = comm._number
        raise wrong from error
    return own, list(told)


def _what_is_wrong(failures, alike):
    """Return the error of the first rank that failed or differs; None if all ranks agree."""
    failed = [(rank, *failure) for rank, failure in enumerate(failures) if failure]
    if failed:
        rank, kind, text = failed[0]
        return kind(text if len(set(failures)) == 1 else f"rank {rank}: {text}")
    for rank, theirs in enumerate(alike):
        for name in {**alike[0], **theirs}:
            first, other = alike[0].get(name), theirs.get(name)
            # NaN is not equal to itself.
            if other != first and repr(other) != repr(first):
                return ValueError(f"{name} differs: {first} on rank 0, {other} on rank {rank}; it must be the same on all ranks")
    return None


def exchanged(comm, own):
    """Return the value of each rank, in rank order. Collective."""
    return gathered(comm, lambda: (None, {}, own))[1]


def _warn_caller(text):
    """Warn at the line of the caller of this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def agreed(comm, work, *arguments):
    """Return the result of `work` on this rank. Collective.

    An exception of one rank is raised on all, except a `meshloom.Error` (device, memory, ranks):
    other ranks may wait for this one in the middle of the work, where this message would not reach
    them.
    """

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
    """Return a callback whose errors reach all ranks.

    `agreed` does not exchange a `meshloom.Error`, so a callback raises another type.
    """
    if comm.size == 1:
        return callback

    def called(*arguments):
        try:
            return callback(*arguments)
        except Error as failure:
            raise RuntimeError(str(failure)) from failure

    return called


def together(comm, check, work):
    """Run `work` with the checked arguments of all ranks; an error of one rank is raised on all."""
    return agreed(comm, work, *gathered(comm, check))


def given_or_not(value):
    """Return text that ranks compare for an argument that must be given on all ranks or on none."""
    return "not given" if value is None else "given"


def summary(array):
    """Return a short text that identifies an array, to compare it between ranks."""
    return None if array is None else f"an array of the shape {array.shape} and the sum {zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def block(items, ranks, rank):
    """Return the first and last item of a rank's block, as `numpy.array_split` defines them."""
    least, longer = divmod(items, ranks)
    return rank * least + min(rank, longer), (rank + 1) * least + min(rank + 1, longer)


def check_parts(rows, axes=2):
    """Raise an error if the parts of ranks do not have the lengths that `numpy.array_split` gives.

    An array of one axis must lie on the first rank as a whole.
    """
    whole = sum(rows)
    for rank, have in enumerate(rows):
        first, end = block(whole, len(rows), rank) if axes > 1 else (0, whole * (rank == 0))
        if have != end - first:
            how = "distribute the first axis with numpy.array_split" if axes > 1 else "pass an array of one axis to the first rank as a whole"
            raise ValueError(f"rank {rank}: expected {end - first} of {whole} rows, got {have}; {how}")


REDUCTIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def summand(array):
    """Return an array with the type that `numpy.sum` adds in: 64 bits for booleans and integers."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(array.dtype.kind)
    return array if wide is None else array.astype(wide, copy=False)


def allgather(self, data):
    """Gather bytes of any length from all ranks.

    Parameters
    ----------
    data : bytes-like
        Bytes of this rank; the length may differ between ranks.

    Returns
    -------
    list of bytes
        The bytes of each rank, in rank order.

    Notes
    -----
    Collective.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.ranks(2, lambda comm: comm.allgather(b"ab"[: comm.rank]))
    [[b'', b'a'], [b'', b'a']]
    """
    return gathered(self, lambda: (None, {"function": "allgather"}, memoryview(data).tobytes()))[1]


def allreduce(self, array, op="sum"):
    """Reduce the arrays of all ranks element by element.

    Parameters
    ----------
    array : array_like
        Real or complex numbers, with the same shape and type on all ranks.
    op : {"sum", "min", "max"}, default "sum"
        Reduction. Booleans and integers are added with 64 bits, as in `numpy.sum`.

    Returns
    -------
    ndarray or scalar
        The reduced array, with the same bits on all ranks.

    Raises
    ------
    ValueError
        If shapes, types or `op` differ between ranks.
    TypeError
        If the elements are not numbers.

    Notes
    -----
    Collective. Every rank receives the arrays of all ranks and reduces them in rank order. Use it
    for numbers, histograms and spectra, not for fields.

    Examples
    --------
    >>> import meshloom
    >>> [total.tolist() for total in meshloom.ranks(2, lambda comm: comm.allreduce([comm.rank, 1]))]
    [[1, 2], [1, 2]]
    """

    def check():
        if op not in REDUCTIONS:
            raise ValueError(f'op: expected "sum", "min" or "max", got {op!r}')
        own = np.asarray(array)
        if own.dtype.kind not in "biufc":
            raise TypeError(f"array: expected real or complex numbers, got {own.dtype}")
        return None, {"function": "allreduce", "op": op, "type": own.dtype.name, "shape": own.shape}, own

    arrays = gathered(self, check)[1]
    arrays = [summand(one) for one in arrays] if op == "sum" else arrays
    return functools.reduce(REDUCTIONS[op], arrays[1:], arrays[0].copy())[()]


def bcast(self, value=None, root=0):
    """Send a value of one rank to all ranks.

    Parameters
    ----------
    value : object, optional
        Any object that can be pickled, such as an array. Only the value of `root` is used.
    root : int, default 0
        Rank that sends, from 0 to ``size - 1``.

    Returns
    -------
    object
        The value of `root`.

    Raises
    ------
    ValueError
        If `root` is not a rank, or differs between ranks.

    Notes
    -----
    Collective.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.ranks(3, lambda comm: comm.bcast({"seed": comm.rank}, root=2))
    [{'seed': 2}, {'seed': 2}, {'seed': 2}]
    """

    def check():
        if whole_number(root, "root") >= self.size:
            raise ValueError(f"root: expected 0 to {self.size - 1}, got {root}")
        return None, {"function": "bcast", "root": root}, value if self.rank == root else None

    return gathered(self, check)[1][root]


def barrier(self):
    """Wait until all ranks have called it.

    Notes
    -----
    Collective.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.ranks(2, lambda comm: comm.barrier())
    [None, None]
    """
    gathered(self, lambda: (None, {"function": "barrier"}, None))


for _method in (allgather, allreduce, bcast, barrier):
    setattr(Comm, _method.__name__, _method)


def ranks(count, body=None):
    """Run a function on several ranks, each a thread of this process.

    Parameters
    ----------
    count : int
        Number of ranks, 1 or more.
    body : callable, optional
        Called as ``body(comm)`` on every rank, with the `Comm` of that rank. Without it,
        ``ranks(count)`` is a decorator that runs the function at once.

    Returns
    -------
    list
        Results of `body`, in rank order.

    Raises
    ------
    Exception
        The exception of the first rank that failed; the other ranks end too.

    Notes
    -----
    Ranks share the device if there is one, and take devices in turn if there are several. The
    interpreter's lock is free while the device works.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> points = np.random.default_rng(1).random((300, 3), dtype=np.float32)
    >>> def labels(comm):
    ...     part = np.array_split(points, comm.size)[comm.rank]
    ...     return meshloom.fof(part, 0.05, comm=comm).labels
    >>> parts = np.concatenate(meshloom.ranks(3, labels))
    >>> bool((parts == meshloom.fof(points, 0.05).labels).all())
    True
    """
    count = whole_number(count, "count", 1)
    if body is None:
        return lambda body: _run_ranks(count, body)
    return _run_ranks(count, body)


_THREAD = threading.local()


def _run_ranks(count, body):
    """Run `body` on threads that are marked as ranks."""
    if not callable(body):
        raise TypeError(f"body: expected a function of a Comm, got {type(body).__name__}")

    def on_rank(comm):
        _THREAD.is_rank = True
        try:
            return body(comm)
        except Exception as error:
            # Errors of collective calls are the same on all ranks and name the rank already.
            if count > 1 and not hasattr(error, "_not_to_be_told") and hasattr(error, "add_note"):
                error.add_note(f"raised on rank {comm.rank} of {count}")
            raise

    return _native.run_ranks(count, on_rank)


def is_alone():
    """Return True if no other rank can wait for a call of this thread."""
    return not getattr(_THREAD, "is_rank", False) and _native.launched_ranks() is None


def devices():
    """List the devices of this machine.

    Returns
    -------
    list of dict
        One dictionary per device with ``name``, ``kind``, ``backend``, ``driver`` (str) and ``f64``
        (bool, whether the device computes in double precision).

    Notes
    -----
    The environment variable ``MESHLOOM_DEVICE`` selects a device by its place in this list, its
    name or its PCI address. It is read before the first call.

    Examples
    --------
    >>> import meshloom
    >>> sorted(meshloom.devices()[0])[:3]
    ['backend', 'driver', 'f64']
    """
    return _native.devices()


def memory(comm=None):
    """Return the device memory that this process holds.

    Parameters
    ----------
    comm : Comm or mpi4py.MPI.Comm, optional
        Rank whose device is meant. Default: this process alone.

    Returns
    -------
    dict of int
        ``allocated``: bytes of buffers, in use or free for reuse. ``allocations``: number of
        buffers requested from the driver so far. ``kernels``: number of compiled kernels in the
        cache, the 256 most recent at most.

    Notes
    -----
    Not collective. A repeated call of a function allocates no new buffers. `Comm.trim` returns free
    buffers to the driver.

    Examples
    --------
    >>> import meshloom
    >>> sorted(meshloom.memory())
    ['allocated', 'allocations', 'kernels']
    """
    comm = resolve(comm)
    return {"allocated": comm.allocated, "allocations": comm.allocations, "kernels": comm.kernels}
