"""Functions of many items: distributed over ranks, run in chunks, gathered in order or reduced."""

import collections.abc

import numpy as np

from ._arguments import whole_number
from ._comm import REDUCTIONS, block, gathered, resolve, summand
from ._device_array import Array, asarray
from ._model import Model, same_shape


def _leaves(value):
    """Return the arrays of a tuple, a dictionary or a single value, and their structure.

    The structure is a number of arrays, a list of names, or None for a single array.
    """
    if isinstance(value, collections.abc.Mapping):
        return [np.asarray(array) for array in value.values()], list(value)
    if isinstance(value, tuple):
        return [np.asarray(array) for array in value], len(value)
    return [np.asarray(value)], None


def _tree(structure, arrays):
    """Return arrays in a structure."""
    if structure is None:
        return arrays[0]
    return tuple(arrays) if isinstance(structure, int) else dict(zip(structure, arrays))


def _in_words(structure):
    if structure is None:
        return "an array"
    return f"a tuple of {structure}" if isinstance(structure, int) else f"a dictionary of {structure}"


def _items(items):
    """Return the number of items and a function that returns a range of them."""
    if isinstance(items, (int, np.integer)):
        count = whole_number(items, "items")
        return count, lambda first, end: np.arange(first, end)
    arrays, structure = _leaves(items)
    if not arrays or any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) > 1:
        raise ValueError("items: expected a number of items, or arrays with first axes of equal length")
    return len(arrays[0]), lambda first, end: _tree(structure, [array[first:end] for array in arrays])


def _over_items(model):
    """Return a model of one leaf as a function of chunks of items."""
    if len(model.domain) != 1 or len(model.target) != 1:
        raise ValueError(f"function: expected a model with one leaf in its domain and target, got {dict(model.domain)} -> {dict(model.target)}")
    if model._comm.size > 1 or any(native[4] or native[1] == "parameters" for native, _ in model._native.domain + model._native.target):
        raise ValueError("function: expected a model of real fields on one rank; create it without comm")
    (takes,), (gives,) = model.domain.values(), model.target.values()

    def function(rows):
        rows = np.asarray(rows)
        if not same_shape(rows.shape[1:], takes) and rows.shape[1:] != (np.prod(takes),):
            raise ValueError(f"items: expected shape {takes} per item, got {rows.shape[1:]}")
        found = model._native.map(asarray(rows, np.float32, model._comm)._native, len(rows), len(rows))
        return Array(found).numpy().reshape(len(rows), *gives)

    return function


def _chunks(function, rows_of, begin, end, chunk):
    """Yield the results of a function chunk by chunk: number of the first item, rows, structure."""
    before = None
    for first in range(begin, end, chunk):
        last = min(first + chunk, end)
        rows, structure = _leaves(function(rows_of(first, last)))
        # The function may reuse the memory of its result in the next call.
        rows = [row.copy() for row in rows]
        if not rows or any(row.ndim == 0 or len(row) != last - first for row in rows):
            shapes = [row.shape for row in rows]
            raise ValueError(f"function: expected one row for each of {last - first} items, got arrays of shapes {shapes}; return one row for each item")
        if first > begin and structure != before:
            raise ValueError(f"function: expected {_in_words(before)} for item {first} as before, got {_in_words(structure)}")
        before = structure
        yield first, rows, structure


def _work(comm, function, items, chunk, alike):
    """Return the chunks of this rank's items, and the values that must be the same on all ranks."""
    called = _over_items(function) if isinstance(function, Model) else function
    if not callable(called):
        raise TypeError(f"function: expected a callable or a model, got {type(function).__name__}")
    count, rows_of = _items(items)
    chunks = _chunks(called, rows_of, *block(count, comm.size, comm.rank), whole_number(chunk, "chunk", 1))
    return chunks, {**alike, "the number of items": count}, None


def _of_ranks(parts):
    """Return the common structure of all results, and the rows of each rank that has items."""
    found = {rank: part for rank, part in enumerate(parts) if part}
    first = min(found, default=None)
    for rank, (structure, _) in found.items():
        if structure != found[first][0]:
            raise ValueError(f"function: expected the same structure on all ranks, got {_in_words(found[first][0])} on rank {first} and {_in_words(structure)} on rank {rank}")
    return found[first][0] if found else None, [rows for _, rows in found.values()]


def map_items(function, items, *, chunk=64, gather=True, comm=None):
    """Apply a function to many items, distributed over ranks, and return the results in order.

    Parameters
    ----------
    function : callable or Model
        Called with a chunk: the arrays of up to `chunk` items. Returns an array, or a tuple or
        dictionary of arrays, with one row per item; a list is one array. A model with one leaf in
        its domain and target is applied to each item.
    items : int or array_like, or tuple or dict of array_like
        Items of all ranks along the first axes; or their number, and the function gets their
        indices. A list is one array.
    chunk : int, default 64
        Largest number of items per call, 1 or more.
    gather : bool, default True
        Return the results of all items on all ranks. If False, each rank returns those of its
        block; blocks are in order, differ by at most one item and may be empty.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the work. Default: this process alone.

    Returns
    -------
    ndarray, or tuple or dict of ndarray
        Results in the structure that the function returns; an array of length 0 without items.

    Raises
    ------
    ValueError
        If `items` have different lengths, or the function does not return one row per item.
    Exception
        Any exception of the function, on all ranks.

    Notes
    -----
    Collective with `comm`. The function must not call collective functions. `operators.map_items`
    is a model with derivatives by parameters.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.map_items(lambda n: n * n, 6, chunk=4).tolist()
    [0, 1, 4, 9, 16, 25]
    """
    comm = resolve(comm)
    chunks, _ = gathered(comm, _work, comm, function, items, chunk, {"function": "map_items", "gather": bool(gather)})

    def work():
        found, structure = [], None
        for _, rows, structure in chunks:
            found.append(rows)
        joined = [np.concatenate(column) for column in zip(*found)]
        # An empty array has the type and shape of the rows.
        told = joined if gather else [column[:0] for column in joined]
        return joined, {}, (structure, told) if found else None

    own, parts = gathered(comm, work)
    if own and not gather:
        parts[comm.rank] = (parts[comm.rank][0], own)
    structure, found = _of_ranks(parts)
    if not found:
        return np.zeros(0)
    return _tree(structure, [np.concatenate(column) if len(column) > 1 else column[0] for column in zip(*found)])


def _added(nodes, combine):
    """Join neighboring nodes of one level: 0 with 1, 2 with 3, then pairs of pairs."""
    while len(nodes) > 1 and nodes[-1][0] == nodes[-2][0] and (nodes[-2][1] >> nodes[-2][0]) % 2 == 0:
        (level, first, left), (_, _, right) = nodes[-2:]
        nodes[-2:] = [(level + 1, first, [combine(a, b) for a, b in zip(left, right)])]


def map_reduce(function, items, reduction="sum", *, chunk=64, comm=None):
    """Apply a function to many items and reduce the rows of the results to one.

    Parameters
    ----------
    function, items, chunk, comm
        As in `map_items`.
    reduction : {"sum", "min", "max"} or callable, default "sum"
        Combines two rows, the one of lower items first. Booleans and integers are added with 64
        bits, as in `numpy.sum`.

    Returns
    -------
    ndarray or scalar, or tuple or dict of them
        The reduced row, on all ranks.

    Raises
    ------
    ValueError
        If there are no items, or `reduction` is unknown.
    Exception
        Any exception of the function, on all ranks.

    Notes
    -----
    Collective with `comm`. Rows are combined along one binary tree over the item numbers: 0 with 1,
    2 with 3, then pairs of pairs. The result has the same bits for any chunk and number of ranks.
    `operators.map_reduce` is a model with derivatives by parameters.

    Examples
    --------
    >>> import meshloom
    >>> int(meshloom.map_reduce(lambda n: n * n, 101))
    338350
    """
    comm = resolve(comm)

    def check():
        combine = reduction if callable(reduction) else REDUCTIONS.get(reduction)
        if combine is None:
            raise ValueError(f'reduction: expected "sum", "min", "max" or a function of two rows, got {reduction!r}')
        alike = {"function": "map_reduce", "reduction": "a function" if callable(reduction) else reduction}
        chunks, alike, _ = _work(comm, function, items, chunk, alike)
        return (chunks, combine), alike, None

    (chunks, combine), _ = gathered(comm, check)

    def work():
        nodes, structure = [], None
        for first, rows, structure in chunks:
            rows = [summand(row) for row in rows] if combine is np.add else rows
            for at in range(len(rows[0])):
                nodes.append((0, first + at, [row[at] for row in rows]))
                _added(nodes, combine)
        return None, {}, (structure, nodes) if nodes else None

    structure, found = _of_ranks(gathered(comm, work)[1])
    joined = []
    for part in found:
        for node in part:
            joined.append(node)
            _added(joined, combine)
    if not joined:
        raise ValueError("items: expected one or more, got no items")
    # The remaining nodes have no neighbors: a node without a second half is its first half.
    _, _, row = joined.pop()
    while joined:
        row = [combine(a, b) for a, b in zip(joined.pop()[2], row)]
    return _tree(structure, row)
