"""`scipy.spatial.KDTree` on the device."""

import numpy as np

from . import _native
from ._arguments import box_sides, real_number, whole_number
from ._arrays import native, real_array, real_array_for, single
from ._comm import agreed, exchanged, given_or_not, resolve, together
from ._device_array import Array
from ._origin import common_origin, from_origin
from ._radii import joined_lists, radius_classes

# Lists of the nearest hold so many.
_MOST = 1024
# Bins of one histogram of distances.
_BINS = 4096
# Pairs that are listed at a time where lists are only added up.
_PAIRS = 1 << 21


def _above(radius):
    """The least float32 above one, as far as devices tell it from 0."""
    return np.maximum(np.nextafter(radius, np.float32(np.inf)), np.finfo(np.float32).tiny)


def _below(bound):
    """The greatest float32 below a number; negative where no distance is below it."""
    nearest = single(bound)[()]
    return nearest if np.float64(nearest) < bound else np.nextafter(nearest, np.float32(-np.inf))


def _full_name(kind):
    """The name of a type with that of its public module."""
    module = [part for part in kind.__module__.split(".") if not part.startswith("_")]
    return ".".join([*module, kind.__qualname__])


def _points(comm, data):
    """Points as rows, a copy of those that were given, or an array on the device, which does not change."""
    data = real_array_for(comm, data, "data")
    data = data if isinstance(data, Array) else data.copy()
    if data.ndim != 2:
        raise ValueError(f"data must have 2 dimensions, one row per point; it has the shape {data.shape}")
    if not 1 <= data.shape[1] <= 3:
        raise ValueError(f"points of {data.shape[1]} axes; devices search among points of 1, 2 or 3")
    if not isinstance(data, Array):
        data.setflags(write=False)
    return data


def _radius(r, name="r"):
    """The radius of all ranks' rows, as distances are compared with it."""
    radius = float(single(real_number(r, name)))
    if np.isnan(radius):
        raise ValueError(f"{name} is no number")
    return radius


def _radii(r, shape):
    """Radii of rows of a shape, as distances are compared with them."""
    radii = single(np.broadcast_to(np.asarray(r, dtype=np.float64), shape).ravel())
    if np.isnan(radii).any():
        raise ValueError("r must be numbers")
    return radii


class KDTree:
    """Points arranged for searches, with the methods of `scipy.spatial.KDTree`.

    Parameters
    ----------
    data : array_like, shape (N, M)
        Points of one, two or three axes. float32 is taken as it is; all else is wrapped into the box, or counted from among the points where
        they lie far from 0, and rounded to float32.
    leafsize, compact_nodes, copy_data, balanced_tree
        Taken for compatibility; the tree on the device has leaves of 32 points, and points are always copied: the array may change.
    boxsize : float or sequence of float, optional
        Sides of a periodic box, 0 for an open axis. Points lie in ``[0, boxsize)``, on
        the host and on a device; others are a `ValueError`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the points each. Every method is called by all ranks, each with its own part of what is searched for,
        which may be nothing; indices count the points of all ranks, in rank order.

    Attributes
    ----------
    data : ndarray
        The points as they were given (this rank's): a copy, which cannot be written to.
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

    A radius is rounded to float32, as coordinates and distances are, and is inclusive, in all methods: what is ``numpy.float32(r)`` away is
    within. The next smaller radius is ``numpy.nextafter(numpy.float32(r), numpy.float32(0))``; a float64 just below `r` is rounded to the
    same one as `r`. A `distance_upper_bound` is exclusive, and not rounded.

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
        """Refuse points outside the box, as SciPy does."""
        if self.boxsize is None or self.data.size == 0:
            return
        periodic = self.boxsize > 0
        if np.any(((self.mins < 0) | (self.maxes >= self.boxsize)) & periodic):
            data = np.asarray(self.data)
            outside = ((data < 0) | (data >= self.boxsize)) & periodic
            row, axis = np.argwhere(outside)[0]
            where, side = data[row, axis], self.boxsize[axis]
            raise ValueError(f"coordinate {axis} of point {self._first + row} is {where:.9g}, outside of the periodic box, [0, {side:.9g})")

    @property
    def size(self):
        """Number of points."""
        return self.n

    @property
    def mins(self):
        """The least coordinate along each axis."""
        if len(self.data) == 0:
            return np.zeros(self.m)
        return self.data._native.bounds()[0] if isinstance(self.data, Array) else self.data.min(axis=0)

    @property
    def maxes(self):
        """The greatest coordinate along each axis."""
        if len(self.data) == 0:
            return np.zeros(self.m)
        return self.data._native.bounds()[1] if isinstance(self.data, Array) else self.data.max(axis=0)

    def __repr__(self):
        return f"<meshloom.KDTree: {self.n} points of {self.m} axes>"

    def __reduce__(self):
        return type(self), (np.asarray(self.data), self.leafsize, True, False, True, self.boxsize)

    def _rows(self, x):
        """Points as the device takes them: counted from the origin; a single axis gets a second one. None are the tree's own."""
        if x is None:
            return None
        x = from_origin(x, self._origin)
        if self.m > 1:
            return native(x)
        x = np.asarray(x)
        return np.concatenate([x, np.zeros_like(x)], axis=1)

    def _vectors(self, x):
        """Points to search for, one or an array of them."""
        x = real_array_for(self._comm, x, "x")
        if x.ndim == 0 or x.shape[-1] != self.m:
            raise ValueError(f"x must consist of vectors of length {self.m} but has shape {x.shape}")
        return x

    def _is_own(self, x):
        """Whether points are those of the tree, which are on the device already and in order."""
        if x is self.data:
            return True
        on_device = isinstance(x, Array) or isinstance(self.data, Array)
        return not on_device and x.shape == self.data.shape and np.array_equal(x, self.data)

    def _queries(self, x, are_own):
        """Points to search for, a row each; None where all ranks search for the tree's own."""
        return None if all(are_own) else x.reshape(-1, self.m)

    def _ranks_with(self, other):
        """The ranks that search another tree for points of this one."""
        return other._comm if isinstance(other, KDTree) else self._comm

    def _same_kind(self, other):
        if not isinstance(other, KDTree):
            raise TypeError(f"other must be a meshloom.KDTree, not {_full_name(type(other))}")
        if other.m != self.m:
            raise ValueError(f"points of {other.m} axes and of {self.m} cannot be compared")
        mine, theirs = (np.zeros(self.m) if tree.boxsize is None else tree.boxsize for tree in (self, other))
        if not np.array_equal(mine, theirs):
            raise ValueError("the trees lie in different boxes")

    @staticmethod
    def _euclidean(p, eps, workers=1):
        """Refuses arguments of SciPy's that have no effect here, where SciPy would refuse them or give something else."""
        if whole_number(workers, "workers", -1) == 0:
            raise ValueError("workers is 0; it must be -1 or a positive number")
        if not p == 2:
            raise ValueError(f"p is {p}; distances are Euclidean, p=2")
        if not eps >= 0:
            raise ValueError(f"eps is {eps}; it must be 0 or more")

    def _distances(self, distance):
        return distance if self._origin is None else distance.astype(np.float64)

    def query(self, x, k=1, eps=0.0, p=2.0, distance_upper_bound=np.inf, workers=1):
        """The nearest points, as `scipy.spatial.KDTree.query`.

        Parameters
        ----------
        x : array_like, last dimension M
            Points to search for. The tree's own, ``tree.data`` or an array that equals it, are searched for fastest.
        k : int or sequence of int
            How many of the nearest, or which of them (1 is the nearest).
        eps, p, workers
            For compatibility, and checked as SciPy does; see the notes of the class.
        distance_upper_bound : float
            Points must be nearer than this.

        Returns
        -------
        distance, index : float and int, or ndarray
            Of the shape of `x` without its last dimension, and with one for `k` unless that is 1. Where there are fewer, the distance is
            infinite and the index ``n``.
        """

        def check():
            if k is None:
                raise ValueError("k must be an integer or a sequence of integers")
            self._euclidean(p, eps, workers)
            numbers = [whole_number(one, "k", 1) for one in k] if np.ndim(k) > 0 else whole_number(k, "k", 1)
            if numbers == []:
                raise ValueError("k must be an integer or a sequence of integers, at least one")
            # No list is longer than there are points.
            most = min(np.max(numbers), self.n)
            if most > _MOST:
                raise ValueError(f"{most} neighbours were asked for, at most {_MOST} can be; use query_ball_point for more")
            bound = real_number(distance_upper_bound, "distance_upper_bound")
            if np.isnan(bound):
                raise ValueError("distance_upper_bound is not a number")
            rows = self._vectors(x)
            alike = {"function": "KDTree.query", "k": numbers, "distance_upper_bound": bound}
            return (rows, numbers, int(most), bound), alike, self._is_own(rows)

        return together(self._comm, check, self._nearest)

    def _nearest(self, own, are_own):
        """The nearest points of rows: what `query` gives."""
        x, numbers, most, bound = own
        several = isinstance(numbers, list)
        alone = not several and numbers == 1
        wanted = np.array(numbers if several else range(1, numbers + 1), dtype=np.intp)
        within = np.inf if bound == np.inf else float(_below(bound))
        shape, x = x.shape[:-1], self._queries(x, are_own)
        count = int(np.prod(shape))
        distance = np.full((count, wanted.size), np.inf, np.float32)
        index = np.full((count, wanted.size), self.n, np.intp)
        if most > 0 and within >= 0:
            near, found = self._search.nearest(self._rows(x), most, within, self.n)
            near, found = near.reshape(count, most), found.reshape(count, most)
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

    def _within(self, x, radius, above=False):
        """The points within one radius of each row: where each list begins, indices, distances. With `above` those of higher indices."""
        if radius < 0:
            return np.zeros((len(self.data) if x is None else len(x)) + 1, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
        return self._search.within(self._rows(x), radius, above)

    def _lists(self, x, radius):
        """The points within the radius of each row: where each list begins, and indices."""
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
        """How many points are within the radius of each row."""
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
        """Some rows of points to search for; None are all of them."""
        return x if rows is None else np.asarray(self.data if x is None else x)[rows]

    def _pieces(self, x, radius):
        """The lists within one radius, in pieces of so many pairs that memory holds them: which rows, where each list begins, indices,
        distances."""
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
        """All points within a distance, as `scipy.spatial.KDTree.query_ball_point`.

        Parameters
        ----------
        x : array_like, last dimension M
            Points to search for.
        r : array_like, float
            The distance, inclusive; of a shape that broadcasts to that of `x` without its last dimension. Each point may have its own, and
            takes as long as that does.
        p, eps, workers, return_sorted
            For compatibility; indices always ascend.
        return_length : bool
            How many they are in place of which.

        Returns
        -------
        list or ndarray of lists, or int or ndarray of int
        """

        def check():
            self._euclidean(p, eps, workers)
            rows = self._vectors(x)
            own = rows, _radii(r, rows.shape[:-1]), bool(return_length)
            return own, {"function": "KDTree.query_ball_point", "return_length": own[2]}, self._is_own(rows)

        return together(self._comm, check, self._balls)

    def _balls(self, own, are_own):
        """The points within radii of rows: what `query_ball_point` gives."""
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
        """For each point of this tree those of another within a distance, as `scipy.spatial.KDTree.query_ball_tree`."""
        agreed(self._ranks_with(other), self._same_kind, other)
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

        def check():
            self._euclidean(p, eps)
            if output_type not in ("set", "ndarray"):
                raise ValueError(f'output_type is {output_type!r}, not "set" or "ndarray"')
            radius = _radius(r)
            return radius, {"function": "KDTree.query_pairs", "r": radius}, None

        offset, index, _ = together(self._comm, check, lambda radius, _: self._within(None, radius, above=True))
        first = np.repeat(np.arange(len(offset) - 1) + self._first, np.diff(offset))
        pairs = np.stack([first, index], axis=1).astype(np.intp, copy=False)
        return pairs if output_type == "ndarray" else set(zip(first.tolist(), index.tolist()))

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
            listed, some millions at a time, and added on the host, of a tree of one rank.
        cumulative : bool
            Pairs up to each distance, or those between it and the one before.

        Returns
        -------
        int or ndarray of int
            Of floats with weights.
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
        """Sums of the products of weights of pairs up to each distance."""
        if max(self._comm.size, other._comm.size) > 1:
            raise ValueError("pairs with weights are counted on one rank")
        pair = weights if isinstance(weights, tuple) else (weights, weights)
        if len(pair) != 2 or (not isinstance(weights, tuple) and self is not other):
            raise ValueError("weights must be a pair of arrays: those of this tree and those of the other")
        mine, theirs = (np.ones(tree.n) if own is None else real_array(own, "weights").astype(np.float64) for own, tree in zip(pair, (self, other)))
        if mine.shape != (self.n,) or theirs.shape != (other.n,):
            raise ValueError(f"weights have the shapes {mine.shape} and {theirs.shape}; they must be ({self.n},) and ({other.n},)")
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
        """Ordered pairs of all ranks up to each distance."""
        rows = None if self is other else other._rows(self.data)
        total = np.zeros(radii.size, np.int64)
        total[radii == np.inf] = self.n * other.n
        finite = np.isfinite(radii) & (radii >= 0)
        # The edge above a radius includes it. Farther than half of the greatest float32 are no two points.
        ends = _above(np.minimum(radii, np.finfo(np.float32).max / 2))
        edges, reached = np.unique(ends[finite]), {}
        while edges.size:
            # One histogram tells apart what lies within a factor of 1e33.
            part = edges[edges >= edges[-1] * np.float64(1e-32)][-_BINS:]
            edges = edges[: edges.size - part.size]
            counts = other._search.pairs(rows, [0.0, *part.tolist()])
            reached.update(zip(part.tolist(), np.cumsum(counts).tolist()))
        # Among its own points the device counts none with itself, which is 0 away.
        own = self.n if self is other else 0
        for at in np.flatnonzero(finite):
            total[at] = reached[float(ends[at])] + own
        return total

    def sparse_distance_matrix(self, other, max_distance, p=2.0, output_type="dok_matrix"):
        """Distances up to a limit, as `scipy.spatial.KDTree.sparse_distance_matrix`; needs SciPy for its matrices."""

        def check():
            self._euclidean(p, 0)
            self._same_kind(other)
            kinds = "dict", "ndarray", "coo_matrix", "dok_matrix"
            if output_type not in kinds:
                raise ValueError(f"output_type is {output_type!r}, not one of {kinds}")
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
