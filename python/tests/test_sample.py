"""Markov chains beside closed forms."""

import numpy as np
import pytest

import meshloom
from meshloom import inference as mi, operators as op
from test_comm import told


def measured_twice():
    """Two numbers with other precisions, and the mean and deviation of their posterior."""
    model = op.diagonal(op.Space(x=op.cells(2)), [1.0, 3.0])
    likelihood = mi.Gaussian([2.0, 6.0]).amend(model)
    return likelihood, model, np.array([1.0, 1.8]), np.array([0.5, 0.1]) ** 0.5


@pytest.mark.parametrize("options", [{}, {"algorithm": "hmc", "n_steps": 4}, {"algorithm": "mclmc", "n_steps": 3, "length": 3.0}, {"algorithm": "adjusted_mclmc"}])
def test_draws_follow_the_posterior(options):
    likelihood, model, mean, std = measured_twice()
    told = []
    chains = mi.sample(likelihood, n_warmup=100, n_draws=200, n_chains=2, seed=1, progress=lambda *what: told.append(what), **options)
    assert told[0] == (0, 300, "warm-up") and told[-1] == (299, 300, "draw") and len(told) == 300
    draws = chains.draws()
    assert draws.shape == (2, 200, 2) and chains.statistics["energy"].shape == (2, 200)
    assert (chains.statistics["length"] == {"mclmc": 3.0, "adjusted_mclmc": np.pi / 2**0.5}.get(options.get("algorithm"), 0)).all()
    error = std / np.sqrt(chains.effective_sample_size())
    assert (abs(draws.mean((0, 1)) - mean) < 5 * error).all()
    assert (abs(draws.std((0, 1)) / std - 1) < 0.25).all() and (chains.split_r_hat() < 1.1).all()
    # They are samples of the model, too.
    assert len(chains) == 400 and np.allclose(np.asarray(chains[200]), draws[1, 0])
    assert np.allclose(np.asarray(chains.pos), draws.mean((0, 1)), atol=1e-5)
    of_model, spread = chains.mean_and_std(model)
    assert np.allclose(np.asarray(of_model), draws.mean((0, 1)) * [1, 3], atol=1e-4)
    assert np.allclose(np.asarray(spread), draws.reshape(-1, 2).std(0, ddof=1) * [1, 3], rtol=1e-4)
    assert np.allclose(chains.draws(model), draws * [1, 3], rtol=1e-6)


def test_models_of_other_leaves_are_refused():
    space = op.Space(a=op.cells(2), b=op.cells(2))
    both = op.pointwise("fn f(a: f32, b: f32) -> f32 { return a + b; }", "f", space, "y")
    chains = mi.sample(mi.Gaussian([2.0, 6.0]).amend(both), n_warmup=0, n_draws=1, n_chains=1)
    other = op.pointwise("fn f(a: f32, c: f32) -> f32 { return a + c; }", "f", op.Space(a=op.cells(2), c=op.cells(2)), "y")
    assert chains.draws(both).shape == (1, 1, 2)
    with pytest.raises(ValueError, match=r"the draws have no \['c'\], but \['a', 'b'\]"):
        chains.draws(other)


@pytest.mark.parametrize("options", [{}, {"algorithm": "mclmc", "n_steps": 3}, {"algorithm": "adjusted_mclmc"}])
def test_chains_are_the_same_on_any_ranks_and_groups(options):
    def run(comm, groups):
        comm = mi.sample_groups(comm, groups)
        line = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells((4, 2))), "y", comm=comm)
        part = np.array_split(np.arange(8.0).reshape(4, 2), comm.size)[comm.rank]
        chains = mi.sample(mi.Gaussian(part, comm=comm).amend(line), n_warmup=20, n_draws=4, n_chains=2, thinning=2, **options)
        assert (chains.n_chains, chains.n_draws) == (2, 2)
        return chains.statistics["energy"].tobytes(), chains.draws()

    energies, draws = meshloom.ranks(1, lambda comm: run(comm, 1))[0]
    for ranks, groups in [(3, 1), (2, 2)]:
        found = meshloom.ranks(ranks, lambda comm: run(comm, groups))
        assert all(one[0] == energies for one in found)
        assert np.array_equal(np.concatenate([one[1] for one in found], 2) if groups == 1 else found[1][1], draws)


def test_chains_start_at_samples_of_a_fit():
    likelihood, model, mean, std = measured_twice()
    samples = mi.wiener_filter(likelihood)
    chains = mi.sample(likelihood, samples, n_warmup=0, n_draws=1, n_chains=3)
    assert len(chains) == 3 and len({float(np.asarray(chains[chain])[0]) for chain in range(3)}) == 3


def test_wrong_options_of_samplers_are_refused():
    likelihood, *_ = measured_twice()
    for options, why in [
        ({"algorithm": "gibbs"}, "algorithm: expected nuts, hmc, mclmc or adjusted_mclmc, got .gibbs."),
        ({"n_steps": 3}, "n_steps: nuts has no such option"),
        ({"algorithm": "adjusted_mclmc", "n_steps": 3}, "n_steps: adjusted_mclmc has no such option"),
        ({"algorithm": "hmc", "max_depth": 3}, "max_depth: hmc has no such option"),
        ({"target_acceptance": 1.5}, "acceptance: expected a number between 0 and 1, got 1.5"),
        ({"n_chains": 0}, "n_chains: expected"),
        ({"n_draws": 4, "thinning": 5}, "thinning: expected at most n_draws = 4, got 5"),
    ]:
        with pytest.raises((ValueError, meshloom.Error), match=why):
            mi.sample(likelihood, n_warmup=1, **{"n_draws": 4, **options})
    with pytest.raises(TypeError, match="likelihood"):
        mi.sample(3)


def test_deep_trajectories_are_warned_of():
    likelihood, *_ = measured_twice()
    with pytest.warns(RuntimeWarning, match="trajectories reached max_depth = 1"):
        mi.sample(likelihood, n_warmup=20, n_draws=20, n_chains=1, max_depth=1)


def test_samples_are_mapped():
    likelihood, model, *_ = measured_twice()
    samples = mi.wiener_filter(likelihood)
    found = samples.map(model)
    assert len(found) == 4 and np.array_equal(np.asarray(found[1]), np.asarray(model(samples[1])))
    with pytest.raises(TypeError, match="function"):
        samples.map(3)


def test_chains_go_on_from_a_state(tmp_path):
    likelihood, *_ = measured_twice()
    options = {"n_warmup": 20, "n_chains": 2, "seed": 4, "max_depth": 3}
    whole = mi.sample(likelihood, n_draws=12, **options).draws()
    state = {**options, "odir": tmp_path / "state", "save_every": 5}

    def stop(draw, *_):
        if draw == 26:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mi.sample(likelihood, n_draws=12, progress=stop, **state)
    told = []
    found = mi.sample(likelihood, n_draws=12, resume=True, progress=lambda *what: told.append(what), **state)
    assert np.array_equal(found.draws(), whole) and told[0] == (25, 32, "draw")
    assert np.array_equal(mi.sample(likelihood, n_draws=14, resume=True, **state).draws()[:, :12], whole)
    with pytest.raises(meshloom.Error, match="another seed"):
        mi.sample(likelihood, n_draws=14, resume=True, **{**state, "seed": 5})
    with pytest.raises(meshloom.Error, match="it would be lost"):
        mi.sample(likelihood, n_draws=14, **state)
    with pytest.raises(ValueError, match="expected odir"):
        mi.sample(likelihood, resume=True)


def autoregressive(chains, draws, correlation, seed=1):
    """Chains of variance 1 whose draws at a distance n have the correlation to the power n."""
    noise = np.random.default_rng(seed).standard_normal((chains, draws))
    values = noise.copy()
    for at in range(1, draws):
        values[:, at] = correlation * values[:, at - 1] + np.sqrt(1 - correlation**2) * noise[:, at]
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.3])
def test_statistics_of_autoregressive_chains(correlation):
    tau = (1 + correlation) / (1 - correlation)
    found = mi.statistics(autoregressive(4, 20000, correlation))
    assert found.tau == pytest.approx(tau, rel=0.1) and found.effective_sample_size == pytest.approx(80000 / found.tau)
    assert found.variance == pytest.approx(1, rel=0.1) and found.error_of_mean == pytest.approx(np.sqrt(tau / 80000), rel=0.1)
    assert abs(found.mean) < 4 * found.error_of_mean and abs(found.r_hat - 1) < 0.01
    # Errors of short chains against the deviation of their means.
    many = mi.statistics(autoregressive(1, 2000, correlation, 2)[0])
    means = autoregressive(300, 2000, correlation, 3).mean(axis=1)
    assert many.error_of_mean == pytest.approx(means.std(), rel=0.3)


def test_statistics_on_ranks_and_of_special_chains():
    values = np.stack([autoregressive(5, 101, 0.5), autoregressive(5, 101, 0.8, 4)], axis=2)
    alone = mi.statistics(values)
    assert alone.mean.shape == (2,) and np.array_equal(alone.mean, values.mean(axis=(0, 1)))
    assert all(np.allclose(np.array(mi.statistics(values[..., at])), np.array(alone)[:, at], rtol=1e-12) for at in range(2))
    for ranks in (2, 3, 7):
        for found in meshloom.ranks(ranks, lambda comm: mi.statistics(np.array_split(values, comm.size)[comm.rank], comm=comm)):
            assert all(np.array_equal(*pair) for pair in zip(found, alone))
    assert mi.statistics(np.stack([np.zeros(50), np.ones(50)]) + 1e-3 * autoregressive(2, 50, 0)).r_hat > 5
    equal = mi.statistics(np.full((2, 10), 3.0))
    assert (equal.mean, equal.error_of_mean, equal.variance) == (3, 0, 0) and np.isnan(equal.tau)
    short = mi.statistics([1, 2, 4])
    assert short.mean == 7 / 3 and np.isnan([short.error_of_mean, short.tau, short.r_hat]).all()
    for wrong, text in [(3.0, "expected real numbers of shape"), ([[1j]], "expected real numbers"), ([1.0, np.inf], "got inf"), (np.ones((0, 5)), "at least one draw")]:
        with pytest.raises(ValueError, match=text):
            mi.statistics(wrong)
    kind, said = told(2, lambda comm: mi.statistics(np.ones((2, 4 + comm.rank)), comm=comm))
    assert issubclass(kind, ValueError) and "shape of a chain differs" in said


def normal(draws, comm=None, chunk=64):
    """The logarithm of the density of normal numbers of mean a and deviation exp(s), and a function of both."""
    scaled = lambda z, x: (z - x["a"]) * np.exp(-x["s"])
    by_a, by_s = lambda z, x: scaled(z, x) * np.exp(-x["s"]), lambda z, x: scaled(z, x) ** 2 - 1
    space = op.Space(a=op.parameters(1), s=op.parameters(1))
    log_density = (
        lambda z, x: -0.5 * scaled(z, x) ** 2 - x["s"],
        lambda z, x, dx: by_a(z, x) * dx["a"] + by_s(z, x) * dx["s"],
        lambda z, x, dy: {"a": by_a(z, x) * dy, "s": by_s(z, x) * dy},
    )
    f = (lambda z, x: z**2 * x["a"], lambda z, x, dx: z**2 * dx["a"], lambda z, x, dy: {"a": z**2 * dy, "s": 0 * dy})
    return [op.map_items(one, draws, space, chunk=chunk, comm=comm) for one in (f, log_density)]


def test_derivatives_of_expectations():
    a, s = 0.7, np.log(1.3)
    x = {"a": [a], "s": [s]}
    draws = a + np.exp(s) * np.random.default_rng(3).standard_normal(20000)
    f, log_density = normal(draws)
    # E[z^2] = a^2 + exp(2 s); the same times a depends on a by itself, too.
    for quantity, mean, by in [(draws**2, a**2 + 1.69, [2 * a, 2 * 1.69]), (f, a**3 + 1.69 * a, [3 * a**2 + 1.69, 2 * a * 1.69])]:
        found, gradient = mi.expect(quantity, log_density, x, n_chains=4)
        assert abs(found.mean - mean) < 4 * found.error_of_mean and found.tau == pytest.approx(1, abs=0.2)
        assert np.allclose([gradient["a"][0], gradient["s"][0]], by, atol=0.15)
        # The same estimate written out.
        values = np.float32(draws**2 * a) if quantity is f else draws**2
        score = (values - values.mean()) / len(draws)
        z = (draws - a) / 1.3
        want = [np.sum(score * z / 1.3) + (np.mean(draws**2) if quantity is f else 0), np.sum(score * (z * z - 1))]
        assert np.allclose([gradient["a"][0], gradient["s"][0]], want, rtol=1e-5)


def test_expectations_have_the_same_bits_on_any_number_of_ranks():
    draws = autoregressive(1, 110, 0.5)[0]
    x = {"a": [0.1], "s": [-0.1]}

    def found(comm, chunk):
        f, log_density = normal(draws, comm, chunk)
        values = np.array_split(np.cos(draws), comm.size if comm else 1)[comm.rank if comm else 0]
        return [mi.expect(one, log_density, x, n_chains=2) for one in (f, values)]

    alone = found(None, 64)
    for ranks in (1, 3):
        assert meshloom.ranks(ranks, lambda comm: found(comm, 7)) == [alone] * ranks
    f, log_density = normal(draws)
    for wrong, error, text in [
        (lambda: mi.expect(draws, abs, x), TypeError, "log_density: expected a model"),
        (lambda: mi.expect(draws[1:], log_density, x), ValueError, "f: expected 110 real numbers"),
        (lambda: mi.expect(draws / 0, log_density, x), ValueError, "f: expected finite numbers"),
        (lambda: mi.expect(normal(draws[1:])[0], log_density, x), ValueError, "f: expected 110 draws"),
        (lambda: mi.expect(f, op.hartley(op.cells(110)), x), ValueError, "log_density: expected a model with one real number"),
        (lambda: mi.expect(f, log_density, x, n_chains=4), ValueError, "n_chains: expected a divisor of 110"),
    ]:
        with np.errstate(all="ignore"), pytest.raises(error, match=text):
            wrong()
