"""Values and derivatives with NumPy arrays, for packages that differentiate functions."""

import collections.abc
import importlib
import threading
from typing import NamedTuple

import numpy as np

from . import _native
from ._likelihood import Likelihood
from ._model import Model, long_axes, same_shape


class HostLeaf(NamedTuple):
    """One array of a function: its name, shape and type."""

    name: str
    shape: tuple
    dtype: np.dtype


def imported(package, module):
    """Import the package that a module of the same name works with."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{module} needs the package {package}, which is not installed: pip install {package}") from error


def _same(one, other):
    """Return True if arrays have the same bits."""
    return all(np.array_equal(a.ravel().view(np.uint32), b.ravel().view(np.uint32)) for a, b in zip(one, other))


class HostCalls:
    """A function of lists of arrays, one per leaf, with the products with its derivative.

    The derivative at one point is stored until another point needs one, so that a gradient does not
    compute the value again. Threads take turns.

    `value` is a function of a field. `at` returns the value at a field and two functions: the
    products with the derivative and with its adjoint.
    """

    def __init__(self, name, takes, gives, value, at):
        self.name, self.takes, self.gives = name, takes, gives
        self._value, self._at = value, at
        # Compiled loops of `meshloom.jax`, which live as long as this object.
        self.loops = {}
        self._point = self._derivative = None
        self._turn = threading.Lock()

    def value(self, x, derivative=False):
        """Return the value; store the derivative if it will be needed at the same point."""
        with self._turn:
            if derivative or (self._point is not None and _same(self._point, x)):
                return _listed(self.gives, self._linearized(x)[0])
            return _listed(self.gives, self._value(_named(self.takes, x)))

    def jvp(self, x, tangent):
        """Return the derivative times a tangent."""
        with self._turn:
            return _listed(self.gives, self._linearized(x)[1](_named(self.takes, tangent)))

    def vjp(self, x, cotangent):
        """Return the adjoint of the derivative times a cotangent, as `Linearization.vjp` does."""
        with self._turn:
            return _listed(self.takes, self._linearized(x)[2](_named(self.gives, cotangent)))

    def _linearized(self, x):
        if self._point is None or not _same(self._point, x):
            # The old derivative gives its device memory back before the new one needs some.
            self._point = self._derivative = None
            self._derivative = self._at(_named(self.takes, x))
            # The arrays may be memory of the caller.
            self._point = [np.array(one) for one in x]
        return self._derivative

    def arguments(self, x, convert):
        """Return the arrays of a field in the order of leaves.

        `convert` makes an array of the package; it has `shape`, `ndim`, `dtype` and `reshape`.
        """
        if not isinstance(x, collections.abc.Mapping):
            if len(self.takes) != 1:
                raise TypeError(f"{self.name}: expected a dictionary of {[leaf.name for leaf in self.takes]}, got {type(x).__name__}")
            x = {self.takes[0].name: x}
        if not {leaf.name for leaf in self.takes} <= set(x):
            raise ValueError(f"{self.name}: expected the leaves {[leaf.name for leaf in self.takes]}, got {sorted(x)}")
        found = []
        for leaf in self.takes:
            array, size = convert(x[leaf.name], leaf), int(np.prod(leaf.shape))
            shape = tuple(array.shape)
            if not same_shape(shape, leaf.shape) and shape != (size,):
                raise ValueError(f"`{leaf.name}`: expected shape {long_axes(leaf.shape)} or a flat vector of {size} numbers, got {shape}")
            found.append(array.reshape(leaf.shape))
        return found

    def result(self, arrays):
        """Return a field of the target: an array, or a dictionary for several leaves."""
        return arrays[0] if len(arrays) == 1 else {leaf.name: array for leaf, array in zip(self.gives, arrays)}

    def check_kind(self, leaf, is_complex):
        """Raise an error if an argument would lose its imaginary part."""
        if is_complex and leaf.dtype.kind != "c":
            raise TypeError(f"`{leaf.name}`: expected real numbers, got complex ones")


def no_second_derivative(calls):
    """Return the text of an error."""
    return f"{calls.name}: expected first derivatives, got a second one; models have `jvp` and `vjp` only"


def _named(leaves, arrays):
    return {leaf.name: array for leaf, array in zip(leaves, arrays)}


def _listed(leaves, values):
    """Return the arrays of a field in the order of leaves, with their shapes and types."""
    if not isinstance(values, collections.abc.Mapping):
        values = {leaves[0].name: values}
    return [np.asarray(values[leaf.name]).astype(leaf.dtype, copy=False).reshape(leaf.shape) for leaf in leaves]


def _leaves(fields):
    def dtype(leaf):
        return np.dtype(np.float64 if leaf.kind == "parameters" else np.complex64 if leaf.complex else np.float32)

    return [HostLeaf(name, tuple(shape), dtype(fields.space.leaves[name])) for name, shape in fields.items()]


def _check_alone(what, comm):
    if comm.size > 1:
        raise ValueError(f"{what}: expected one rank, got {comm.size}, whose calls would have to come in the same order; use `at`, `jvp` and `vjp` of it")


def of_model(model):
    """Return the calls of a model on one rank."""
    if not isinstance(model, Model):
        raise TypeError(f"model: expected a model, not {type(model).__name__}")
    _check_alone("model", model._comm)

    def at(x):
        found = model.at(x)
        return found.value, found.jvp, found.vjp

    return HostCalls(model._native.name, _leaves(model.domain), _leaves(model.target), model, at)


def of_likelihood(likelihood):
    """Return the calls of the logarithm of a likelihood on one rank.

    It is minus infinity, with a gradient of NaN, where the energy is not finite: samplers count
    such points as divergences.
    """
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood: expected a likelihood, not {type(likelihood).__name__}")
    fields = likelihood.domain
    _check_alone("likelihood", likelihood._comm)
    takes = _leaves(fields)

    def finite(call, x):
        try:
            return call(x) if all(np.isfinite(one).all() for one in x.values()) else None
        except _native.NotFinite:
            return None

    def value(x):
        energy = finite(likelihood, x)
        return -np.inf if energy is None else -energy

    def at(x):
        found = finite(likelihood.value_and_grad, x)
        energy, gradient = (np.inf, {leaf.name: np.full(leaf.shape, np.nan) for leaf in takes}) if found is None else found
        # Products of many numbers are sums in double precision.
        gradient = [-one.astype(np.result_type(one.dtype, np.float64)) for one in _listed(takes, gradient)]

        def jvp(tangent):
            return sum(np.vdot(one, tangent[leaf.name]).real for leaf, one in zip(takes, gradient))

        def vjp(cotangent):
            return {leaf.name: cotangent["log_likelihood"] * one for leaf, one in zip(takes, gradient)}

        return -energy, jvp, vjp

    return HostCalls(likelihood.name, takes, [HostLeaf("log_likelihood", (), np.dtype(np.float64))], value, at)
