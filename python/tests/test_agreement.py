"""Arguments that one rank alone cannot take, or has otherwise than the others: the same error on all of them, and the next call is none the worse."""

import numpy as np
import pytest

import meshloom
from meshloom import fft, inference as mi, operators as op

POINTS = np.random.default_rng(4).random((40, 3))
LINE = "fn f(x: f32) -> f32 { return 3.0 * x; }"


def of_points(comm, one):
    """Errors of points, by what they say. `one` is whether this is the last rank, which does otherwise."""

    def lost(*_):
        raise meshloom.Error("a device is lost")

    own = np.array_split(POINTS, comm.size)[comm.rank]
    tree = meshloom.KDTree(own, boxsize=1.0, comm=comm)
    elsewhere = meshloom.asarray(own.astype(np.float32)) if one else own
    counts = lambda edges=(0.0, 0.5), **options: meshloom.pair_counts(own, edges, comm=comm, **options)
    fof = lambda length=0.1, **options: meshloom.fof(own, length, comm=comm, **options)
    return {
        "rank {}: edges: expected real numbers": lambda: counts(["a", "b"] if one else (0.0, 0.5)),
        "edges differs: [0.0, 0.5] on rank 0, [0.0, nan] on rank {}": lambda: counts((0.0, np.nan if one else 0.5)),
        "box differs: [1.0, 1.0, 1.0] on rank 0, [0.0, 0.0, 0.0] on rank {}": lambda: counts(box=None if one else 1.0),
        "other differs: not given on rank 0, given on rank {}": lambda: counts(other=own if one else None),
        "other differs: given on rank 0, not given on rank {}": lambda: counts(other=None if one else own),
        "rank {}: weights: expected the shape": lambda: counts(weights=np.ones(len(own) + one)),
        "other_weights differs: given on rank 0, not given on rank {}": lambda: counts(other=own, other_weights=None if one else np.ones(len(own))),
        "number of axes differs: 3 on rank 0, 2 on rank {}": lambda: meshloom.pair_counts(own[:, : 3 - one], [0.0, 1.0], comm=comm),
        "rank {}: linking_length: expected 0 or more, got nan": lambda: fof(np.nan if one else 0.1),
        "rank {}: linking_length: expected a number, got '0.1'": lambda: fof("0.1" if one else 0.1),
        "rank {}: expected either linking_length": lambda: fof(None if one else 0.1),
        "rank {}: linking_parameter: expected a box that is periodic": lambda: meshloom.fof(own, linking_parameter=0.2, box=None if one else 1.0, comm=comm),
        "linking_length differs: 0.1 on rank 0, 0.2 on rank {}": lambda: fof(0.1 + 0.1 * one),
        "linking_length differs: 0.1 on rank 0, None on rank {}": lambda: meshloom.fof(own, **{"linking_parameter" if one else "linking_length": 0.1}, box=1.0, comm=comm),
        "rank {}: min_members: expected 1 or more, got 0": lambda: fof(min_members=1 - one),
        "order differs: count on rank 0, mass on rank {}": lambda: fof(order="mass" if one else "count"),
        "masses differs: not given on rank 0, given on rank {}": lambda: fof(masses=np.ones(len(own)) if one else None),
        "velocities: expected shape": lambda: fof(velocities=own[:, : 3 - one]),
        "rank {}: box: expected a length": lambda: meshloom.sort(own, box="1" if one else 1.0, comm=comm),
        "curve differs: morton on rank 0, hilbert on rank {}": lambda: meshloom.sort(own, curve="hilbert" if one else "morton", comm=comm),
        'curve: expected "morton" or "hilbert", got "peano"': lambda: meshloom.sort(own, curve="peano", comm=comm),
        "rank {}: the array is on the device of another rank": lambda: meshloom.sort(elsewhere, comm=comm),
        "function differs: sort on rank 0, fof on rank {}": lambda: fof() if one else meshloom.sort(own, comm=comm),
        "rank {}: leafsize: expected 1 or more, got 0": lambda: meshloom.KDTree(own, leafsize=1 - one, comm=comm),
        "boxsize differs: [1.0, 1.0, 1.0] on rank 0, [2.0, 2.0, 2.0] on rank {}": lambda: meshloom.KDTree(own, boxsize=1.0 + one, comm=comm),
        "rank {}: k: expected an integer, got 'two'": lambda: tree.query(own, k="two" if one else 2),
        "k differs: 2 on rank 0, [1, 2] on rank {}": lambda: tree.query(own, k=[1, 2] if one else 2),
        "rank {}: p: expected 2 (Euclidean distances), got 1": lambda: tree.query(own, p=2 - one),
        "rank {}: distance_upper_bound: expected a number": lambda: tree.query(own, distance_upper_bound=np.nan if one else 1.0),
        "distance_upper_bound differs: inf on rank 0, -1.0 on rank {}": lambda: tree.query(own, distance_upper_bound=-1.0 if one else np.inf),
        "rank {}: eps: expected 0 or more, got -1": lambda: tree.query_ball_point(own, 0.1, eps=-one),
        "return_length differs: False on rank 0, True on rank {}": lambda: tree.query_ball_point(own, 0.1, return_length=one),
        "rank {}: other: expected a meshloom.KDTree": lambda: tree.query_ball_tree(None if one else tree, 0.1),
        "rank {}: output_type: expected": lambda: tree.query_pairs(0.1, output_type="list" if one else "set"),
        "rank {}: r: expected a number, got nan": lambda: tree.query_pairs(np.nan if one else 0.1),
        "cumulative differs: True on rank 0, False on rank {}": lambda: tree.count_neighbors(tree, [0.1, 0.2], cumulative=not one),
        "weights differs: not given on rank 0, given on rank {}": lambda: tree.count_neighbors(tree, 0.1, weights=np.ones(40) if one else None),
        "max_distance differs: 0.5 on rank 0, 0.25 on rank {}": lambda: tree.sparse_distance_matrix(tree, 0.5 - 0.25 * one),
        "rank 0: expected": lambda: meshloom.power_spectrum(np.ones((1 + 3 * comm.rank, 4, 4)), 1.0, comm=comm),
        "rank {}: division by zero": lambda: meshloom.simulate(4, box=8.0, steps=2, window="tsc", progress=(lambda *_: 1 / 0) if one else None, comm=comm),
        "rank {}: a device is lost": lambda: meshloom.simulate(4, box=8.0, steps=2, window="tsc", progress=lost if one else None, comm=comm),
        "noise differs: given on rank 0, not given": lambda: meshloom.simulate(4, noise=None if one else np.zeros((len(np.arange(4)[comm.rank :: comm.size]), 4, 4)), comm=comm),
        "seed differs: 1 on rank 0, 2 on rank {}": lambda: meshloom.white_noise(4, 1 + one, comm=comm),
        "rank {}: Shape and axes have": lambda: fft.fftn(own, s=(40,) if one else None, comm=comm),
        "rank {}: memoryview: a bytes-like object is required": lambda: tree._comm.allgather("text" if one else b"bytes"),
        "function differs: allgather on rank 0, barrier on rank {}": lambda: tree._comm.barrier() if one else tree._comm.allgather(b""),
    }


def of_models(comm, one):
    """The same of models, likelihoods and fits."""
    n = 2 * comm.size
    cells, modes = op.Space(x=op.cells((n, 4))), op.Space(xi=op.modes((n, 4)))
    line = op.pointwise(LINE, "f", cells, "y", comm=comm)
    pair = op.pointwise("fn f(x: f32) -> vec2<f32> { return vec2<f32>(x, x); }", "f", cells, "y", comm=comm)
    own = np.ones((2, 4))
    at, data = line.at(own), mi.Gaussian(own)
    likelihood = data.amend(line)
    group = line(own).comm
    maker = mi.CorrelatedFieldMaker()
    maker.set_amplitude_total_offset(0.0, 1.0 + one)
    maker.add_fluctuations((n, 4), 1.0, 1.0, -2.0)
    fit = lambda likelihood=likelihood, total=1, **options: mi.optimize_kl(likelihood, n_total_iterations=total, **{"n_samples": 1, **options})
    samples = mi.wiener_filter(likelihood, n_samples=1)
    return {
        f"space differs: {{'x': ('cells', ({n}, 4)": lambda: op.fourier(op.Space(x=op.cells((n, 4 + one))), comm=comm),
        "adjoint differs: False on rank 0, True on rank {}": lambda: op.hartley(cells, adjoint=one, comm=comm),
        "function differs: fourier on rank 0, hartley on rank {}": lambda: (op.hartley if one else op.fourier)(cells, comm=comm),
        "text differs: ": lambda: op.pointwise(LINE.replace("3", "4") if one else LINE, "f", cells, "y", comm=comm),
        "rank {}: `x`: expected shape (2, 4) or a flat vector of 8 numbers, got (2, 3)": lambda: line(own[:, : 4 - one]),
        "taps differs: ": lambda: op.stencil(cells, {(0, 1): 1.0 + one}, comm=comm),
        "window differs: cic on rank 0, tsc on rank {}": lambda: op.readout(cells, np.zeros((0, 2)), "tsc" if one else "cic", comm=comm),
        "step differs: 0.5 on rank 0, 0.25 on rank {}": lambda: op.lines_of_sight(cells, [[0.0, 0.0]], [[1.0, 1.0]], 0.5 - 0.25 * one, comm=comm),
        "where differs: an array of the shape (1, 3) and the sum": lambda: op.select(cells, [[0, 0 + one]], comm=comm),
        "rank {}: index: expected integers": lambda: op.gather(op.Space(v=op.vector(3)), cells, np.ones((2, 4), float if one else int), comm=comm),
        "rank {}: index: expected shape (2, 4), got (4, 2)": lambda: op.gather(op.Space(v=op.vector(3)), cells, np.ones((4, 2) if one else (2, 4), int), comm=comm),
        # Modes are cut along another axis than cells.
        f"`xi`: expected shape ({n}, ": lambda: op.diagonal(modes, own, comm=comm),
        "rank {}: `c`: expected shape (2, 4) or a flat vector of 8 numbers, got (4, 2)": lambda: op.pointwise(
            "fn f(x: f32, c: f32) -> f32 { return x * c; }", "f", cells, "y", constants={"c": own.T if one else own}, comm=comm
        ),
        "rank {}: place 6 of its 8 is not there, or comes twice": lambda: op.select(cells, [[0, 1], [n - 1, 2], [n - 1, 2]], comm=comm),
        "rank {}: it does not own cell": lambda: op.readout(cells, np.full((int(one), 2), 0.5), comm=comm),
        "edges differs: None on rank 0, [0.0, 1.0, 9.0] on rank {}": lambda: op.amplitudes(modes, [0.0, 1.0, 9.0] if one else None, comm=comm),
        "rank {}: `x`: expected shape (2, 4) or a flat vector of 8 numbers, got (2, 4, 1, 2)": lambda: at.jvp(np.ones((2, 4, 1, 2)) if one else own),
        "rank {}: `y`: expected shape (2, 4) or a flat vector of 8 numbers, got (9,)": lambda: at.vjp(np.ones(9) if one else own),
        "rank {}: expected a model, not int": lambda: line.then(3 if one else op.hartley(line.target, comm=comm)),
        "function differs: a model on rank 0, random on rank {}": lambda: line.random() if one else line(own),
        "seed differs: 0 on rank 0, 1 on rank {}": lambda: line.random(seed=int(one)),
        "rank {}: scale: expected a number": lambda: line.random(scale="1" if one else 1.0),
        "std differs: 1.0 on rank 0, 2.0 on rank {}": lambda: mi.NormalPrior(0.0, 1.0 + one, cells, comm=comm),
        "set_amplitude_total_offset differs: ": lambda: maker.finalize(comm),
        "rank {}: data: expected real numbers": lambda: mi.Gaussian([["a"]] if one else own, comm=comm),
        "noise_std differs: 1.0 on rank 0, 2.0 on rank {}": lambda: mi.Gaussian(own, 1.0 + one).amend(line),
        "mask differs: not given on rank 0, given on rank {}": lambda: mi.Gaussian(own, mask=own > 0 if one else None).amend(line),
        "rank {}: data `data`: expected shape (2, 4), which the model predicts, got (3, 4)": lambda: mi.Gaussian(np.ones((2 + one, 4))).amend(line),
        "rank {}: number 0 is NaN; data are finite": lambda: mi.Gaussian(own * (np.nan if one else 1.0)).amend(line),
        "rank {}: noise of number 0 has the standard deviation 0": lambda: mi.StudentT(own, 3.0, own - one).amend(line),
        "rank {}: number 0 is 1 at an exposure of 0": lambda: mi.Poissonian(own, exposure=own - one).amend(line),
        "rank {}: number 0 is 2; classes are": lambda: mi.Categorical(own + one, 2).amend(pair),
        "shape of a row of data differs: (4,) on rank 0, (5,) on rank {}": lambda: mi.Gaussian(np.ones((2, 4 + one)), comm=comm)(own),
        "rank 0: expected": lambda: mi.Gaussian(np.ones((2 + 3 * one, 4)), comm=comm)(own),
        "noise of standard deviation -1": lambda: mi.Gaussian(own, -1.0).amend(line),
        "rank {}: `x`: expected shape (2, 4) or a flat vector of 8 numbers, got (7,)": lambda: likelihood(np.ones(7) if one else own),
        "function differs: report on rank 0, value_and_grad on rank {}": lambda: likelihood.value_and_grad(own) if one else likelihood.report(own),
        "rank {}: n_samples: expected an integer, got 1.5": lambda: fit(n_samples=1.5 if one else 1),
        "rank {}: sample_mode: expected one of": lambda: fit(sample_mode="bent" if one else "linear_resample"),
        "sampling (sample_mode)": lambda: fit(sample_mode="nonlinear_resample" if one else "linear_resample"),
        "n_total_iterations differs: 1 on rank 0, 2 on rank {}": lambda: fit(total=1 + one),
        "rank {}: callback: expected a function": lambda: fit(callback=3 if one else None),
        "rank {}: division by zero": lambda: fit(callback=(lambda *_: 1 / 0) if one else None),
        "position differs: not given on rank 0, given on rank {}": lambda: fit(position=own if one else None),
        "rank {}: conjugate gradients have no option `tol`": lambda: mi.wiener_filter(likelihood, draw_linear_kwargs={"cg_kwargs": {"tol": 1}} if one else None),
        "n_samples differs: 1 on rank 0, 2 on rank {}": lambda: mi.wiener_filter(likelihood, n_samples=1 + one),
        "seed differs: 0 on rank 0, 2 on rank {}": lambda: mi.check_metric(likelihood, seed=2 * one),
        "ddof differs: 1 on rank 0, 0 on rank {}": lambda: samples.mean_and_std(line, ddof=1 - one),
        "probes differs: 8 on rank 0, 5 on rank {}": lambda: mi.evidence(likelihood, samples, probes=5 if one else 8),
        "rank {}: number: expected -2 to 1, got 2": lambda: samples[2 if one else 0],
        "rank {}: model: expected a model": lambda: samples.mean(3 if one else line),
        "count differs: 1 on rank 0, 2 on rank {}": lambda: mi.sample_groups(group, 1 + one),
    }


def errors(comm, cases):
    """What the calls of some cases raise on this rank, by what they should say."""
    last = comm.size - 1
    found = {}
    for said, call in cases(comm, comm.rank == last).items():
        with pytest.raises((ValueError, TypeError, ZeroDivisionError, IndexError, RuntimeError)) as caught:
            call()
        found[said.replace("{}", str(last), 1)] = str(caught.value)
    return found


@pytest.mark.parametrize("cases", [of_points, of_models])
def test_what_one_rank_alone_has_is_the_same_error_of_all(cases):
    first, *others = meshloom.ranks(2, lambda comm: errors(comm, cases))
    assert [(said, found) for said, found in first.items() if said not in found] == []
    assert others == [first]


def test_a_callback_of_one_rank_ends_the_fit_of_all():
    def body(comm):
        model = op.pointwise(LINE, "f", op.Space(x=op.cells(4)), "y", comm=comm)
        own = np.ones(4 if comm.rank == 0 else 0)
        stop = (lambda samples, report: report.iteration == 1) if comm.rank == 1 else None
        return len(mi.optimize_kl(mi.Gaussian(own).amend(model), n_total_iterations=5, n_samples=1, callback=stop)[1])

    assert meshloom.ranks(2, body) == [2, 2]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (4, 2, 3)])
def test_data_without_a_model_are_parts_of_one_grid(shape):
    data = np.random.default_rng(6).standard_normal(shape)

    def part(comm, array):
        return (array if comm.rank == 0 else array[:0]) if array.ndim == 1 else np.array_split(array, comm.size)[comm.rank]

    def body(comm):
        own = part(comm, data)
        return mi.Gaussian(own, noise_std=part(comm, 1.0 + data**2), comm=comm)(np.zeros(own.shape))

    for ranks in 1, 2, 3:
        assert meshloom.ranks(ranks, body) == pytest.approx([0.5 * np.sum((data / (1.0 + data**2)) ** 2)] * ranks, rel=1e-6)
