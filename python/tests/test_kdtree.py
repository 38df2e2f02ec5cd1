"""Searches where they go wrong without a word: radii of their own, ranks without points, arrays that change, rounding, points far from 0."""

import numpy as np
import pytest

import meshloom
from meshloom import _kdtree

spatial = pytest.importorskip("scipy.spatial")
# Meters of a map: float32 counts them in steps of 0.03 and 0.5.
MAP = np.array([500_000.0, 5_400_000.0]) + 10 * np.random.default_rng(23).random((400, 2))


@pytest.fixture
def rng():
    # The same numbers for each test, whichever run: distances at the edge of float32 would differ from SciPy's.
    return np.random.default_rng(23)


def parts(array, ranks, empty=()):
    """An array cut for so many ranks, some of which have nothing."""
    cuts = iter(np.array_split(array, ranks - len(empty)))
    return [array[:0] if rank in empty else next(cuts) for rank in range(ranks)]


def on_ranks(ranks, body):
    """What a function gives on each rank, or the error that it raises there."""

    def caught(comm):
        try:
            return body(comm)
        except ValueError as error:
            return str(error)

    return meshloom.ranks(ranks, caught)


def lists_of(parts):
    return [list(found) for part in parts for found in part]


class Counting:
    """A search that counts what it lists."""

    def __init__(self, search):
        self.search, self.listed = search, []

    def __getattr__(self, name):
        return getattr(self.search, name)

    def within(self, *arguments):
        found = self.search.within(*arguments)
        self.listed.append(len(found[1]))
        return found


@pytest.mark.parametrize("empty", [(), (0,), (1,)])
def test_each_rank_has_radii_of_its_own(rng, empty):
    points = rng.random((300, 3))
    by_rank = np.concatenate([np.full(len(part), [0.05, 0.4, 0.11][rank]) for rank, part in enumerate(parts(points, 3, empty))])
    # Within a radius below 0 is nothing; SciPy takes its square.
    distances = spatial.distance_matrix(points, points)
    for radii in (by_rank, np.where(by_rank > 0.1, rng.random(300) * 0.3 - 0.05, 0.1), np.full(300, -1.0)):
        want = [np.flatnonzero(row <= r).tolist() for row, r in zip(distances, radii)]

        def body(comm):
            own, r = parts(points, 3, empty)[comm.rank], parts(radii, 3, empty)[comm.rank]
            tree = meshloom.KDTree(own, comm=comm)
            # As queries, and as the points of the tree, which are searched for in another way.
            queries = tree.query_ball_point(np.concatenate([own, own]), np.concatenate([r, r]))[: len(own)]
            return queries, tree.query_ball_point(own, r), tree.query_ball_point(own, r, return_length=True)

        queries, own, lengths = zip(*meshloom.ranks(3, body))
        assert lists_of(queries) == lists_of(own) == want
        assert np.concatenate(lengths).tolist() == [len(found) for found in want]


@pytest.mark.parametrize("empty", [(0,), (1, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranks_may_have_no_points_and_no_queries(rng, empty, dtype):
    points = rng.random((200, 2)).astype(dtype)
    alone = meshloom.KDTree(points, boxsize=[1.0, 0.0])

    def body(comm):
        # What is empty has NumPy's usual type, whatever the others have.
        own = parts(points, 3, empty)[comm.rank]
        own = own if len(own) else np.zeros((0, 2))
        tree = meshloom.KDTree(own, boxsize=[1.0, 0.0], comm=comm)
        nothing = own[: len(own) * (comm.rank == 1)]
        return {
            "query": tree.query(own, k=3)[0],
            "index": tree.query(own, k=3)[1],
            "few": tree.query(nothing, k=[2])[1],
            "bounded": tree.query(own, distance_upper_bound=0.0)[1],
            "lists": tree.query_ball_point(own, 0.1),
            "tree": tree.query_ball_tree(tree, 0.1),
            "pairs": tree.query_pairs(0.1, output_type="ndarray"),
            "matrix": tree.sparse_distance_matrix(tree, 0.1).toarray(),
            "count": tree.count_neighbors(tree, [0.1, 0.2]),
        }

    found = meshloom.ranks(3, body)
    together = {name: np.concatenate([part[name] for part in found]) for name in ("query", "index", "few", "bounded", "pairs", "matrix")}
    assert np.array_equal(together["query"], alone.query(points, k=3)[0]) and found[0]["query"].dtype == dtype
    assert np.array_equal(together["index"], alone.query(points, k=3)[1])
    assert len(together["few"]) == len(parts(points, 3, empty)[1]) and (together["bounded"] == 200).all()
    assert lists_of(part["lists"] for part in found) == lists_of(part["tree"] for part in found) == list(alone.query_ball_point(points, 0.1))
    assert np.array_equal(together["pairs"], alone.query_pairs(0.1, output_type="ndarray"))
    assert np.array_equal(together["matrix"], alone.sparse_distance_matrix(alone, 0.1).toarray())
    assert all(np.array_equal(part["count"], alone.count_neighbors(alone, [0.1, 0.2])) for part in found)
    none = on_ranks(2, lambda comm: meshloom.KDTree(points[:0], comm=comm).query_ball_point(points[: 3 * comm.rank], 1.0).tolist())
    assert none == [[], [[], [], []]]


def test_what_one_rank_cannot_take_is_the_same_error_on_all(rng):
    points, outside, masses = rng.random((90, 3)), rng.random((90, 3)), np.ones(90)
    outside[70, 1], outside[80, 0], masses[65] = 1.25, -1.0, 1e40

    def own(comm, array=points):
        return np.array_split(array, 3)[comm.rank]

    def tree(comm):
        return meshloom.KDTree(own(comm), comm=comm)

    def matrix(comm):
        own_tree = tree(comm)
        return own_tree.sparse_distance_matrix(own_tree, [0.5, -1.0, 0.5][comm.rank])

    for said, call in [
        ("coordinate 1 of point 70 is 1.25, outside of the periodic box; expected [0, 1); wrap by points % boxsize", lambda c: meshloom.KDTree(own(c, outside), boxsize=1.0, comm=c)),
        ("masses has 1e+40 for point 65, beyond the range of float32", lambda c: meshloom.fof(own(c), 0.1, masses=own(c, masses), comm=c)),
        ("x must consist of vectors of length 3", lambda c: tree(c).query(points[:, : 3 - (c.rank == 1)])),
        ("r: expected numbers", lambda c: tree(c).query_ball_point(own(c), [0.1, np.nan, 0.1][c.rank])),
        ("r differs: 0.5 on rank 0, 0.25 on rank 2", lambda c: tree(c).query_pairs([0.5, 0.5, 0.25][c.rank])),
        ("max_distance differs: 0.5 on rank 0, -1.0 on rank 1", matrix),
        ("number of axes differs: 2 on rank 0, 3 on rank 1", lambda c: meshloom.KDTree(own(c)[:, : 2 + c.rank % 2], comm=c)),
        ("number of axes differs: 2 on rank 0, 3 on rank 1", lambda c: meshloom.pair_counts(own(c)[:, : 2 + c.rank % 2], [0.0, 1.0], comm=c)),
    ]:
        found = on_ranks(3, call)
        assert isinstance(found[0], str) and said in found[0] and found == [found[0]] * 3, found


@pytest.mark.parametrize("copy_data", [False, True])
def test_a_tree_keeps_its_points_when_the_array_changes(rng, copy_data):
    points = rng.random((200, 3))
    old, queries = points.copy(), rng.random((50, 3))
    tree, other = meshloom.KDTree(points, copy_data=copy_data), meshloom.KDTree(queries)
    truth, of_queries = spatial.KDTree(old), spatial.KDTree(queries)
    points[:] = rng.random((200, 3))
    assert np.array_equal(tree.data, old)
    with pytest.raises(ValueError, match="read-only"):
        tree.data[0] = 1.0
    # What is searched for is the array as it is now.
    assert np.array_equal(tree.query(points, k=2)[1], truth.query(points, k=2)[1])
    for own in (tree.data, old):
        assert np.array_equal(tree.query(own, k=2)[1], truth.query(old, k=2)[1])
    assert tree.query_ball_tree(other, 0.2) == [sorted(found) for found in truth.query_ball_tree(of_queries, 0.2)]
    assert tree.count_neighbors(other, 0.2) == truth.count_neighbors(of_queries, 0.2)
    matrix, want = (pair[0].sparse_distance_matrix(pair[1], 0.2).toarray() for pair in [(tree, other), (truth, of_queries)])
    assert np.abs(matrix - want).max() < 1e-6
    assert tree.query_pairs(0.1) == truth.query_pairs(0.1)


@pytest.mark.parametrize("spacing", [1.0, 0.25, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_radius_is_the_same_in_all_methods(spacing, dtype):
    points = (spacing * np.stack(np.meshgrid(*[np.arange(6)] * 3), -1).reshape(-1, 3)).astype(dtype)
    tree, other, truth = meshloom.KDTree(points), meshloom.KDTree(points), spatial.KDTree(points)
    for r in (spacing, 2 * spacing, np.sqrt(2) * spacing, np.nextafter(spacing, 0), np.nextafter(np.float32(spacing), np.float32(0)), 0.0):
        lengths = tree.query_ball_point(points, r, return_length=True).sum()
        assert sum(map(len, tree.query_ball_tree(other, r))) == lengths
        assert sum(map(len, tree.query_ball_point(points, np.append(np.full(215, r), 100.0))[:-1])) + len(tree.query_ball_point(points[-1], r)) == lengths
        assert tree.count_neighbors(tree, r) == tree.count_neighbors(other, [r])[0] == lengths
        assert tree.count_neighbors(tree, r, weights=np.ones(216)) == tree.count_neighbors(other, [r], weights=(None, None))[0] == lengths
        assert tree.sparse_distance_matrix(other, r, output_type="ndarray").size == lengths
        assert 2 * len(tree.query_pairs(r)) + 216 == lengths
        if spacing != 0.1 and r != np.sqrt(2) * spacing:
            # Here float32 holds all distances.
            assert lengths == truth.count_neighbors(truth, np.float32(r))
    # Points and radius are rounded in the same way, and a float32 below the radius is below it.
    assert tree.query_ball_point(points[0], spacing, return_length=True) == 4
    assert tree.query_ball_point(points[0], np.nextafter(np.float32(spacing), np.float32(0)), return_length=True) == 1


def test_bounds_of_distances_are_not_rounded():
    for dtype, far in [(np.float32, 0.7), (np.float32, 0.1), (np.float64, 0.5)]:
        points = np.array([[0.0, 0.0], [far, 0.0]], dtype)
        for bound in (far, np.nextafter(far, 1), float(np.float32(far)), np.nextafter(float(np.float32(far)), 1), 1e-30, 0.0, 1e39):
            found, want = (tree(points).query([0.0, 0.0], k=2, distance_upper_bound=bound) for tree in (meshloom.KDTree, spatial.KDTree))
            assert found[1].tolist() == want[1].tolist(), (far, bound)


@pytest.mark.filterwarnings("error")
def test_radii_beyond_float32(rng):
    points = rng.random((20, 3))
    tree = meshloom.KDTree(points)
    for r in (1e39, np.inf, 3e38):
        assert tree.query_ball_point(points, r).tolist() == [list(range(20))] * 20
        assert tree.query_ball_point(points, r, return_length=True).tolist() == [20] * 20
        assert tree.count_neighbors(tree, r) == 400 and tree.count_neighbors(tree, r, weights=np.ones(20)) == 400
        assert len(tree.query_pairs(r)) == 190
    assert (tree.query(points, distance_upper_bound=1e39)[0] == 0).all()


@pytest.mark.parametrize("ranks", [1, 3])
def test_points_far_from_0_keep_their_digits(ranks):
    queries = MAP[:100] + 0.1
    truth, of_queries = spatial.KDTree(MAP), spatial.KDTree(queries)
    radii, edges = [0.5, 1.5], [0.0, 0.3, 1.0, 4.0]

    def body(comm):
        # The first rank has nothing where there are others: the origin is that of all points.
        own = parts(MAP, comm.size, (0,) if comm.size > 1 else ())[comm.rank]
        few = parts(queries, comm.size)[comm.rank]
        tree, other = meshloom.KDTree(own, comm=comm), meshloom.KDTree(few, comm=comm)
        groups = meshloom.fof(own, 0.4, min_members=3, order="label", comm=comm)
        return {
            "distance": tree.query(few, k=4)[0],
            "index": tree.query(few, k=4)[1],
            "own": tree.query(own, k=4)[1],
            "lengths": tree.query_ball_point(few, 0.5, return_length=True),
            "pairs": tree.query_pairs(0.3, output_type="ndarray"),
            "labels": groups.labels,
            "center": groups.center,
            "label": groups.label,
            "sort": meshloom.sort(own, comm=comm),
        }, [tree.count_neighbors(other, radii), meshloom.pair_counts(own, edges, comm=comm), meshloom.pair_counts(own, edges, other=few, comm=comm)]

    found = meshloom.ranks(ranks, body)
    together = {name: np.concatenate([part[name] for part, _ in found]) for name in found[0][0]}
    distance, index = truth.query(queries, k=4)
    assert np.abs(together["distance"] - distance).max() < 1e-6
    assert np.array_equal(together["index"], index)
    assert np.array_equal(together["own"], truth.query(MAP, k=4)[1])
    assert np.array_equal(together["lengths"], truth.query_ball_point(queries, 0.5, return_length=True))
    assert {tuple(pair) for pair in together["pairs"].tolist()} == truth.query_pairs(0.3)
    graph = truth.sparse_distance_matrix(truth, 0.4)
    _, labels = pytest.importorskip("scipy.sparse").csgraph.connected_components(graph, directed=False)
    first = np.array([np.flatnonzero(labels == label)[0] for label in labels])
    assert np.array_equal(together["labels"], first)
    means = np.array([MAP[first == label].mean(axis=0) for label in together["label"]])
    assert len(means) > 3 and together["center"].dtype == np.float64 and np.abs(together["center"] - means).max() < 1e-5
    # The curve fills what the points cover, wherever that is.
    assert np.array_equal(together["sort"], meshloom.sort(MAP - np.round(MAP.min(axis=0))))
    pairs = truth.sparse_distance_matrix(truth, 4.0, output_type="ndarray")
    for counts, own, others in (counts for _, counts in found):
        assert np.array_equal(counts, truth.count_neighbors(of_queries, radii))
        assert np.array_equal(own, np.histogram(pairs["v"][pairs["i"] != pairs["j"]], edges)[0])
        assert np.array_equal(others, np.diff(truth.count_neighbors(of_queries, edges)))


def test_points_near_0_and_in_boxes_are_counted_from_0(rng):
    near = rng.random((300, 3)) * 2 - 0.5
    single = near.astype(np.float32)
    for points, box in [(near, None), (near % 1.0, 1.0), (near % 1.0, [1.0, 0.0, 1.0])]:
        tree, rounded = meshloom.KDTree(points, boxsize=box), meshloom.KDTree(points.astype(np.float32), boxsize=box)
        assert np.array_equal(tree.query(points, k=3)[0], rounded.query(points, k=3)[0])
    # One axis is far from 0, and the box of another stays where it is.
    far = near % 1.0 + [0.0, 1e6, 0.0]
    found = meshloom.KDTree(far, boxsize=[1.0, 0.0, 0.0]).query(far, k=3)
    want = spatial.KDTree(far, boxsize=[1.0, 0.0, 0.0]).query(far, k=3)
    assert np.abs(found[0] - want[0]).max() < 1e-6 and np.array_equal(found[1], want[1])
    # float32 is taken as it is, and so is what is far from 0 with it.
    assert meshloom.KDTree(single).query(single)[0].dtype == np.float32
    mixed = meshloom.ranks(2, lambda comm: meshloom.KDTree([MAP[:200], MAP[200:].astype(np.float32)][comm.rank], comm=comm).query(MAP[:9])[0])
    assert mixed[0].dtype == mixed[1].dtype == np.float32
    on_one_axis = MAP[:, 1:]
    assert np.array_equal(meshloom.KDTree(on_one_axis).query(on_one_axis, k=2)[1], spatial.KDTree(on_one_axis).query(on_one_axis, k=2)[1])


def test_one_large_radius_is_not_that_of_all(rng):
    points, radii = rng.random((2000, 3)), rng.uniform(0.05, 0.1, 2000)
    radii[5] = 10.0
    tree, truth = meshloom.KDTree(points), spatial.KDTree(points)
    tree._search = Counting(tree._search)
    found, want = (list(one.query_ball_point(points, radii)) for one in (tree, truth))
    assert found == [sorted(lists) for lists in want]
    # Of pairs within the greatest radius there are 4 * 10^6.
    assert sum(tree._search.listed) < 10 * sum(map(len, want))
    lengths = tree.query_ball_point(points, np.where(radii < 1, 0.1, 10.0), return_length=True)
    tree._search.listed.clear()
    assert np.array_equal(lengths, truth.query_ball_point(points, np.where(radii < 1, 0.1, 10.0), return_length=True))
    assert not tree._search.listed, "equal radii are counted on the device"


@pytest.mark.parametrize("ranks", [1, 2])
def test_lists_that_are_added_up_come_in_pieces(rng, monkeypatch, ranks):
    monkeypatch.setattr(_kdtree, "_PAIRS", 500)
    points, radii, weights = rng.random((300, 3)), rng.uniform(0.26, 0.49, 300), rng.random(300)
    truth = spatial.KDTree(points)

    def body(comm):
        # The other rank has few, and takes part in as many pieces.
        own = [slice(0, 300), slice(0, 0)] if comm.size == 1 else [slice(0, 290), slice(290, 300)]
        tree = meshloom.KDTree(points[own[comm.rank]], comm=comm)
        tree._search = Counting(tree._search)
        lengths = tree.query_ball_point(points[own[comm.rank]], radii[own[comm.rank]], return_length=True)
        summed = tree.count_neighbors(tree, [0.1, 0.3], weights=weights) if comm.size == 1 else None
        return lengths, summed, tree._search.listed

    found = meshloom.ranks(ranks, body)
    lengths = np.concatenate([part[0] for part in found])
    assert np.array_equal(lengths, truth.query_ball_point(points, radii, return_length=True))
    for _, _, listed in found:
        assert len(listed) > 10 and max(listed) < 500 + 300
    if ranks == 1:
        assert np.allclose(found[0][1], truth.count_neighbors(truth, [0.1, 0.3], weights=weights), rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_errors_say_what_float32_cannot_hold(rng):
    points = rng.random((5, 3))
    for said, call in [
        ("masses has 2e+43 for point 1, beyond", lambda: meshloom.fof(points, 1.0, masses=[1.0, 2e43, 1.0, 1.0, 3e43])),
        ("masses: expected values of at least 1.4e-45 (float32), got 1e-60 for point 2", lambda: meshloom.fof(points, 1.0, masses=[1.0, 0.0, 1e-60, 1.0, 1.0])),
        ("velocities has -1e+39 for point 3, beyond", lambda: meshloom.fof(points, 1.0, velocities=points - 1e39 * (np.arange(5) == 3)[:, None])),
        ("edges: expected two or more, got 0", lambda: meshloom.pair_counts(points, [])),
        ("edges: expected two or more, got 1", lambda: meshloom.pair_counts(points, [1.0])),
        ("edges: expected different numbers in float32, got 0.1 and 0.1000000001", lambda: meshloom.pair_counts(points, [0.0, 0.1, 0.1000000001, 0.2])),
        ("r: expected a number, got nan", lambda: meshloom.KDTree(points).query_pairs(np.nan)),
    ]:
        with pytest.raises(ValueError) as raised:
            call()
        assert said in str(raised.value)
    with pytest.raises(TypeError, match="box: expected one length or three, got None"):
        meshloom.power_spectrum(points, None)
