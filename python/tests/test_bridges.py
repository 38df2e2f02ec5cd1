"""Vectors of fields, optimizers of SciPy, pickles, and files of samples."""

import copy
import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import meshloom
from meshloom import inference as mi, operators as op

RNG = np.random.default_rng(3)
SPACE = op.Space(x=op.cells((6, 5)))
DATA = np.random.default_rng(4).standard_normal((6, 5)).astype(np.float32)
VALLEY = "fn f(x: f32, y: f32) -> f32 { let a = y - x * x; let b = 1.0 - x; return 100.0 * a * a + b * b; }"


def bits(field):
    """The bits of a field, by leaf."""
    leaves = field if isinstance(field, dict) else {"": field}
    return {name: (np.asarray(values).shape, np.asarray(values).tobytes()) for name, values in leaves.items()}


def part(array, comm):
    return np.array_split(array, comm.size)[comm.rank]


def test_fields_are_vectors_on_any_number_of_ranks():
    leaves = {
        "a": op.cells((5, 6), components=2),
        "b": op.modes((4, 5, 6)),
        "c": op.half_spectrum((4, 5, 6)),
        "d": op.vector(3),
        "e": op.parameters(2),
        "f": op.cells(7, complex=True),
        "g": op.half_spectrum(6),
        "h": op.cells((1, 5, 4)),
    }
    lengths = [60, 120, 2 * 80, 3, 2, 14, 8, 20]
    vector = RNG.standard_normal(sum(lengths))

    def both(comm):
        fields = meshloom._space.Fields._of_space(op.Space(leaves), comm)
        assert fields.size == len(vector)
        field = fields.restore(vector)
        assert {name: values.shape for name, values in field.items()} == fields
        assert np.array_equal(fields.flatten(field), vector)
        points = meshloom._space.Fields._of_space(op.Space(p=op.points(comm.rank, comm.size * (comm.size - 1) // 2, components=2)), comm)
        numbers = np.arange(float(points.size))
        assert np.array_equal(points.flatten(points.restore(numbers)), numbers)
        # A transform distributes its modes along the second axis.
        fourier = op.fourier(op.cells((5, 6)), comm=comm)
        return field["a"].reshape(2, -1, 6), fourier.target.flatten(fourier(fourier.domain.restore(vector[:30])))

    (whole, modes) = meshloom.ranks(1, both)[0]
    assert np.array_equal(whole, vector[:60].reshape(2, 5, 6))
    assert np.allclose(modes.view(complex), np.fft.rfft2(vector[:30].reshape(5, 6)).ravel(), atol=1e-5)
    three = meshloom.ranks(3, both)
    assert np.array_equal(np.concatenate([own for own, _ in three], axis=1), whole)
    assert all(np.array_equal(own, modes) for _, own in three)


def test_wrong_vectors_are_refused():
    domain = op.hartley(SPACE).domain
    for error, wrong in [
        (ValueError, lambda: domain.restore(np.zeros(29))),
        (TypeError, lambda: domain.restore(np.zeros(30, complex))),
        (TypeError, lambda: domain.flatten(DATA * 1j)),
        (ValueError, lambda: domain.flatten(np.zeros((5, 6)))),
        (ValueError, lambda: domain.flatten({"y": DATA})),
    ]:
        with pytest.raises(error):
            wrong()

    def other(comm):
        with pytest.raises(ValueError, match="vector differs: .* on rank 0, .* on rank 1"):
            op.hartley(SPACE, comm=comm).domain.restore(np.full(30, float(comm.rank)))

    meshloom.ranks(2, other)


def test_derivatives_are_operators_of_scipy():
    linalg = pytest.importorskip("scipy.sparse.linalg")
    A, b = RNG.standard_normal((30, 5)), RNG.standard_normal(30)
    matrix = op.matrix(A)
    operator = matrix.at(np.zeros(5)).as_linear_operator()
    assert np.abs(linalg.lsmr(operator, b)[0] - np.linalg.lstsq(A, b)[0]).max() < 1e-5
    assert np.allclose(np.sort(linalg.svds(operator, k=2)[1])[::-1], np.linalg.svd(A)[1][:2], rtol=1e-5)
    found = mi.least_squares(matrix - b, np.zeros(5))
    assert found.success and np.abs(found.x - np.linalg.lstsq(A, b)[0]).max() < 1e-5
    # Complex values are pairs of real ones.
    fourier = op.fourier(op.cells(4)).at(np.zeros(4)).as_linear_operator()
    assert fourier.shape == (6, 4) and np.allclose(fourier @ np.arange(4.0), np.fft.rfft(np.arange(4.0)).view(float))


def valley():
    return op.pointwise(VALLEY, "f", op.Space(x=op.vector(1), y=op.vector(1)), "z")


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "Nelder-Mead"])
def test_the_valley_of_rosenbrock_has_its_minimum(method):
    pytest.importorskip("scipy")
    found = mi.minimize(valley(), {"x": [-1.2], "y": [1.0]}, method=method)
    assert found.success and np.allclose(found.x, 1.0, atol=1e-3)
    assert np.array_equal(found.position["y"], found.x[1:])


def test_residuals_of_several_leaves_are_minimized():
    pytest.importorskip("scipy")
    space = op.Space(x=op.vector(1), y=op.vector(1))
    residuals = op.pointwise("fn f(x: f32, y: f32) -> f32 { return 10.0 * (y - x * x); }", "f", space, "a")
    residuals = residuals.zip(op.pointwise("fn g(x: f32) -> f32 { return 1.0 - x; }", "g", op.Space(x=op.vector(1)), "b"))
    found = mi.least_squares(residuals, {"x": [-1.2], "y": [1.0]}, bounds=(-2.0, 2.0))
    assert found.success and np.allclose(found.x, 1.0, atol=1e-5) and found.jac.shape == (2, 2)


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "CG", "Newton-CG", "trust-ncg", "trust-krylov"])
def test_a_gaussian_posterior_has_its_mean(method):
    pytest.importorskip("scipy")
    # At least one of these methods ends where float32 resolves no lower energy.
    factors = 1 + np.random.default_rng(5).random((6, 5))
    likelihood = mi.Gaussian(DATA, 0.5).amend(op.diagonal(SPACE, factors))
    mean = factors * DATA / 0.25 / (factors**2 / 0.25 + 1)
    found = mi.minimize(likelihood, np.zeros((6, 5)), method=method)
    assert found.success and np.abs(found.position - mean).max() < 1e-3


def test_a_search_that_ends_early_has_failed():
    pytest.importorskip("scipy")
    # The slope has the wrong sign: no step lowers the value, far from the minimum.
    square = op.custom(lambda x: x * x, lambda x, v: -2 * x * v, lambda x, w: -2 * x * w, op.vector(1))
    for method in ("L-BFGS-B", "BFGS", "CG"):
        found = mi.minimize(square, [3.0], method=method)
        assert not found.success and abs(found.position[0]) > 2, method


def test_initial_conditions_of_a_run_are_fitted():
    pytest.importorskip("scipy")
    run = op.simulation(8, 8, 32.0, steps=2, window="tsc")
    truth = run(meshloom.white_noise(8, seed=1))
    likelihood = mi.Gaussian(np.asarray(truth), 0.1).amend(run)
    start = run.random(seed=2, scale=0.1)
    found = mi.minimize(likelihood, start, options={"maxiter": 20})
    assert likelihood(found.position) < 0.2 * likelihood(start)


def smooth(comm):
    """A likelihood of cells that are not independent, and its residuals."""
    model = op.hartley(SPACE, comm=comm).then(op.hartley(SPACE, adjoint=True, comm=comm))
    rate = op.exp(0.01 * model)
    return mi.Gaussian(part(DATA, comm), 0.5).amend(rate), rate - part(DATA, comm)


def test_optimizers_take_the_same_steps_on_any_number_of_ranks():
    pytest.importorskip("scipy")

    def run(comm):
        likelihood, residuals = smooth(comm)
        steps, start = [], likelihood.random(1, 0.1)
        found = mi.minimize(likelihood, start, callback=steps.append)
        assert all(step.shape == found.position.shape for step in steps)
        least = mi.least_squares(residuals, start, max_nfev=4)
        # A callback of one rank ends the search on all.
        stop = (lambda position: True) if comm.rank == comm.size - 1 else None
        first = mi.minimize(likelihood, start, callback=stop, method="Newton-CG")
        return found.x, len(steps), least.x, least.jac @ least.x, first.nit

    one = meshloom.ranks(1, run)[0]
    assert one[-1] == 1 and one[1] > 3
    for other in meshloom.ranks(3, run):
        assert all(np.array_equal(*pair) for pair in zip(one, other))


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"method": "simplex"}, ValueError, "Unknown solver simplex"),
        ({"method": "TNC"}, ValueError, "differences of gradients"),
        ({"bounds": [(0, 1)] * 3}, ValueError, "bounds"),
        ({"callback": lambda position: 1 / 0}, ZeroDivisionError, "division by zero"),
        ({"callback": 3}, TypeError, "callback: expected"),
    ],
)
def test_errors_of_optimizers_reach_all_ranks(options, error, text):
    pytest.importorskip("scipy")

    def run(comm):
        likelihood, _ = smooth(comm)
        with pytest.raises(error, match=text):
            mi.minimize(likelihood, likelihood.random(1, 0.1), **options)
        # Ranks are in step afterwards.
        return likelihood(likelihood.random(1))

    assert len(set(meshloom.ranks(2, run))) == 1


def test_an_optimizer_that_hides_an_error_fails_on_all_ranks():
    optimize = pytest.importorskip("scipy.optimize")

    def hides(fun, x0, **_):
        with pytest.raises(ValueError):
            fun(x0[:3])
        return optimize.OptimizeResult(x=x0)

    def run(comm):
        likelihood, _ = smooth(comm)
        with pytest.raises(ValueError, match="vector: expected shape"):
            mi.minimize(likelihood, likelihood.random(1, 0.1), method=hides)

    meshloom.ranks(2, run)


def test_wrong_functions_are_not_minimized(monkeypatch):
    pytest.importorskip("scipy")
    with pytest.raises(ValueError, match="expected a model of one number"):
        mi.minimize(op.hartley(SPACE), DATA)
    with pytest.raises(ValueError, match="Newton-CG takes differences of gradients"):
        mi.minimize(valley(), {"x": [1.0], "y": [1.0]}, method="Newton-CG")
    for wrong in (mi.minimize, mi.least_squares):
        with pytest.raises(TypeError, match="expected a"):
            wrong(np.sum, DATA)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match="minimize needs the package scipy"):
        mi.minimize(valley(), {"x": [1.0], "y": [1.0]})


def double(x):
    return 2 * x


def double_product(x, d):
    return 2 * d


def scaled(n, x):
    return n * x


def scaled_product(n, x, d):
    return n * d


def scaled_back(n, x, d):
    return (n * d)[:, None]


def constructors():
    """A model of each constructor, by its name."""
    fields, vector, three = op.Space(s=op.cells((4, 6))), op.Space(v=op.vector(3)), op.cells((4, 4, 4), size=8.0)
    normal = mi.NormalPrior(1.0, 0.5, op.Space(x=op.vector(2)))
    two = {f"snapshot_{i}/{name}": op.cells((4, 4, 4), size=900.0, components=3) for i in range(2) for name in ("displacement", "momentum")}
    moved = op.Space(displacement=op.cells((4, 4, 4), size=8.0, components=3), momentum=op.cells((4, 4, 4), size=8.0, components=3))
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(3))
    weights = op.Space(position=op.points(5, components=3), weight=op.points(5))
    made = {name: [getattr(op, name)(normal)] for name in "exp log sqrt sin cos tanh sigmoid softplus".split()}
    made |= {
        "pointwise": [op.pointwise("fn f(s: f32, c: f32) -> f32 { return c * s; }", "f", fields, "y", constants={"c": RNG.random((4, 6))})],
        "custom": [op.custom(double, double_product, double_product, domain, name="double") for domain in (fields, op.hartley(fields).target)],
        "matrix": [op.matrix(RNG.random((2, 3))), op.matrix(sparse)],
        "fourier": [op.fourier(fields), op.fourier(fields, adjoint=True)],
        "inverse_fourier": [op.inverse_fourier(fields)],
        "hartley": [op.hartley(fields)],
        "interp": [op.interp(normal, [0.0, 1.0, 2.0], [0.0, 3.0, 5.0])],
        "rename": [op.rename(normal, {"x": "y"}, {"x": "z"})],
        "join": [op.join(op.Space(a=op.vector(2), b=op.vector(1))), op.join(op.Space(a=op.cells(4), b=op.cells(4)))],
        "split": [op.split(vector, {"a": 1, "b": 2})],
        "reshape": [op.reshape(op.vector(24), op.cells((4, 6)))],
        "pad": [op.pad(fields, 1)],
        "crop": [op.crop(fields, 1), op.crop(fields, (1, 0), adjoint=True)],
        "diagonal": [op.diagonal(fields, RNG.random((4, 6)))],
        "convolution": [op.convolution(fields, RNG.random((4, 6)))],
        "stencil": [op.stencil(fields, {(0, 1): 0.5, (0, -1): -0.5})],
        "readout": [op.readout(fields, RNG.random((5, 2)) * [4.0, 6.0])],
        "paint": [op.paint(weights, three)],
        "redshift_space": [op.redshift_space(moved)],
        "linear_density": [op.linear_density(4, 8.0)],
        "light_cone": [op.light_cone(op.Space(two), 0, (0.9, 1.0), (1.0, 2.0, 3.0))],
        "lines_of_sight": [op.lines_of_sight(fields, [[0.0, 0.0]], [[3.0, 2.0]], 0.5)],
        "select": [op.select(fields, RNG.random((4, 6)) < 0.5), op.select(op.cells(100), np.arange(80)[:, None])],
        "gather": [op.gather(vector, op.cells(100), RNG.integers(0, 3, 100))],
        "broadcast": [op.broadcast(op.vector(1), fields), op.broadcast(op.vector(6), fields, axis=0)],
        "map_items": [op.map_items((scaled, scaled_product, scaled_back), 7, op.parameters(1), chunk=3)],
        "map_reduce": [op.map_reduce((scaled, scaled_product, scaled_back), 7, op.parameters(1))],
        "amplitudes": [op.amplitudes(op.Space(xi=op.modes((4, 4))))[0]],
        "simulation": [op.simulation(4, 4, 16.0, steps=2, window="tsc", with_cosmology=True)],
    }
    return made


def again(thing):
    return pickle.loads(pickle.dumps(thing))


def test_models_of_all_constructors_pickle_to_the_same_bits():
    made = constructors()
    # `from_jax` and `from_torch` pickle as `custom`, if their package is there.
    others = {name for name in op.__all__ if name[0].isupper()} | {"cells", "half_spectrum", "modes", "parameters", "points", "vector", "from_jax", "from_torch"}
    assert set(made) == set(op.__all__) - others
    for name, models in made.items():
        for model in models:
            loaded, x = again(model), model.random(1, 0.3)
            assert loaded.domain == model.domain and loaded.target == model.target, name
            if name in ("log", "sqrt"):
                x = abs(np.asarray(x))
            if name == "simulation":
                x["cosmology"] = model.own_cosmology
            assert bits(loaded(x)) == bits(model(x)), name
            assert copy.deepcopy(model) is model
    simulation, density = again(made["simulation"][0]), again(made["linear_density"][0])
    assert np.array_equal(simulation.own_cosmology, made["simulation"][0].own_cosmology) and density.variance == made["linear_density"][0].variance
    with pytest.raises(ValueError, match="white_noise"):
        density(np.full((4, 4, 4), np.nan))


def test_composed_models_and_priors_pickle():
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", SPACE, "x")
    composed = (2.0 - abs(square * DATA) / 3.0).then(op.hartley(SPACE)).zip(square.rename({"x": "y"})).giving("x")
    model = composed
    for _ in range(500):
        # More than Python's limit of recursions.
        model = model + 0.001
    assert bits(again(model)(DATA)) == bits(model(DATA)) and model.domain == again(model.domain) and again(model.domain).size == 30
    # Values of points of another model.
    rows = op.readout(SPACE, RNG.random((5, 2)))
    weighted = rows.then(op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", rows.target, "y"))
    assert bits(again(weighted)(DATA)) == bits(weighted(DATA))
    prior = again(mi.LogNormalPrior([1.0, 2.0], 0.5, op.vector(2)))
    assert isinstance(prior, mi.Prior) and prior.inverse(prior([0.3, 0.4])).round(4).tolist() == [0.3, 0.4]
    maker = mi.CorrelatedFieldMaker("sky")
    maker.set_amplitude_total_offset(0.0, (0.1, 0.03))
    maker.add_fluctuations(8, 1 / 8, (0.5, 0.2), (-3.0, 0.5))
    sky = maker.finalize()
    x, loaded = sky.random(1), again(sky)
    assert bits(loaded(x)) == bits(sky(x)) and np.array_equal(loaded.amplitude(x)[1], sky.amplitude(x)[1])
    spectrum = sky.power_spectrum_model()
    own = {name: x[name] for name in spectrum.domain}
    assert bits(again(spectrum)(own)) == bits(spectrum(own))


def test_arguments_that_change_later_do_not_change_pickles():
    matrix, mask = np.eye(3, dtype=np.float32), np.ones((6, 5), bool)
    models = op.matrix(matrix), op.select(SPACE, mask)
    matrix[:], mask[:] = 0.0, False
    for model, x in zip(models, (np.arange(3.0), DATA)):
        assert bits(again(model)(x)) == bits(model(x))


def test_likelihoods_pickle():
    space = op.Space(a=op.cells(4), b=op.cells(4))
    rates = op.exp(op.pointwise("fn f(a: f32) -> f32 { return a; }", "f", op.Space(a=op.cells(4)), "counts"))
    lines = op.pointwise("fn f(a: f32, b: f32) -> f32 { return a + b; }", "f", space, "flux")
    data = mi.Poissonian([1, 2, 3, 0], name="counts", exposure=[1.0, 2.0, 1.0, 1.0]) + mi.StudentT([1.0, 2.0, np.nan, 3.0], 3.0, name="flux", mask=[True, True, False, True])
    likelihood = data.amend(rates.zip(lines))
    x, loaded = likelihood.random(1), again(likelihood)
    assert loaded(x) == likelihood(x) and loaded.name == "counts + flux" and loaded.degrees_of_freedom == 7
    assert bits(loaded.value_and_grad(x)[1]) == bits(likelihood.value_and_grad(x)[1])
    assert again(data).amend(rates.zip(lines))(x) == likelihood(x)
    assert copy.copy(likelihood) is likelihood


def test_pickles_that_cannot_be_are_refused():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(op.custom(lambda x: x, double_product, double_product, SPACE))

    def run(comm):
        model = op.hartley(SPACE, comm=comm)
        likelihood = mi.Gaussian(part(DATA, comm), comm=comm)
        assert copy.deepcopy(model) is model
        for what in (model, likelihood, mi.wiener_filter(likelihood.amend(op.diagonal(SPACE, part(DATA, comm), comm=comm)))):
            with pytest.raises(pickle.PicklingError, match="on 2 ranks: expected one rank"):
                pickle.dumps(what)

    meshloom.ranks(2, run)


def test_a_pickle_of_another_version_is_refused(monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(meshloom._native, "version", "0.0.1")
        data = pickle.dumps(op.hartley(SPACE))
    with pytest.raises(meshloom.Error, match="got 0.0.1; create it again"):
        pickle.loads(data)


def test_a_pickle_loads_in_another_process(tmp_path):
    model = op.exp(op.diagonal(SPACE, DATA))
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps((model, DATA)))
    script = "import pickle, sys; model, x = pickle.load(open(sys.argv[1], 'rb')); sys.stdout.buffer.write(model(x).numpy().tobytes())"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script, path], capture_output=True)
    assert found.stdout == np.asarray(model(DATA)).tobytes(), found.stderr


def fitted(comm):
    """Samples, chains, and a model of their values."""
    space = op.Space(x=op.cells((6, 5)), rate=op.vector(1))
    model = op.pointwise("fn f(x: f32, rate: f32) -> f32 { return exp(rate) * x; }", "f", space, "y", comm=comm)
    likelihood = mi.Gaussian(part(DATA, comm), 0.5).amend(model)
    samples, _ = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1)
    return likelihood, samples, mi.sample(likelihood, samples, n_warmup=4, n_draws=3, n_chains=2), model


def test_samples_are_stored_without_their_likelihood(tmp_path):
    def run(comm, groups, name):
        likelihood, samples, chains, model = fitted(mi.sample_groups(comm, groups))
        files = []
        for kept in (samples, chains):
            path = tmp_path / f"{name}-{type(kept).__name__}.npz"
            kept.save(path)
            loaded = mi.load_samples(path, comm=likelihood._comm)
            assert type(loaded) is type(kept) and len(loaded) == len(kept)
            assert all(bits(loaded[number]) == bits(kept[number]) for number in range(len(kept))) and bits(loaded.pos) == bits(kept.pos)
            assert all(bits(one) == bits(other) for one, other in zip(loaded.mean_and_std(model), kept.mean_and_std(model)))
            files.append(path.read_bytes())
        assert all(np.array_equal(loaded.statistics[key], array) for key, array in chains.statistics.items())
        assert np.array_equal(loaded.draws(model), chains.draws(model))
        assert mi.evidence(likelihood, loaded, probes=2) == mi.evidence(likelihood, chains, probes=2)
        return files

    one = meshloom.ranks(1, lambda comm: run(comm, 1, "one"))[0]
    for groups in (1, 2):
        assert meshloom.ranks(2, lambda comm: run(comm, groups, "two")) == [one, one]
    # A file of two ranks on one, and a file as NumPy sees it.
    loaded = mi.load_samples(tmp_path / "two-Samples.npz")
    with np.load(tmp_path / "one-Samples.npz", allow_pickle=False) as arrays:
        assert arrays["residuals/x"].shape == (2, 6, 5) and json.loads(str(arrays["about"]))["count"] == 2
        assert np.array_equal(arrays["position/x"] + arrays["residuals/x"][1], np.asarray(loaded[1]["x"]))
    assert not list(tmp_path.glob("*.part"))
    loaded = again(loaded)
    assert bits(loaded[0]) == bits(mi.load_samples(tmp_path / "one-Samples.npz")[0])
    assert copy.deepcopy(loaded) is loaded and len(again(mi.load_samples(tmp_path / "one-Chains.npz")).draws()["x"]) == 2


def test_chains_without_their_statistics_are_refused(tmp_path):
    chains = mi.sample(mi.Gaussian(DATA).amend(op.diagonal(SPACE, DATA)), n_warmup=2, n_draws=2, n_chains=2)
    chains.save(tmp_path / "whole")
    for change in ("left out", "cut"):
        with zipfile.ZipFile(tmp_path / "whole") as whole, zipfile.ZipFile(tmp_path / "other", "w") as other:
            for name in whole.namelist():
                if name != "statistics/depth.npy":
                    other.writestr(name, whole.read(name))
                elif change == "cut":
                    with other.open(name, "w") as member:
                        np.lib.format.write_array(member, chains.statistics["depth"][:, :1])
        with pytest.raises(meshloom.Error, match="it has no `statistics/depth`" if change == "left out" else "`statistics` is not of 4 draws"):
            mi.load_samples(tmp_path / "other")


def test_a_position_without_samples_is_stored(tmp_path):
    likelihood = mi.Gaussian(DATA).amend(op.diagonal(SPACE, DATA))
    samples = mi.wiener_filter(likelihood, n_samples=0)
    samples.save(tmp_path / "x")
    loaded = mi.load_samples(tmp_path / "x")
    assert len(loaded) == 0 and bits(loaded.pos) == bits(samples.pos)


def test_damaged_and_foreign_files_of_samples_are_refused(tmp_path):
    path = tmp_path / "samples.npz"
    mi.wiener_filter(mi.Gaussian(DATA).amend(op.diagonal(SPACE, DATA))).save(path)
    whole, broken = path.read_bytes(), tmp_path / "broken.npz"
    flips = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in RNG.integers(0, len(whole), 60)]
    cuts = [whole[:at] for at in (0, 10, len(whole) // 2, len(whole) - 1)]
    refused = 0
    for data in [*flips, *cuts]:
        broken.write_bytes(data)
        try:
            loaded = mi.load_samples(broken)
        except meshloom.Error as error:
            assert "expected a complete file of `Samples.save`" in str(error)
            refused += 1
        else:
            # Some bytes of a zip file, such as dates, do not count.
            assert bits(loaded.pos) == bits(mi.load_samples(path).pos)
    assert refused > 50
    np.savez(broken, x=DATA)
    with pytest.raises(meshloom.Error, match="it has no `about`"):
        mi.load_samples(broken)
    for change, why in [({"version": 2}, "version 2"), ({"count": -1}, "negative"), ({"count": 10**12}, "shape"), ({"kind": "Fits"}, "Fits"), ({"leaves": {}}, "leaf")]:
        with np.load(path) as arrays, zipfile.ZipFile(broken, "w") as archive:
            for name in arrays:
                about = np.array(json.dumps({**json.loads(str(arrays["about"])), **change}))
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, about if name == "about" else arrays[name])
        with pytest.raises(meshloom.Error, match=why):
            mi.load_samples(broken)
    with pytest.raises(FileNotFoundError):
        mi.load_samples(tmp_path / "none")
    broken.write_bytes(cuts[2])

    def run(comm):
        with pytest.raises(meshloom.Error, match="rank 1: .*expected a complete file"):
            mi.load_samples(path if comm.rank == 0 else broken, comm=comm)
        with pytest.raises(meshloom.Error, match="rank 0: .*cannot write the samples"):
            mi.load_samples(path, comm=comm).save(tmp_path / "none" / "x")

    meshloom.ranks(2, run)
