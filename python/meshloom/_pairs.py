"""Pairs of points by distance."""

import numpy as np

from . import _native
from ._arguments import box_sides
from ._arrays import native, points_array
from ._comm import resolve


def pair_counts(points, edges, *, other=None, box=None, comm=None):
    """How many pairs of points have a distance in each bin.

    Parameters
    ----------
    points : array_like, shape (N, 2) or (N, 3)
        Positions; with `comm` this rank's part of them.
    edges : array_like, shape (bins + 1,)
        Edges of the bins, ascending, from 0 on: a bin holds ``edges[i] <= r < edges[i + 1]``, compared in single precision. At most 4096 bins.
    other : array_like, optional
        Other points that pairs are made with.
    box : float or sequence of float, optional
        Sides of the periodic box; 0 or None leaves an axis open. A pair counts once, by its nearest images.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. All ranks call it, and all get the counts of all points.

    Returns
    -------
    ndarray of int, shape (bins,)
        Exact numbers of ordered pairs: among the points themselves each pair of two counts twice and a point is no pair with itself.

    Examples
    --------
    >>> from meshloom import pair_counts
    >>> pair_counts([[0.5, 0.0], [1.0, 0.0], [9.5, 0.0]], [0.0, 0.75, 2.0], box=10.0).tolist()
    [2, 4]
    """
    points = points_array(points)
    edges = np.asarray(edges)
    if edges.dtype.kind not in "fiu":
        raise TypeError(f"edges must hold real numbers, not {edges.dtype}")
    if edges.ndim != 1:
        raise ValueError(f"edges has the shape {edges.shape}; it must have one axis")
    queries = None
    if other is not None:
        queries = points_array(other, "other")
        if queries.shape[1] != points.shape[1]:
            raise ValueError(f"other has {queries.shape[1]} axes and points {points.shape[1]}")
    search = _native.Search(resolve(comm), native(points), box_sides(box, points.shape[1]))
    return search.pairs(native(queries), edges.astype(np.float64).tolist())
