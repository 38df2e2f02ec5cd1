"""Models: differentiable functions of fields, and their composition."""

import collections.abc

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._comm import agreed, together
from ._device_array import Array, asarray
from ._space import Fields


def given(described, values, comm):
    """The arrays of a field for these leaves, in the order of their names, where the library takes them."""
    names = [native[0] for native, _ in described]
    if not isinstance(values, collections.abc.Mapping):
        if len(names) != 1:
            raise TypeError(f"give a dictionary of the fields {names}")
        values = {names[0]: values}
    if set(values) != set(names):
        raise ValueError(f"fields {sorted(values)} are given, {names} are needed")
    return [_given_one(native, shape, values[native[0]], comm) for native, shape in described]


def long_axes(shape):
    """A shape without axes of length 1, which may be left out: a grid of fewer axes has one cell along the first ones."""
    return tuple(int(n) for n in shape if n != 1) or (1,)


def same_shape(given, wanted):
    """Whether an array has the shape of a field, but for axes of length 1; where a rank has nothing any shape without values will do."""
    return long_axes(given) == long_axes(wanted) or np.prod(given) == np.prod(wanted) == 0


def _given_one(native, shape, value, comm):
    name, kind, is_complex = native[0], native[1], native[4]
    if kind == "parameters":
        array = np.ascontiguousarray(np.asarray(value, dtype=np.float64))
    elif isinstance(value, Array):
        value._native.belongs_to(comm)
        wanted = np.dtype(np.complex64 if is_complex else np.float32)
        if value.dtype != wanted:
            raise ValueError(f"`{name}` is {value.dtype} on the device, where it must be {wanted}: models compute in single precision")
        array = value
    else:
        array = asarray(value, np.complex64 if is_complex else np.float32, comm)
    if not same_shape(array.shape, shape):
        # Optimizers work with flat vectors.
        if array.ndim != 1 or array.size != np.prod(shape):
            raise ValueError(f"`{name}` has the shape {array.shape}; it must be {long_axes(shape)}, or a flat vector of {np.prod(shape)} numbers")
        array = array.reshape(tuple(int(n) for n in shape))
    return array.ravel() if kind == "parameters" else array._native


def of_given(comm, function, fields, call):
    """What a function of fields gives. `fields` are the leaves of each, and its values. All ranks call it."""

    def check():
        return [given(described, values, comm) for described, values in fields], {"function": function}, None

    return together(comm, check, lambda own, _: call(*own))


def result(fields, arrays):
    """What the library gives: an array, or a dictionary where there are several leaves."""
    found = {
        name: array if isinstance(array, np.ndarray) else Array(array).reshape(shape)
        for (name, shape), array in zip(fields.items(), arrays)
    }
    return next(iter(found.values())) if len(found) == 1 else found


def _check_grids(gives, takes):
    """Refuses grids of other shapes or sizes than a model gives, in words of those who made them; the library checks the rest."""
    pairs = zip(gives.items(), takes.values()) if len(gives) == len(takes) == 1 else (((name, gives[name]), leaf) for name, leaf in takes.items() if name in gives)
    for (name, one), other in pairs:
        if one.size and other.size and (long_axes(one.shape), one.size) != (long_axes(other.shape), other.size):
            said = [f"{leaf} with sides {leaf.size}" for leaf in (one, other)]
            raise ValueError(f"`{name}`: the model gives {said[0]}, the next one takes {said[1]}; make both of one space, as with `model.target`")


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
        return result(model.target, of_given(model._comm, "jvp", [(model._native.domain, tangent)], self._native.jvp))

    def vjp(self, cotangent):
        """A cotangent, a field of what the model gives, times the derivative: the adjoint, with the real and imaginary parts of complex numbers as two real ones,
        which is the conjugate of JAX's for the conjugate cotangent."""
        model = self._model
        return result(model.domain, of_given(model._comm, "vjp", [(model._native.target, cotangent)], self._native.vjp))

    def jacobian(self, chunk=64):
        """The derivative as a matrix in host memory, of a model on one rank: rows are numbers of what it gives, columns of what it takes, leaf by leaf.

        Products with unit vectors give it, of rows or of columns, whichever are fewer, `chunk` of them at a time.
        """
        matrix, rows, columns = agreed(self._model._comm, lambda: self._native.jacobian(whole_number(chunk, "chunk", 1)))
        return matrix.reshape(rows, columns)


class Model:
    """A differentiable function of fields; the functions of `meshloom.operators` and `meshloom.inference` make them, and they are composed here.

    Attributes
    ----------
    domain, target : dict
        Names and shapes of the fields that it takes and gives. What one model gives, another takes: ``hartley(model.target)``.
    """

    def __init__(self, native, comm, axes):
        self._native, self._comm, self._axes = native, comm, axes
        self.domain, self.target = Fields(native.domain, axes), Fields(native.target, axes)

    def __repr__(self):
        return f"<meshloom.Model {self._native.name}: {dict(self.domain)} -> {dict(self.target)}>"

    def __call__(self, x):
        """The value at `x`: an array, or a dictionary where there are several leaves."""
        return result(self.target, of_given(self._comm, "a model", [(self._native.domain, x)], self._native.value))

    def at(self, x):
        """The value and the derivative at `x`, a `Linearisation`."""
        found, derivative = of_given(self._comm, "at", [(self._native.domain, x)], self._native.at)
        return Linearisation(self, result(self.target, found), derivative)

    def random(self, seed=0, scale=1.0):
        """Standard normal numbers times a scale, a field of what it takes: the same for a seed on any number of ranks."""
        return random(self._native.domain, self.domain, self._comm, seed, scale)

    def _joined(self, other, how, check=lambda other: None):
        def join():
            if not isinstance(other, Model):
                raise TypeError(f"a model is composed with models, not {type(other).__name__}")
            check(other)
            return Model(how(other._native), self._comm, max(self._axes, other._axes))

        return agreed(self._comm, join)

    def then(self, next):
        """This model, and another one of what it gives: of leaves of the same names, or of one leaf where there is one, whatever its name."""
        return self._joined(next, self._native.then, lambda next: _check_grids(self.target.space.leaves, next.domain.space.leaves))

    def zip(self, other):
        """Both side by side: a function of the leaves of both (of one name, they are one) that gives the leaves of both."""
        return self._joined(other, self._native.zip)

    def giving(self, *names):
        """The same model, which gives these leaves alone. Of models side by side those that give none of them are left out."""

        def part():
            for name in names:
                if name not in self.target:
                    raise ValueError(f"the model gives {', '.join(self.target)}, and not {name!r}")
            if not names:
                raise ValueError("giving takes the names of the leaves that are wanted")
            return Model(self._native.giving(list(names)), self._comm, self._axes)

        return agreed(self._comm, part)

    def __add__(self, other):
        return self._joined(other, self._native.plus)

    def __mul__(self, other):
        return self._joined(other, self._native.times)


def random(described, fields, comm, seed, scale, kind=0):
    """Standard normal numbers of a seed times a scale, for these leaves: other numbers for each kind."""
    leaves = [native for native, _ in described]

    def check():
        own = whole_number(seed, "seed"), real_number(scale, "scale")
        return own, {"function": "random", "seed": own[0], "scale": own[1]}, None

    return result(fields, together(comm, check, lambda own, _: _native.white_noise(comm, leaves, *own, kind)))
