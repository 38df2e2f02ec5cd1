"""Shapes, axes and indices of device arrays, as NumPy has them."""

import operator

import numpy as np


def strides_of(shape):
    """Return the distances of neighbors along each axis, in elements; the last axis is fastest."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return strides


def broadcast(view, shape):
    """Return a view ``(start, strides, own shape)`` as start and strides of a larger shape."""
    start, strides, own = view
    missing = len(shape) - len(own)
    repeated = [0 if n == 1 and wanted != 1 else step for n, step, wanted in zip(own, strides, shape[missing:])]
    return start, [0] * missing + repeated


def axis_number(axis, ndim):
    """Return the number of an axis, which may count from the end."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise ValueError(f"axis {number} is out of bounds for array of dimension {ndim}")
    return number % ndim


def axis_numbers(axis, ndim):
    """Return the numbers of one axis or of several ones; all for None."""
    if axis is None:
        return tuple(range(ndim))
    numbers = tuple(axis_number(one, ndim) for one in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(numbers)) < len(numbers):
        raise ValueError("duplicate value in 'axis'")
    return numbers


def rows_of(index, length, axis):
    """Return an array of integers as rows of an axis."""
    rows = np.asarray(index)
    if rows.size == 0:
        rows = rows.astype(np.int64)
    if rows.dtype.kind == "b":
        raise IndexError(
            "an index with booleans gives an array whose size depends on them; use numpy.flatnonzero(mask) of a mask on the host, "
            "or numpy.where(mask, a, b)"
        )
    if rows.dtype.kind not in "iu":
        raise IndexError(f"expected integers, slices, `...`, None or an array of integers as an index, got {rows.dtype}")
    wrong = (rows < -length) | (rows >= length)
    if wrong.any():
        raise IndexError(f"index {rows[wrong][0]} is out of bounds for axis {axis} with size {length}")
    return np.where(rows < 0, rows + length, rows)


def _integer(item):
    """Return an index as an integer; None for other indices."""
    if isinstance(item, (bool, np.bool_)) or getattr(item, "ndim", 0):
        return None
    try:
        return operator.index(item)
    except TypeError:
        return None


def view(shape, key):
    """Return what an index selects: start, strides and shape, and the rows of an axis or None.

    Rows are an axis of the result and an array of integers, which the axis has for its elements.
    """
    key = key if isinstance(key, tuple) else (key,)
    used = sum(item is not None and item is not Ellipsis for item in key)
    dots = sum(item is Ellipsis for item in key)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed")
    if not dots:
        key += (Ellipsis,)
    start, strides, result, rows, axis, integers = 0, [], [], None, 0, False
    steps = strides_of(shape)
    for item in key:
        if item is None:
            strides.append(0)
            result.append(1)
            continue
        if item is Ellipsis:
            rest = len(shape) - used
            strides += steps[axis : axis + rest]
            result += shape[axis : axis + rest]
            axis += rest
            continue
        length, step, number = shape[axis], steps[axis], _integer(item)
        if isinstance(item, slice):
            places = range(*item.indices(length))
            start += places.start * step if len(places) else 0
            strides.append(places.step * step)
            result.append(len(places))
        elif number is not None:
            if not -length <= number < length:
                raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
            start += number % length * step
            integers = True
        else:
            if rows is not None:
                raise IndexError("expected at most one array of integers as an index; use a[rows][:, columns] or numpy.take")
            rows = len(result), rows_of(item, length, axis)
            strides.append(step)
            result.append(length)
        axis += 1
    if rows is not None and integers:
        raise IndexError("expected slices beside an array of integers, got integers; index in two steps, a[i][rows]")
    return start, strides, result, rows
