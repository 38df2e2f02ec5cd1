"""Markov chains beside closed forms."""

import numpy as np
import pytest

import meshloom
from meshloom import inference as mi, operators as op


def measured_twice():
    """Two numbers with other precisions, and the mean and deviation of their posterior."""
    model = op.diagonal(op.Space(x=op.cells(2)), [1.0, 3.0])
    likelihood = mi.Gaussian([2.0, 6.0]).amend(model)
    return likelihood, model, np.array([1.0, 1.8]), np.array([0.5, 0.1]) ** 0.5


@pytest.mark.parametrize("options", [{}, {"algorithm": "hmc", "n_steps": 4}, {"algorithm": "mclmc", "n_steps": 3, "length": 3.0}])
def test_draws_follow_the_posterior(options):
    likelihood, model, mean, std = measured_twice()
    told = []
    chains = mi.sample(likelihood, n_warmup=100, n_draws=200, n_chains=2, seed=1, progress=lambda *what: told.append(what), **options)
    assert told[0] == (0, 300, "warm-up") and told[-1] == (299, 300, "draw") and len(told) == 300
    draws = chains.draws()
    assert draws.shape == (2, 200, 2) and chains.statistics["energy"].shape == (2, 200)
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


def test_chains_are_the_same_on_any_ranks_and_groups():
    def run(comm, groups):
        comm = mi.sample_groups(comm, groups)
        line = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells((4, 2))), "y", comm=comm)
        part = np.array_split(np.arange(8.0).reshape(4, 2), comm.size)[comm.rank]
        chains = mi.sample(mi.Gaussian(part, comm=comm).amend(line), n_warmup=20, n_draws=4, n_chains=2, thinning=2)
        assert (chains.n_chains, chains.n_draws) == (2, 2)
        return chains.statistics["energy"].tobytes(), chains.draws()

    energies, draws = meshloom.ranks(1, lambda comm: run(comm, 1))[0]
    for ranks, groups in [(2, 1), (2, 2)]:
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
        ({"algorithm": "gibbs"}, "algorithm: expected nuts, hmc or mclmc, got .gibbs."),
        ({"n_steps": 3}, "n_steps: nuts has no such option"),
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
