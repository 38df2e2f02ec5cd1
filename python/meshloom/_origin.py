"""Origins that are subtracted from coordinates before they are rounded to float32.

float32 has 24 bits. Metric map coordinates are large numbers with small differences: near
5,000,000 float32 has steps of 0.5. Differences from an origin among the points keep their digits.
"""

import numpy as np

from ._comm import exchanged
from ._device_array import Array


def common_origin(comm, points, sides):
    """Return the origin of the points of all ranks. Collective.

    It is 0, except along open axes where the largest coordinate is at least twice the extent of the
    points: there it is their middle. The result is None if any rank has float32 points, which are
    used as given.
    """
    as_they_are = len(points) > 0 and (isinstance(points, Array) or points.dtype == np.float32)
    reach = None if as_they_are or len(points) == 0 else (points.min(axis=0), points.max(axis=0))
    parts = exchanged(comm, (as_they_are, reach))
    if any(taken for taken, _ in parts):
        return None
    origin = np.zeros(points.shape[1])
    reaches = [reach for _, reach in parts if reach is not None]
    if reaches:
        low, high = np.min([low for low, _ in reaches], axis=0), np.max([high for _, high in reaches], axis=0)
        # Values that are not finite raise an error later, which names their place.
        with np.errstate(over="ignore", invalid="ignore"):
            extent = high - low
            far = (np.maximum(np.abs(low), np.abs(high)) >= 2 * extent) & np.isfinite(extent) & (np.asarray(sides) == 0)
        origin[far] = low[far] + extent[far] / 2
    return origin


def from_origin(points, origin):
    """Return points relative to an origin."""
    return points if origin is None or not origin.any() else np.asarray(points) - origin


def to_origin(coordinates, origin):
    """Return coordinates relative to 0 from coordinates relative to an origin."""
    return coordinates if origin is None else coordinates + origin
