"""Spaces: named leaves, each a field on a grid, at points, or a few numbers."""

import numpy as np

from ._arguments import real_number, whole_number

_GRIDS = ("cells", "modes", "half_spectrum")
# Places of the axes of a grid among the three of the extension module, by their number.
_PLACES = {1: (2,), 2: (1, 2), 3: (0, 1, 2)}


def three(values, fill):
    """Return values of one to three axes at their places among three."""
    found = [fill] * 3
    for place, value in zip(_PLACES[len(values)], values):
        found[place] = value
    return found


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

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.cells((4, 6), size=2.0)
    <cells of (4, 6)>
    """

    def __init__(self, kind, shape, size, complex=False, components=1, points=None):
        self.kind, self.shape, self.size, self.complex, self.components = kind, tuple(shape), tuple(size), complex, components
        # The identity of points in the extension module.
        self._points = points

    def _place(self, complex=False):
        """Return a leaf with one number at each place."""
        return Leaf(self.kind, self.shape, self.size, complex, points=self._points)

    @classmethod
    def _of(cls, native, axes):
        """Return the name and leaf for a description of the extension module."""
        name, kind, shape, size, complex, components, points = native
        if kind in _GRIDS:
            own = _own(shape, axes)
            return name, cls(kind, [shape[at] for at in own], [size[at] for at in own], complex, components)
        return name, cls(kind, shape if kind == "points" else shape[2:], (), complex, components, points)

    def _native(self, name):
        size = three(self.size, 1.0) if self.size else [1.0] * 3
        return name, self.kind, list(three(self.shape, 1)), size, self.complex, self.components, self._points

    def __repr__(self):
        return f"<{self.kind} of {self.shape[1] if self.kind == 'points' else self.shape}>"


def _grid(kind, shape, size, complex=False, components=1):
    shape = list(shape) if np.ndim(shape) else [shape]
    shape = tuple(whole_number(n, "shape", 1) for n in shape)
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"shape: expected one to three axes, got {len(shape)}")
    size = tuple(float(n) for n in shape) if size is None else size
    size = (size,) * len(shape) if np.ndim(size) == 0 else tuple(size)
    if len(size) != len(shape):
        raise ValueError(f"size: expected {len(shape)} lengths, got {len(size)}")
    size = [real_number(length, "size") for length in size]
    for length in size:
        if not 0 < length < np.inf:
            raise ValueError(f"size: expected positive finite lengths, got {length:g}")
    return Leaf(kind, shape, size, bool(complex), whole_number(components, "components", 1))


def cells(shape, size=None, complex=False, components=1):
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

    Returns
    -------
    Leaf

    Raises
    ------
    ValueError
        If there are not one to three axes, or a size is not positive and finite.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.cells(8).shape
    (8,)
    """
    return _grid("cells", shape, size, complex, components)


def modes(shape, size=None, components=1):
    """Create a leaf of one real number per mode of a grid, the result of `hartley`.

    Parameters
    ----------
    shape, size, components
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
    return _grid("modes", shape, size, False, components)


def half_spectrum(shape, size=None, components=1):
    """Create a leaf of the complex modes of a real field, the result of `fourier`.

    Parameters
    ----------
    shape, size, components
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
    return _grid("half_spectrum", shape, size, True, components)


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
        """Number of axes of its grids."""
        return max((len(leaf.shape) for leaf in self.leaves.values() if leaf.kind in _GRIDS), default=1)

    def _native(self):
        return [leaf._native(name) for name, leaf in self.leaves.items()]

    def _said(self):
        """Return the part that must be the same on all ranks."""
        return {
            name: (leaf.kind, leaf.shape[2:] if leaf.kind == "points" else leaf.shape, leaf.size, leaf.complex, leaf.components)
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

    It can be passed as a `Space` to other operators.
    """

    def __init__(self, described, axes):
        self.space = Space(dict(Leaf._of(native, axes) for native, _ in described))
        shapes = {}
        for native, shape in described:
            leaf = self.space.leaves[native[0]]
            own = tuple(shape)
            if leaf.kind in _GRIDS:
                own = (*own[:-3], *_of_axes(own[-3:], _PLACES[len(leaf.shape)]))
            shapes[native[0]] = own
        super().__init__(shapes)


def space_of(space):
    """Return the space of a `Space`, a `Leaf`, or the domain or target of a model."""
    if isinstance(space, Fields):
        return space.space
    if isinstance(space, Leaf):
        return Space(x=space)
    if not isinstance(space, Space):
        raise TypeError(f"space: expected a Space, got {type(space).__name__}")
    return space
