"""Spaces: named leaves, each a field on a grid, at points, or a few numbers."""

import numpy as np

from ._arguments import real_number, whole_number

_GRIDS = ("cells", "modes", "half_spectrum")
# Where the axes of a grid are among the library's three, by their number.
_PLACES = {1: (2,), 2: (1, 2), 3: (0, 1, 2)}


def three(values, fill):
    """Values of one to three axes, those of a grid, at their places among three."""
    found = [fill] * 3
    for place, value in zip(_PLACES[len(values)], values):
        found[place] = value
    return found


def _own(shape, axes):
    """The places of the axes of a grid that has so many at least."""
    return next(_PLACES[n] for n in range(axes, 4) if all(shape[at] == 1 for at in range(3) if at not in _PLACES[n]))


class Leaf:
    """Where the values of one field are: made by `cells`, `modes`, `half_spectrum`, `vector` or `parameters`, or given by a model."""

    def __init__(self, kind, shape, size, complex=False, components=1, points=None):
        self.kind, self.shape, self.size, self.complex, self.components = kind, tuple(shape), tuple(size), complex, components
        # Of points: which of all they are, as the library knows it.
        self._points = points

    def _place(self, complex=False):
        """One number at each of its places, real unless asked for."""
        return Leaf(self.kind, self.shape, self.size, complex, points=self._points)

    @classmethod
    def _of(cls, native, axes):
        """The leaf that the library describes, on a grid of so many axes, and its name."""
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
        raise ValueError(f"a grid has one to three axes, not {len(shape)}")
    size = tuple(float(n) for n in shape) if size is None else size
    size = (size,) * len(shape) if np.ndim(size) == 0 else tuple(size)
    if len(size) != len(shape):
        raise ValueError(f"size has {len(size)} lengths for a grid of {len(shape)} axes")
    size = [real_number(length, "size") for length in size]
    for length in size:
        if not 0 < length < np.inf:
            raise ValueError(f"size must be positive and finite, got {length:g}")
    return Leaf(kind, shape, size, bool(complex), whole_number(components, "components", 1))


def cells(shape, size=None, complex=False, components=1):
    """Values at the cells of a periodic grid.

    Parameters
    ----------
    shape : int or sequence of int
        Cells along each of one to three axes.
    size : float or sequence of float, optional
        Sides of the box; one for each cell unless given.
    complex : bool
        Whether values are complex.
    components : int
        Values at one place, which come first in arrays: a field has the shape ``(components, *shape)``.
    """
    return _grid("cells", shape, size, complex, components)


def modes(shape, size=None, components=1):
    """One real number for each mode of a grid, as `hartley` gives them; arguments are those of `cells`."""
    return _grid("modes", shape, size, False, components)


def half_spectrum(shape, size=None, components=1):
    """The complex modes of a real field, as `fourier` gives them; arguments are those of `cells`."""
    return _grid("half_spectrum", shape, size, True, components)


def vector(length):
    """A small vector; of length 1 it is one number for all places of other leaves."""
    return Leaf("vector", (whole_number(length, "length", 1),), ())


def parameters(length):
    """Numbers in double precision on the host, as a run takes its cosmology; arrays of NumPy's hold them."""
    return Leaf("parameters", (whole_number(length, "length", 1),), ())


class Space:
    """Leaves with names: ``Space(x=cells((64, 64)), rate=vector(1))``; a dictionary holds names with slashes."""

    def __init__(self, leaves=None, **named):
        leaves = {**({} if leaves is None else dict(leaves)), **named}
        if not leaves:
            raise ValueError("a space has at least one leaf")
        for name, leaf in leaves.items():
            if not isinstance(name, str) or not isinstance(leaf, Leaf):
                raise TypeError(f"a space is made of leaves with names, not {name!r}: {leaf!r}")
        self.leaves = dict(sorted(leaves.items()))

    @property
    def _axes(self):
        """Axes of its grids."""
        return max((len(leaf.shape) for leaf in self.leaves.values() if leaf.kind in _GRIDS), default=1)

    def _native(self):
        return [leaf._native(name) for name, leaf in self.leaves.items()]

    def _said(self):
        """What must be the same on all ranks: of points how many there are on all of them."""
        return {
            name: (leaf.kind, leaf.shape[2:] if leaf.kind == "points" else leaf.shape, leaf.size, leaf.complex, leaf.components)
            for name, leaf in self.leaves.items()
        }

    def _only(self, what):
        if len(self.leaves) != 1:
            raise ValueError(f"{what} is of one leaf, not of {list(self.leaves)}")
        return next(iter(self.leaves.items()))

    def __repr__(self):
        return f"Space({self.leaves})"


def _of_axes(shape, places):
    """A rank's part of a grid of three axes as one of those at `places`; none of it where a rank has no part of another axis."""
    own = [shape[at] for at in places]
    return own if 0 in own or 0 not in shape else [0, *own[1:]]


class Fields(dict):
    """Names of leaves with the shapes of this rank's values, as a model takes or gives them; a `Space` for other operators."""

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
    """A space, one made of a leaf, or that of what a model takes or gives."""
    if isinstance(space, Fields):
        return space.space
    if isinstance(space, Leaf):
        return Space(x=space)
    if not isinstance(space, Space):
        raise TypeError(f"space must be a Space, not {type(space).__name__}")
    return space
