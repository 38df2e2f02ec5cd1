"""Likelihoods, priors, correlated fields and fits beside closed forms."""

import re
import warnings

import numpy as np
import pytest

import meshloom
from meshloom import inference as mi, operators as op

RNG = np.random.default_rng(11)
N = 6
MATRIX = RNG.standard_normal((8, N))


def dense(matrix):
    """A matrix as a model: gathers of a vector, weighted, and summed along rows."""
    rows, columns = matrix.shape
    vector, both, out = op.Space(x=op.vector(columns)), op.Space(x=op.cells((rows, columns))), op.Space(y=op.vector(rows))
    spread = op.gather(vector, both, np.tile(np.arange(columns), (rows, 1)))
    return spread.then(op.diagonal(both, matrix)).then(op.gather(out, both, np.repeat(np.arange(rows), columns).reshape(rows, columns), adjoint=True))


WRONG_DATA = {
    r"data: expected counts, integers of 0 or more, got -1 at index \(1,\)": lambda: mi.Poissonian([2, -1]),
    r"got nan at index \(0,\)": lambda: mi.Poissonian([np.nan]),
    r"got 1.5 at index \(0, 1\)": lambda: mi.Poissonian([[1.0, 1.5]]),
    "exposure: expected 0 or more and finite, got -1": lambda: mi.Poissonian([1], exposure=[-1.0]),
    "noise_std: expected positive and finite, got 0": lambda: mi.Gaussian([1.0], noise_std=0),
    "noise_std: expected positive and finite, got inf": lambda: mi.Gaussian([1.0, 2.0], noise_std=[1.0, np.inf]),
    "data: expected finite numbers within the range of float32, got 1e[+]39 .*; correct it or pass a mask": lambda: mi.Gaussian([1e39]),
    "data: expected finite numbers": lambda: mi.VariableCovarianceGaussian([np.inf]),
    "dof: expected a positive finite number, got -1": lambda: mi.StudentT([1.0], dof=-1),
    "dof: expected a positive finite number, got 0": lambda: mi.VariableCovarianceStudentT([1.0], dof=0),
    r"class labels, integers from 0 to 2, got 3 at index \(0,\)": lambda: mi.Categorical([3], classes=3),
}


@pytest.mark.parametrize("words", WRONG_DATA)
def test_wrong_data_are_refused_at_once(words):
    with pytest.raises(ValueError, match=words):
        WRONG_DATA[words]()


def test_masked_data_may_be_anything():
    mask = np.array([True, False])
    assert mi.Poissonian([2.0, np.nan], mask=mask).degrees_of_freedom == 1
    assert mi.Gaussian([2.0, 1.0], noise_std=[1.0, -1.0], mask=mask).degrees_of_freedom == 1


def test_a_linear_model_has_the_posterior_of_the_closed_form():
    data, sigma = RNG.standard_normal(8), 0.5 + RNG.random(8)
    model = dense(MATRIX)
    weighted = MATRIX / sigma[:, None]
    covariance = np.linalg.inv(np.eye(N) + weighted.T @ weighted)
    mean = covariance @ weighted.T @ (data / sigma)
    likelihood = mi.Gaussian(data, sigma).amend(model)
    samples = mi.wiener_filter(likelihood, n_samples=300, draw_linear_kwargs={"cg_kwargs": {"resnorm": 1e-5, "maxiter": 50}})
    assert np.abs(np.asarray(samples.pos) - mean).max() < 1e-4
    # Mirrored: their mean is the position. The deviation of 600 dependent numbers is right to some 6 %.
    found, std = (np.asarray(value) for value in samples.mean_and_std(model))
    assert np.abs(found - MATRIX @ mean).max() < 1e-3
    want = np.sqrt(np.diag(MATRIX @ covariance @ MATRIX.T))
    assert np.abs(std / want - 1).max() < 0.25 and len(samples) == 600
    assert np.allclose(np.asarray(samples[0]) + np.asarray(samples[1]), 2 * mean, atol=1e-3)

    bound = mi.evidence(likelihood, samples)
    total = np.diag(sigma**2) + MATRIX @ MATRIX.T
    evidence = -0.5 * data @ np.linalg.solve(total, data) - 0.5 * np.linalg.slogdet(np.eye(N) + weighted.T @ weighted)[1]
    assert bound.upper - bound.lower < 1e-4 and abs(bound.lower - evidence) < 5 * bound.error + 1e-2

    fitted, reports = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=0)
    assert np.abs(np.asarray(fitted.pos) - mean).max() < 1e-3 and len(fitted) == 0
    assert reports[-1].reduced_chi_squared == pytest.approx(np.mean(((data - MATRIX @ mean) / sigma) ** 2), rel=1e-3)


def test_evidence_orders_models_of_many_data():
    """Models of prior width 2 (true) and 20 beside the closed form: the wider one is worse by 1837 for 1024 data."""
    sigma, rules = 0.1, {"cg_kwargs": {"resnorm": 1e-2, "maxiter": 40}}
    for n in (64, 256, 1024):
        rng = np.random.default_rng(0)
        y = 2.0 * rng.normal(size=n) + sigma * rng.normal(size=n)
        found = []
        for width in (2.0, 20.0):
            prior = mi.NormalPrior(0.0, width, op.Space(x=op.cells(n)))
            likelihood = mi.Gaussian(y, noise_std=sigma).amend(prior.then(op.stencil(prior.target, {0: 1.0, 1: 0.3})))
            response = np.eye(n) + 0.3 * np.roll(np.eye(n), 1, axis=1)
            cov = width**2 * response @ response.T + sigma**2 * np.eye(n)
            exact = n * np.log(sigma) - (y @ np.linalg.solve(cov, y) + np.linalg.slogdet(cov)[1]) / 2
            one = mi.evidence(likelihood, mi.wiener_filter(likelihood, n_samples=8, draw_linear_kwargs=rules))
            assert one.lower <= one.upper and one.error < 12.0
            assert one.lower - 3 * one.error <= exact <= one.upper + 3 * one.error, (n, width, exact, one)
            determinant = np.linalg.slogdet(cov / sigma**2)[1]
            assert one.log_determinant[0] - 40 < determinant < one.log_determinant[1] + 40, (determinant, one)
            found.append(one)
        assert found[0].lower > found[1].upper + 5 * (found[0].error + found[1].error)


def test_evidence_with_bounds_far_apart_warns():
    likelihood = mi.Gaussian(np.zeros(64), 1e-3).amend(line(64, 1.0).then(op.diagonal(line(64, 1.0).target, np.geomspace(1e-3, 1.0, 64))))
    samples, _ = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=0)
    with pytest.warns(RuntimeWarning, match="bounds of the evidence.*further apart"):
        wide = mi.evidence(likelihood, samples, directions=0, probes=8, steps=1)
    close = mi.evidence(likelihood, samples)
    exact = np.log1p(np.geomspace(1.0, 1e3, 64) ** 2).sum()
    low, high = wide.log_determinant
    assert low - 4 * wide.error < exact < high + 4 * wide.error and close.error == 0.0
    assert np.allclose(close.log_determinant, exact, atol=1e-2)
    with pytest.raises(ValueError, match="probes"):
        mi.evidence(likelihood, samples, probes=0)


def logits_energy(logits, classes):
    return sum(np.log(np.exp(logits[:, at]).sum()) - logits[one, at] for at, one in enumerate(classes))


@pytest.mark.parametrize("kind", ["gaussian", "poisson", "student", "gaussian inferred", "student inferred", "categorical"])
def test_likelihoods_are_what_they_say(kind):
    n = 5
    data, s, width = RNG.standard_normal(n), RNG.standard_normal(n), 0.5 + RNG.random(n)
    counts, classes, logits = RNG.poisson(3.0, n), RNG.integers(0, 3, n), RNG.standard_normal((3, n))
    dof = 3.0
    likelihood, x, energy = {
        "gaussian": lambda: (mi.Gaussian(data, width), s, lambda s: np.sum((s - data) ** 2 / (2 * width**2))),
        "poisson": lambda: (mi.Poissonian(counts, exposure=2.0), np.exp(s), lambda s: np.sum(2 * s - counts * np.log(2 * s))),
        "student": lambda: (mi.StudentT(data, dof, 0.7), s, lambda s: np.sum((dof + 1) / 2 * np.log1p((s - data) ** 2 / (dof * 0.49)))),
        "gaussian inferred": lambda: (
            mi.VariableCovarianceGaussian(data), np.stack([s, width]), lambda x: np.sum(x[1] ** 2 * (x[0] - data) ** 2 / 2 - np.log(x[1]))),
        "student inferred": lambda: (
            mi.VariableCovarianceStudentT(data, dof), np.stack([s, width]),
            lambda x: np.sum((dof + 1) / 2 * np.log1p((x[0] - data) ** 2 / (dof * x[1] ** 2)) + np.log(x[1]))),
        "categorical": lambda: (mi.Categorical(classes, 3), logits, lambda x: logits_energy(x, classes)),
    }[kind]()
    x = x.astype(np.float32).astype(np.float64)
    # Constants are left out: differences of energies are what they are.
    other = x * 1.25
    found, gradient = likelihood.value_and_grad(x)
    assert likelihood(x) == pytest.approx(found, rel=1e-6)
    assert likelihood(other) - found == pytest.approx(energy(other) - energy(x), rel=1e-4, abs=1e-4)
    gradient, want = np.asarray(gradient), np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-5
        want[at] = (energy(x + step) - energy(x - step)) / 2e-5
    assert np.abs(gradient - want).max() < 1e-4 * max(1, np.abs(want).max())
    assert likelihood.degrees_of_freedom == n
    v = RNG.standard_normal(x.shape)
    assert np.vdot(np.asarray(likelihood.metric(x, v)), v) > 0


def test_likelihoods_of_models_are_added():
    space = op.Space(a=op.cells(4), b=op.cells(4))
    first = op.pointwise("fn f(a: f32) -> f32 { return exp(a); }", "f", op.Space(a=op.cells(4)), "rate")
    both = op.pointwise("fn g(a: f32, b: f32) -> f32 { return a * b; }", "g", space, "y")
    counts, y = np.array([1, 0, 2, 5]), np.array([0.5, np.nan, 1.0, -1.0])
    mask = np.isfinite(y)
    # What becomes of the caller's array later is its own matter.
    given = mask.copy()
    gaussian = mi.Gaussian(y, 0.5, name="y", mask=given)
    given[:] = False
    likelihood = mi.Poissonian(counts, name="counts").amend(first) + gaussian.amend(both)
    assert likelihood.domain == {"a": (4,), "b": (4,)} and likelihood.degrees_of_freedom == 7
    a, b = (RNG.standard_normal(4).astype(np.float32) for _ in range(2))
    want = np.sum(np.exp(a) - counts * a) + np.sum(((a * b - y)[mask]) ** 2) / 0.5
    at_zero = likelihood({"a": np.zeros(4), "b": np.zeros(4)}) - (4 + np.sum(y[mask] ** 2) / 0.5)
    assert likelihood({"a": a, "b": b}) - at_zero == pytest.approx(want, rel=1e-5)
    report = {one.name: one for one in likelihood.report({"a": a, "b": b})}
    assert report["y"].n_data == 3
    assert report["y"].reduced_chi_squared == pytest.approx(np.mean(((a * b - y)[mask] / 0.5) ** 2), rel=1e-4)


def test_sums_are_amended_by_one_model():
    a = op.pointwise("fn f(a: f32) -> f32 { return exp(a); }", "f", op.Space(a=op.cells(4)), "counts")
    # Another grid, and numbers of another shape.
    b = op.pointwise("fn g(b: f32) -> f32 { return 2.0 * b; }", "g", op.Space(b=op.cells((2, 3), size=2.0)), "y")
    counts, y = np.array([1, 0, 2, 5]), RNG.standard_normal((2, 3))
    poisson, gaussian = mi.Poissonian(counts, name="counts"), mi.Gaussian(y, 0.5, name="y")
    together = (poisson + gaussian).amend(a.zip(b))
    apart = poisson.amend(a) + gaussian.amend(b)
    x = {"a": RNG.standard_normal(4), "b": RNG.standard_normal((2, 3))}
    assert together(x) == pytest.approx(apart(x), rel=1e-12)
    for mine, other in zip(together.value_and_grad(x)[1].values(), apart.value_and_grad(x)[1].values()):
        assert np.array_equal(mine, other)
    assert dict(a.zip(b).giving("y").target) == {"y": (2, 3)} == dict(b.target)
    # Without a model of its own: data at the cells of a grid, one wide each.
    alone = mi.Poissonian(counts, name="counts") + mi.Gaussian(y[0], 0.5, name="y")
    assert alone.domain == {"counts": (4,), "y": (3,)} and alone.degrees_of_freedom == 7
    with pytest.raises(ValueError, match="data sets are of counts, y"):
        (poisson + gaussian).amend(a)
    with pytest.raises(ValueError, match="and not 'z'"):
        a.zip(b).giving("z")
    with pytest.raises(TypeError, match="not int"):
        poisson + 3
    assert "counts + y" in repr(alone) == repr(poisson + gaussian)
    with pytest.raises(ValueError, match="two data sets"):
        poisson + gaussian + poisson
    # Of three models side by side the one in the middle is left out with what it takes.
    c = op.pointwise("fn h(c: f32) -> f32 { return c; }", "h", op.Space(c=op.cells(5)), "w")
    some = a.zip(c).zip(b).giving("counts", "y")
    assert sorted(some.domain) == ["a", "b"] and sorted(some.target) == ["counts", "y"]


def test_priors_are_quantiles():
    stats = pytest.importorskip("scipy.stats")
    xi = np.linspace(-4.0, 4.0, 17)
    quantile, space = stats.norm.cdf(xi), op.Space(x=op.vector(17))
    spread = np.sqrt(np.log1p(0.25))
    for model, want in [
        (mi.NormalPrior(3.0, 2.0, space), stats.norm(3.0, 2.0).ppf(quantile)),
        (mi.LogNormalPrior(2.0, 1.0, space), stats.lognorm(s=spread, scale=2.0 * np.exp(-(spread**2) / 2)).ppf(quantile)),
        (mi.UniformPrior(-1.0, 3.0, space), stats.uniform(-1.0, 4.0).ppf(quantile)),
        (mi.LaplacePrior(1.5, space), stats.laplace(scale=1.5).ppf(quantile)),
        (mi.InvGammaPrior(2.0, 3.0, space), stats.invgamma(2.0, scale=3.0).ppf(quantile)),
    ]:
        assert np.allclose(np.asarray(model(xi)), want, rtol=2e-5, atol=2e-6)
    # In double precision where parameters are.
    exact = np.asarray(mi.UniformPrior(-1.0, 3.0, op.Space(x=op.parameters(17)))(xi))
    assert exact.dtype == np.float64 and np.abs(exact - stats.uniform(-1.0, 4.0).ppf(quantile)).max() < 1e-12


def maker(shape, **spectrum):
    made = mi.CorrelatedFieldMaker("sky")
    made.set_amplitude_total_offset(1.5, (0.4, 0.1))
    made.add_fluctuations(shape, 0.5, fluctuations=(0.8, 0.2), loglogavgslope=(-3.0, 0.3), **spectrum)
    return made


def test_a_correlated_field_is_amplitudes_times_excitations():
    shape = (8, 6)
    sky = maker(shape, flexibility=(0.5, 0.2), asperity=(0.3, 0.1)).finalize()
    x = sky.random(seed=3)
    k, amplitude = sky.amplitude({**x, "other": np.zeros(3)})
    waves = np.hypot(*np.meshgrid(*[2 * np.pi * np.fft.fftfreq(n, 0.5) for n in shape], indexing="ij"))
    each = amplitude[np.abs(waves[..., None] - k).argmin(axis=-1)]
    modes = np.fft.fft2(each * np.asarray(x["sky/xi"]))
    assert np.abs(np.asarray(sky(x)) - (1.5 + modes.real + modes.imag)).max() < 1e-4
    # Where all is fixed but the excitations they are the only leaf.
    fixed = mi.CorrelatedFieldMaker()
    fixed.set_amplitude_total_offset(0.0, 1.0)
    fixed.add_fluctuations(8, 1.0, 1.0, -2.0)
    only = fixed.finalize()
    assert all(np.array_equal(*both) for both in zip(only.amplitude(np.zeros(8)), only.amplitude({"xi": np.zeros(8), "other": 0})))
    # The prior's deviation over realizations, by the amplitude.
    assert amplitude.shape == k.shape and np.all(amplitude > 0) and k[0] == 0
    matern = mi.CorrelatedFieldMaker()
    matern.set_amplitude_total_offset(0.0, 0.1)
    matern.add_fluctuations_matern(16, 1.0, scale=(2.0, 0.1), cutoff_wavenumber=(0.5, 0.1), loglogslope=(-4.0, 0.1))
    # The unit of NIFTy is not taken for another one.
    for words in ({"cutoff": (0.5, 0.1)}, {}):
        with pytest.raises(TypeError, match="cutoff_wavenumber.*2 pi times"):
            matern.add_fluctuations_matern(16, 1.0, scale=(2.0, 0.1), loglogslope=(-4.0, 0.1), **words)
    with pytest.raises(TypeError, match="positional"):
        matern.add_fluctuations_matern(16, 1.0, (2.0, 0.1), (0.5, 0.1), (-4.0, 0.1))
    field = matern.finalize()
    k, amplitude = field.amplitude(field.random(scale=0.0))
    slope = np.polyfit(np.log1p((k[1:] / 0.5) ** 2), np.log(amplitude[1:]), 1)[0]
    assert abs(slope + 1.0) < 0.05 and set(field.domain) == {"xi", "cutoff", "scale", "slope"}
    times = mi.CorrelatedFieldMaker()
    times.set_amplitude_total_offset(0.0, 1.0)
    times.add_fluctuations(4, 1.0, (1.0, 0.1), (-2.0, 0.1), prefix="time")
    times.add_fluctuations((4, 4), 1.0, (1.0, 0.1), (-2.0, 0.1), prefix="space")
    both = times.finalize()
    assert both.target == {"field": (4, 4, 4)} and "time/slope" in both.domain and "space/slope" in both.domain


def problem(comm=None):
    """Counts of the exponential of a field, and its model."""
    sky = maker((6, 4)).finalize(comm)
    rate = sky.then(op.pointwise("fn f(field: f32) -> f32 { return exp(field); }", "f", sky.target, "rate", comm=comm))
    counts = np.random.default_rng(5).poisson(np.exp(1.5 + np.sin(np.arange(24) / 4))).reshape(6, 4)
    own = counts if comm is None else np.array_split(counts, comm.size)[comm.rank]
    return mi.Poissonian(own).amend(rate), rate


def test_a_fit_of_a_function_of_numpy_is_that_of_wgsl(tmp_path):
    sky = maker((6, 4)).finalize()
    counts = np.random.default_rng(5).poisson(np.exp(1.5 + np.sin(np.arange(24) / 4))).reshape(6, 4)
    product = lambda x, d: np.exp(x) * d
    own = [op.custom(np.exp, product, product, sky.target, name="exp", version=version) for version in "12"]
    wgsl = op.pointwise("fn f(field: f32) -> f32 { return exp(field); }", "f", sky.target, "rate")
    first, second, built_in = (mi.Poissonian(counts).amend(sky.then(rate)) for rate in (*own, wgsl))
    assert mi.check_metric(first).coordinates < 1e-3
    means = [mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2, seed=3, **FEW)[0].mean_and_std(sky)[0] for likelihood in (first, built_in)]
    assert np.abs(np.asarray(means[0]) - np.asarray(means[1])).max() < 1e-3
    fit = {"n_samples": 0, "odir": tmp_path, **FEW}
    mi.optimize_kl(first, n_total_iterations=1, **fit)
    mi.optimize_kl(first, n_total_iterations=2, resume=True, **fit)
    # Functions of another version are another model.
    with pytest.raises(meshloom.Error):
        mi.optimize_kl(second, n_total_iterations=3, resume=True, **fit)
    failing = mi.Poissonian(counts).amend(sky.then(op.custom(lambda x: 1 / 0, product, product, sky.target)))
    with pytest.raises(ZeroDivisionError):
        mi.optimize_kl(failing, n_total_iterations=1, n_samples=0, **FEW)


FEW = {"kl_kwargs": {"minimize_kwargs": {"maxiter": 5, "cg_kwargs": {"maxiter": 20}}}, "nonlinearly_update_kwargs": {"minimize_kwargs": {"maxiter": 3}}}


FEWER = {"draw_linear_kwargs": {"cg_kwargs": {"maxiter": 4}}, "kl_kwargs": {"minimize_kwargs": {"maxiter": 2, "cg_kwargs": {"maxiter": 4}}}}

FEW_STEPS = {"kl_kwargs": {"minimize_kwargs": {"maxiter": 2, "cg_kwargs": {"maxiter": 20}}}}


def field_of(samples):
    return {name: np.asarray(value) for name, value in samples.pos.items()}


def test_a_fit_tells_stops_and_goes_on(tmp_path, caplog):
    likelihood, rate = problem()
    mode = ["linear_resample", "nonlinear_resample", "nonlinear_update", "nonlinear_sample"]
    options = {"n_samples": lambda at: 1 + at // 2, "sample_mode": mode.__getitem__, "seed": 7, **FEW}
    told, seen = [], []

    def callback(samples, report):
        # Between iterations the device is free.
        seen.append((report.iteration, float(np.asarray(samples.mean(rate)).mean()), len(samples)))

    whole, reports = mi.optimize_kl(
        likelihood, n_total_iterations=4, callback=callback, progress=lambda *what: told.append(what), **options)
    assert [at for at, *_ in seen] == [0, 1, 2, 3] and [count for *_, count in seen] == [2, 2, 4, 4]
    assert {at for at, *_ in told} == {0, 1, 2, 3} and (3, 4, "sample 4 of 4") in told and any("energy" in what for *_, what in told)
    assert [report.n_samples for report in reports] == [2, 2, 4, 4] and reports[-1].energy < reports[0].energy
    assert 0.3 < reports[-1].reduced_chi_squared < 2.0

    # Ended by a callback, and gone on with: the same bits.
    directory = tmp_path / "state"
    _, first = mi.optimize_kl(likelihood, n_total_iterations=4, odir=directory, callback=lambda _, report: report.iteration == 1, **options)
    assert len(first) == 2
    again, all_reports = mi.optimize_kl(likelihood, n_total_iterations=4, odir=directory, resume=True, **options)
    assert len(all_reports) == 4
    for name, value in field_of(whole).items():
        assert np.array_equal(value, field_of(again)[name]), name
    with caplog.at_level("INFO", logger="meshloom"), pytest.warns(UserWarning, match="all 4 iterations already"):
        done, _ = mi.optimize_kl(likelihood, n_total_iterations=4, odir=directory, resume=True, **options)
    assert np.array_equal(field_of(done)["sky/xi"], field_of(whole)["sky/xi"])
    assert ("meshloom", "WARNING", "the state has 4 of 4 iterations already: nothing is left to do") in [
        (record.name, record.levelname, record.getMessage()) for record in caplog.records]
    with pytest.raises(meshloom.Error, match="seed"):
        mi.optimize_kl(likelihood, n_total_iterations=4, odir=directory, resume=True, **{**options, "seed": 8})


def test_a_fit_does_not_start_beside_a_mock_truth():
    n = 1000
    model = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells(n)), "y")
    likelihood = mi.Gaussian(np.zeros(n)).amend(model)
    start, truth = (np.asarray(one) for one in (mi.optimize_kl(likelihood, n_total_iterations=0, n_samples=0)[0].pos, model.random()))
    assert abs(np.std(start) - 0.1) < 0.02 and abs(np.corrcoef(start, truth)[0, 1]) < 0.2


def test_a_state_of_other_data_is_an_error(tmp_path):
    model = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells(4)), "y")
    fit = {"n_total_iterations": 1, "n_samples": 1, "odir": tmp_path / "state", "resume": True}
    first, _ = mi.optimize_kl(mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(model), **fit)
    with pytest.warns(UserWarning, match="all 1 iterations already"):
        again, _ = mi.optimize_kl(mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(model), **fit)
    assert np.array_equal(np.asarray(first.pos), np.asarray(again.pos))
    for data, noise, what in [([1.0, 2.0, -3.0, 4.0], 1.0, "data"), ([1.0, 2.0, 3.0, 4.0], 0.1, "noise")]:
        with pytest.raises(meshloom.Error, match=f"another posterior, whose {what}"):
            mi.optimize_kl(mi.Gaussian(data, noise).amend(model), **fit)


def test_a_state_of_another_fit_is_refused_by_name(tmp_path):
    rng, n = np.random.default_rng(0), 100
    counts, space = rng.poisson(3.0, n), op.Space(x=op.cells(n))
    one = counts + 10 * (np.arange(n) == 7)
    few = counts.copy()
    few[:3] = few[:3][::-1] + 1
    exposure, mask = np.full(n, 2.0), np.arange(n) != 5

    def rate(width=0.01, name="x", scale="1.0"):
        space = op.Space(**{name: op.cells(n)})
        text = f"fn rate({name}: f32) -> f32 {{ return {scale} * exp({name}); }}"
        return mi.NormalPrior(1.0, width, space).then(op.pointwise(text, "rate", space, "rate"))

    def field(prefix="s", width=0.3, slope=0.5):
        maker = mi.CorrelatedFieldMaker(prefix)
        maker.set_amplitude_total_offset(0.0, (0.5, 0.1))
        maker.add_fluctuations(n, 1.0, (width, 0.1), (-3.0, slope))
        s = maker.finalize()
        return s.then(op.pointwise("fn rate(s: f32) -> f32 { return exp(s); }", "rate", s.target, "rate"))

    def weighted(weight):
        return op.diagonal(space, np.r_[weight, np.ones(n - 1)]).then(op.stencil(space, {0: 1.0, 1: 0.5})).then(rate())

    fit = {"n_total_iterations": 1, "n_samples": 1, "resume": True, **FEW}
    cases = {
        "a": (mi.Poissonian(counts).amend(rate()), [
            ("model or its priors", mi.Poissonian(counts).amend(rate(0.3))),
            ("model or its priors", mi.Poissonian(counts).amend(rate(scale="1.000001"))),
            ("data", mi.Poissonian(one).amend(rate())),
            ("data", mi.Poissonian(few).amend(rate())),
            ("mask", mi.Poissonian(counts, mask=mask).amend(rate())),
            ("noise or exposure", mi.Poissonian(counts, exposure=exposure).amend(rate())),
            ("names or shapes", mi.Poissonian(counts).amend(rate(name="t"))),
            ("kind of likelihood", mi.Gaussian(counts).amend(rate())),
        ]),
        "b": (mi.Poissonian(counts).amend(field()), [
            ("names or shapes", mi.Poissonian(counts).amend(field("t"))),
            ("model or its priors", mi.Poissonian(counts).amend(field(width=0.6))),
            ("model or its priors", mi.Poissonian(counts).amend(field(slope=0.6))),
        ]),
        "c": (mi.Poissonian(counts, exposure=exposure).amend(weighted(1.0)), [
            ("model or its priors", mi.Poissonian(counts, exposure=exposure).amend(weighted(1.00001))),
            ("noise or exposure", mi.Poissonian(counts, exposure=np.r_[exposure[:-1], 2.0001]).amend(weighted(1.0))),
        ]),
    }
    for name, (first, others) in cases.items():
        mi.optimize_kl(first, odir=tmp_path / name, **fit)
        before = (tmp_path / name / "state.npz").read_bytes()
        for what, other in others:
            with pytest.raises(meshloom.Error, match=f"another posterior, whose {what}"):
                mi.optimize_kl(other, odir=tmp_path / name, **{**fit, "n_total_iterations": 2})
        assert (tmp_path / name / "state.npz").read_bytes() == before
        # The same again, and nothing left to do.
        with pytest.warns(UserWarning, match="has all 1 iterations already"):
            mi.optimize_kl(first, odir=tmp_path / name, **fit)


def test_a_saved_fit_is_replaced_only_where_that_is_asked_for(tmp_path):
    likelihood, state = mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line()), tmp_path / "fit" / "state.npz"
    for iterations, options, count in [(3, {}, 3), (4, {"resume": True}, 4), (1, {"overwrite": True}, 1)]:
        mi.optimize_kl(likelihood, n_total_iterations=iterations, n_samples=1, odir=tmp_path / "fit", **options)
        assert len(np.load(state)["history"]) == count
        before = state.read_bytes()
        with pytest.raises(meshloom.Error, match="`resume=True`.*`overwrite=True`"):
            mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, odir=tmp_path / "fit")
        assert state.read_bytes() == before
    with pytest.raises(ValueError, match="overwrite replaces a state"):
        mi.optimize_kl(likelihood, n_total_iterations=1, odir=tmp_path / "fit", resume=True, overwrite=True)


def test_temperature_memory_and_budget_are_those_of_the_library(tmp_path):
    data = np.array([1.0, 2.0, -3.0, 4.0])
    likelihood, fit = mi.Gaussian(data).amend(line()), {"n_total_iterations": 2, "n_samples": 0}
    # With y = 3 x, noise of variance T and a standard normal prior the most probable x is 3 d / (9 + T).
    for temperature in (1.0, 4.0):
        place, _ = mi.optimize_kl(likelihood, temperature=lambda at: 100.0 if at == 0 else temperature, **fit)
        assert np.allclose(np.asarray(place.pos), 3 * data / (9 + temperature), atol=1e-4)
    with pytest.raises(ValueError, match="temperature"):
        mi.optimize_kl(likelihood, temperature=0.0, **fit)
    with pytest.raises(ValueError, match="preconditioning: expected one of fields, always, off"):
        mi.optimize_kl(likelihood, preconditioning="on", **fit)
    with pytest.raises(ValueError, match="curvature: expected sample_average or at_position"):
        mi.optimize_kl(likelihood, curvature="average", **fit)
    whole, reports = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2)
    # The metric of a linear model is the same everywhere.
    other, other_reports = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2, curvature=lambda at: "at_position")
    assert np.allclose(np.asarray(other.pos), np.asarray(whole.pos), atol=1e-5)
    assert [report.steps for report in other_reports] == [report.steps for report in reports]
    small, _ = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2, memory=1 << 30)
    assert np.array_equal(np.asarray(whole[1]), np.asarray(small[1]))
    with pytest.raises(meshloom.Error, match="bytes of device memory"):
        mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2, memory=16)
    _, none = mi.optimize_kl(likelihood, budget=0.0, **fit)
    _, all_reports = mi.optimize_kl(likelihood, budget=1e6, **fit)
    assert (len(none), len(all_reports)) == (0, 2)
    with pytest.raises(ValueError, match="budget: expected seconds from 0 on"):
        mi.optimize_kl(likelihood, budget=-1.0, **fit)


def test_samples_that_have_not_converged_are_told_of():
    likelihood, _ = problem()
    with pytest.warns(RuntimeWarning, match="not converged after 1 steps for 3 of the mean and 2 samples"):
        # At a constant field the preconditioner is exact, and one step is enough.
        start = likelihood.random(seed=3)
        mi.wiener_filter(likelihood, start, n_samples=1, draw_linear_kwargs={"cg_kwargs": {"maxiter": 1}})
    with pytest.warns(RuntimeWarning, match="for 2 of 2 samples"):
        _, reports = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, **FEWER)
    assert (reports[0].sample_steps, reports[0].unconverged_samples) == (4, 2)


def test_bent_samples_that_run_out_of_steps_are_counted_and_warned_of_once():
    likelihood, _ = problem()
    one_step = {"minimize_kwargs": {"maxiter": 1, "xtol": 0.0}}
    options = {"n_samples": 2, "nonlinearly_update_kwargs": one_step, **FEW_STEPS}
    with pytest.warns(RuntimeWarning) as told:
        _, reports = mi.optimize_kl(likelihood, n_total_iterations=3, sample_mode="nonlinear_resample", **options)
    assert [(report.limited_samples, report.failed_samples) for report in reports] == [(4, 0)] * 3
    limits = [str(one.message) for one in told if "limit of steps" in str(one.message)]
    assert len(limits) == 1 and "4 of 4 samples of iteration 2" in limits[0] and "nonlinearly_update_kwargs" in limits[0]


def test_updates_and_states_keep_how_samples_were_drawn(tmp_path):
    likelihood, _ = problem()
    options = {
        "n_samples": 2,
        "sample_mode": lambda at: "nonlinear_update" if at else "nonlinear_resample",
        "draw_linear_kwargs": {"cg_kwargs": {"maxiter": 2, "resnorm": 1e-4}},
        **FEW_STEPS,
    }
    with pytest.warns(RuntimeWarning, match="not converged for 4 of 4 samples of iteration 2") as told:
        _, reports = mi.optimize_kl(likelihood, n_total_iterations=3, odir=tmp_path / "whole", **options)
    assert [report.unconverged_samples for report in reports] == [4, 4, 4]
    assert [report.sample_steps for report in reports] == [2, 0, 0]
    ratio = reports[0].sample_error_ratio
    assert ratio > 1 and [report.sample_error_ratio for report in reports] == [ratio] * 3
    assert any(f"up to {ratio:.1e}".replace("e+0", "e").replace("e+", "e") in str(one.message) for one in told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mi.optimize_kl(likelihood, n_total_iterations=1, odir=tmp_path / "parts", **options)
        _, resumed = mi.optimize_kl(likelihood, n_total_iterations=3, odir=tmp_path / "parts", resume=True, **options)
    assert [report[8:] for report in resumed] == [report[8:] for report in reports]


def test_the_deviation_about_a_known_mean_divides_by_all_samples():
    model = dense(MATRIX)
    samples = mi.wiener_filter(mi.Gaussian(np.ones(8)).amend(model), n_samples=2)
    values = [np.asarray(model(samples[number])).astype(float) for number in range(4)]
    for ddof in (0, 1):
        std = np.asarray(samples.mean_and_std(model, ddof=ddof)[1])
        assert np.allclose(std, np.std(values, axis=0, ddof=ddof), rtol=1e-4)
    assert np.array_equal(np.asarray(samples.mean_and_std(model)[1]), std)
    with pytest.raises(ValueError, match="ddof: expected 0 or 1, got 2"):
        samples.mean_and_std(model, ddof=2)


def test_a_likelihood_is_checked():
    likelihood, _ = problem()
    for seed in range(3):
        check = mi.check_metric(likelihood, seed=seed)
        for one, other in check[:4]:
            assert one == pytest.approx(other, rel=1e-2) and one != 0
        assert check.coordinates < 1e-2
    assert mi.check_metric(likelihood, likelihood.random(seed=5)) != mi.check_metric(likelihood, likelihood.random(seed=6))
    # Data of sigma 2 at x = 1.5: the metric is 1/4, and the gradient (x - d) / 4.
    u = mi.check_metric(mi.Gaussian([1.0], noise_std=2.0).amend(op.pointwise("fn f(x: f32) -> f32 { return x; }", "f", op.Space(x=op.cells(1)), "y")), [1.5])
    assert u.slope[0] ** 2 == pytest.approx(u.square[0] / 16, rel=1e-5) and u.square[1] == pytest.approx(u.square[0], rel=1e-5)
    # Steps have no slope, although energies differ.
    steps = op.pointwise("fn f(x: f32) -> f32 { return floor(100.0 * x); }", "f", op.Space(x=op.cells(4)), "y")
    with pytest.raises(ValueError, match="the gradient is not that of the energy"):
        mi.check_metric(mi.Gaussian(np.ones(4)).amend(steps))
    with pytest.raises(TypeError, match="likelihood: expected one of meshloom.inference"):
        mi.check_metric(3)


def line(n=4, factor=3.0, comm=None):
    return op.pointwise(f"fn f(x: f32) -> f32 {{ return {factor} * x; }}", "f", op.Space(x=op.cells(n)), "y", comm=comm)


def test_data_of_another_shape_are_refused():
    image = op.pointwise("fn f(x: f32) -> f32 { return x; }", "f", op.Space(x=op.cells((4, 6))), "y")
    data = np.zeros((4, 6))
    for wrong in (data.T, data.ravel(), data.reshape(2, 12), np.zeros((4, 6, 2))):
        for likelihood in (mi.Gaussian(wrong), mi.Poissonian(wrong), mi.StudentT(wrong, 3.0)):
            with pytest.raises(ValueError, match=r"expected shape \(4, 6\), which the model predicts"):
                likelihood.amend(image)
    assert mi.Gaussian(data[None]).amend(image).degrees_of_freedom == 24
    two = op.pointwise("fn f(x: f32) -> vec2<f32> { return vec2<f32>(x, 1.0); }", "f", op.Space(x=op.cells((4, 6))), "y")
    assert mi.VariableCovarianceGaussian(data).amend(two).degrees_of_freedom == 24
    with pytest.raises(ValueError, match="shape"):
        mi.VariableCovarianceGaussian(data.T).amend(two)


def test_a_fit_that_has_not_found_the_data_warns():
    likelihood = mi.Gaussian(np.full(40, 50.0)).amend(line(40, 1.0))
    # The prior of standard deviation 1 keeps half of the way: residuals are 25.
    with pytest.warns(RuntimeWarning, match="chi-squared of the data is 6.2.*e2, where 0.00 to 4.24 are to be expected"):
        mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=0)
    with pytest.warns(RuntimeWarning, match="noise is less than was said"):
        mi.optimize_kl(mi.Gaussian(np.zeros(400), 30.0).amend(line(400, 1.0)), n_total_iterations=1, n_samples=1)


def test_a_fit_with_defaults_settles_without_a_word_or_says_that_it_has_not(tmp_path):
    # Fits with defaults of counts far from one are tests of the program.
    likelihood = mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole, reports = mi.optimize_kl(likelihood)
    assert len(whole) == 24
    # A fit that is interrupted and resumed settles where the whole one does.
    mi.optimize_kl(likelihood, odir=tmp_path, callback=lambda _, report: report.iteration == 2)
    again, resumed = mi.optimize_kl(likelihood, odir=tmp_path, resume=True)
    assert len(reports) > 3 and [report.energy for report in resumed] == [report.energy for report in reports]
    assert np.array_equal(np.asarray(again.pos), np.asarray(whole.pos))
    # A fit that has settled does nothing more.
    with pytest.warns(UserWarning, match="settled"):
        assert len(mi.optimize_kl(likelihood, odir=tmp_path, resume=True)[1]) == len(reports)
    # A fit with other random numbers and samples in each iteration does not settle in its last one.
    with pytest.warns(RuntimeWarning, match="has not settled after iteration 19: .* number of samples") as told:
        mi.optimize_kl(mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line()), n_samples=lambda iteration: 1 + iteration % 2)
    assert len(told) == 1


def test_counts_far_from_the_start_are_found():
    counts = np.random.default_rng(1).poisson(1000 * np.exp(0.3 * np.sin(np.arange(40) / 7)))
    rate = op.pointwise("fn f(x: f32) -> f32 { return exp(x); }", "f", op.Space(x=op.cells(40)), "rate")
    samples, reports = mi.optimize_kl(mi.Poissonian(counts).amend(rate), n_total_iterations=3, n_samples=2)
    assert reports[-1].reduced_chi_squared < 2.5 and not reports[-1].gave_up
    assert np.abs(np.asarray(samples.mean(rate)) / counts - 1).max() < 0.1


def test_a_filter_of_another_model_warns():
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.Space(x=op.cells(4)), "y")
    with pytest.warns(RuntimeWarning, match="not linear"):
        mi.wiener_filter(mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(square), np.ones(4))


def test_ranks_that_set_up_different_fits_all_learn_of_it():
    def fit(groups, **differ):
        def body(comm):
            group = mi.sample_groups(comm, groups)
            own = {name: value(comm.rank) for name, value in differ.items()}
            data = own.pop("data", np.arange(4.0))
            if groups == 1 and comm.rank > 0:
                data = data[:0]
            mi.optimize_kl(mi.Gaussian(data).amend(line(comm=group)), n_total_iterations=1, **{"n_samples": 2, **own})

        with pytest.raises(ValueError) as error:
            meshloom.ranks(2, body)
        return str(error.value)

    for groups in (1, 2):
        assert "fit: `pairs (n_samples) of iteration 0` differs between ranks: rank 0 has 2, rank 1 has 3" in fit(groups, n_samples=lambda rank: 2 + rank)
        assert "sampling (sample_mode)" in fit(groups, sample_mode=lambda rank: ["linear_resample", "nonlinear_resample"][rank])
        assert "seed" in fit(groups, seed=lambda rank: rank)
    assert "fit: `data` differs between ranks" in fit(2, data=lambda rank: np.arange(4.0) + 9 * rank)


def test_a_state_with_other_samples_or_more_iterations_is_refused(tmp_path):
    likelihood, state = mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line()), {"odir": tmp_path / "state", "resume": True}
    mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=1, **state)
    for other, text in [((2, 3), "2 samples after 2 iterations, and this call asks for 6 after 2"), ((1, 1), "asks for 2 after 1")]:
        with pytest.raises(ValueError, match=text):
            mi.optimize_kl(likelihood, n_total_iterations=other[0], n_samples=other[1], **state)
    samples, reports = mi.optimize_kl(likelihood, n_total_iterations=3, n_samples=3, **state)
    assert (len(samples), len(reports)) == (6, 3)


def test_messages_are_in_the_words_of_the_caller():
    made, model = mi.CorrelatedFieldMaker(), line(8)
    for error, text, wrong in [
        (ValueError, r"expected shape \(8,\)", lambda: model(np.zeros(7))),
        (ValueError, r"gives <cells of \(8,\)> with sides \(8.0,\), the next one takes <cells of \(8,\)> with sides \(2.0,\)",
         lambda: model.then(op.pointwise("fn f(y: f32) -> f32 { return y; }", "f", op.Space(y=op.cells(8, size=2.0)), "z"))),
        (ValueError, "distances: expected one number or 1, one for each axis, got 2", lambda: made.add_fluctuations(8, (1.0, 1.0), (1.0, 0.5), (-3.0, 0.5))),
        (ValueError, "offset_std: expected a number or a pair", lambda: made.set_amplitude_total_offset(1, None)),
        (TypeError, "offset_mean: expected a number, got None", lambda: made.set_amplitude_total_offset(None, 1)),
        (TypeError, "callback: expected a function", lambda: mi.optimize_kl(mi.Gaussian(np.zeros(8)).amend(model), n_total_iterations=1, callback=3)),
    ]:
        with pytest.raises(error, match=text):
            wrong()


def test_fits_have_the_same_bits_on_any_number_of_ranks():
    def body(comm):
        likelihood, rate = problem(comm)
        samples, _ = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=1, **FEW)
        return np.asarray(samples.mean(rate))

    likelihood, rate = problem()
    samples, _ = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=1, **FEW)
    assert np.array_equal(np.concatenate(meshloom.ranks(2, body)), np.asarray(samples.mean(rate)))


def found_by(samples, reports, rate):
    """What a fit has found, of this rank."""
    fields = [samples.pos, *(samples[at] for at in range(len(samples)))]
    told = [report._replace(seconds=0.0) for report in reports]
    return [{name: np.asarray(value) for name, value in one.items()} for one in fields], told, [np.asarray(one) for one in samples.mean_and_std(rate)]


def assert_same(one, other):
    assert one[1] == other[1]
    for mine, others in zip([*one[0], *({"rate": part} for part in one[2])], [*other[0], *({"rate": part} for part in other[2])]):
        for name, value in mine.items():
            assert np.array_equal(value, others[name]), name


def fit_in_groups(comm, groups):
    """A fit whose first iteration draws fewer samples than there may be groups, and what it has found."""
    group = mi.sample_groups(comm, groups)
    assert (group.size, group.rank) == (comm.size // groups, comm.rank % (comm.size // groups))
    likelihood, rate = problem(group)
    samples, reports = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=lambda at: 2 * at, seed=3, **FEWER)
    assert len(samples) == 4
    return found_by(samples, reports, rate), mi.evidence(likelihood, samples, directions=2, probes=2, steps=2)[:3]


def test_groups_of_samples_have_the_same_bits():
    one, evidence = fit_in_groups(mi.sample_groups(None, 1), 1)
    # Two groups of a rank each hold whole fields; one group of two ranks cuts them.
    for found, bound in meshloom.ranks(2, lambda comm: fit_in_groups(comm, 2)):
        assert_same(found, one)
        assert bound == evidence
    (first, bound), (second, _) = meshloom.ranks(2, lambda comm: fit_in_groups(comm, 1))
    assert bound == evidence and first[1] == one[1]
    assert np.array_equal(np.concatenate([first[2][0], second[2][0]]), one[2][0])
    for found, bound in meshloom.ranks(4, lambda comm: fit_in_groups(comm, 2))[::2]:
        assert bound == evidence and found[1] == one[1]
        assert np.array_equal(found[2][1], one[2][1][:3])


def test_wrong_groups_of_samples():
    def unequal(comm):
        with pytest.raises(ValueError, match="divides the ranks"):
            mi.sample_groups(comm, 2)
        # More groups than any iteration has samples.
        likelihood, _ = problem(mi.sample_groups(comm, 3))
        with pytest.raises(ValueError, match="nothing to do"):
            mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=1, **FEW)
        # Arrays and models of all ranks are not those of a group.
        sky = maker((6, 4)).finalize(comm)
        with pytest.raises(ValueError, match="the same comm"):
            likelihood.amend(sky)
        return likelihood.degrees_of_freedom

    assert meshloom.ranks(3, unequal) == [24] * 3
    with pytest.raises(ValueError):
        mi.sample_groups(None, 0)


def test_a_rank_that_fails_ends_the_fits_of_other_groups():
    def body(comm):
        group = mi.sample_groups(comm, 2)

        def callback(samples, report):
            if comm.rank == 1:
                raise KeyError("the second rank gives up")

        mi.optimize_kl(problem(group)[0], n_total_iterations=3, n_samples=1, callback=callback, **FEWER)

    with pytest.raises(KeyError, match="gives up"):
        meshloom.ranks(2, body)


def at_points(comm=None):
    """Data at points of a field, of which each rank has those in its cells, and the model of them."""
    sky = maker((6, 4)).finalize(comm)
    rng = np.random.default_rng(6)
    points = rng.random((17, 2)) * [3.0, 2.0]
    data = 1.5 + np.sin(points[:, 0]) + 0.1 * rng.standard_normal(17)
    noise = 0.1 + 0.1 * rng.random(17)
    if comm is not None:
        # Rows of cells are dealt in blocks; a cell is half a unit long.
        rows = np.array_split(np.arange(6), comm.size)[comm.rank]
        own = np.isin(np.floor(points[:, 0] / 0.5), rows)
        points, data, noise = points[own], data[own], noise[own]
    there = sky.then(op.readout(sky.target, points, comm=comm))
    return mi.Gaussian(data, noise).amend(there), sky


def fit_at_points(comm=None):
    likelihood, sky = at_points(comm)
    samples, reports = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, **FEWER)
    return np.asarray(samples.mean(sky)), [report._replace(seconds=0.0) for report in reports], likelihood.degrees_of_freedom


def test_fits_of_data_at_points_have_the_same_bits_on_any_number_of_ranks():
    whole, told, count = fit_at_points()
    assert count == 17 and np.isfinite(told[-1].energy)
    for ranks in (2, 3):
        parts = meshloom.ranks(ranks, fit_at_points)
        assert all(part[1:] == (told, count) for part in parts)
        assert np.array_equal(np.concatenate([part[0] for part in parts]), whole)


def fit_on_a_line(comm=None):
    sky = maker(12).finalize(comm)
    rate = sky.then(op.pointwise("fn f(field: f32) -> f32 { return exp(field); }", "f", sky.target, "rate", comm=comm))
    counts = np.random.default_rng(5).poisson(np.exp(1.5 + np.sin(np.arange(12) / 3)))
    own = counts if comm is None or comm.rank == 0 else counts[:0]
    samples, reports = mi.optimize_kl(mi.Poissonian(own).amend(rate), n_total_iterations=1, n_samples=1, **FEWER)
    at = samples.pos
    again = mi.optimize_kl(mi.Poissonian(own).amend(rate), at, n_total_iterations=0)[0]
    assert all(np.array_equal(value, again.pos[name]) for name, value in at.items())
    return np.asarray(samples.mean(rate)), [report._replace(seconds=0.0) for report in reports]


def test_a_line_lies_on_the_first_rank():
    whole, told = fit_on_a_line()
    (first, first_told), *others = meshloom.ranks(3, fit_on_a_line)
    assert np.array_equal(first, whole) and first_told == told
    assert all(part.shape == (0,) and other == told for part, other in others)


def test_constants_and_errors_of_callbacks():
    likelihood, rate = problem()
    start = likelihood.random(seed=1, scale=0.5)
    samples, _ = mi.optimize_kl(likelihood, start, n_total_iterations=1, n_samples=1, constants=["sky/slope"], point_estimates=["sky/slope"], **FEW)
    assert np.array_equal(np.asarray(samples.pos["sky/slope"]), np.asarray(start["sky/slope"]))
    assert np.array_equal(np.asarray(samples[1]["sky/slope"]), np.asarray(start["sky/slope"]))
    with pytest.raises(ZeroDivisionError):
        mi.optimize_kl(likelihood, n_total_iterations=1, progress=lambda *_: 1 / 0, **FEW)
    # The device is at work for the fit: no hang, but words.
    with pytest.raises(meshloom.Error, match="takes no other one meanwhile"):
        mi.optimize_kl(likelihood, n_total_iterations=1, progress=lambda *_: likelihood.random(), **FEW)

    class Bar:
        total, done = None, 0

        def update(self, n):
            self.done += n

    bar = Bar()
    mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=0, progress=bar, **FEW)
    assert (bar.total, bar.done) == (2, 2)


def test_wrong_inferences():
    space = op.Space(x=op.cells(4))
    double = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", space, "y")
    good = mi.Gaussian(np.zeros(4)).amend(double)
    made = mi.CorrelatedFieldMaker()
    for error, wrong in [
        (ValueError, lambda: mi.Gaussian(np.zeros(3)).amend(double)),
        (ValueError, lambda: mi.Gaussian([0, 0, np.nan, 0]).amend(double)),
        (ValueError, lambda: mi.Gaussian(np.zeros(4), -1.0).amend(double)),
        (ValueError, lambda: mi.Gaussian(np.zeros(4), np.ones(3))),
        (ValueError, lambda: mi.Gaussian(np.zeros(4), mask=np.zeros(4, bool)).amend(double)),
        (ValueError, lambda: mi.Gaussian(np.zeros(4), mask=np.zeros(4))),
        (TypeError, lambda: mi.Gaussian(["a"])),
        (TypeError, lambda: mi.Gaussian(np.zeros(4), name=3)),
        (TypeError, lambda: mi.Gaussian(np.zeros(4)).amend(3)),
        (ValueError, lambda: mi.Poissonian([-1, 0, 0, 0]).amend(double)),
        (ValueError, lambda: mi.StudentT(np.zeros(4), -1.0).amend(double)),
        (ValueError, lambda: mi.VariableCovarianceGaussian(np.zeros(4)).amend(double)),
        (ValueError, lambda: mi.Categorical([0, 3], 3)(np.zeros((3, 2)))),
        (ValueError, lambda: good + good),
        (TypeError, lambda: good + 1),
        (TypeError, lambda: good(None)),
        (ValueError, lambda: good({"z": np.zeros(4)})),
        (ValueError, lambda: mi.NormalPrior(0.0, -1.0, space)),
        (ValueError, lambda: made.finalize()),
        (ValueError, lambda: made.add_fluctuations(4, 1.0, (1, 0.1), (-2, 0.1), asperity=(1, 0.1))),
        (ValueError, lambda: made.add_fluctuations(4, 1.0, (1, 0.1, 3), (-2, 0.1))),
        (TypeError, lambda: mi.optimize_kl(double, n_total_iterations=1)),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=-1)),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, sample_mode="bent")),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, constants=["z"])),
        (TypeError, lambda: mi.optimize_kl(good, n_total_iterations=1, constants="x")),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, kl_kwargs={"maxiter": 3})),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, kl_kwargs={"minimize_kwargs": {"tol": 3}})),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, kl_kwargs={"minimize_kwargs": {"xtol": -3}})),
        (ValueError, lambda: mi.optimize_kl(good, n_total_iterations=1, resume=True)),
        (ValueError, lambda: mi.optimize_kl(good, np.zeros(5), n_total_iterations=1)),
        (meshloom.Error, lambda: mi.optimize_kl(good, np.full(4, np.nan), n_total_iterations=1)),
    ]:
        with pytest.raises(error):
            wrong()


def test_a_function_in_place_of_a_model_is_an_error_with_a_remedy():
    with pytest.raises(TypeError, match="expected a model, not function; make one by operators.from_jax or operators.custom"):
        mi.Gaussian([1.0]).amend(lambda x: x)


def test_data_are_checked_where_they_are_given():
    counts = np.ma.masked_array([5, 9, -1], mask=[False, True, True])
    assert mi.Poissonian(counts).degrees_of_freedom == 1
    assert mi.Poissonian(counts, mask=np.array([True, False, False])).degrees_of_freedom == 1
    values = np.ma.masked_array([1.0, np.nan], mask=[False, True])
    assert mi.Gaussian(values, noise_std=0.5).degrees_of_freedom == 1
    own = [lambda comm: mi.Poissonian([-1], comm=comm), lambda comm: mi.Poissonian([1.5], comm=comm), lambda comm: mi.Gaussian([np.nan], comm=comm),
           lambda comm: mi.Gaussian([1.0], noise_std=0.0, comm=comm), lambda comm: mi.Gaussian([1.0, 2.0], noise_std=[1.0, -1.0], comm=comm)]
    for make in own:
        with pytest.raises(ValueError):
            meshloom.ranks(1, make)
    with pytest.raises(TypeError, match="str of WGSL, not ufunc"):
        op.pointwise(np.exp, "exp", op.Space(x=op.cells(3)), "y")


FOUR, PAIR = op.Space(x=op.cells(4)), (1.0, 0.1)


@pytest.mark.parametrize("wrong, text", [
    (lambda: mi.VariableCovarianceGaussian([np.nan]), "data: expected finite"),
    (lambda: mi.VariableCovarianceStudentT([1.0], -1), "dof: expected a positive"),
    (lambda: mi.CorrelatedFieldMaker().set_amplitude_total_offset(np.inf, PAIR), "offset_mean: expected a finite number"),
    (lambda: mi.CorrelatedFieldMaker().set_amplitude_total_offset(0.0, (-1.0, 0.1)), "offset_std: expected a positive mean .log-normal"),
    (lambda: mi.CorrelatedFieldMaker().add_fluctuations(8, 1.0, (0.0, 0.1), PAIR), "fluctuations: expected a positive mean .log-normal"),
    (lambda: mi.CorrelatedFieldMaker().add_fluctuations(8, 1.0, PAIR, (np.nan, 0.1)), "loglogavgslope: expected a finite mean"),
    (lambda: mi.CorrelatedFieldMaker().add_fluctuations(8, 1.0, (1.0, -0.1), PAIR), "standard deviation of 0 or more"),
    (lambda: mi.CorrelatedFieldMaker().add_fluctuations(8, -1.0, PAIR, PAIR), "distances: expected positive"),
    (lambda: op.cells(8, size=-1.0), "size: expected positive"),
    (lambda: op.cells((8, 8), size=(1.0, np.nan)), "size: expected positive"),
])
def test_constructors_refuse_impossible_numbers(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()


def test_constructors_refuse_values_of_other_types():
    for text, wrong in {
        "prefix: expected a str": lambda: mi.CorrelatedFieldMaker(3),
        "size: expected a number": lambda: op.cells(8, size="x"),
        "shape: expected an integer": lambda: op.cells(2.5),
        "function: expected a name": lambda: op.pointwise("fn f(x: f32) -> f32 { return x; }", np.exp, FOUR, "y"),
    }.items():
        with pytest.raises(TypeError, match=text):
            wrong()


def test_the_maker_shows_its_groups():
    maker = mi.CorrelatedFieldMaker("sky")
    maker.add_fluctuations((8, 4), 1.0, PAIR, PAIR)
    assert repr(maker) == "<meshloom.inference.CorrelatedFieldMaker 'sky': groups of cells [(8, 4)]>"


def test_flat_vectors_of_the_right_size_are_fields():
    space = op.Space(x=op.cells((4, 3, 2)))
    model = op.stencil(space, {(0, 0, 0): 1.0, (0, 1, 0): 2.0})
    x = np.random.default_rng(5).normal(size=(4, 3, 2)).astype(np.float32)
    at, flat = model.at(x), model.at(x.ravel())
    assert np.array_equal(flat.value, at.value) and flat.value.shape == (4, 3, 2)
    assert np.array_equal(flat.vjp(x.ravel()), at.vjp(x)) and np.array_equal(model(meshloom.asarray(x.ravel())), at.value)
    likelihood = mi.Gaussian(np.zeros((4, 3, 2))).amend(model)
    energy, gradient = likelihood.value_and_grad(x.ravel())
    assert (energy, gradient.shape) == (likelihood(x), (4, 3, 2))
    for wrong in (np.zeros(23), np.zeros((6, 4))):
        with pytest.raises(ValueError, match="or a flat vector of 24 numbers"):
            model(wrong)


def test_a_preconditioner_saves_steps():
    sky = maker((24, 20), flexibility=(0.5, 0.2), asperity=(0.3, 0.1)).finalize()
    rate = sky.then(op.pointwise("fn f(x: f32) -> f32 { return exp(x); }", "f", sky.target, "rate"))
    truth = sky.random(seed=3)
    likelihood = mi.Poissonian(np.round(np.asarray(rate(truth)))).amend(rate)
    fit = {"n_total_iterations": 1, "n_samples": 1, "sample_mode": "linear_resample"}
    fit["draw_linear_kwargs"] = {"cg_kwargs": {"resnorm": 0.01, "maxiter": 1000}}
    steps = {}
    for how in ("off", "fields", "always"):
        _, [report] = mi.optimize_kl(likelihood, truth, preconditioning=how, **fit)
        assert report.unconverged_samples == 0
        steps[how] = report.sample_steps
    assert steps["fields"] == steps["always"] and 2 * steps["fields"] < steps["off"], steps


def test_priors_have_arrays_of_parameters_and_inverses():
    x = np.array([-1.5, 0.0, 2.0])
    low, wide = np.array([-1.0, 0.5, 2.0]), np.array([0.5, 1.0, 4.0])
    makers = [
        (mi.NormalPrior, (low, wide)),
        (mi.LogNormalPrior, (wide, np.array([0.1, 2.0, 1.0]))),
        (mi.UniformPrior, (low, low + wide)),
        (mi.UniformPrior, (-2.0, low + 3)),
        (mi.LaplacePrior, (wide,)),
        (mi.InvGammaPrior, (1.5, wide)),
    ]
    for make, parameters in makers:
        for leaf, rtol in ((op.vector(3), 2e-5), (op.parameters(3), 1e-12), (op.cells(3), 2e-5)):
            prior = make(*parameters, leaf)
            values = np.asarray(prior(x), dtype=np.float64)
            # Each number for itself, in float64.
            wanted = [make(*(float(np.broadcast_to(p, 3)[i]) for p in parameters), op.parameters(1))([x[i]])[0] for i in range(3)]
            assert np.allclose(values, wanted, rtol=rtol, atol=rtol), (make, leaf)
            assert np.allclose(prior.inverse(wanted), x, atol=1e-8), make
            assert np.allclose(prior(prior.inverse(wanted)), wanted, rtol=rtol, atol=rtol)
    for make, parameters, text in [
        (mi.NormalPrior, (0.0, [1.0, -1.0, 1.0]), "positive `std`, got 0 and -1 at index (1,)"),
        (mi.UniformPrior, ([0.0, 1.0, 5.0], 3.0), "`a_min` below `a_max`, got 5 and 3 at index (2,)"),
        (mi.LogNormalPrior, ([1.0, 2.0], 1.0), "shape (3,), got (2,)"),
        (mi.LaplacePrior, ([1.0, np.inf, 1.0],), "finite numbers, got inf"),
        (mi.InvGammaPrior, ([1.0, 1.0, 1.0], 1.0), "only `scale` may be an array"),
    ]:
        with pytest.raises(ValueError, match=re.escape(text)):
            make(*parameters, op.vector(3))
    with pytest.raises(ValueError, match="index 1: value 7 of a uniform prior from 2 to 6: expected a value above 2 and below 6"):
        mi.UniformPrior(2.0, 6.0, op.vector(2)).inverse([3.0, 7.0])


def test_seven_cosmological_parameters_have_a_prior_each():
    run = op.simulation(8, 8, 64.0, steps=2, window="tsc", with_cosmology=True)
    mean, std = run.own_cosmology, np.array([0.02, 0.002, 0.03, 0.01, 1e-10, 0.05, 0.1])
    theta = mi.NormalPrior(mean, std, op.Space(theta=op.parameters(7)), "cosmology")
    noise = mi.NormalPrior(0.0, 1.0, op.Space(white_noise=op.cells((8, 8, 8), size=64.0)))
    model = theta.zip(noise).then(run)
    x = {"theta": theta.inverse(mean + 0.5 * std), "white_noise": np.random.default_rng(3).normal(size=(8, 8, 8))}
    assert np.allclose(x["theta"], 0.5)
    truth = {"cosmology": mean + 0.5 * std, "white_noise": x["white_noise"]}
    assert np.allclose(model(x), run(truth), rtol=1e-5)
    likelihood = mi.Gaussian(np.ones((8, 8, 8)), 0.3).amend(model)
    gradient = likelihood.value_and_grad(x)[1]["theta"]
    for at in (0, 4, 5):
        energies = []
        for sign in (1, -1):
            moved = {**x, "theta": x["theta"] + sign * 0.25 * (np.arange(7) == at)}
            energies.append(likelihood(moved))
        assert np.isclose((energies[0] - energies[1]) / 0.5, gradient[at], rtol=0.03), at


def test_amplitudes_and_power_spectra_are_models():
    maker = mi.CorrelatedFieldMaker("sky")
    maker.set_amplitude_total_offset(0.0, (0.3, 0.1))
    maker.add_fluctuations((8, 6), 0.5, (0.8, 0.3), (-3.0, 0.4), flexibility=(0.5, 0.2))
    sky = maker.finalize()
    x = sky.random(seed=4)
    latent = {name: value for name, value in x.items() if name != "sky/xi"}
    k, wanted = sky.amplitude(x)
    model, power = sky.amplitude_model(), sky.power_spectrum_model()
    assert set(model.domain) == set(latent)
    assert np.allclose(model(latent), wanted, rtol=1e-6)
    assert np.allclose(power(latent), wanted**2 * 12.0, rtol=1e-5)
    likelihood = mi.Gaussian(np.log(wanted), 0.1).amend(op.log(model))
    samples, _ = mi.optimize_kl(likelihood, n_total_iterations=2, n_samples=2)
    mean, std = samples.mean_and_std(power)
    assert mean.shape == k.shape and np.all(np.asarray(std) > 0)
    with pytest.raises(ValueError, match="below 1, got 1"):
        sky.amplitude_model(1)


def hyperparameters(fluctuations, slope, prefix="sky"):
    maker = mi.CorrelatedFieldMaker(prefix)
    maker.set_amplitude_total_offset(0.5, (0.2, 0.1))
    maker.add_fluctuations((12, 12), 1 / 12, fluctuations=fluctuations, loglogavgslope=slope)
    return maker.finalize()


def test_hyperparameters_may_be_models():
    size = mi.LogNormalPrior(0.8, 0.2, op.Space(size=op.vector(1)))
    steep = mi.NormalPrior(-3.0, 0.4, op.Space(steep=op.vector(1)))
    plain, field = hyperparameters((0.8, 0.2), (-3.0, 0.4)), hyperparameters(size, steep)
    assert set(field.domain) == {"size", "steep", "sky/xi", "sky/zero_mode"}
    x = plain.random(seed=3)
    y = {**x, "size": x["sky/fluctuations"], "steep": x["sky/slope"]}
    assert np.allclose(np.asarray(field(y)), np.asarray(plain(x)), rtol=1e-4, atol=1e-5)
    for one, other in ((plain.amplitude(x)[1], field.amplitude(y)[1]), (plain.amplitude_model()(x), field.amplitude_model()(y))):
        assert np.allclose(np.asarray(one), np.asarray(other), rtol=1e-4)
    assert set(field.power_spectrum_model().domain) == {"size", "steep", "sky/zero_mode"}
    assert field.check_adjoint().difference <= field.check_adjoint().tolerance
    # One number for two fields, and other priors.
    shared = mi.InvGammaPrior(3.0, 1.0, op.Space(size=op.vector(1)))
    both = hyperparameters(shared, steep, "one") + hyperparameters(2.0 * shared, -3.0, "two")
    assert set(both.domain) == {"size", "steep", "one/xi", "one/zero_mode", "two/xi", "two/zero_mode"}
    # The preconditioner still finds the modes of the field.
    data = np.asarray(field(y)) + 0.1 * np.random.default_rng(2).standard_normal((12, 12))
    steps = []
    for preconditioning in ("fields", "off"):
        likelihood = mi.Gaussian(data, 0.1).amend(field)
        linear = {"cg_kwargs": {"maxiter": 500}}
        _, reports = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1, preconditioning=preconditioning, draw_linear_kwargs=linear)
        steps.append(reports[0].sample_steps)
    assert 2 * steps[0] < steps[1], steps
    with pytest.raises(ValueError, match="fluctuations: expected a model of a vector of 1 number"):
        hyperparameters(mi.NormalPrior(0.0, 1.0, op.cells(3)), -3.0)


def test_arguments_are_replaced_by_models():
    product = op.pointwise("fn f(a: f32, b: f32) -> f32 { return a * b; }", "f", op.Space(a=op.cells(3), b=op.cells(3)), "y")
    twice = op.rename(op.diagonal(op.Space(a=op.cells(3)), [2.0, 4.0, 8.0]), {"a": "b"})
    model = product.substitute(twice)
    # Both models take `a`, which is one argument of the result.
    assert list(model.domain) == ["a"] and np.allclose(np.asarray(model([1.0, 2.0, 5.0])), [2.0, 16.0, 200.0])
    assert model.check_adjoint().difference <= model.check_adjoint().tolerance
    with pytest.raises(ValueError, match="c"):
        product.substitute(twice.rename({"b": "c"}))
    with pytest.raises(ValueError, match="cells of"):
        product.substitute(op.rename(op.diagonal(op.Space(a=op.cells(4)), [2.0] * 4), {"a": "b"}))
