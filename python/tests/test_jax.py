"""Models and likelihoods as functions of JAX."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import meshloom  # noqa: E402
from meshloom import inference as mi, operators as op  # noqa: E402

jnp = jax.numpy
RNG = np.random.default_rng(7)
SPACE = op.Space(x=op.cells((3, 4)), rate=op.vector(2), p=op.parameters(2))


def host(x, np=np):
    """The model of `traced` in NumPy or JAX."""
    y = np.exp(x["rate"][0] * x["x"]) * x["rate"][1]
    return {"y": y, "z": x["p"][0] * x["p"] + x["rate"].sum()}


def jvp(x, dx):
    y = host(x)["y"]
    dz = dx["p"][0] * x["p"] + x["p"][0] * dx["p"] + dx["rate"].sum()
    return {"y": y * (dx["rate"][0] * x["x"] + x["rate"][0] * dx["x"] + dx["rate"][1] / x["rate"][1]), "z": dz}


def vjp(x, c):
    y = host(x)["y"]
    dp = x["p"][0] * c["z"]
    dp[0] += x["p"] @ c["z"]
    return {"x": c["y"] * y * x["rate"][0], "rate": np.array([(c["y"] * y * x["x"]).sum(), (c["y"] * y).sum() / x["rate"][1]]) + c["z"].sum(), "p": dp}


def counted():
    """A model in NumPy, and the numbers of its calls."""
    calls = dict.fromkeys(("value", "jvp", "vjp"), 0)

    def counts(name, function, *arguments):
        calls[name] += 1
        return function(*arguments)

    functions = (functools.partial(counts, name, function) for name, function in (("value", host), ("jvp", jvp), ("vjp", vjp)))
    return op.custom(*functions, SPACE, op.Space(y=op.cells((3, 4)), z=op.parameters(2))), calls


def drawn(*batch, names=("x", "rate", "p")):
    return {name: jnp.asarray(RNG.uniform(0.5, 1.5, (*batch, *SPACE.leaves[name].shape[-2:]))) for name in names}


def close(one, other, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.shape == b.shape and np.abs(a - b).max() <= tolerance * np.abs(b).max(), (a, b)


def test_transformations_agree_with_the_same_function_in_jax():
    f = meshloom.jax.function(counted()[0])
    own = functools.partial(host, np=jnp)
    x, dx = drawn(), drawn()
    c = {"y": dx["x"], "z": dx["p"]}

    def loss(f, x):
        y = f(x)
        return (y["y"] ** 2).sum() + jnp.cos(y["z"]).sum()

    def scanned(f, x):
        return jax.lax.scan(lambda x, _: ({**x, "x": jnp.sin(f(x)["y"])}, x["x"].sum()), x, None, length=3)

    def all_of(f, x, dx, c):
        gradient = jax.grad(functools.partial(loss, f))
        return f(x), jax.jvp(f, (x,), (dx,)), jax.vjp(f, x)[1](c), gradient(x), jax.linearize(f, x)[1](dx)

    expected = jax.jit(functools.partial(all_of, own))(x, dx, c)
    close(jax.jit(functools.partial(all_of, f))(x, dx, c), expected)
    close(all_of(f, x, dx, c), expected)
    # Some leaves alone, at two levels, and along another axis than the first.
    rest = drawn(names=("rate",))
    batch = {"x": drawn(2, 5)["x"], "p": jnp.moveaxis(drawn(5)["p"], 0, 1)}

    def batched(f):
        def of(x, p):
            return jax.grad(functools.partial(loss, f))({"x": x, "p": p, **rest})

        return jax.vmap(lambda x: jax.vmap(of, (0, 1))(x, batch["p"]))(batch["x"])

    close(batched(f), jax.jit(batched, static_argnums=0)(own))

    def others(f, x):
        scan = jax.grad(lambda x: scanned(f, x)[1].sum())
        return scan(x), jax.jacrev(f)(x), jax.jacfwd(f)(x), jax.grad(lambda x: loss(jax.checkpoint(f), x))(x)

    found, expected = (jax.jit(functools.partial(others, f))(x) for f in (f, own))
    close(found, expected)


def test_a_gradient_computes_the_value_once_and_forgets_old_points():
    model, calls = counted()
    f = meshloom.jax.function(model)
    at = jax.jit(jax.value_and_grad(lambda x: f(x)["y"].sum()))
    # The operator calls `value` again for each new derivative.
    once = counted()
    once[0].at(drawn()).vjp({"y": np.ones((3, 4)), "z": np.ones(2)})
    for repeats, x in enumerate((drawn(), drawn(), drawn()), 1):
        found = at(x)
        assert calls == {name: repeats * count for name, count in once[1].items()}
        close(found, jax.value_and_grad(lambda x: host(x, jnp)["y"].sum())(x))
    # A value at the last point is known, one elsewhere does not replace the derivative.
    values = calls["value"]
    f(x)
    assert calls["value"] == values
    f(drawn())
    jax.vjp(f, x)[1](f(x))
    assert calls["value"] == values + 1


def test_types_follow_the_precision_of_jax():
    model, _ = counted()
    f = meshloom.jax.function(model)
    gradient = jax.jit(jax.grad(lambda x: f(x)["z"].sum()))
    x = drawn()
    assert {str(one.dtype) for one in jax.tree.leaves((f(x), gradient(x)))} == {"float32"}
    with jax.enable_x64(True):
        x = {name: jnp.asarray(np.asarray(one, np.float64) + 1e-9) for name, one in x.items()}
        assert {name: str(one.dtype) for name, one in f(x).items()} == {"y": "float32", "z": "float64"}
        found = gradient(x)
        assert {str(one.dtype) for one in found.values()} == {"float64"}
        assert np.abs(found["p"] - np.array([2 * x["p"][0] + x["p"][1], x["p"][0]])).max() < 1e-12


@pytest.mark.parametrize("make", [op.fourier, op.inverse_fourier])
def test_complex_derivatives_follow_the_convention_of_jax(make):
    f = meshloom.jax.function(make(op.cells((4, 6))))
    shape = (4, 6) if make is op.fourier else (4, 4)
    x, dx = (jnp.asarray(RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if make is op.inverse_fourier else 0)) for _ in range(2))
    c = jnp.asarray(RNG.normal(size=f(x).shape) + (1j * RNG.normal(size=f(x).shape) if make is op.fourier else 0))
    (g,) = jax.vjp(f, x)[1](c)
    forward = jax.jvp(f, (x,), (dx,))[1]
    scale = float(jnp.linalg.norm(c) * jnp.linalg.norm(forward))
    # JAX pairs tangents and cotangents without a conjugate.
    assert abs((c * forward).sum().real - (g * dx).sum().real) < 1e-5 * scale
    # A transform is linear, so differences have rounding errors only.
    assert np.abs(f(x + dx) - f(x) - forward).max() < 1e-5 * np.abs(forward).max() * 10
    # Steepest ascent of a real function is along the conjugate of the gradient.
    gradient = jax.grad(lambda x: (jnp.abs(f(x)) ** 2).sum())(x)
    expected = 2 * (jnp.conj(f(x)) * forward).sum().real
    assert abs((gradient * dx).sum().real - expected) < 1e-4 * float(jnp.linalg.norm(gradient) * jnp.linalg.norm(dx))


def test_the_gradient_of_a_simulation_is_that_of_the_model():
    options = dict(particles=8, mesh=8, box=32.0, steps=2, window="tsc")
    run, model = meshloom.jax.simulation(**options), op.simulation(**options)
    noise = np.asarray(model.random(1))
    at = model.at(noise)
    assert np.array_equal(jax.jit(run)(noise), at.value)
    expected = np.asarray(at.vjp(np.asarray(at.value) - 1))
    for grad in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        found = grad(lambda noise: ((run(noise) - 1) ** 2).sum() / 2)(jnp.asarray(noise))
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
    dx = np.asarray(model.random(2))
    assert np.array_equal(jax.jvp(run, (jnp.asarray(noise),), (jnp.asarray(dx),))[1], at.jvp(dx))


def test_log_likelihoods_have_the_gradient_of_the_energy():
    space = op.Space(x=op.vector(3), z=op.half_spectrum(4))
    model = op.custom(
        lambda x: np.concatenate([x["x"], x["z"].real, x["z"].imag]) ** 2,
        lambda x, d: 2 * np.concatenate([x["x"], x["z"].real, x["z"].imag]) * np.concatenate([d["x"], d["z"].real, d["z"].imag]),
        lambda x, c: {"x": 2 * x["x"] * c[:3], "z": 2 * (x["z"].real * c[3:6] + 1j * x["z"].imag * c[6:])},
        space,
        op.vector(9),
    )
    likelihood = mi.Gaussian(RNG.normal(size=9)).amend(model)
    f = meshloom.jax.log_likelihood(likelihood)
    x = {"x": jnp.asarray(RNG.normal(size=3)), "z": jnp.asarray(RNG.normal(size=3) + 1j * RNG.normal(size=3))}
    energy, gradient = likelihood.value_and_grad(x)
    value, found = jax.jit(jax.value_and_grad(f))(x)
    assert value == pytest.approx(-energy, rel=1e-6) and value == f(x)
    close(found, {"x": -np.asarray(gradient["x"]), "z": -np.conj(np.asarray(gradient["z"]))}, 1e-6)
    # Where the energy overflows, the gradient is NaN, and samplers reject the point.
    for far in (1e30, np.nan):
        value, found = jax.jit(jax.value_and_grad(f))({**x, "x": x["x"].at[1].set(far)})
        assert value == -np.inf and np.isnan(found["x"]).all()
    with pytest.raises(meshloom.Error, match="number 0 of leaf `x` of its value is inf"):
        likelihood({**x, "x": np.full(3, 1e30)})


def test_numpyro_samples_a_posterior_that_is_known():
    numpyro = pytest.importorskip("numpyro")
    response, data, noise = np.array([[1.0, 0.5], [0.2, -1.0], [0.3, 0.3]]), np.array([1.0, -0.5, 0.4]), 0.5
    f = meshloom.jax.log_likelihood(mi.Gaussian(data, noise).amend(op.matrix(response)))

    def model():
        x = numpyro.sample("x", numpyro.distributions.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.factor("data", f(x))

    draws = 200
    chain = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=100, num_samples=draws, progress_bar=False)
    chain.run(jax.random.key(1))
    x = np.asarray(chain.get_samples()["x"])
    covariance = np.linalg.inv(response.T @ response / noise**2 + np.eye(2))
    mean, std = covariance @ response.T @ data / noise**2, np.sqrt(np.diag(covariance))
    # Four standard errors with an effective sample size of a third of the draws.
    error = 4 / np.sqrt(draws / 3)
    assert (np.abs(x.mean(axis=0) - mean) < error * std).all()
    assert (np.abs(x.std(axis=0) / std - 1) < error / np.sqrt(2)).all()


def test_wrong_arguments_are_errors():
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    f = meshloom.jax.function(square)
    for wrong, error, text in (
        (jnp.ones(3), ValueError, r"`x`: expected shape \(2,\) or a flat vector of 2 numbers, got \(3,\)"),
        (jnp.ones(2) * 1j, TypeError, "`x`: expected real numbers, got complex ones"),
        ({"z": jnp.ones(2)}, ValueError, r"f: expected the leaves \['x'\], got \['z'\]"),
    ):
        with pytest.raises(error, match=text):
            jax.jit(f)(wrong)
    # Leaves of other models are ignored, as by the model itself.
    assert jax.grad(lambda x: f(x).sum())({"x": jnp.ones(2), "other": jnp.ones(3)})["other"].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(TypeError, match="expected a dictionary"):
        meshloom.jax.function(counted()[0])(jnp.ones(3))
    for second in (jax.hessian, lambda f: jax.jit(jax.grad(lambda x: jax.grad(f)(x).sum()))):
        with pytest.raises(NotImplementedError, match="expected first derivatives, got a second one"):
            second(lambda x: f(x).sum())(jnp.ones(2))
    run = meshloom.jax.simulation(8, 8, 32.0, steps=2, window="tsc")
    with pytest.raises(ValueError, match="`white_noise`: expected finite numbers, got nan"):
        run(jnp.full((8, 8, 8), jnp.nan))
    with pytest.raises(Exception, match="`white_noise`: expected finite numbers, got nan"):
        jax.jit(run)(jnp.full((8, 8, 8), jnp.nan))
    with pytest.raises(TypeError, match="model: expected a model, not ufunc"):
        meshloom.jax.function(np.sin)
    with pytest.raises(TypeError, match="likelihood: expected a likelihood, not Model"):
        meshloom.jax.log_likelihood(square)

    def body(comm):
        model = op.hartley(op.cells(8), comm=comm)
        with pytest.raises(ValueError, match="model: expected one rank, got 2"):
            meshloom.jax.function(model)

    meshloom.ranks(2, body)


def test_missing_packages_are_named(monkeypatch):
    from meshloom import jax as bridge, torch

    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    for package, module in (("jax", bridge), ("torch", torch)):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        for make in (lambda: module.function(square), module.simulation):
            with pytest.raises(ImportError, match=f"meshloom.{package} needs the package {package}, which is not installed"):
                make()
