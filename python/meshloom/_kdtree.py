"""`scipy.spatial.KDTree` on the device."""

import math

import numpy as np

from . import _native
from ._arguments import box_sides, real_number, whole_number
from ._arrays import native, real_array, real_array_for, single
from ._comm import agreed, exchanged, given_or_not, resolve, together
from ._device_array import Array
from ._origin import common_origin, from_origin
from ._radii import joined_lists, radius_classes

# Largest number of neighbors of a query.
_MOST = 1024
# Number of bins of one histogram of distances.
_BINS = 4096
# Number of pairs per piece where lists are only summed.
_PAIRS = 1 << 21


def _above(radius):
    """Return the least float32 above `radius` that devices distinguish from 0."""
    return np.maximum(np.nextafter(radius, np.float32(np.inf)), np.finfo(np.float32).tiny)


def _below(bound):
    """Return the greatest float32 below `bound`; negative if no distance is below it."""
    nearest = single(bound)[()]
    return nearest if np.float64(nearest) < bound else np.nextafter(nearest, np.float32(-np.inf))


def _full_name(kind):
    """Return the name of a type with its public module."""
    module = [part for part in kind.__module__.split(".") if not part.startswith("_")]
    return ".".join([*module, kind.__qualname__])


def _points(comm, data):
    """Return points as rows: a read-only copy, or an array on the device."""
    data = real_array_for(comm, data, "data")
    data = data if isinstance(data, Array) else data.copy()
    if data.ndim != 2:
        raise ValueError(f"data must have 2 dimensions, one row per point, got shape {data.shape}")
    if not 1 <= data.shape[1] <= 3:
        raise ValueError(f"data: expected points of 1, 2 or 3 axes, got {data.shape[1]}")
    if not isinstance(data, Array):
        data.setflags(write=False)
    return data


def _radius(r, name="r"):
    """Return the radius that all ranks use, rounded to float32."""
    radius = float(single(real_number(r, name)))
    if np.isnan(radius):
        raise ValueError(f"{name}: expected a number, got nan")
    return radius


def _radii(r, shape):
    """Return the radii of rows, rounded to float32."""
    radii = single(np.broadcast_to(np.asarray(r, dtype=np.float64), shape).ravel())
    if np.isnan(radii).any():
        raise ValueError("r: expected numbers, got nan")
    return radii


def _columns(found, wanted, missing):
    """Return columns of `found`, counted from 1, and `missing` in those that it does not have."""
    columns = np.full((len(found), len(wanted)), missing, found.dtype)
    there = wanted <= found.shape[1]
    columns[:, there] = found[:, wanted[there] - 1]
    return columns


class KDTree:
    """Points arranged for searches, with the methods of `scipy.spatial.KDTree`.

    Parameters
    ----------
    data : array_like or meshloom.Array, shape (N, M)
        Points of M = 1, 2 or 3 axes, in the unit of the caller; with `comm`, the part of this rank.
        float32 is used as given. Other types are rounded to float32 after wrapping into the box, or
        after subtracting an origin if the points are far from 0.
    leafsize : int, default 10
        Accepted for compatibility; leaves on the device have 32 points.
    compact_nodes, copy_data, balanced_tree : bool
        Accepted for compatibility. Points are always copied.
    boxsize : float or sequence of float, optional
        Side lengths of a periodic box, in the unit of `data`; 0 for an open axis. Points must lie
        in ``[0, boxsize)``. Default: open.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Default: this process alone.

    Attributes
    ----------
    data : ndarray or meshloom.Array, shape (N, M)
        The points of this rank as given: a read-only copy.
    n : int
        Number of points of all ranks.
    m : int
        Number of axes.
    leafsize : int
        The argument.
    boxsize : ndarray of shape (M,) or None
        Side lengths of the box.

    Raises
    ------
    ValueError
        If `data` has another shape, a coordinate is not finite, or a point lies outside `boxsize`.
    TypeError
        If `data` does not hold real numbers.

    Notes
    -----
    Collective with `comm`, and so is every method: each rank passes its own queries, which may be
    empty. Indices count the points of all ranks, in rank order.

    Distances are Euclidean (``p=2``). They are computed in single precision, in the same way for
    any tree and number of ranks, to about 1e-7 of the coordinates. Points at equal distance are in
    the order of their indices. Distances are float32 if the points are float32, else float64.
    Results are exact for every `eps`. At most 1024 neighbors can be requested.

    Radii are rounded to float32 and are inclusive in all methods: a point at the distance
    ``numpy.float32(r)`` is within ``r``. The next smaller radius is
    ``numpy.nextafter(numpy.float32(r), numpy.float32(0))``. A `distance_upper_bound` is exclusive
    and not rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import KDTree
    >>> tree = KDTree([[0.5, 1.0], [9.5, 1.0], [3.0, 1.0]], boxsize=10.0)
    >>> distance, index = tree.query([[0.0, 1.0]], k=2)
    >>> distance.tolist(), index.tolist()
    ([[0.5, 0.5]], [[0, 1]])
    >>> tree.query_ball_point([3.0, 1.0], 2.5)
    [0, 2]
    >>> sorted(tree.query_pairs(1.0))
    [(0, 1)]
    """

    def __init__(self, data, leafsize=10, compact_nodes=True, copy_data=False, balanced_tree=True, boxsize=None, *, comm=None):
        self._comm = resolve(comm)

        def check():
            whole_number(leafsize, "leafsize", 1)
            own = _points(self._comm, data)
            sides = box_sides(boxsize, own.shape[1], "boxsize")
            return (own, sides), {"function": "KDTree", "number of axes": own.shape[1], "boxsize": sides}, len(own)

        def arrange(own, counts):
            self.data, sides = own
            self.m, self.leafsize, self.boxsize = len(sides), leafsize, None if boxsize is None else np.array(sides)
            self._first, self.n = sum(counts[: self._comm.rank]), sum(counts)
            agreed(self._comm, self._in_box)
            self._origin = common_origin(self._comm, self.data, sides)
            self._search = _native.Search(self._comm, self._rows(self.data), sides + [0.0] * (self.m == 1))

        together(self._comm, check, arrange)

    def _in_box(self):
        """Raise an error if a point is outside the box, as SciPy does."""
        if self.boxsize is None or self.data.size == 0:
            return
        periodic = self.boxsize > 0
        if np.any(((self.mins < 0) | (self.maxes >= self.boxsize)) & periodic):
            data = np.asarray(self.data)
            outside = ((data < 0) | (data >= self.boxsize)) & periodic
            row, axis = np.argwhere(outside)[0]
            where, side = data[row, axis], self.boxsize[axis]
            raise ValueError(f"coordinate {axis} of point {self._first + row} is {where:.9g}, outside of the periodic box; expected [0, {side:.9g}); wrap by points % boxsize")

    @property
    def size(self):
        """Number of points of all ranks."""
        return self.n

    @property
    def mins(self):
        """Least coordinate of this rank's points along each axis, shape (M,)."""
        if len(self.data) == 0:
            return np.zeros(self.m)
        return self.data._native.bounds()[0] if isinstance(self.data, Array) else self.data.min(axis=0)

    @property
    def maxes(self):
        """Greatest coordinate of this rank's points along each axis, shape (M,)."""
        if len(self.data) == 0:
            return np.zeros(self.m)
        return self.data._native.bounds()[1] if isinstance(self.data, Array) else self.data.max(axis=0)

    def __repr__(self):
        return f"<meshloom.KDTree: {self.n} points of {self.m} axes>"

    def __reduce__(self):
        return type(self), (np.asarray(self.data), self.leafsize, True, False, True, self.boxsize)

    def _rows(self, x):
        """Return points as the device takes them: relative to the origin, with at least two axes.

        None stands for the points of the tree.
        """
        if x is None:
            return None
        x = from_origin(x, self._origin)
        if self.m > 1:
            return native(x)
        x = np.asarray(x)
        return np.concatenate([x, np.zeros_like(x)], axis=1)

    def _vectors(self, x):
        """Return queries: one vector or an array of vectors."""
        x = real_array_for(self._comm, x, "x")
        if x.ndim == 0 or x.shape[-1] != self.m:
            raise ValueError(f"x must consist of vectors of length {self.m} but has shape {x.shape}")
        return x

    def _is_own(self, x):
        """Return True if `x` are the points of the tree, which are on the device already."""
        if x is self.data:
            return True
        on_device = isinstance(x, Array) or isinstance(self.data, Array)
        return not on_device and x.shape == self.data.shape and np.array_equal(x, self.data)

    def _queries(self, x, are_own):
        """Return queries as rows; None if all ranks search for the points of the tree."""
        return None if all(are_own) else x.reshape(-1, self.m)

    def _ranks_with(self, other):
        """Return the ranks that search another tree for the points of this one."""
        return other._comm if isinstance(other, KDTree) else self._comm

    def _same_kind(self, other):
        if not isinstance(other, KDTree):
            raise TypeError(f"other: expected a meshloom.KDTree, not {_full_name(type(other))}")
        if other.m != self.m:
            raise ValueError(f"other: expected points of {self.m} axes, got {other.m}")
        mine, theirs = (np.zeros(self.m) if tree.boxsize is None else tree.boxsize for tree in (self, other))
        if not np.array_equal(mine, theirs):
            raise ValueError("other: expected a tree in the same box, got boxsize {other.boxsize} instead of {self.boxsize}")

    @staticmethod
    def _euclidean(p, eps, workers=1):
        """Raise an error for SciPy's arguments that are invalid or unsupported."""
        if whole_number(workers, "workers", -1) == 0:
            raise ValueError("workers: expected -1 or a positive number, got 0")
        if not p == 2:
            raise ValueError(f"p: expected 2 (Euclidean distances), got {p}")
        if not eps >= 0:
            raise ValueError(f"eps: expected 0 or more, got {eps}")

    def _distances(self, distance):
        return distance if self._origin is None else distance.astype(np.float64)

    def query(self, x, k=1, eps=0.0, p=2.0, distance_upper_bound=np.inf, workers=1):
        r"""Find the nearest points, as `scipy.spatial.KDTree.query`.

        Parameters
        ----------
        x : array_like or meshloom.Array, shape (..., M)
            Queries. ``tree.data``, or an array equal to it, is searched for fastest.
        k : int or sequence of int, default 1
            Number of neighbors, 1 to 1024, or which of them (1 is the nearest).
        eps, p, workers
            Accepted for compatibility: `eps` of 0 or more, ``p=2``, any number of workers.
        distance_upper_bound : float, default inf
            Exclusive limit of the distance.

        Returns
        -------
        distance : float or ndarray of shape x.shape[:-1] or (\*x.shape[:-1], k)
            Distances, ascending; infinite where fewer than `k` points were found.
        index : int or ndarray of int, shape of `distance`
            Indices of the neighbors; ``n`` where fewer were found.

        Raises
        ------
        ValueError
            If `k` is below 1 or above 1024, `p` is not 2, or `x` does not have M coordinates per
            query.

        Notes
        -----
        Collective with the tree's `comm`. The axis for `k` is missing if `k` is 1.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> tree = KDTree([[0.0, 0.0], [3.0, 4.0]])
        >>> distance, index = tree.query([0.0, 0.0], k=2)
        >>> distance.tolist(), index.tolist()
        ([0.0, 5.0], [0, 1])
        """

        def check():
            if k is None:
                raise ValueError("k must be an integer or a sequence of integers")
            self._euclidean(p, eps, workers)
            numbers = [whole_number(one, "k", 1) for one in k] if np.ndim(k) > 0 else whole_number(k, "k", 1)
            if numbers == []:
                raise ValueError("k must be an integer or a sequence of integers, at least one")
            # A list has at most as many entries as the tree has points.
            most = min(np.max(numbers), self.n)
            if most > _MOST:
                raise ValueError(f"k: expected at most {_MOST}, got {most}; use query_ball_point for more")
            bound = real_number(distance_upper_bound, "distance_upper_bound")
            if np.isnan(bound):
                raise ValueError("distance_upper_bound: expected a number, got nan (not a number)")
            rows = self._vectors(x)
            alike = {"function": "KDTree.query", "k": numbers, "distance_upper_bound": bound}
            return (rows, numbers, int(most), bound), alike, self._is_own(rows)

        return together(self._comm, check, self._nearest)

    def _nearest(self, own, are_own):
        """Return the result of `query`."""
        x, numbers, most, bound = own
        within = np.inf if bound == np.inf else float(_below(bound))
        shape, x = x.shape[:-1], self._queries(x, are_own)
        if most > 0 and within >= 0:
            index, distance = self._search.nearest(self._rows(x), most, within, self.n)
        else:
            most, index, distance = 0, np.empty(0, np.intp), np.empty(0, np.float32)
        index, distance = (found.reshape(math.prod(shape), most) for found in (index, distance))
        if numbers != most:
            wanted = np.array(numbers if isinstance(numbers, list) else range(1, numbers + 1), dtype=np.intp)
            index, distance = _columns(index, wanted, self.n), _columns(distance, wanted, np.inf)
        distance = self._distances(distance)
        if numbers != 1:
            shape = (*shape, index.shape[1])
        elif shape == ():
            return float(distance[0, 0]), index[0, 0]
        return distance.reshape(shape), index.reshape(shape)

    def _within(self, x, radius, above=False):
        """Return the points within one radius of each row: offsets, indices and distances.

        With `above`, only points of higher indices than the row.
        """
        if radius < 0:
            return np.zeros((len(self.data) if x is None else len(x)) + 1, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
        return self._search.within(self._rows(x), radius, above)

    def _lists(self, x, radius):
        """Return the points within the radius of each row: offsets and indices."""
        parts = []
        for rows, least, most in radius_classes(self._comm, radius):
            offset, index, distance = self._search.within(self._rows(self._some(x, rows)), most)
            if least < most:
                kept = distance <= np.repeat(radius if rows is None else radius[rows], np.diff(offset))
                offset, index = np.concatenate([[0], np.cumsum(kept)])[offset], index[kept]
            if rows is None:
                return offset, index
            parts.append((rows, offset, index))
        return joined_lists(radius.size, parts)

    def _lengths(self, x, radius):
        """Return the number of points within the radius of each row."""
        lengths = np.zeros(radius.size, np.intp)
        for rows, least, most in radius_classes(self._comm, radius):
            x_of_class, rows = self._some(x, rows), slice(None) if rows is None else rows
            if least == most:
                lengths[rows] = self._search.counts(self._rows(x_of_class), most)
                continue
            own, counts = radius[rows], []
            for part, offset, _, distance in self._pieces(x_of_class, most):
                kept = distance <= np.repeat(own[part], np.diff(offset))
                counts.append(np.diff(np.concatenate([[0], np.cumsum(kept)])[offset]))
            lengths[rows] = np.concatenate(counts) if counts else 0
        return lengths

    def _some(self, x, rows):
        """Return some rows of the queries; None stands for all rows."""
        return x if rows is None else np.asarray(self.data if x is None else x)[rows]

    def _pieces(self, x, radius):
        """Yield the lists within one radius in pieces that fit in memory.

        Each piece has the rows, offsets, indices and distances.
        """
        lengths = self._search.counts(self._rows(x), radius)
        x = self._some(x, slice(None))
        begins = np.cumsum(lengths) - lengths
        number = max(exchanged(self._comm, int(-(-lengths.sum() // _PAIRS))))
        cuts = np.searchsorted(begins, np.arange(number + 1) * _PAIRS)
        cuts[-1] = len(lengths)
        for begin, end in zip(cuts, cuts[1:]):
            part = slice(begin, end)
            yield part, *self._search.within(self._rows(x[part]), radius)

    def query_ball_point(self, x, r, p=2.0, eps=0.0, workers=1, return_sorted=None, return_length=False):
        """Find all points within a radius, as `scipy.spatial.KDTree.query_ball_point`.

        Parameters
        ----------
        x : array_like or meshloom.Array, shape (..., M)
            Queries.
        r : float or array_like
            Radius, inclusive: one for all queries, or an array that broadcasts to ``x.shape[:-1]``.
            A negative radius matches nothing.
        p, eps, workers, return_sorted
            Accepted for compatibility, with ``p=2``. Indices always ascend.
        return_length : bool, default False
            Return the number of points instead of their indices.

        Returns
        -------
        list of int, or ndarray of lists, shape x.shape[:-1]
            Indices of the points within the radius of each query; with `return_length`, int or an
            array of int.

        Raises
        ------
        ValueError
            If `r` is NaN or does not broadcast, `p` is not 2, or `x` does not have M coordinates
            per query.

        Notes
        -----
        Collective with the tree's `comm`; radii may differ between ranks. The cost of a query
        depends on its own radius.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> tree = KDTree([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
        >>> tree.query_ball_point([[0.0, 0.0], [3.0, 0.0]], [1.0, 2.0], return_length=True).tolist()
        [2, 2]
        """

        def check():
            self._euclidean(p, eps, workers)
            rows = self._vectors(x)
            own = rows, _radii(r, rows.shape[:-1]), bool(return_length)
            return own, {"function": "KDTree.query_ball_point", "return_length": own[2]}, self._is_own(rows)

        return together(self._comm, check, self._balls)

    def _balls(self, own, are_own):
        """Return the result of `query_ball_point`."""
        x, radius, return_length = own
        shape, x = x.shape[:-1], self._queries(x, are_own)
        if return_length:
            lengths = self._lengths(x, radius)
            return int(lengths[0]) if shape == () else lengths.reshape(shape)
        offset, index = self._lists(x, radius)
        index, offset = index.tolist(), offset.tolist()
        if shape == ():
            return index
        lists = np.empty(len(offset) - 1, dtype=object)
        for at in range(len(lists)):
            lists[at] = index[offset[at] : offset[at + 1]]
        return lists.reshape(shape)

    def query_ball_tree(self, other, r, p=2.0, eps=0.0):
        """Find the points of another tree near each point of this tree.

        Parameters
        ----------
        other : KDTree
            Tree that is searched, with the same box.
        r : float
            Radius, inclusive.
        p, eps
            Accepted for compatibility, with ``p=2``.

        Returns
        -------
        list of list of int
            For each point of this rank, the indices of the points of `other` within `r`, ascending.

        Raises
        ------
        TypeError
            If `other` is not a `KDTree`.
        ValueError
            If the trees differ in axes or box.

        Notes
        -----
        Collective with the trees' `comm`. As `scipy.spatial.KDTree.query_ball_tree`.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> KDTree([[0.0, 0.0], [5.0, 0.0]]).query_ball_tree(KDTree([[0.5, 0.0]]), 1.0)
        [[0], []]
        """
        agreed(self._ranks_with(other), self._same_kind, other)
        return other.query_ball_point(self.data, r, p, eps).tolist()

    def query_pairs(self, r, p=2.0, eps=0.0, output_type="set"):
        """Find all pairs of points within a distance, as `scipy.spatial.KDTree.query_pairs`.

        Parameters
        ----------
        r : float
            Distance, inclusive.
        p, eps
            Accepted for compatibility, with ``p=2``.
        output_type : {"set", "ndarray"}, default "set"
            Type of the result.

        Returns
        -------
        set of tuple, or ndarray of shape (pairs, 2)
            Pairs ``(i, j)`` of indices with ``i < j``.

        Raises
        ------
        ValueError
            If `r` is NaN, `p` is not 2 or `output_type` is unknown.

        Notes
        -----
        Collective with the tree's `comm`: each rank gets the pairs whose first point is its own.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> KDTree([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]).query_pairs(1.5)
        {(0, 1)}
        """

        def check():
            self._euclidean(p, eps)
            if output_type not in ("set", "ndarray"):
                raise ValueError(f'output_type: expected "set" or "ndarray", got {output_type!r}')
            radius = _radius(r)
            return radius, {"function": "KDTree.query_pairs", "r": radius}, None

        offset, index, _ = together(self._comm, check, lambda radius, _: self._within(None, radius, above=True))
        first = np.repeat(np.arange(len(offset) - 1) + self._first, np.diff(offset))
        pairs = np.stack([first, index], axis=1).astype(np.intp, copy=False)
        return pairs if output_type == "ndarray" else set(zip(first.tolist(), index.tolist()))

    def count_neighbors(self, other, r, p=2.0, weights=None, cumulative=True):
        """Count pairs within distances, as `scipy.spatial.KDTree.count_neighbors`.

        Parameters
        ----------
        other : KDTree
            The other points; may be this tree.
        r : float or array_like
            Distances, inclusive; ascending if `cumulative` is False.
        p : float, default 2
            Accepted for compatibility; must be 2.
        weights : array_like or tuple of two array_like, optional
            Weights of the points of both trees, shapes ``(N,)``; None in a tuple stands for weights
            of 1. One array is enough if both trees are the same. A pair counts the product of its
            weights.
        cumulative : bool, default True
            Count all pairs up to each distance. If False, count the pairs between each distance and
            the one before.

        Returns
        -------
        int or ndarray, shape of `r`
            Number of ordered pairs, a point with itself included; float with `weights`.

        Raises
        ------
        ValueError
            If `r` is NaN or not ascending, `p` is not 2, the shapes of weights do not fit, the
            trees differ in axes or box, or `weights` is given on several ranks.

        Notes
        -----
        Collective with the trees' `comm`. Pairs with weights are listed in pieces and summed on the
        host, on one rank only; `meshloom.pair_counts` takes weights on any number of ranks.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> tree = KDTree([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
        >>> tree.count_neighbors(tree, [0.5, 1.0, 2.0]).tolist()
        [3, 5, 7]
        """
        comm = self._ranks_with(other)

        def check():
            self._euclidean(p, 0)
            self._same_kind(other)
            radii = _radii(r, np.shape(r))
            if not cumulative and np.any(np.diff(radii) < 0):
                raise ValueError("r must be non-decreasing if cumulative is False")
            alike = {"function": "KDTree.count_neighbors", "r": radii.tolist(), "weights": given_or_not(weights), "cumulative": bool(cumulative)}
            return radii, alike, None

        def count(radii, _):
            return self._counts_within(other, radii) if weights is None else self._weights_within(other, radii, weights)

        within, shape = together(comm, check, count), np.shape(r)
        counts = within if cumulative else np.diff(within, prepend=0)
        return counts[0].item() if shape == () else counts.reshape(shape)

    def _weights_within(self, other, radii, weights):
        """Return sums of products of weights of the pairs up to each distance."""
        if max(self._comm.size, other._comm.size) > 1:
            raise ValueError("weights: expected a tree on one rank, got {self._comm.size}; use meshloom.pair_counts")
        pair = weights if isinstance(weights, tuple) else (weights, weights)
        if len(pair) != 2 or (not isinstance(weights, tuple) and self is not other):
            raise ValueError("weights: expected a tuple of two arrays, for this tree and the other")
        mine, theirs = (np.ones(tree.n) if own is None else real_array(own, "weights").astype(np.float64) for own, tree in zip(pair, (self, other)))
        if mine.shape != (self.n,) or theirs.shape != (other.n,):
            raise ValueError(f"weights: expected shapes ({self.n},) and ({other.n},), got {mine.shape} and {theirs.shape}")
        total = np.where(radii == np.inf, mine.sum() * theirs.sum(), 0.0)
        finite = np.isfinite(radii) & (radii >= 0)
        if finite.any():
            ends = np.sort(radii[finite])
            sums = np.zeros(ends.size)
            for part, offset, index, distance in other._pieces(None if self is other else self.data, float(ends[-1])):
                products = np.repeat(mine[part], np.diff(offset)) * theirs[index]
                sums += np.bincount(np.searchsorted(ends, distance), products, ends.size)
            total[finite] = np.cumsum(sums)[np.searchsorted(ends, radii[finite], side="right") - 1]
        return total

    def _counts_within(self, other, radii):
        """Return the number of ordered pairs of all ranks up to each distance."""
        rows = None if self is other else other._rows(self.data)
        total = np.zeros(radii.size, np.int64)
        total[radii == np.inf] = self.n * other.n
        finite = np.isfinite(radii) & (radii >= 0)
        # The edge above a radius includes it. Distances are at most half of the largest float32.
        ends = _above(np.minimum(radii, np.finfo(np.float32).max / 2))
        edges, reached = np.unique(ends[finite]), {}
        while edges.size:
            # One histogram separates distances within a factor of 1e33.
            part = edges[edges >= edges[-1] * np.float64(1e-32)][-_BINS:]
            edges = edges[: edges.size - part.size]
            counts = other._search.pairs(rows, [0.0, *part.tolist()])
            reached.update(zip(part.tolist(), np.cumsum(counts).tolist()))
        # The device does not count a point with itself; SciPy does.
        own = self.n if self is other else 0
        for at in np.flatnonzero(finite):
            total[at] = reached[float(ends[at])] + own
        return total

    def sparse_distance_matrix(self, other, max_distance, p=2.0, output_type="dok_matrix"):
        """Compute distances up to a limit, as `scipy.spatial.KDTree.sparse_distance_matrix`.

        Parameters
        ----------
        other : KDTree
            The other points; may be this tree.
        max_distance : float
            Limit, inclusive.
        p : float, default 2
            Accepted for compatibility; must be 2.
        output_type : {"dict", "ndarray", "coo_matrix", "dok_matrix"}, default "dok_matrix"
            Type of the result. The matrices need SciPy.

        Returns
        -------
        dict, ndarray or scipy.sparse matrix
            Distances by the indices of both points. The array has the fields ``i``, ``j`` and
            ``v``. Rows are the points of this rank.

        Raises
        ------
        ValueError
            If `max_distance` is NaN, `p` is not 2, `output_type` is unknown, or the trees differ in
            axes or box.

        Notes
        -----
        Collective with the trees' `comm`.

        Examples
        --------
        >>> from meshloom import KDTree
        >>> tree = KDTree([[0.0, 0.0], [3.0, 4.0]])
        >>> tree.sparse_distance_matrix(KDTree([[0.0, 0.0]]), 6.0, output_type="dict")
        {(0, 0): 0.0, (1, 0): 5.0}
        """

        def check():
            self._euclidean(p, 0)
            self._same_kind(other)
            kinds = "dict", "ndarray", "coo_matrix", "dok_matrix"
            if output_type not in kinds:
                raise ValueError(f"output_type: expected one of {kinds}, got {output_type!r}")
            radius = _radius(max_distance, "max_distance")
            return radius, {"function": "KDTree.sparse_distance_matrix", "max_distance": radius}, None

        def search(radius, _):
            return other._within(None if self is other else self.data, radius)

        offset, index, distance = together(self._ranks_with(other), check, search)
        first = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
        distance = distance.astype(np.float64)
        if output_type == "dict":
            return dict(zip(zip(first.tolist(), index.tolist()), distance.tolist()))
        if output_type == "ndarray":
            entries = np.empty(len(index), dtype=[("i", np.intp), ("j", np.intp), ("v", np.float64)])
            entries["i"], entries["j"], entries["v"] = first, index, distance
            return entries
        from scipy.sparse import coo_matrix

        matrix = coo_matrix((distance, (first, index)), shape=(len(self.data), other.n))
        return matrix if output_type == "coo_matrix" else matrix.todok()
