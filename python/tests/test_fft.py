"""Transforms beside NumPy's."""

import itertools
import warnings

import numpy as np
import pytest

import meshloom
from meshloom import fft
from test_comm import told

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


def part(values, comm):
    """A rank's part: of its rows, or all of an array of one axis on the first rank."""
    if values.ndim == 1:
        return values if comm.rank == 0 else values[:0]
    return np.array_split(values, comm.size)[comm.rank]


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("shape", [(2, 4, 4), (5, 4, 3), (1, 7), (4, 6), (9,), (12,)])
def test_ranks_have_parts_which_may_be_empty(shape, ranks, single):
    field = RNG.standard_normal(shape).astype(np.float32 if single else np.float64)
    values = complex_field(shape, np.complex64 if single else np.complex128)
    half = np.fft.rfftn(field).astype(values.dtype)

    def body(comm):
        own, out = part(values, comm), np.empty_like(part(values, comm))
        given = fft.fftn(own, out=out, comm=comm)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Lengths are those of the whole field, for all functions.
            back = fft.irfftn(part(half, comm), s=shape, comm=comm)
            even = fft.irfftn(part(half, comm), comm=comm, axes=range(len(shape)))
        assert given is out
        same = fft.fftn(own, s=shape, comm=comm)
        return given, same, fft.ifftn(own, norm="ortho", comm=comm), fft.rfftn(part(field, comm), s=shape, norm="forward", comm=comm), back, even

    wants = [np.fft.fftn(values)] * 2 + [np.fft.ifftn(values, norm="ortho"), np.fft.rfftn(field, norm="forward"), field, np.fft.irfftn(half)]
    types = [values.dtype] * 4 + [field.dtype] * 2
    for parts, want, dtype in zip(zip(*meshloom.ranks(ranks, body)), wants, types):
        assert {one.dtype for one in parts} == {dtype}
        close(np.concatenate(parts), want, single)


def test_arrays_on_the_device_come_back_in_host_memory_from_several_ranks():
    field = RNG.standard_normal((5, 4)).astype(np.float32)
    parts = meshloom.ranks(2, lambda comm: fft.rfftn(meshloom.asarray(part(field, comm), comm=comm), comm=comm))
    assert all(isinstance(one, np.ndarray) for one in parts)
    close(np.concatenate(parts), np.fft.rfftn(field), True)


FIELD = np.arange(70.0).reshape(7, 5, 2)


@pytest.mark.parametrize(
    "text, call",
    [
        # What one rank alone does otherwise.
        ("rank 1: Invalid norm value", lambda a, one, comm: fft.fftn(a, norm="none" if one else None, comm=comm)),
        ("rank 1: axes: expected all axes", lambda a, one, comm: fft.fftn(a, axes=(0, 1) if one else None, comm=comm)),
        ("rank 1: axis 3 is out of bounds", lambda a, one, comm: fft.rfftn(a, axes=(0, 1, 3) if one else None, comm=comm)),
        ("rank 1: Shape and axes", lambda a, one, comm: fft.irfftn(a, s=(7, 5) if one else (7, 5, 2), comm=comm)),
        ("rank 1: a: expected real or complex numbers, got <U1", lambda a, one, comm: fft.fftn(np.full(a.shape, "a") if one else a, comm=comm)),
        ("rank 1: a: expected real numbers, got complex128", lambda a, one, comm: fft.rfftn(a + 0j if one else a, comm=comm)),
        ("rank 1: output array has wrong shape", lambda a, one, comm: fft.fftn(a, out=np.zeros((9, 5, 2), complex) if one else None, comm=comm)),
        ("rank 1: Cannot cast complex128 to the output array of float64", lambda a, one, comm: fft.fftn(a, out=np.zeros(a.shape) if one else None, comm=comm)),
        ("type differs: complex128 on rank 0, complex64 on rank 1", lambda a, one, comm: fft.fftn(a.astype("f4") if one else a, comm=comm)),
        ("norm differs: backward on rank 0, ortho on rank 1", lambda a, one, comm: fft.fftn(a, norm="ortho" if one else None, comm=comm)),
        ("function differs: fftn on rank 0, ifftn on rank 1", lambda a, one, comm: (fft.ifftn if one else fft.fftn)(a, comm=comm)),
        ("number of axes differs: 3 on rank 0, 2 on rank 1", lambda a, one, comm: fft.fftn(a[..., 0] if one else a, comm=comm)),
        ("shape of rows differs: (5, 2) on rank 0, (2, 5) on rank 1", lambda a, one, comm: fft.fftn(a.transpose(0, 2, 1) if one else a, comm=comm)),
        ("s differs: None on rank 0, (7, 5, 2) on rank 1", lambda a, one, comm: fft.fftn(a, s=(7, 5, 2) if one else None, comm=comm)),
        ("rank 0: expected 2 of 6 rows, got 3; distribute the first axis with numpy.array_split", lambda a, one, comm: fft.rfftn(a[:1] if one else a, comm=comm)),
        # What all do.
        ("rank 0: expected 6 of 6 rows, got 2; pass an array of one axis to the first rank", lambda a, one, comm: fft.fftn(a[:2, 0, 0], comm=comm)),
        ("on several ranks fields are not cut or padded", lambda a, one, comm: fft.fftn(a, s=(7, 5, 4), comm=comm)),
        ("on several ranks fields are not cut or padded", lambda a, one, comm: fft.fftn(a, s=(3, 5, 2), comm=comm)),
        ("on several ranks fields are not cut or padded", lambda a, one, comm: fft.irfftn(a, s=(7, 5, 4), comm=comm)),
        ("Invalid number of FFT data points (0)", lambda a, one, comm: fft.irfftn(a[:0], comm=comm)),
        ("axes: expected all axes", lambda a, one, comm: fft.fftn(a[..., None], comm=comm)),
        ("axes: expected all axes", lambda a, one, comm: fft.rfftn(a, axes=(2, 1, 0), comm=comm)),
    ],
)
def test_what_one_rank_does_otherwise_is_the_same_error_of_all(text, call):
    kind, said = told(3, lambda comm: call(part(FIELD, comm), comm.rank == 1, comm))
    assert issubclass(kind, (TypeError, ValueError)) and text in said


def test_a_warning_of_numpy_names_the_caller():
    a = np.ones((4, 4))
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        with pytest.warns(DeprecationWarning, match="`axes` should not be `None`") as caught:
            getattr(fft, name)(a, s=(4, 4))
        assert caught[0].filename == __file__


def test_hermitian_signals_are_in_host_memory():
    for function, dtype in [(fft.hfft, np.complex64), (fft.ihfft, np.float32)]:
        with pytest.raises(TypeError, match="host memory"):
            function(meshloom.asarray(np.ones(4, dtype)))


SCIPYS = [
    ("fftn", {"axes": 1}),
    ("fftn", {"s": 3, "axes": 1}),
    ("ifftn", {"s": 3}),
    ("fftn", {"s": (3, 4)}),
    ("rfftn", {"s": (3, 4)}),
    ("irfftn", {"s": (3, 4)}),
    ("irfftn", {"axes": 1}),
    ("fftn", {"s": np.array([3, -1]), "axes": np.array([0, 1]), "workers": 2, "overwrite_x": True}),
    ("fft2", {}),
    ("rfft2", {"s": (2, 6)}),
    ("irfft2", {"axes": (1, 0)}),
    ("fft2", {"axes": None}),
    ("rfft", {"n": 6, "axis": 0, "norm": "ortho"}),
    ("hfft", {}),
    ("fftn", {"axes": (1, 1)}),
    ("rfftn", {"axes": (0, -2)}),
    ("fftn", {"axes": 2}),
    ("fftn", {"axes": "a"}),
    ("fftn", {"s": (1, 2, 3, 4)}),
    ("fftn", {"s": (1, 2), "axes": 0}),
    ("fftn", {"s": (1, 0)}),
    ("fftn", {"s": (1.5, 2)}),
    ("rfftn", {"axes": ()}),
    ("fftn", {"axes": ()}),
    ("fft", {"plan": "one"}),
]


@pytest.mark.parametrize("name, arguments", SCIPYS)
def test_scipys_functions_take_what_scipy_takes(name, arguments):
    scipy_fft = pytest.importorskip("scipy.fft")
    a = RNG.standard_normal((4, 5))
    a = a if name[0] == "r" else a + 1j * RNG.standard_normal((4, 5))
    call = lambda: getattr(scipy_fft, name)(a.copy(), **arguments)
    try:
        want = call()
    except Exception as error:
        with scipy_fft.set_backend(fft), pytest.raises(type(error)):
            call()
        return
    with scipy_fft.set_backend(fft, only=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        close(call(), want, False)


def test_scipys_first_argument_has_its_name():
    scipy_fft = pytest.importorskip("scipy.fft")
    with scipy_fft.set_backend(fft, only=True):
        close(scipy_fft.fft2(x=FIELD), np.fft.fft2(FIELD), False)


def test_long_doubles_stay_scipys():
    scipy_fft = pytest.importorskip("scipy.fft")
    if np.finfo(np.longdouble).bits == 64:
        pytest.skip("long doubles are doubles here")
    a = RNG.standard_normal((3, 4)).astype(np.longdouble)
    for name in ("fft", "rfft", "fftn", "irfftn"):
        want = getattr(scipy_fft, name)(a)
        with scipy_fft.set_backend(fft):
            found = getattr(scipy_fft, name)(a)
        assert found.dtype == want.dtype and np.array_equal(found, want)
        with pytest.raises(TypeError, match="more digits"):
            getattr(fft, name)(a)
