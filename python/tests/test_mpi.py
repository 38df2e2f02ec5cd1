"""Ranks as the processes of an MPI program that mpi4py has started: mpirun -n 3 python -m pytest test_mpi.py."""

import shutil
import tempfile

import numpy as np
import pytest

import meshloom
from meshloom import fft, operators as op
from test_agreement import errors, of_models, of_points
from test_inference import FEW, assert_same, fit_at_points, fit_in_groups, problem

MPI = pytest.importorskip("mpi4py.MPI")
if not hasattr(meshloom._native, "from_mpi"):
    pytest.skip("this build has no MPI", allow_module_level=True)

COMM = MPI.COMM_WORLD
POINTS = np.random.default_rng(3).random((700, 3)).astype(np.float32)
OWN = np.array_split(POINTS, COMM.size)[COMM.rank]


def together(part):
    return np.concatenate(COMM.allgather(part))


def test_ranks_are_those_of_the_caller():
    alone = meshloom.KDTree(POINTS)
    tree = meshloom.KDTree(OWN, comm=COMM)
    assert (tree._comm.rank, tree._comm.size) == (COMM.rank, COMM.size)
    # Made once, and kept with the communicator.
    assert meshloom.KDTree(OWN, comm=COMM)._comm is tree._comm
    half = COMM.Split(COMM.rank % 2)
    assert meshloom.KDTree(OWN, comm=half)._comm.size == half.size
    half.Free()
    assert alone.n == tree.n == 700


def test_results_equal_those_of_one_rank():
    tree, alone = meshloom.KDTree(OWN, boxsize=1.0, comm=COMM), meshloom.KDTree(POINTS, boxsize=1.0)
    for mine, whole in zip(tree.query(OWN, k=5), alone.query(POINTS, k=5)):
        assert np.array_equal(together(mine), whole)
    lists = [found for part in COMM.allgather(list(tree.query_ball_point(OWN, 0.1))) for found in part]
    assert lists == list(alone.query_ball_point(POINTS, 0.1))
    assert tree.count_neighbors(tree, [0.05, 0.2]).tolist() == alone.count_neighbors(alone, [0.05, 0.2]).tolist()
    pairs = together(tree.query_pairs(0.05, output_type="ndarray"))
    assert np.array_equal(pairs, alone.query_pairs(0.05, output_type="ndarray"))
    groups, whole = meshloom.fof(OWN, 0.06, box=1.0, min_members=2, comm=COMM), meshloom.fof(POINTS, 0.06, box=1.0, min_members=2)
    for name in ("labels", "label", "count", "center", "members"):
        assert np.array_equal(together(getattr(groups, name)), getattr(whole, name)), name
    assert np.array_equal(together(meshloom.sort(OWN, box=1.0, comm=COMM)), meshloom.sort(POINTS, box=1.0))
    edges = [0.0, 0.1, 0.2]
    assert np.array_equal(meshloom.pair_counts(OWN, edges, comm=COMM), meshloom.pair_counts(POINTS, edges))
    power, one = meshloom.power_spectrum(OWN, 1.0, mesh=16, comm=COMM), meshloom.power_spectrum(POINTS, 1.0, mesh=16)
    assert np.array_equal(power.power, one.power)


def test_a_rank_may_have_nothing_and_radii_of_its_own():
    # All points are the last rank's, and one rank has nothing to search for.
    own = POINTS if COMM.rank == COMM.size - 1 else np.zeros((0, 3))
    queries = POINTS[:60] if COMM.rank == 0 else own
    radii = np.where(np.arange(len(queries)) % 7 == 0, -1.0, 0.05 * (1 + COMM.rank))
    tree, alone = meshloom.KDTree(own, comm=COMM), meshloom.KDTree(POINTS)
    assert np.array_equal(together(tree.query(own, k=3)[1]), alone.query(POINTS, k=3)[1])
    assert (tree.query(queries, distance_upper_bound=0.0)[1] == 700).all()
    assert list(tree.query_ball_point(queries, radii)) == list(alone.query_ball_point(queries, radii))
    for x, r in [(queries, radii), (own, 0.1), (queries[: len(queries) * (COMM.rank == 1)], -1.0)]:
        assert np.array_equal(tree.query_ball_point(x, r, return_length=True), alone.query_ball_point(x, r, return_length=True))
    assert tree.query_ball_tree(tree, 0.1) == list(alone.query_ball_point(own, 0.1))
    assert np.array_equal(together(tree.query_pairs(0.05, output_type="ndarray")), alone.query_pairs(0.05, output_type="ndarray"))
    matrix, whole = tree.sparse_distance_matrix(tree, 0.1), alone.sparse_distance_matrix(alone, 0.1)
    assert np.array_equal(together(matrix.toarray()), whole.toarray())
    assert tree.count_neighbors(tree, 0.1) == alone.count_neighbors(alone, 0.1)


def test_fields_and_runs_equal_those_of_one_rank():
    field = np.random.default_rng(1).random((7, 6, 10)).astype(np.float32)
    own = np.array_split(field, COMM.size)[COMM.rank]
    modes = fft.rfftn(own, comm=COMM)
    assert np.array_equal(together(modes), fft.rfftn(field))
    back = fft.irfftn(modes, s=field.shape, axes=(0, 1, 2), comm=COMM)
    assert np.array_equal(together(back), fft.irfftn(fft.rfftn(field), s=field.shape, axes=(0, 1, 2)))
    run, alone = meshloom.simulate(8, box=32.0, steps=2, comm=COMM), meshloom.simulate(8, box=32.0, steps=2)
    assert np.array_equal(together(run.positions), alone.positions)
    assert np.array_equal(run.power.power, alone.power.power)
    densities = []
    for comm in (COMM, None):
        moved = op.simulation(8, 8, 32.0, steps=2, observables=["displacement", "momentum"], comm=comm)
        moved = moved.then(op.redshift_space(moved.target, comm=comm)).zip(op.linear_density(8, 32.0, comm=comm))
        paint = moved.then(op.paint(moved.target, op.cells((8, 8, 8), size=32.0), comm=comm))
        at = paint.at(meshloom.white_noise(8, seed=1, comm=comm))
        densities.append([np.asarray(values) for values in (at.value, at.vjp(at.value))])
    for part, whole in zip(*densities):
        assert np.array_equal(together(part), whole)


def test_ranks_may_have_no_rows():
    # Of a field of fewer rows than ranks, and of one axis.
    field = np.random.default_rng(2).random((COMM.size - 1, 4, 4))
    own = np.array_split(field, COMM.size)[COMM.rank]
    modes = fft.rfftn(own, comm=COMM)
    assert np.array_equal(together(modes), fft.rfftn(field))
    assert np.array_equal(together(fft.irfftn(modes, comm=COMM)), fft.irfftn(fft.rfftn(field)))
    for name in ("fftn", "ifftn"):
        assert np.array_equal(together(getattr(fft, name)(own, comm=COMM)), getattr(fft, name)(field))
    line = field[0, 0] if COMM.rank == 0 else np.zeros(0)
    assert np.array_equal(together(fft.fftn(line, comm=COMM)), fft.fftn(field[0, 0]))
    squares, names = meshloom.map_items(lambda n: (n * n, n.astype("U")), COMM.size - 1, gather=False, comm=COMM)
    assert together(squares).tolist() == [n * n for n in range(COMM.size - 1)] and names.dtype.kind == "U"


def test_what_one_rank_does_otherwise_is_the_same_error_of_all():
    last = COMM.size - 1
    one, field = COMM.rank == last, np.ones((2 * COMM.size, 4, 4), np.float32)
    own = np.array_split(field, COMM.size)[COMM.rank]
    own_comm = meshloom.asarray(own, comm=COMM).comm
    for text, call in [
        (f"rank {last - 1}: expected 1 of {2 * last} rows, got 2", lambda: fft.rfftn(own[2 * one :], comm=COMM)),
        (f"rank {last}: axes: expected all axes", lambda: fft.irfftn(own[None] if one else own, comm=COMM)),
        (f"type differs: float32 on rank 0, float64 on rank {last}", lambda: fft.rfftn(own.astype("f8") if one else own, comm=COMM)),
        (f"function differs: fftn on rank 0, ifftn on rank {last}", lambda: (fft.ifftn if one else fft.fftn)(own, comm=COMM)),
        (f"rank {last}: division by zero", lambda: meshloom.map_items(lambda n: 1 / 0 if one else n, 9, comm=COMM)),
        (f"rank {last}: chunk: expected 1 or more, got 0", lambda: meshloom.map_reduce(abs, 9, chunk=1 - one, comm=COMM)),
        (f"shape differs: .2,. on rank 0, .3,. on rank {last}", lambda: own_comm.allreduce(np.zeros(2 + one))),
    ]:
        with pytest.raises((ValueError, ZeroDivisionError), match=text) as caught:
            call()
        assert len(set(COMM.allgather(str(caught.value)))) == 1
    # And the next call is none the worse.
    assert own_comm.allreduce(np.int8(100)) == 100 * COMM.size
    assert own_comm.bcast(COMM.rank, root=last) == last and own_comm.barrier() is None


def test_functions_of_the_caller_see_the_part_of_their_rank():
    last, field = COMM.size - 1, np.random.default_rng(3).random((2 * COMM.size + 1, 4))
    own = np.array_split(field, COMM.size)[COMM.rank]
    space, fails = op.Space(x=op.cells(field.shape)), []

    def square(x):
        return x * x if COMM.rank < last or not fails else 1 / 0

    product = lambda x, d: 2 * x * d
    model = op.custom(square, product, product, space, name="square", comm=COMM)
    assert np.allclose(np.asarray(model(own)), own**2, atol=1e-6) and model.check_adjoint(own)
    fails.append(True)
    with pytest.raises(meshloom.Error, match="`square .value.`: ZeroDivisionError") as caught:
        model(own)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) == (COMM.rank == last)


def test_maps_and_fits_equal_those_of_one_rank():
    assert np.array_equal(meshloom.map_items(lambda rows: 2 * rows, POINTS, chunk=50, comm=COMM), 2 * POINTS)
    sums = [meshloom.map_reduce(lambda rows: rows, POINTS, comm=comm) for comm in (COMM, None)]
    assert np.array_equal(*sums)
    means = []
    for comm in (COMM, None):
        likelihood, rate = problem(comm)
        means.append(np.asarray(meshloom.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, **FEW)[0].mean(rate)))
    assert np.array_equal(together(means[0]), means[1])


def test_derivatives_of_maps_equal_those_of_one_rank():
    sine = (lambda n, x: np.sin(n * x), lambda n, x, dx: n * np.cos(n * x) * dx, lambda n, x, dy: (n * np.cos(n * x) * dy)[:, None])
    found = []
    for comm in (COMM, None):
        rows, total = (make(sine, 17, op.parameters(1), chunk=3, comm=comm).at([0.3]) for make in (op.map_items, op.map_reduce))
        found.append([rows.jacobian().tolist(), total.value.tolist(), total.vjp([1.0]).tolist()])
    assert found[0] == found[1] and np.abs(np.ravel(found[1][0]) - np.arange(17) * np.cos(0.3 * np.arange(17))).max() < 1e-5
    values = np.random.default_rng(4).standard_normal((COMM.size + 1, 50))
    own = np.array_split(values, COMM.size)[COMM.rank]
    assert meshloom.inference.statistics(own, comm=COMM) == meshloom.inference.statistics(values)


def test_optimizers_and_files_of_samples_equal_those_of_one_rank():
    pytest.importorskip("scipy")
    found = []
    for comm in (COMM, None):
        likelihood, _ = problem(comm)
        start = likelihood.random(1, 0.1)
        fit = meshloom.inference.minimize(likelihood, start, options={"maxiter": 3})
        found.append((fit.x, fit.fun, fit.nit))
    assert all(np.array_equal(*pair) for pair in zip(*found))
    with pytest.raises(ValueError, match="Unknown solver simplex"):
        meshloom.inference.minimize(problem(COMM)[0], problem(COMM)[0].random(1), method="simplex")
    directory = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    path = f"{directory}/samples.npz"
    likelihood, rate = problem(COMM)
    samples, _ = meshloom.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, **FEW)
    samples.save(path)
    COMM.barrier()
    whole, part = meshloom.inference.load_samples(path), meshloom.inference.load_samples(path, comm=COMM)
    assert np.array_equal(together(np.asarray(part.mean(rate))), np.asarray(whole.mean(problem(None)[1])))
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(directory)


def test_groups_of_samples_equal_one_rank():
    one, evidence = fit_in_groups(meshloom.inference.sample_groups(None, 1), 1)
    # As many groups as ranks, each of which holds whole fields.
    found, bound = fit_in_groups(COMM, COMM.size)
    assert_same(found, one)
    assert bound == evidence
    parts = COMM.allgather(fit_at_points(COMM))
    whole = fit_at_points()
    assert np.array_equal(np.concatenate([part[0] for part in parts]), whole[0]) and parts[0][1:] == whole[1:]


def test_a_bad_value_of_one_rank_is_an_error_of_all():
    own = OWN.copy()
    if COMM.rank == COMM.size - 1:
        own[-1, 2] = np.nan
    with pytest.raises(ValueError, match="coordinate 2 of point 699 is not finite"):
        meshloom.fof(own, 0.1, comm=COMM)
    own[own != own] = 1.0
    with pytest.raises(ValueError, match="coordinate 2 of point 699 is 1, outside of the periodic box"):
        meshloom.KDTree(own, boxsize=1.0, comm=COMM)
    with pytest.raises(ValueError, match="x must consist of vectors of length 3"):
        meshloom.KDTree(OWN, comm=COMM).query(OWN[:, : 3 - (COMM.rank == 1)])
    # And the next call is none the worse.
    assert np.array_equal(together(meshloom.sort(OWN, comm=COMM)), meshloom.sort(POINTS))


@pytest.mark.parametrize("cases", [of_points, of_models])
def test_what_one_rank_alone_has_is_the_same_error_of_all(cases):
    found = errors(COMM, cases)
    assert all(said in text for said, text in found.items())
    assert COMM.allgather(found) == [found] * COMM.size


def test_ranks_that_were_out_of_step_work_again():
    want = meshloom.sort(POINTS)
    for _ in range(3):
        tree = meshloom.KDTree(OWN, comm=COMM)
        with pytest.raises(meshloom.Error, match="every rank must call the same collectives"):
            tree._comm._sample_groups(1) if COMM.rank == 0 else tree._comm._allgather(b"")
        # Ranks make another duplicate, while notes of the mismatch are under way.
        assert np.array_equal(together(meshloom.sort(OWN, comm=COMM)), want)
        assert meshloom.KDTree(OWN, comm=COMM)._comm is not tree._comm


def test_another_mpi_library_is_refused(monkeypatch):
    monkeypatch.setattr(meshloom._comm, "_KEYVAL", None)
    monkeypatch.setattr(meshloom._native, "mpi_library", lambda: (4, "MPICH Version: 4.0.2"))
    with pytest.raises(meshloom.Error, match="built for another MPI library .MPICH Version: 4.0.2. than mpi4py"):
        meshloom.sort(OWN, comm=COMM)


def test_ranks_that_ask_for_different_things_are_told():
    last = COMM.size - 1
    for name, call in [
        ("seed", lambda here: meshloom.simulate(8, box=32.0, steps=1, seed=1 + here, comm=COMM)),
        ("noise", lambda here: meshloom.simulate(8, box=32.0, steps=1, noise=None if here else np.zeros((3, 8, 8)), comm=COMM)),
        ("a_end", lambda here: meshloom.operators.simulation(8, a_end=1.0 - 0.5 * here, comm=COMM)),
        ("mesh", lambda here: meshloom.power_spectrum(OWN, 1.0, mesh=8 + here, comm=COMM)),
    ]:
        with pytest.raises(ValueError, match=f"{name} differs: .* on rank 0, .* on rank {last}; it must be the same"):
            call(COMM.rank == last)
