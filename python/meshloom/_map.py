"""Functions of many items: dealt to ranks, worked on in chunks, collected in order or reduced."""

import collections.abc
import pickle

import numpy as np

from ._arguments import whole_number
from ._comm import resolve
from ._device_array import Array, asarray
from ._model import Model

_REDUCTIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _block(items, ranks, rank):
    """The items of a rank, as `numpy.array_split` has them: blocks in order, of which the first may be longer by one."""
    least, longer = divmod(items, ranks)
    return rank * least + min(rank, longer), (rank + 1) * least + min(rank + 1, longer)


def _leaves(value):
    """The arrays of a tree of dictionaries, tuples and lists of one level, and a function that makes such a tree of others."""
    if isinstance(value, collections.abc.Mapping):
        return list(value.values()), lambda arrays: dict(zip(value, arrays))
    if isinstance(value, (tuple, list)):
        return list(value), lambda arrays: tuple(arrays)
    return [value], lambda arrays: arrays[0]


def _items(items):
    """How many items there are, and a function that gives those of a range."""
    if isinstance(items, (int, np.integer)):
        count = whole_number(items, "items")
        return count, lambda first, end: np.arange(first, end)
    arrays, tree = _leaves(items)
    arrays = [np.asarray(array) for array in arrays]
    if not arrays or any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) > 1:
        raise ValueError("items must be a number of them, or arrays whose first axes are equally long")
    return len(arrays[0]), lambda first, end: tree([array[first:end] for array in arrays])


def _over_items(model):
    """A model of one leaf each as a function of chunks of items."""
    if len(model.domain) != 1 or len(model.target) != 1:
        raise ValueError(f"a model that is mapped has one leaf each, not {dict(model.domain)} -> {dict(model.target)}")
    if model._comm.size > 1 or any(native[4] or native[1] == "parameters" for native, _ in model._native.domain + model._native.target):
        raise ValueError("a model that is mapped is of real fields, on one rank: leave comm out where it is made")
    (takes,), (gives,) = model.domain.values(), model.target.values()

    def function(rows):
        rows = np.asarray(rows)
        if rows.shape[1:] != takes and rows[:1].size != np.prod(takes):
            raise ValueError(f"items have the shape {rows.shape[1:]}; the model takes {takes}")
        found = model._native.map(asarray(rows, np.float32, model._comm)._native, len(rows), len(rows))
        return Array(found).numpy().reshape(len(rows), *gives)

    return function


def _chunks(function, items, chunk, comm):
    """What a function gives for this rank's items, chunk by chunk: the first item of each, its rows, and how a tree is made of them."""
    if isinstance(function, Model):
        function = _over_items(function)
    elif not callable(function):
        raise TypeError(f"function must be callable with a chunk of items, not {type(function).__name__}")
    count, rows_of = _items(items)
    chunk = whole_number(chunk, "chunk", 1)
    begin, end = _block(count, comm.size, comm.rank)
    for first in range(begin, end, chunk):
        last = min(first + chunk, end)
        rows, tree = _leaves(function(rows_of(first, last)))
        rows = [np.asarray(row) for row in rows]
        if any(row.ndim == 0 or len(row) != last - first for row in rows):
            shapes = [row.shape for row in rows]
            raise ValueError(f"the function gives arrays of the shapes {shapes} for {last - first} items; each has a row for each item")
        yield first, rows, tree


def _exchanged(comm, own):
    """What all ranks have, in the order of the ranks."""
    return [own] if comm.size == 1 else [pickle.loads(part) for part in comm.allgather(pickle.dumps(own))]


def map(function, items, *, chunk=64, gather=True, comm=None):
    """A function of many items: dealt to ranks, in chunks, its results in the order of the items.

    Parameters
    ----------
    function : callable or Model
        Called with a chunk: arrays of the items' rows, of up to `chunk` items. It gives an array, or a tuple or dictionary of arrays, with a row for each. A
        model of one leaf each is applied to each item, whose row is its field.
    items : int or array_like, or a tuple or dict of them
        Items along the first axes, those of all ranks; or how many there are, and the function gets their numbers.
    chunk : int
        Items of a chunk at most.
    gather : bool
        Whether all ranks get the results of all items; else each those of its block. Blocks are in order and differ by one item at most.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that share the work; all call it with the same arguments. The function must not call what all of them take part in.

    Returns
    -------
    ndarray, or a tuple or dict of them

    Examples
    --------
    >>> import meshloom
    >>> meshloom.map(lambda n: n * n, 6, chunk=4).tolist()
    [0, 1, 4, 9, 16, 25]
    """
    comm = resolve(comm)
    found, tree = [], None
    for _, rows, tree in _chunks(function, items, chunk, comm):
        found.append(rows)
    joined = [np.concatenate(column) for column in zip(*found)]
    how = None if tree is None else tree(list(range(len(joined))))
    if gather:
        parts = [part for part in _exchanged(comm, (how, joined)) if part[1]]
        how = parts[0][0] if parts else None
        joined = [np.concatenate(column) for column in zip(*(part[1] for part in parts))]
    if how is None:
        return np.zeros(0)
    return joined[0] if isinstance(how, int) else _leaves(how)[1](joined)


def _added(nodes, combine):
    """Joins neighbouring nodes of one level: 0 with 1, 2 with 3, and so pairs of pairs."""
    while len(nodes) > 1 and nodes[-1][0] == nodes[-2][0] and (nodes[-2][1] >> nodes[-2][0]) % 2 == 0:
        (level, first, left), (_, _, right) = nodes[-2:]
        nodes[-2:] = [(level + 1, first, [combine(a, b) for a, b in zip(left, right)])]


def map_reduce(function, items, reduction="sum", *, chunk=64, comm=None):
    """A function of many items, as `map` has it, whose rows become one: the same bits for any chunk and on any number of ranks.

    Rows are joined along one binary tree over the items' numbers, 0 with 1, 2 with 3, then pairs of pairs.

    Parameters
    ----------
    function, items, chunk, comm
        As for `map`.
    reduction : {"sum", "min", "max"} or callable
        How two rows become one: of lower and of higher items.

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
    combine = reduction if callable(reduction) else _REDUCTIONS.get(reduction)
    if combine is None:
        raise ValueError(f'reduction is {reduction!r}, not "sum", "min", "max" or a function of two rows')
    comm = resolve(comm)
    nodes, how = [], None
    for first, rows, tree in _chunks(function, items, chunk, comm):
        how = tree(list(range(len(rows))))
        for at in range(len(rows[0])):
            nodes.append((0, first + at, [row[at] for row in rows]))
            _added(nodes, combine)
    joined = []
    for part_how, part in _exchanged(comm, (how, nodes)):
        how = part_how if how is None else how
        for node in part:
            joined.append(node)
            _added(joined, combine)
    if not joined:
        raise ValueError("there are no items, and so no row")
    # What is left has no neighbours: a node without a second half is its first half.
    _, _, row = joined.pop()
    while joined:
        row = [combine(a, b) for a, b in zip(joined.pop()[2], row)]
    return row[0] if isinstance(how, int) else _leaves(how)[1](row)
