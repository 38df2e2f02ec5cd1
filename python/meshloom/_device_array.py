"""Arrays that stay on the device between calls."""

import math
import operator

import numpy as np

from . import _native
from ._comm import resolve
from ._plain import plain

_TYPES = ("float32", "float64", "complex64", "complex128")


class Array:
    """An array in device memory, which stays there between calls; `asarray` creates one.

    Functions of `meshloom.fft` take it and return another one, without waiting for the device.
    `KDTree`, `fof`, `sort`, `pair_counts` and `power_spectrum` take points of type float32. NumPy
    and all libraries that understand ``__array__`` or DLPack get a copy in host memory.

    Notes
    -----
    An array has no arithmetic, no comparisons and no iteration: use ``numpy.asarray(a)``. Types are
    float32, float64, complex64 and complex128.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> field = meshloom.asarray(np.ones((4, 4), dtype=np.float32))
    >>> modes = meshloom.fft.rfftn(field)
    >>> modes
    <meshloom.Array: (4, 3) of complex64>
    >>> float(np.asarray(modes)[0, 0].real)
    16.0
    """

    def __array_ufunc__(self, ufunc, *_, **__):
        raise TypeError(f"numpy.{ufunc.__name__} does not work on a meshloom.Array; use numpy.asarray(a)")

    def __init__(self, native):
        self._native = native

    @property
    def shape(self):
        """Lengths of the axes, a tuple of int."""
        return tuple(self._native.shape)

    @property
    def dtype(self):
        """Type of the elements, a `numpy.dtype`."""
        return np.dtype(self._native.dtype_name)

    @property
    def comm(self):
        """The `Comm` whose device holds the array."""
        return self._native.comm

    @property
    def ndim(self):
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self):
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array without axes; use size")
        return self.shape[0]

    # Python's defaults would compare identities, and every array would be true.
    __hash__ = None

    def _no_comparison(self, *_):
        raise TypeError("a meshloom.Array has no comparisons, no truth value and no iteration; use numpy.asarray(a)")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_comparison
    __bool__ = __contains__ = __iter__ = _no_comparison

    def __repr__(self):
        return f"<meshloom.Array: {self.shape} of {self.dtype}>"

    def numpy(self):
        """Copy the array to host memory; waits for the device.

        Returns
        -------
        ndarray
            A copy with the same shape and type.

        Examples
        --------
        >>> import meshloom
        >>> meshloom.asarray([1.0, 2.0]).numpy().tolist()
        [1.0, 2.0]
        """
        return self._native.to_numpy()

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a device array cannot be converted without a copy; leave out copy=False")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Export a copy in host memory as DLPack."""
        if copy is False:
            raise BufferError("copy: expected True or None, got False; a device array is exported as a copy in host memory")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device: expected host memory, (1, 0), got {tuple(dl_device)}; copy the result to that device")
        if stream is not None:
            raise BufferError(f"stream: expected None for host memory, got {stream}")
        # NumPy before 2.1 exports the first version only, which every consumer takes.
        is_old = max_version is None or np.lib.NumpyVersion(np.__version__) < "2.1.0"
        # The array of `numpy` has no other owner: it is exported without a second copy.
        return self.numpy().__dlpack__(**({} if is_old else {"max_version": max_version}))

    def __dlpack_device__(self):
        # kDLCPU, the host memory.
        return (1, 0)

    def reshape(self, *shape):
        """Return the same memory with another shape.

        Parameters
        ----------
        *shape : int or sequence of int
            New lengths; one of them may be -1 and follows from the others.

        Returns
        -------
        Array
            An array that shares the memory.

        Raises
        ------
        ValueError
            If the number of elements differs.

        Examples
        --------
        >>> import meshloom
        >>> meshloom.asarray([1.0, 2.0, 3.0, 4.0]).reshape(2, -1).shape
        (2, 2)
        """
        shape = list(shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape)
        shape = [operator.index(n) for n in shape]
        if shape.count(-1) == 1:
            rest = -math.prod(shape)
            shape[shape.index(-1)] = self.size // rest if rest else 0
        if min(shape, default=0) < 0 or math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return Array(self._native.reshaped(shape))


def _on_host(values):
    """Return an array of NumPy for any object that NumPy converts, or that exports DLPack."""
    if not hasattr(values, "__dlpack__") or isinstance(values, np.ndarray):
        return np.asarray(values)
    # CPU, and pages that are locked for CUDA or ROCm.
    on_host, cause = values.__dlpack_device__()[0] in (1, 3, 11), None
    try:
        if hasattr(values, "__array__"):
            return np.asarray(values)
        if on_host:
            return np.from_dlpack(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        if on_host:
            raise
        cause = error
    raise TypeError(f"values: expected an array in host memory, got {type(values).__name__} on another device; pass a copy such as values.cpu()") from cause


def asarray(values, dtype=None, comm=None):
    """Copy an array to the device.

    Parameters
    ----------
    values : array_like
        Real or complex numbers; also arrays in host memory of libraries that export DLPack. A
        `meshloom.Array` is returned unchanged.
    dtype : dtype, optional
        float32, float64, complex64 or complex128. Default: the type of `values`; integers and
        booleans become float64, float16 becomes float32.
    comm : Comm or mpi4py.MPI.Comm, optional
        Rank whose device holds the array. Default: this process alone.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        If the elements are not numbers of a supported type, or `values` has masked elements or a
        unit, or is on a device that NumPy cannot read.
    meshloom.Error
        If the device is out of memory or lacks double precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.asarray([1, 2, 3])
    <meshloom.Array: (3,) of float64>
    """
    if isinstance(values, Array):
        if dtype is not None and np.dtype(dtype) != values.dtype:
            raise TypeError(f"dtype: expected {values.dtype} for a device array, got {np.dtype(dtype)}; convert numpy.asarray of it")
        return values
    array = _on_host(plain(values, "values"))
    if array.dtype.kind not in "biufc":
        raise TypeError(f"values: expected real or complex numbers, got {array.dtype}")
    if dtype is not None:
        # A requested type may drop digits but not imaginary parts.
        array = array.astype(dtype, casting="same_kind" if array.dtype.kind in "fc" else "unsafe", copy=False)
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.name not in _TYPES:
        raise TypeError(f"values: expected one of {', '.join(_TYPES)}, got {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return Array(_native.DeviceArray(resolve(comm), contiguous))
