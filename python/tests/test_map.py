"""Functions of many items: any chunk, any number of ranks, the same bits."""

import numpy as np
import pytest

import meshloom
from meshloom import operators as op

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

        gathered = meshloom.map(function, VALUES, chunk=chunk, comm=comm)
        own = meshloom.map(function, VALUES, chunk=chunk, comm=comm, gather=False)
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
    assert [found.tolist() for found in meshloom.ranks(3, lambda comm: meshloom.map(lambda n: n + 1.0, 1, comm=comm))] == [[1.0]] * 3
    assert meshloom.map(lambda n: n, 0).tolist() == []
    with pytest.raises(ValueError, match="no items"):
        meshloom.map_reduce(lambda n: n, 0)


def test_a_model_is_a_function_of_items():
    line = op.Space(x=op.cells((2, 4)))
    model = op.pointwise("fn f(x: f32) -> f32 { return exp(x); }", "f", line, "x").then(op.hartley(line))
    items = np.random.default_rng(3).standard_normal((9, 2, 4)).astype(np.float32)
    want = np.stack([np.asarray(model(item)) for item in items])
    assert np.array_equal(meshloom.map(model, items, chunk=4), want)
    assert np.array_equal(meshloom.map_reduce(model, items, chunk=2), tree(want))
    found = meshloom.ranks(2, lambda comm: meshloom.map(model, items, comm=comm))
    assert all(np.array_equal(one, want) for one in found)


def test_wrong_maps():
    two = op.pointwise("fn f(a: f32, b: f32) -> f32 { return a + b; }", "f", op.Space(a=op.cells(4), b=op.cells(4)), "x")
    one = op.pointwise("fn f(a: f32) -> f32 { return a; }", "f", op.Space(a=op.cells(4)), "x")
    for error, wrong in [
        (TypeError, lambda: meshloom.map(3, VALUES)),
        (ValueError, lambda: meshloom.map(lambda rows: 3, VALUES)),
        (ValueError, lambda: meshloom.map(lambda rows: rows[:1], VALUES)),
        (ValueError, lambda: meshloom.map(len, VALUES, chunk=0)),
        (ValueError, lambda: meshloom.map(lambda a: a[0], (VALUES, VALUES[:2]))),
        (ValueError, lambda: meshloom.map(two, VALUES)),
        (ValueError, lambda: meshloom.map(one, VALUES)),
        (ValueError, lambda: meshloom.map_reduce(lambda n: n, 3, "mean")),
        (ZeroDivisionError, lambda: meshloom.ranks(2, lambda comm: meshloom.map(lambda n: 1 / 0, 3, comm=comm))),
    ]:
        with pytest.raises(error):
            wrong()
