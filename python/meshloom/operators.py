"""Models of fields: differentiable functions, composed of operators and of functions in WGSL.

A `Space` is a dictionary of leaves; a field is a dictionary of arrays, or one array where a space has one leaf. A `Model` has a value and, at a
point, the products with its derivative: ``jvp`` and ``vjp``. All is computed on the device in single precision and stays there as
`meshloom.Array` until it is asked for.

Examples
--------
>>> import numpy as np
>>> from meshloom import operators as op
>>> cells = op.Space(x=op.cells((4, 6)))
>>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", cells, "y")
>>> x = np.full((4, 6), 3.0, dtype=np.float32)
>>> at = square.at(x)
>>> float(np.asarray(at.value)[0, 0]), float(np.asarray(at.jvp(x))[0, 0]), float(np.asarray(at.vjp(x))[0, 0])
(9.0, 18.0, 18.0)
>>> smooth = square.then(op.hartley(square.target))
>>> smooth.target
{'y': (4, 6)}
"""

import collections.abc
import numbers

import numpy as np

from . import _native
from ._arrays import whole_number
from ._comm import resolve
from ._device_array import Array, asarray

__all__ = ["Linearisation", "Leaf", "Model", "Space", "cells", "diagonal", "fourier", "half_spectrum", "hartley", "modes", "pointwise", "vector"]


class Leaf:
    """Where the values of one field are: made by `cells`, `modes`, `half_spectrum` or `vector`."""

    def __init__(self, kind, shape, size, complex, components):
        self.kind, self.shape, self.size, self.complex, self.components = kind, shape, size, complex, components

    def _three(self):
        """Cells and sides along three axes."""
        ones = 3 - len(self.shape)
        return [1] * ones + list(self.shape), [1.0] * ones + list(self.size)

    def __repr__(self):
        return f"<{self.kind} of {self.shape}>"


def _grid(kind, shape, size, complex=False, components=1):
    shape = [shape] if isinstance(shape, numbers.Integral) else list(shape)
    shape = tuple(whole_number(n, "shape", 1) for n in shape)
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"a grid has one to three axes, not {len(shape)}")
    size = tuple(float(n) for n in shape) if size is None else size
    size = (size,) * len(shape) if np.ndim(size) == 0 else tuple(size)
    if len(size) != len(shape):
        raise ValueError(f"size has {len(size)} lengths for a grid of {len(shape)} axes")
    return Leaf(kind, shape, [float(length) for length in size], bool(complex), whole_number(components, "components", 1))


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
    return Leaf("vector", (whole_number(length, "length", 1),), (1.0,), False, 1)


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

    def _native(self):
        return [(name, leaf.kind, *leaf._three(), leaf.complex, leaf.components) for name, leaf in self.leaves.items()]

    def __repr__(self):
        return f"Space({self.leaves})"


def _space(space):
    """A space, or that which a model gives."""
    if isinstance(space, _Target):
        return space.space
    if isinstance(space, Leaf):
        return Space(x=space)
    if not isinstance(space, Space):
        raise TypeError(f"space must be a Space, not {type(space).__name__}")
    return space


class _Target(dict):
    """Names of leaves with the shapes of their values, and the space that they are of where that is known."""

    def __init__(self, shapes, space=None):
        super().__init__(shapes)
        self.space = space


def _leaf_of(domain, kind):
    """The only leaf of a space of cells, made modes of one kind, or back."""
    ((name, leaf),) = domain.leaves.items()
    return Space({name: Leaf(kind, leaf.shape, leaf.size, kind == "half_spectrum", leaf.components)})


def _shape(name, shape, space):
    """The shape of a leaf's values without the axes that a grid of fewer than three does not have."""
    leaf = space.leaves.get(name) if space else None
    if leaf is None or leaf.kind == "vector":
        return tuple(shape)
    return (*shape[:-3], *shape[-len(leaf.shape) :])


class Linearisation:
    """A model at a point.

    Attributes
    ----------
    value : Array or dict of Array
        The value there.
    """

    def __init__(self, model, value, native):
        self._model, self.value, self._native = model, value, native

    def jvp(self, tangent):
        """The derivative times a tangent, a field of what the model takes."""
        model = self._model
        return model._result(model.target, self._native.jvp(model._given(model._native.domain, tangent)))

    def vjp(self, cotangent):
        """A cotangent, a field of what the model gives, times the derivative."""
        model = self._model
        return model._result(model.domain, self._native.vjp(model._given(model._native.target, cotangent)))


class Model:
    """A differentiable function of fields; made by `pointwise`, `fourier`, `hartley` and `diagonal`, and composed here.

    Attributes
    ----------
    domain, target : dict
        Names and shapes of the fields that it takes and gives. What one model gives, another takes: ``hartley(model.target)``.
    """

    def __init__(self, native, comm, domain=None, target=None):
        self._native, self._comm = native, comm
        self.domain = _Target({name: _shape(name, shape, domain) for name, shape, _ in native.domain}, domain)
        self.target = _Target({name: _shape(name, shape, target) for name, shape, _ in native.target}, target)

    def __repr__(self):
        return f"<meshloom.Model {self._native.name}: {dict(self.domain)} -> {dict(self.target)}>"

    def _given(self, leaves, values):
        """The arrays of a field, in the order of the names, on the device."""
        if not isinstance(values, collections.abc.Mapping):
            if len(leaves) != 1:
                raise TypeError(f"give a dictionary of the fields {[name for name, *_ in leaves]}")
            values = {leaves[0][0]: values}
        if set(values) != {name for name, *_ in leaves}:
            raise ValueError(f"fields {sorted(values)} are given, {[name for name, *_ in leaves]} are needed")
        arrays = []
        for name, shape, is_complex in leaves:
            array = asarray(values[name], None if isinstance(values[name], Array) else np.complex64 if is_complex else np.float32, self._comm)
            # A grid of fewer axes has one cell along the first ones.
            if array.size != np.prod(shape) or [n for n in array.shape if n > 1] != [n for n in shape if n > 1]:
                raise ValueError(f"`{name}` has the shape {array.shape}; it must be {tuple(shape)}")
            arrays.append(array._native)
        return arrays

    @staticmethod
    def _result(shapes, arrays):
        fields = {name: Array(array).reshape(shape) for (name, shape), array in zip(shapes.items(), arrays)}
        return next(iter(fields.values())) if len(fields) == 1 else fields

    def __call__(self, x):
        """The value at `x`: an array, or a dictionary where there are several leaves."""
        return self._result(self.target, self._native.value(self._given(self._native.domain, x)))

    def at(self, x):
        """The value and the derivative at `x`, a `Linearisation`."""
        found, derivative = self._native.at(self._given(self._native.domain, x))
        return Linearisation(self, self._result(self.target, found), derivative)

    def _joined(self, other, how, domain=None, target=None):
        if not isinstance(other, Model):
            raise TypeError(f"a model is composed with models, not {type(other).__name__}")
        return Model(how(other._native), self._comm, domain, target)

    def _both(self, other):
        """The space of the arguments of both, where it is known."""
        mine, theirs = self.domain.space, getattr(getattr(other, "domain", None), "space", None)
        return Space({**mine.leaves, **theirs.leaves}) if mine and theirs else None

    def then(self, next):
        """This model, and another one of what it gives."""
        return self._joined(next, self._native.then, self.domain.space, getattr(getattr(next, "target", None), "space", None))

    def zip(self, other):
        """Both side by side: a function of the leaves of both (of one name, they are one) that gives the leaves of both."""
        mine, theirs = self.target.space, getattr(getattr(other, "target", None), "space", None)
        target = Space({**mine.leaves, **theirs.leaves}) if mine and theirs else None
        return self._joined(other, self._native.zip, self._both(other), target)

    def __add__(self, other):
        return self._joined(other, self._native.plus, self._both(other), self.target.space)

    def __mul__(self, other):
        return self._joined(other, self._native.times, self._both(other), self.target.space)


def pointwise(text, function, space, result, comm=None):
    """A function in WGSL of the values at one place, as a model; its derivatives are derived from the text.

    Parameters
    ----------
    text : str
        WGSL: floats, vectors, `let`, `var`, structures, `if`, calls of other functions and all builtin functions of floats.
    function : str
        The name of the function. Its arguments are leaves of `space`, by their names.
    space : Space
        What it is a function of: leaves at the same places, and vectors of length 1.
    result : str
        The name of what it gives.
    comm : Comm or mpi4py.MPI.Comm, optional

    Raises
    ------
    ValueError
        With the line of what is no such function.
    """
    space, comm = _space(space), resolve(comm)
    native = _native.NativeModel.pointwise(comm, space._native(), text, function, result)
    main = next((leaf for leaf in space.leaves.values() if leaf.kind != "vector"), next(iter(space.leaves.values())))
    components = native.target[0][1]
    given = Leaf(main.kind, main.shape, main.size, False, components[0] if len(components) == 4 else 1)
    return Model(native, comm, space, Space({result: given}))


def _transform(kind, space, adjoint, comm, to):
    space, comm = _space(space), resolve(comm)
    if len(space.leaves) != 1:
        raise ValueError(f"a transform is of one leaf, not of {list(space.leaves)}")
    native = _native.NativeModel.transform(comm, space._native(), kind, bool(adjoint))
    there = _leaf_of(space, to)
    return Model(native, comm, *((there, space) if adjoint else (space, there)))


def fourier(space, adjoint=False, comm=None):
    """The Fourier transform of the only leaf of `space`, real cells, to a half spectrum; or its adjoint, from modes to those cells."""
    return _transform("fourier", space, adjoint, comm, "half_spectrum")


def hartley(space, adjoint=False, comm=None):
    """The Hartley transform of the only leaf of `space`, real cells, to as many real modes; or its adjoint, from modes to those cells."""
    return _transform("hartley", space, adjoint, comm, "modes")


def diagonal(space, factors, comm=None):
    """Multiplication of the only leaf of `space` by factors, one for each of its values."""
    space, comm = _space(space), resolve(comm)
    factors = factors if isinstance(factors, collections.abc.Mapping) else {name: factors for name in space.leaves}
    single = [np.complex64 if leaf.complex else np.float32 for leaf in space.leaves.values()]
    arrays = [asarray(factors[name], None if isinstance(factors[name], Array) else dtype, comm)._native for name, dtype in zip(space.leaves, single)]
    return Model(_native.NativeModel.diagonal(comm, space._native(), arrays), comm, space, space)
