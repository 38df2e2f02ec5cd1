"""Searches in which each row has its own radius.

The device searches within one radius at a time. Rows are sorted into classes of similar radii,
because one large radius would lengthen the lists of all rows.
"""

from collections import namedtuple

import numpy as np

from ._comm import exchanged

RadiusClass = namedtuple("RadiusClass", ["rows", "least", "most"])
RadiusClass.__doc__ = "Rows of this rank (None: all rows of all ranks), and the least and the greatest radius of the class on all ranks."


def _octave(radius):
    """Return the power of 2 above each radius; 0 and infinity have classes of their own."""
    octave = np.frexp(radius)[1]
    octave[radius == 0] = -200
    octave[radius == np.inf] = 200
    return octave


def radius_classes(comm, radius):
    """Return classes of radii within a factor of 2, the same on all ranks, the smallest first.

    Rows with a negative radius are in no class. Collective.
    """
    octave, inside = _octave(radius), radius >= 0
    reach = {}
    for one in np.unique(octave[inside]).tolist():
        own = radius[inside & (octave == one)]
        reach[one] = float(own.min()), float(own.max())
    parts = exchanged(comm, (reach, bool(inside.all())))
    present = sorted(set().union(*(reach for reach, _ in parts)))
    everything = len(present) == 1 and all(complete for _, complete in parts)
    classes = []
    for one in present:
        reaches = [reach[one] for reach, _ in parts if one in reach]
        rows = None if everything else np.flatnonzero(inside & (octave == one))
        classes.append(RadiusClass(rows, min(least for least, _ in reaches), max(most for _, most in reaches)))
    return classes


def joined_lists(count, parts):
    """Join parts ``(rows, offset, entries)`` into the offsets and entries of all rows."""
    lengths = np.zeros(count, np.intp)
    for rows, offset, _ in parts:
        lengths[rows] = np.diff(offset)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.empty(begins[-1], np.intp)
    for rows, offset, own in parts:
        entries[np.arange(own.size) + np.repeat(begins[rows] - offset[:-1], np.diff(offset))] = own
    return begins, entries
