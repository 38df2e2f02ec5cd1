"""`scipy.spatial.KDTree` on the device."""

import numpy as np

from . import _native
from ._arguments import box_sides, whole_number
from ._arrays import native, real_array
from ._comm import resolve
from ._device_array import Array

# Lists of the nearest hold so many.
_MOST = 1024
# Bins of one histogram of distances.
_BINS = 4096


def _above(edge):
    """The least float32 above a number, as far as devices tell it from 0."""
    single = np.float32(edge)
    return max(single if single > edge else np.nextafter(single, np.float32(np.inf)), np.finfo(np.float32).tiny)


def _below(bound):
    """The greatest float32 below a number; negative where no distance is below it."""
    single = np.float32(bound)
    return single if single < bound else np.nextafter(single, np.float32(-np.inf))


class KDTree:
    """Points arranged for searches, with the methods of `scipy.spatial.KDTree`.

    Parameters
    ----------
    data : array_like, shape (N, M)
        Points of one, two or three axes. float32 is taken as it is; all else is wrapped into the box and rounded to float32.
    leafsize, compact_nodes, copy_data, balanced_tree
        Taken for compatibility; the tree on the device has leaves of 32 points and a copy of them.
    boxsize : float or sequence of float, optional
        Sides of a periodic box, 0 for an open axis. Points lie in ``[0, boxsize)``.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Every method is called by all ranks, each with its own part of what is searched for;
        indices count the points of all ranks, in rank order.

    Attributes
    ----------
    data : ndarray
        The points as they were given (this rank's).
    n, m : int
        Number of points (of all ranks) and of axes.
    mins, maxes : ndarray
        The least and the greatest coordinate along each axis (this rank's).
    boxsize : ndarray or None

    Notes
    -----
    Distances are computed in single precision, in the same way for any tree, device or number of ranks: they are right to some 1e-7 of the
    coordinates, and points that are equally far to that are in the order of their indices. They come as float32 where the points
    were float32, as float64 otherwise. Distances are Euclidean (``p=2``); `eps` is taken and results are exact. There are at most 1024
    neighbours.

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
        whole_number(leafsize, "leafsize", 1)
        self.data = data if isinstance(data, Array) else real_array(data, "data")
        if self.data.ndim != 2:
            raise ValueError(f"data must be 2 dimensions, one row per point; it has the shape {self.data.shape}")
        self.m = self.data.shape[1]
        if not 1 <= self.m <= 3:
            raise ValueError(f"points of {self.m} axes; devices search among points of 1, 2 or 3")
        self.leafsize = leafsize
        self.boxsize = None if boxsize is None else np.array(box_sides(boxsize, self.m, "boxsize"))
        self._comm = resolve(comm)
        self._in_box()
        sides = [0.0] * self.m if boxsize is None else self.boxsize.tolist()
        self._search = _native.Search(self._comm, self._rows(self.data), sides + [0.0] * (self.m == 1))
        self.n = int(_native.sum_over_ranks(self._comm, len(self.data)))

    def _in_box(self):
        """Refuses points outside of the box, as SciPy does."""
        if self.boxsize is None or self.data.size == 0 or isinstance(self.data, Array):
            # What is on the device is wrapped there.
            return
        if np.any((self.mins < 0) & (self.boxsize > 0)):
            raise ValueError("Negative input data are outside of the periodic box.")
        if np.any((self.maxes >= self.boxsize) & (self.boxsize > 0)):
            raise ValueError("Some input data are greater than the size of the periodic box.")

    @property
    def size(self):
        """Number of points."""
        return self.n

    @property
    def mins(self):
        """The least coordinate along each axis."""
        return np.asarray(self.data).min(axis=0) if len(self.data) else np.zeros(self.m)

    @property
    def maxes(self):
        """The greatest coordinate along each axis."""
        return np.asarray(self.data).max(axis=0) if len(self.data) else np.zeros(self.m)

    def __repr__(self):
        return f"<meshloom.KDTree: {self.n} points of {self.m} axes>"

    def __reduce__(self):
        return type(self), (np.asarray(self.data), self.leafsize, True, False, True, self.boxsize)

    def _rows(self, rows):
        """Points as the device takes them: a single axis gets a second one."""
        if self.m > 1:
            return native(rows)
        rows = np.asarray(rows)
        return np.concatenate([rows, np.zeros_like(rows)], axis=1)

    def _queries(self, x):
        """Points to search for as rows (None: the tree's own), and the shape of what is found."""
        if x is self.data:
            return None, x.shape[:-1]
        x = x if isinstance(x, Array) else real_array(x, "x")
        if x.ndim == 0 or x.shape[-1] != self.m:
            raise ValueError(f"x must consist of vectors of length {self.m} but has shape {x.shape}")
        return self._rows(x.reshape(-1, self.m)), x.shape[:-1]

    def _same_kind(self, other):
        if not isinstance(other, KDTree):
            raise TypeError(f"other must be a meshloom.KDTree, not {type(other).__name__}")
        if other.m != self.m:
            raise ValueError(f"points of {other.m} axes and of {self.m} cannot be compared")
        mine, theirs = (np.zeros(self.m) if tree.boxsize is None else tree.boxsize for tree in (self, other))
        if not np.array_equal(mine, theirs):
            raise ValueError("the trees lie in different boxes")

    @staticmethod
    def _euclidean(p, eps):
        if not p == 2:
            raise ValueError(f"p is {p}; distances are Euclidean, p=2")
        if not eps >= 0:
            raise ValueError(f"eps is {eps}; it must be 0 or more")

    def _distances(self, distance):
        return distance if self.data.dtype == np.float32 else distance.astype(np.float64)

    def query(self, x, k=1, eps=0.0, p=2.0, distance_upper_bound=np.inf, workers=1):
        """The nearest points, as `scipy.spatial.KDTree.query`.

        Parameters
        ----------
        x : array_like, last dimension M
            Points to search for. ``tree.data`` itself is searched for fastest.
        k : int or sequence of int
            How many of the nearest, or which of them (1 is the nearest).
        eps, p, workers
            For compatibility; see the notes of the class.
        distance_upper_bound : float
            Points must be nearer than this.

        Returns
        -------
        distance, index : float and int, or ndarray
            Of the shape of `x` without its last dimension, and with one for `k` unless that is 1. Where there are fewer, the distance is
            infinite and the index ``n``.
        """
        if k is None:
            raise ValueError("k must be an integer or a sequence of integers")
        self._euclidean(p, eps)
        several = np.ndim(k) > 0
        alone = not several and k == 1
        wanted = np.array([whole_number(one, "k", 1) for one in k] if several else range(1, whole_number(k, "k", 1) + 1), dtype=np.intp)
        if wanted.size == 0:
            raise ValueError("k must be an integer or a sequence of integers, at least one")
        rows, shape = self._queries(x)
        count = int(np.prod(shape))
        # No list is longer than there are points.
        most = min(int(wanted.max()), self.n)
        if most > _MOST:
            raise ValueError(f"{most} neighbours were asked for, at most {_MOST} can be; use query_ball_point for more")
        bound = float(distance_upper_bound)
        within = np.float32(np.inf) if bound == np.inf else _below(bound)
        if np.isnan(bound):
            raise ValueError("distance_upper_bound is no number")
        distance = np.full((count, wanted.size), np.inf, np.float32)
        index = np.full((count, wanted.size), self.n, np.intp)
        if within >= 0 and most > 0:
            found, near = self._search.nearest(rows, most, float(within), self.n)[::-1]
            found, near = found.reshape(count, most), near.reshape(count, most)
            if most == wanted.size and not several:
                distance, index = found, near
            else:
                there = wanted <= most
                distance[:, there], index[:, there] = found[:, wanted[there] - 1], near[:, wanted[there] - 1]
        distance = self._distances(distance)
        if not alone:
            shape = (*shape, wanted.size)
        elif shape == ():
            return float(distance[0, 0]), index[0, 0]
        return distance.reshape(shape), index.reshape(shape)

    def _lists(self, rows, radius, above=False):
        """Where each row's list begins, and the points within its radius."""
        radius = np.asarray(radius, dtype=np.float32)
        count = radius.size
        most = radius.max(initial=-1.0)
        if not most >= 0:
            return np.zeros(count + 1, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
        offset, index, distance = self._search.within(rows, float(most), above)
        if np.all(radius == most):
            return offset, index, distance
        kept = distance <= np.repeat(radius, np.diff(offset))
        ends = np.concatenate([[0], np.cumsum(kept)])
        return ends[offset], index[kept], distance[kept]

    def query_ball_point(self, x, r, p=2.0, eps=0.0, workers=1, return_sorted=None, return_length=False):
        """All points within a distance, as `scipy.spatial.KDTree.query_ball_point`.

        Parameters
        ----------
        x : array_like, last dimension M
            Points to search for.
        r : array_like, float
            The distance, inclusive; of a shape that broadcasts to that of `x` without its last dimension.
        p, eps, workers, return_sorted
            For compatibility; indices always ascend.
        return_length : bool
            How many they are in place of which.

        Returns
        -------
        list or ndarray of lists, or int or ndarray of int
        """
        self._euclidean(p, eps)
        rows, shape = self._queries(x)
        radius = np.broadcast_to(np.asarray(r, dtype=np.float64), shape).ravel()
        if return_length:
            if radius.size and np.all(radius == radius[0]) and radius[0] >= 0:
                lengths = self._search.counts(rows, float(np.float32(radius[0])))
            else:
                lengths = np.diff(self._lists(rows, radius)[0])
            return int(lengths[0]) if shape == () else lengths.reshape(shape)
        offset, index, _ = self._lists(rows, radius)
        index, offset = index.tolist(), offset.tolist()
        if shape == ():
            return index
        lists = np.empty(len(offset) - 1, dtype=object)
        for at in range(len(lists)):
            lists[at] = index[offset[at] : offset[at + 1]]
        return lists.reshape(shape)

    def query_ball_tree(self, other, r, p=2.0, eps=0.0):
        """For each point of this tree those of another within a distance, as `scipy.spatial.KDTree.query_ball_tree`."""
        self._same_kind(other)
        return other.query_ball_point(self.data, r, p, eps).tolist()

    def query_pairs(self, r, p=2.0, eps=0.0, output_type="set"):
        """All pairs of points within a distance, as `scipy.spatial.KDTree.query_pairs`.

        Parameters
        ----------
        r : float
            The distance, inclusive.
        output_type : {"set", "ndarray"}
            A set of pairs ``(i, j)`` with ``i < j``, or an array of them.
        """
        self._euclidean(p, eps)
        if output_type not in ("set", "ndarray"):
            raise ValueError("Invalid output type")
        offset, index, _ = self._lists(None, np.full(len(self.data), r), above=True)
        first = np.repeat(np.arange(len(offset) - 1) + self._first(), np.diff(offset))
        pairs = np.stack([first, index], axis=1).astype(np.intp, copy=False)
        return pairs if output_type == "ndarray" else set(zip(first.tolist(), index.tolist()))

    def _first(self):
        """The index of this rank's first point."""
        return _native.sum_before_rank(self._comm, len(self.data))

    def count_neighbors(self, other, r, p=2.0, weights=None, cumulative=True):
        """How many pairs are within distances, as `scipy.spatial.KDTree.count_neighbors`.

        Parameters
        ----------
        other : KDTree
            The other points; may be this tree.
        r : float or array_like
            Distances; ascending where `cumulative` is false.
        weights : array_like or pair of array_like, optional
            Weights of this tree's points and of the other's (None: 1 each), or those of both where they are one tree: a pair counts the product. Such pairs are
            listed and added on the host, of a tree of one rank.
        cumulative : bool
            Pairs up to each distance, or those between it and the one before.

        Returns
        -------
        int or ndarray of int
            Of floats with weights.
        """
        self._euclidean(p, 0)
        self._same_kind(other)
        shape, radii = np.shape(r), np.atleast_1d(np.asarray(r, dtype=np.float64)).ravel()
        if np.isnan(radii).any():
            raise ValueError("r must be numbers")
        if not cumulative and np.any(np.diff(radii) < 0):
            raise ValueError("r must be non-decreasing if cumulative is False")
        within = self._counts_within(other, radii) if weights is None else self._weights_within(other, radii, weights)
        counts = within if cumulative else np.diff(within, prepend=0)
        return counts[0].item() if shape == () else counts.reshape(shape)

    def _weights_within(self, other, radii, weights):
        """Sums of the products of weights of pairs up to each distance."""
        if self._comm.size > 1:
            raise ValueError("pairs with weights are counted on one rank")
        pair = weights if isinstance(weights, tuple) else (weights, weights)
        if len(pair) != 2 or (not isinstance(weights, tuple) and self is not other):
            raise ValueError("weights must be a pair of arrays: those of this tree and those of the other")
        mine, theirs = (np.ones(tree.n) if own is None else real_array(own, "weights").astype(np.float64) for own, tree in zip(pair, (self, other)))
        if mine.shape != (self.n,) or theirs.shape != (other.n,):
            raise ValueError(f"weights have the shapes {mine.shape} and {theirs.shape}; they must be ({self.n},) and ({other.n},)")
        finite = np.isfinite(radii) & (radii >= 0)
        total = np.where(radii == np.inf, mine.sum() * theirs.sum(), 0.0)
        if finite.any():
            rows = None if self is other else self._rows(self.data)
            offset, index, distance = other._lists(rows, np.full(self.n, radii[finite].max()))
            products = np.repeat(mine, np.diff(offset)) * theirs[index]
            ends = np.array([_above(radius) for radius in radii[finite]], dtype=np.float32)
            order = np.argsort(ends)
            first = np.searchsorted(ends[order], distance, side="right")
            sums = np.bincount(first, products, ends.size + 1)[:-1].cumsum()
            total[np.flatnonzero(finite)[order]] = sums
        return total

    def _counts_within(self, other, radii):
        """Ordered pairs of all ranks up to each distance."""
        total = np.zeros(radii.size, np.int64)
        ends = np.array([_above(min(radius, np.finfo(np.float32).max / 2)) for radius in radii], dtype=np.float32)
        finite = np.isfinite(radii) & (radii >= 0)
        same = self is other
        edges, reached = np.unique(ends[finite]), {}
        while edges.size:
            # One histogram tells apart what lies within a factor of 1e33.
            part = edges[edges >= edges[-1] * np.float64(1e-32)][-_BINS:]
            edges = edges[: edges.size - part.size]
            counts = other._search.pairs(None if same else self._rows(self.data), [0.0, *part.tolist()])
            reached.update(zip(part.tolist(), np.cumsum(counts).tolist()))
        own = self.n if same else 0
        for at in np.flatnonzero(finite):
            total[at] = reached[float(ends[at])] + own
        total[radii == np.inf] = self.n * other.n
        return total

    def sparse_distance_matrix(self, other, max_distance, p=2.0, output_type="dok_matrix"):
        """Distances up to a limit, as `scipy.spatial.KDTree.sparse_distance_matrix`; needs SciPy for its matrices."""
        self._euclidean(p, 0)
        self._same_kind(other)
        if output_type not in ("dict", "ndarray", "coo_matrix", "dok_matrix"):
            raise ValueError("Invalid output type")
        rows = None if self is other else self._rows(self.data)
        offset, index, distance = other._lists(rows, np.full(len(self.data), max_distance))
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
