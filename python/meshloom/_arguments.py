"""Arguments that are numbers."""

import numpy as np


def box_sides(box, dims, name="box"):
    """Return the side lengths of a box of `dims` axes.

    `box` has one number for all axes or one for each; None, 0 or inf leave an axis open.
    """
    if box is None:
        return [0.0] * dims
    if isinstance(box, (str, bytes)):
        raise TypeError(f"{name}: expected a length or a sequence of lengths, got text")
    sides = [box] * dims if np.ndim(box) == 0 else list(box)
    if len(sides) != dims:
        raise ValueError(f"{name}: expected one length or {dims}, one for each axis, got {len(sides)}")
    return [0.0 if side is None or side == np.inf else real_number(side, name) for side in sides]


def whole_number(value, name, least=0):
    """Return an integer that is at least `least`."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name}: expected an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name}: expected {least} or more, got {number}")
    return number


def real_number(value, name):
    """Return one number as a float."""
    if np.ndim(value) > 0:
        raise TypeError(f"{name}: expected one number, got an array of shape {np.shape(value)}")
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except TypeError:
        pass
    raise TypeError(f"{name}: expected a number, got {value!r}")
