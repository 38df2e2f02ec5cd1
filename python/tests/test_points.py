"""Neighbors, groups, pairs, order: beside SciPy and brute force, and what is refused."""

import warnings

import numpy as np
import pytest
import scipy.spatial

import meshloom

RNG = np.random.default_rng(11)


def brute(a, b, box=None):
    d = a[:, None].astype(np.float64) - b[None]
    if box:
        d -= box * np.round(d / box)
    return np.sqrt((d * d).sum(-1))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("box", [None, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_of_points(dims, box, dtype):
    points, queries = RNG.random((400, dims)).astype(dtype), RNG.random((5, 20, dims)).astype(dtype)
    tree = meshloom.KDTree(points, boxsize=box)
    distance, index = tree.query(queries, k=5)
    assert distance.shape == index.shape == (5, 20, 5)
    assert distance.dtype == dtype and index.dtype == np.intp
    truth = brute(queries.reshape(-1, dims), points, box)
    assert np.abs(distance.reshape(-1, 5) - np.sort(truth)[:, :5]).max() < 3e-7
    found = np.take_along_axis(truth, index.reshape(-1, 5), axis=1)
    assert np.abs(found - distance.reshape(-1, 5)).max() < 3e-7

    near, which = tree.query(queries, k=[2, 5], distance_upper_bound=0.05)
    assert near.shape == (5, 20, 2)
    assert np.array_equal(np.isinf(near), which == 400)
    assert np.array_equal(np.isinf(near), ~(distance[..., [1, 4]] < 0.05))
    own = tree.query(tree.data, k=1)
    assert (own[0] == 0).all() and np.array_equal(own[1], np.arange(400))


def test_bounds_are_strict_as_those_of_scipy():
    tree = meshloom.KDTree(np.array([[0.0, 0.0], [1.0, 0.0]], np.float32))
    assert tree.query([0.0, 0.0], k=2, distance_upper_bound=1.0)[1].tolist() == [0, 2]
    assert tree.query([0.0, 0.0], k=2, distance_upper_bound=1.0 + 1e-6)[1].tolist() == [0, 1]
    assert tree.query([0.0, 0.0], distance_upper_bound=0.0)[1] == 2
    assert tree.query_ball_point([0.0, 0.0], 1.0) == [0, 1]


def test_radii_of_their_own():
    points = RNG.random((300, 3)).astype(np.float32)
    tree, radii = meshloom.KDTree(points), RNG.random(40) * 0.4 - 0.05
    lists = tree.query_ball_point(points[:40], radii)
    truth = brute(points[:40], points)
    assert [len(found) for found in lists] == [int((row <= radius).sum()) for row, radius in zip(truth, radii)]
    assert tree.query_ball_point(points[:40], radii, return_length=True).tolist() == [len(found) for found in lists]
    assert tree.query_ball_point(points[:40], -1.0).tolist() == [[] for _ in range(40)]


def test_counts_and_pairs():
    a, b = RNG.random((200, 3)).astype(np.float32), RNG.random((150, 3)).astype(np.float32)
    one, other = meshloom.KDTree(a, boxsize=1.0), meshloom.KDTree(b, boxsize=1.0)
    radii = [0.0, 1e-40, 0.1, 0.3, 0.31, 5.0, np.inf]
    truth = brute(a, b, 1.0)
    assert one.count_neighbors(other, radii).tolist() == [int((truth <= r).sum()) for r in radii]
    same = brute(a, a, 1.0)
    assert one.count_neighbors(one, radii).tolist() == [int((same <= r).sum()) for r in radii]
    assert one.count_neighbors(one, 0.2) == int((same <= 0.2).sum())
    assert one.count_neighbors(one, radii, cumulative=False).sum() == 200 * 200
    wa, wb = RNG.random(200), RNG.random(150)
    for weights, products in [((wa, wb), wa[:, None] * wb), ((wa, None), wa[:, None] * np.ones(150))]:
        want = [products[truth <= r].sum() for r in radii]
        assert np.allclose(one.count_neighbors(other, radii, weights=weights), want, rtol=1e-12)
    assert one.count_neighbors(one, 0.2, weights=wa) == pytest.approx((wa[:, None] * wa)[same <= 0.2].sum())
    for wrong in (wa, (wa,), (wa, wb[:3])):
        with pytest.raises(ValueError):
            one.count_neighbors(other, radii, weights=wrong)
    pairs = one.query_pairs(0.1)
    assert pairs == {(i, j) for i, j in zip(*np.nonzero(same <= 0.1)) if i < j}
    assert {tuple(pair) for pair in one.query_pairs(0.1, output_type="ndarray").tolist()} == pairs
    edges = [0.0, 0.1, 0.2, 0.5]
    off = same[~np.eye(200, dtype=bool)]
    assert meshloom.pair_counts(a, edges, box=1.0).tolist() == np.histogram(off, edges)[0].tolist()
    assert meshloom.pair_counts(a, edges, other=b, box=1.0).tolist() == np.histogram(truth, edges)[0].tolist()
    with pytest.warns(RuntimeWarning, match="beyond 0.5, half of the shortest periodic side"):
        meshloom.pair_counts(a, [0.0, 0.6], box=[1.0, 2.0, 0.0])
    wrong = {
        "velocities has nan for point 3": lambda: meshloom.fof(a[:5], 0.1, velocities=np.where(np.arange(5)[:, None] == 3, np.nan, a[:5])),
        "masses has inf for point 0": lambda: meshloom.fof(a[:5], 0.1, masses=np.full(5, np.inf)),
        "expected 2 to 4097 edges, finite, non-negative": lambda: meshloom.pair_counts(a, [0, np.inf]),
    }
    for words, call in wrong.items():
        with pytest.raises(ValueError, match=words):
            call()
    for call in (meshloom.fof, meshloom.pair_counts):
        with pytest.raises(ValueError, match="transpose"):
            call(a.T, [0.0, 0.1])
    with pytest.raises(ValueError, match="transpose"):
        meshloom.power_spectrum(a.T, 1.0)


def test_groups_are_those_of_a_graph():
    sparse = pytest.importorskip("scipy.sparse")
    points = RNG.random((500, 3)).astype(np.float32)
    groups = meshloom.fof(points, 0.06, box=1.0, min_members=3, velocities=points, masses=np.full(500, 2.0))
    graph = sparse.coo_matrix(brute(points, points, 1.0) <= np.float32(0.06))
    _, labels = sparse.csgraph.connected_components(graph, directed=False)
    first = np.array([np.flatnonzero(labels == label)[0] for label in labels])
    assert np.array_equal(groups.labels, first)
    sizes = np.bincount(first)
    assert sorted(groups.count.tolist()) == sorted(sizes[sizes >= 3].tolist())
    assert np.array_equal(groups.mass, 2.0 * groups.count)
    for row in range(len(groups)):
        members = groups.members[groups.offset[row] : groups.offset[row + 1]]
        assert np.array_equal(members, np.flatnonzero(first == groups.label[row]))
        assert np.abs(groups.velocity[row] - points[members].mean(0)).max() < 1e-6
    by_separation = meshloom.fof(points, linking_parameter=0.06 * 500 ** (1 / 3), box=1.0)
    assert np.array_equal(by_separation.labels, groups.labels)


def test_order_along_curves():
    points = (np.stack(np.meshgrid(*[np.arange(4)] * 2, indexing="ij"), -1).reshape(-1, 2) + 0.5).astype(np.float32)
    order = meshloom.sort(points, box=4.0)
    key = [sum((int(x) >> bit & 1) << (2 * bit) | (int(y) >> bit & 1) << (2 * bit + 1) for bit in range(2)) for x, y in points]
    assert key[order[0]] == 0 and sorted(order.tolist()) == list(range(16))
    assert [key[i] for i in order] == sorted(key)
    along = points[meshloom.sort(points, box=4.0, curve="hilbert")]
    assert (np.abs(np.diff(along, axis=0)).sum(1) == 1).all()


def test_no_points():
    none = np.zeros((0, 3), np.float32)
    tree = meshloom.KDTree(none)
    assert tree.query([[0.0, 0.0, 0.0]], k=2)[1].tolist() == [[0, 0]]
    assert meshloom.fof(none, 1.0).labels.shape == (0,)
    assert meshloom.sort(none).shape == (0,)
    assert meshloom.pair_counts(none, [0.0, 1.0]).tolist() == [0]


POINTS = RNG.random((10, 3))
WRONG = [
    (ValueError, lambda p: meshloom.KDTree(p[0])),
    (ValueError, lambda p: meshloom.KDTree(RNG.random((5, 4)))),
    (TypeError, lambda p: meshloom.KDTree(p.astype(complex))),
    (TypeError, lambda p: meshloom.KDTree(p.astype(object))),
    (TypeError, lambda p: meshloom.KDTree("points")),
    (ValueError, lambda p: meshloom.KDTree(np.where(p < 0.1, np.nan, p))),
    (ValueError, lambda p: meshloom.KDTree(p * 1e300)),
    (ValueError, lambda p: meshloom.KDTree(p, boxsize=0.5)),
    (ValueError, lambda p: meshloom.KDTree(p, boxsize=[1.0, 1.0])),
    (ValueError, lambda p: meshloom.KDTree(p, boxsize=-1.0)),
    (ValueError, lambda p: meshloom.KDTree(p).query(p, k=0)),
    (TypeError, lambda p: meshloom.KDTree(p).query(p, k=1.5)),
    (ValueError, lambda p: meshloom.KDTree(p).query(p, k=[])),
    (ValueError, lambda p: meshloom.KDTree(p).query(p[:, :2])),
    (ValueError, lambda p: meshloom.KDTree(p).query(p, p=1)),
    (ValueError, lambda p: meshloom.KDTree(p).query(p, eps=-1)),
    (ValueError, lambda p: meshloom.KDTree(p).query(p, distance_upper_bound=np.nan)),
    (ValueError, lambda p: meshloom.KDTree(p).query([np.nan, 0.0, 0.0])),
    (ValueError, lambda p: meshloom.KDTree(RNG.random((1100, 3))).query(p, k=1025)),
    (ValueError, lambda p: meshloom.KDTree(p).query_ball_point(p, [1.0, 2.0])),
    (TypeError, lambda p: meshloom.KDTree(p).count_neighbors(p, 1.0)),
    (ValueError, lambda p: meshloom.KDTree(p).count_neighbors(meshloom.KDTree(p, boxsize=1.0), 1.0)),
    (ValueError, lambda p: meshloom.KDTree(p).query_pairs(1.0, output_type="list")),
    (TypeError, lambda p: meshloom.fof(p)),
    (TypeError, lambda p: meshloom.fof(p, 1.0, linking_parameter=0.2)),
    (ValueError, lambda p: meshloom.fof(p, -1.0)),
    (ValueError, lambda p: meshloom.fof(p, float("nan"))),
    (ValueError, lambda p: meshloom.fof(p, linking_parameter=0.2)),
    (ValueError, lambda p: meshloom.fof(p, 1.0, masses=np.ones(9))),
    (ValueError, lambda p: meshloom.fof(p, 1.0, masses=np.full(10, -1.0))),
    (ValueError, lambda p: meshloom.fof(p, 1.0, velocities=np.ones((10, 2)))),
    (ValueError, lambda p: meshloom.fof(p, 1.0, order="size")),
    (ValueError, lambda p: meshloom.fof(p, 1.0, min_members=0)),
    (TypeError, lambda p: meshloom.fof(p, 1.0, min_members=2.5)),
    (TypeError, lambda p: meshloom.fof(p, "0.1x" and None, linking_parameter=None)),
    (TypeError, lambda p: meshloom.fof(p, 1.0, comm="world")),
    (TypeError, lambda p: meshloom.sort(p, box="1")),
    (ValueError, lambda p: meshloom.sort(p, curve="peano")),
    (ValueError, lambda p: meshloom.sort(p[:, :1])),
    (ValueError, lambda p: meshloom.pair_counts(p, [0.0, 1.0], weights=np.ones(3))),
    (ValueError, lambda p: meshloom.pair_counts(p, [0.0, 1.0], weights=-np.ones(len(p)))),
    (ValueError, lambda p: meshloom.pair_counts(p, [0.0, 1.0], other_weights=np.ones(len(p)))),
    (TypeError, lambda p: meshloom.pair_counts(p, [0.0, 1.0], weights=["a"] * len(p))),
    (ValueError, lambda p: meshloom.pair_counts(p, [1.0, 0.5])),
    (ValueError, lambda p: meshloom.pair_counts(p, [[0.0, 1.0]])),
    (TypeError, lambda p: meshloom.pair_counts(p, [0.0, None])),
    (ValueError, lambda p: meshloom.pair_counts(p, np.linspace(0, 1, 5000))),
    (ValueError, lambda p: meshloom.pair_counts(p, [0.0, 1.0], other=p[:, :2])),
    (ValueError, lambda p: meshloom.power_spectrum(p, 0.0)),
    (ValueError, lambda p: meshloom.power_spectrum(p, [1.0, 1.0])),
    (ValueError, lambda p: meshloom.power_spectrum(p, 1.0, mesh=0)),
    (ValueError, lambda p: meshloom.power_spectrum(p, 1.0, mesh=1 << 20)),
    (ValueError, lambda p: meshloom.power_spectrum(p, 1.0, window="box")),
    (ValueError, lambda p: meshloom.power_spectrum(p[:, :2], 1.0)),
    (ValueError, lambda p: meshloom.power_spectrum(np.full((4, 4, 4), np.nan), 1.0)),
    (ValueError, lambda p: meshloom.power_spectrum(np.ones((4, 4, 4)), 1.0, mesh=8)),
    (ValueError, lambda p: meshloom.ranks(0, print)),
    (TypeError, lambda p: meshloom.ranks(2, 3)),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_cannot_be_is_refused(number):
    error, call = WRONG[number]
    with pytest.raises(error) as raised:
        call(POINTS)
    assert not isinstance(raised.value, meshloom.Error) and len(str(raised.value)) > 10


@pytest.mark.parametrize("form", ["F", "reversed", "read-only", "int", "half", "list"])
def test_any_array_of_points(form):
    points = RNG.integers(0, 50, (60, 3)).astype(np.float32)
    given = {
        "F": lambda: np.asfortranarray(points),
        "reversed": lambda: np.ascontiguousarray(points[::-1])[::-1],
        "read-only": lambda: (points.setflags(write=False), points)[1],
        "int": lambda: points.astype(int),
        "half": lambda: points.astype(np.float16),
        "list": lambda: points.tolist(),
    }[form]()
    assert np.array_equal(meshloom.fof(given, 5.0).labels, meshloom.fof(points, 5.0).labels)
    assert np.array_equal(meshloom.KDTree(given).query(given, k=3)[1], meshloom.KDTree(points).query(points, k=3)[1])


FORMS = {"float32": np.float32, "float64": np.float64, "device": lambda x: meshloom.asarray(x.astype(np.float32))}


@pytest.mark.parametrize("form", FORMS)
def test_a_box_in_another_unit_is_warned_of(form):
    given, points = FORMS[form], RNG.random((200, 3)).astype(np.float32)
    far, near = given(1000 * points), given(points)
    outside = int((1000 * points > 2).any(axis=1).sum())
    farthest = float((1000 * points).max()) - 1
    far_outside = f"{outside} of 200 points lie more than one side outside the box, the farthest {farthest:.1f} sides"
    for name, call in {
        "data": lambda: meshloom.power_spectrum(far, 1.0, mesh=8),
        "points": lambda: meshloom.pair_counts(far, [0, 0.1], box=1.0),
        "queries": lambda: meshloom.pair_counts(near, [0, 0.1], other=far, box=1.0),
    }.items():
        with pytest.warns(UserWarning, match=f"^{name}: {far_outside}") as found:
            call()
        assert [one.filename for one in found] == [__file__]
    for call in (
        lambda: meshloom.fof(far, 0.1, box=1.0),
        lambda: meshloom.sort(far, box=1.0),
        lambda: meshloom.KDTree(near, boxsize=1.0).query(far),
    ):
        with pytest.warns(UserWarning, match=far_outside):
            call()
    for call in (
        lambda: meshloom.power_spectrum(near, 1000.0, mesh=8),
        lambda: meshloom.fof(near, linking_parameter=0.2, box=1000.0),
    ):
        with pytest.warns(UserWarning, match=r"^\w+: all 200 points lie within (9\.\de-4|1\.0e-3) of each side of the box"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meshloom.power_spectrum(near, 1.0, mesh=8)
        meshloom.pair_counts(near, [0, 0.1], box=1.0)
        # No density is asked for.
        meshloom.fof(near, 0.01, box=1000.0)
        meshloom.fof(far, 1.0)
    # SciPy refuses such points.
    for box in (0.5, [2.0, 2.0, 0.5]):
        with pytest.raises(ValueError, match="outside of the periodic box"):
            meshloom.KDTree(near, boxsize=box)
    tree = meshloom.KDTree(near, boxsize=1.0)
    assert np.array_equal(tree.mins, points.min(axis=0)) and np.array_equal(tree.maxes, points.max(axis=0))
    assert tree.mins.dtype == (np.float64 if form == "float64" else np.float32)


def test_a_warning_comes_once_and_is_an_error_of_all_ranks_where_it_is_one():
    points = 1000 * RNG.random((200, 3))

    def labels(comm):
        try:
            return meshloom.fof(points[comm.rank :: comm.size], 0.1, box=1.0, comm=comm).labels
        except UserWarning as raised:
            return str(raised)

    with pytest.warns(UserWarning) as found:
        meshloom.ranks(3, labels)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = meshloom.ranks(3, labels)
    assert len(set(said)) == 1 and "more than one side outside the box" in said[0]


def test_arrays_on_the_device():
    points = RNG.random((300, 3)).astype(np.float32)
    there = meshloom.asarray(points)
    assert (there.shape, there.dtype, there.nbytes, len(there)) == ((300, 3), np.float32, 3600, 300)
    assert np.array_equal(np.asarray(there), points) and np.array_equal(np.from_dlpack(there), points)
    assert not np.shares_memory(np.from_dlpack(there), np.from_dlpack(there))
    for wrong in ({"copy": False}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError, match=f"{next(iter(wrong))}: expected"):
            there.__dlpack__(**wrong)

    class Exported:
        """An array of another library that exports DLPack only."""

        def __init__(self, device):
            self.__dlpack_device__ = lambda: device

        def __dlpack__(self, **options):
            return points.__dlpack__(**options)

        __dlpack_device__ = None

    assert np.array_equal(np.asarray(meshloom.asarray(Exported((1, 0)))), points)
    with pytest.raises(TypeError, match="expected an array in host memory, got Exported on another device; pass a copy such as values.cpu"):
        meshloom.asarray(Exported((2, 0)))
    assert meshloom.asarray(there) is there
    for box in (None, 1.0, 0.5):
        assert np.array_equal(meshloom.fof(there, 0.1, box=box).labels, meshloom.fof(points, 0.1, box=box).labels)
        assert np.array_equal(meshloom.sort(there, box=box), meshloom.sort(points, box=box))
    tree = meshloom.KDTree(there, boxsize=1.0)
    for queries in (points[:20], meshloom.asarray(points[:20]), there):
        found, want = tree.query(queries, k=3), meshloom.KDTree(points, boxsize=1.0).query(np.asarray(queries), k=3)
        assert np.array_equal(found[0], want[0]) and np.array_equal(found[1], want[1])
    assert np.array_equal(np.asarray(there), points), "it is left as it was"
    assert np.array_equal(meshloom.power_spectrum(there, 1.0).power, meshloom.power_spectrum(points, 1.0).power)

    field = meshloom.asarray(points.reshape(5, 6, 30))
    modes = meshloom.fft.rfftn(field)
    assert isinstance(modes, meshloom.Array) and modes.dtype == np.complex64
    assert np.array_equal(modes.numpy(), meshloom.fft.rfftn(points.reshape(5, 6, 30)))
    back = meshloom.fft.irfftn(modes, s=field.shape, axes=(0, 1, 2))
    assert np.abs(back.numpy() - np.asarray(field)).max() < 1e-6
    assert meshloom.fft.fft(modes, axis=1).shape == modes.shape
    assert field.reshape(-1, 3).shape == (300, 3)
    for error, wrong in [
        (TypeError, lambda: meshloom.fft.fft(field)),
        (TypeError, lambda: meshloom.fft.rfft(modes)),
        (ValueError, lambda: meshloom.fft.rfft(field, n=7)),
        (ValueError, lambda: meshloom.fft.rfft(field, axis=0)),
        (ValueError, lambda: field.reshape(7, -1)),
        (TypeError, lambda: meshloom.asarray(["a"])),
        (TypeError, lambda: meshloom.fof(meshloom.asarray(points.astype(np.float64)), 0.1)),
        (ValueError, lambda: meshloom.KDTree(meshloom.asarray(np.full((3, 3), np.nan, np.float32)))),
        (ValueError, lambda: meshloom.ranks(2, lambda comm: meshloom.sort(there, comm=comm))),
        (ValueError, lambda: np.asarray(there, copy=False)),
    ]:
        with pytest.raises(error):
            wrong()


def test_arrays_of_a_device_have_no_single_truth():
    one, other = (meshloom.asarray(np.arange(4.0)) for _ in range(2))
    for use in [lambda: bool(one), lambda: bool(one == other), lambda: one in [other], lambda: one == other or one, lambda: hash(one)]:
        with pytest.raises(TypeError):
            use()
    with pytest.raises(TypeError, match="numpy.asarray"):
        np.cbrt(one)


def test_masks_and_units_are_not_lost():
    points = np.ma.masked_array(np.random.default_rng(1).random((100, 3)))
    for use in [lambda: meshloom.pair_counts(points, [0, 0.5]), lambda: meshloom.KDTree(points), lambda: meshloom.fof(points, 0.1),
                lambda: meshloom.power_spectrum(points, 1.0, mesh=8), lambda: meshloom.fft.fft(points), lambda: meshloom.asarray(points)]:
        use()  # Nothing is masked.
    points[50:] = np.ma.masked
    for use in [lambda: meshloom.pair_counts(points, [0, 0.5]), lambda: meshloom.KDTree(points), lambda: meshloom.fof(points, 0.1),
                lambda: meshloom.power_spectrum(points, 1.0, mesh=8), lambda: meshloom.fft.fft(points), lambda: meshloom.asarray(points)]:
        with pytest.raises(TypeError, match="compressed"):
            use()

    class Quantity(np.ndarray):
        unit = "kpc"

        def to_value(self, unit):
            return np.asarray(self)

    with pytest.raises(TypeError, match="has the unit kpc"):
        meshloom.KDTree(np.random.default_rng(1).random((9, 3)).view(Quantity))


def test_arguments_of_trees_are_read():
    tree = meshloom.KDTree(np.random.default_rng(1).random((20, 3)))
    x = np.zeros(3)
    for call in [tree.query, lambda x, workers: tree.query_ball_point(x, 0.1, workers=workers)]:
        call(x, workers=-1)
        for workers, error in [(0, ValueError), (-2, ValueError), ("many", TypeError), (1.5, TypeError)]:
            with pytest.raises(error, match="workers"):
                call(x, workers=workers)
    with pytest.raises(TypeError, match="not scipy.spatial.KDTree"):
        tree.count_neighbors(scipy.spatial.KDTree(tree.data), 0.1)
    with pytest.raises(ValueError, match="must have 2 dimensions"):
        meshloom.KDTree([1.0, 2.0])
    with pytest.raises(ValueError, match="not a number"):
        tree.query(x, distance_upper_bound=np.nan)
    assert "linking length 0.4" in repr(meshloom.fof(tree.data, 0.4))
    with pytest.raises(ValueError, match="one row for each item"):
        meshloom.map_items(lambda x: 1.0, 3)
    with pytest.raises(TypeError, match="use rfft or rfftn"):
        meshloom.fft.fft(meshloom.asarray(np.ones(4)))


def test_pairs_are_weighted():
    rng = np.random.default_rng(21)
    a, b = rng.random((300, 3)).astype(np.float32), rng.random((200, 3)).astype(np.float32)
    wa, wb = (10 ** rng.uniform(-3, 3, n) for n in (300, 200))
    edges = [0.0, 0.1, 0.2, 0.45]

    def truth(x, y, wx, wy, off=0.0):
        d = brute(x, y, 1.0)
        if off:
            np.fill_diagonal(d, np.inf)
        return np.histogram(d, edges, weights=wx[:, None] * wy)[0]

    # Weights are rounded to float32, 6e-8 of each.
    own = meshloom.pair_counts(a, edges, weights=wa, box=1.0)
    assert own.dtype == np.float64
    np.testing.assert_allclose(own, truth(a, a, wa, wa, True), rtol=2e-7)
    np.testing.assert_allclose(meshloom.pair_counts(a, edges, other=b, weights=wa, other_weights=wb, box=1.0), truth(b, a, wb, wa), rtol=2e-7)
    np.testing.assert_allclose(meshloom.pair_counts(a, edges, other=b, other_weights=wb, box=1.0), truth(b, a, wb, np.ones(300)), rtol=2e-7)

    # Arrays on the device, several ranks, and an integer weight that stands for that many points.
    single = wa.astype(np.float32)
    assert np.array_equal(meshloom.pair_counts(meshloom.asarray(a), edges, weights=meshloom.asarray(single), box=1.0), own)

    def part(comm):
        rows = slice(300 * comm.rank // comm.size, 300 * (comm.rank + 1) // comm.size)
        return meshloom.pair_counts(a[rows], edges, weights=wa[rows], box=1.0, comm=comm)

    assert all(np.array_equal(counts, own) for counts in meshloom.ranks(3, part))
    times = rng.integers(0, 5, 300)
    apart = [1e-4, 0.1, 0.2]
    repeated = meshloom.pair_counts(np.repeat(a, times, axis=0), apart)
    assert meshloom.pair_counts(a, apart, weights=times).tolist() == repeated.tolist()


def test_points_far_outside_wrap_alike_in_any_precision():
    far = np.float32(8 * np.random.default_rng(24).integers(1 << 23, 1 << 24, (50, 3)))
    box, edges = 100.1, [0.0, 4e-5]
    for points in far, meshloom.asarray(far):
        with pytest.warns(UserWarning, match="outside the box"):
            assert meshloom.pair_counts(points, edges, other=far.astype(np.float64), box=box).tolist() == [50]
