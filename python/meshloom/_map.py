"""Functions of many items: dealt to ranks, worked on in chunks, collected in order or reduced."""

import collections.abc

import numpy as np

from ._arguments import whole_number
from ._comm import REDUCTIONS, block, gathered, resolve, summand
from ._device_array import Array, asarray
from ._model import Model, same_shape


def _leaves(value):
    """The arrays of a tuple or dictionary, or the one array that a value is, and the structure that they were in: how many, their names, or None."""
    if isinstance(value, collections.abc.Mapping):
        return [np.asarray(array) for array in value.values()], list(value)
    if isinstance(value, tuple):
        return [np.asarray(array) for array in value], len(value)
    return [np.asarray(value)], None


def _tree(structure, arrays):
    """Arrays in a structure."""
    if structure is None:
        return arrays[0]
    return tuple(arrays) if isinstance(structure, int) else dict(zip(structure, arrays))


def _in_words(structure):
    if structure is None:
        return "an array"
    return f"a tuple of {structure}" if isinstance(structure, int) else f"a dictionary of {structure}"


def _items(items):
    """How many items there are, and a function that gives those of a range."""
    if isinstance(items, (int, np.integer)):
        count = whole_number(items, "items")
        return count, lambda first, end: np.arange(first, end)
    arrays, structure = _leaves(items)
    if not arrays or any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) > 1:
        raise ValueError("items must be a number of them, or arrays whose first axes are equally long")
    return len(arrays[0]), lambda first, end: _tree(structure, [array[first:end] for array in arrays])


def _over_items(model):
    """A model of one leaf each as a function of chunks of items."""
    if len(model.domain) != 1 or len(model.target) != 1:
        raise ValueError(f"a model that is mapped has one leaf each, not {dict(model.domain)} -> {dict(model.target)}")
    if model._comm.size > 1 or any(native[4] or native[1] == "parameters" for native, _ in model._native.domain + model._native.target):
        raise ValueError("a model that is mapped is of real fields, on one rank: leave comm out where it is made")
    (takes,), (gives,) = model.domain.values(), model.target.values()

    def function(rows):
        rows = np.asarray(rows)
        if not same_shape(rows.shape[1:], takes) and rows.shape[1:] != (np.prod(takes),):
            raise ValueError(f"items have the shape {rows.shape[1:]}; the model takes {takes}")
        found = model._native.map(asarray(rows, np.float32, model._comm)._native, len(rows), len(rows))
        return Array(found).numpy().reshape(len(rows), *gives)

    return function


def _chunks(function, rows_of, begin, end, chunk):
    """What a function gives for items, chunk by chunk: the number of the first one, rows, and the structure that they are in."""
    before = None
    for first in range(begin, end, chunk):
        last = min(first + chunk, end)
        rows, structure = _leaves(function(rows_of(first, last)))
        # A function may write the next ones where these are.
        rows = [row.copy() for row in rows]
        if not rows or any(row.ndim == 0 or len(row) != last - first for row in rows):
            shapes = [row.shape for row in rows]
            raise ValueError(f"the function gives arrays of the shapes {shapes} for {last - first} items; return one row for each item")
        if first > begin and structure != before:
            raise ValueError(f"the function gives {_in_words(structure)} for item {first}, and {_in_words(before)} before")
        before = structure
        yield first, rows, structure


def _work(comm, function, items, chunk, alike):
    """The chunks of this rank's items, and what must be the same on all ranks: `alike` and the number of items."""
    called = _over_items(function) if isinstance(function, Model) else function
    if not callable(called):
        raise TypeError(f"function must be callable with a chunk of items, not {type(function).__name__}")
    count, rows_of = _items(items)
    chunks = _chunks(called, rows_of, *block(count, comm.size, comm.rank), whole_number(chunk, "chunk", 1))
    return chunks, {**alike, "the number of items": count}, None


def _of_ranks(parts):
    """The structure of what ranks have found, and the rows of each rank that has items."""
    found = {rank: part for rank, part in enumerate(parts) if part}
    first = min(found, default=None)
    for rank, (structure, _) in found.items():
        if structure != found[first][0]:
            raise ValueError(f"the function gives {_in_words(found[first][0])} on rank {first}, and {_in_words(structure)} on rank {rank}")
    return found[first][0] if found else None, [rows for _, rows in found.values()]


def map_items(function, items, *, chunk=64, gather=True, comm=None):
    """A function of many items: dealt to ranks, in chunks, its results in the order of the items.

    Parameters
    ----------
    function : callable or Model
        Called with a chunk: arrays of the items' rows, of up to `chunk` items. It gives an array, or a tuple or dictionary of arrays, with a row for
        each; a list is one array, as `numpy.asarray` reads it. A model of one leaf each is applied to each item, whose row is its field.
    items : int or array_like, or a tuple or dict of them
        Items along the first axes, those of all ranks; or how many there are, and the function gets their numbers. A list is one array here, too.
    chunk : int
        Items of a chunk at most.
    gather : bool
        Whether all ranks get the results of all items; else each those of its block, which may be empty. Blocks are in order and differ by one item
        at most.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the work; all call it with the same arguments. The function must not call what all of them take part in. What it raises on
        one rank is raised on all, once each has done its work.

    Returns
    -------
    ndarray, or a tuple or dict of them
        In the structure that the function gives, with the same types and shapes of rows on all ranks. Of no items at all it is an array of length 0.

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
        # An array without rows says what they would be.
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
    """Joins neighbouring nodes of one level: 0 with 1, 2 with 3, and so pairs of pairs."""
    while len(nodes) > 1 and nodes[-1][0] == nodes[-2][0] and (nodes[-2][1] >> nodes[-2][0]) % 2 == 0:
        (level, first, left), (_, _, right) = nodes[-2:]
        nodes[-2:] = [(level + 1, first, [combine(a, b) for a, b in zip(left, right)])]


def map_reduce(function, items, reduction="sum", *, chunk=64, comm=None):
    """A function of many items, as `map_items` has it, whose rows become one: the same bits for any chunk and on any number of ranks.

    Rows are joined along one binary tree over the items' numbers, 0 with 1, 2 with 3, then pairs of pairs.

    Parameters
    ----------
    function, items, chunk, comm
        As for `map_items`.
    reduction : {"sum", "min", "max"} or callable
        How two rows become one: of lower and of higher items. Booleans and integers are added with 64 bits, as `numpy.sum` does.

    Returns
    -------
    ndarray, or a tuple or dict of them
        On all ranks.

    Raises
    ------
    ValueError
        For no items, of which there is no row.

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
            raise ValueError(f'reduction is {reduction!r}, not "sum", "min", "max" or a function of two rows')
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
        raise ValueError("there are no items, and so no row")
    # What is left has no neighbours: a node without a second half is its first half.
    _, _, row = joined.pop()
    while joined:
        row = [combine(a, b) for a, b in zip(joined.pop()[2], row)]
    return _tree(structure, row)
