"""Transforms beside NumPy's."""

import itertools

import numpy as np
import pytest

from meshloom import fft

RNG = np.random.default_rng(5)
SHAPES = [(1,), (7,), (12,), (3, 5), (1, 8), (4, 1, 6), (5, 4, 3), (2, 3, 4, 5), (2, 1, 3, 2, 4)]


def complex_field(shape, dtype):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def close(ours, theirs, single):
    assert ours.shape == theirs.shape
    # 8 roundings of the greatest value: more than what the documented accuracy of these small lengths allows.
    bound = 8 * np.finfo(np.float32 if single else np.float64).eps * max(1.0, np.abs(theirs).max(initial=0.0))
    assert np.abs(ours - theirs).max(initial=0.0) <= bound


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("single", [True, False])
def test_all_sets_of_axes(shape, single):
    real, complex_ = (np.float32, np.complex64) if single else (np.float64, np.complex128)
    field, values = RNG.standard_normal(shape).astype(real), complex_field(shape, complex_)
    sets = [axes for n in range(1, len(shape) + 1) for axes in itertools.permutations(range(len(shape)), n)]
    # Every set of axes in ascending order, and some others.
    sets = [axes for number, axes in enumerate(sets) if axes == tuple(sorted(axes)) or number % 23 == 0]
    for axes in sets:
        for norm in [None, "ortho"]:
            for name in ("fftn", "ifftn"):
                ours = getattr(fft, name)(values, axes=axes, norm=norm)
                assert ours.dtype == complex_
                close(ours, getattr(np.fft, name)(values, axes=axes, norm=norm), single)
            modes = fft.rfftn(field, axes=axes, norm=norm)
            assert modes.dtype == complex_
            close(modes, np.fft.rfftn(field, axes=axes, norm=norm), single)
            back = fft.irfftn(modes, s=[shape[axis] for axis in axes], axes=axes, norm=norm)
            assert back.dtype == real
            close(back, field, single)


@pytest.mark.parametrize("order", ["C", "F", "reversed", "every second", "broadcast", "big endian", "read-only"])
def test_any_order_in_memory(order):
    a = RNG.standard_normal((6, 4, 10)).astype(np.float32)
    a = {
        "C": lambda: a,
        "F": lambda: np.asfortranarray(a),
        "reversed": lambda: a[::-1, :, ::-1],
        "every second": lambda: a[:, :, ::2],
        "broadcast": lambda: np.broadcast_to(a[:, :1], a.shape),
        "big endian": lambda: a.astype(">f4"),
        "read-only": lambda: (a.setflags(write=False), a)[1],
    }[order]()
    before = a.copy()
    close(fft.rfftn(a), np.fft.rfftn(a), True)
    close(fft.fft(a, axis=0), np.fft.fft(a, axis=0), True)
    assert np.array_equal(a, before)


def test_lengths_are_cut_and_padded():
    a = RNG.standard_normal((5, 6, 7))
    for s in [(3, 9, 7), (8, 2, 1), (5, -1, 10)]:
        for name in ("fftn", "ifftn", "rfftn", "irfftn"):
            ours = getattr(fft, name)(a, s=s, axes=(0, 1, 2))
            close(ours, getattr(np.fft, name)(a, s=s, axes=(0, 1, 2)), False)
    for name, n in itertools.product(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"), (1, 2, 5, 13, 36, 37)):
        close(getattr(fft, name)(a, n=n, axis=1), getattr(np.fft, name)(a, n=n, axis=1), False)


def test_types():
    a = np.arange(8)
    for dtype in (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64):
        ours, theirs = fft.fft(a.astype(dtype)), np.fft.fft(a.astype(dtype))
        assert ours.dtype == theirs.dtype
        close(ours, theirs, ours.dtype == np.complex64)
    assert fft.fft([1, 2, 3]).dtype == np.complex128
    for wrong in (np.array(["a"]), np.array([object()]), np.array([None]), "text", np.zeros(2, "M8[s]")):
        with pytest.raises(TypeError):
            fft.fft(wrong)
    with pytest.raises(TypeError):
        fft.rfft(np.zeros(4, np.complex64))


def test_nothing_is_transformed():
    for shape in [(0, 4), (3, 0, 4), (4, 0)]:
        axis = 0 if shape[-1] == 0 else -1
        assert fft.fft(np.zeros(shape), axis=axis).shape == shape
        assert fft.rfft(np.zeros(shape, np.float32), axis=axis).dtype == np.complex64
    for wrong in [lambda: fft.fft([]), lambda: fft.fft([1.0], n=0), lambda: fft.fft([1.0], n=-3), lambda: fft.irfft([1.0])]:
        with pytest.raises(ValueError):
            wrong()
    assert fft.fftn(np.ones((2, 2)), axes=()).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(IndexError):
        fft.rfftn(np.ones(3), axes=())


def test_wrong_arguments():
    a = np.ones((4, 4))
    for error, call in [
        (ValueError, lambda: fft.fft(a, norm="none")),
        (IndexError, lambda: fft.fft(a, axis=2)),
        (IndexError, lambda: fft.fft(3.0)),
        (ValueError, lambda: fft.fftn(a, s=(2,), axes=(0, 1))),
        (TypeError, lambda: fft.fft(a, n=2.5)),
        (TypeError, lambda: fft.fft(a, out=[0])),
        (ValueError, lambda: fft.fft(a, out=np.zeros(3, complex))),
        (TypeError, lambda: fft.fft(a, out=np.zeros((4, 4)))),
    ]:
        with pytest.raises(error):
            call()


def test_not_finite_numbers_are_transformed_as_numpy_does():
    a = np.array([1.0, np.nan, 2.0, 3.0], np.float32)
    assert np.isnan(fft.fft(a)).all()
