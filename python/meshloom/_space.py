"""Spaces: named leaves, each a field on a grid, at points, or a few numbers."""

import collections.abc
import math

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._comm import gathered, resolve, summary
from ._plain import plain

_GRIDS = ("cells", "modes", "half_spectrum")
# Places of the axes of a grid among the three of the extension module, by their number.
_PLACES = {1: (2,), 2: (1, 2), 3: (0, 1, 2)}


def three(values, fill):
    """Return values of one to three axes at their places among three."""
    found = [fill] * 3
    for place, value in zip(_PLACES[len(values)], values):
        found[place] = value
    return found


def long_axes(shape):
    """Return a shape without axes of length 1.

    They may be left out: a grid of fewer axes has one cell along the first ones.
    """
    return tuple(int(n) for n in shape if n != 1) or (1,)


def same_shape(given, wanted):
    """Return True if an array has the shape of a field, except for axes of length 1.

    Any empty array fits where a rank has no values.
    """
    return long_axes(given) == long_axes(wanted) or np.prod(given) == np.prod(wanted) == 0


def both_axes(one, other):
    """Return the numbers of axes of the grids of two models."""
    return {**one, **{grid: max(axes, one.get(grid, 1)) for grid, axes in other.items()}}


def _own(shape, axes):
    """Return the places of the axes of a grid that has at least `axes` axes."""
    return next(_PLACES[n] for n in range(axes, 4) if all(shape[at] == 1 for at in range(3) if at not in _PLACES[n]))


class Leaf:
    """The description of one field: kind, shape and size.

    `cells`, `modes`, `half_spectrum`, `vector` and `parameters` create leaves, and models have them
    in their domain and target.

    Attributes
    ----------
    kind : str
        "cells", "modes", "half_spectrum", "vector", "parameters" or "points".
    shape : tuple of int
        Number of cells along each axis, or length of a vector.
    size : tuple of float
        Side lengths of the box; empty for a vector.
    complex : bool
        Whether values are complex.
    components : int
        Number of values per place.
    copies : int
        Number of fields on the grid.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.cells((4, 6), size=2.0)
    <cells of (4, 6)>
    """

    def __init__(self, kind, shape, size, complex=False, components=1, points=None, copies=1):
        self.kind, self.shape, self.size, self.complex, self.components = kind, tuple(shape), tuple(size), complex, components
        self.copies = copies
        # The identity of points in the extension module.
        self._points = points

    def _place(self, complex=False, copies=1):
        """Return a leaf with one number at each place."""
        return Leaf(self.kind, self.shape, self.size, complex, points=self._points, copies=copies)

    def _with(self, **changes):
        """Return a leaf with other attributes."""
        found = Leaf.__new__(Leaf)
        found.__dict__.update(self.__dict__, **changes)
        return found

    def _in_row(self):
        """Return a vector on all ranks for the values of a grid, of as many components and copies."""
        return Leaf("vector", (math.prod(self.shape),), (), self.complex, self.components, copies=self.copies)

    @classmethod
    def _of(cls, native, axes):
        """Return the name and leaf for a description of the extension module.

        `axes` has the numbers of axes of grids.
        """
        name, kind, shape, size, complex, components, points, copies = native
        if kind in _GRIDS:
            own = _own(shape, axes.get((tuple(shape), tuple(size)), 1))
            return name, cls(kind, [shape[at] for at in own], [size[at] for at in own], complex, components, copies=copies)
        return name, cls(kind, shape if kind == "points" else shape[2:], (), complex, components, points, copies)

    def _native(self, name):
        size = three(self.size, 1.0) if self.size else [1.0] * 3
        return name, self.kind, list(three(self.shape, 1)), list(size), self.complex, self.components, self._points, self.copies

    def __getstate__(self):
        return {**self.__dict__, "_points": None if self._points is None else self._points.numbers()}

    def __setstate__(self, state):
        numbers = state["_points"]
        points = None if numbers is None else _native.NativePoints.numbered(resolve(None), numbers)
        self.__dict__.update(state, _points=points)

    def _whole(self):
        """Return the shape of the values of all ranks, with the axes of copies and components."""
        components = tuple(n for n in (self.copies, self.components) if n > 1)
        if self.kind == "points":
            return (*components, self.shape[2])
        return (*components, *self.shape[:-1], self.shape[-1] // 2 + 1 if self.kind == "half_spectrum" else self.shape[-1])

    def _places(self, counts):
        """Return the slices of each rank's values among those of all ranks; None without values.

        `counts` has the number of points of each rank.
        """
        if self.kind == "points":
            ends = np.cumsum(counts)
            return [(..., slice(int(end) - count, int(end))) for count, end in zip(counts, ends)]
        if self.kind not in _GRIDS:
            return [(...,)] + [None] * (len(counts) - 1)
        boxes = [_native.leaf_box(self._native("x"), len(counts), rank) for rank in range(len(counts))]
        own = [(..., *(slice(*box[at]) for at in _PLACES[len(self.shape)])) for box in boxes]
        return [None if any(first == end for first, end in box) else places for box, places in zip(boxes, own)]

    def __repr__(self):
        copies = f", {self.copies} copies" if self.copies > 1 else ""
        return f"<{self.kind} of {self.shape[1] if self.kind == 'points' else self.shape}{copies}>"


def _grid(kind, shape, size, complex=False, components=1, copies=1):
    shape = list(shape) if np.ndim(shape) else [shape]
    shape = tuple(whole_number(n, "shape", 1) for n in shape)
    if not 1 <= len(shape) <= 3:
        more = f"; for fields on {len(shape) - 1} axes pass copies={shape[0]}" if len(shape) == 4 else ""
        raise ValueError(f"shape: expected one to three axes, got {len(shape)}{more}")
    size = tuple(float(n) for n in shape) if size is None else size
    size = (size,) * len(shape) if np.ndim(size) == 0 else tuple(size)
    if len(size) != len(shape):
        raise ValueError(f"size: expected {len(shape)} lengths, got {len(size)}")
    size = [real_number(length, "size") for length in size]
    for length in size:
        if not 0 < length < np.inf:
            raise ValueError(f"size: expected positive finite lengths, got {length:g}")
    components, copies = whole_number(components, "components", 1), whole_number(copies, "copies", 1)
    return Leaf(kind, shape, size, bool(complex), components, copies=copies)


def cells(shape, size=None, complex=False, components=1, copies=1):
    """Create a leaf of values at the cells of a periodic grid.

    Parameters
    ----------
    shape : int or sequence of int
        Number of cells along each of one to three axes.
    size : float or sequence of float, optional
        Side lengths of the box in the unit of the caller, positive. Default: `shape`, cells of side
        1.
    complex : bool, default False
        Whether values are complex.
    components : int, default 1
        Number of values per cell. Arrays then have the shape ``(components, *shape)``.
    copies : int, default 1
        Number of fields on the grid, such as frequencies or times: an axis before all others.
        Arrays have the shape ``(copies, *shape)``, or ``(copies, components, *shape)``.

    Returns
    -------
    Leaf

    Raises
    ------
    ValueError
        If there are not one to three axes, or a size is not positive and finite.

    Notes
    -----
    Components belong together: a pointwise function takes the components at a place as a vector.
    Copies are independent: operators act on each of them. `join` and `split` put fields together as
    copies and take them apart, `broadcast` repeats one field as all copies, and arithmetic with an
    array of shape ``(copies, 1, 1, 1)`` gives each copy a number.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.cells(8).shape
    (8,)
    >>> op.fourier(op.cells((16, 16, 16), copies=5)).target
    {'x': (5, 16, 16, 9)}
    """
    return _grid("cells", shape, size, complex, components, copies)


def modes(shape, size=None, components=1, copies=1):
    """Create a leaf of one real number per mode of a grid, the result of `hartley`.

    Parameters
    ----------
    shape, size, components, copies
        As in `cells`: those of the grid, not of its modes.

    Returns
    -------
    Leaf

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.modes((4, 4))
    <modes of (4, 4)>
    """
    return _grid("modes", shape, size, False, components, copies)


def half_spectrum(shape, size=None, components=1, copies=1):
    """Create a leaf of the complex modes of a real field, the result of `fourier`.

    Parameters
    ----------
    shape, size, components, copies
        As in `cells`: those of the grid, not of its modes.

    Returns
    -------
    Leaf

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.half_spectrum((4, 4)).complex
    True
    """
    return _grid("half_spectrum", shape, size, True, components, copies)


def vector(length):
    """Create a leaf of a short vector of real numbers.

    Parameters
    ----------
    length : int
        Number of elements, 1 or more. A vector of length 1 can be combined with fields: it has the
        same value at all places.

    Returns
    -------
    Leaf

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.vector(3)
    <vector of (3,)>
    """
    return Leaf("vector", (whole_number(length, "length", 1),), ())


def points(count, total=None, components=1):
    """Create a leaf of values at points, such as the positions of particles.

    Parameters
    ----------
    count : int
        Number of points; with ranks, of this rank.
    total : int, optional
        Number of points of all ranks. Default: `count`.
    components : int, default 1
        Number of values per point. Arrays then have the shape ``(components, count)``.

    Returns
    -------
    Leaf

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.points(5, components=3)
    <points of 5>
    """
    own = whole_number(count, "count", 0)
    total = own if total is None else whole_number(total, "total", own)
    return Leaf("points", (1, own, total), (), False, whole_number(components, "components", 1))


def parameters(length):
    """Create a leaf of float64 numbers on the host, such as the cosmology of a simulation.

    Parameters
    ----------
    length : int
        Number of elements, 1 or more.

    Returns
    -------
    Leaf

    Notes
    -----
    Values are NumPy arrays instead of device arrays.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.parameters(7)
    <parameters of (7,)>
    """
    return Leaf("parameters", (whole_number(length, "length", 1),), ())


class Space:
    """Named leaves: the description of the fields that a model takes or gives.

    Parameters
    ----------
    leaves : dict of str to Leaf, optional
        Leaves by name; needed for names with slashes.
    **named : Leaf
        Leaves by name.

    Attributes
    ----------
    leaves : dict of str to Leaf
        Leaves in alphabetical order.

    Raises
    ------
    ValueError
        If there is no leaf.
    TypeError
        If a value is not a `Leaf`.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.Space(x=op.cells((64, 64)), rate=op.vector(1))
    Space({'rate': <vector of (1,)>, 'x': <cells of (64, 64)>})
    """

    def __init__(self, leaves=None, **named):
        leaves = {**({} if leaves is None else dict(leaves)), **named}
        if not leaves:
            raise ValueError("expected at least one leaf, got none")
        for name, leaf in leaves.items():
            if not isinstance(name, str) or not isinstance(leaf, Leaf):
                raise TypeError(f"expected leaves with names, got {name!r}: {leaf!r}")
        self.leaves = dict(sorted(leaves.items()))

    @property
    def _axes(self):
        """Number of axes of each grid, by its cells and sides along three axes."""
        grids = [leaf for leaf in self.leaves.values() if leaf.kind in _GRIDS]
        return {(tuple(three(leaf.shape, 1)), tuple(three(leaf.size, 1.0))): len(leaf.shape) for leaf in sorted(grids, key=lambda leaf: len(leaf.shape))}

    def _native(self):
        return [leaf._native(name) for name, leaf in self.leaves.items()]

    def _said(self):
        """Return the part that must be the same on all ranks."""
        return {
            name: (leaf.kind, leaf.shape[2:] if leaf.kind == "points" else leaf.shape, leaf.size, leaf.complex, leaf.components, leaf.copies)
            for name, leaf in self.leaves.items()
        }

    def _only(self, what):
        if len(self.leaves) != 1:
            raise ValueError(f"{what}: expected a space of one leaf, got {list(self.leaves)}")
        return next(iter(self.leaves.items()))

    def __repr__(self):
        return f"Space({self.leaves})"


def _of_axes(shape, places):
    """Return a rank's part of a grid of three axes, reduced to the axes at `places`."""
    own = [shape[at] for at in places]
    return own if 0 in own or 0 not in shape else [0, *own[1:]]


class Fields(dict):
    """Names of leaves with the shapes of this rank's values: the domain or target of a model.

    It can be passed as a `Space` to other operators. `flatten` and `restore` convert its fields to
    vectors and back, for optimizers and linear algebra of other libraries.

    Attributes
    ----------
    size : int
        Number of real numbers of a field, on all ranks together.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> domain = op.hartley(op.cells((2, 2))).domain
    >>> vector = domain.flatten(np.ones((2, 2)))
    >>> vector.tolist(), domain.restore(vector).shape
    ([1.0, 1.0, 1.0, 1.0], (2, 2))
    """

    def __init__(self, described, axes, comm):
        self.space, self._comm = Space(dict(Leaf._of(native, axes) for native, _ in described)), comm
        shapes = {}
        for native, shape in described:
            leaf = self.space.leaves[native[0]]
            own = tuple(shape)
            if leaf.kind in _GRIDS:
                own = (*own[:-3], *_of_axes(own[-3:], _PLACES[len(leaf.shape)]))
            shapes[native[0]] = own
        super().__init__(shapes)

    @classmethod
    def _of_space(cls, space, comm):
        """Return the shapes of this rank's values of a space."""
        described = [leaf._native(name) for name, leaf in space.leaves.items()]
        return cls([(native, _native.leaf_shape(comm, native)) for native in described], space._axes, comm)

    def __reduce__(self):
        return _fields_alone, (self.space,)

    @property
    def size(self):
        return sum(math.prod(leaf._whole()) * (1 + leaf.complex) for leaf in self.space.leaves.values())

    def flatten(self, field):
        """Convert a field to a vector of real numbers.

        Parameters
        ----------
        field : array_like, Array or dict of them
            A field of these leaves.

        Returns
        -------
        ndarray of float64, shape (size,)
            Leaves in the order of their names, each in C order. A complex number is its real and
            its imaginary part, so that the dot product of two vectors is the inner product of their
            fields. With several ranks, every rank has the whole vector.

        Raises
        ------
        ValueError
            If names or shapes of `field` do not fit.
        TypeError
            If elements are not numbers, or are complex in a real leaf.

        Notes
        -----
        Collective with the model's `comm`. Vectors have the same order on any number of ranks, but
        points are in the order of the ranks.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> op.fourier(op.cells(4)).target.flatten([1.0, 2.0 + 3.0j, 4.0]).tolist()
        [1.0, 0.0, 2.0, 3.0, 4.0, 0.0]
        """
        wholes = self._assembled(lambda: self._arrays(field))
        parts = [np.ascontiguousarray(whole, np.complex128 if whole.dtype.kind == "c" else np.float64) for whole in wholes]
        return np.concatenate([part.ravel().view(np.float64) for part in parts])

    def restore(self, vector):
        """Convert a vector back to a field, the inverse of `flatten`.

        Parameters
        ----------
        vector : array_like, shape (N,)
            The N numbers of `flatten`, the same on all ranks.

        Returns
        -------
        ndarray or dict of ndarray
            The field in float64 and complex128; with several ranks, the part of this rank.

        Raises
        ------
        ValueError
            If `vector` has another shape, or differs between ranks.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> space = op.Space(b=op.vector(2), a=op.vector(1))
        >>> domain = op.join(space).domain
        >>> domain.restore([1.0, 2.0, 3.0])
        {'a': array([1.]), 'b': array([2., 3.])}
        """

        def check():
            own = np.asarray(plain(vector, "vector"))
            if own.dtype.kind not in "biuf":
                raise TypeError(f"vector: expected real numbers, got {own.dtype}")
            if own.shape != (self.size,):
                raise ValueError(f"vector: expected shape {(self.size,)}, got {own.shape}")
            own = own.astype(np.float64)
            return own, {"function": "restore", "vector": summary(own) if self._comm.size > 1 else None}, self._counts()

        own, counts = gathered(self._comm, check)
        field, first = {}, 0
        for at, (name, leaf) in enumerate(self.space.leaves.items()):
            end = first + math.prod(leaf._whole()) * (1 + leaf.complex)
            numbers, first = own[first:end], end
            field[name] = self._part(name, numbers.view(np.complex128) if leaf.complex else numbers, counts)
        return next(iter(field.values())) if len(field) == 1 else field

    def _arrays(self, field):
        """Return this rank's values of a field on the host, in the order of the names."""
        if not isinstance(field, collections.abc.Mapping):
            if len(self) != 1:
                raise TypeError(f"field: expected a dictionary of {list(self)}, got one array")
            field = {next(iter(self)): field}
        if not set(self) <= set(field):
            raise ValueError(f"field: expected the leaves {list(self)}, got {sorted(field)}")
        found = []
        for name, shape in self.items():
            array = np.asarray(plain(field[name], name))
            is_complex = self.space.leaves[name].complex
            if array.dtype.kind not in ("biufc" if is_complex else "biuf"):
                raise TypeError(f"`{name}`: expected {'complex' if is_complex else 'real'} numbers, got {array.dtype}")
            if not same_shape(array.shape, shape) and array.shape != (math.prod(shape),):
                raise ValueError(f"`{name}`: expected shape {long_axes(shape)}, got {array.shape}")
            single = array.dtype in (np.float32, np.complex64)
            wanted = (np.complex64 if single else np.complex128) if is_complex else (np.float32 if single else np.float64)
            found.append(np.ascontiguousarray(array, wanted).reshape(shape))
        return found

    def _counts(self):
        """Return the number of this rank's points of each leaf, 0 for other leaves."""
        return [leaf.shape[1] if leaf.kind == "points" else 0 for leaf in self.space.leaves.values()]

    def _assembled(self, arrays, which=None):
        """Return the values of all ranks for those of this rank, which a function returns.

        `which` has the numbers of the leaves. Default: all.
        """
        which = range(len(self)) if which is None else which

        def check():
            own = arrays()
            return own, {"function": "flatten", "leaves": list(self)}, (self._counts(), own if self._comm.size > 1 else None)

        leaves = list(self.space.leaves.values())
        own, told = gathered(self._comm, check)
        if self._comm.size == 1:
            return [array.reshape(leaves[at]._whole()) for at, array in zip(which, own)]
        counts, parts = zip(*told)
        found = []
        for number, at in enumerate(which):
            own = [part[number] for part in parts]
            whole = np.zeros(leaves[at]._whole(), np.result_type(*own))
            for places, part in zip(leaves[at]._places([count[at] for count in counts]), own):
                if places is not None:
                    whole[places] = part.reshape(whole[places].shape)
            found.append(whole)
        return found

    def _part(self, name, whole, counts):
        """Return this rank's part of the values of all ranks; `counts` has those of `_counts`."""
        leaf, at = self.space.leaves[name], list(self).index(name)
        whole = whole.reshape(leaf._whole())
        if leaf.kind in ("vector", "parameters"):
            return whole.copy()
        places = leaf._places([count[at] for count in counts])[self._comm.rank]
        return np.zeros(self[name], whole.dtype) if places is None else whole[places].reshape(self[name]).copy()


def _fields_alone(space):
    """Return the shapes of the values of a space on this process alone."""
    return Fields._of_space(space, resolve(None))


def space_of(space):
    """Return the space of a `Space`, a `Leaf`, or the domain or target of a model."""
    if isinstance(space, Fields):
        return space.space
    if isinstance(space, Leaf):
        return Space(x=space)
    if not isinstance(space, Space):
        raise TypeError(f"space: expected a Space, got {type(space).__name__}")
    return space
