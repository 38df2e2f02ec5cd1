"""Models of functions of many items: their derivatives by parameters."""

import collections.abc
import functools

import numpy as np

from . import _native
from ._arguments import whole_number
from ._comm import resolve, together
from ._custom import _fields, _imported, _unpacked
from ._map import _items
from ._model import Model, same_shape
from ._recipe import made_by
from ._space import space_of


@functools.lru_cache(maxsize=64)
def _of_jax(f):
    """Return a function of JAX, and its value, jvp and vjp for chunks of items, compiled once."""
    jax = _imported("jax", "a map of one function")

    def vjp(item, x, dy):
        y, back = jax.vjp(lambda x: f(item, x), x)
        return back(jax.tree.map(lambda y, dy: dy.astype(y.dtype), y, dy))[0]

    rows = jax.vmap(f, in_axes=(0, None))
    jvp = lambda items, x, dx: jax.jvp(lambda x: rows(items, x), (x,), (dx,))[1]
    return jax.jit(rows), jax.jit(jvp), jax.jit(jax.vmap(vjp, in_axes=(0, None, 0)))


def _widths_of_jax(f, rows_of, fields):
    """Return the numbers per item of each leaf that a function of JAX returns."""
    jax = _imported("jax", "a map of one function")
    item = jax.tree.map(lambda array: array[0], rows_of(0, 1))
    x = _unpacked(fields, [np.zeros(int(np.prod(shape))) for shape in fields.values()])
    found = jax.eval_shape(f, item, x)
    found = found if isinstance(found, collections.abc.Mapping) else {"y": found}
    for name, row in found.items():
        if len(row.shape) > 1 or np.dtype(row.dtype).kind != "f":
            raise ValueError(f"function, `{name}`: expected a real number or a vector of them for an item, got shape {row.shape} of {row.dtype}")
    return {name: row.shape for name, row in found.items()}


def _shapes(components):
    """Return the shape of a row of each leaf."""
    named = components if isinstance(components, collections.abc.Mapping) else {"y": components}
    if not named:
        raise ValueError("components: expected at least one leaf, got none")
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"components: expected names of leaves, got {name!r}")
    numbers = {name: whole_number(number, "components", 1) for name, number in named.items()}
    return {name: () if number == 1 else (number,) for name, number in sorted(numbers.items())}


def _rows_given(shapes, count, values, what):
    """Return flat arrays of float64 for the rows that a caller's function returns."""
    if not isinstance(values, collections.abc.Mapping):
        if len(shapes) != 1:
            raise TypeError(f"{what}: expected a dictionary of {list(shapes)}, got {type(values).__name__}")
        values = {next(iter(shapes)): values}
    if set(values) != set(shapes):
        raise ValueError(f"{what}: expected the leaves {list(shapes)}, got {sorted(values)}")
    found = []
    for name, shape in shapes.items():
        array = np.asarray(values[name])
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{what}, `{name}`: expected real numbers, got {array.dtype}")
        if array.ndim == 0 or len(array) != count or not same_shape(array.shape[1:], shape):
            raise ValueError(f"{what}, `{name}`: expected shape {(count, *shape)}, one row for each of {count} items, got {array.shape}")
        found.append(np.ascontiguousarray(array, np.float64).ravel())
    return found


def _rows(shapes, count, arrays):
    """Return rows in the structure of the target: an array, or a dictionary for several leaves."""
    found = {name: array.reshape(count, *shape) for (name, shape), array in zip(shapes.items(), arrays)}
    return next(iter(found.values())) if len(found) == 1 else found


def _made(call, function, items, domain, components, chunk, name, version, comm):
    comm = resolve(comm)

    def check():
        if not callable(function) and not (isinstance(function, (tuple, list)) and len(function) == 3 and all(map(callable, function))):
            raise TypeError(f"function: expected a function of JAX, or three functions (value, jvp, vjp), got {function!r}")
        for text, what in ((name, "name"), (version, "version")):
            if not isinstance(text, str):
                raise TypeError(f"{what}: expected a str, got {type(text).__name__}")
        count, rows_of = _items(items)
        if count == 0:
            raise ValueError("items: expected one or more, got no items")
        own = space_of(domain)
        for leaf, place in own.leaves.items():
            if place.kind not in ("vector", "parameters"):
                raise ValueError(f"domain: expected vectors and parameters, which all ranks have, got {place} for `{leaf}`")
        fields = _fields(own, comm)
        if callable(function):
            functions, shapes = _of_jax(function), _widths_of_jax(function, rows_of, fields)
            if components is not None and _shapes(components) != {key: () if shape == (1,) else shape for key, shape in sorted(shapes.items())}:
                raise ValueError(f"components: the function gives rows of shapes {shapes}, got {components!r}; leave them out")
        else:
            functions, shapes = function, _shapes(1 if components is None else components)
        shapes = dict(sorted(shapes.items()))
        alike = {"function": call, "the number of items": count, "chunk": whole_number(chunk, "chunk", 1)}
        alike |= {"domain": own._said(), "components": shapes, "name": name, "version": version}
        return (own, fields, functions, shapes, rows_of, count), alike, None

    def make(own, _):
        own, takes, functions, shapes, rows_of, count = own
        value, jvp, vjp = functions
        back = dict(takes)

        def rows(function, which):
            def called(first, end, *x):
                found = function(rows_of(first, end), *(_unpacked(takes, one) for one in x))
                return _rows_given(shapes, end - first, found, f"{which} of {name}")

            return called

        def pulled(first, end, x, dy):
            found = vjp(rows_of(first, end), _unpacked(takes, x), _rows(shapes, end - first, dy))
            return _rows_given(back, end - first, found, f"vjp of {name}")

        calls = [rows(value, "value"), rows(jvp, "jvp"), pulled]
        widths = [(leaf, int(np.prod(shape))) for leaf, shape in shapes.items()]
        native = _native.host_map(comm, own._native(), [count, chunk], (widths, call == "map_reduce"), [name, version], calls)
        return Model(native, comm, own._axes)

    return together(comm, check, make)


def map_items(function, items, domain, components=None, *, chunk=64, name="map", version="", comm=None):
    """Create a model of a function of many items: one row per item, as a function of parameters.

    Parameters
    ----------
    function : callable, or tuple of three callables
        ``f(item, x)``, a function of one item that JAX can differentiate; or three functions of a
        chunk of items as in `meshloom.map_items`, in NumPy: ``value(items, x)`` and ``jvp(items, x,
        dx)`` return one row per item, ``vjp(items, x, dy)`` takes a row of cotangents per item and
        returns a field of the domain per item, arrays of shape ``(n, *shape)``. The library adds
        these.
    items : int or array_like, or tuple or dict of array_like
        Items of all ranks along the first axes, the same on all ranks; or their number, and the
        function gets indices.
    domain : Space
        Leaves that the function takes as `x`: `parameters` in float64, and `vector`.
    components : int or dict of str to int, optional
        Numbers in a row, or in the rows of several leaves by name. Default: 1, or as many as the
        function of JAX returns. A single leaf is named "y".
    chunk : int, default 64
        Largest number of items per call, 1 or more.
    name, version, comm
        As in `custom`. The version also has to change with the items.

    Returns
    -------
    Model
        Its target has the rows one after the other, leaves of `points` with ``n * components``
        numbers. With ranks, each has a block of the items, as `numpy.array_split` defines it.

    Raises
    ------
    ValueError
        If there are no items, or a leaf of `domain` is distributed.
    TypeError
        If `function` is neither a function nor three functions.
    ImportError
        If `function` is one function, and JAX is not installed.

    Notes
    -----
    Collective with `comm`. The memory of a call is bounded by `chunk`: `vjp` computes each chunk
    again. Contributions of items to a cotangent are added in float64 along the tree of
    `meshloom.map_reduce`, with the same bits for any chunk and number of ranks if a row does not
    depend on its chunk. Items at the ends of a chunk whose cotangent is 0 are left out. Rows are
    float32 on the device; sums of `map_reduce` stay in float64.

    Exceptions and threads are those of `custom`. A function of JAX is compiled once for each length
    of a chunk, also for other models of the same function.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> line = lambda t, x: x[0] + x[1] * t
    >>> jvp = lambda t, x, dx: dx[0] + dx[1] * t
    >>> vjp = lambda t, x, dy: np.stack([dy, dy * t], axis=1)
    >>> model = op.map_items((line, jvp, vjp), np.arange(4.0), op.parameters(2))
    >>> at = model.at([1.0, 2.0])
    >>> np.asarray(at.value).tolist(), at.vjp(np.ones(4)).tolist()
    ([1.0, 3.0, 5.0, 7.0], [4.0, 6.0])
    >>> at.jacobian().tolist()
    [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]
    """
    model = _made("map_items", function, items, domain, components, chunk, name, version, comm)
    return made_by(model, map_items, function, items, domain, components, chunk=chunk, name=name, version=version)


def map_reduce(function, items, domain, components=None, *, chunk=64, name="sum", version="", comm=None):
    """Create a model of the sum of a function over many items, as a function of parameters.

    Parameters
    ----------
    function, items, domain, components, chunk, name, version, comm
        As in `map_items`.

    Returns
    -------
    Model
        Its target has `parameters`: the sum of all rows in float64, on all ranks.

    Raises
    ------
    ValueError, TypeError, ImportError
        As in `map_items`.

    Notes
    -----
    Collective with `comm`. Values and derivatives have the same bits for any chunk and number of
    ranks, as in `map_items`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> square = lambda n, x: (x[0] - n) ** 2
    >>> jvp = lambda n, x, dx: 2 * (x[0] - n) * dx[0]
    >>> vjp = lambda n, x, dy: (2 * (x[0] - n) * dy)[:, None]
    >>> at = op.map_reduce((square, jvp, vjp), 5, op.parameters(1)).at([1.0])
    >>> at.value.tolist(), at.vjp([1.0]).tolist()
    ([15.0], [-10.0])
    """
    model = _made("map_reduce", function, items, domain, components, chunk, name, version, comm)
    return made_by(model, map_reduce, function, items, domain, components, chunk=chunk, name=name, version=version)
