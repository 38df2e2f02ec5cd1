"""Pairs of points by distance."""

import warnings

import numpy as np

from . import _native
from ._arguments import box_sides
from ._arrays import native, points_array, single
from ._comm import given_or_not, resolve, together
from ._origin import common_origin, from_origin


def _edges(values):
    """Edges of bins, which are apart in float32 too."""
    edges = np.asarray(values)
    if edges.dtype.kind not in "fiu":
        raise TypeError(f"edges must hold real numbers, not {edges.dtype}")
    if edges.ndim != 1:
        raise ValueError(f"edges has the shape {edges.shape}; it must have one axis")
    if len(edges) < 2:
        raise ValueError(f"edges has the length {len(edges)}; a bin has two, where it begins and where it ends")
    rounded = single(edges)
    merged = np.flatnonzero((edges[1:] > edges[:-1]) & (rounded[1:] == rounded[:-1]))
    if merged.size:
        at = merged[0]
        raise ValueError(
            f"edges {at} and {at + 1}, {edges[at]} and {edges[at + 1]}, are the same number in float32, in which distances are compared"
        )
    return edges.astype(np.float64).tolist()


def _queries(comm, other, points):
    """Points that pairs are made with, or None."""
    if other is None:
        return None
    other = points_array(comm, other, "other")
    if other.shape[1] != points.shape[1]:
        raise ValueError(f"other has {other.shape[1]} axes and points {points.shape[1]}")
    return other


def pair_counts(points, edges, *, other=None, box=None, comm=None):
    """How many pairs of points have a distance in each bin.

    Parameters
    ----------
    points : array_like, shape (N, 2) or (N, 3)
        Positions; with `comm` this rank's part of them. float32 is taken as it is; all else is wrapped into the box, or counted from among the
        points where they lie far from 0, and rounded to float32.
    edges : array_like, shape (bins + 1,)
        Edges of the bins: finite, non-negative and strictly ascending; at most 4096 bins.
        Bin ``i`` counts ``edges[i] <= r < edges[i + 1]``, compared in single precision.
    other : array_like, optional
        Other points that pairs are made with; with `comm` this rank's part of them, on all ranks or on none.
    box : float or sequence of float, optional
        Sides of the periodic box; 0 or None leaves an axis open. A pair counts
        once, at the distance of its nearest images.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. All ranks call it, and all get the counts of all points.

    Returns
    -------
    ndarray of int, shape (bins,)
        Exact numbers of ordered pairs: among the points themselves each pair of
        two counts twice and a point is no pair with itself.

    Warns
    -----
    RuntimeWarning
        If a bin reaches beyond half of the shortest periodic side: it holds fewer
        pairs than an infinite periodic space has.

    Examples
    --------
    >>> from meshloom import pair_counts
    >>> pair_counts([[0.5, 0.0], [1.0, 0.0], [9.5, 0.0]], [0.0, 0.75, 2.0], box=10.0).tolist()
    [2, 4]
    """
    comm = resolve(comm)

    def check():
        own = points_array(comm, points)
        dims = own.shape[1]
        arguments = {"number of axes": dims, "edges": _edges(edges), "box": box_sides(box, dims), "other": given_or_not(other)}
        return (own, _queries(comm, other, own), arguments), {"function": "pair_counts", **arguments}, None

    def count(own, _):
        points, queries, arguments = own
        sides = arguments["box"]
        origin = common_origin(comm, points, sides)
        search = _native.Search(comm, native(from_origin(points, origin)), sides)
        counts = search.pairs(None if queries is None else native(from_origin(queries, origin)), arguments["edges"])
        return counts, search.doubt_of_pairs(arguments["edges"])

    counts, doubt = together(comm, check, count)
    if doubt:
        warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    return counts
