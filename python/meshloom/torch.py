"""Models and likelihoods as functions of PyTorch, with derivatives in both modes.

Notes
-----
Needs the package ``torch``, version 2.4 or newer. Fields are tensors, or dictionaries of tensors
for several leaves, as of the model. They pass through host memory, also those on a GPU; results are
on the device of the argument. Types are float32 and complex64, float64 for `parameters` and log
likelihoods; other types of arguments are converted, and so are their gradients.

A function stores the derivative at the last point that needed one, in device memory, because value
and gradient there are usually computed together. `torch.func.vmap` calls the model once per
element. Second derivatives raise a `NotImplementedError`.

Examples
--------
>>> import torch  # doctest: +SKIP
>>> import meshloom
>>> from meshloom import operators as op
>>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
>>> f = meshloom.torch.function(square)  # doctest: +SKIP
>>> x = torch.tensor([1.0, 3.0], requires_grad=True)  # doctest: +SKIP
>>> f(x).sum().backward()  # doctest: +SKIP
>>> x.grad  # doctest: +SKIP
tensor([2., 6.])
"""

import functools
import itertools
import weakref
from typing import List

import numpy as np

from . import operators
from ._host_calls import imported, no_second_derivative, of_likelihood, of_model

__all__ = ["function", "log_likelihood", "simulation"]

# Functions in use, by number: operations of PyTorch take numbers and no other objects.
_NUMBERS, _CALLS = itertools.count(), weakref.WeakValueDictionary()


@functools.cache
def _value():
    """Return the function of a value for `torch.autograd`.

    Its derivatives are two further functions, the products with a tangent and with a cotangent.
    Each of these is linear in its last tensors, and is the derivative of the other one. All three
    take `HostCalls`, a flag that is True if a derivative of the value will be needed, and tensors.
    """
    torch = imported("torch", "meshloom.torch")

    # Known to PyTorch as an operation, because tracers would take its results for constants.
    @torch.library.custom_op("meshloom::call", mutates_args=())
    def call(work: str, number: int, derivative: bool, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        calls, arrays = _CALLS[number], [one.detach().resolve_conj().resolve_neg().cpu().numpy() for one in tensors]
        point, rest = arrays[: len(calls.takes)], arrays[len(calls.takes) :]
        found = calls.value(point, derivative) if work == "value" else getattr(calls, work)(point, rest)
        # NumPy's arrays may be read-only.
        return [torch.from_numpy(np.array(one)).to(tensors[0].device) for one in found]

    @call.register_fake
    def _(work, number, derivative, tensors):
        calls = _CALLS[number]
        return [made(torch.empty, leaf, tensors[0]) for leaf in (calls.takes if work == "vjp" else calls.gives)]

    def made(make, leaf, like):
        return make(leaf.shape, dtype=getattr(torch, leaf.dtype.name), device=like.device)

    def zeros(ctx, found, leaves):
        """Return tensors with zeros in place of None."""
        return [made(torch.zeros, leaf, ctx.saved_tensors[0]) if one is None else one for one, leaf in zip(found, leaves)]

    class Function(torch.autograd.Function):
        @classmethod
        def forward(cls, calls, derivative, *tensors):
            return tuple(call(cls.work, calls.number, derivative, list(tensors)))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.calls, _, *tensors = inputs
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @classmethod
        def vmap(cls, info, axes, calls, derivative, *tensors):
            def row(place):
                return [one if axis is None else one.select(axis, place) for one, axis in zip(tensors, axes[2:])]

            rows = [cls.apply(calls, derivative, *row(place)) for place in range(info.batch_size)]
            return tuple(map(torch.stack, zip(*rows))), (0,) * len(rows[0])

    class Value(Function):
        work = "value"

        @staticmethod
        def backward(ctx, *cotangents):
            return None, None, *Vjp.apply(ctx.calls, True, *ctx.saved_tensors, *zeros(ctx, cotangents, ctx.calls.gives))

        @staticmethod
        def jvp(ctx, _, __, *tangents):
            return Jvp.apply(ctx.calls, True, *ctx.saved_tensors, *zeros(ctx, tangents, ctx.calls.takes))

    class Product(Function):
        """A product with the derivative at the point in the first tensors."""

        @staticmethod
        def point(ctx, has_derivative):
            n = len(ctx.calls.takes)
            if any(has_derivative[:n]):
                raise NotImplementedError(no_second_derivative(ctx.calls))
            return ctx.saved_tensors[:n]

        @classmethod
        def backward(cls, ctx, *cotangents):
            x = cls.point(ctx, ctx.needs_input_grad[2:])
            other, leaves = (Vjp, ctx.calls.gives) if cls is Jvp else (Jvp, ctx.calls.takes)
            return None, None, *(None for _ in x), *other.apply(ctx.calls, True, *x, *zeros(ctx, cotangents, leaves))

        @classmethod
        def jvp(cls, ctx, _, __, *tangents):
            x = cls.point(ctx, [one is not None for one in tangents])
            leaves = ctx.calls.takes if cls is Jvp else ctx.calls.gives
            return cls.apply(ctx.calls, True, *x, *zeros(ctx, tangents[len(x) :], leaves))

    class Jvp(Product):
        work = "jvp"

    class Vjp(Product):
        work = "vjp"

    return Value


def _traced(calls):
    """Return the function of PyTorch for these calls."""
    torch, value = imported("torch", "meshloom.torch"), _value()
    calls.number = next(_NUMBERS)
    _CALLS[calls.number] = calls

    def converted(array, leaf):
        tensor = array if torch.is_tensor(array) else torch.from_numpy(np.array(array))
        calls.check_kind(leaf, tensor.is_complex())
        return tensor.to(getattr(torch, leaf.dtype.name))

    def function(x):
        tensors = calls.arguments(x, converted)
        return calls.result(value.apply(calls, any(one.requires_grad for one in tensors), *tensors))

    function.__name__ = function.__qualname__ = calls.name
    return function


def function(model):
    """Convert a model to a function of PyTorch.

    Parameters
    ----------
    model : meshloom.operators.Model
        A model on one rank.

    Returns
    -------
    callable
        ``f(x)`` of a field of the domain, a tensor or a dictionary, returns a field of the target.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    TypeError
        If `model` is not a model.
    ValueError
        If the model is distributed over several ranks.

    Examples
    --------
    >>> import torch, meshloom  # doctest: +SKIP
    >>> from meshloom import operators as op
    >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    >>> f = meshloom.torch.function(square)  # doctest: +SKIP
    >>> x, tangent = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.0])  # doctest: +SKIP
    >>> torch.func.jvp(f, (x,), (tangent,))[1]  # doctest: +SKIP
    tensor([2., 0.])
    """
    return _traced(of_model(model))


def simulation(particles=64, mesh=None, box=128.0, **options):
    """Create a particle-mesh simulation as a function of PyTorch of its white noise.

    Parameters
    ----------
    particles, mesh, box, options
        As in `meshloom.operators.simulation`, without ranks.

    Returns
    -------
    callable
        `function` of the model.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    ValueError
        As in `meshloom.operators.simulation`.

    Examples
    --------
    >>> import torch, meshloom  # doctest: +SKIP
    >>> run = meshloom.torch.simulation(8, 8, 32.0, steps=2, window="tsc")  # doctest: +SKIP
    >>> noise = torch.zeros(8, 8, 8, requires_grad=True)  # doctest: +SKIP
    >>> run(noise).var().backward()  # doctest: +SKIP
    """
    imported("torch", "meshloom.torch")
    return function(operators.simulation(particles, mesh, box, **options))


def log_likelihood(likelihood):
    """Convert a likelihood to a function of PyTorch, for samplers and optimizers.

    Parameters
    ----------
    likelihood : meshloom.inference.Likelihood
        A likelihood on one rank.

    Returns
    -------
    callable
        ``f(x)`` returns ``-likelihood(x)``, the logarithm of ``p(data | x)`` up to a constant, as a
        scalar of float64. It is minus infinity where the energy is not finite.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    TypeError
        If `likelihood` is not a likelihood.
    ValueError
        If the likelihood is distributed over several ranks.

    Notes
    -----
    The prior of latent values, a standard normal distribution, is not included.

    Examples
    --------
    >>> import torch, meshloom  # doctest: +SKIP
    >>> f = meshloom.torch.log_likelihood(meshloom.inference.Gaussian([1.0, 3.0]))  # doctest: +SKIP
    >>> torch.func.grad(f)(torch.tensor([0.5, 1.0]))  # doctest: +SKIP
    tensor([0.5000, 2.0000])
    """
    return _traced(of_likelihood(likelihood))


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
