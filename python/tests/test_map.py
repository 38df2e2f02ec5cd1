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


TIMES = np.linspace(0.0, 1.0, 13)
POINT = {"rate": [0.3], "scale": [1.0, 2.0]}


def curve():
    """Two numbers at each time, ``scale[1] exp(rate t)`` and ``scale[0] t``, with their derivatives."""

    def value(t, x):
        return {"line": x["scale"][0] * t, "growth": np.exp(x["rate"] * t) * x["scale"][1]}

    def jvp(t, x, dx):
        growth = np.exp(x["rate"] * t) * (dx["scale"][1] + t * dx["rate"] * x["scale"][1])
        return {"line": dx["scale"][0] * t, "growth": growth}

    def vjp(t, x, dy):
        growth = np.exp(x["rate"] * t) * dy["growth"]
        return {"rate": (growth * t * x["scale"][1])[:, None], "scale": np.stack([t * dy["line"], growth], axis=1)}

    return value, jvp, vjp


def as_rows(functions):
    """The same numbers as rows of two."""
    value, jvp, vjp = functions
    joined = lambda y: np.stack([y["growth"], y["line"]], axis=1)
    return (
        lambda t, x: joined(value(t, x)),
        lambda t, x, dx: joined(jvp(t, x, dx)),
        lambda t, x, dy: vjp(t, x, {"growth": dy[:, 0], "line": dy[:, 1]}),
    )


SPACE = op.Space(rate=op.parameters(1), scale=op.vector(2))
LEAVES = {"growth": 1, "line": 1}


def derivative():
    """The derivative of both numbers at all times by rate, scale[0] and scale[1]."""
    growth = np.exp(0.3 * TIMES)
    zero = np.zeros(13)
    return np.array([np.stack([2 * TIMES * growth, zero, growth], axis=1), np.stack([zero, TIMES, zero], axis=1)])


def test_a_map_is_a_model_with_derivatives():
    rows, leaves = op.map_items(as_rows(curve()), TIMES, SPACE, 2, chunk=5), op.map_items(curve(), TIMES, SPACE, LEAVES, chunk=5)
    assert rows.target == {"y": (26,)} and leaves.target == {"growth": (13,), "line": (13,)}
    for model in (rows, leaves, op.map_reduce(curve(), TIMES, SPACE, LEAVES), op.map_reduce(as_rows(curve()), TIMES, SPACE, 2)):
        assert model.check_derivative(POINT).order == pytest.approx(2, abs=0.1)
        model.check_adjoint(POINT)
    assert np.abs(rows.at(POINT).jacobian().reshape(13, 2, 3) - derivative().swapaxes(0, 1)).max() < 1e-6
    assert np.abs(leaves.at(POINT).jacobian().reshape(2, 13, 3) - derivative()).max() < 1e-6
    # Sums are float64, with the bits of `meshloom.map_reduce`.
    at = op.map_reduce(as_rows(curve()), TIMES, SPACE, 2).at(POINT)
    point = {name: np.array(value) for name, value in POINT.items()}
    want = meshloom.map_reduce(lambda t: as_rows(curve())[0](t, point), TIMES)
    assert np.array_equal(at.value, want)
    assert np.abs(at.jacobian() - derivative().sum(axis=1)).max() < 1e-6


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [2, 13])
def test_derivatives_of_maps_do_not_depend_on_chunks_and_ranks(ranks, count):
    cotangent = np.cos(np.arange(2 * count)).reshape(count, 2).astype(np.float32)
    cotangent[1:3] = 0

    def found(comm, chunk):
        own = np.array_split(np.arange(count), comm.size if comm else 1)[comm.rank if comm else 0]
        at = op.map_items(as_rows(curve()), TIMES[:count], SPACE, 2, chunk=chunk, comm=comm).at(POINT)
        total = op.map_reduce(curve(), TIMES[:count], SPACE, LEAVES, chunk=chunk, comm=comm).at(POINT)
        fields = [at.vjp(cotangent[own].ravel()), total.value, total.vjp({"growth": [1.0], "line": [0.5]}), total.jvp(POINT)]
        values = [np.asarray(value) for field in fields for value in field.values()]
        return values + [at.jacobian()], (own, np.asarray(at.value), np.asarray(at.jvp(POINT)), at.jacobian(chunk=2, gather=False))

    want, (_, value, tangent, matrix) = found(None, 5)
    assert all(np.isfinite(one).all() for one in want) and np.array_equal(matrix, want[-1])
    for chunk in (1, 5, 14):
        for same, (own, *parts) in meshloom.ranks(ranks, lambda comm: found(comm, chunk)):
            assert all(np.array_equal(*pair) for pair in zip(same, want))
            assert np.array_equal(parts[0], value.reshape(count, 2)[own].ravel()) and np.array_equal(parts[1], tangent.reshape(count, 2)[own].ravel())
            assert np.array_equal(parts[2], matrix.reshape(count, 2, 3)[own].reshape(-1, 3))


def test_items_without_cotangents_are_left_out():
    seen = []

    def vjp(n, x, dy):
        seen.append(n.tolist())
        return (n * dy)[:, None]

    model = op.map_items((lambda n, x: x * n, lambda n, x, dx: dx * n, vjp), 10, op.vector(1), chunk=4)
    cotangent = np.zeros(10)
    cotangent[[1, 3]] = 1
    assert np.asarray(model.at([1.0]).vjp(cotangent)).tolist() == [4.0] and seen == [[1, 2, 3]]
    few = op.map_items((lambda n, x: x[3] + 0 * n, lambda n, x, dx: dx[3] + 0 * n, lambda n, x, dy: np.outer(dy, np.eye(4)[3])), 2, op.vector(4), chunk=2)
    assert np.array_equal(few.at(np.ones(4)).jacobian(), [np.eye(4)[3]] * 2)


def test_likelihoods_of_maps():
    def fit(comm=None):
        model = op.map_items(as_rows(curve()), TIMES, SPACE, 2, chunk=3, comm=comm)
        own = np.array_split(np.arange(13), comm.size if comm else 1)[comm.rank if comm else 0]
        data = np.stack([2 * np.exp(0.5 * TIMES), 3 * TIMES], axis=1)[own]
        likelihood = meshloom.inference.Gaussian(data.ravel(), 0.01).amend(model)
        energy, gradient = likelihood.value_and_grad(POINT)
        samples, _ = meshloom.optimize_kl(likelihood, n_total_iterations=2, n_samples=1)
        return energy, {name: np.asarray(value).tolist() for name, value in gradient.items()}, {name: np.asarray(value).tolist() for name, value in samples.pos.items()}

    alone = fit()
    assert abs(alone[2]["rate"][0] - 0.5) < 0.05 and np.abs(np.subtract(alone[2]["scale"], [3, 2])).max() < 0.05
    assert meshloom.ranks(2, fit) == [alone] * 2


@pytest.mark.parametrize(
    "error, text, change",
    [
        (TypeError, "rank 1: function: expected a function of JAX, or three functions", {"function": 3}),
        (TypeError, "rank 1: function: expected a function of JAX, or three functions", {"function": (abs, abs)}),
        (ValueError, "rank 1: items: expected one or more", {"items": 0}),
        (ValueError, "the number of items differs: 3 on rank 0, 4 on rank 1", {"items": 4}),
        (ValueError, "rank 1: domain: expected vectors and parameters, which all ranks have, got <cells of", {"domain": op.cells(3)}),
        (ValueError, "domain differs", {"domain": op.vector(2)}),
        (ValueError, "rank 1: components: expected 1 or more, got 0", {"components": 0}),
        (ValueError, "rank 1: components: expected at least one leaf", {"components": {}}),
        (ValueError, "components differs", {"components": {"z": 1}}),
        (ValueError, "rank 1: chunk: expected 1 or more, got 0", {"chunk": 0}),
        (ValueError, "version differs:  on rank 0, 2 on rank 1", {"version": "2"}),
    ],
)
def test_wrong_models_of_maps_are_the_same_error_of_all(error, text, change):
    product = lambda n, x, d: d
    given = {"function": (lambda n, x: n * 1.0, product, product), "items": 3, "domain": op.vector(1)}
    kind, said = told(3, lambda comm: op.map_items(**{**given, **(change if comm.rank == 1 else {})}, comm=comm))
    assert issubclass(kind, error) and text in said


def test_exceptions_of_functions_of_items_reach_all_ranks():
    def body(comm):
        is_wrong = []

        def value(n, x):
            return n / (0 if is_wrong else 1) if not is_wrong or comm.rank != 1 else 1 // 0

        def vjp(n, x, dy):
            return np.ones((len(n), 1 + len(is_wrong)))

        model = op.map_items((value, lambda n, x, dx: n * dx, vjp), 5, op.vector(1), name="mine", comm=comm)
        at = model.at([1.0])
        is_wrong += [True] if comm.rank == 1 else []
        found = []
        for call in (lambda: model([1.0]), lambda: at.vjp(np.ones(len(np.array_split(np.arange(5), 2)[comm.rank])))):
            with pytest.raises(meshloom.Error) as caught:
                call()
            found.append((str(caught.value), type(caught.value.__cause__)))
        is_wrong.clear()
        return found, np.asarray(model([1.0])).tolist()

    (first, values), (second, others) = meshloom.ranks(2, body)
    assert values + others == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ["rank 1: operator `mine (value)`: ZeroDivisionError" in said for said, _ in first] == [True, False]
    assert "vjp of mine, `x`: expected shape (2, 1), one row for each of 2 items, got (2, 2)" in first[1][0]
    assert [kind for _, kind in second] == [ZeroDivisionError, ValueError]


def test_functions_of_jax_over_items():
    jnp = pytest.importorskip("jax").numpy
    model = op.map_items(lambda t, x: {"line": x["scale"][0] * t, "growth": jnp.exp(x["rate"][0] * t) * x["scale"][1]}, TIMES, SPACE, chunk=5)
    assert model.target == {"growth": (13,), "line": (13,)}
    assert np.abs(model.at(POINT).jacobian().reshape(2, 13, 3) - derivative()).max() < 1e-5
    model.check_adjoint(POINT)
    pair = op.map_reduce(lambda items, x: jnp.stack([items["a"] * x[0], items["b"] @ x]), {"a": TIMES, "b": np.outer(TIMES, [1.0, 2.0])}, op.parameters(2))
    want = TIMES.sum() * np.array([[1.0, 0.0], [1.0, 2.0]])
    assert np.abs(pair.at([1.0, 1.0]).jacobian() - want).max() < 1e-5
    with pytest.raises(ValueError, match="expected a real number or a vector"):
        op.map_items(lambda t, x: jnp.ones((2, 2)), TIMES, SPACE)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_jacobians_on_ranks_are_in_the_order_of_whole_arrays(ranks):
    space = op.Space(x=op.cells((5, 4), components=2), s=op.vector(1))
    x = np.random.default_rng(5).standard_normal((2, 5, 4)).astype(np.float32)
    places = np.argwhere(np.arange(20).reshape(5, 4) % 7 == 3)

    def body(comm):
        own = np.array_split(x, comm.size, axis=1)[comm.rank]
        square = op.pointwise("fn f(s: f32, x: f32) -> f32 { return s * x * x; }", "f", op.Space(x=op.cells((5, 4)), s=op.vector(1)), "x", comm=comm)
        both = square.at({"x": own[0], "s": [2.0]})
        spectrum = op.fourier(op.cells((5, 4)), comm=comm).at(own[0])
        rows = square.then(op.select(square.target, np.arange(20).reshape(5, 4) % 7 == 3, comm=comm)).at({"x": own[0], "s": [2.0]})
        pairs = op.custom(lambda x: 3 * x, lambda x, d: 3 * d, lambda x, d: 3 * d, op.cells((5, 4), components=2), comm=comm).at(own)
        blocks = lambda at: [list(at.jacobian_blocks(rows=number, **options)) for number, options in [(3, {}), (25, {"chunk": 4}), (None, {})]]
        assert all(block.shape[0] <= 3 for at in (both, spectrum) for block in at.jacobian_blocks(rows=3))
        return [[at.jacobian(**options) for options in ({}, {"chunk": 7}, {"gather": False})] + [blocks(at)] for at in (both, spectrum, rows, pairs)]

    flat = x[0].ravel().astype(float)
    square = np.concatenate([flat[:, None] ** 2, np.diag(4 * flat)], axis=1)
    waves = np.fft.rfft2(np.eye(20).reshape(20, 5, 4)).reshape(20, -1).T
    wanted = [square, np.stack([waves.real, waves.imag], axis=1).reshape(-1, 20), square[np.arange(20) % 7 == 3], 3 * np.eye(40)]
    parts = meshloom.ranks(ranks, body)
    alone = meshloom.ranks(1, body)[0]
    for number, want in enumerate(wanted):
        for whole, chunked, _, blocks in (part[number] for part in parts):
            assert all(np.abs(np.concatenate(found) - want).max() < 1e-5 for found in blocks)
            assert all(np.array_equal(one, other) for found, alone_found in zip(blocks, alone[number][3]) for one, other in zip(found, alone_found))
            assert np.abs(whole - want).max() < 1e-5 and np.array_equal(whole, chunked) and np.array_equal(whole, alone[number][0])
    for number in (0, 2):
        assert np.array_equal(np.concatenate([part[number][2] for part in parts]), alone[number][0])
    own = [np.array_split(np.arange(40).reshape(2, 5, 4), ranks, axis=1)[rank].ravel() for rank in range(ranks)]
    assert all(np.array_equal(part[3][2], 3 * np.eye(40)[rows]) for part, rows in zip(parts, own))
    # Modes are cut along the second axis.
    for rank, part in enumerate(parts):
        rows = np.array_split(np.arange(30).reshape(5, 3, 2), ranks, axis=1)[rank].ravel()
        assert np.array_equal(part[1][2], alone[1][0][rows])


def test_budgets_of_jacobians():
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(5000), "y").then(op.select(op.cells(5000), np.arange(5000) < 3))
    at = square.at(np.ones(5000))
    assert at.jacobian(memory=1 << 20).shape == (3, 5000)
    with pytest.raises(meshloom.Error, match="bytes of device memory"):
        at.jacobian(memory=1000)
    with pytest.raises(ValueError, match="rows: expected"):
        at.jacobian_blocks(rows=0)
    # 8 bytes for each of 5000 columns.
    assert [block.shape for block in at.jacobian_blocks(memory=1 << 17)] == [(3, 5000)] and len(list(at.jacobian_blocks(chunk=1, memory=80000))) == 2
    kind, said = told(2, lambda comm: op.hartley(op.cells((4, 4)), comm=comm).at(np.ones((2, 4))).jacobian(chunk=1 + comm.rank))
    assert issubclass(kind, ValueError) and "chunk differs: 1 on rank 0, 2 on rank 1" in said
