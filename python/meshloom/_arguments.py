"""Arguments that are numbers."""

import numpy as np


def box_sides(box, dims, name="box"):
    """Return the side lengths of a box of `dims` axes.

    `box` has one number for all axes or one for each; None, 0 or inf leave an axis open.
    """
    if box is None:
        return [0.0] * dims
    if isinstance(box, (str, bytes)):
        raise TypeError(f"{name} must be a length or a sequence of lengths, not text")
    sides = [box] * dims if np.ndim(box) == 0 else list(box)
    if len(sides) != dims:
        raise ValueError(f"{name} has {len(sides)} sides for points of {dims} axes; give one length or one for each axis")
    return [0.0 if side is None or side == np.inf else real_number(side, name) for side in sides]


def whole_number(value, name, least=0):
    """Return an integer that is at least `least`."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} is {number}; it must be at least {least}")
    return number


def real_number(value, name):
    """Return one number as a float."""
    if np.ndim(value) > 0:
        raise TypeError(f"{name} must be one number, not an array of the shape {np.shape(value)}")
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be a number, not {value!r}")
