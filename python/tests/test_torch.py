"""Models and likelihoods as functions of PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import meshloom  # noqa: E402
from meshloom import inference as mi, operators as op  # noqa: E402

func = torch.func
RNG = np.random.default_rng(7)
TEXT = "fn f(x: f32, rate: f32) -> f32 { return exp(rate * x); }"


def pair():
    """A function of two leaves, by meshloom and by PyTorch."""
    space = op.Space(x=op.cells((3, 4)), rate=op.vector(1))
    return meshloom.torch.function(op.pointwise(TEXT, "f", space, "y")), lambda x: torch.exp(x["rate"] * x["x"])


def drawn(*batch, dtype=torch.float32):
    return {name: torch.tensor(RNG.uniform(0.5, 1.5, (*batch, *shape)), dtype=dtype) for name, shape in (("x", (3, 4)), ("rate", (1,)))}


def close(one, other, tolerance=1e-5):
    for a, b in zip(*(list(x.values()) if isinstance(x, dict) else [x] for x in (one, other)), strict=True):
        assert a.shape == b.shape and (a - b).abs().max() <= tolerance * b.abs().max(), (a, b)


def test_transformations_agree_with_the_same_function_in_torch():
    f, own = pair()
    x, dx, c = drawn(), drawn(), drawn()["x"]
    close(f(x), own(x))
    close(func.jvp(f, (x,), (dx,))[1], func.jvp(own, (x,), (dx,))[1])
    close(func.vjp(f, x)[1](c)[0], func.vjp(own, x)[1](c)[0])
    close(func.linearize(f, x)[1](dx), func.jvp(own, (x,), (dx,))[1])
    close(func.jacrev(f)(x), func.jacrev(own)(x))
    close(func.jacfwd(f)(x), func.jacfwd(own)(x))
    batch = drawn(2, 5)

    def batched(f):
        def of(x, rate):
            return func.grad(lambda x: (f({**x, "rate": rate}) ** 2).sum())({"x": x})

        return func.vmap(func.vmap(of, (-1, None)), (0, 0))(torch.movedim(batch["x"], 1, -1), batch["rate"][:, 0])["x"]

    close(batched(f), batched(own))
    # Classical use: one leaf needs a gradient, another one does not.
    found = []
    for g in (f, own):
        leaf = x["x"].clone().requires_grad_()
        (g({"x": leaf, "rate": x["rate"]}) * c).sum().backward()
        found.append(leaf.grad)
    close(*found)


def test_types_strides_and_devices():
    f, own = pair()
    x = drawn(dtype=torch.float64)
    x["x"] = torch.as_tensor(RNG.uniform(0.5, 1.5, (4, 6)))[:, ::2].T
    x = {name: one.requires_grad_() for name, one in x.items()}
    y = f(x)
    assert y.dtype == torch.float32 and not x["x"].is_contiguous()
    close(y, own(x))
    y.sum().backward()
    assert x["x"].grad.dtype == torch.float64
    # Differences in single precision: rounding errors of 1e-7 over steps of 1e-2.
    check = dict(eps=1e-2, atol=1e-3, rtol=1e-3, check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda x, rate: f({"x": x, "rate": rate}), (x["x"], x["rate"]), **check)


@pytest.mark.parametrize("make", [op.fourier, op.inverse_fourier])
def test_complex_gradients_follow_the_convention_of_torch(make):
    f = meshloom.torch.function(make(op.cells((4, 6))))
    x, dx = (torch.randn((4, 6)) if make is op.fourier else torch.randn((4, 4), dtype=torch.complex64) for _ in range(2))
    gradient = func.grad(lambda x: (f(x).abs() ** 2).sum() / 2)(x)
    y, dy = func.jvp(f, (x,), (dx,))
    change = (y.conj() * dy).real.sum()
    assert abs((gradient.conj() * dx).real.sum() - change) < 1e-5 * gradient.norm() * dx.norm()


def test_the_gradient_of_a_simulation_is_that_of_the_model():
    options = dict(particles=8, mesh=8, box=32.0, steps=2, window="tsc")
    run, model = meshloom.torch.simulation(**options), op.simulation(**options)
    noise = torch.as_tensor(np.asarray(model.random(1))).requires_grad_()
    at = model.at(noise.detach())
    expected = np.asarray(at.vjp(np.asarray(at.value) - 1))
    (((run(noise) - 1) ** 2).sum() / 2).backward()
    assert np.abs(noise.grad.numpy() - expected).max() <= 1e-6 * np.abs(expected).max()


def test_log_likelihoods_serve_optimizers():
    data = RNG.normal(size=3)
    f = meshloom.torch.log_likelihood(mi.Gaussian(data, 0.5).amend(op.pointwise("fn f(x: f32) -> f32 { return x; }", "f", op.vector(3), "y")))
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = -f(x) + (x**2).sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    # The mean of a Wiener filter.
    assert np.abs(x.detach().numpy() - data / (1 + 0.25)).max() < 1e-4
    assert f(torch.tensor([np.nan, 0.0, 0.0])) == -np.inf


def test_wrong_arguments_are_errors():
    f, _ = pair()
    x = drawn()
    with pytest.raises(ValueError, match=r"`x`: expected shape \(3, 4\) or a flat vector of 12"):
        f({**x, "x": torch.ones(3)})
    with pytest.raises(TypeError, match="`x`: expected real numbers, got complex ones"):
        f({**x, "x": torch.ones((3, 4)) * 1j})
    for second in (lambda g: func.hessian(g)(x), lambda g: func.jacrev(func.jacrev(g))(x), lambda g: func.jacfwd(func.jacfwd(g))(x)):
        with pytest.raises(NotImplementedError, match="expected first derivatives, got a second one"):
            second(lambda x: f(x).sum())
    with pytest.raises(ValueError, match="`white_noise`: expected finite numbers, got nan"):
        meshloom.torch.simulation(8, 8, 32.0, steps=2, window="tsc")(torch.full((8, 8, 8), torch.nan))
    with pytest.raises(TypeError, match="model: expected a model, not ufunc"):
        meshloom.torch.function(np.sin)


def test_dlpack_goes_both_ways():
    tensor = torch.arange(6.0).reshape(2, 3).T
    array = meshloom.asarray(tensor)
    back = torch.from_dlpack(array)
    assert torch.equal(back, tensor) and back.dtype == torch.float32
    back += 1
    assert np.array_equal(np.asarray(array), tensor.numpy())
    with pytest.raises(RuntimeError, match="detach"):
        meshloom.asarray(tensor.requires_grad_())
