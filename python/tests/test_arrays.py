"""Arithmetic, indices, reductions and functions of device arrays against NumPy."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshloom
from meshloom import fft, operators as op

HAS_DOUBLE = meshloom.asarray(np.zeros(1, np.float32)).comm.has_f64
TYPES = [np.float32, np.complex64] + [np.float64, np.complex128] * HAS_DOUBLE
double = pytest.mark.skipif(not HAS_DOUBLE, reason="the device has no double precision")
BINARY = [np.add, np.subtract, np.multiply, np.divide]
LENGTHS = st.sampled_from([0, 1, 1, 2, 3, 5, 7])


def numbers(rng, shape, dtype):
    found = rng.normal(size=shape) + (1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else 0)
    return np.asarray(found).astype(dtype)


def close(found, want, factor=8.0):
    """Compare shape, type and values, within some units in the last place."""
    want = np.asarray(want)
    assert isinstance(found, meshloom.Array) and found.shape == want.shape and found.dtype == want.dtype
    eps = np.finfo(want.dtype).eps
    np.testing.assert_allclose(np.asarray(found), want, rtol=factor * eps, atol=factor * eps)


@st.composite
def shapes(draw):
    """Two shapes that broadcast together."""
    shape = draw(st.lists(LENGTHS, max_size=4))
    cut = lambda: [1 if draw(st.booleans()) else n for n in shape[draw(st.integers(0, len(shape))) :]]
    return (shape, cut()) if draw(st.booleans()) else (cut(), shape)


@settings(max_examples=60, deadline=None)
@given(pair=shapes(), types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)), function=st.sampled_from(BINARY), where=st.integers(0, 2), seed=st.integers(0, 99))
def test_arithmetic_is_numpys(pair, types, function, where, seed):
    rng = np.random.default_rng(seed)
    a, b = (numbers(rng, shape, dtype) for shape, dtype in zip(pair, types))
    on_device = [meshloom.asarray(one) if where in (at, 2) else one for at, one in enumerate([a, b])]
    if not any(np.ndim(one) == 0 and isinstance(one, np.ndarray) and where != 2 for one in (a, b)):
        close(function(*on_device), function(a, b))


@st.composite
def indexed(draw):
    shape = draw(st.lists(LENGTHS, min_size=0, max_size=4))
    key = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        end = st.one_of(st.none(), st.integers(-n - 1, n + 1))
        step = draw(st.sampled_from([None, 1, 2, -1, -2, 3]))
        choices = [slice(draw(end), draw(end), step)] + ([draw(st.integers(-n, n - 1))] if n else [])
        key.append(draw(st.sampled_from(choices)))
    for extra in draw(st.lists(st.sampled_from([None, Ellipsis]), max_size=2)):
        if extra is None or Ellipsis not in key:
            # An ellipsis at the end is valid after any other indices.
            key.insert(draw(st.integers(0, len(key))) if extra is None else len(key), extra)
    return shape, tuple(key)


@settings(max_examples=60, deadline=None)
@given(case=indexed(), dtype=st.sampled_from(TYPES), seed=st.integers(0, 99))
def test_slices_are_numpys(case, dtype, seed):
    shape, key = case
    rng = np.random.default_rng(seed)
    a = numbers(rng, shape, dtype)
    device = meshloom.asarray(a)
    close(device[key], a[key], 0)
    value = numbers(rng, a[key].shape, dtype)
    device[key] = meshloom.asarray(value)
    a[key] = value
    close(device, a, 0)
    device[key] += 2
    a[key] += 2
    device[key] = 1.5
    a[key] = 1.5
    close(device, a, 0)


@settings(max_examples=40, deadline=None)
@given(shape=st.lists(st.sampled_from([1, 2, 3, 5, 37, 67]), max_size=4).filter(lambda shape: np.prod(shape) < 20_000), dtype=st.sampled_from(TYPES), data=st.data())
def test_reductions_are_numpys(shape, dtype, data):
    rng = np.random.default_rng(len(shape))
    a = numbers(rng, shape, dtype) + np.dtype(dtype).type(3)
    axes = tuple(data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda n: n % len(shape), max_size=4))) if shape else None
    axis, keepdims = data.draw(st.sampled_from([None, axes] + list(axes or ()))), data.draw(st.booleans())
    device = meshloom.asarray(a)
    wide = a.astype(np.result_type(dtype, np.float64))
    for name in ["sum", "prod", "mean", "var", "std"] + (["min", "max"] if a.dtype.kind == "f" else []):
        with np.errstate(all="ignore"):
            want = np.asarray(getattr(wide, name)(axis=axis, keepdims=keepdims))
        found = getattr(device, name)(axis=axis, keepdims=keepdims)
        assert found.shape == want.shape
        # Products of more numbers leave the range of the type.
        few = name != "prod" or a.size < 20
        np.testing.assert_allclose(np.asarray(found)[...] if few else 0, want if few else 0, rtol=20 * np.finfo(dtype).eps * (a.size if name == "prod" else 1), atol=20 * np.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(np.linalg.norm(device, axis=0 if shape else None)), np.sqrt((abs(wide) ** 2).sum(axis=0 if shape else None)), rtol=1e-6)


def test_sums_are_exact_and_extremes_keep_nan():
    rng = np.random.default_rng(3)
    a = (rng.normal(size=1_000_003) + 100).astype(np.float32)
    assert float(meshloom.asarray(a).sum()) == np.float32(a.astype(np.float64).sum())
    columns = a[:1_000_000].reshape(1000, 1000)
    assert np.array_equal(meshloom.asarray(columns).sum(axis=0), columns.astype(np.float64).sum(axis=0).astype(np.float32))
    a[7] = np.inf
    assert float(meshloom.asarray(a).sum()) == np.inf
    a[70_000] = np.nan
    assert all(np.isnan(float(found)) for found in (meshloom.asarray(a).min(), meshloom.asarray(a).max(), meshloom.asarray(a).sum()))
    assert meshloom.asarray(np.zeros((0, 3), np.float32)).sum(axis=0).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="no identity"):
        meshloom.asarray(np.zeros((0, 3), np.float32)).max()


SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, 3e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", TYPES)
def test_comparisons_and_choices_are_numpys(dtype):
    a, b = (grid.ravel().astype(dtype) for grid in np.meshgrid(SPECIAL, SPECIAL))
    is_real = np.dtype(dtype).kind == "f"
    if not is_real:
        a.imag, b.imag = b.real[::-1], 1.0
    x, y = meshloom.asarray(a), meshloom.asarray(b)

    def same(found, want):
        assert isinstance(found, meshloom.Array) and found.dtype == want.dtype and np.array_equal(found, want, equal_nan=want.dtype.kind != "b")
        assert want.dtype.kind == "b" or np.array_equal(np.signbit(np.asarray(found).real), np.signbit(want.real))

    for compare in [np.equal, np.not_equal] + [np.less, np.less_equal, np.greater, np.greater_equal] * is_real:
        for left, right in [(x, y), (x, b), (a, y)]:
            same(compare(left, right), compare(a, b))
        same(compare(x, 1.5), compare(a, 1.5))
    for test in (np.isnan, np.isinf, np.isfinite, np.logical_not):
        same(test(x), test(a))
    mask, on_device = a != b, x != y
    same(np.where(on_device, x, y), np.where(mask, a, b))
    same(np.where(mask, x, 2.5), np.where(mask, a, dtype(2.5)))
    same(np.where(on_device, 0, y), np.where(mask, dtype(0), b))
    x[on_device] = 7
    a[mask] = 7
    same(x, a)
    assert 7.0 in x and 8.0 not in x and bool((x == 7).any()) and not (x == 8).any() and (x[:1] == x[:1]).all()


def test_booleans_are_numpys():
    p, q = np.array([[True, False], [True, True]]), np.array([True, False])
    x, y = meshloom.asarray(p), meshloom.asarray(q)
    for found, want in [
        (x & y, p & q), (x | q, p | q), (p ^ y, p ^ q), (~x, ~p), (x == y, p == q), (x.T, p.T), (x[::-1, 0], p[::-1, 0]), (x + y, p + q), (x * True, p * True),
        (np.where(x, y, True), np.where(p, q, True)), (np.where(x, True, False), p), (np.concatenate([x, x]), np.concatenate([p, p])), (x.any(axis=0), p.any(axis=0)), (np.all(x, axis=1), np.all(p, axis=1)),
        (np.logical_and(x, np.float32([0, 2])), np.logical_and(p, [0.0, 2.0])), (np.logical_xor(meshloom.asarray(np.float32([0, 3])), q), [False, True] ^ q), (x.astype(np.complex64).astype(bool), p),
        (np.zeros_like(x), np.zeros_like(p)), (copy.copy(x), p), (pickle.loads(pickle.dumps(x)), p), (meshloom.asarray(np.zeros((0, 2), np.float32)).all(axis=0), np.array([True, True])),
    ]:  # fmt: skip
        assert found.dtype == want.dtype == bool and np.array_equal(found, want) and found.numpy().dtype == bool
    for found, want in [(x * 2.5, p * np.float32(2.5)), (x.sum(), np.float32(3)), (x.mean(axis=0), p.mean(axis=0)), (x.var(), p.var()), (np.float32([1, 2]) * x, np.float32([1, 2]) * p), (np.where(x, 1.0, 0.0), np.float32(p))]:
        close(found, np.asarray(want, np.float32))
    x &= y
    x[0] = True
    assert np.array_equal(x, [[True, True], [True, False]]) and x.tolist() == [[True, True], [True, False]]
    for wrong, error in [(lambda: -x, TypeError), (lambda: x - x, TypeError), (lambda: x & 1.0, TypeError), (lambda: y[x[0]], IndexError), (lambda: x.__setitem__(y, 1.0), IndexError), (lambda: x.__setitem__(0, 2.0), TypeError)]:
        with pytest.raises(error):
            wrong()


def test_places_of_extremes_are_numpys():
    a = np.round(np.random.default_rng(1).normal(size=(6, 5, 7)) * 3).astype(np.float32)
    a[2, 3, 4], x = np.nan, None
    for values in (a, np.abs(a[:2]), -a[3:]):
        x = meshloom.asarray(values)
        for axis in (None, 0, 1, -1):
            for name in ("argmax", "argmin"):
                found, want = getattr(np, name)(x, axis=axis), getattr(values, name)(axis=axis)
                assert np.array_equal(found, want) and (isinstance(found, int) if axis is None else found.dtype == want.dtype)
    # Farther than float32 counts, the first of equal elements.
    long = np.zeros((1 << 24) + 5, np.float32)
    long[[1 << 24, (1 << 24) + 3]] = 1
    assert meshloom.asarray(long).argmax() == 1 << 24
    with pytest.raises(ValueError, match="at most 2.24 elements along axis 0"):
        meshloom.asarray(long).argmax(axis=0)
    with pytest.raises(ValueError, match="no identity"):
        meshloom.asarray(np.zeros((0, 2), np.float32)).argmin()


@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_matrices_are_numpys(dtype):
    rng = np.random.default_rng(6)
    a, b, v = numbers(rng, (17, 600), dtype), numbers(rng, (600, 9), dtype), numbers(rng, 600, dtype)
    for left, right in [(a, b), (a, v), (v, b), (v, v), (a[:0], b), (a[:, :0], b[:0]), (b.T, a.T)]:
        found = meshloom.asarray(left) @ right
        want = np.asarray(left @ right)
        size = np.max(abs(left) @ abs(right), initial=1)
        assert found.dtype == want.dtype and found.shape == want.shape and np.all(abs(np.asarray(found) - want) < 8 * np.finfo(dtype).eps * size)
        assert np.array_equal(left @ meshloom.asarray(right), found) and np.array_equal(np.dot(meshloom.asarray(left), right), found, equal_nan=True) or left is v is right
    for wrong, error in [(lambda x: x @ x, ValueError), (lambda x: x @ x.reshape(1, 17, 600), TypeError), (lambda x: x @ 3, TypeError), (lambda x: x @ meshloom.asarray(np.ones(600, bool)) and x.astype(bool) @ v.astype(bool), TypeError)]:
        with pytest.raises(error):
            wrong(meshloom.asarray(a))


POINTS = np.array([0.0, 1e-30, 1e-6, 0.01, 0.3, 0.5, 0.99, 1.0, 1.5, 2.4, 7.0, 20.0, 88.0, 1e3, 3e5, 2e7, 1e30, np.inf, np.nan], np.float32)
POINTS = np.concatenate([POINTS, -POINTS, np.linspace(-12, 12, 997).astype(np.float32)])


@pytest.mark.parametrize("name", "exp expm1 exp2 log log1p log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt sign floor ceil trunc rint square reciprocal absolute negative".split())
def test_functions_have_the_accuracy_of_single_precision(name):
    function = getattr(np, name)
    x = POINTS
    if name in ("sin", "cos", "tan"):
        x = x[~(abs(x) > 2.5e7)]
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        rounded = want.astype(np.float32)
    found = np.asarray(function(meshloom.asarray(x)))
    rounded[abs(rounded) < 1.2e-38] = 0
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    with np.errstate(all="ignore"):
        # Errors of the argument's last place do not count for steep functions far out.
        error = abs(found - want) / np.maximum(abs(want), 1e-7 if name in ("sin", "cos", "tan") else 1e-37)
    assert np.all(same | (error < 6e-7)), (x[~same & ~(error < 6e-7)], found[~same & ~(error < 6e-7)], want[~same & ~(error < 6e-7)])


@double
@pytest.mark.parametrize("name", "exp log log2 log10 sin cos tan".split())
def test_functions_have_the_accuracy_of_double_precision(name):
    x = np.concatenate([np.linspace(-740, 709.5, 3001), [0.0, np.inf, np.nan, 1.0, np.pi, 1.5 * np.pi]])
    if name.startswith("log"):
        x = np.concatenate([abs(x), np.logspace(-300, 300, 601), 10.0 ** np.arange(23), 2.0 ** np.arange(-1000, 1000, 37), 1 + np.logspace(-15, -1, 40), [-1.0]])
    elif name != "exp":
        x = np.concatenate([x[np.isfinite(x)], np.logspace(-200, 5.9, 500), np.arange(1, 2000) * np.pi / 2])
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    found = np.asarray(getattr(np, name)(meshloom.asarray(x)))
    with np.errstate(all="ignore"):
        same = (found == want) | (np.isnan(found) & np.isnan(want)) | (abs(found - want) < 1e-15 * abs(want) + 1e-307)
    assert same.all(), (x[~same], found[~same], want[~same])
    if name in ("sin", "exp"):
        z = np.linspace(-3, 3, 40) * (1 - 7j)
        close(np.exp(meshloom.asarray(z)), np.exp(z))


def test_powers_and_pairs():
    x, y = (grid.ravel().astype(np.float32) for grid in np.meshgrid([-np.inf, -3.0, -1.5, -1.0, -0.0, 0.0, 0.2, 1.0, 2.5, 1e10, np.inf, np.nan], [-70.5, -3.0, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 33.0, np.inf, np.nan]))
    for function in (np.power, np.arctan2, np.hypot, np.maximum, np.minimum):
        with np.errstate(all="ignore"):
            want = function(x.astype(np.float64), y.astype(np.float64))
            rounded = want.astype(np.float32)
        rounded[abs(rounded) < 1.2e-38] *= 0
        found = np.asarray(function(meshloom.asarray(x), y))
        with np.errstate(all="ignore"):
            right = (found == rounded) | (np.isnan(found) & np.isnan(rounded)) | (abs(found / rounded - 1) < 1e-6)
        assert right.all(), (function, x[~right], y[~right], found[~right], rounded[~right])
    a = np.linspace(0.5, 2, 11)
    for dtype in TYPES:
        own = a.astype(dtype) * (1 + 0.3j if np.dtype(dtype).kind == "c" else 1)
        own = own.astype(dtype)
        device = meshloom.asarray(own)
        for exponent in (0, 1, 2, 3, -1, -2, 0.5, 7.0):
            close(device**exponent, own**exponent, 30)
    close(meshloom.asarray(a.astype(np.float32)) ** 2.7, a.astype(np.float32) ** np.float32(2.7))
    close(2 ** meshloom.asarray(a.astype(np.float32)), 2 ** a.astype(np.float32))


def test_complex_functions():
    rng = np.random.default_rng(1)
    for dtype in TYPES[1::2]:
        z = np.concatenate([numbers(rng, 40, dtype), np.array([0, 1, -1, 1j, -1j, -2 - 0.0j], dtype)])
        device = meshloom.asarray(z)
        for function in (np.absolute, np.conj, np.real, np.imag, np.square, np.sqrt, np.negative):
            close(function(device), function(z))
        close(device.T.conj() * 2j, z.conj() * 2j)
        assert complex(np.vdot(device, z)) == pytest.approx(np.vdot(z, z), rel=1e-6)
        big = np.array([1e30, 3e30j, 1e-30], dtype)
        close(big / meshloom.asarray(big), np.ones(3, dtype))
    close(np.exp(meshloom.asarray(z.astype(np.complex64))), np.exp(z.astype(np.complex64)))
    close(np.angle(meshloom.asarray(z[:40].astype(np.complex64))), np.angle(z[:40].astype(np.complex64)))


@double
def test_numbers_do_not_widen_and_types_are_numpys():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    device = meshloom.asarray(a)
    for found, want in [
        (device * 2, a * 2), (2.5 - device, 2.5 - a), (device / True, a / np.float32(1)), (device * 1j, a * np.complex64(1j)),
        (device + np.float64(1), a + np.ones((), np.float64) * np.ones(a.shape)), (np.int16(3) * device, np.int16(3) * a),
        (device * np.arange(3), a * np.arange(3)), ([1.0, 2.0, 3.0] + device, [1.0, 2.0, 3.0] + a), (-device, -a), (+device, +a),
        (abs(device - 3), abs(a - 3)), (device**2, a**2), (1e300 * device.astype(np.float64), 1e300 * a.astype(np.float64)),
        (device.astype(np.float64) * 0.1, a.astype(np.float64) * 0.1), (device.astype(np.complex128), a.astype(np.complex128)),
    ]:  # fmt: skip
        close(found, want)
    with pytest.raises(ValueError, match="broadcast together"):
        device + np.zeros(4, np.float32)
    for wrong in (lambda: device + "x", lambda: device + None, lambda: device @ 2, lambda: device % 2, lambda: device + np.longdouble(1)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match="single precision"):
        np.tanh(device.astype(np.float64))
    with pytest.raises(TypeError, match="numpy.asarray"):
        np.median(device)
    with pytest.raises(TypeError, match="numpy.asarray"):
        np.where(device > 2)
    with pytest.raises(TypeError, match="meshloom.fft.rfft"):
        np.fft.rfft(device)
    with pytest.raises(TypeError, match="host memory"):
        a += device
    assert np.allclose(device, a) and np.array_equal(a, device)


def test_work_in_place_changes_the_memory():
    a = np.arange(12, dtype=np.float32)
    device = meshloom.asarray(a)
    matrix = device.reshape(3, 4)
    device += 1
    device *= np.full(12, 2, np.float32)
    a = (a + 1) * 2
    close(matrix, a.reshape(3, 4))
    matrix -= matrix.T.T
    a -= a
    close(device, a)
    matrix[1] = [1, 2, 3, 4]
    matrix[:, ::-2] *= 10
    a = a.reshape(3, 4)
    a[1] = [1, 2, 3, 4]
    a[:, ::-2] *= 10
    close(device.reshape(3, 4), a)
    matrix[1:] = matrix[:-1]
    a[1:] = a[:-1].copy()
    device[...] = device[::-1]
    close(matrix, a.ravel()[::-1].reshape(3, 4))
    np.multiply(device, 3, out=device)
    close(matrix, 3 * a.ravel()[::-1].reshape(3, 4))
    matrix -= matrix[0] * np.float32(1)
    device += device.reshape(12)
    with pytest.raises(TypeError, match="complex64"):
        device += 1j
    with pytest.raises(ValueError, match="non-broadcastable"):
        device += np.zeros((2, 12), np.float32)
    with pytest.raises(ValueError, match="could not broadcast"):
        matrix[0] = np.zeros(3)
    with pytest.raises(TypeError, match="cannot assign"):
        matrix[0] = 1j


def test_results_of_models_do_not_change():
    space = op.Space(s=op.cells((4, 4)))
    model = op.pointwise("fn f(s: f32) -> f32 { return s * s; }", "f", space, "y")
    x = meshloom.asarray(np.full((4, 4), 3.0, np.float32))
    at = model.at(x)
    value = at.value
    x -= 1
    value += 100
    ones = np.ones((4, 4), np.float32)
    assert np.all(np.asarray(at.vjp(ones)) == 6) and np.all(np.asarray(model(x)) == 4)
    assert np.all(np.asarray(x) == 2) and np.all(np.asarray(value) == 109)


def test_shapes_and_parts():
    rng = np.random.default_rng(2)
    a = numbers(rng, (3, 1, 5, 4), np.complex64)
    d = meshloom.asarray(a)
    for function in (
        np.transpose, np.ravel, np.squeeze, np.flip, lambda x: x.T, lambda x: x.flatten(), lambda x: x.copy(), lambda x: np.transpose(x, (2, 0, 3, 1)),
        lambda x: np.moveaxis(x, 0, -1), lambda x: np.swapaxes(x, 0, 2), lambda x: np.expand_dims(x, (0, 3)), lambda x: np.reshape(x, (15, -1)),
        lambda x: np.roll(x, 2, axis=2), lambda x: np.roll(x, (1, -7), axis=(0, 3)), lambda x: np.roll(x, 13), lambda x: np.flip(x, (0, -1)),
        lambda x: np.take(x, [[2, 0], [-1, 1]], axis=2), lambda x: x.take(np.array([5, -3])), lambda x: x[:, :, [0, 4, 4], ::-1], lambda x: x[[2, 2]],
        lambda x: x[..., np.array([], int)], lambda x: np.concatenate([x, x[:, :, :2]], axis=2), lambda x: np.concatenate([x, x], axis=None),
        lambda x: np.stack([x, x], axis=-1), np.zeros_like, np.ones_like, lambda x: np.full_like(x, 2j), lambda x: np.zeros_like(x, shape=(2,), dtype=np.float32),
        copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: x.squeeze(1), lambda x: np.clip(x.real, -0.5, 0.5), lambda x: x.real.imag,
        lambda x: list(x)[1], np.sum, lambda x: np.mean(x, axis=(0, 2), keepdims=True), lambda x: np.std(x.real, axis=-1), lambda x: np.max(x.imag, axis=0), lambda x: np.add.reduce(x),
        lambda x: np.dot(x.ravel(), x.ravel()), lambda x: np.concatenate([x.real, x]), lambda x: np.max(x.real), lambda x: x[1, 0][None, ..., 2, :],
    ):  # fmt: skip
        close(function(d), function(a), 40)
    assert d.tolist() == a.tolist() and d[0, 0, 0, 0].item() == a[0, 0, 0, 0] and f"{d.real.sum() * 0:.2f}" == "0.00"
    assert np.shape(d) == a.shape and np.ndim(d) == 4 and np.size(d) == a.size and np.result_type(d, np.float64) == np.complex128
    for wrong, error in [
        (lambda: d[3], IndexError), (lambda: d[0, 0, 0, 0, 0], IndexError), (lambda: d[..., ...], IndexError), (lambda: d[[3]], IndexError), (lambda: d[a.real > 0], IndexError),
        (lambda: d[True], IndexError), (lambda: d["x"], IndexError), (lambda: d[[0], :, [0]], IndexError), (lambda: d[0, :, [0]], IndexError), (lambda: list(d.sum()), TypeError),
        (lambda: d < d, TypeError), (lambda: d & d, TypeError), (lambda: bool(d), TypeError), (lambda: d.argmax(), TypeError), (lambda: float(d), TypeError), (lambda: d.max(), TypeError),
        (lambda: d.astype(np.float32), TypeError), (lambda: d.astype(int), TypeError), (lambda: d.sum(axis=4), ValueError), (lambda: d.transpose(0, 1), ValueError),
        (lambda: np.concatenate([d, d[0]]), ValueError), (lambda: d.squeeze(0), ValueError), (lambda: d.sum(axis=(0, 0)), ValueError),
    ]:  # fmt: skip
        with pytest.raises(error):
            wrong()


def test_many_axes_and_long_arrays():
    a = np.arange(2.0**13, dtype=np.float32).reshape((2,) * 13)
    close(meshloom.asarray(a[0]).T[0], a[0].T[0])
    close(meshloom.asarray(a).sum(axis=(0, 2, 4, 6, 8, 10, 12)), a.sum(axis=(0, 2, 4, 6, 8, 10, 12)))
    with pytest.raises(meshloom.Error, match="12"):
        meshloom.asarray(a).T
    with pytest.raises(meshloom.Error, match="elements"):
        np.zeros_like(meshloom.asarray(a), shape=(2**40, 2**40))
    b = np.arange(3 << 20, dtype=np.float32)
    close((meshloom.asarray(b)[::-3] * 2 + 1).reshape(-1, 2), (b[::-3] * 2 + 1).reshape(-1, 2))


def test_a_poisson_solver_stays_on_the_device():
    n = 12
    k = 2 * np.pi * np.fft.fftfreq(n, 1 / n)
    k2 = k[:, None, None] ** 2 + k[:, None] ** 2 + k[: n // 2 + 1] ** 2
    green = meshloom.asarray(np.float32(-1 / np.where(k2 == 0, np.inf, k2)))
    rho = np.random.default_rng(4).normal(size=(n, n, n)).astype(np.float32)
    found = fft.irfftn(fft.rfftn(meshloom.asarray(rho)) * green)
    want = np.fft.irfftn(np.fft.rfftn(rho) * np.asarray(green), s=rho.shape, axes=(0, 1, 2))
    assert isinstance(found, meshloom.Array) and np.abs(np.asarray(found) - want).max() < 1e-6 * np.abs(want).max()


def test_ranks_do_not_mix():
    def body(comm):
        own = meshloom.asarray(np.full(3, comm.rank + 1.0, np.float32), comm=comm)
        alone = meshloom.asarray(np.zeros(3, np.float32))
        with pytest.raises(ValueError, match="another rank"):
            own + alone
        with pytest.raises(ValueError, match="another rank"):
            own[:] = alone
        return comm.allreduce(float((own * 2).sum()))

    assert meshloom.ranks(2, body) == [18.0, 18.0]


@double
def test_many_booleans_are_counted_exactly():
    count = 2**24 + 9
    assert meshloom.asarray(np.ones(count, bool)).sum().item() == count
