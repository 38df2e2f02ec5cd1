"""Pairs of points by distance."""

import warnings

import numpy as np

from . import _native
from ._arguments import box_sides
from ._arrays import native, points_array, real_array_for, single
from ._comm import given_or_not, resolve, together
from ._origin import common_origin, from_origin


def _edges(values):
    """Return edges of bins; raise an error if two are equal in float32."""
    edges = np.asarray(values)
    if edges.dtype.kind not in "fiu":
        raise TypeError(f"edges: expected real numbers, got {edges.dtype}")
    if edges.ndim != 1:
        raise ValueError(f"edges: expected one axis, got shape {edges.shape}")
    if len(edges) < 2:
        raise ValueError(f"edges: expected two or more, got {len(edges)}")
    rounded = single(edges)
    merged = np.flatnonzero((edges[1:] > edges[:-1]) & (rounded[1:] == rounded[:-1]))
    if merged.size:
        at = merged[0]
        raise ValueError(
            f"edges: expected different numbers in float32, got {edges[at]} and {edges[at + 1]} at {at} and {at + 1}"
        )
    return edges.astype(np.float64).tolist()


def _queries(comm, other, points):
    """Return the points that pairs are made with, or None."""
    if other is None:
        return None
    other = points_array(comm, other, "other")
    if other.shape[1] != points.shape[1]:
        raise ValueError(f"other: expected {points.shape[1]} axes as points, got {other.shape[1]}")
    return other


def _weights(comm, weights, points, name):
    """Weights of points, or None."""
    if weights is None:
        return None
    found = real_array_for(comm, weights, name)
    if found.shape != points.shape[:1]:
        raise ValueError(f"{name}: expected the shape ({len(points)},), one for each point, got {found.shape}")
    return found


def pair_counts(points, edges, *, other=None, weights=None, other_weights=None, box=None, comm=None):
    """Count the pairs of points in bins of distance, each once or with a weight.

    Parameters
    ----------
    points : array_like or meshloom.Array, shape (N, 2) or (N, 3)
        Positions, in the unit of the caller; with `comm`, the part of this rank. float32 is used as
        given. Other types are rounded to float32 after wrapping into the box, or after subtracting
        an origin if the points are far from 0.
    edges : array_like, shape (bins + 1,)
        Edges of the bins in the unit of the positions: finite, not negative and strictly ascending;
        at most 4096 bins. Bin ``i`` counts ``edges[i] <= r < edges[i + 1]``, compared in float32.
    other : array_like or meshloom.Array, optional
        Other points that pairs are made with, on all ranks or on none. Default: `points`.
    weights : array_like or meshloom.Array, shape (N,), optional
        Weights of the points, such as masses: finite and not negative, used in float32. Default: 1.
    other_weights : array_like or meshloom.Array, optional
        Weights of `other`, likewise.
    box : float or sequence of float, optional
        Side lengths of the periodic box; 0 or None leaves an axis open. A pair counts once, at the
        distance of its nearest images. Default: open.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Default: this process alone.

    Returns
    -------
    ndarray of int, or of float with weights, shape (bins,)
        Number of ordered pairs of all ranks: each pair among `points` counts twice, and a point is
        not a pair with itself. With weights, sums of the products of both weights.

    Raises
    ------
    ValueError
        If a value is not finite, a weight is negative, shapes do not fit, or `edges` are not
        ascending.

    Warns
    -----
    RuntimeWarning
        If a bin reaches beyond half of the shortest periodic side: it holds fewer pairs than an
        infinite periodic space has.
    UserWarning
        If the points and the box seem to have different units.

    Notes
    -----
    Collective with `comm`. Counts are exact, and sums have the same bits on any number of ranks.

    Examples
    --------
    >>> from meshloom import pair_counts
    >>> points = [[0.5, 0.0], [1.0, 0.0], [9.5, 0.0]]
    >>> pair_counts(points, [0.0, 0.75, 2.0], box=10.0).tolist()
    [2, 4]
    >>> pair_counts(points, [0.0, 0.75, 2.0], weights=[2.0, 3.0, 5.0], box=10.0).tolist()
    [12.0, 50.0]
    """
    comm = resolve(comm)

    def check():
        own = points_array(comm, points)
        dims = own.shape[1]
        queries = _queries(comm, other, own)
        if other is None and other_weights is not None:
            raise ValueError("other_weights: expected None without other")
        pair = [_weights(comm, weights, own, "weights"), _weights(comm, other_weights, queries, "other_weights")]
        arguments = {
            "number of axes": dims,
            "edges": _edges(edges),
            "box": box_sides(box, dims),
            "other": given_or_not(other),
            "weights": given_or_not(weights),
            "other_weights": given_or_not(other_weights),
        }
        return (own, queries, pair, arguments), {"function": "pair_counts", **arguments}, None

    def count(own, _):
        points, queries, pair, arguments = own
        sides = arguments["box"]
        origin = common_origin(comm, points, sides)
        search = _native.Search(comm, native(from_origin(points, origin)), sides)
        rows = None if queries is None else native(from_origin(queries, origin))
        if weights is None and other_weights is None:
            counts = search.pairs(rows, arguments["edges"])
        else:
            counts = search.weighted_pairs(rows, arguments["edges"], [None if own is None else native(own) for own in pair])
        return counts, search.doubt_of_pairs(arguments["edges"])

    counts, doubt = together(comm, check, count)
    if doubt:
        warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    return counts
