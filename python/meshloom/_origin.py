"""Where coordinates are counted from before they are rounded to float32.

float32 has 24 bits. Metres of a map are large numbers that differ by little: near 5,000,000 float32 counts in steps of 0.5. Their
differences from one point among them are small, and keep their digits.
"""

import numpy as np

from ._comm import exchanged
from ._device_array import Array


def common_origin(comm, points, sides):
    """The origin of all ranks' points, which have as many axes: 0, but along open axes where their largest coordinate is at least twice their extent the middle
    of that. None where any rank has points of float32, which are taken as they are. All ranks call it."""
    as_they_are = len(points) > 0 and (isinstance(points, Array) or points.dtype == np.float32)
    reach = None if as_they_are or len(points) == 0 else (points.min(axis=0), points.max(axis=0))
    parts = exchanged(comm, (as_they_are, reach))
    if any(taken for taken, _ in parts):
        return None
    origin = np.zeros(points.shape[1])
    reaches = [reach for _, reach in parts if reach is not None]
    if reaches:
        low, high = np.min([low for low, _ in reaches], axis=0), np.max([high for _, high in reaches], axis=0)
        # What is not finite is refused later, with its place.
        with np.errstate(over="ignore", invalid="ignore"):
            extent = high - low
            far = (np.maximum(np.abs(low), np.abs(high)) >= 2 * extent) & np.isfinite(extent) & (np.asarray(sides) == 0)
        origin[far] = low[far] + extent[far] / 2
    return origin


def from_origin(points, origin):
    """Points as they are counted from an origin."""
    return points if origin is None or not origin.any() else np.asarray(points) - origin


def to_origin(coordinates, origin):
    """Coordinates that were counted from an origin as they are counted from 0."""
    return coordinates if origin is None else coordinates + origin
