"""Functions of many items: any chunk, any number of ranks, the same bits."""

import numpy as np
import pytest

import meshloom
from meshloom import operators as op
from test_comm import told

VALUES = np.random.default_rng(2).standard_normal((13, 3)).astype(np.float32)


def tree(rows):
    """The sum along the binary tree over the items' numbers."""
    rows = list(rows)
    while len(rows) > 1:
        rows = [rows[at] + rows[at + 1] if at + 1 < len(rows) else rows[at] for at in range(0, len(rows), 2)]
    return rows[0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("chunk", [1, 2, 7, 13, 14])
def test_maps_do_not_depend_on_chunks_and_ranks(ranks, chunk):
    def body(comm):
        seen = []

        def function(rows):
            seen.append(len(rows))
            return {"row": rows * 2, "sum": rows.sum(axis=1)}

        gathered = meshloom.map_items(function, VALUES, chunk=chunk, comm=comm)
        own = meshloom.map_items(function, VALUES, chunk=chunk, comm=comm, gather=False)
        assert max(seen) <= chunk
        sums, least = meshloom.map_reduce(lambda rows: (rows, rows[:, 0]), VALUES, chunk=chunk, comm=comm), None
        least = meshloom.map_reduce(lambda n: VALUES[n, 1], 13, "min", chunk=chunk, comm=comm)
        last = meshloom.map_reduce(lambda n: n, 13, lambda a, b: b, chunk=chunk, comm=comm)
        return gathered, own, sums, least, last

    parts = meshloom.ranks(ranks, body)
    for gathered, _, sums, least, last in parts:
        assert np.array_equal(gathered["row"], VALUES * 2) and gathered["sum"].shape == (13,)
        assert np.array_equal(sums[0], tree(VALUES)) and sums[1] == tree(VALUES[:, 0])
        assert least == VALUES[:, 1].min() and last == 12
    assert np.array_equal(np.concatenate([own["row"] for _, own, *_ in parts]), VALUES * 2)
    lengths = [len(own["sum"]) for _, own, *_ in parts]
    assert max(lengths) - min(lengths) <= 1


def test_fewer_items_than_ranks_and_none():
    assert [found.tolist() for found in meshloom.ranks(3, lambda comm: meshloom.map_items(lambda n: n + 1.0, 1, comm=comm))] == [[1.0]] * 3
    assert meshloom.map_items(lambda n: n, 0).tolist() == []
    with pytest.raises(ValueError, match="no items"):
        meshloom.map_reduce(lambda n: n, 0)


@pytest.mark.parametrize("structure", [lambda a, b: a, lambda a, b: (a, b), lambda a, b: {"a": a, "b": b}])
@pytest.mark.parametrize("items", [1, 2, 5])
def test_ranks_without_items_have_the_same_structure(items, structure):
    def function(n):
        return structure(np.stack([n, n * n], axis=1), (n % 2 == 0).astype(np.float32))

    alone = meshloom.map_items(function, items)
    parts = meshloom.ranks(4, lambda comm: meshloom.map_items(function, items, gather=False, comm=comm))
    leaves = {type(alone): lambda value: [value], tuple: list, dict: lambda value: list(value.values())}[type(alone)]
    assert {type(part) for part in parts} == {type(alone)}
    for columns, whole in zip(zip(*map(leaves, parts)), leaves(alone)):
        assert [len(column) for column in columns] == [len(part) for part in np.array_split(np.arange(items), 4)]
        assert {column.dtype for column in columns} == {whole.dtype} and {column.shape[1:] for column in columns} == {whole.shape[1:]}
        assert np.array_equal(np.concatenate(columns), whole)


def test_types_of_rows_are_those_of_all_items():
    # Whole numbers for the first items, others for the last one.
    def function(n):
        return n if n[0] < 4 else n / 2

    alone = meshloom.map_items(function, 5, chunk=1)
    for gather in (True, False):
        parts = meshloom.ranks(3, lambda comm: meshloom.map_items(function, 5, chunk=1, gather=gather, comm=comm))
        assert {part.dtype for part in parts} == {alone.dtype} == {np.dtype(np.float64)}
        assert np.array_equal(parts[0] if gather else np.concatenate(parts), alone)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float32", "complex64"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_sums_have_the_digits_of_numpys(dtype, ranks):
    values = (np.arange(300) % 7 * 40).reshape(100, 3).astype(dtype)
    want = values.sum(axis=0)
    for found in meshloom.ranks(ranks, lambda comm: meshloom.map_reduce(lambda n: values[n], 100, chunk=9, comm=comm)):
        assert found.dtype == want.dtype and np.array_equal(found, want)
    # Also of a single row; extremes stay as they are.
    assert meshloom.map_reduce(lambda n: values[n], 1).dtype == want.dtype
    assert meshloom.map_reduce(lambda n: values[n], 100, "max").dtype == values.dtype


def test_a_list_is_an_array():
    assert meshloom.map_items(lambda n: [[k, -k] for k in n], 3).tolist() == [[0, 0], [1, -1], [2, -2]]
    # Two rows of two are not two arrays.
    assert meshloom.map_items(lambda n: [[1, 2], [3, 4]], 2).tolist() == [[1, 2], [3, 4]]
    assert meshloom.map_items(lambda rows: rows.sum(axis=1), [[1, 2], [3, 4], [5, 6]]).tolist() == [3, 7, 11]
    first, second = meshloom.map_items(lambda pair: (pair[0] + pair[1], pair[1]), ([1, 2, 3], [10, 20, 30]), chunk=2)
    assert first.tolist() == [11, 22, 33] and second.tolist() == [10, 20, 30]
    assert meshloom.map_reduce(lambda n: [[k, 1] for k in n], 4).tolist() == [6, 4]


@pytest.mark.parametrize(
    "error, text, call",
    [
        (ZeroDivisionError, "rank 1: division by zero", lambda one, comm: meshloom.map_items(lambda n: 1 / 0 if one else n, 3, comm=comm)),
        (ZeroDivisionError, "rank 1: division by zero", lambda one, comm: meshloom.map_reduce(lambda n: 1 / 0 if one else n, 3, comm=comm)),
        (ValueError, "rank 1: function: expected one row for each of 1 items, got arrays of shapes [(0,)]", lambda one, comm: meshloom.map_items(lambda n: n[one:], 3, comm=comm)),
        (ValueError, "rank 1: chunk: expected 1 or more, got 0", lambda one, comm: meshloom.map_items(lambda n: n, 3, chunk=1 - one, comm=comm)),
        (TypeError, "rank 1: function: expected a callable", lambda one, comm: meshloom.map_items(3 if one else abs, 3, comm=comm)),
        (ValueError, "rank 1: items: expected a number", lambda one, comm: meshloom.map_items(abs, 2.5 if one else 3, comm=comm)),
        (ValueError, "rank 1: reduction: expected", lambda one, comm: meshloom.map_reduce(abs, 3, "mean" if one else "sum", comm=comm)),
        (ValueError, "reduction differs: sum on rank 0, max on rank 1", lambda one, comm: meshloom.map_reduce(abs, 3, "max" if one else "sum", comm=comm)),
        (ValueError, "the number of items differs: 3 on rank 0, 4 on rank 1", lambda one, comm: meshloom.map_items(abs, 3 + one, comm=comm)),
        (ValueError, "gather differs: True on rank 0, False on rank 1", lambda one, comm: meshloom.map_items(abs, 3, gather=not one, comm=comm)),
        (ValueError, "function differs: map_items on rank 0, map_reduce on rank 1", lambda one, comm: (meshloom.map_reduce if one else meshloom.map_items)(abs, 3, comm=comm)),
        (ValueError, "an array on rank 0 and a tuple of 2 on rank 1", lambda one, comm: meshloom.map_items(lambda n: (n, n) if one else n, 3, comm=comm)),
        (ValueError, "a tuple of 1 on rank 0 and a dictionary of ['a'] on rank 1", lambda one, comm: meshloom.map_items(lambda n: {"a": n} if one else (n,), 3, gather=False, comm=comm)),
        (ValueError, "must match exactly", lambda one, comm: meshloom.map_items(lambda n: np.zeros((len(n), 2 + one)), 3, gather=False, comm=comm)),
        (ValueError, "got no items", lambda one, comm: meshloom.map_reduce(abs, 0, comm=comm)),
    ],
)
def test_what_one_rank_does_otherwise_is_the_same_error_of_all(error, text, call):
    kind, said = told(3, lambda comm: call(int(comm.rank == 1), comm))
    assert issubclass(kind, error) and text in said


def test_a_model_is_a_function_of_items():
    line = op.Space(x=op.cells((2, 4)))
    model = op.pointwise("fn f(x: f32) -> f32 { return exp(x); }", "f", line, "x").then(op.hartley(line))
    items = np.random.default_rng(3).standard_normal((9, 2, 4)).astype(np.float32)
    want = np.stack([np.asarray(model(item)) for item in items])
    assert np.array_equal(meshloom.map_items(model, items, chunk=4), want)
    assert np.array_equal(meshloom.map_reduce(model, items, chunk=2), tree(want))
    found = meshloom.ranks(2, lambda comm: meshloom.map_items(model, items, comm=comm))
    assert all(np.array_equal(one, want) for one in found)


def test_a_function_may_give_the_same_array_again():
    own = np.empty(4)
    assert meshloom.map_items(lambda n: np.multiply(n, n, out=own), 8, chunk=4).tolist() == [n * n for n in range(8)]
    assert meshloom.map_reduce(lambda n: np.multiply(n, 1.0, out=own), 8, chunk=4) == 28.0


def test_wrong_maps():
    two = op.pointwise("fn f(a: f32, b: f32) -> f32 { return a + b; }", "f", op.Space(a=op.cells(4), b=op.cells(4)), "x")
    one = op.pointwise("fn f(a: f32) -> f32 { return a; }", "f", op.Space(a=op.cells(4)), "x")
    for error, wrong in [
        (TypeError, lambda: meshloom.map_items(3, VALUES)),
        (ValueError, lambda: meshloom.map_items(lambda rows: 3, VALUES)),
        (ValueError, lambda: meshloom.map_items(lambda rows: rows[:1], VALUES)),
        (ValueError, lambda: meshloom.map_items(lambda rows: (), VALUES)),
        (ValueError, lambda: meshloom.map_items(lambda n: n if n[0] < 2 else (n, n), 4, chunk=2)),
        (ValueError, lambda: meshloom.map_items(lambda n: {"a": n, "b": n} if n[0] < 2 else {"b": n, "a": n}, 4, chunk=2)),
        (ValueError, lambda: meshloom.map_items(len, VALUES, chunk=0)),
        (ValueError, lambda: meshloom.map_items(lambda a: a[0], (VALUES, VALUES[:2]))),
        (ValueError, lambda: meshloom.map_items(two, VALUES)),
        (ValueError, lambda: meshloom.map_items(one, VALUES)),
        (ValueError, lambda: meshloom.map_items(op.hartley(op.Space(x=op.cells((4, 6)))), np.ones((3, 6, 4)))),
        (ValueError, lambda: meshloom.map_reduce(lambda n: n, 3, "mean")),
        (ZeroDivisionError, lambda: meshloom.ranks(2, lambda comm: meshloom.map_items(lambda n: 1 / 0, 3, comm=comm))),
    ]:
        with pytest.raises(error):
            wrong()
