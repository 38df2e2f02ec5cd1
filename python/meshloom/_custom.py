"""Operators from functions of the caller: NumPy, JAX and PyTorch; and matrices."""

import collections.abc
import importlib

import numpy as np

from . import _native
from ._comm import resolve, summary, together
from ._model import Model, same_shape
from ._recipe import made_by
from ._space import Fields, Leaf, Space, both_axes, space_of


def _fields(space, comm):
    """Return the shapes of this rank's values of a space."""
    return Fields._of_space(space, comm)


def _unpacked(fields, arrays):
    """Return the field for flat arrays of float64: an array, or a dictionary for several leaves."""
    found = {}
    for (name, shape), array in zip(fields.items(), arrays):
        numbers = array.view(np.complex128) if fields.space.leaves[name].complex else array
        found[name] = numbers.reshape(shape)
    return next(iter(found.values())) if len(found) == 1 else found


def _packed(fields, values, what):
    """Return flat arrays of float64 for the result of a caller's function."""
    if not isinstance(values, collections.abc.Mapping):
        if len(fields) != 1:
            raise TypeError(f"{what}: expected a dictionary of {list(fields)}, got {type(values).__name__}")
        values = {next(iter(fields)): values}
    if set(values) != set(fields):
        raise ValueError(f"{what}: expected the leaves {list(fields)}, got {sorted(values)}")
    found = []
    for name, shape in fields.items():
        array = np.asarray(values[name])
        is_complex = fields.space.leaves[name].complex
        if array.dtype.kind not in ("biufc" if is_complex else "biuf"):
            raise TypeError(f"{what}, `{name}`: expected {'complex' if is_complex else 'real'} numbers, got {array.dtype}")
        if not same_shape(array.shape, shape):
            raise ValueError(f"{what}, `{name}`: expected shape {tuple(shape)}, got {array.shape}")
        array = np.ascontiguousarray(array, np.complex128 if is_complex else np.float64)
        found.append(array.ravel().view(np.float64))
    return found


def _made(call, functions, domain, target, name, version, comm):
    """Create the operator of three functions of fields.

    `target` is a space, None, or a function that returns a space for the shapes of the domain.
    """
    comm = resolve(comm)

    def check():
        for which, function in functions.items():
            if not callable(function):
                raise TypeError(f"{which}: expected a function, got {type(function).__name__}")
        for text, what in ((name, "name"), (version, "version")):
            if not isinstance(text, str):
                raise TypeError(f"{what}: expected a str, got {type(text).__name__}")
        own = space_of(domain)
        fields = _fields(own, comm)
        to = target(fields) if callable(target) else own if target is None else space_of(target)
        alike = {"function": call, "domain": own._said(), "target": to._said(), "name": name, "version": version}
        return (own, to, fields, _fields(to, comm)), alike, None

    def make(own, _):
        own, to, takes, gives = own
        value, jvp, vjp = functions.values()
        calls = [
            lambda x: _packed(gives, value(_unpacked(takes, x)), f"value of {name}"),
            lambda x, dx: _packed(gives, jvp(_unpacked(takes, x), _unpacked(takes, dx)), f"jvp of {name}"),
            lambda x, dy: _packed(takes, vjp(_unpacked(takes, x), _unpacked(gives, dy)), f"vjp of {name}"),
        ]
        native = _native.custom(comm, [own._native(), to._native()], name, version, calls)
        return Model(native, comm, both_axes(own._axes, to._axes))

    return together(comm, check, make)


def custom(value, jvp, vjp, domain, target=None, *, name="custom", version="", comm=None):
    """Create a model from Python functions of NumPy arrays.

    Parameters
    ----------
    value : callable
        ``value(x)`` returns the field of the target.
    jvp : callable
        ``jvp(x, dx)`` returns the derivative at `x` times the tangent `dx`.
    vjp : callable
        ``vjp(x, dy)`` returns the cotangent `dy` times the derivative at `x`.
    domain : Space
        Leaves that the functions take.
    target : Space, optional
        Leaves that they return. Default: `domain`.
    name : str, default "custom"
        Name in errors.
    version : str, default ""
        Any text that changes with the functions. A fit resumes only with a model of the same name
        and version, because functions cannot be compared.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If with several ranks a leaf of the target is on all ranks (`vector`, `parameters`), but
        another leaf is distributed: a function sees the part of one rank only.
    TypeError
        If `value`, `jvp` or `vjp` is not a function.

    Notes
    -----
    Collective with `comm`. The functions take and return arrays of this rank, in float64 or
    complex128: one array, or a dictionary for several leaves. Results are rounded to float32,
    except `parameters`, and must be finite. Every call copies all fields between device and host;
    `pointwise` stays on the device.

    The functions run on another thread than the caller's, and must not call methods of a model or
    array of the same `comm`. An exception ends the call that needs the function. On several ranks
    it is the ``__cause__`` of a `meshloom.Error` on its rank, and the other ranks raise a
    `meshloom.Error` that names this rank.

    With several ranks and a distributed target, `vjp` returns what the rank's own part contributes
    to vectors and parameters; contributions of ranks are added. If all leaves are vectors and
    parameters, the results of rank 0 are used.

    The inner product treats real and imaginary parts as two real numbers.
    `Model.check_derivative` and `Model.check_adjoint` find wrong derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> cells = op.Space(x=op.cells(3))
    >>> product = lambda x, d: np.exp(x) * d
    >>> exp = op.custom(np.exp, product, product, cells, name="exp")
    >>> np.asarray(exp(np.zeros(3))).tolist()
    [1.0, 1.0, 1.0]
    >>> exp.check_adjoint().difference < 1e-6
    True
    """
    made = _made("custom", {"value": value, "jvp": jvp, "vjp": vjp}, domain, target, name, version, comm)
    return made_by(made, custom, value, jvp, vjp, domain, target, name=name, version=version)


def _imported(package, call):
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{call} needs the package {package}, which is not installed: pip install {package}") from error


def _mapped(function, values):
    """Apply a function to the arrays of a field."""
    if isinstance(values, collections.abc.Mapping):
        return {name: function(value) for name, value in values.items()}
    return function(values)


def _single(values):
    """Return NumPy arrays in single precision."""
    return _mapped(lambda x: np.asarray(x, np.complex64 if np.iscomplexobj(x) else np.float32), values)


def _target_of(found, fields, call):
    """Return the space of a result: leaves of the domain with the same shape, or vectors."""

    def leaf(name, result):
        shape, is_complex = tuple(result.shape), np.dtype(result.dtype).kind == "c"
        for other, leaf in fields.space.leaves.items():
            if fields[other] == shape and leaf.complex == is_complex:
                return leaf
            if fields[other] == shape and leaf.kind == "cells":
                return Leaf(leaf.kind, leaf.shape, leaf.size, is_complex, leaf.components, copies=leaf.copies)
        if len(shape) == 1 and not is_complex:
            return Leaf("vector", shape, ())
        kind = "complex" if is_complex else "real"
        raise ValueError(f"{call}: no leaf of the domain has the shape {shape} of the {kind} result `{name}`; pass target=")

    found = found if isinstance(found, collections.abc.Mapping) else {"y": found}
    return Space({name: leaf(name, result) for name, result in found.items()})


def _zeros(fields):
    """Return a field of zeros in single precision."""
    zeros = [np.zeros(int(np.prod(shape)) * (1 + fields.space.leaves[name].complex)) for name, shape in fields.items()]
    return _single(_unpacked(fields, zeros))


def from_jax(f, domain, target=None, *, name="jax", version="", comm=None):
    """Create a model from a function of JAX, which finds its derivatives.

    Parameters
    ----------
    f : callable
        A function that `jax.jit` can compile, of one array, or of a dictionary for several leaves.
        It returns one array or a dictionary.
    domain : Space
        Leaves that it takes.
    target : Space, optional
        Leaves that it returns. Default: for a result with the shape of a leaf of `domain` such a
        leaf, otherwise a vector; a single array is named "y".
    name, version, comm
        As in `custom`.

    Returns
    -------
    Model

    Raises
    ------
    ImportError
        If JAX is not installed.
    ValueError
        As in `custom`, or if a result has the shape of no leaf and more than one axis.

    Notes
    -----
    Collective with `comm`. Fields are float32 and complex64 in `f`, and pass through host memory
    between meshloom and JAX. With several ranks, `f` sees the part of its rank, as in `custom`.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> model = op.from_jax(lambda x: jnp.tanh(x), op.cells(8))  # doctest: +SKIP
    >>> model.target  # doctest: +SKIP
    {'y': (8,)}
    """
    jax = _imported("jax", "from_jax")
    jnp = jax.numpy

    def function(x):
        return _mapped(lambda y: y.astype(jnp.complex64 if jnp.iscomplexobj(y) else jnp.float32), _mapped(jnp.asarray, f(x)))

    value = jax.jit(function)
    jvp = jax.jit(lambda x, dx: jax.jvp(function, (x,), (dx,))[1])
    # JAX's products with cotangents are without the conjugate.
    vjp = jax.jit(lambda x, dy: _mapped(jnp.conj, jax.vjp(function, x)[1](_mapped(jnp.conj, dy))[0]))
    calls = {
        "value": lambda x: value(_single(x)),
        "jvp": lambda x, dx: jvp(_single(x), _single(dx)),
        "vjp": lambda x, dy: vjp(_single(x), _single(dy)),
    }

    def shaped(fields):
        return _target_of(jax.eval_shape(function, _zeros(fields)), fields, "from_jax")

    if not callable(f):
        calls["value"] = f
    made = _made("from_jax", calls, domain, shaped if target is None else target, name, version, comm)
    return made_by(made, from_jax, f, domain, target, name=name, version=version)


def from_torch(f, domain, target=None, *, name="torch", version="", comm=None):
    """Create a model from a function of PyTorch, which finds its derivatives.

    Parameters
    ----------
    f : callable
        A function of one tensor, or of a dictionary for several leaves, that `torch.func` can
        differentiate. It returns one tensor or a dictionary.
    domain : Space
        Leaves that it takes.
    target : Space, optional
        Leaves that it returns. Default: for a result with the shape of a leaf of `domain` such a
        leaf, otherwise a vector; a single tensor is named "y". `f` is called with zeros to find the
        shapes.
    name, version, comm
        As in `custom`.

    Returns
    -------
    Model

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    ValueError
        As in `custom`, or if a result has the shape of no leaf and more than one axis.

    Notes
    -----
    Collective with `comm`. Fields are tensors of float32 and complex64 on the host in `f`. With
    several ranks, `f` sees the part of its rank, as in `custom`.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> import torch  # doctest: +SKIP
    >>> model = op.from_torch(torch.tanh, op.cells(8))  # doctest: +SKIP
    >>> model.target  # doctest: +SKIP
    {'y': (8,)}
    """
    torch = _imported("torch", "from_torch")

    def tensors(x):
        return _mapped(torch.from_numpy, _single(x))

    def arrays(y):
        return _mapped(lambda y: y.detach().resolve_conj().cpu().numpy(), y)

    def function(x):
        return _mapped(lambda y: y.to(torch.complex64 if y.is_complex() else torch.float32), f(x))

    calls = {
        "value": lambda x: arrays(function(tensors(x))),
        "jvp": lambda x, dx: arrays(torch.func.jvp(function, (tensors(x),), (tensors(dx),))[1]),
        "vjp": lambda x, dy: arrays(torch.func.vjp(function, tensors(x))[1](tensors(dy))[0]),
    }

    def shaped(fields):
        return _target_of(arrays(function(tensors(_zeros(fields)))), fields, "from_torch")

    if not callable(f):
        calls["value"] = f
    made = _made("from_torch", calls, domain, shaped if target is None else target, name, version, comm)
    return made_by(made, from_torch, f, domain, target, name=name, version=version)


def matrix(A, space=None, result="y", adjoint=False, comm=None):
    """Create the product of a matrix with a vector.

    Parameters
    ----------
    A : array_like or SciPy sparse array, shape (m, n)
        Real finite numbers, the same on all ranks.
    space : Space, optional
        Domain: one real leaf of n numbers, a `vector`; on one rank it may be a grid. Default:
        ``Space(x=vector(n))``.
    result : str, default "y"
        Name of the vector of m numbers that is the target.
    adjoint : bool, default False
        Whether to return the product with the transposed matrix, from the target to the domain.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks, of which each has the whole vectors. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `A` is not a matrix of finite real numbers, or `space` has another number of numbers.

    Notes
    -----
    Collective with `comm`. The matrix is kept on the device in float32, twice: also transposed.
    Entries of a sparse matrix at the same place are added.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.matrix([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])([1.0, 10.0, 100.0])).tolist()
    [201.0, 30.0]
    """
    comm = resolve(comm)

    def check():
        is_sparse = hasattr(A, "tocsr")
        csr = A.tocsr() if is_sparse else None
        values = csr.data if is_sparse else np.asarray(A)
        shape = csr.shape if is_sparse else values.shape
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"A: expected a matrix of at least one row and column, got shape {shape}")
        if values.dtype.kind not in "biuf":
            raise ValueError(f"A: expected real numbers, got {values.dtype}")
        with np.errstate(over="ignore"):
            single = np.ascontiguousarray(values, np.float32).ravel()
        if not np.isfinite(single).all():
            raise ValueError("A: expected numbers that are finite in float32")
        own = Space(x=Leaf("vector", (shape[1],), ())) if space is None else space_of(space)
        if not isinstance(result, str):
            raise TypeError(f"result: expected a name, a str, got {type(result).__name__}")
        name, leaf = own._only("matrix")
        if comm.size > 1 and leaf.kind != "vector":
            raise ValueError(f"space: expected a vector, which each rank has as a whole, got {leaf}")
        if np.prod(_fields(own, comm)[name]) != shape[1]:
            raise ValueError(f"space: expected one leaf of {shape[1]} numbers, as many as columns, got {own}")
        rows = (csr.indptr.astype(np.uint64), csr.indices.astype(np.uint32)) if is_sparse else None
        alike = {"function": "matrix", "shape": shape, "space": own._said(), "result": result, "adjoint": bool(adjoint), "A": summary(single)}
        return (own, Space({result: Leaf("vector", (shape[0],), ())}), single, rows), alike, None

    def make(own, _):
        own, to, values, rows = own
        return Model(_native.matrix(comm, [own._native(), to._native()], values, rows, bool(adjoint)), comm, own._axes)

    return together(comm, check, make)
