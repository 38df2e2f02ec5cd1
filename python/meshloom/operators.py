"""Models of fields: differentiable functions, composed of operators and of functions in WGSL.

A `Space` is a dictionary of leaves; a field is a dictionary of arrays, or one array where a space has one leaf. A `Model` has a value and, at a
point, the products with its derivative: ``jvp`` and ``vjp``. All is computed on the device in single precision and stays there as
`meshloom.Array` until it is asked for.

Linear operators take ``adjoint=True``: the same turned round. Spaces are always those of the operator itself, not of its adjoint.

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

import collections.abc

import numpy as np

from . import _native
from ._arguments import whole_number
from ._arrays import real_array
from ._comm import gathered, resolve
from ._model import Linearisation, Model, given
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
        Arguments that are fixed: arrays at the places of the first leaf of `space`, by name.
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
    space, comm = space_of(space), resolve(comm)
    fixed, arrays = [], []
    if constants:
        main = next((leaf for leaf in space.leaves.values() if leaf.kind != "vector"), next(iter(space.leaves.values())))
        one = main._place()
        fixed = [one._native(name) for name in sorted(constants)]
        arrays = [_field(one, name, constants[name], comm) for name in sorted(constants)]
    return Model(_native.pointwise(comm, space._native(), text, function, result, (fixed, arrays)), comm, space._axes)


def _linear(space, what, comm, make):
    space, comm = space_of(space), resolve(comm)
    space._only(what)
    return Model(make(comm, space), comm, space._axes)


def fourier(space, adjoint=False, comm=None):
    """The Fourier transform of the only leaf of `space`, real cells, to a half spectrum; or its adjoint, from modes to those cells.

    The adjoint, and `vjp`, are by the inner product of real and imaginary parts as real numbers: ``Re sum conj(y) F x``; JAX's `vjp` has `y` in place of its conjugate.
    """
    return _linear(space, "a transform", comm, lambda comm, space: _native.fourier(comm, space._native(), False, bool(adjoint)))


def hartley(space, adjoint=False, comm=None):
    """The Hartley transform of the only leaf of `space`, real cells, to as many real modes; or its adjoint, from modes to those cells."""
    return _linear(space, "a transform", comm, lambda comm, space: _native.fourier(comm, space._native(), True, bool(adjoint)))


def diagonal(space, factors, comm=None):
    """Multiplication of the only leaf of `space` by factors, one for each of its places, which counts for all components."""

    def make(comm, space):
        name, leaf = space._only("a diagonal")
        place = leaf._place(leaf.complex)
        own = factors[name] if isinstance(factors, collections.abc.Mapping) else factors
        return _native.diagonal(comm, space._native(), place._native(name), _field(place, name, own, comm))

    return _linear(space, "a diagonal", comm, make)


def _field(leaf, name, values, comm):
    """The values of a leaf: this rank's, whose shape the library checks, of any number on several ranks."""
    shape = leaf.shape if comm.size == 1 and leaf.kind in ("cells", "modes", "vector") else np.shape(values)
    shape = (leaf.components, *shape) if leaf.components > 1 and comm.size == 1 else shape
    return given([(leaf._native(name), shape)], {name: values}, comm)[0]


def convolution(space, kernel, adjoint=False, comm=None):
    """The periodic convolution of the only leaf of `space`, real cells, with a kernel at the same cells whose first one is its middle: sums of products. All
    components are convolved with the one kernel."""

    def make(comm, space):
        name, leaf = space._only("a convolution")
        place = leaf._place()
        return _native.convolution(comm, space._native(), place._native(name), _field(place, name, kernel, comm), bool(adjoint))

    return _linear(space, "a convolution", comm, make)


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

    def make(comm, space):
        _, leaf = space._only("a stencil")
        offsets = [_index(offset, leaf, "an offset") for offset in taps]
        return _native.stencil(comm, space._native(), list(zip(offsets, map(float, taps.values()))), bool(adjoint))

    return _linear(space, "a stencil", comm, make)


def _index(index, leaf, what):
    """Whole numbers along three axes for those along a leaf's own."""
    index = (index,) if np.ndim(index) == 0 else tuple(index)
    if len(index) != len(leaf.shape):
        raise ValueError(f"{what} is {index}; the grid has {len(leaf.shape)} axes")
    return three([int(n.__index__()) for n in index], 0)


def _coordinates(rows, axes, name):
    """Rows of coordinates along three axes for those along a leaf's own."""
    rows = np.atleast_2d(real_array(rows, name).astype(np.float64))
    if rows.ndim != 2 or rows.shape[1] != axes:
        raise ValueError(f"{name} has the shape {rows.shape}; it must be (N, {axes}), one row per point")
    return np.ascontiguousarray(np.stack(three(list(rows.T), np.zeros(len(rows))), axis=1))


def readout(space, positions, window="cic", adjoint=False, comm=None):
    """The only leaf of `space`, real cells, at points of its box; a cell's value stands at its lower corner. The adjoint paints.

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

    def make(comm, space):
        _, leaf = space._only("a readout")
        rows = _coordinates(positions, len(leaf.shape), "positions")
        return _native.readout(comm, space._native(), rows, window, bool(adjoint))

    return _linear(space, "a readout", comm, make)


def lines_of_sight(space, start, end, step, adjoint=False, comm=None):
    """Integrals of the only leaf of `space`, real cells, along lines, with steps of `step` at most.

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

    def make(comm, space):
        axes = len(space._only("an integral")[1].shape)
        ends = [_coordinates(rows, axes, name) for rows, name in ((start, "start"), (end, "end"))]
        if len(ends[0]) != len(ends[1]):
            raise ValueError(f"{len(ends[0])} lines start and {len(ends[1])} end; give both of each")
        return _native.lines_of_sight(comm, space._native(), np.concatenate(ends, axis=1), float(step), bool(adjoint))

    return _linear(space, "an integral", comm, make)


def select(space, where, adjoint=False, comm=None):
    """The only leaf of `space`, real cells, at some of them: observed ones, for example. The adjoint puts values back, and 0 elsewhere.

    Parameters
    ----------
    space : Space
        Real cells.
    where : array_like
        A mask of the shape of the whole grid, or rows of indices along its axes; the same on all ranks.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional
    """

    def make(comm, space):
        _, leaf = space._only("a selection")
        found = np.asarray(where)
        if found.dtype == bool:
            if found.shape != leaf.shape:
                raise ValueError(f"the mask has the shape {found.shape}; it must be {leaf.shape}")
            found = np.argwhere(found)
        if found.ndim != 2 or found.dtype.kind not in "iu" or found.shape[1] != len(leaf.shape) or np.any(found < 0):
            raise ValueError(f"where must be a mask of the shape {leaf.shape} or rows of {len(leaf.shape)} indices from 0 on")
        cells = np.stack(three(list(found.T), np.zeros(len(found), np.int64)), axis=1)
        return _native.select(comm, space._native(), cells.tolist(), bool(adjoint))

    return _linear(space, "a selection", comm, make)


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
        An entry for each of this rank's places.
    adjoint : bool
    comm : Comm or mpi4py.MPI.Comm, optional
    """
    index = np.ascontiguousarray(index)
    if index.dtype.kind not in "iu" or np.any(index < 0) or np.any(index >= 2**32):
        raise ValueError("index must be whole numbers from 0 on")
    return _gathered(space, target, index.ravel().tolist(), adjoint, comm)


def broadcast(space, target, adjoint=False, comm=None):
    """The only number of `space` at all places of the leaf of `target`; the adjoint is the sum over them."""
    return _gathered(space, target, None, adjoint, comm)


def _gathered(space, target, index, adjoint, comm):
    target = space_of(target)
    target._only("a gather")
    comm, space = resolve(comm), space_of(space)
    return Model(_native.gather(comm, space._native(), target._native(), index, bool(adjoint)), comm, target._axes)


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
    space, comm = space_of(space), resolve(comm)
    space._only("amplitudes")
    edges = None if edges is None else real_array(edges, "edges").astype(np.float64).ravel().tolist()
    native, wavenumbers = _native.amplitudes(comm, space._native(), edges, bool(adjoint))
    return Model(native, comm, space._axes), wavenumbers


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
    warn(comm, said)
    native, own = _native.simulation(comm, options, *others.values())
    model = Model(native, comm, 3)
    model.own_cosmology = own
    return model
