"""Pickles of models and likelihoods: the calls that made them, to be made again.

A model is a graph on a device. The functions and methods of the extension module that make models
note each call in the attribute ``recipe`` of their results, with the arguments. A pickle has these
calls in order.
"""

import copyreg
import functools
import pickle

import numpy as np

from . import _native
from ._comm import resolve
from ._device_array import Array, asarray
from ._native import Error

# Functions of the extension module that make models, with the ranks as their first argument.
_FUNCTIONS = """amplitudes block constant convolution correlated_field diagonal fourier gather interpolation inverse_fourier join likelihood
light_cone linear_density lines_of_sight matrix paint pointwise prior readout redshift_space repeat select simulation stencil""".split()
_METHODS = {
    "NativeModel": "then zip substitute giving combined with_number function renamed".split(),
    "NativeLikelihood": "amend plus".split(),
    "NativeCorrelatedField": ["amplitude_model"],
}
_NATIVE = tuple(getattr(_native, name) for name in _METHODS)


class _Call:
    """A call: a function of Python, or the name of a function or ``.method`` of the extension."""

    def __init__(self, function, arguments):
        self.function, self.arguments = function, _mapped(_snapshot, arguments)


class _Saved:
    """A value that a pickle has in another form."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value


def _mapped(change, value):
    """Apply `change` to a value, and within tuples, lists and dictionaries where it is None."""
    changed = change(value)
    if changed is not None:
        return changed
    if type(value) is dict:
        return {name: _mapped(change, one) for name, one in value.items()}
    return type(value)(_mapped(change, one) for one in value) if type(value) in (tuple, list) else value


def _snapshot(value):
    """Return a copy of an array, which the caller may change."""
    return value.copy() if isinstance(value, np.ndarray) else None


def _noted(found, call):
    """Note a call in its results."""
    for place, one in enumerate(found if isinstance(found, tuple) else (found,)):
        if isinstance(one, _NATIVE):
            one.recipe = call, place
    return found


def made_by(model, function, *arguments, **options):
    """Return a model; its pickle calls a function of Python with these arguments."""
    model._native.recipe = _Call(function, (arguments, options)), 0
    return model


def _record(owner, name, function, is_method):
    """Replace a function of the extension module by one that notes its calls."""

    @functools.wraps(function)
    def recorded(first, *arguments):
        kept = (first, *arguments) if is_method else arguments
        return _noted(function(first, *arguments), _Call(f".{name}" if is_method else name, kept))

    setattr(owner, name, recorded)


_native.likelihood = _native.NativeLikelihood
for _name in _FUNCTIONS:
    _record(_native, _name, getattr(_native, _name), False)
for _kind, _names in _METHODS.items():
    for _name in _names:
        _record(getattr(_native, _kind), _name, getattr(getattr(_native, _kind), _name), True)


def _needed(value):
    """Return the calls that made the objects within a value."""
    found = []
    _mapped(lambda one: found.append(_recipe(one)[0]) if isinstance(one, _NATIVE) else None, value)
    return found


def _recipe(native):
    recipe = getattr(native, "recipe", None)
    if recipe is None:
        raise pickle.PicklingError(f"{type(native).__name__}: expected an object made by meshloom.operators or meshloom.inference")
    return recipe


def _steps(value):
    """Return the calls behind a value, each after those it needs, and the value with their numbers."""
    numbers, steps, stack = {}, [], _needed(value)

    def saved(one):
        if isinstance(one, _NATIVE):
            call, place = _recipe(one)
            return _Saved("made", (numbers[id(call)], place))
        if isinstance(one, _native.DeviceArray):
            return _Saved("array", Array(one).numpy())
        if isinstance(one, _native.NativePoints):
            return _Saved("points", one.numbers())
        return None

    while stack:
        call = stack[-1]
        missing = [] if id(call) in numbers else [one for one in _needed(call.arguments) if id(one) not in numbers]
        stack += missing
        if not missing:
            stack.pop()
            if id(call) not in numbers:
                steps.append((call.function, _mapped(saved, call.arguments)))
                numbers[id(call)] = len(steps) - 1
    return steps, _mapped(saved, value)


def _made_again(kind, version, steps, state):
    """Return the object of a pickle, on this process alone."""
    if version != _native.version:
        raise Error(f"pickle of a {kind.__name__}: expected version {_native.version} of meshloom, got {version}; create it again")
    comm, made = resolve(None), []

    def loaded(one):
        if not isinstance(one, _Saved):
            return None
        if one.kind == "made":
            number, place = one.value
            return made[number][place]
        if one.kind == "array":
            return asarray(one.value, one.value.dtype, comm)._native
        return _native.NativePoints.numbered(comm, one.value)

    for function, arguments in steps:
        arguments = _mapped(loaded, arguments)
        if callable(function):
            found = function(*arguments[0], **arguments[1])._native
        elif function.startswith("."):
            found = getattr(arguments[0], function[1:])(*arguments[1:])
        else:
            found = getattr(_native, function)(comm, *arguments)
        made.append(found if isinstance(found, tuple) else (found,))
    state = _mapped(loaded, state)
    found = kind(state.pop("_native"), comm, state.pop("_axes"))
    found.__dict__.update(state)
    return found


class Unchanging:
    """Base of objects that never change: a copy is the object itself."""

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class Recorded(Unchanging):
    """Base of models and likelihoods."""

    # Attributes that follow from the others.
    _derived = ["_comm"]

    def __reduce__(self):
        check_alone(self, self._comm)
        state = {name: value for name, value in self.__dict__.items() if name not in self._derived}
        return (_made_again, (type(self), _native.version, *_steps(state)))


def check_alone(what, comm):
    """Raise an error if an object to pickle is distributed over ranks."""
    if comm is not None and comm._ranks_of_all_groups > 1:
        raise pickle.PicklingError(
            f"{type(what).__name__} on {comm._ranks_of_all_groups} ranks: expected one rank; pickle the arguments and create it on each rank"
        )


def plain_reduce(what, **changes):
    """Return the parts of the pickle of an object, with some of its attributes changed."""
    return copyreg.__newobj__, (type(what),), {**what.__dict__, **changes}
