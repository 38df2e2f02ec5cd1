"""Arguments of SciPy's transforms, converted to those of NumPy.

SciPy accepts one axis for `axes`, no repeated axis, and lengths of the last axes without a
warning. Threads and permission to overwrite have no effect here.
"""

import numbers
import operator

import numpy as np

from ._device_array import Array


def numpys_arguments(name, args, kwargs):
    """Return the arguments for the function `name`; None if SciPy must run it, as with plans."""
    read = _of_several_axes if name.endswith(("2", "n")) else _of_one_axis
    return read(name, *args, **kwargs)


def _of_one_axis(name, x, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, *, plan=None):
    return None if plan is not None else (_array(x), n, axis, norm)


def _of_several_axes(name, x, s=None, axes=..., norm=None, overwrite_x=False, workers=None, *, plan=None):
    if plan is not None:
        return None
    x = _array(x)
    if axes is ...:
        axes = (-2, -1) if name.endswith("2") else None
    if axes is not None:
        axes = [axis + x.ndim if axis < 0 else axis for axis in _whole_numbers(axes, "axes")]
        if not all(0 <= axis < x.ndim for axis in axes):
            raise ValueError("axes exceeds dimensionality of input")
        if len(set(axes)) < len(axes):
            raise ValueError("all axes must be unique")
        if not axes and name.startswith(("r", "ir")):
            raise ValueError("at least 1 axis must be transformed")
    if s is not None:
        s = _whole_numbers(s, "shape")
        if axes is None:
            if len(s) > x.ndim:
                raise ValueError("shape requires more axes than are present")
            axes = range(x.ndim - len(s), x.ndim)
        elif len(s) != len(axes):
            raise ValueError("when given, axes and shape arguments have to be of the same length")
    return x, s, axes, norm


def _array(x):
    return x if isinstance(x, Array) else np.asarray(x)


def _whole_numbers(values, name):
    """Return one or several integers as a list."""
    try:
        return [operator.index(value) for value in ([values] if isinstance(values, numbers.Number) else values)]
    except TypeError as error:
        raise ValueError(f"{name} must be a scalar or iterable of integers") from error
