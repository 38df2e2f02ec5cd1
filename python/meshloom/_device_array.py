"""Arrays that stay on the device between calls."""

import math
import operator

import numpy as np

from . import _native
from ._comm import resolve
from ._plain import plain

_TYPES = ("float32", "float64", "complex64", "complex128")


class Array:
    """An array in the memory of a device, which stays there between calls; `asarray` makes one.

    Transforms of `meshloom.fft` take it and give another, without waiting for the device; `KDTree`, `fof`, `sort`, `pair_counts` and
    `power_spectrum` take points of float32. NumPy and all that understands ``__array__`` or DLPack get a copy in host memory.

    Attributes
    ----------
    shape, dtype, ndim, size, nbytes
        As NumPy's. Types are float32, float64, complex64 and complex128.
    comm : Comm
        The rank whose device it is on.

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
        return tuple(self._native.shape)

    @property
    def dtype(self):
        return np.dtype(self._native.dtype_name)

    @property
    def comm(self):
        return self._native.comm

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    # Python's own comparisons would be of identity, and its truth value always True.
    __hash__ = None

    def _no_comparison(self, *_):
        raise TypeError("a meshloom.Array has no comparisons, no truth value and no iteration; use numpy.asarray(a)")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_comparison
    __bool__ = __contains__ = __iter__ = _no_comparison

    def __repr__(self):
        return f"<meshloom.Array: {self.shape} of {self.dtype}>"

    def numpy(self):
        """A copy in host memory. Waits for the device."""
        return self._native.to_numpy()

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("an array on a device cannot be seen without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(self, **options):
        """A copy in host memory, as DLPack."""
        return self.numpy().__dlpack__(**{name: value for name, value in options.items() if name != "copy"})

    def __dlpack_device__(self):
        # What DLPack calls the host's memory.
        return (1, 0)

    def reshape(self, *shape):
        """The same memory in another shape; one length may be -1."""
        shape = list(shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape)
        shape = [operator.index(n) for n in shape]
        if shape.count(-1) == 1:
            rest = -math.prod(shape)
            shape[shape.index(-1)] = self.size // rest if rest else 0
        if min(shape, default=0) < 0 or math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return Array(self._native.reshaped(shape))


def asarray(values, dtype=None, comm=None):
    """An array on the device.

    Parameters
    ----------
    values : array_like
        Copied to the device, but for a `meshloom.Array`, which is returned as it is.
    dtype : numpy.dtype, optional
        float32, float64, complex64 or complex128. Unless given, those of `values`; whole numbers become float64.
    comm : Comm or mpi4py.MPI.Comm, optional
        The rank whose device it is to be on.

    Returns
    -------
    Array
    """
    if isinstance(values, Array):
        if dtype is not None and np.dtype(dtype) != values.dtype:
            raise TypeError(f"the array holds {values.dtype}; its type cannot be changed on the device")
        return values
    array = np.asarray(plain(values, "values"))
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{array.dtype} cannot be on a device; give real or complex numbers")
    if dtype is not None:
        # Digits may be lost where they are asked to be, imaginary parts not.
        array = array.astype(dtype, casting="same_kind" if array.dtype.kind in "fc" else "unsafe", copy=False)
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.name not in _TYPES:
        raise TypeError(f"{array.dtype} cannot be on a device; give one of {', '.join(_TYPES)}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return Array(_native.DeviceArray(resolve(comm), contiguous))
