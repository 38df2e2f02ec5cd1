"""Models and likelihoods as functions of JAX.

The functions can be traced, compiled, batched and differentiated, in forward and in reverse mode.

Notes
-----
Needs the package ``jax``, version 0.4.36 or newer. Fields are arrays, or dictionaries of arrays for
several leaves, as of the model. They pass through host memory, and JAX waits for the device. Types
are float32 and complex64; `parameters` and log likelihoods are float64 where ``jax_enable_x64`` is
set.

A function stores the derivative at the last point that needed one, in device memory, because value
and gradient there are usually computed together. The caches of JAX keep functions that were
compiled, until ``jax.clear_caches()``. `jax.vmap` calls the model once per element. Second
derivatives raise a `NotImplementedError`.

An exception of the model is raised by eager calls. Compiled code raises an exception that has its
text.

Examples
--------
>>> import jax
>>> import meshloom
>>> from meshloom import operators as op
>>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
>>> f = meshloom.jax.function(square)
>>> jax.jit(jax.grad(lambda x: f(x).sum()))(jax.numpy.array([1.0, 3.0]))
Array([2., 6.], dtype=float32)
"""

import functools
import weakref

import numpy as np

from . import operators
from ._host_calls import imported, no_second_derivative, of_likelihood, of_model

__all__ = ["function", "log_likelihood", "simulation"]


def _conjugated(arrays):
    """Return arrays as JAX pairs cotangents with tangents, without a conjugate."""
    return [np.conj(one) if one.dtype.kind == "c" else one for one in arrays]


def _products(name, calls, arrays):
    """Return a product with the derivative; the point is in the first arrays."""
    arrays = [np.asarray(one) for one in arrays]
    n = len(calls.takes)
    if name == "jvp":
        return calls.jvp(arrays[:n], arrays[n:])
    return _conjugated(calls.vjp(arrays[:n], _conjugated(arrays[n:])))


@functools.cache
def _value():
    """Return the primitive of a value.

    Its derivative is a second primitive, the product with a tangent. A third primitive is the
    product with a cotangent. Each of the two products is the transpose of the other one.
    """
    jax = imported("jax", "meshloom.jax")
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    def primitive(name, work, leaves):
        own = Primitive(f"meshloom_{name}")
        own.multiple_results = True

        def evaluated(*arrays, calls, **options):
            return [jax.numpy.asarray(one) for one in work(calls, [np.asarray(one) for one in arrays], **options)]

        def shapes(*_, calls, **__):
            return [jax.core.ShapedArray(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves(calls)]

        def lowered(ctx, *operands, calls, **options):
            def called(*arrays):
                # The arrays are NumPy's: a callback that computes with JAX can deadlock.
                found = work(calls, arrays, **options)
                return tuple(one.astype(aval.dtype, copy=False) for one, aval in zip(found, ctx.avals_out))

            return mlir.emit_python_callback(ctx, called, None, list(operands), ctx.avals_in, ctx.avals_out, has_side_effect=False)[0]

        def batched(arrays, axes, *, calls, **options):
            mapped = tuple(axis is not None for axis in axes)
            key = (own, mapped, *options.values())
            if key not in calls.loops:
                # Stored, because JAX compiles each new function again.
                calls.loops[key] = jax.jit(functools.partial(loop, mapped, weakref.ref(calls), **options))
            found = calls.loops[key](*(array if axis is None else jax.numpy.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes)))
            return found, [0] * len(found)

        def loop(mapped, calls, *arrays, **options):
            def one(rows):
                rows = iter(rows)
                own_arrays = (next(rows) if is_mapped else array for array, is_mapped in zip(arrays, mapped))
                return own.bind(*own_arrays, calls=calls(), **options)

            return jax.lax.map(one, [array for array, is_mapped in zip(arrays, mapped) if is_mapped])

        own.def_impl(evaluated)
        own.def_abstract_eval(shapes)
        mlir.register_lowering(own, lowered)
        batching.primitive_batchers[own] = batched
        return own

    value = primitive("value", lambda calls, arrays, derivative: calls.value(arrays, derivative), lambda calls: calls.gives)
    jvp = primitive("jvp", functools.partial(_products, "jvp"), lambda calls: calls.gives)
    vjp = primitive("vjp", functools.partial(_products, "vjp"), lambda calls: calls.takes)

    def instantiated(arrays):
        return [ad.instantiate_zeros(one) for one in arrays]

    def derivative_of_value(primals, tangents, *, calls, derivative):
        return value.bind(*primals, calls=calls, derivative=True), jvp.bind(*primals, *instantiated(tangents), calls=calls)

    def derivative_of_product(own, primals, tangents, *, calls):
        n = len(calls.takes)
        if not all(isinstance(one, ad.Zero) for one in tangents[:n]):
            raise NotImplementedError(no_second_derivative(calls))
        return own.bind(*primals, calls=calls), own.bind(*primals[:n], *instantiated(tangents[n:]), calls=calls)

    def transposed(other, cotangents, *arguments, calls):
        point, linear = arguments[: len(calls.takes)], arguments[len(calls.takes) :]
        if any(map(ad.is_undefined_primal, point)):
            raise NotImplementedError(no_second_derivative(calls))
        found = other.bind(*point, *instantiated(cotangents), calls=calls)
        return [None] * len(point) + [one if ad.is_undefined_primal(argument) else None for one, argument in zip(found, linear)]

    ad.primitive_jvps[value] = derivative_of_value
    for own, other in ((jvp, vjp), (vjp, jvp)):
        ad.primitive_jvps[own] = functools.partial(derivative_of_product, own)
        ad.primitive_transposes[own] = functools.partial(transposed, other)
    return value


def _traced(calls):
    """Return the function of JAX for these calls."""
    jax, value = imported("jax", "meshloom.jax"), _value()

    def converted(array, leaf):
        array = jax.numpy.asarray(array)
        calls.check_kind(leaf, jax.numpy.iscomplexobj(array))
        return array.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))

    def function(x):
        return calls.result(value.bind(*calls.arguments(x, converted), calls=calls, derivative=False))

    function.__name__ = function.__qualname__ = calls.name
    return function


def function(model):
    """Convert a model to a function of JAX.

    Parameters
    ----------
    model : meshloom.operators.Model
        A model on one rank.

    Returns
    -------
    callable
        ``f(x)`` of a field of the domain, an array or a dictionary, returns a field of the target.

    Raises
    ------
    ImportError
        If JAX is not installed.
    TypeError
        If `model` is not a model.
    ValueError
        If the model is distributed over several ranks.

    Examples
    --------
    >>> import jax, meshloom
    >>> from meshloom import operators as op
    >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    >>> f = meshloom.jax.function(square)
    >>> x, tangent = jax.numpy.array([1.0, 3.0]), jax.numpy.array([1.0, 0.0])
    >>> jax.jvp(f, (x,), (tangent,))[1]
    Array([2., 0.], dtype=float32)
    """
    return _traced(of_model(model))


def simulation(particles=64, mesh=None, box=128.0, **options):
    """Create a particle-mesh simulation as a function of JAX of its white noise.

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
        If JAX is not installed.
    ValueError
        As in `meshloom.operators.simulation`.

    Examples
    --------
    >>> import jax, meshloom
    >>> run = meshloom.jax.simulation(8, 8, 32.0, steps=2, window="tsc")
    >>> noise = jax.numpy.asarray(meshloom.white_noise(8, seed=1))
    >>> jax.grad(lambda noise: run(noise).var())(noise).shape
    (8, 8, 8)
    """
    imported("jax", "meshloom.jax")
    return function(operators.simulation(particles, mesh, box, **options))


def log_likelihood(likelihood):
    """Convert a likelihood to a function of JAX, for samplers and optimizers.

    Parameters
    ----------
    likelihood : meshloom.inference.Likelihood
        A likelihood on one rank.

    Returns
    -------
    callable
        ``f(x)`` returns ``-likelihood(x)``, the logarithm of ``p(data | x)`` up to a constant, as a
        scalar. It is minus infinity where the energy is not finite.

    Raises
    ------
    ImportError
        If JAX is not installed.
    TypeError
        If `likelihood` is not a likelihood.
    ValueError
        If the likelihood is distributed over several ranks.

    Notes
    -----
    The prior of latent values, a standard normal distribution, is not included: sample them from
    ``Normal(0, 1)`` in NumPyro and pass the result to ``numpyro.factor``, or add
    ``-0.5 * jnp.vdot(x, x)``.

    Examples
    --------
    >>> import jax, meshloom
    >>> f = meshloom.jax.log_likelihood(meshloom.inference.Gaussian([1.0, 3.0]))
    >>> jax.grad(f)(jax.numpy.array([0.5, 1.0]))
    Array([0.5, 2. ], dtype=float32)
    """
    return _traced(of_likelihood(likelihood))


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
