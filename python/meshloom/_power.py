"""Power spectra of points and fields."""

from collections import namedtuple

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import native, real_array_for, transposed
from ._comm import check_parts, resolve, together

PowerSpectrum = namedtuple("PowerSpectrum", ["k", "power", "modes"])
PowerSpectrum.__doc__ = "Bins of a power spectrum, the result of `power_spectrum`."
PowerSpectrum.k.__doc__ = "Mean wavenumbers of the bins, an ndarray of float."
PowerSpectrum.power.__doc__ = "Mean powers of the bins, an ndarray of float."
PowerSpectrum.modes.__doc__ = "Numbers of modes of the bins, an ndarray of int."

# Longest side of a mesh: products of two sides stay within 32 bits, which kernels count in.
_MAX_SIDE = 1 << 14


def _box(box):
    if box is None or isinstance(box, (str, bytes)):
        raise TypeError(f"box: expected one length or three, got {box!r}")
    sides = [box] * 3 if np.ndim(box) == 0 else list(box)
    if len(sides) != 3:
        raise ValueError(f"box: expected one length or three, got {len(sides)}")
    return [real_number(side, "box") for side in sides]


def _default_mesh(count):
    """Return the default number of cells along an axis for `count` points.

    It is twice the mean number of points along an axis, 16 to 512, rounded up to an even length
    that is fast to transform.
    """
    half = int(np.ceil(np.clip(2.0 * np.cbrt(count) - 1e-9, 16.0, 512.0) / 2.0))

    def is_good(n):
        for factor in (2, 3, 5, 7):
            while n % factor == 0:
                n //= factor
        return n == 1

    while not is_good(half):
        half += 1
    return 2 * half


def _mesh(mesh):
    shape = [mesh] * 3 if np.ndim(mesh) == 0 else list(mesh)
    shape = [whole_number(n, "mesh", 1) for n in shape]
    if len(shape) != 3 or max(shape) > _MAX_SIDE:
        raise ValueError(f"mesh: expected one number of cells or three, each from 1 to {_MAX_SIDE}, got {mesh}")
    return shape


def power_spectrum(
    data,
    box,
    *,
    weights=None,
    contrast=False,
    mesh=None,
    window=None,
    deconvolve=False,
    interlace=False,
    shot_noise=False,
    comm=None,
):
    """Measure the power spectrum of points or of a field.

    Parameters
    ----------
    data : array_like or meshloom.Array
        Points of shape ``(N, 3)``, or a field of three axes. A field is divided by its mean, see
        `contrast`. With `comm`, the part of this rank along the first axis.
    box : float or sequence of float
        Side lengths of the periodic box, in the unit of the positions; positive.
    weights : array_like or meshloom.Array, shape (N,), optional
        Weights of the points, such as masses: finite and not negative, used in float32. Default: 1.
    contrast : bool, default False
        Measure a field as it is, such as a density contrast, a divergence or a temperature. If
        False, the field is divided by its mean, which must be positive.
    mesh : int or sequence of int, optional
        Number of cells of the mesh for points. Default: twice the cube root of their number, 16 to
        512.
    window : {"cic", "tsc", "pcs"}, optional
        Mass assignment window for points ("cic" by default), or the window that a field was painted
        with.
    deconvolve : bool, default False
        Divide by the power of the window.
    interlace : bool, default False
        Paint points a second time, shifted by half a cell, to suppress the strongest aliases.
    shot_noise : bool, default False
        Subtract the shot noise ``V / N``, or ``V * sum(w**2) / sum(w)**2`` with weights. It is
        exact with `interlace` and `deconvolve`; without them it is too large at small scales.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part each. Default: this process alone.

    Returns
    -------
    PowerSpectrum
        Named tuple of arrays ``k``, ``power`` and ``modes``: one bin per multiple of the
        fundamental wavenumber ``2 pi / box``, up to the Nyquist wavenumber. Units are the inverse
        of the unit of `box`, and its cube.

    Raises
    ------
    ValueError
        If values are not finite, shapes do not fit, the mean of a field is not positive, or more
        than a hundredth of the magnitude of a field is in negative values (without `contrast`).

    Warns
    -----
    UserWarning
        If points lie more than a side outside the box, or all within 1 % of each side: the points
        and the box seem to have different units.

    Notes
    -----
    Collective with `comm`; the spectrum has the same bits on any number of ranks.

    Positions and the mean of a field are taken in float64. The density contrast is rounded to
    float32 and transformed in float32, so bins with less than 1e-14 of the highest power are
    inexact. `meshloom.fft.rfftn` transforms float64 in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import power_spectrum
    >>> x = np.arange(16) / 16
    >>> wave = 1.0 + 0.1 * np.cos(2 * np.pi * 3 * x)[:, None, None] * np.ones((16, 16, 16))
    >>> spectrum = power_spectrum(wave, 1.0)
    >>> int(np.argmax(spectrum.power)) + 1
    3
    """
    comm = resolve(comm)

    def check():
        own = real_array_for(comm, data, "data")
        if own.ndim != 3 and (own.ndim != 2 or own.shape[1] != 3):
            raise ValueError(f"data: expected shape (N, 3) for points or three axes for a field, got {own.shape}{transposed(own)}")
        if own.ndim == 3 and (mesh is not None or interlace or shot_noise or (window is not None and not deconvolve)):
            raise ValueError("mesh, interlace and shot_noise are for points; a field has its own mesh, and a window only to deconvolve")
        if own.ndim == 2 and contrast:
            raise ValueError("contrast is for fields; points have a density")
        if own.ndim == 3 and weights is not None:
            raise ValueError("weights are for points; data is a field")
        own_weights = None if weights is None else real_array_for(comm, weights, "weights")
        if own_weights is not None and own_weights.shape != own.shape[:1]:
            raise ValueError(f"weights: expected the shape ({len(own)},), one for each point, got {own_weights.shape}")
        arguments = {
            "box": _box(box),
            "weights": own_weights is not None,
            "contrast": bool(contrast),
            "mesh": None if mesh is None else _mesh(mesh),
            "window": window,
            "deconvolve": bool(deconvolve),
            "interlace": bool(interlace),
            "shot_noise": bool(shot_noise),
            "the shape of data beyond its first axis": own.shape[1:],
        }
        return (arguments, own, own_weights), {"function": "power_spectrum", **arguments}, len(own)

    def measure(own, counts):
        arguments, data, own_weights = own
        size, shape, count = arguments["box"], arguments["mesh"], sum(counts)
        if data.ndim == 2:
            if count == 0:
                raise ValueError("data: expected at least one point, got none")
            shape = shape or [_default_mesh(count)] * 3
            painting = (window or "cic", bool(deconvolve), bool(interlace))
            own_weights = None if own_weights is None else native(own_weights)
            found, count = _native.power_of_points(comm, native(data), own_weights, (size, shape), painting)
        else:
            shape = [count, *data.shape[1:]]
            if 0 in shape:
                raise ValueError(f"data: expected at least one cell along each axis, got shape {tuple(shape)}")
            check_parts(counts)
            field_window = (window or "cic") if deconvolve else None
            found = _native.power_of_field(comm, native(data), (size, shape), field_window, bool(contrast))
        spectrum = PowerSpectrum(*found)
        if len(spectrum.k) == 0:
            raise ValueError(f"mesh: expected 2 cells or more along an axis, got {tuple(shape)}")
        if shot_noise:
            spectrum.power[:] -= np.prod(size) / count
        return spectrum

    return together(comm, check, measure)
