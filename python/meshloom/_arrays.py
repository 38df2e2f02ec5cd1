"""Arguments as arrays that the device takes."""

import numpy as np

from ._device_array import Array
from ._plain import plain

_SINGLE = np.dtype(np.float32)
_DOUBLE = np.dtype(np.float64)


def real_array(values, name):
    """Return a contiguous array: float32 if `values` is float32 or float16, else float64.

    It is copied only if necessary.
    """
    array = np.asarray(plain(values, name))
    if array.dtype.kind == "c":
        raise TypeError(f"{name}: expected real numbers, got complex data")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got {array.dtype}")
    dtype = _SINGLE if array.dtype in (_SINGLE, np.float16) else _DOUBLE
    found = np.ascontiguousarray(array, dtype=dtype)
    # `ascontiguousarray` adds an axis to a scalar.
    return found if found.shape == array.shape else found.reshape(array.shape)


def real_array_for(comm, values, name):
    """Return `values` as `real_array` does, or the float32 array that is on the device already."""
    if not isinstance(values, Array):
        return real_array(values, name)
    values._native.belongs_to(comm)
    if values.dtype != _SINGLE:
        raise TypeError(f"{name}: expected float32 on a device, got {values.dtype}")
    return values


def transposed(array):
    """Return a remedy for an array with one column per point, else an empty string."""
    looks_so = array.ndim == 2 and array.shape[0] in (2, 3) and array.shape[1] > 3
    return "; it looks transposed: pass its transpose (.T)" if looks_so else ""


def points_array(comm, values, name="points"):
    """Return rows of coordinates of shape ``(N, 2)`` or ``(N, 3)``, in host or device memory."""
    array = real_array_for(comm, values, name)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        raise ValueError(f"{name}: expected shape (N, 2) or (N, 3), one row per point, got {array.shape}{transposed(array)}")
    return array


def single(values):
    """Return numbers rounded to float32; those beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float32, copy=False)


def column(values, shape, name, first=0):
    """Return a quantity of points as contiguous float32, or None.

    `first` is the number of this rank's first point, for messages.
    """
    if values is None:
        return None
    array = real_array(values, name)
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, one value per point, got {array.shape}")
    rounded = single(array)
    wrong = ~np.isfinite(rounded)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        value = f"{name} has {array[at]:g} for point {first + at[0]}"
        if np.isfinite(array[at]):
            raise ValueError(f"{value}, beyond the range of float32 (3.4e38); scale the data to other units")
        raise ValueError(f"{value}; expected finite values")
    return rounded


def native(array):
    """Return an array as the extension module takes it."""
    return array._native if isinstance(array, Array) else array
