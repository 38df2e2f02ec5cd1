"""Priors: models that turn standard normal numbers into other distributions and correlated fields."""

import collections.abc

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._comm import resolve, together
from ._model import Model, given
from ._space import cells, space_of, three


def _prior(kind, parameters, space, result, comm):
    """The prior of this kind, of two parameters that have names."""
    comm = resolve(comm)

    def check():
        own = space_of(space)
        name, _ = own._only("a prior")
        numbers = {name: real_number(number, name) for name, number in parameters.items()}
        name = name if result is None else result
        return (own, [*numbers.values(), 0.0][:2], name), {"function": f"a {kind} prior", "space": own._said(), "result": name, **numbers}, None

    def make(own, _):
        own, numbers, name = own
        return Model(_native.prior(comm, own._native(), kind, numbers, name), comm, own._axes)

    return together(comm, check, make)


def NormalPrior(mean, std, space, result=None, comm=None):
    """Normal numbers of the given mean and standard deviation.

    The model takes standard normal numbers.

    Parameters
    ----------
    mean, std : float
    space : Space
        One real leaf: a field, a vector or parameters.
    result : str, optional
        Name of the output. Default: the name of the leaf.
    comm : Comm or mpi4py.MPI.Comm, optional

    Returns
    -------
    Model

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> width = mi.NormalPrior(3.0, 0.5, op.Space(width=op.vector(2)))
    >>> np.asarray(width([0.0, 1.0])).tolist()
    [3.0, 3.5]
    """
    return _prior("normal", {"mean": mean, "std": std}, space, result, comm)


def LogNormalPrior(mean, std, space, result=None, comm=None):
    """Log-normal numbers with this mean and standard deviation, which are not of their logarithm. See `NormalPrior`."""
    return _prior("log_normal", {"mean": mean, "std": std}, space, result, comm)


def UniformPrior(a_min, a_max, space, result=None, comm=None):
    """Uniform numbers between `a_min` and `a_max`. See `NormalPrior`."""
    return _prior("uniform", {"a_min": a_min, "a_max": a_max}, space, result, comm)


def LaplacePrior(alpha, space, result=None, comm=None):
    """Numbers with density ``exp(-|x| / alpha) / (2 alpha)``. See `NormalPrior`."""
    return _prior("laplace", {"alpha": alpha}, space, result, comm)


def InvGammaPrior(a, scale, space, result=None, comm=None):
    """Numbers with density proportional to ``x**(-a - 1) * exp(-scale / x)``. See `NormalPrior`."""
    return _prior("inverse_gamma", {"a": a, "scale": scale}, space, result, comm)


class CorrelatedField(Model):
    """A Gaussian field whose power spectrum is inferred with it; `CorrelatedFieldMaker` makes one."""

    def __init__(self, native, field, comm, axes):
        super().__init__(native, comm, axes)
        self._field = field

    def amplitude(self, x, group=0):
        """The wavenumbers (2 pi over a length) of a group of axes, and at latent values the amplitude of each: the standard deviation that the modes of
        this wavenumber have in the field. The power spectrum is its square times the volume. Latent values of other models are left out.

        Returns
        -------
        wavenumbers, amplitude : ndarray
        """

        def check():
            own = {name: x[name] for name in self.domain if name in x} if isinstance(x, collections.abc.Mapping) else x
            number = whole_number(group, "group")
            return (given(self._native.domain, own, self._comm), number), {"function": "amplitude", "group": number}, None

        return together(self._comm, check, lambda own, _: self._field.amplitude(*own))


def _pair(value, name, log_normal):
    """Mean and standard deviation of a normal or log-normal number; a number alone is fixed."""
    pair = (value, 0.0) if np.ndim(value) == 0 else tuple(value)
    if len(pair) != 2 or value is None:
        raise ValueError(f"{name} must be a number or a pair of mean and standard deviation, not {value!r}")
    mean, std = [real_number(number, name) for number in pair]
    if not (np.isfinite(mean) and np.isfinite(std) and std >= 0):
        raise ValueError(f"{name} must be a finite mean and a standard deviation of 0 or more, got {mean:g} and {std:g}")
    if log_normal and not mean > 0:
        raise ValueError(f"{name} is log-normal and must have a positive mean, got {mean:g}")
    return [mean, std]


def _text(value, name):
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    return value


# Hyper-parameters that are normal numbers; the others are log-normal.
_NORMAL = ("loglogavgslope", "loglogslope")


class CorrelatedFieldMaker:
    """Makes correlated fields: Gaussian fields around an offset, whose power spectrum along each group of axes is inferred with them.

    Hyper-parameters are pairs of mean and standard deviation a priori; a number alone is fixed.

    Parameters
    ----------
    prefix : str
        The branch of its latent values: ``"sky"`` gives ``sky/xi`` and others.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> maker = mi.CorrelatedFieldMaker("sky")
    >>> maker.set_amplitude_total_offset(2.0, (0.1, 0.03))
    >>> maker.add_fluctuations((8, 8), 1 / 8, fluctuations=(0.5, 0.2), loglogavgslope=(-3.0, 0.5), flexibility=(1.0, 0.5))
    >>> sky = maker.finalize()
    >>> list(sky.domain), sky.target
    (['sky/flexibility', 'sky/fluctuations', 'sky/slope', 'sky/spectrum', 'sky/xi', 'sky/zero_mode'], {'field': (8, 8)})
    """

    def __init__(self, prefix=""):
        self._prefix, self._offset, self._groups = _text(prefix, "prefix"), None, []

    def __repr__(self):
        return f"<meshloom.inference.CorrelatedFieldMaker {self._prefix!r}: groups of cells {[group[1] for group in self._groups]}>"

    def set_amplitude_total_offset(self, offset_mean, offset_std):
        """The field is around `offset_mean`; `offset_std` is the standard deviation of its mean, a log-normal number."""
        mean = real_number(offset_mean, "offset_mean")
        if not np.isfinite(mean):
            raise ValueError(f"offset_mean must be finite, got {mean:g}")
        self._offset = (mean, _pair(offset_std, "offset_std", True))

    def add_fluctuations(
        self, shape, distances, fluctuations, loglogavgslope, flexibility=None, asperity=None, prefix="", non_parametric_kind="power"
    ):
        """A group of axes along which the spectrum is a power law with deviations.

        Parameters
        ----------
        shape : int or sequence of int
            Cells along each axis of the group.
        distances : float or sequence of float
            Sides of a cell.
        fluctuations : pair of float
            Standard deviation of the field: log-normal.
        loglogavgslope : pair of float
            Slope of the power law: normal.
        flexibility : pair of float, optional
            How far the spectrum goes from a power law: log-normal.
        asperity : pair of float, optional
            How rough these deviations are: log-normal.
        prefix : str
            The branch of the group's latent values, below that of the field.
        non_parametric_kind : {"power", "amplitude"}
            Which of both follows the power law. NIFTy.re has "amplitude" where nothing is said.
        """
        if non_parametric_kind not in ("power", "amplitude"):
            raise ValueError(f'non_parametric_kind is {non_parametric_kind!r}, not "power" or "amplitude"')
        if asperity is not None and flexibility is None:
            raise ValueError("asperity is that of flexible spectra; give flexibility, too")
        hyper = [("fluctuations", fluctuations), ("loglogavgslope", loglogavgslope), ("flexibility", flexibility), ("asperity", asperity)]
        self._add(shape, distances, prefix, non_parametric_kind, hyper)

    def add_fluctuations_matern(
        self, shape, distances, *, scale, cutoff_wavenumber=None, loglogslope, prefix="", renormalize_amplitude=False, cutoff=None
    ):
        """A group of axes along which the amplitude is ``scale * (1 + (k / cutoff_wavenumber)**2)**(loglogslope / 4)``.

        Parameters
        ----------
        shape, distances, prefix
            As in `add_fluctuations`.
        scale : pair of float
            Log-normal.
        cutoff_wavenumber : pair of float
            Log-normal, in 2 pi over a length. The latent value is called ``cutoff``.
        loglogslope : pair of float
            Of the power spectrum at large wavenumbers: normal.
        renormalize_amplitude : bool
            Whether `scale` is the standard deviation of the field; else the amplitude at wavenumber 0.
        cutoff
            NIFTy's argument, in 1 over a length: a `TypeError`. Multiply both numbers by 2 pi and give `cutoff_wavenumber`.
        """
        if cutoff is not None or cutoff_wavenumber is None:
            found = "no cutoff" if cutoff is None else f"cutoff={cutoff!r}, which in NIFTy is 1 / length"
            raise TypeError(f"cutoff_wavenumber: expected mean and deviation in 2 pi / length, got {found}; give cutoff_wavenumber, 2 pi times NIFTy's cutoff")
        kind = "matern" if renormalize_amplitude else "matern density"
        self._add(shape, distances, prefix, kind, [("scale", scale), ("cutoff_wavenumber", cutoff_wavenumber), ("loglogslope", loglogslope)])

    def _add(self, shape, distances, prefix, kind, hyper):
        grid = cells(shape)
        axes = len(grid.shape)
        sides = [distances] * axes if np.ndim(distances) == 0 else list(distances)
        if len(sides) != axes:
            raise ValueError(f"distances has {len(sides)} numbers for a group of {axes} axes; give one, or one for each axis")
        sides = np.array([real_number(side, "distances") for side in sides])
        for side in sides:
            if not 0 < side < np.inf:
                raise ValueError(f"distances must be positive and finite, got {side:g}")
        hyper = [None if value is None else _pair(value, name, name not in _NORMAL) for name, value in hyper]
        _text(prefix, "prefix")
        self._groups.append((prefix, grid.shape, (sides * grid.shape).tolist(), kind, hyper))

    def finalize(self, comm=None):
        """The field, a `CorrelatedField`: a model that gives the leaf ``field`` at the cells of the grid of all groups' axes. All ranks of `comm` call it, of a maker that
        was told the same."""
        comm = resolve(comm)

        def check():
            own = self._described()
            prefix, shape, size, offset, groups = own
            said = {"prefix": prefix, "shape": shape, "size": size, "set_amplitude_total_offset": offset, "add_fluctuations": groups}
            return own, {"function": "finalize", **said}, None

        def make(own, _):
            prefix, shape, size, offset, groups = own
            found = _native.correlated_field(comm, three(shape, 1), three(size, 1.0), prefix, offset, groups)
            return CorrelatedField(*found, comm, len(shape))

        return together(comm, check, make)

    def _described(self):
        """The prefix, cells and sides along all axes, the offset, and the groups of axes."""
        if self._offset is None:
            raise ValueError("set_amplitude_total_offset comes first")
        shape = [n for group in self._groups for n in group[1]]
        size = [side for group in self._groups for side in group[2]]
        if not 1 <= len(shape) <= 3:
            raise ValueError(f"add_fluctuations has given {len(shape)} axes; a field has one to three")
        groups, at = [], 0
        for prefix, own, _, kind, hyper in self._groups:
            mine = three([at <= axis < at + len(own) for axis in range(len(shape))], False)
            groups.append((prefix, mine, kind, hyper))
            at += len(own)
        return self._prefix, shape, size, self._offset, groups
