"""Models beside NumPy and finite differences."""

import pickle

import numpy as np
import pytest

import meshloom
from meshloom import inference as mi, operators as op

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


def test_factors_and_kernels_count_for_all_components():
    space = op.Space(x=op.cells((3, 4), components=2))
    x, factors = RNG.standard_normal((2, 3, 4)).astype(np.float32), RNG.standard_normal((3, 4)).astype(np.float32)
    diagonal = op.diagonal(space, factors)
    assert np.abs(np.asarray(diagonal(x)) - factors * x).max() < 1e-6
    convolved = np.fft.ifft2(np.fft.fft2(x) * np.fft.fft2(factors)).real
    assert np.abs(np.asarray(op.convolution(space, factors)(x)) - convolved).max() < 1e-5
    for wrong in (op.diagonal, op.convolution):
        with pytest.raises(ValueError):
            wrong(space, x)
    # Complex values may have complex factors.
    modes = op.Space(y=op.half_spectrum(6))
    y, phase = (RNG.standard_normal(4) + 1j * RNG.standard_normal(4) for _ in range(2))
    assert np.abs(np.asarray(op.diagonal(modes, phase)(y)) - phase * y).max() < 1e-5


@pytest.mark.parametrize("shape", [(7,), (8,), (5, 6), (6, 7), (4, 5, 6), (3, 4, 9)])
def test_an_inverse_transform_solves_the_equation_of_poisson(shape):
    space = op.Space(x=op.cells(shape))
    forward, inverse = op.fourier(space), op.inverse_fourier(space)
    modes = np.fft.rfftn(RNG.standard_normal(shape)) * (1 + 0.3j)
    assert np.abs(np.asarray(inverse(modes)) - np.fft.irfftn(modes, s=shape, axes=range(len(shape)))).max() < 1e-5
    squares = [np.fft.fftfreq(n, 1 / n) ** 2 for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1], 1 / shape[-1]) ** 2]
    laplacian = -sum(np.meshgrid(*squares, indexing="ij"))
    laplacian.flat[0] = np.inf
    source = RNG.standard_normal(shape).astype(np.float32)
    found = forward.then(op.diagonal(forward.target, 1 / laplacian)).then(inverse)(source)
    wanted = np.fft.irfftn(np.fft.rfftn(source) / laplacian, s=shape, axes=range(len(shape)))
    assert np.abs(np.asarray(found) - wanted).max() < 1e-5
    # The adjoint by its definition, with real and imaginary parts as real numbers.
    dx, at = RNG.standard_normal(shape).astype(np.float32), inverse.at(modes)
    cotangent = np.asarray(at.vjp(dx))
    assert np.vdot(np.asarray(at.value), dx) == pytest.approx(np.vdot(modes, cotangent).real, abs=1e-4)


def pairs(model, adjoint):
    """Both sides of the definition of an adjoint, for random fields."""
    x, y = np.asarray(model.random(1)), np.asarray(adjoint.random(2))
    return np.vdot(np.asarray(model(x)), y), np.vdot(x, np.asarray(adjoint(y)))


def test_linear_operators_and_their_adjoints():
    space = op.Space(x=op.cells((6, 8), size=(3.0, 4.0)))
    x = RNG.standard_normal((6, 8)).astype(np.float32)
    kernel = RNG.standard_normal((6, 8)).astype(np.float32)
    positions, mask = RNG.random((5, 2)) * [3.0, 4.0], RNG.random((6, 8)) < 0.3
    ends = RNG.random((2, 4, 2)) * [3.0, 4.0]
    index = RNG.integers(0, 4, (6, 8))
    vector = op.Space(x=op.vector(3))
    convolved = np.fft.ifft2(np.fft.fft2(x) * np.fft.fft2(kernel)).real
    cell, part = np.divmod(positions / 0.5, 1.0)
    near = [[x[int(i + a) % 6, int(j + b) % 8] for (i, j) in cell] for a in (0, 1) for b in (0, 1)]
    weights = [np.prod(np.where([a, b], part, 1 - part), axis=1) for a in (0, 1) for b in (0, 1)]
    three = np.float32([1.0, 2.0, 4.0])
    for make, given, want in [
        (lambda **a: op.convolution(space, kernel, **a), x, convolved),
        (lambda **a: op.stencil(space, {(0, 1): 2.0, (-1, 0): -0.5}, **a), x, 2 * np.roll(x, -1, 1) - 0.5 * np.roll(x, 1, 0)),
        (lambda **a: op.readout(space, positions, **a), x, np.sum(np.array(near) * weights, axis=0)),
        (lambda **a: op.select(space, mask, **a), x, x[mask]),
        (lambda **a: op.select(space, np.argwhere(mask)[::-1].astype(np.uint64), **a), x, x[mask][::-1]),
        (lambda **a: op.gather(vector, space, index, **a), three, np.append(three, 0.0)[index]),
        (lambda **a: op.broadcast(op.Space(x=op.vector(1)), space, **a), np.float32([3.0]), np.full((6, 8), 3.0)),
        (lambda **a: op.lines_of_sight(space, *ends, 0.1, **a), np.ones((6, 8)), np.linalg.norm(ends[1] - ends[0], axis=1)),
        (lambda **a: op.amplitudes(op.Space(xi=op.modes((4, 4))), **a)[0], np.arange(6.0), None),
    ]:
        model, adjoint = make(), make(adjoint=True)
        found = np.asarray(model(given))
        assert want is None or np.abs(found - want).max() < 1e-4, model
        assert np.isclose(*pairs(model, adjoint), rtol=1e-4, atol=1e-4), model
    # What points give another model takes.
    rows = op.readout(space, positions)
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", rows.target, "y")
    assert np.allclose(np.asarray(rows.then(square)(x)), np.asarray(rows(x)) ** 2)


def test_a_derivative_as_a_matrix():
    space = op.Space(x=op.cells(5))
    square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", space, "x")
    x = RNG.standard_normal(5).astype(np.float32)
    hartley = np.fft.fft(np.eye(5)).real + np.fft.fft(np.eye(5)).imag
    assert np.abs(square.then(op.hartley(space)).at(x).jacobian(chunk=2) - hartley * (2 * x)).max() < 1e-5
    few = square.then(op.select(space, np.arange(5) == 3)).at(x).jacobian()
    assert few.shape == (1, 5) and np.abs(few - np.eye(5)[3] * 2 * x).max() < 1e-6


def test_a_run_is_a_model():
    noise = RNG.standard_normal((8, 8, 8)).astype(np.float32)
    options = {"steps": 3, "cosmology": meshloom.Cosmology(w0=-0.9, wa=0.2)}
    run = op.simulation(8, 8, 32.0, observables=["density", "displacement"], with_cosmology=True, checkpoint_every=2, **options)
    point = {"white_noise": noise, "cosmology": run.own_cosmology}
    at = run.at(point)
    sites = np.stack(np.meshgrid(*[np.arange(8) * 4.0] * 3, indexing="ij"))
    positions = (sites + np.asarray(at.value["displacement"])).reshape(3, -1).T % 32.0
    moved = np.abs(positions - meshloom.simulate(8, 8, 32.0, noise=noise, **options).positions)
    assert np.minimum(moved, 32.0 - moved).max() < 1e-4
    tangent = {"white_noise": RNG.standard_normal((8, 8, 8)).astype(np.float32), "cosmology": run.own_cosmology * 0.1}
    cotangent = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in run.target.items()}
    ahead, back = at.jvp(tangent), at.vjp(cotangent)
    assert back["cosmology"].dtype == np.float64 and back["cosmology"].shape == (7,)
    left = sum(np.vdot(np.asarray(ahead[name]), cotangent[name]) for name in ahead)
    right = sum(np.vdot(np.asarray(back[name]), tangent[name]) for name in back)
    assert abs(left - right) < 1e-3 * max(abs(left), 1.0)
    # And it is the slope of the run.
    step = 1e-3
    there = run({name: np.asarray(point[name]) + step * tangent[name] for name in point})["displacement"]
    here = run({name: np.asarray(point[name]) - step * tangent[name] for name in point})["displacement"]
    slope = (np.asarray(there) - np.asarray(here)) / (2 * step)
    # Forces have kinks where a particle comes into another cell; few do within a step.
    assert np.std(slope - np.asarray(ahead["displacement"])) < 0.02 * np.std(slope)


def test_runs_by_sigma8_are_those_by_the_amplitude():
    noise = RNG.standard_normal((8, 8, 8)).astype(np.float32)
    runs = [op.simulation(8, 8, 32.0, steps=2, observables=["displacement"], with_cosmology=True, amplitude=name) for name in ("A_s", "sigma8")]
    assert 0.5 < runs[1].own_cosmology[4] < 1.0
    values = [np.asarray(run({"white_noise": noise, "cosmology": run.own_cosmology})) for run in runs]
    assert np.abs(values[0] - values[1]).max() < 1e-4
    with pytest.raises(ValueError, match="amplitude: expected"):
        op.simulation(8, 8, 32.0, amplitude="sigma_8")


def test_runs_are_observed_at_several_times():
    options = {"steps": 4, "window": "tsc", "observables": ["displacement"]}
    run = op.simulation(8, 8, 32.0, snapshots=[1.0, 0.5], **options)
    noise = RNG.standard_normal((8, 8, 8)).astype(np.float32)
    at = run.at(noise)
    assert np.array_equal(at.value["snapshot_0/displacement"], at.value["displacement"])
    sizes = [np.std(np.asarray(at.value[f"snapshot_{n}/displacement"])) for n in (0, 1)]
    assert 0.4 < sizes[1] / sizes[0] < 0.8
    back = at.vjp({name: np.ones(shape) * (name == "snapshot_1/momentum") for name, shape in run.target.items()})
    assert np.abs(np.asarray(back)).max() > 0.0
    with pytest.raises(ValueError, match="snapshots"):
        op.simulation(8, 8, 32.0, snapshots=[2.0], **options)


def test_particles_are_painted_with_weights():
    positions = (RNG.random((3, 50)) * 9 - 2).astype(np.float32)
    weights = RNG.standard_normal(50).astype(np.float32)
    space = op.Space(position=op.points(50, components=3), weight=op.points(50))
    paint = op.paint(space, op.cells((5, 6, 5), size=(5.0, 6.0, 5.0)), window="cic")
    at = paint.at({"position": positions, "weight": weights})
    want = np.zeros((5, 6, 5))
    low = np.floor(positions).astype(int)
    share = positions - low
    for corner in np.ndindex(2, 2, 2):
        part = np.prod([share[axis] if corner[axis] else 1 - share[axis] for axis in range(3)], axis=0)
        np.add.at(want, tuple((low[axis] + corner[axis]) % want.shape[axis] for axis in range(3)), weights * part * 150 / 50)
    assert np.abs(np.asarray(at.value) - want).max() < 1e-5
    cotangent = RNG.standard_normal((5, 6, 5)).astype(np.float32)
    tangent = {"position": RNG.standard_normal((3, 50)), "weight": RNG.standard_normal(50)}
    back = at.vjp(cotangent)
    right = sum(np.vdot(np.asarray(back[name]), tangent[name]) for name in back)
    assert abs(np.vdot(np.asarray(at.jvp(tangent)), cotangent) - right) < 1e-3
    with pytest.raises(ValueError, match="not finite"):
        paint({"position": positions * np.nan, "weight": weights})
    with pytest.raises(ValueError, match="three components"):
        op.paint(op.Space(x=op.points(4)), op.cells((4, 4, 4)))
    with pytest.raises(ValueError, match="three axes"):
        op.paint(space, op.cells((4, 4)))
    with pytest.raises(ValueError, match="displacements and momenta"):
        op.redshift_space(space)


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
    scaled = "fn f(x: f32, c: f32) -> f32 { return c * x; }"
    run = op.simulation(8, 8, 32.0, steps=2, window="tsc")
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
        (TypeError, lambda: square + "1"),
        (ValueError, lambda: op.Space()),
        (TypeError, lambda: op.Space(x=3)),
        (ValueError, lambda: op.cells((4, 4, 4, 4))),
        (ValueError, lambda: op.cells((4, 0))),
        (ValueError, lambda: op.cells((4, 4), size=[1.0])),
        (ValueError, lambda: op.diagonal(space, np.ones(3))),
        (ValueError, lambda: op.diagonal(space, {"z": np.ones((4, 4))})),
        (ValueError, lambda: op.diagonal(space, np.full((4, 4), np.nan))),
        (ValueError, lambda: op.diagonal(space, meshloom.asarray(np.full((4, 4), np.inf, np.float32)))),
        (ValueError, lambda: op.diagonal(space, np.full((4, 4), 1e38) * 10)),
        (ValueError, lambda: op.convolution(space, np.full((4, 4), np.nan))),
        (ValueError, lambda: op.pointwise(scaled, "f", space, "y", constants={"c": np.full((4, 4), np.nan)})),
        (ValueError, lambda: run(np.full((8, 8, 8), np.nan))),
        (ValueError, lambda: run.at({"white_noise": np.full((8, 8, 8), np.inf)})),
        (ValueError, lambda: op.diagonal(op.fourier(space).target, np.ones((3, 4)))),
        (ValueError, lambda: op.convolution(space, np.ones((4, 3)))),
        (ValueError, lambda: op.stencil(space, {1: 1.0})),
        (ValueError, lambda: op.stencil(space, {})),
        (TypeError, lambda: op.stencil(space, {(0.5, 0): 1.0})),
        (ValueError, lambda: op.readout(space, np.zeros((3, 3)))),
        (ValueError, lambda: op.readout(space, [[0.0, np.nan]])),
        (ValueError, lambda: op.readout(space, [[0.0, 1.0]], window="ngp")),
        (ValueError, lambda: op.select(space, np.ones(4, bool))),
        (ValueError, lambda: op.select(space, [[4, 0]])),
        (ValueError, lambda: op.lines_of_sight(space, [[0.0, 0.0]], [[0.0, 0.0]], 1.0)),
        (ValueError, lambda: op.gather(op.Space(x=op.vector(3)), space, [-1])),
        (ValueError, lambda: op.gather(op.Space(x=op.vector(3)), space, np.zeros(16, int))),
        (ValueError, lambda: op.simulation(8, 8, 32.0, observables=["mass"])),
        (TypeError, lambda: op.simulation(8, 8, 32.0, stepps=3)),
    ]:
        with pytest.raises(error):
            wrong()


def test_models_of_grids_that_are_cut_differently_are_joined():
    plane, cube = np.arange(16.0).reshape(4, 4), np.arange(64.0).reshape(4, 4, 4)

    def joined(comm):
        triple = "fn f(x: f32) -> f32 { return 3.0 * x; }"
        model = op.pointwise(triple, "f", op.Space(x=op.cells((4, 4))), "y", comm=comm)
        model = model.zip(op.pointwise(triple.replace("x", "z"), "f", op.Space(z=op.cells((4, 4, 4))), "w", comm=comm))
        x, z = (np.array_split(values, comm.size)[comm.rank] for values in (plane, cube))
        found = model({"x": x, "z": z})
        return np.asarray(found["y"]), np.asarray(found["w"])

    for count in (1, 2, 3):
        parts = meshloom.ranks(count, joined)
        for number, values in enumerate((plane, cube)):
            # A grid of two axes is one of three with a single plane here.
            found = np.concatenate([part[number].reshape(-1, *values.shape[1:]) for part in parts])
            assert np.array_equal(found, 3 * values)


EXP = "fn f(x: f32) -> f32 { return exp(x); }"


def exp_of(space, comm=None, vjp=lambda x, dy: np.exp(x) * dy):
    return op.custom(np.exp, lambda x, dx: np.exp(x) * dx, vjp, space, name="exp", comm=comm)


def test_a_function_of_numpy_is_the_same_as_in_wgsl():
    space = op.Space(x=op.cells((5, 7)))
    x, d = (RNG.standard_normal((5, 7)).astype(np.float32) for _ in range(2))
    own, wgsl = exp_of(space), op.pointwise(EXP, "f", space, "x")
    assert own.domain == own.target == {"x": (5, 7)}
    at, other = own.at(x), wgsl.at(x)
    for found, want in [(at.value, other.value), (at.jvp(d), other.jvp(d)), (at.vjp(d), other.vjp(d)), (own(x), np.exp(x.astype(float)))]:
        assert np.abs(np.asarray(found) / np.asarray(want) - 1).max() < 1e-6
    assert own.check_derivative().order == pytest.approx(2, abs=0.1)
    assert own.check_adjoint(x).difference <= own.check_adjoint(x).tolerance
    both = own.then(wgsl).zip(op.pointwise(EXP, "f", space, "y"))
    assert np.abs(np.asarray(both(x)["x"]) / np.exp(np.exp(x.astype(float))) - 1).max() < 1e-5


def test_functions_of_several_leaves_and_complex_values():
    domain = op.Space(s=op.cells((3, 4)), rate=op.vector(1), scale=op.parameters(2))
    target = op.Space(z=op.cells((3, 4), complex=True), w=op.parameters(1))

    def value(x):
        assert {name: (array.dtype.kind, array.shape) for name, array in x.items()} == {"s": ("f", (3, 4)), "rate": ("f", (1,)), "scale": ("f", (2,))}
        return {"z": x["rate"] * x["s"] + 1j * np.sin(x["s"]), "w": np.prod(x["scale"], keepdims=True)}

    def jvp(x, d):
        slope = x["rate"] * d["s"] + d["rate"] * x["s"] + 1j * np.cos(x["s"]) * d["s"]
        return {"z": slope, "w": x["scale"][:1] * d["scale"][1:] + x["scale"][1:] * d["scale"][:1]}

    def vjp(x, d):
        s = x["rate"] * d["z"].real + np.cos(x["s"]) * d["z"].imag
        return {"s": s, "rate": np.sum(x["s"] * d["z"].real, keepdims=True).ravel(), "scale": x["scale"][::-1] * d["w"]}

    model = op.custom(value, jvp, vjp, domain, target)
    x = model.random(seed=1)
    z = model(x)["z"]
    assert z.dtype == np.complex64 and np.abs(np.asarray(z).imag - np.sin(np.asarray(x["s"]))).max() < 1e-6
    assert model.check_derivative(x).order == pytest.approx(2, abs=0.1)
    model.check_adjoint(x)


def test_wrong_functions_are_found():
    space = op.Space(x=op.cells(6))
    wrong = exp_of(space, vjp=lambda x, dy: 2 * np.exp(x) * dy)
    wrong.check_derivative()
    with pytest.raises(meshloom.Error, match="`exp` fails its check: the jvp and the vjp disagree.*so the vjp is wrong"):
        wrong.check_adjoint()
    with pytest.raises(meshloom.Error, match="the value and the jvp disagree"):
        op.custom(np.exp, lambda x, dx: dx, lambda x, dy: dy, space).check_derivative()
    with pytest.raises(meshloom.Error, match="so the jvp is wrong"):
        op.custom(np.exp, lambda x, dx: dx, lambda x, dy: np.exp(x) * dy, space).check_adjoint()
    product = lambda x, d: d
    for value, error, text in [
        (lambda x: 1 / 0, ZeroDivisionError, "division"),
        (lambda x: x[1:], ValueError, r"value of custom, `x`: expected shape \(6,\), got \(5,\)"),
        (lambda x: 1j * x, TypeError, "expected real numbers, got complex128"),
        (lambda x: {"y": x}, ValueError, r"expected the leaves \['x'\], got \['y'\]"),
        (lambda x: np.where(np.arange(6) == 4, np.nan, x), meshloom.Error, "gives NaN for number 4 of leaf `x` of its value"),
        (lambda x: 1e300 + x, meshloom.Error, "gives inf for number 0 of leaf `x`"),
        (lambda x: model(x), meshloom.Error, "takes no other one meanwhile"),
    ]:
        model = op.custom(value, product, product, space)
        with pytest.raises(error, match=text):
            model(np.ones(6))
    # The device works on.
    assert np.asarray(op.custom(np.exp, product, product, space)(np.zeros(6))).tolist() == [1.0] * 6
    with pytest.raises(TypeError, match="jvp: expected a function"):
        op.custom(np.exp, None, product, space)
    with pytest.raises(TypeError, match="version"):
        op.custom(np.exp, product, product, space, version=2)


def test_functions_on_ranks_see_their_part():
    field, d = (RNG.standard_normal((5, 4)).astype(np.float32) for _ in range(2))

    def body(comm):
        space = op.Space(x=op.cells((5, 4)), rate=op.vector(1))
        product = lambda x, dx: {"x": dx["rate"] * x["x"] + x["rate"] * dx["x"]}
        back = lambda x, dy: {"x": x["rate"] * dy, "rate": np.array([np.sum(x["x"] * dy)])}
        model = op.custom(lambda x: x["rate"] * x["x"], product, back, space, op.Space(x=op.cells((5, 4))), comm=comm)
        own = [np.array_split(one, comm.size)[comm.rank] for one in (field, d)]
        model.check_adjoint()
        at = model.at({"x": own[0], "rate": [2.0]})
        with pytest.raises(ValueError, match="leaf `x` of the target is replicated, but leaf `rate`|is replicated, but leaf `x` is distributed"):
            op.custom(np.sum, product, back, op.cells((5, 4)), op.vector(1), comm=comm)
        failing = op.custom(lambda x: x / (0 if comm.rank == 1 else 1) if comm.rank != 1 else 1 // 0, product, back, op.cells((5, 4)), name="mine", comm=comm)
        with pytest.raises(meshloom.Error) as error:
            failing(own[0])
        return np.asarray(at.value), float(np.asarray(at.vjp(own[1])["rate"])[0]), str(error.value), type(error.value.__cause__)

    (one, sum_, text, cause), (other, same, second, second_cause) = meshloom.ranks(2, body)
    assert np.array_equal(np.concatenate([one, other]), 2 * field)
    assert sum_ == same and abs(sum_ - np.vdot(field, d)) < 1e-4
    assert cause is type(None) and second_cause is ZeroDivisionError
    assert "rank 1: operator `mine (value)`: ZeroDivisionError" in text and "ZeroDivisionError" in second


def test_matrices_dense_and_sparse():
    sparse = pytest.importorskip("scipy.sparse")
    dense = RNG.standard_normal((5, 8)) * (RNG.random((5, 8)) < 0.5)
    dense[2] = 0
    x, y = RNG.standard_normal(8).astype(np.float32), RNG.standard_normal(5).astype(np.float32)
    row, column = np.nonzero(dense)
    # Half of each entry twice.
    twice = sparse.coo_array((np.tile(dense[row, column] / 2, 2), (np.tile(row, 2), np.tile(column, 2))), shape=(5, 8))
    for given in (dense, sparse.csr_array(dense), sparse.csc_matrix(dense), twice):
        model = op.matrix(given)
        assert (dict(model.domain), dict(model.target)) == ({"x": (8,)}, {"y": (5,)})
        assert np.abs(np.asarray(model(x)) - dense @ x).max() < 1e-5
        assert np.abs(np.asarray(op.matrix(given, adjoint=True)(y)) - dense.T @ y).max() < 1e-5
        assert model.check_derivative().order is None and model.check_adjoint()
    cells = op.matrix(dense, op.cells((2, 4)), "d")
    assert np.abs(np.asarray(cells(x.reshape(2, 4))) - dense @ x).max() < 1e-5
    with pytest.raises(ValueError, match="one leaf of 8 numbers"):
        op.matrix(dense, op.cells(9))
    for wrong in (np.ones(3), [[np.nan]], [[1e300]], [[1j]], np.ones((0, 3))):
        with pytest.raises(ValueError, match="A: expected"):
            op.matrix(wrong)


def derived(from_package, f, complex_f):
    space = op.Space(x=op.cells((3, 4)), rate=op.vector(2))
    model = from_package(f, space)
    assert model.target == {"y": (3, 4)}
    x = {"x": RNG.standard_normal((3, 4)).astype(np.float32), "rate": np.array([0.5, 2.0], np.float32)}
    assert np.abs(np.asarray(model(x)) - np.exp(0.5 * x["x"]) * 2.0).max() < 1e-5
    assert model.check_derivative(x).order == pytest.approx(2, abs=0.1)
    model.check_adjoint(x)
    turned = from_package(complex_f, op.cells(6, complex=True))
    assert turned.check_derivative().order == pytest.approx(2, abs=0.1)
    turned.check_adjoint()
    with pytest.raises(ValueError, match="pass target="):
        from_package(lambda x: x[:2, :2], op.cells((3, 4)))


def test_functions_of_jax():
    jnp = pytest.importorskip("jax").numpy
    derived(op.from_jax, lambda x: jnp.exp(x["rate"][0] * x["x"]) * x["rate"][1], lambda x: (1 + 2j) * x * x + jnp.abs(x) ** 2)


def test_functions_of_torch():
    torch = pytest.importorskip("torch")
    derived(op.from_torch, lambda x: torch.exp(x["rate"][0] * x["x"]) * x["rate"][1], lambda x: (1 + 2j) * x * x + x.real**2)


def test_a_missing_package_is_named(monkeypatch):
    for package, function in (("jax", op.from_jax), ("torch", op.from_torch)):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(ImportError, match=f"needs the package {package}"):
            function(lambda x: x, op.cells(3))


def test_functions_of_numpy_name_those_of_operators():
    x = np.ones(4)
    model = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", op.cells(4), "y")
    assert np.multiply(x, model)(x).tolist() == (np.float64(1.0) * model)(x).tolist() == [2.0] * 4
    for wrong in (lambda: np.exp(model), lambda: np.sum(model), lambda: np.multiply(x, model, out=x)):
        with pytest.raises(TypeError, match=r"numpy.\w+ takes no model; use .*operators.exp"):
            wrong()


def test_models_compute_with_models_numbers_and_arrays():
    leaf = op.cells((3, 4))
    x, y, w = np.random.default_rng(1).uniform(0.5, 1.5, (3, 3, 4))
    a = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", op.Space(x=leaf), "a")
    b = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.Space(y=leaf), "b")
    one, two = 2 * x, y * y
    cases = [
        (op.exp(a + 2 * b), np.exp(one + 2 * two)),
        ((a - b) / (1 + b**2), (one - two) / (1 + two**2)),
        (1 - a * w + b, 1 - one * w + two),
        (w - a + b / 4, w - one + two / 4),
        (w / a + 3 / b, w / one + 3 / two),
        (a**0.5 + b**-3 + 2**a + a**w, one**0.5 + two**-3.0 + 2**one + one**w),
        (a**b + np.float32(0.5) - w, one**two + 0.5 - w),
        (abs(-a) + op.sqrt(b) + op.log(a), one + np.sqrt(two) + np.log(one)),
        (op.tanh(a) + op.sigmoid(b) * op.softplus(a), np.tanh(one) + np.log1p(np.exp(one)) / (1 + np.exp(-two))),
        (op.sin(a) + op.cos(b) + meshloom.asarray(w.astype(np.float32)), np.sin(one) + np.cos(two) + w),
        (op.interp(a, [0.0, 1.5, 4.0], [1.0, 0.0, 3.0]) * b, np.interp(one, [0.0, 1.5, 4.0], [1.0, 0.0, 3.0]) * two),
    ]
    for model, wanted in cases:
        at = {"x": x, "y": y}
        assert np.allclose(model({name: at[name] for name in model.domain}), wanted, rtol=3e-6, atol=1e-6), model
    spectrum = op.fourier(op.cells(8))
    k = np.arange(5) + 1j
    assert np.allclose((spectrum * k)(np.arange(8.0)), k * np.fft.rfft(np.arange(8.0)), rtol=1e-5, atol=1e-5)
    vectors = op.pointwise("fn f(x: vec2<f32>) -> vec2<f32> { return x; }", "f", op.cells(3, components=2), "v")
    both = np.arange(6.0).reshape(2, 3)
    assert np.array_equal((vectors * [1.0, 2.0, 3.0] + both)(both), both * [1.0, 2.0, 3.0] + both)
    with pytest.raises(ValueError, match=r"shape \(3, 4\).*got \(4, 3\)"):
        a + w.T
    with pytest.raises(ValueError, match="finite numbers, got nan at index"):
        a * np.full((3, 4), np.nan)
    with pytest.raises(ZeroDivisionError, match="other than 0"):
        a / 0
    with pytest.raises(ValueError, match="positive base, got -2"):
        (-2) ** a
    with pytest.raises(TypeError):
        a + "1"
    with pytest.raises(ValueError, match="complex"):
        op.exp(spectrum)


def test_leaves_are_renamed_joined_split_reshaped_repeated_and_padded():
    assert dict(op.fourier(op.cells(4)).rename({"x": "k"}, {"x": "field"}).domain) == {"field": (4,)}
    with pytest.raises(ValueError, match="`z`"):
        op.rename(op.fourier(op.cells(4)), {"z": "k"})
    parts = op.split(op.parameters(3), {"b": 1, "a": 2})([1.0, 2.0, 3.0])
    assert parts["b"].tolist() == [1.0] and parts["a"].tolist() == [2.0, 3.0]
    again = op.split(op.vector(3), {"b": 1, "a": 2}).then(op.join(op.Space(a=op.vector(2), b=op.vector(1)), order=["b", "a"]))
    assert np.array_equal(again([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="add to 3, got 4"):
        op.split(op.vector(3), {"a": 4})
    image = np.arange(12.0).reshape(3, 4)
    for shape in (op.vector(12), op.cells((2, 6)), op.cells((2, 3, 2))):
        found = op.reshape(op.cells((3, 4)), shape)(image)
        assert np.array_equal(found, image.reshape(shape.shape))
    with pytest.raises(ValueError, match="12 real values"):
        op.reshape(op.cells((3, 4)), op.vector(11))
    for axis, wanted in ((0, np.broadcast_to(image, (2, 3, 4))), (2, np.broadcast_to(image[..., None], (3, 4, 2)))):
        cube = op.broadcast(op.cells((3, 4)), op.cells(wanted.shape), axis=axis)
        assert np.array_equal(cube(image), wanted)
        weights = np.random.default_rng(2).normal(size=wanted.shape)
        assert np.allclose(cube.at(image).vjp(weights), weights.sum(axis), atol=1e-6)
        summed = op.broadcast(op.cells((3, 4)), op.cells(wanted.shape), adjoint=True, axis=axis)
        assert np.allclose(summed(weights), weights.sum(axis), atol=1e-6)
    column = op.broadcast(op.vector(3), op.cells((3, 4)), axis=-1)
    assert np.array_equal(column([1.0, 2.0, 3.0]), np.repeat([[1.0], [2.0], [3.0]], 4, axis=1))
    with pytest.raises(ValueError, match=r"the shape \(3,\)"):
        op.broadcast(op.vector(4), op.cells((3, 4)), axis=1)
    widths = ((1, 0), (2, 3))
    larger = op.pad(op.cells((3, 4)), widths)
    assert np.array_equal(larger(image), np.pad(image, widths))
    padded = np.pad(image, widths, constant_values=7.0)
    assert np.array_equal(op.pad(op.cells((3, 4)), widths, adjoint=True)(padded), image)
    assert np.array_equal(op.crop(op.cells((4, 9)), widths)(padded), image)
    assert np.array_equal(op.crop(op.cells((4, 9)), widths, adjoint=True)(image), np.pad(image, widths))
    with pytest.raises(ValueError, match="leave 1 cell or more"):
        op.crop(op.cells((4, 9)), (2, 2))
    with pytest.raises(ValueError, match="target: expected a vector or cells"):
        op.reshape(op.cells((3, 4)), op.Space(y=op.points(12)))
    # A model of a plane goes before one of a cube with the same cells.
    plane = op.exp(op.diagonal(op.Space(field=op.cells((3, 4), size=(1.0, 2.0))), np.ones((3, 4))))
    cube = op.Space(field=op.cells((2, 3, 4), size=(5.0, 1.0, 2.0)))
    repeated = plane.then(op.broadcast(plane.target, cube, axis=0))
    assert np.allclose(repeated(image), np.broadcast_to(np.exp(image), (2, 3, 4)), rtol=1e-5)
    # A model ignores leaves that it does not take, as samples of several models have them.
    assert np.array_equal(plane({"field": image, "other": 1.0}), plane(image))
    assert np.array_equal(plane.domain.flatten({"field": image, "other": 1.0}), image.ravel())
    with pytest.raises(TypeError, match="target: expected new names"):
        plane.rename("y")


def test_grids_of_other_numbers_of_axes_keep_them():
    cube, plane = op.cells((2, 3, 4)), op.cells((3, 4))
    summed = op.broadcast(plane, cube, adjoint=True, axis=0)
    assert (dict(summed.domain), dict(summed.target)) == ({"x": (2, 3, 4)}, {"x": (3, 4)})
    for model in (op.exp(summed), summed.then(op.fourier(plane)), 2.0 * summed, summed.zip(summed.rename({"x": "y"})).giving("y")):
        assert [len(shape) for shape in (*model.domain.values(), *model.target.values())] == [3, 2]
    # A grid with one plane, and planes.
    flat = op.broadcast(op.cells((1, 3, 4)), op.cells((1, 3, 4)), axis=())
    assert dict(flat.target) == {"x": (1, 3, 4)}


def test_complex_fields_and_components_are_reshaped_and_padded():
    rng, widths = np.random.default_rng(3), ((1, 0), (2, 3))
    for leaf in (op.cells((3, 4), complex=True), op.cells((3, 4), components=3), op.cells((3, 4), complex=True, components=2, copies=2)):
        def draw(shape):
            found = rng.normal(size=shape) + 1j * rng.normal(size=shape)
            return (found if leaf.complex else found.real).astype(np.complex64 if leaf.complex else np.float32)

        larger = op.pad(leaf, widths)
        field, (shape,) = draw(next(iter(larger.domain.values()))), larger.target.values()
        every = [(0, 0)] * (field.ndim - 2) + list(widths)
        wanted = np.pad(field, every)
        assert shape == wanted.shape and np.array_equal(larger(field), wanted)
        outer = draw(shape)
        inner = outer[..., 1:, 2:-3]
        assert np.array_equal(op.crop(larger.target, widths)(outer), inner)
        # Adjoints add the values at a cell, one, in units of the largest.
        assert np.allclose(larger.at(field).vjp(outer), inner, rtol=0, atol=1e-6)
        other = op.cells((12, field.size // 12), complex=leaf.complex)
        there = op.reshape(leaf, other)
        assert np.allclose(there(field), field.reshape(12, -1), rtol=0, atol=1e-6)
        assert np.allclose(op.reshape(other, leaf)(field.reshape(12, -1)), field, rtol=0, atol=1e-6)
        there.check_adjoint()
    with pytest.raises(ValueError, match="expected 12 complex values"):
        op.reshape(op.cells((3, 4), complex=True), op.vector(12))
    with pytest.raises(ValueError, match="space: expected cells"):
        op.pad(op.modes((3, 4)), 1)


def four_axes(comm=None):
    """Return True if fields of four axes agree with NumPy."""
    rng, shape = np.random.default_rng(4), (2, 6, 4, 5)
    grid, sky = op.cells(shape[1:]), op.cells(shape[1:], copies=2)
    field, data = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape)
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    own = slice(6 // ranks * rank, 6 // ranks * (rank + 1))
    factors = np.array([0.5, 0.25]).reshape(2, 1, 1, 1)
    found = []

    def near(one, other, tolerance=1e-5):
        found.append(np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=tolerance, atol=tolerance))

    text = "fn f(x: f32, c: f32) -> f32 { return exp(c * x); }"
    model = op.pointwise(text, "f", sky, "y", constants={"c": factors}, comm=comm)
    flux = np.exp(factors * field)
    found.append(dict(model.target) == {"y": (2, 6 // ranks, 4, 5)})
    near(model(field[:, own]), flux[:, own])
    near((3.0 * model + model * factors)(field[:, own]), (3.0 * flux + flux * factors)[:, own])
    spectrum = model.then(op.fourier(model.target, comm=comm))
    if ranks == 1:
        near(spectrum(field), np.fft.rfftn(flux, axes=(1, 2, 3)), 1e-3)
    near(spectrum.then(op.inverse_fourier(model.target, comm=comm))(field[:, own]), flux[:, own])
    parts = op.split(sky, {"b": 1, "a": 1}, comm=comm)
    near(parts(field[:, own])["b"], field[0, own])
    near(parts.then(op.join(parts.target, order=["a", "b"], comm=comm))(field[:, own]), field[::-1, own])
    for bits in range(1, 16):
        axes = tuple(axis for axis in range(4) if bits >> axis & 1)
        rest = [shape[axis] for axis in range(1, 4) if axis not in axes]
        copies = 1 if 0 in axes else 2
        small = op.cells(rest, copies=copies) if rest else op.vector(copies)
        cut = rest[:1] == [6] and (slice(None),) * (copies - 1) + (own,)
        sums = field.astype(np.float64).sum(axes)
        sums = sums.reshape(1) if not sums.ndim else sums
        if ranks == 1 or (len(rest) != 1 and rest[:1] in ([], [6])):
            sums = sums[cut] if cut else sums
            total = op.broadcast(small, sky, adjoint=True, axis=axes, comm=comm)
            near(total(field[:, own]), sums)
            near(op.broadcast(small, sky, axis=axes, comm=comm).at(sums).vjp(field[:, own]), sums)
        if ranks == 1:
            values = rng.normal(size=sums.shape).astype(np.float32)
            wanted = np.broadcast_to(values.reshape([1 if axis in axes else shape[axis] for axis in range(4)]), shape)
            near(op.broadcast(small, sky, axis=axes)(values), wanted)
    energy = mi.Gaussian(data[:, own], np.broadcast_to(0.5 + factors, shape)[:, own]).amend(model)
    value, gradient = energy.value_and_grad(field[:, own])
    near(value, (0.5 * ((data - flux) / (0.5 + factors)) ** 2).sum())
    near(gradient, ((flux - data) / (0.5 + factors) ** 2 * factors * flux)[:, own], 1e-4)
    prior = mi.NormalPrior(1.0, np.broadcast_to(factors, shape)[:, own], sky, comm=comm)
    near(prior(field[:, own]), (1.0 + factors * field)[:, own])
    model.check_adjoint()
    model.check_derivative()
    return all(found)


def test_fields_of_four_axes_are_copies_of_a_grid():
    assert four_axes() and meshloom.ranks(3, four_axes) == [True] * 3
    with pytest.raises(ValueError, match="pass copies=2"):
        op.cells((2, 3, 4, 5))
    with pytest.raises(ValueError, match="copies that add to 2, got 3"):
        op.split(op.cells((3, 4), copies=2), {"a": 3})
    two = mi.VariableCovarianceGaussian(np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="data of one field"):
        two.amend(op.exp(op.diagonal(op.cells((3, 4), components=2, copies=2), np.ones((3, 4)))))
    again = pickle.loads(pickle.dumps(op.broadcast(op.cells((3, 4)), op.cells((3, 4), copies=2), axis=0)))
    assert dict(again.target) == {"x": (2, 3, 4)} and np.array_equal(again(np.ones((3, 4))), np.ones((2, 3, 4)))


def section(n=6, size=900.0, a=(0.8, 1.0), comm=None):
    """Return a section of a light cone and a point: displacements and momenta at both ends."""
    rng, names = np.random.default_rng(5), [f"snapshot_{i}/{name}" for i in range(2) for name in ("displacement", "momentum")]
    space = op.Space({name: op.cells((n, n, n), size=size, components=3) for name in names})
    model = op.light_cone(space, 0, a, (450.0, 850.0, 450.0), (0, 1, 0), comm=comm)
    x = {name: rng.normal(size=(3, n, n, n)) * (20.0 if name.endswith("displacement") else 10.0) for name in names}
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    own = slice(n // ranks * rank, n // ranks * (rank + 1))
    return model, {name: values[:, own].astype(np.float32) for name, values in x.items()}


def test_particles_cross_the_light_cone_where_their_paths_do():
    n, size, a = 6, 900.0, (0.8, 1.0)
    model, x = section(n, size, a)
    found = {name: np.asarray(value, np.float64) for name, value in model(x).items()}
    cosmology = meshloom.Cosmology()
    sites = np.stack(np.meshgrid(*[np.arange(n) * size / n] * 3, indexing="ij")) - np.reshape([450.0, 850.0 - size, 450.0], (3, 1, 1, 1))
    (x0, p0), (x1, p1) = [[x[f"snapshot_{i}/{name}"].astype(np.float64) for name in ("displacement", "momentum")] for i in range(2)]
    # dx/da = p / (a^3 E) from the slope of the distance, dchi/da = -c / (H0 a^2 E).
    h = 1e-4
    slopes = [(cosmology.comoving_distance(a[0] - h) - cosmology.comoving_distance(a[0] + h)) / (2 * h), 2997.92458]
    v0, v1 = (p * (a[1] - a[0]) * slope / at / 2997.92458 for p, slope, at in ((p0, slopes[0], a[0]), (p1, slopes[1], a[1])))
    low, high = np.zeros((n, n, n)), np.ones((n, n, n))

    def path(t):
        return (2 * t**3 - 3 * t**2 + 1) * x0 + (t**3 - 2 * t**2 + t) * v0 + (3 * t**2 - 2 * t**3) * x1 + (t**3 - t**2) * v1

    def ahead(t):
        return np.sqrt(((sites + path(t)) ** 2).sum(0)) - np.vectorize(cosmology.comoving_distance)(a[0] + t * (a[1] - a[0]))

    crosses = (ahead(low) < 0) & (ahead(high) >= 0)
    assert 20 < crosses.sum() < 200 and np.array_equal(found["weight"], crosses)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = np.where(ahead(middle) < 0, middle, low), np.where(ahead(middle) < 0, high, middle)
    assert np.abs(found["displacement"] - path(low))[:, crosses].max() < 2e-4
    assert np.abs(found["distance"] - ahead(low) - np.sqrt(((sites + path(low)) ** 2).sum(0)))[crosses].max() < 2e-3
    # Derivatives of the places of crossing particles, by differences in f64 of the same search.
    assert model.check_adjoint(x).difference < 1e-2
    direction = {name: np.random.default_rng(6).normal(size=values.shape).astype(np.float32) for name, values in x.items()}
    slope = np.asarray(model.at(x).jvp(direction)["displacement"])
    moved = [model({name: values + np.float32(sign) * direction[name] for name, values in x.items()}) for sign in (1, -1)]
    inside = crosses & (np.asarray(moved[0]["weight"]) == 1) & (np.asarray(moved[1]["weight"]) == 1)
    difference = (np.asarray(moved[0]["displacement"]) - np.asarray(moved[1]["displacement"])) / 2
    assert np.abs(slope - difference)[:, inside].max() < 5e-3 * np.abs(slope[:, inside]).max()
    with pytest.raises(ValueError, match="ascend"):
        op.light_cone(model.domain, 0, (1.0, 0.9), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="snapshot_2"):
        op.light_cone(model.domain, 1, (0.9, 1.0), (0.0, 0.0, 0.0))


def crossing_on_ranks(comm):
    model, x = section(comm=comm)
    density = model.giving("displacement", "weight")
    density = density.then(op.paint(density.target, op.cells((6, 6, 6), size=900.0), comm=comm))
    return np.asarray(density(x))


def test_a_light_cone_has_the_same_bits_on_ranks():
    whole = crossing_on_ranks(None)
    assert np.array_equal(np.concatenate(meshloom.ranks(3, crossing_on_ranks)), whole)
    times, noise = [0.8, 0.9, 1.0], np.random.default_rng(1).normal(size=(8, 8, 8))
    run = op.simulation(8, 8, 900.0, steps=2, a_start=0.5, window="tsc", snapshots=times, lpt=3)
    density = 0.0
    for i in range(2):
        part = op.light_cone(run.target, i, times[i : i + 2], (450.0, 450.0, 450.0)).giving("displacement", "weight")
        density = part.then(op.paint(part.target, op.cells((8, 8, 8), size=900.0))) + density
    cone = run.giving(*density.domain).then(density)
    found = np.asarray(cone(noise))
    # All within the distance to the first snapshot, half of the box and more.
    assert abs(found.sum() - round(found.sum())) < 1e-3 and 256 < found.sum() <= 512
    cone.check_adjoint(noise)


def on_ranks(comm):
    share = slice(2 * comm.rank, 2 * comm.rank + 2)
    image = np.arange(24.0).reshape(6, 4)
    grid = op.cells((6, 4))
    double = op.pointwise("fn f(x: f32) -> f32 { return x; }", "f", grid, "y", comm=comm)
    model = op.exp(0.1 * double - image[share] / 20)
    flat = op.reshape(grid, op.vector(24), comm=comm)
    larger = op.pad(grid, ((1, 2), (0, 0)), comm=comm)
    shares = np.pad(image, ((1, 2), (0, 0)))[3 * comm.rank : 3 * comm.rank + 3]
    rows = op.broadcast(op.vector(6), grid, axis=1, comm=comm)
    return (
        np.allclose(model(image[share]), np.exp(0.05 * image[share]), rtol=1e-5)
        and np.array_equal(flat(image[share]), image.ravel())
        and np.array_equal(larger(image[share]), shares)
        and np.array_equal(rows.at(np.zeros(6)).vjp(image[share]), image.sum(1))
    )


def test_algebra_and_shapes_work_on_several_ranks():
    assert meshloom.ranks(3, on_ranks) == [True] * 3
