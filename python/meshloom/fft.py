"""Discrete Fourier transforms: `numpy.fft` on the device.

Functions have the names, arguments and results of `numpy.fft`. `fftn`, `ifftn`, `rfftn` and
`irfftn` also take ``comm=``, with which each rank passes its part of the first axis and gets its
part of the result; see `fftn`.

Notes
-----
**Precision.** float32 and complex64 (and float16) are transformed in single precision. All other
types are transformed in double precision, which the device must support (`meshloom.devices`,
``f64``). Without it a call raises `meshloom.Error`, because nothing is rounded silently: pass
``a.astype(numpy.float32)`` there.

**Lengths.** All lengths are supported; products of 2, 3, 5 and 7 are fastest.

**Device arrays.** A `meshloom.Array` is transformed on its device, and the result is another
`meshloom.Array`. The call does not wait for the device. Such an array is neither cut nor padded,
and `hfft` and `ihfft` do not take it.

**SciPy.** ``scipy.fft.set_backend(meshloom.fft)`` runs the functions of `scipy.fft` here. Functions
and types that are not supported here stay SciPy's.

Examples
--------
>>> import numpy as np
>>> from meshloom import fft
>>> modes = fft.rfftn(np.ones((4, 4, 4), dtype=np.float32))
>>> modes.dtype, modes.shape, complex(modes[0, 0, 0])
(dtype('complex64'), (4, 4, 3), (64+0j))
>>> fft.irfftn(modes, s=(4, 4, 4), axes=(0, 1, 2)).dtype
dtype('float32')
"""

import operator
import warnings

import numpy as np
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

from . import _native
from ._comm import check_parts, resolve, together
from ._device_array import Array, asarray
from ._plain import plain
from ._scipy_backend import numpys_arguments

__all__ = [
    "fft",
    "ifft",
    "rfft",
    "irfft",
    "hfft",
    "ihfft",
    "fft2",
    "ifft2",
    "rfft2",
    "irfft2",
    "fftn",
    "ifftn",
    "rfftn",
    "irfftn",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]

_AxisError = getattr(np, "exceptions", np).AxisError
_NORMS = (None, "backward", "ortho", "forward")
_OTHER_NORM = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
# Largest number of axes that one call of the device transforms.
_AXES_AT_ONCE = 3


def _norm(norm):
    if norm not in _NORMS:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm or "backward"


def _axis(axis, ndim):
    at = operator.index(axis)
    if not -ndim <= at < ndim:
        raise _AxisError(at, ndim)
    return at % ndim


def _transformable(dtype):
    """Return True if devices support elements of this type, or wider ones."""
    return dtype.kind in "biufc" and dtype.itemsize <= {"f": 8, "c": 16}.get(dtype.kind, 8)


def _is_single(dtype):
    """Return True if elements of this type are transformed in single precision."""
    return dtype.itemsize <= {"f": 4, "c": 8}.get(dtype.kind, 0)


def _result_type(kind, dtype):
    if kind == "rfft":
        return np.result_type(dtype, np.complex64)
    return np.zeros(0, dtype).real.dtype if kind == "irfft" else dtype


def _array(a, real=False):
    """Return `a` as an array of a type that is transformed."""
    if isinstance(a, Array):
        if (a.dtype.kind == "f") != real:
            if real:
                raise TypeError(f"a: expected real numbers, got an array of {a.dtype} on a device; use fft or fftn")
            raise TypeError(f"a: expected complex numbers on a device, got {a.dtype}; use rfft or rfftn, or asarray(.., dtype=complex)")
        return a
    a = np.asarray(plain(a, "a"))
    kind = a.dtype.kind
    if kind == "c" and real:
        raise TypeError(f"a: expected real numbers, got {a.dtype}; pass the real part, or use fft or fftn")
    if kind not in "biufc":
        raise TypeError(f"a: expected real or complex numbers, got {a.dtype}")
    if not _transformable(a.dtype):
        raise TypeError(f"a: expected at most float64 or complex128, got {a.dtype}, which has more digits")
    if real:
        dtype = np.float32 if _is_single(a.dtype) else np.float64
    else:
        dtype = np.complex64 if _is_single(a.dtype) else np.complex128
    return a.astype(dtype, copy=False)


def _resized(a, axis, n):
    """Return `a` cut or padded with zeros to `n` elements along an axis."""
    have = a.shape[axis]
    if n == have:
        return a
    if isinstance(a, Array):
        raise ValueError(f"n: expected {have} for axis {axis} of a device array, got {n}; device arrays are not cut or padded")
    index = [slice(None)] * a.ndim
    if n < have:
        index[axis] = slice(n)
        return a[tuple(index)]
    shape = list(a.shape)
    shape[axis] = n
    larger = np.zeros(shape, a.dtype)
    index[axis] = slice(have)
    larger[tuple(index)] = a
    return larger


def _layout(shape, axes, real):
    """Return a mesh of three axes that has the memory layout of an array of this shape.

    The result has the cells, the axes that are transformed and the number of meshes. It is None if
    no such mesh exists.
    """
    last = axes[-1]
    if real and last != len(shape) - 1:
        return None
    runs = []
    for at, length in enumerate(shape):
        transformed = at in axes and (length > 1 or (real and at == last))
        if not transformed and runs and not runs[-1][1]:
            runs[-1][0] *= length
        elif transformed or length > 1:
            runs.append([length, transformed])
    fields = 1
    if len(runs) == 4 and not runs[0][1]:
        fields = runs.pop(0)[0]
    if len(runs) > 3:
        return None
    runs = [[1, False]] * (3 - len(runs)) + runs
    return [length for length, _ in runs], [transformed for _, transformed in runs], fields


def _on_device(kind, a, shape, axes, norm):
    """Transform along at most three axes; among real numbers the last one is halved.

    `shape` is that of the field.
    """
    real = kind in ("rfft", "irfft")
    result = list(shape)
    if kind == "rfft":
        result[axes[-1]] = shape[axes[-1]] // 2 + 1
    if 0 in a.shape and not isinstance(a, Array):
        return np.zeros(result, _result_type(kind, a.dtype))
    layout = _layout(shape, axes, real)
    if isinstance(a, Array):
        if layout is None:
            raise ValueError(f"axes {tuple(axes)} of an array of {a.ndim} axes cannot be transformed on a device; pass numpy.asarray of it")
        if 0 not in a.shape and any(layout[1]):
            return Array._owning(_native.transform_on_device(a._lent(), kind, layout, norm, result))
        return asarray(np.asarray(_on_device(kind, a.numpy(), shape, axes, norm)), comm=a.comm)
    if layout is None:
        # Move the transformed axes to the end, in their order.
        ends = range(-len(axes), 0)
        moved = np.moveaxis(a, axes, ends)
        rest = [length for at, length in enumerate(shape) if at not in axes]
        field = rest + [shape[axis] for axis in axes]
        own = [len(rest) + at for at in range(len(axes))]
        return np.moveaxis(_on_device(kind, moved, field, own, norm), ends, axes)
    if not any(layout[1]):
        return a.copy()
    found = _native.transform(resolve(None), kind, np.ascontiguousarray(a), layout, norm)
    return found.reshape(result)


def _along(kind, a, axes, s, norm):
    """Transform complex numbers along any number of axes, with the given number of points each."""
    axes, s = list(axes), list(s)
    # A repeated axis is transformed twice.
    at_once = _AXES_AT_ONCE if len(set(axes)) == len(axes) else 1
    while axes:
        now = axes[-at_once:]
        for axis, n in zip(now, s[-at_once:]):
            a = _resized(a, axis, n)
        a = _on_device(kind, a, a.shape, now, norm)
        del axes[-at_once:], s[-at_once:]
    return a


def _checked_out(out, shape, dtype):
    """Raise an error if `out` cannot hold a result of this shape and type."""
    if not isinstance(out, np.ndarray):
        raise TypeError("return arrays must be of ArrayType")
    if out.shape != tuple(shape):
        raise ValueError(f"output array has wrong shape: {out.shape}, not {tuple(shape)}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"Cannot cast {dtype} to the output array of {out.dtype}")
    if not out.flags.writeable:
        raise ValueError("output array is read-only")


def _into(out, result):
    if out is None:
        return result
    if isinstance(result, Array):
        raise TypeError("return arrays must be of ArrayType")
    _checked_out(out, result.shape, result.dtype)
    np.copyto(out, result, casting="same_kind")
    return out


def _points(n):
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    return n


def _lengths(a, s, axes, half=False):
    """Return the axes of a transform and the lengths along them."""
    if s is not None:
        # NumPy has the same two warnings.
        if any(n is None for n in s):
            text = "Passing an array containing `None` values to `s` is deprecated; give -1 for the length of an axis."
            warnings.warn(text, DeprecationWarning, stacklevel=4)
        s = [-1 if n is None else operator.index(n) for n in s]
        if axes is None:
            text = "`axes` should not be `None` if `s` is not `None`: give the axes that the lengths are of."
            warnings.warn(text, DeprecationWarning, stacklevel=4)
            axes = range(-len(s), 0)
    axes = [_axis(axis, a.ndim) for axis in (range(a.ndim) if axes is None else axes)]
    if s is None:
        s = [a.shape[axis] for axis in axes]
        if half and s:
            s[-1] = 2 * (s[-1] - 1)
    if len(s) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    s = [a.shape[axis] if n == -1 else n for n, axis in zip(s, axes)]
    return axes, [_points(n) for n in s]


def _field(kind, shape, s):
    """Return the lengths of a field that is transformed along all axes."""
    if s is not None:
        return [have if n == -1 else n for n, have in zip(s, shape)]
    return [*shape[:-1], 2 * (shape[-1] - 1) if kind == "irfft" else shape[-1]]


def _halved(lengths):
    return [*lengths[:-1], lengths[-1] // 2 + 1]


def _call(kind, a, s, axes, norm, out):
    """Check the arguments of one rank.

    Returns the arguments that stay on the rank, those that must be the same on all ranks, and the
    rows of its part.
    """
    a, norm = _array(a, real=kind == "rfft"), _norm(norm)
    axes = range(a.ndim) if axes is None else [_axis(axis, a.ndim) for axis in axes]
    if not 1 <= a.ndim <= 3 or list(axes) != list(range(a.ndim)):
        raise ValueError("axes: expected all axes of an array of 1, 2 or 3 axes, in order, on several ranks")
    if s is not None:
        s = tuple(-1 if n is None else operator.index(n) for n in s)
        if len(s) != a.ndim:
            raise ValueError("Shape and axes have different lengths.")
    if out is not None:
        result = _field(kind, a.shape, s)
        result = _halved(result) if kind == "rfft" else result
        rows = result[0] if a.ndim == 1 and len(a) else len(a)
        _checked_out(out, [rows, *result[1:]], _result_type(kind, a.dtype))
    alike = {"function": kind + "n", "number of axes": a.ndim, "type": a.dtype.name, "shape of rows": a.shape[1:], "norm": norm, "s": s}
    return (np.ascontiguousarray(a), s, norm), alike, len(a)


def _over_ranks(kind, a, s, axes, norm, out, comm):
    """Transform an array along all axes that is distributed along the first one."""
    return together(comm, lambda: _call(kind, a, s, axes, norm, out), lambda own, rows: _of_parts(kind, *own, rows, out, comm))


def _of_parts(kind, a, s, norm, rows, out, comm):
    """Transform the part of this rank; `rows` has the number of rows of each rank."""
    shape = [sum(rows), *a.shape[1:]]
    field = [_points(n) for n in _field(kind, shape, s)]
    if shape != (_halved(field) if kind == "irfft" else field):
        raise ValueError(f"s: expected the shape of all parts, {tuple(shape)}, got {s}; on several ranks fields are not cut or padded")
    check_parts(rows, a.ndim)
    if a.ndim == 1:
        return _into(out, _on_first_rank(kind, a, field, norm))
    cells = [field[0], *([1] * (3 - a.ndim)), *field[1:]]
    found = _native.transform(comm, kind, a, (cells, [True, a.ndim == 3, True], 1), norm)
    result = _halved(field) if kind == "rfft" else field
    return _into(out, found.reshape(len(a), *result[1:]))


def _on_first_rank(kind, a, field, norm):
    """Transform an array of one axis on the first rank; other ranks return an empty array."""
    return _on_device(kind, a, field, [0], norm) if a.size else np.zeros(0, _result_type(kind, a.dtype))


def _nd(kind, a, s, axes, norm, out, comm=None):
    """Transform along several axes; transforms of real numbers halve the last of them."""
    if comm is not None and (comm := resolve(comm)).size > 1:
        return _over_ranks(kind, a, s, axes, norm, out, comm)
    a, norm = _array(a, real=kind == "rfft"), _norm(norm)
    axes, s = _lengths(a, s, axes, half=kind == "irfft")
    if kind in ("fft", "ifft"):
        return _into(out, _along(kind, a, axes, s, norm))
    if not axes:
        raise IndexError("at least one axis is transformed")
    return _into(out, (_of_real if kind == "rfft" else _to_real)(a, axes, s, norm))


def fft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the Fourier transform along one axis, as `numpy.fft.fft`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers.
    n : int, optional
        Number of points. A longer axis is cut, a shorter one padded with zeros. Default: the length
        of the axis.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        Complex array with `n` points along `axis`: complex64 for input in single precision, else
        complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.fft([1.0, 0.0, 0.0, 0.0]).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    a, norm = _array(a), _norm(norm)
    axis = _axis(axis, a.ndim)
    return _into(out, _along("fft", a, [axis], [_points(a.shape[axis] if n is None else n)], norm))


def ifft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the inverse Fourier transform along one axis, as `numpy.fft.ifft`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers.
    n : int, optional
        Number of points. A longer axis is cut, a shorter one padded with zeros. Default: the length
        of the axis.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        Complex array with `n` points along `axis`: complex64 for input in single precision, else
        complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.ifft([4.0, 0.0, 0.0, 0.0]).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    a, norm = _array(a), _norm(norm)
    axis = _axis(axis, a.ndim)
    return _into(out, _along("ifft", a, [axis], [_points(a.shape[axis] if n is None else n)], norm))


def rfft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the Fourier transform of real numbers along one axis, as `numpy.fft.rfft`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real numbers.
    n : int, optional
        Number of points. A longer axis is cut, a shorter one padded with zeros. Default: the length
        of the axis.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        Complex array with ``n // 2 + 1`` points along `axis`: complex64 for input in single
        precision, else complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type, or are complex.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.rfft([1.0, 1.0, 1.0, 1.0]).real.tolist()
    [4.0, 0.0, 0.0]
    """
    a, norm = _array(a, real=True), _norm(norm)
    axis = _axis(axis, a.ndim)
    return _into(out, _of_real(a, [axis], [_points(a.shape[axis] if n is None else n)], norm))


def irfft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the inverse of `rfft`, as `numpy.fft.irfft`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers: the first half of the modes of a real array.
    n : int, optional
        Number of points of the result. Default: ``2 * (m - 1)`` for an axis of length m. Pass `n`
        for odd lengths.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        Real array with `n` points along `axis`: float32 for input in single precision, else
        float64.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.irfft([4.0, 0.0, 0.0]).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    a, norm = _array(a), _norm(norm)
    axis = _axis(axis, a.ndim)
    n = _points(2 * (a.shape[axis] - 1) if n is None else n)
    return _into(out, _to_real(a, [axis], [n], norm))


def _split(axes):
    """Return how many of the first axes are transformed in calls of their own."""
    return max(len(axes) - (_AXES_AT_ONCE if len(set(axes)) == len(axes) else 1), 0)


def _of_real(a, axes, s, norm):
    """Return the half spectra of real fields along the last of `axes`."""
    head = _split(axes)
    for axis, n in zip(axes[head:], s[head:]):
        a = _resized(a, axis, n)
    modes = _on_device("rfft", a, list(a.shape), axes[head:], norm)
    return _along("fft", modes, axes[:head], s[:head], norm)


def _to_real(a, axes, s, norm):
    """Return real fields from their half spectra along the last of `axes`."""
    head = _split(axes)
    a = _along("ifft", a, axes[:head][::-1], s[:head][::-1], norm)
    for axis, n in zip(axes[head:-1], s[head:-1]):
        a = _resized(a, axis, n)
    a = _resized(a, axes[-1], s[-1] // 2 + 1)
    shape = list(a.shape)
    shape[axes[-1]] = s[-1]
    return _on_device("irfft", a, shape, axes[head:], norm)


def _on_host(a):
    """Raise an error for a device array, because devices do not conjugate."""
    if isinstance(a, Array):
        raise TypeError("a: expected an array in host memory, got a device array; pass numpy.asarray of it")
    return a


def hfft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the transform of a Hermitian array, which is real, as `numpy.fft.hfft`.

    Parameters
    ----------
    a : array_like
        Real or complex numbers in host memory: the first half of an array that equals its conjugate
        in reverse order.
    n : int, optional
        Number of points of the result. Default: ``2 * (m - 1)`` for an axis of length m.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray
        Real array with `n` points along `axis`: float32 for input in single precision, else
        float64.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.hfft([1.0, 0.0, 0.0]).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    a, norm = _array(_on_host(a)), _norm(norm)
    axis = _axis(axis, a.ndim)
    n = _points(2 * (a.shape[axis] - 1) if n is None else n)
    return _into(out, _to_real(np.conjugate(a), [axis], [n], _OTHER_NORM[norm]))


def ihfft(a, n=None, axis=-1, norm=None, out=None):
    """Compute the inverse of `hfft`, as `numpy.fft.ihfft`.

    Parameters
    ----------
    a : array_like
        Real numbers in host memory.
    n : int, optional
        Number of points. A longer axis is cut, a shorter one padded with zeros. Default: the length
        of the axis.
    axis : int, default -1
        Axis that is transformed.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the number of points.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray
        Complex array with ``n // 2 + 1`` points along `axis`: complex64 for input in single
        precision, else complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type, or are complex.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> from meshloom import fft
    >>> fft.ihfft([4.0, 0.0, 0.0, 0.0]).real.tolist()
    [1.0, 1.0, 1.0]
    """
    result = rfft(_on_host(a), n, axis, _OTHER_NORM[_norm(norm)])
    return _into(out, np.conjugate(result, out=result))


def fftn(a, s=None, axes=None, norm=None, out=None, *, comm=None):
    """Compute the Fourier transform along several axes, as `numpy.fft.fftn`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers. With `comm`, the part of this rank along the first axis.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros. With `comm`, the lengths of the whole field, which must be
        those it has.
    axes : sequence of int, optional
        Axes that are transformed, the last one first. Default: all axes, or the last ``len(s)``.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. Default: this process alone.

    Returns
    -------
    ndarray or meshloom.Array
        complex64 for input in single precision, else complex128. With `comm`, this rank's part of
        the first axis, in host memory.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown. With `comm`, if the parts of the ranks do not
        fit together or their arguments differ.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Collective with `comm`. Then all axes of an array of one, two or three axes are transformed. The
    part of each rank is that of `numpy.array_split`; it is empty if there are more ranks than rows.
    An array of one axis lies on the first rank as a whole: the others pass an empty array. On
    several ranks a `meshloom.Array` is copied to host memory.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.fftn(a), np.fft.fftn(a)))
    True
    """
    return _nd("fft", a, s, axes, norm, out, comm)


def ifftn(a, s=None, axes=None, norm=None, out=None, *, comm=None):
    """Compute the inverse Fourier transform along several axes, as `numpy.fft.ifftn`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers. With `comm`, the part of this rank along the first axis.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros. With `comm`, the lengths of the whole field, which must be
        those it has.
    axes : sequence of int, optional
        Axes that are transformed, the last one first. Default: all axes, or the last ``len(s)``.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. Default: this process alone.

    Returns
    -------
    ndarray or meshloom.Array
        complex64 for input in single precision, else complex128. With `comm`, this rank's part of
        the first axis, in host memory.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown. With `comm`, if the parts of the ranks do not
        fit together or their arguments differ.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Collective with `comm`. Then all axes of an array of one, two or three axes are transformed. The
    part of each rank is that of `numpy.array_split`; it is empty if there are more ranks than rows.
    An array of one axis lies on the first rank as a whole: the others pass an empty array. On
    several ranks a `meshloom.Array` is copied to host memory.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.ifftn(fft.fftn(a)), a))
    True
    """
    return _nd("ifft", a, s, axes, norm, out, comm)


def fft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    """Compute the Fourier transform along two axes, as `numpy.fft.fft2`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros.
    axes : sequence of int, default (-2, -1)
        The two axes; the last one is transformed first.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        complex64 for input in single precision, else complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.fft2(a), np.fft.fft2(a)))
    True
    """
    return _nd("fft", a, s, axes, norm, out)


def ifft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    """Compute the inverse Fourier transform along two axes, as `numpy.fft.ifft2`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros.
    axes : sequence of int, default (-2, -1)
        The two axes; the last one is transformed first.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        complex64 for input in single precision, else complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.ifft2(fft.fft2(a)), a))
    True
    """
    return _nd("ifft", a, s, axes, norm, out)


def rfftn(a, s=None, axes=None, norm=None, out=None, *, comm=None):
    """Compute the Fourier transform of real numbers along several axes, as `numpy.fft.rfftn`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real numbers. With `comm`, the part of this rank along the first axis.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros. With `comm`, the lengths of the whole field, which must be
        those it has.
    axes : sequence of int, optional
        Axes that are transformed, the last one first. Default: all axes, or the last ``len(s)``.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. Default: this process alone.

    Returns
    -------
    ndarray or meshloom.Array
        The last of `axes` has ``n // 2 + 1`` points. complex64 for input in single precision, else
        complex128. With `comm`, this rank's part of the first axis, in host memory.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown. With `comm`, if the parts of the ranks do not
        fit together or their arguments differ.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type, or are complex.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Collective with `comm`. Then all axes of an array of one, two or three axes are transformed. The
    part of each rank is that of `numpy.array_split`; it is empty if there are more ranks than rows.
    An array of one axis lies on the first rank as a whole: the others pass an empty array. On
    several ranks a `meshloom.Array` is copied to host memory.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.rfftn(a), np.fft.rfftn(a)))
    True
    """
    return _nd("rfft", a, s, axes, norm, out, comm)


def irfftn(a, s=None, axes=None, norm=None, out=None, *, comm=None):
    """Compute the inverse of `rfftn`, as `numpy.fft.irfftn`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers: half spectra along the last of `axes`. With `comm`, the part of
        this rank along the first axis.
    s : sequence of int, optional
        Number of points along each of `axes` in the result; -1 keeps the length of the axis.
        Default of the last one: ``2 * (m - 1)`` for an axis of length m. Pass `s` if it is odd.
        With `comm`, the lengths of the whole field, which must be those it has: ``s=shape, axes=(0,
        1, 2)``.
    axes : sequence of int, optional
        Axes that are transformed, the last one first. Default: all axes, or the last ``len(s)``.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the first axis each. Default: this process alone.

    Returns
    -------
    ndarray or meshloom.Array
        float32 for input in single precision, else float64. With `comm`, this rank's part of the
        first axis, in host memory.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown. With `comm`, if the parts of the ranks do not
        fit together or their arguments differ.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Collective with `comm`. Then all axes of an array of one, two or three axes are transformed. The
    part of each rank is that of `numpy.array_split`; it is empty if there are more ranks than rows.
    An array of one axis lies on the first rank as a whole: the others pass an empty array. On
    several ranks a `meshloom.Array` is copied to host memory.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.irfftn(fft.rfftn(a)), a))
    True
    """
    return _nd("irfft", a, s, axes, norm, out, comm)


def rfft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    """Compute the Fourier transform of real numbers along two axes, as `numpy.fft.rfft2`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real numbers.
    s : sequence of int, optional
        Number of points along each of `axes`; -1 keeps the length of the axis. Longer axes are cut,
        shorter ones padded with zeros.
    axes : sequence of int, default (-2, -1)
        The two axes; the last one is transformed first.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        The last of `axes` has ``n // 2 + 1`` points. complex64 for input in single precision, else
        complex128.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type, or are complex.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.rfft2(a), np.fft.rfft2(a)))
    True
    """
    return _nd("rfft", a, s, axes, norm, out)


def irfft2(a, s=None, axes=(-2, -1), norm=None, out=None):
    """Compute the inverse of `rfft2`, as `numpy.fft.irfft2`.

    Parameters
    ----------
    a : array_like or meshloom.Array
        Real or complex numbers: half spectra along the last of `axes`.
    s : sequence of int, optional
        Number of points along each of `axes` in the result; -1 keeps the length of the axis.
        Default of the last one: ``2 * (m - 1)`` for an axis of length m. Pass `s` if it is odd.
    axes : sequence of int, default (-2, -1)
        The two axes; the last one is transformed first.
    norm : {"backward", "ortho", "forward"}, default "backward"
        Normalization. "backward" scales the inverse by ``1 / n``, "forward" scales the forward
        transform by it, "ortho" scales both by ``1 / sqrt(n)``; n is the product of the lengths.
    out : ndarray, optional
        Array for the result, of its shape and of a type that it can be cast to.

    Returns
    -------
    ndarray or meshloom.Array
        float32 for input in single precision, else float64.

    Raises
    ------
    ValueError
        If a length is below 1, or `norm` is unknown.
    numpy.exceptions.AxisError
        If an axis is out of range.
    TypeError
        If the elements are not numbers of a supported type.
    meshloom.Error
        If the device lacks double precision and the input is not in single precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import fft
    >>> a = np.arange(12.0).reshape(3, 4)
    >>> bool(np.allclose(fft.irfft2(fft.rfft2(a)), a))
    True
    """
    return _nd("irfft", a, s, axes, norm, out)


# The protocol of scipy.fft.set_backend(meshloom.fft). Unsupported functions and types stay SciPy's.
__ua_domain__ = "numpy.scipy.fft"


def __ua_function__(method, args, kwargs):
    name = method.__name__
    arguments = numpys_arguments(name, args, kwargs) if name in __all__ else None
    if arguments is None or not _transformable(arguments[0].dtype):
        return NotImplemented
    # Some devices lack double precision; an array on a device has a type that it supports.
    if not (_is_single(arguments[0].dtype) or isinstance(arguments[0], Array) or resolve(None).has_f64):
        return NotImplemented
    return globals()[name](*arguments)


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
