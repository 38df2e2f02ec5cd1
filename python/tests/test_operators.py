"""Models beside NumPy and finite differences."""

import numpy as np
import pytest

import meshloom
from meshloom import operators as op

RNG = np.random.default_rng(7)
RESPONSE = "fn response(s: f32, rate: f32) -> f32 { let flux = exp(s); return flux / (1.0 + rate * flux); }"


def test_a_model_of_functions_and_transforms():
    shape = (8, 12)
    space = op.Space(s=op.cells(shape, 2.0), rate=op.vector(1))
    response = op.pointwise(RESPONSE, "response", space, "counts")
    s, rate = RNG.standard_normal(shape).astype(np.float32), np.array([0.2], np.float32)
    flux = np.exp(s.astype(np.float64))
    want = flux / (1 + 0.2 * flux)
    found = response({"s": s, "rate": rate})
    assert isinstance(found, meshloom.Array) and found.shape == shape
    assert np.abs(np.asarray(found) - want).max() < 1e-6

    model = response.then(op.fourier(response.target))
    assert np.abs(np.asarray(model({"s": s, "rate": rate})) - np.fft.rfft2(want)).max() < 1e-4

    at = response.at({"s": s, "rate": rate})
    ds, dy = (RNG.standard_normal(shape).astype(np.float32) for _ in range(2))
    slope = flux / (1 + 0.2 * flux) ** 2
    jvp = np.asarray(at.jvp({"s": ds, "rate": np.zeros(1, np.float32)}))
    assert np.abs(jvp - slope * ds).max() < 1e-5
    vjp = at.vjp(dy)
    assert np.abs(np.asarray(vjp["s"]) - slope * dy).max() < 1e-5
    by_rate = np.sum(-(flux**2) / (1 + 0.2 * flux) ** 2 * dy)
    assert abs(float(np.asarray(vjp["rate"])[0]) - by_rate) < 1e-4 * np.abs(flux).max() ** 2


def test_adjoints_and_composition():
    space = op.Space(x=op.cells((6, 10)))
    x, y = (RNG.standard_normal((6, 10)).astype(np.float32) for _ in range(2))
    hartley, back = op.hartley(space), op.hartley(space, adjoint=True)
    assert abs(np.vdot(np.asarray(hartley(x)), y) - np.vdot(x, np.asarray(back(y)))) < 1e-3
    modes = np.fft.fftn(x)
    assert np.abs(np.asarray(hartley(x)) - (modes.real + modes.imag)).max() < 1e-4
    double = op.diagonal(space, np.full((6, 10), 2.0))
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", space, "x")
    assert np.abs(np.asarray((square + double)(x)) - (x * x + 2 * x)).max() < 1e-5
    assert np.abs(np.asarray((square * double)(x)) - 2 * x**3).max() < 1e-4
    assert np.array_equal(np.asarray(square.then(double)(x)), 2 * np.asarray(square(x)))
    both = square.zip(op.pointwise("fn g(x: f32) -> f32 { return -x; }", "g", space, "y"))
    found = both(meshloom.asarray(x))
    assert set(found) == {"x", "y"} and np.array_equal(np.asarray(found["y"]), -x)


def test_models_go_when_nobody_has_them():
    space = op.Space(x=op.cells((4, 4)))
    x = np.ones((4, 4), np.float32)

    def once():
        model = op.pointwise("fn f(x: f32) -> f32 { return sin(x); }", "f", space, "y")
        model.at(x).vjp(x)

    for _ in range(20):
        once()
    before = meshloom.memory()
    for _ in range(200):
        once()
    assert meshloom.memory() == before


def test_wrong_models():
    space = op.Space(x=op.cells((4, 4)))
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", space, "y")
    for error, wrong in [
        (ValueError, lambda: op.pointwise("fn f(x: f32) -> f32 { return x", "f", space, "y")),
        (ValueError, lambda: op.pointwise("fn f(x: f32) -> f32 { return x; }", "g", space, "y")),
        (ValueError, lambda: op.pointwise("fn f(z: f32) -> f32 { return z; }", "f", op.Space(a=op.cells(4), b=op.cells(4)), "y")),
        (ValueError, lambda: square(np.ones((4, 5)))),
        (ValueError, lambda: square({"z": np.ones((4, 4))})),
        (TypeError, lambda: square("x")),
        (TypeError, lambda: square(np.full((4, 4), None))),
        (ValueError, lambda: square.then(op.fourier(op.Space(x=op.cells((5, 4)))))),
        (TypeError, lambda: square.then(3)),
        (TypeError, lambda: square + 1),
        (ValueError, lambda: op.Space()),
        (TypeError, lambda: op.Space(x=3)),
        (ValueError, lambda: op.cells((4, 4, 4, 4))),
        (ValueError, lambda: op.cells((4, 0))),
        (ValueError, lambda: op.cells((4, 4), size=[1.0])),
        (ValueError, lambda: op.diagonal(space, np.ones(3))),
    ]:
        with pytest.raises(error):
            wrong()
