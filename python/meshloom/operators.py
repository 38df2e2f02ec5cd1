"""Models of fields: differentiable functions composed of operators and of functions in WGSL.

A `Space` has named leaves, such as the cells of a grid. A field is a dictionary of arrays, or one
array for a space of one leaf. A `Model` has a value and, at a point, the products with its
derivative, ``jvp`` and ``vjp``. Models compute on the device in float32, and results stay there as
`meshloom.Array`.

Notes
-----
With ``adjoint=True`` a linear operator is replaced by its adjoint, which in general is not the
inverse. The argument `space` is always the domain of the operator itself, not of its adjoint.

All functions that take ``comm=`` are collective with it, and so are the methods of their models.

Examples
--------
>>> import numpy as np
>>> from meshloom import operators as op
>>> cells = op.Space(x=op.cells((4, 6)))
>>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", cells, "y")
>>> x = np.full((4, 6), 3.0, dtype=np.float32)
>>> at = square.at(x)
>>> [float(np.asarray(y)[0, 0]) for y in (at.value, at.jvp(x), at.vjp(x))]
[9.0, 18.0, 18.0]
>>> smooth = square.then(op.hartley(square.target))
>>> smooth.target
{'y': (4, 6)}
"""

import collections.abc
import math

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array
from ._comm import agreed, gathered, resolve, summary, together
from ._cosmology import parameters as cosmology_parameters
from ._custom import custom, from_jax, from_torch, matrix
from ._map_models import map_items, map_reduce
from ._model import AdjointCheck, DerivativeCheck, Linearization, Model, check_finite, for_copies, given, long_axes, same_shape
from ._simulation import run_options, warn
from ._space import Fields, Leaf, Space, both_axes, cells, half_spectrum, modes, parameters, points, space_of, three, vector

__all__ = [
    "AdjointCheck",
    "DerivativeCheck",
    "Fields",
    "Leaf",
    "Linearization",
    "Model",
    "Space",
    "amplitudes",
    "broadcast",
    "cells",
    "convolution",
    "cos",
    "crop",
    "custom",
    "diagonal",
    "exp",
    "fourier",
    "from_jax",
    "from_torch",
    "gather",
    "half_spectrum",
    "hartley",
    "interp",
    "inverse_fourier",
    "join",
    "light_cone",
    "linear_density",
    "lines_of_sight",
    "log",
    "map_items",
    "map_reduce",
    "matrix",
    "modes",
    "pad",
    "paint",
    "parameters",
    "points",
    "pointwise",
    "readout",
    "redshift_space",
    "rename",
    "reshape",
    "select",
    "sigmoid",
    "simulation",
    "sin",
    "softplus",
    "split",
    "sqrt",
    "stencil",
    "tanh",
    "vector",
]


def pointwise(text, function, space, result, constants=None, comm=None):
    """Create a model from a function in WGSL of the values at one place.

    Parameters
    ----------
    text : str
        WGSL source. It may use floats, vectors, `let`, `var`, structures, `if`, calls of other
        functions and the builtin functions of floats and their vectors. Not supported: matrices,
        integer variables, loops, `refract`, `modf`, `frexp`, `ldexp` and `quantizeToF16`.
    function : str
        Name of the function. Its arguments are leaves of `space` and `constants`, by name. If there
        is one leaf and no constant, the argument may have any name.
    space : Space
        Domain: leaves at the same places, and vectors of length 1.
    result : str
        Name of the leaf of the target.
    constants : dict of str to array_like, optional
        Arguments with fixed values: arrays at the places of the first leaf of `space`; with `comm`,
        the part of this rank. Values must be finite.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the text is not valid or not supported (with the line), an argument has no leaf, or a
        constant has another shape or is not finite.
    TypeError
        If `text`, `function` or `result` is not a str.

    Notes
    -----
    Collective with `comm`. Derivatives are derived from the text.

    WGSL is the language of https://www.w3.org/TR/WGSL/. For users of NumPy: ``x ** 2`` is ``x * x``
    or ``pow(x, 2.0)`` for x >= 0, and a choice is ``select(no, yes, condition)`` (there is no
    ``?:``). ``2 * x`` works, since the literal becomes a float.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> text = "fn counts(s: f32, exposure: f32) -> f32 { return exposure * exp(s); }"
    >>> space, exposure = op.Space(s=op.cells(3)), {"exposure": [1.0, 2.0, 0.0]}
    >>> counts = op.pointwise(text, "counts", space, "counts", constants=exposure)
    >>> np.asarray(counts(np.zeros(3))).tolist()
    [1.0, 2.0, 0.0]
    """
    comm = resolve(comm)

    def check():
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str of WGSL, not {type(text).__name__}")
        for value, what in ((function, "function"), (result, "result")):
            if not isinstance(value, str):
                raise TypeError(f"{what}: expected a name, a str, not {type(value).__name__}")
        own = space_of(space)
        names = sorted(constants or {})
        main = next((leaf for leaf in own.leaves.values() if leaf.kind != "vector"), next(iter(own.leaves.values())))
        one = main._place(copies=main.copies)
        fixed = [one._native(name) for name in names], [_field(one, name, constants[name], comm, f"constant `{name}`") for name in names]
        alike = {"function": "pointwise", "space": own._said(), "text": text, "name of the function": function, "result": result, "constants": names}
        return (own, fixed), alike, None

    def make(own, _):
        own, fixed = own
        return Model(_native.pointwise(comm, own._native(), text, function, result, fixed), comm, own._axes)

    return together(comm, check, make)


def _linear(name, space, what, adjoint, comm, check, make):
    """Create a model of the only leaf of a space.

    `check` takes the leaf and its name. It returns the arguments of `make` after the space, and the
    values that must be the same on all ranks.
    """
    comm = resolve(comm)

    def checked():
        own = space_of(space)
        arguments, alike = check(comm, *own._only(what))
        return (own, arguments), {"function": name, "space": own._said(), "adjoint": bool(adjoint), **alike}, None

    def made(own, _):
        own, arguments = own
        return Model(make(comm, own._native(), *arguments), comm, own._axes)

    return together(comm, checked, made)


def _nothing_else(comm, name, leaf):
    """Return no arguments: the leaf is enough."""
    return (), {}


def fourier(space, adjoint=False, comm=None):
    """Create the Fourier transform of a field on cells.

    Real cells give a half spectrum, as `numpy.fft.rfftn`; complex cells give all modes, as
    `numpy.fft.fftn`.

    Parameters
    ----------
    space : Space
        Domain: one leaf of cells.
    adjoint : bool, default False
        Create the adjoint, from modes to cells. It is not the inverse: it lacks the factor ``1 /
        N``, and for real cells it weighs modes that stand for two by a half. `inverse_fourier` is
        the inverse.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `space` does not have exactly one leaf of cells.

    Notes
    -----
    Collective with `comm`. The adjoint, and ``vjp``, use the inner product ``Re sum conj(y) F x``
    of real and imaginary parts as real numbers; JAX's ``vjp`` has ``y`` instead of its conjugate.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> modes = op.fourier(op.cells(8))(np.ones(8))
    >>> modes.shape, complex(np.asarray(modes)[0])
    ((5,), (8+0j))
    """
    return _linear("fourier", space, "a transform", adjoint, comm, _nothing_else, lambda comm, leaves: _native.fourier(comm, leaves, False, bool(adjoint)))


def inverse_fourier(space, comm=None):
    """Create the inverse of ``fourier(space)``, from modes to cells.

    A half spectrum gives real cells, as `numpy.fft.irfftn`. Imaginary parts of modes that are real
    for every real field are ignored.

    Parameters
    ----------
    space : Space
        Space of the cells: one leaf, real or complex.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `space` does not have exactly one leaf of cells.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> space = op.Space(x=op.cells(8))
    >>> again = op.fourier(space).then(op.inverse_fourier(space))
    >>> np.allclose(again(np.arange(8.0)), np.arange(8.0), atol=1e-5)
    True
    """
    return _linear("inverse_fourier", space, "a transform", False, comm, _nothing_else, _native.inverse_fourier)


def hartley(space, adjoint=False, comm=None):
    """Create the Hartley transform of a real field on cells, to as many real modes.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    adjoint : bool, default False
        Create the adjoint, from modes to cells: the inverse times the number of cells.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `space` does not have exactly one real leaf of cells.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.hartley(op.cells(4))([1.0, 0.0, 0.0, 0.0])).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _linear("hartley", space, "a transform", adjoint, comm, _nothing_else, lambda comm, leaves: _native.fourier(comm, leaves, True, bool(adjoint)))


def _function(name, what, example):
    """Return a function of models that applies a function of one number."""

    def function(model):
        if not isinstance(model, Model):
            raise TypeError(f"model: expected a Model, not {type(model).__name__}")
        return model._applied(lambda: model._native.function(name))

    x, y = example
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return a model of {what} of the values of a model.

    Parameters
    ----------
    model : Model
        A model with real values.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If values are complex.

    Notes
    -----
    Collective with the `comm` of the model. Functions of a chain, sums and products become one
    kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> x = mi.NormalPrior(0.0, 1.0, op.Space(x=op.vector(1)))
    >>> round(float(np.asarray(op.{name}(x)([{x}]))[0]), 4)
    {y}
    """
    return function


exp = _function("exp", "the exponential", (0.5, 1.6487))
log = _function("log", "the natural logarithm", (2.0, 0.6931))
sqrt = _function("sqrt", "the square root", (2.0, 1.4142))
sin = _function("sin", "the sine", (0.5, 0.4794))
cos = _function("cos", "the cosine", (0.5, 0.8776))
tanh = _function("tanh", "the hyperbolic tangent", (0.5, 0.4621))
sigmoid = _function("sigmoid", "the logistic function ``1 / (1 + exp(-x))``", (0.5, 0.6225))
softplus = _function("softplus", "the function ``log(1 + exp(x))``", (0.5, 0.9741))


def interp(model, x, y):
    """Return the piecewise linear function of a table of the values of a model, as `numpy.interp`.

    Parameters
    ----------
    model : Model
        A model with one real leaf on the device.
    x : array_like
        Ascending abscissae, two or more.
    y : array_like
        Value at each abscissa. The function is constant beyond the ends.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the numbers are not finite, ascending and as many in `x` as in `y`.

    Notes
    -----
    Collective with the `comm` of the model. The derivative at an abscissa is that above it.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> redshift = mi.NormalPrior(0.5, 1.0, op.Space(z=op.vector(2)))
    >>> np.asarray(op.interp(redshift, [0.0, 1.0, 2.0], [0.0, 3.0, 5.0])([0.0, 1.0])).tolist()
    [1.5, 4.0]
    """
    if not isinstance(model, Model):
        raise TypeError(f"model: expected a Model, not {type(model).__name__}")
    comm = model._comm

    def check():
        nodes = [real_array(values, name).astype(np.float64).ravel() for values, name in ((x, "x"), (y, "y"))]
        return [values.tolist() for values in nodes], {"function": "interp", "x": summary(nodes[0]), "y": summary(nodes[1])}, None

    def make(nodes, _):
        table = _native.interpolation(comm, model.target.space._native(), *nodes)
        return Model(model._native.then(table), comm, model._axes)

    return together(comm, check, make)


def rename(model, target=None, domain=None):
    """Return the same model with other names of leaves, as `Model.rename`.

    Parameters
    ----------
    model : Model
    target, domain : dict of str to str, optional
        New name of each leaf to rename, by its present name.

    Returns
    -------
    Model

    Notes
    -----
    Collective with the `comm` of the model.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> op.rename(op.hartley(op.cells(4)), {"x": "modes"}).target
    {'modes': (4,)}
    """
    return model.rename(target, domain)


def join(space, result="joined", order=None, adjoint=False, comm=None):
    """Create one vector of several ones, or copies of several fields; the adjoint splits.

    Parameters
    ----------
    space : Space
        Domain: vectors only, parameters only, or fields on one grid, which become copies.
    result : str, default "joined"
        Name of the leaf of the target.
    order : sequence of str, optional
        Order of the leaves. Default: by name.
    adjoint : bool, default False
        Create the adjoint, from the joined vector to its parts.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have the vectors. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If leaves are of several kinds or grids, or `order` does not name every leaf once.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> theta = op.join(op.Space(a=op.vector(2), b=op.vector(1)), "theta", ["b", "a"])
    >>> np.asarray(theta({"a": [1.0, 2.0], "b": [3.0]})).tolist()
    [3.0, 1.0, 2.0]
    >>> op.join(op.Space(red=op.cells((4, 6)), blue=op.cells((4, 6))), "sky").target
    {'sky': (2, 4, 6)}
    """
    comm = resolve(comm)

    def check():
        own = space_of(space)
        names = list(own.leaves) if order is None else list(order)
        for name in [*names, result]:
            if not isinstance(name, str):
                raise TypeError(f"order and result: expected names, got {name!r}")
        return (own, names), {"function": "join", "space": own._said(), "order": names, "result": result, "adjoint": bool(adjoint)}, None

    def make(own, _):
        own, names = own
        return Model(_native.join(comm, own._native(), names, result, bool(adjoint)), comm, own._axes)

    return together(comm, check, make)


def split(space, result, adjoint=False, comm=None):
    """Create the parts of a vector, or of the copies of a field; the adjoint joins them.

    Parameters
    ----------
    space : Space
        Domain: one vector, parameters, or a field of several copies.
    result : dict of str to int
        Name and length of each part, or its number of copies, in their order.
    adjoint : bool, default False
        Create the adjoint, from the parts to the vector.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have the vector. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the sum of the lengths is not the length of the vector, or that of the copies not the
        number of copies of the field.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> parts = op.split(op.vector(3), {"b": 1, "a": 2})([3.0, 1.0, 2.0])
    >>> np.asarray(parts["a"]).tolist(), np.asarray(parts["b"]).tolist()
    ([1.0, 2.0], [3.0])
    >>> op.split(op.cells((4, 6), copies=3), {"first": 1, "others": 2}).target
    {'first': (4, 6), 'others': (2, 4, 6)}
    """
    own = space_of(space)
    name, leaf = own._only("a split")
    if not isinstance(result, collections.abc.Mapping):
        raise TypeError(f"result: expected a dict of names and lengths, got {type(result).__name__}")
    lengths = {part: whole_number(length, "result", 1) for part, length in result.items()}
    is_row = leaf.kind in ("vector", "parameters")
    wanted = leaf.shape[0] if is_row else leaf.copies
    if sum(lengths.values()) != wanted:
        raise ValueError(f"result: expected {'lengths' if is_row else 'copies'} that add to {wanted}, got {sum(lengths.values())}")
    if is_row:
        parts = {part: Leaf(leaf.kind, (length,), ()) for part, length in lengths.items()}
    else:
        parts = {part: leaf._with(copies=length) for part, length in lengths.items()}
    return join(Space(parts), name, list(result), not adjoint, comm)


def reshape(space, target, comm=None):
    """Create the same values in C order as a leaf of another shape.

    Parameters
    ----------
    space : Space
        Domain: one vector, or cells.
    target : Space
        One vector, or cells, with the same number of values, complex if those are. Axes of copies
        and components count as axes.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the numbers of values differ, or only one of the leaves is complex.

    Notes
    -----
    Collective with `comm`. Every rank holds a vector of all values, which are rounded to about
    2**-40 of the largest one.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.reshape(op.vector(4), op.cells((2, 2)))([1.0, 2.0, 3.0, 4.0])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    >>> op.reshape(op.cells((4, 5, 6)), op.cells((5, 6), copies=4)).target
    {'x': (4, 5, 6)}
    """
    own, places = space_of(space), space_of(target)
    (_, source), (_, wanted) = own._only("a reshape"), places._only("a reshape")
    for name, leaf in (("space", source), ("target", wanted)):
        if leaf.kind not in ("vector", "cells"):
            raise ValueError(f"{name}: expected a vector or cells, got {leaf}")
    if math.prod(source._whole()) != math.prod(wanted._whole()) or source.complex != wanted.complex:
        values = "complex" if source.complex else "real"
        raise ValueError(f"target: expected {math.prod(source._whole())} {values} values as in {source}, got {math.prod(wanted._whole())} in {wanted}")
    return _flat(own, comm).then(_flat(places, comm, adjoint=True))


def pad(space, widths, adjoint=False, comm=None):
    """Create a larger grid with the cells of a field in it and 0 around them.

    Parameters
    ----------
    space : Space
        Domain: one leaf of cells.
    widths : int, tuple of int, or sequence of tuple of int
        Cells to add before and after, for all axes or one pair for each, as in `numpy.pad`.
    adjoint : bool, default False
        Create the adjoint, which crops the larger grid to the cells of `space`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `widths` does not fit the axes, or is negative.

    Notes
    -----
    Collective with `comm`. Every rank holds a vector of all values of the smaller grid. Cells keep
    their size.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.pad(op.cells(2), (1, 2))([5.0, 7.0])).tolist()
    [0.0, 5.0, 7.0, 0.0, 0.0]
    >>> np.asarray(op.pad(op.cells(2), (1, 2), adjoint=True)([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
    [2.0, 3.0]
    """
    own = space_of(space)
    name, leaf, pairs = _widths(own, "pad", widths)
    larger = Space({name: _resized(leaf, [n + before + after for n, (before, after) in zip(leaf.shape, pairs)])})
    return _cropped(larger, own, pairs, comm) if adjoint else _padded(own, larger, pairs, comm)


def crop(space, widths, adjoint=False, comm=None):
    """Create the part of a grid that is left without cells at its ends.

    Parameters
    ----------
    space : Space
        Domain: one leaf of cells.
    widths : int, tuple of int, or sequence of tuple of int
        Cells to leave out before and after, for all axes or one pair for each, as in `pad`.
    adjoint : bool, default False
        Create the adjoint, which pads the smaller grid with 0.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If `widths` does not fit the axes, is negative, or leaves no cell.

    Notes
    -----
    Collective with `comm`. Every rank holds a vector of all values of the smaller grid. Cells keep
    their size.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.crop(op.cells(5), (1, 2))([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
    [2.0, 3.0]
    """
    own = space_of(space)
    name, leaf, pairs = _widths(own, "crop", widths)
    shape = [n - before - after for n, (before, after) in zip(leaf.shape, pairs)]
    if min(shape) < 1:
        raise ValueError(f"widths: expected to leave 1 cell or more along each axis of {leaf}, got {widths!r}")
    smaller = Space({name: _resized(leaf, shape)})
    return _padded(smaller, own, pairs, comm) if adjoint else _cropped(own, smaller, pairs, comm)


def _widths(space, what, widths):
    """Return name and leaf of a grid, and the pairs of widths at the ends of its axes."""
    name, leaf = space._only(f"a {what}")
    if leaf.kind != "cells":
        raise ValueError(f"space: expected cells, got {leaf}")
    pairs = np.asarray(widths)
    if pairs.dtype.kind not in "iu" or np.any(pairs < 0) or pairs.shape not in ((), (2,), (len(leaf.shape), 2)):
        raise ValueError(f"widths: expected one or two numbers of cells, or {len(leaf.shape)} pairs, 0 or more, got {widths!r}")
    return name, leaf, np.broadcast_to(pairs, (len(leaf.shape), 2)).tolist()


def _resized(leaf, shape):
    """Return a grid of another shape with cells of the same size."""
    return leaf._with(shape=tuple(shape), size=tuple(length * new / n for length, n, new in zip(leaf.size, leaf.shape, shape)))


def _padded(smaller, larger, pairs, comm):
    return _held(smaller, comm).then(_inner(smaller, larger, pairs, False, comm))


def _cropped(larger, smaller, pairs, comm):
    (_, leaf) = smaller._only("a crop")
    return _inner(smaller, larger, pairs, True, comm).then(_held(smaller, comm, adjoint=True))


def _inner(smaller, larger, pairs, adjoint, comm):
    """Return the cells of a grid that take the values of a smaller one, given as a vector."""
    (_, leaf) = smaller._only("a block")
    axes = {axis: (pairs[axis][0], n) for axis, n in enumerate(leaf.shape)}
    return _block(Space(x=leaf._in_row()), larger, axes, adjoint, comm)


def _held(space, comm, adjoint=False):
    """Return the values of cells as a vector on all ranks, of as many components and copies."""
    (_, leaf) = space._only("a reshape")
    whole = {axis: (0, n) for axis, n in enumerate(leaf.shape)}
    return _block(Space(x=leaf._in_row()), space, whole, not adjoint, comm)


def _flat(space, comm, adjoint=False):
    """Return all numbers of a vector or cells in C order as one vector on all ranks."""
    name, leaf = space._only("a reshape")
    if leaf.kind == "vector":
        return join(space, "x", adjoint=adjoint, comm=comm)
    row = join(Space(x=leaf._in_row()), "x", adjoint=adjoint, comm=comm)
    return row.then(_held(space, comm, True)) if adjoint else _held(space, comm).then(row)


def _block(space, target, axes, adjoint, comm):
    """Return the cells that take entries by their coordinates along some axes."""
    comm = resolve(comm)

    def check():
        name, leaf = target._only("a block")
        if leaf.kind != "cells":
            raise ValueError(f"target: expected cells, got {leaf}")
        own = three([axes.get(axis) for axis in range(len(leaf.shape))], None)
        return own, {"function": "a block", "space": space._said(), "target": target._said(), "axes": own, "adjoint": adjoint}, None

    def make(own, _):
        return Model(_native.block(comm, space._native(), target._native(), own, adjoint), comm, target._axes)

    return together(comm, check, make)


def diagonal(space, factors, comm=None):
    """Create the multiplication of each value of a field by a factor.

    Parameters
    ----------
    space : Space
        Domain: one leaf.
    factors : array_like
        Finite factors, one per place, the same for all components; complex for a complex leaf. With
        `comm`, the part of this rank.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape does not fit, or a factor is not finite.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.diagonal(op.cells(3), [1.0, 2.0, 3.0])([1.0, 1.0, 1.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    def check(comm, name, leaf):
        place = leaf._place(leaf.complex)
        return (place._native(name), _field(place, name, factors, comm, "factors")), {}

    return _linear("diagonal", space, "a diagonal", False, comm, check, _native.diagonal)


def _field(leaf, name, values, comm, what):
    """Return this rank's values of a leaf on the device; they must be finite."""
    native = leaf._native(name)
    values = values[name] if isinstance(values, collections.abc.Mapping) and set(values) == {name} else values
    shape = _native.leaf_shape(comm, native)
    if leaf.copies > 1:
        values = for_copies((shape[0], *shape[1:][-len(leaf.shape) :]), values)
    arrays = given([(native, shape)], values, comm)
    check_finite(values, what)
    return arrays[0]


def convolution(space, kernel, adjoint=False, comm=None):
    """Create the periodic convolution of a real field on cells with a kernel.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    kernel : array_like
        Finite values of the kernel at the cells of the field. Its center is the first cell.
        Components share the kernel. With `comm`, the part of this rank.
    adjoint : bool, default False
        Create the adjoint, a correlation with the kernel.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape does not fit, or a value of the kernel is not finite.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> blur = op.convolution(op.cells(4), [0.5, 0.25, 0.0, 0.25])
    >>> np.round(np.asarray(blur([0.0, 4.0, 0.0, 0.0])), 5).tolist()
    [1.0, 2.0, 1.0, 0.0]
    """

    def check(comm, name, leaf):
        place = leaf._place()
        return (place._native(name), _field(place, name, kernel, comm, "kernel"), bool(adjoint)), {}

    return _linear("convolution", space, "a convolution", adjoint, comm, check, _native.convolution)


def stencil(space, taps, adjoint=False, comm=None):
    """Create weighted sums of neighbors on a periodic grid.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    taps : dict of int or tuple of int to float
        Weight of each neighbor, by its offset in cells along each axis: ``{(0, 1): 0.5, (0, -1):
        -0.5}`` is a derivative.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If offsets do not have one number per axis, or a weight is not finite.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> slope = op.stencil(op.Space(x=op.cells(4)), {1: 0.5, -1: -0.5})
    >>> np.asarray(slope([0.0, 1.0, 4.0, 9.0])).tolist()
    [-4.0, 2.0, 4.0, -2.0]
    """

    def check(comm, name, leaf):
        offsets = [_index(offset, leaf, "an offset") for offset in taps]
        weights = [real_number(weight, "a weight of taps") for weight in taps.values()]
        return (list(zip(offsets, weights)), bool(adjoint)), {"taps": dict(zip(map(tuple, offsets), weights))}

    return _linear("stencil", space, "a stencil", adjoint, comm, check, _native.stencil)


def _index(index, leaf, what):
    """Return integers along three axes for those along the axes of a leaf."""
    index = (index,) if np.ndim(index) == 0 else tuple(index)
    if len(index) != len(leaf.shape):
        raise ValueError(f"{what}: expected {len(leaf.shape)} numbers, one for each axis, got {index}")
    return three([whole_number(n, f"a number of {what}", -(2**63)) for n in index], 0)


def _coordinates(rows, axes, name):
    """Return rows of coordinates along three axes for those along the axes of a leaf."""
    rows = np.atleast_2d(real_array(rows, name).astype(np.float64))
    if rows.ndim != 2 or rows.shape[1] != axes:
        raise ValueError(f"{name}: expected shape (N, {axes}), one row per point, got {rows.shape}")
    return np.ascontiguousarray(np.stack(three(list(rows.T), np.zeros(len(rows))), axis=1))


def readout(space, positions, window="cic", adjoint=False, comm=None):
    """Create the interpolation of a real field on cells to points.

    The value of a cell is at its lower corner. The adjoint paints points onto cells.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    positions : array_like, shape (N, axes)
        Points in the box, in the unit of its size; with `comm`, those in the cells of this rank.
    window : {"cic", "tsc", "pcs"}, default "cic"
        Window function; "cic" is linear interpolation.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape does not fit, a coordinate is not finite or `window` is unknown.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> at = op.readout(op.Space(x=op.cells(4)), [[1.5], [3.5]])
    >>> np.asarray(at([0.0, 1.0, 3.0, 8.0])).tolist()
    [2.0, 4.0]
    """

    def check(comm, name, leaf):
        return (_coordinates(positions, len(leaf.shape), "positions"), window, bool(adjoint)), {"window": window}

    return _linear("readout", space, "a readout", adjoint, comm, check, _native.readout)


def paint(space, target, window="tsc", comm=None):
    """Create the density of particles as a function of their positions and weights.

    Parameters
    ----------
    space : Space
        Domain. One real leaf with three components: at `points`, the positions; at `cells` of three
        axes, the displacements of particles from the lower corners of the cells, one particle each,
        as `simulation` and `redshift_space` give them. Optionally one real leaf with one component
        at the same places: weights of either sign.
    target : Space
        One leaf of real cells of three axes, periodic: the mesh. A mesh with one cell along an axis
        has the projection along it, such as a lens plane.
    window : {"cic", "tsc", "pcs"}, default "tsc"
        Window function. The derivative of "cic" by positions jumps at the borders of cells.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the particles and the mesh each. Default: this process alone.

    Returns
    -------
    Model
        Its target is the leaf ``density``: 1 on average for particles of weight 1.

    Raises
    ------
    ValueError
        If the leaves are not as above, or the boxes differ; when the model is called, if a position
        is not finite.

    Notes
    -----
    Collective with `comm`. Positions are wrapped into the box. Same bits on any number of ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> space = op.Space(position=op.points(2, components=3), weight=op.points(2))
    >>> density = op.paint(space, op.cells((4, 4, 4)), window="cic")
    >>> at = density.at({"position": [[1.0, 3.5], [1.0, 0.0], [2.0, 0.0]], "weight": [1.0, 3.0]})
    >>> np.asarray(at.value)[[1, 3, 0], [1, 0, 0], [2, 0, 0]].tolist()
    [32.0, 48.0, 48.0]
    >>> float(np.asarray(at.vjp(np.ones((4, 4, 4)))["weight"])[0])
    32.0
    """
    comm = resolve(comm)

    def check():
        own, mesh = space_of(space), space_of(target)
        leaves = [*own.leaves.values(), mesh._only("paint")[1]]
        for leaf in leaves:
            if leaf.kind == "cells" and len(leaf.shape) != 3:
                raise ValueError(f"paint: expected cells of three axes, got {leaf}; give one cell along an axis to project")
        return (own, mesh), {"function": "paint", "space": own._said(), "target": mesh._said(), "window": window}, None

    def make(own, _):
        own, mesh = own
        return Model(_native.paint(comm, own._native(), mesh._native(), window), comm, both_axes(own._axes, mesh._axes))

    return together(comm, check, make)


def redshift_space(space, line_of_sight=(0.0, 0.0, 1.0), a=1.0, cosmology=None, comm=None):
    """Create the displacements of particles in redshift space from those of a run.

    A particle moves along the line of sight by its momentum.

    Parameters
    ----------
    space : Space
        Target of a `simulation` with the observables "displacement" and "momentum"; other leaves
        are left out.
    line_of_sight : sequence of 3 floats, default (0, 0, 1)
        Direction of a distant observer, of any length.
    a : float, default 1
        Scale factor at which the run ends.
    cosmology : Cosmology, optional
        That of the run. Default: as in `meshloom.simulate`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the particles each. Default: this process alone.

    Returns
    -------
    Model
        Its target is the leaf ``displacement``: ``x + (p . n) n / (a**2 E(a))`` with ``E = H/H0``.
        At ``a=1``, where ``E`` is 1, it is right for every cosmology of the run.

    Raises
    ------
    ValueError
        If `space` lacks one of the leaves, `line_of_sight` is 0 or `a` is not positive.

    Notes
    -----
    Collective with `comm`. The method is that of Kaiser (1987).

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> observables = ["displacement", "momentum"]
    >>> run = op.simulation(8, 8, 32.0, steps=2, window="tsc", observables=observables)
    >>> moved = run.then(op.redshift_space(run.target))
    >>> density = moved.then(op.paint(moved.target, op.cells((8, 8, 8), size=32.0)))
    >>> float(np.asarray(density(np.zeros((8, 8, 8))))[0, 0, 0])
    1.0
    """
    comm = resolve(comm)

    def check():
        own = space_of(space)
        direction = tuple(real_number(x, "line_of_sight") for x in line_of_sight)
        if len(direction) != 3:
            raise ValueError(f"line_of_sight: expected 3 numbers, got {len(direction)}")
        arguments = list(direction), real_number(a, "a"), cosmology_parameters(cosmology)
        return (own, arguments), {"function": "redshift_space", "space": own._said(), "arguments": arguments}, None

    def make(own, _):
        own, arguments = own
        return Model(_native.redshift_space(comm, own._native(), *arguments), comm, own._axes)

    return together(comm, check, make)


def light_cone(space, number, a, observer, image=(0, 0, 0), cosmology=None, comm=None):
    """Create the particles of a run where they cross the past light cone between two snapshots.

    Parameters
    ----------
    space : Space
        Target of a `simulation` with snapshots; other leaves are left out.
    number : int
        Number of the earlier snapshot; the later one is the next.
    a : sequence of 2 floats
        Scale factors of the two snapshots, as they were given to `simulation`: a space does not
        know them.
    observer : sequence of 3 floats
        Place of the observer, who looks at scale factor 1, in Mpc/h.
    image : sequence of 3 int, default (0, 0, 0)
        Periodic image of the box, in sides of it.
    cosmology : Cosmology, optional
        That of distances, which are constants. Default: as in `meshloom.simulate`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the particles each. Default: this process alone.

    Returns
    -------
    Model
        Its target has the leaves ``displacement``, that of the crossing, ``distance`` from the
        observer in Mpc/h, and ``weight``: 1 if the particle crosses between the snapshots, else 0.

    Raises
    ------
    ValueError
        If `space` lacks the snapshots, or scale factors do not ascend up to 1.

    Notes
    -----
    Collective with `comm`. Paths are cubics through the positions and velocities of both snapshots,
    so that the cone has no shells. A particle crosses in one section: densities of sections and
    images add. `paint` makes a density, or a lens plane of the weight times a function of the
    distance. Derivatives need a device that binds 13 arrays in a kernel; SwiftShader binds 10.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> times, grid = [0.9, 0.95, 1.0], op.cells((8, 8, 8), size=600.0)
    >>> run = op.simulation(8, 8, 600.0, steps=4, window="tsc", snapshots=times)
    >>> density = 0.0
    >>> for i in range(2):
    ...     section = op.light_cone(run.target, i, times[i : i + 2], (300.0, 300.0, 300.0))
    ...     section = section.giving("displacement", "weight")
    ...     density = section.then(op.paint(section.target, grid)) + density
    >>> cone = run.giving(*density.domain).then(density)
    >>> cone.domain, cone.target
    ({'white_noise': (8, 8, 8)}, {'density': (8, 8, 8)})
    """

    def triple(values, name, number):
        if np.ndim(values) != 1 or len(values) != 3:
            raise ValueError(f"{name}: expected 3 numbers, got {values!r}")
        found = [number(x, name) for x in values]
        return found

    comm = resolve(comm)

    def check():
        own, first = space_of(space), whole_number(number, "number")
        if np.ndim(a) != 1 or len(a) != 2:
            raise ValueError(f"a: expected the scale factors of 2 snapshots, got {a!r}")
        scales = [real_number(x, "a") for x in a]
        place = triple(observer, "observer", real_number)
        cell = triple(image, "image", lambda x, name: whole_number(x, name, -(2**31)))
        arguments = [first, first + 1], scales, place, cell, cosmology_parameters(cosmology)
        return (own, arguments), {"function": "light_cone", "space": own._said(), "arguments": arguments}, None

    def make(own, _):
        own, arguments = own
        return Model(_native.light_cone(comm, own._native(), *arguments), comm, own._axes)

    return together(comm, check, make)


def linear_density(particles=64, box=128.0, *, a=1.0, cosmology=None, comm=None):
    """Create the linear density contrast at the sites of particles from white noise.

    It makes weights with Lagrangian bias.

    Parameters
    ----------
    particles, box, cosmology
        As in `simulation`.
    a : float, default 1
        Scale factor of the contrast.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the lattice each. Default: this process alone.

    Returns
    -------
    Model
        From the leaf ``white_noise`` to the leaf ``delta``, both of shape ``(particles, particles,
        particles)``. The attribute ``variance`` is the variance of ``delta`` at a site.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> delta = op.linear_density(8, 32.0)
    >>> text = "fn w(d: f32) -> f32 {{ return 1.0 + 0.8 * d + 0.2 * (d * d - {:f}); }}"
    >>> weight = op.pointwise(text.format(delta.variance), "w", delta.target, "weight")
    >>> run = op.simulation(8, 8, 32.0, steps=2, window="tsc", observables=["displacement"])
    >>> tracers = run.zip(delta.then(weight))
    >>> density = tracers.then(op.paint(tracers.target, op.cells((8, 8, 8), size=32.0)))
    >>> density.target
    {'density': (8, 8, 8)}
    """
    comm = resolve(comm)

    def check():
        options = run_options(particles, particles, box, cosmology, 1, 0.0625, 1.0, 1, "bullfrog", "cic")
        arguments = options, real_number(a, "a")
        return arguments, {"function": "linear_density", **options, "a": arguments[1]}, None

    (options, scale), _ = gathered(comm, check)
    native, variance = agreed(comm, _native.linear_density, comm, options, scale)
    model = Model(native, comm, _cube_axes(options))
    model.variance = variance
    model._finite = ("white_noise",)
    return model


def _cube_axes(options):
    """Return the axes of the grids of a run, also of one cell."""
    return {((n,) * 3, (options["box"],) * 3): 3 for n in (options["particles"], options["mesh"])}


def lines_of_sight(space, start, end, step, adjoint=False, comm=None):
    """Create integrals of a real field on cells along straight lines.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    start, end : array_like, shape (N, axes)
        Ends of the lines, in the unit of the size of the box; the same on all ranks. Lines may
        leave the box, which is periodic.
    step : float
        Longest step of the integration, positive.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If shapes do not fit, a coordinate is not finite or `step` is not positive.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> lines = op.lines_of_sight(op.Space(x=op.cells((4, 4))), [[0.0, 0.0]], [[3.0, 0.0]], 0.5)
    >>> float(np.asarray(lines(np.ones((4, 4))))[0])
    3.0
    """

    def check(comm, name, leaf):
        first, last = [_coordinates(rows, len(leaf.shape), name) for rows, name in ((start, "start"), (end, "end"))]
        if len(first) != len(last):
            raise ValueError(f"start and end: expected the same number of points, got {len(first)} and {len(last)}")
        length = real_number(step, "step")
        return (np.concatenate([first, last], axis=1), length, bool(adjoint)), {"start": summary(first), "end": summary(last), "step": length}

    return _linear("lines_of_sight", space, "an integral", adjoint, comm, check, _native.lines_of_sight)


def select(space, where, adjoint=False, comm=None):
    """Create the selection of some cells of a real field, such as observed ones.

    The adjoint writes the values to their cells, and 0 to all others.

    Parameters
    ----------
    space : Space
        Domain: one real leaf of cells.
    where : array_like of bool or of int
        A mask of the shape of the whole grid, or indices of shape ``(N, axes)``; the same on all
        ranks.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape of `where` does not fit, or an index is out of range.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> observed = op.select(op.cells(4), [True, False, True, False])
    >>> np.asarray(observed([1.0, 2.0, 3.0, 4.0])).tolist()
    [1.0, 3.0]
    """

    def check(comm, name, leaf):
        found = np.asarray(where)
        if found.dtype == bool:
            if found.shape != leaf.shape:
                raise ValueError(f"where: expected a mask of shape {leaf.shape}, got {found.shape}")
            found = np.argwhere(found)
        if found.ndim != 2 or found.dtype.kind not in "iu" or found.shape[1] != len(leaf.shape) or np.any(found < 0):
            raise ValueError(f"where: expected a mask of shape {leaf.shape} or rows of {len(leaf.shape)} indices, 0 or more")
        cells = np.stack(three(list(found.astype(np.int64).T), np.zeros(len(found), np.int64)), axis=1)
        return (cells.astype(np.uint64), bool(adjoint)), {"where": summary(cells)}

    return _linear("select", space, "a selection", adjoint, comm, check, _native.select)


def gather(space, target, index, adjoint=False, comm=None):
    """Create a field whose places take entries of a vector.

    Each place takes the entry with its index, or 0 if there is no such entry. The adjoint sums the
    places of each entry exactly.

    Parameters
    ----------
    space : Space
        Domain: one vector.
    target : Space
        One real leaf.
    index : array_like of int
        Entry of each place of this rank, 0 or more, in the shape of the leaf.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape of `index` does not fit, or an index is negative.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> regions = op.gather(op.vector(2), op.cells(4), [0, 0, 1, 1])
    >>> np.asarray(regions([5.0, 7.0])).tolist()
    [5.0, 5.0, 7.0, 7.0]
    """

    def entries(comm, leaf, name):
        own = np.ascontiguousarray(index)
        if own.dtype.kind not in "iu" or np.any(own < 0) or np.any(own >= 2**32):
            raise ValueError("index: expected integers of 0 or more")
        shape = _native.leaf_shape(comm, leaf._place()._native(name))
        if not same_shape(own.shape, shape):
            raise ValueError(f"index: expected shape {long_axes(shape)}, got {own.shape}")
        return own.ravel().astype(np.uint32)

    return _gathered("gather", space, target, entries, adjoint, comm)


def broadcast(space, target, adjoint=False, comm=None, axis=None):
    """Create a field that repeats one number, a vector or a field along axes; the adjoint sums.

    Parameters
    ----------
    space : Space
        Domain: a vector of length 1; with `axis`, a vector or cells with the shape of the other
        axes.
    target : Space
        One real leaf; cells with `axis`. Its copies are its first axis.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.
    axis : int or tuple of int, optional
        Axes of the target along which values are repeated. Default: all.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the shape of `space` does not fit the other axes.

    Notes
    -----
    Collective with `comm`. Every rank holds the values that are repeated. Sums are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> np.asarray(op.broadcast(op.vector(1), op.cells(3))([2.0])).tolist()
    [2.0, 2.0, 2.0]
    >>> np.asarray(op.broadcast(op.vector(2), op.cells((2, 2)), axis=0)([5.0, 7.0])).tolist()
    [[5.0, 7.0], [5.0, 7.0]]
    """
    own, places = space_of(space), space_of(target)
    (name, leaf), (result, wanted) = own._only("a broadcast"), places._only("a broadcast")
    has_copies = int(wanted.copies > 1)
    if axis is None and has_copies:
        axis = tuple(range(1 + len(wanted.shape)))
    if axis is None:
        return _gathered("broadcast", space, target, lambda *_: None, adjoint, comm)
    axes = has_copies + len(wanted.shape)
    repeated = [whole_number(one, "axis", -axes) for one in ((axis,) if np.ndim(axis) == 0 else axis)]
    if any(one >= axes for one in repeated):
        raise ValueError(f"axis: expected axes below {axes}, got {axis}")
    repeated = {one % axes for one in repeated}
    if has_copies and 0 in repeated:
        one = Space({result: wanted._with(copies=1)})
        every = _repeated(one, wanted.copies, bool(adjoint), comm)
        inner = tuple(at - 1 for at in repeated if at > 0)
        if not inner and leaf.kind != "vector":
            if leaf._whole() != wanted._with(copies=1)._whole():
                raise ValueError(f"space: expected the shape {wanted.shape} of the other axes, got {leaf}")
            other = {} if name == result else {result: name}
            return every.rename(other) if adjoint else every.rename(domain=other)
        if inner:
            one = broadcast(own, one, adjoint, comm, inner)
        else:
            one = reshape(one, own, comm) if adjoint else reshape(own, one, comm)
        return every.then(one) if adjoint else one.then(every)
    others = {at - has_copies: (0, n) for at, n in enumerate((wanted.copies,) * has_copies + wanted.shape) if at not in repeated}
    shape = tuple(n for _, n in others.values()) or (1,)
    if leaf._whole() not in (shape, (math.prod(shape),)):
        raise ValueError(f"space: expected the shape {shape} of the other axes, got {leaf}")
    others.pop(-1, None)
    row = Leaf("vector", (math.prod(shape) // wanted.copies,), (), copies=wanted.copies)
    there = _block(Space({name: row}), places, others, bool(adjoint), comm)
    if leaf.kind == "vector" and not has_copies:
        return there
    held = [_flat(own, comm, adjoint), join(Space({name: row}), "x", adjoint=not adjoint, comm=comm)]
    return there.then(held[1]).then(held[0]) if adjoint else held[0].then(held[1]).then(there)


def _repeated(space, copies, adjoint, comm):
    """Return a field as each of some copies, or the sum of these."""
    comm = resolve(comm)

    def check():
        name, _ = space._only("a broadcast")
        return name, {"function": "a broadcast", "space": space._said(), "copies": copies, "adjoint": adjoint}, None

    return together(comm, check, lambda name, _: Model(_native.repeat(comm, space._native(), copies, name, adjoint), comm, space._axes))


def _gathered(name, space, target, entries, adjoint, comm):
    comm = resolve(comm)

    def check():
        own, places = space_of(space), space_of(target)
        name, leaf = places._only("a gather")
        return (own, places, entries(comm, leaf, name)), {"function": name, "space": own._said(), "target": places._said(), "adjoint": bool(adjoint)}, None

    def make(own, _):
        own, places, index = own
        return Model(_native.gather(comm, own._native(), places._native(), index, bool(adjoint)), comm, places._axes)

    return together(comm, check, make)


def amplitudes(space, edges=None, adjoint=False, comm=None):
    """Create a field of modes with one amplitude per wavenumber; the adjoint is a binned sum.

    Parameters
    ----------
    space : Space
        One leaf of modes.
    edges : array_like, optional
        Edges of bins of wavenumbers (2 pi over a length). Default: one bin per wavenumber.
    adjoint : bool, default False
        Create the adjoint.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the modes each. Default: this process alone.

    Returns
    -------
    model : Model
        Its domain is the vector ``amplitudes``.
    wavenumbers : ndarray
        Wavenumber of each entry of the vector.

    Raises
    ------
    ValueError
        If `space` does not have exactly one leaf of modes, or `edges` are not ascending.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> model, k = op.amplitudes(op.Space(xi=op.modes(8)))
    >>> len(k), model.domain
    (5, {'amplitudes': (5,)})
    """
    comm = resolve(comm)

    def check():
        own = space_of(space)
        own._only("amplitudes")
        bins = None if edges is None else real_array(edges, "edges").astype(np.float64).ravel().tolist()
        return (own, bins), {"function": "amplitudes", "space": own._said(), "edges": bins, "adjoint": bool(adjoint)}, None

    def make(own, _):
        own, bins = own
        native, wavenumbers = _native.amplitudes(comm, own._native(), bins, bool(adjoint))
        return Model(native, comm, own._axes), wavenumbers

    return together(comm, check, make)


def simulation(
    particles=64,
    mesh=None,
    box=128.0,
    *,
    cosmology=None,
    lpt=2,
    a_start=0.0625,
    a_end=1.0,
    steps=10,
    scheme="bullfrog",
    window="cic",
    observables=("density",),
    snapshots=(),
    checkpoint_every=1,
    with_cosmology=False,
    amplitude="A_s",
    comm=None,
):
    """Create a particle-mesh simulation as a model of its white noise, with derivatives.

    Parameters
    ----------
    particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window
        As in `meshloom.simulate`.
    observables : sequence of {"density", "displacement", "momentum"}, default ("density",)
        Leaves of the target at the end. "density": 1 + contrast at the cells of the mesh.
        "displacement": three components in Mpc/h. "momentum": three components of the canonical
        momentum ``a**2 dx/dt`` in H0 Mpc/h; 100 times it over a is the peculiar velocity in km/s.
    snapshots : sequence of float, optional
        Scale factors from `a_start` to `a_end`. Each adds two leaves to the target, such as
        ``snapshot_0/displacement`` and ``snapshot_0/momentum`` for the first; `paint` makes
        densities of them. A scale factor within a step cuts the step in two.
    checkpoint_every : int, default 1
        Number of steps between stored states; derivatives compute the states between them again.
    with_cosmology : bool, default False
        Add the leaf ``cosmology`` to the domain: omega_m, omega_b, h, n_s, A_s, w0 and wa in
        float64.
    amplitude : {"A_s", "sigma8"}, default "A_s"
        The fifth number of ``cosmology``.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the simulation. Default: this process alone.

    Returns
    -------
    Model
        Its domain has the leaf ``white_noise`` of shape ``(particles, particles, particles)``. The
        attribute ``own_cosmology`` has the numbers of `cosmology`.

    Raises
    ------
    ValueError
        If an option is out of range, or white noise is not finite when the model is called.

    Warns
    -----
    RuntimeWarning
        If the options make the result inaccurate, as in `meshloom.simulate`.

    Notes
    -----
    Collective with `comm`. The model has no seed: `meshloom.white_noise` returns the noise of a
    seed.

    The derivative of the window "cic" jumps at the borders of cells, so differences of runs
    disagree with it by up to tens of percent. Use "tsc" or "pcs" for gradient descent and for
    checks, and in checks steps of 1e-3 of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> run = op.simulation(8, 8, 32.0, steps=2, window="tsc", with_cosmology=True)
    >>> at = run.at({"white_noise": np.zeros((8, 8, 8)), "cosmology": run.own_cosmology})
    >>> float(np.asarray(at.value)[0, 0, 0])
    1.0
    >>> sorted(at.vjp(np.ones((8, 8, 8))))
    ['cosmology', 'white_noise']
    """
    comm = resolve(comm)

    def check():
        options = run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window)
        options["snapshots"] = [real_number(a, "snapshots") for a in snapshots]
        others = {
            "observables": list(observables),
            "checkpoint_every": whole_number(checkpoint_every, "checkpoint_every", 1),
            "with_cosmology": bool(with_cosmology),
            "amplitude": amplitude,
        }
        return (options, others, _native.run_warnings(options)), {"function": "simulation", **options, **others}, None

    (options, others, said), _ = gathered(comm, check)
    agreed(comm, warn, comm, said)
    native, own = agreed(comm, _native.simulation, comm, options, *others.values())
    model = Model(native, comm, _cube_axes(options))
    model.own_cosmology = own
    model._finite = ("white_noise",)
    return model


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
