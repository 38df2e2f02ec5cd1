"""Models of fields: differentiable functions, composed of operators and of functions in WGSL.

A `Space` is a dictionary of leaves; a field is a dictionary of arrays, or one array where a space has one leaf. A `Model` has a value and, at a
point, the products with its derivative: ``jvp`` and ``vjp``. All is computed on the device in single precision and stays there as
`meshloom.Array` until it is asked for.

With ``adjoint=True`` a linear operator is its adjoint, which in general is not the inverse.
The argument `space` stays the domain of the operator itself, not of its adjoint.

Examples
--------
>>> import numpy as np
>>> from meshloom import operators as op
>>> cells = op.Space(x=op.cells((4, 6)))
>>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", cells, "y")
>>> x = np.full((4, 6), 3.0, dtype=np.float32)
>>> at = square.at(x)
>>> float(np.asarray(at.value)[0, 0]), float(np.asarray(at.jvp(x))[0, 0]), float(np.asarray(at.vjp(x))[0, 0])
(9.0, 18.0, 18.0)
>>> smooth = square.then(op.hartley(square.target))
>>> smooth.target
{'y': (4, 6)}
"""

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array
from ._comm import agreed, gathered, resolve, summary, together
from ._model import Linearisation, Model, given, long_axes, same_shape
from ._simulation import run_options, warn
from ._space import Leaf, Space, cells, half_spectrum, modes, parameters, space_of, three, vector

__all__ = [
    "Leaf",
    "Linearisation",
    "Model",
    "Space",
    "amplitudes",
    "broadcast",
    "cells",
    "convolution",
    "diagonal",
    "fourier",
    "gather",
    "half_spectrum",
    "inverse_fourier",
    "hartley",
    "lines_of_sight",
    "modes",
    "parameters",
    "pointwise",
    "readout",
    "select",
    "simulation",
    "stencil",
    "vector",
]


def pointwise(text, function, space, result, constants=None, comm=None):
    """A function in WGSL of the values at one place, as a model; its derivatives are derived from the text.

    Parameters
    ----------
    text : str
        WGSL: floats, vectors, `let`, `var`, structures, `if`, calls of other functions and the builtin functions of floats and their vectors but for
        `refract`, `modf`, `frexp`, `ldexp` and `quantizeToF16`. Matrices, integers and loops are refused.
    function : str
        The name of the function. Its arguments are leaves of `space`, by their names; of one leaf the only argument may have any name.
    space : Space
        What it is a function of: leaves at the same places, and vectors of length 1.
    result : str
        The name of what it gives.
    constants : dict, optional
        Arguments that are fixed: arrays at the places of the first leaf of `space`, by name; with `comm` those of this rank's part.
    comm : Comm or mpi4py.MPI.Comm, optional

    Raises
    ------
    ValueError
        With the line of what is no such function.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> text = "fn counts(s: f32, exposure: f32) -> f32 { return exposure * exp(s); }"
    >>> counts = op.pointwise(text, "counts", op.Space(s=op.cells(3)), "counts", constants={"exposure": [1.0, 2.0, 0.0]})
    >>> np.asarray(counts(np.zeros(3))).tolist()
    [1.0, 2.0, 0.0]
    """
    comm = resolve(comm)

    def check():
        if not isinstance(text, str):
            raise TypeError(f"text must be a str of WGSL, not {type(text).__name__}")
        for value, what in ((function, "function"), (result, "result")):
            if not isinstance(value, str):
                raise TypeError(f"{what} must be a name, a str, not {type(value).__name__}")
        own = space_of(space)
        names = sorted(constants or {})
        main = next((leaf for leaf in own.leaves.values() if leaf.kind != "vector"), next(iter(own.leaves.values())))
        one = main._place()
        fixed = [one._native(name) for name in names], [_field(one, name, {name: constants[name]}, comm) for name in names]
        alike = {"function": "pointwise", "space": own._said(), "text": text, "name of the function": function, "result": result, "constants": names}
        return (own, fixed), alike, None

    def make(own, _):
        own, fixed = own
        return Model(_native.pointwise(comm, own._native(), text, function, result, fixed), comm, own._axes)

    return together(comm, check, make)


def _linear(name, space, what, adjoint, comm, check, make):
    """A model of the only leaf of a space: `check` gives of that leaf and its name what `make` needs besides the space, and what must be the same on all ranks."""
    comm = resolve(comm)

    def checked():
        own = space_of(space)
        arguments, alike = check(comm, *own._only(what))
        return (own, arguments), {"function": name, "space": own._said(), "adjoint": bool(adjoint), **alike}, None

    def made(own, _):
        own, arguments = own
        return Model(make(comm, own._native(), *arguments), comm, own._axes)

    return together(comm, checked, made)


def _nothing_else(comm, name, leaf):
    """Of an operator that is known by its leaf."""
    return (), {}


def fourier(space, adjoint=False, comm=None):
    """Fourier transform of a field on cells.

    Real cells give a half spectrum, as `numpy.fft.rfftn`, and complex cells all
    modes, as `numpy.fft.fftn`.

    Parameters
    ----------
    space : Space
        Space of one leaf of cells.
    adjoint : bool
        Return the adjoint, from modes to cells. It is not the inverse: it lacks the
        factor ``1 / N``, and of real cells it weighs modes that stand for two by a
        half. Use `inverse_fourier` to go back.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each.

    Notes
    -----
    The adjoint, and `vjp`, are by the inner product of real and imaginary parts as
    real numbers: ``Re sum conj(y) F x``; JAX's `vjp` has `y` in place of its
    conjugate.
    """
    return _linear("fourier", space, "a transform", adjoint, comm, _nothing_else, lambda comm, leaves: _native.fourier(comm, leaves, False, bool(adjoint)))


def inverse_fourier(space, comm=None):
    """Inverse of ``fourier(space)``, from modes to cells.

    Half spectra give real cells, as `numpy.fft.irfftn`: imaginary parts of modes that
    are real for every real field count for nothing.

    Parameters
    ----------
    space : Space
        Space of the cells: one leaf, real or complex.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the cells each.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> space = op.Space(x=op.cells(8))
    >>> again = op.fourier(space).then(op.inverse_fourier(space))
    >>> np.allclose(again(np.arange(8.0)), np.arange(8.0), atol=1e-5)
    True
    """
    return _linear("inverse_fourier", space, "a transform", False, comm, _nothing_else, _native.inverse_fourier)


def hartley(space, adjoint=False, comm=None):
    """Hartley transform of a real field on cells, to as many real modes.

    `space` must have exactly one leaf.

    With `adjoint` it goes from modes to cells; that is the inverse times the number of
    cells.
    """
    return _linear("hartley", space, "a transform", adjoint, comm, _nothing_else, lambda comm, leaves: _native.fourier(comm, leaves, True, bool(adjoint)))


def diagonal(space, factors, comm=None):
    """Multiplication of each value of a field by a factor.

    Parameters
    ----------
    space : Space
        Space of exactly one leaf.
    factors : array_like
        One factor for each place, for all components alike; with `comm` those of this
        rank's part.
    comm : Comm or mpi4py.MPI.Comm, optional
    """

    def check(comm, name, leaf):
        place = leaf._place(leaf.complex)
        return (place._native(name), _field(place, name, factors, comm)), {}

    return _linear("diagonal", space, "a diagonal", False, comm, check, _native.diagonal)


def _field(leaf, name, values, comm):
    """This rank's values of a leaf, an array or a dictionary with one."""
    native = leaf._native(name)
    return given([(native, _native.leaf_shape(comm, native))], values, comm)[0]


def convolution(space, kernel, adjoint=False, comm=None):
    """Periodic convolution of a real field on cells with a kernel.

    Parameters
    ----------
    space : Space
        Space of exactly one leaf, real cells.
    kernel : array_like
        Kernel values at the cells of the field; the center of the kernel is the first
        cell. Components share the kernel. With `comm` this rank's part.
    adjoint : bool
        Return the adjoint, a correlation with the kernel.
    comm : Comm or mpi4py.MPI.Comm, optional
    """

    def check(comm, name, leaf):
        place = leaf._place()
        return (place._native(name), _field(place, name, kernel, comm), bool(adjoint)), {}

    return _linear("convolution", space, "a convolution", adjoint, comm, check, _native.convolution)


def stencil(space, taps, adjoint=False, comm=None):
    """Weighted sums of neighbours on a periodic grid.

    Parameters
    ----------
    space : Space
        Real cells.
    taps : dict
        The weight of each neighbour by its offset in cells along each axis: ``{(0, 1): 0.5, (0, -1): -0.5}`` is a derivative.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> slope = op.stencil(op.Space(x=op.cells(4)), {1: 0.5, -1: -0.5})
    >>> np.asarray(slope([0.0, 1.0, 4.0, 9.0])).tolist()
    [-4.0, 2.0, 4.0, -2.0]
    """

    def check(comm, name, leaf):
        offsets = [_index(offset, leaf, "an offset") for offset in taps]
        weights = [real_number(weight, "a weight of taps") for weight in taps.values()]
        return (list(zip(offsets, weights)), bool(adjoint)), {"taps": dict(zip(map(tuple, offsets), weights))}

    return _linear("stencil", space, "a stencil", adjoint, comm, check, _native.stencil)


def _index(index, leaf, what):
    """Whole numbers along three axes for those along a leaf's own."""
    index = (index,) if np.ndim(index) == 0 else tuple(index)
    if len(index) != len(leaf.shape):
        raise ValueError(f"{what} is {index}; the grid has {len(leaf.shape)} axes")
    return three([whole_number(n, f"a number of {what}", -(2**63)) for n in index], 0)


def _coordinates(rows, axes, name):
    """Rows of coordinates along three axes for those along a leaf's own."""
    rows = np.atleast_2d(real_array(rows, name).astype(np.float64))
    if rows.ndim != 2 or rows.shape[1] != axes:
        raise ValueError(f"{name} has the shape {rows.shape}; it must be (N, {axes}), one row per point")
    return np.ascontiguousarray(np.stack(three(list(rows.T), np.zeros(len(rows))), axis=1))


def readout(space, positions, window="cic", adjoint=False, comm=None):
    """Interpolation of a real field on cells to points in its box.

    The value of a cell is at its lower corner. The adjoint paints points onto cells.

    Parameters
    ----------
    space : Space
        Real cells.
    positions : array_like, shape (N, axes)
        Points in the box; with `comm` those in this rank's cells.
    window : {"cic", "tsc", "pcs"}
        How values between cells are taken: "cic" is linear.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> at = op.readout(op.Space(x=op.cells(4)), [[1.5], [3.5]])
    >>> np.asarray(at([0.0, 1.0, 3.0, 8.0])).tolist()
    [2.0, 4.0]
    """

    def check(comm, name, leaf):
        return (_coordinates(positions, len(leaf.shape), "positions"), window, bool(adjoint)), {"window": window}

    return _linear("readout", space, "a readout", adjoint, comm, check, _native.readout)


def lines_of_sight(space, start, end, step, adjoint=False, comm=None):
    """Integrals of a real field on cells along straight lines.

    Parameters
    ----------
    space : Space
        Real cells.
    start, end : array_like, shape (N, axes)
        Where each line begins and ends; lines may leave the box, which is periodic. The same on all ranks.
    step : float
        The longest step.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> lines = op.lines_of_sight(op.Space(x=op.cells((4, 4))), [[0.0, 0.0]], [[3.0, 0.0]], 0.5)
    >>> float(np.asarray(lines(np.ones((4, 4))))[0])
    3.0
    """

    def check(comm, name, leaf):
        first, last = [_coordinates(rows, len(leaf.shape), name) for rows, name in ((start, "start"), (end, "end"))]
        if len(first) != len(last):
            raise ValueError(f"{len(first)} lines start and {len(last)} end; give both of each")
        length = real_number(step, "step")
        return (np.concatenate([first, last], axis=1), length, bool(adjoint)), {"start": summary(first), "end": summary(last), "step": length}

    return _linear("lines_of_sight", space, "an integral", adjoint, comm, check, _native.lines_of_sight)


def select(space, where, adjoint=False, comm=None):
    """Values of a real field at selected cells, such as observed ones.

    The adjoint writes the values to their cells, and 0 to all others.

    Parameters
    ----------
    space : Space
        Real cells.
    where : array_like
        A mask of the shape of the whole grid, or rows of indices along its axes; the same on all ranks.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional
    """

    def check(comm, name, leaf):
        found = np.asarray(where)
        if found.dtype == bool:
            if found.shape != leaf.shape:
                raise ValueError(f"the mask has the shape {found.shape}; it must be {leaf.shape}")
            found = np.argwhere(found)
        if found.ndim != 2 or found.dtype.kind not in "iu" or found.shape[1] != len(leaf.shape) or np.any(found < 0):
            raise ValueError(f"where must be a mask of the shape {leaf.shape} or rows of {len(leaf.shape)} indices from 0 on")
        cells = np.stack(three(list(found.astype(np.int64).T), np.zeros(len(found), np.int64)), axis=1)
        return (cells.tolist(), bool(adjoint)), {"where": summary(cells)}

    return _linear("select", space, "a selection", adjoint, comm, check, _native.select)


def gather(space, target, index, adjoint=False, comm=None):
    """Each place of the leaf of `target` takes the entry ``index`` of a vector, or 0 where there is no such entry. The adjoint sums over the places of each
    entry, exactly.

    Parameters
    ----------
    space : Space
        One vector.
    target : Space
        One real leaf.
    index : array_like of int
        An entry for each of this rank's places, in their shape.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional
    """

    def entries(comm, leaf, name):
        own = np.ascontiguousarray(index)
        if own.dtype.kind not in "iu" or np.any(own < 0) or np.any(own >= 2**32):
            raise ValueError("index must be whole numbers from 0 on")
        shape = _native.leaf_shape(comm, leaf._place()._native(name))
        if not same_shape(own.shape, shape):
            raise ValueError(f"index has the shape {own.shape}; it must be {long_axes(shape)}")
        return own.ravel().tolist()

    return _gathered("gather", space, target, entries, adjoint, comm)


def broadcast(space, target, adjoint=False, comm=None):
    """The only number of `space` at all places of the leaf of `target`; the adjoint is the sum over them."""
    return _gathered("broadcast", space, target, lambda *_: None, adjoint, comm)


def _gathered(name, space, target, entries, adjoint, comm):
    comm = resolve(comm)

    def check():
        own, places = space_of(space), space_of(target)
        name, leaf = places._only("a gather")
        return (own, places, entries(comm, leaf, name)), {"function": name, "space": own._said(), "target": places._said(), "adjoint": bool(adjoint)}, None

    def make(own, _):
        own, places, index = own
        return Model(_native.gather(comm, own._native(), places._native(), index, bool(adjoint)), comm, places._axes)

    return together(comm, check, make)


def amplitudes(space, edges=None, adjoint=False, comm=None):
    """An amplitude for each wavenumber, at the modes that have it; the adjoint is a binned sum.

    Parameters
    ----------
    space : Space
        Modes of a grid.
    edges : array_like, optional
        Edges of bins of wavenumbers (2 pi over a length); a bin for each wavenumber unless given.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional

    Returns
    -------
    model : Model
        From the vector ``amplitudes``.
    wavenumbers : ndarray
        Of each entry.

    Examples
    --------
    >>> from meshloom import operators as op
    >>> model, k = op.amplitudes(op.Space(xi=op.modes(8)))
    >>> len(k), model.domain
    (5, {'amplitudes': (5,)})
    """
    comm = resolve(comm)

    def check():
        own = space_of(space)
        own._only("amplitudes")
        bins = None if edges is None else real_array(edges, "edges").astype(np.float64).ravel().tolist()
        return (own, bins), {"function": "amplitudes", "space": own._said(), "edges": bins, "adjoint": bool(adjoint)}, None

    def make(own, _):
        own, bins = own
        native, wavenumbers = _native.amplitudes(comm, own._native(), bins, bool(adjoint))
        return Model(native, comm, own._axes), wavenumbers

    return together(comm, check, make)


def simulation(
    particles=64,
    mesh=None,
    box=128.0,
    *,
    cosmology=None,
    lpt=2,
    a_start=0.0625,
    a_end=1.0,
    steps=10,
    scheme="bullfrog",
    window="cic",
    observables=("density",),
    checkpoint_every=1,
    with_cosmology=False,
    comm=None,
):
    """A particle-mesh run as a model: a function of its white noise, and of the cosmology where that is asked for, with its derivatives.

    Parameters
    ----------
    particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window
        As in `meshloom.simulate`, with its warnings. It has no seed, for the noise is what it is a function of (`meshloom.white_noise` gives a seed's), and no
        snapshots.
    observables : sequence of {"density", "displacement", "momentum"}
        What it gives at its end: 1 + contrast at the cells of the mesh, three components of the particles' displacements in Mpc/h, of their canonical momenta
        a^2 dx/dt in H0 Mpc/h (100 times the momentum over a is the peculiar velocity in km/s).
    checkpoint_every : int
        One of so many states is kept for derivatives; others are made again.
    with_cosmology : bool
        A leaf ``cosmology`` besides: omega_m, omega_b, h, n_s and A_s, in double precision.
    comm : Comm or mpi4py.MPI.Comm, optional

    Returns
    -------
    Model
        Of the leaf ``white_noise``; its attribute ``own_cosmology`` are the numbers of the run's own cosmology.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> run = op.simulation(8, 8, 32.0, steps=2, window="tsc", with_cosmology=True)
    >>> at = run.at({"white_noise": np.zeros((8, 8, 8)), "cosmology": run.own_cosmology})
    >>> float(np.asarray(at.value)[0, 0, 0])
    1.0
    >>> sorted(at.vjp(np.ones((8, 8, 8))))
    ['cosmology', 'white_noise']
    """
    comm = resolve(comm)

    def check():
        options = run_options(particles, mesh, box, cosmology, lpt, a_start, a_end, steps, scheme, window)
        others = {
            "observables": list(observables),
            "checkpoint_every": whole_number(checkpoint_every, "checkpoint_every", 1),
            "with_cosmology": bool(with_cosmology),
        }
        return (options, others, _native.run_warnings(options)), {"function": "simulation", **options, **others}, None

    (options, others, said), _ = gathered(comm, check)
    agreed(comm, warn, comm, said)
    native, own = agreed(comm, _native.simulation, comm, options, *others.values())
    model = Model(native, comm, 3)
    model.own_cosmology = own
    return model


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
