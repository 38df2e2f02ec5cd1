"""Priors: models from standard normal numbers to other distributions and to correlated fields."""

import collections.abc

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array
from ._comm import agreed, resolve, summary, together
from ._device_array import Array
from ._model import Model, check_finite, given, long_axes, same_shape
from ._space import Leaf, Space, cells, space_of, three
from .operators import log


class Prior(Model):
    """A model from standard normal numbers to numbers of another distribution.

    `NormalPrior` and the other priors create it.
    """

    # Kind, and a row of parameters for all values or for each.
    _distribution = None

    def _of(self, kind, rows):
        self._distribution = kind, rows
        return self

    def inverse(self, values):
        """Compute the standard normal numbers of given values: a fit can start there.

        Parameters
        ----------
        values : array_like
            Values inside the range of the prior, in the shape of the leaf; with `comm`, the part of
            this rank.

        Returns
        -------
        ndarray
            Latent values in float64, in the shape of `values`.

        Raises
        ------
        ValueError
            If a value is out of range (with its index), or the shape does not fit.

        Notes
        -----
        Collective with the model's `comm`. It is computed on the host.

        Examples
        --------
        >>> from meshloom import inference as mi, operators as op
        >>> rate = mi.UniformPrior(2.0, 6.0, op.vector(2))
        >>> rate.inverse([4.0, 5.0]).round(4).tolist()
        [0.0, 0.6745]
        """

        def found():
            (shape,) = self.domain.values()
            own = values.numpy() if isinstance(values, Array) else real_array(values, "values")
            if not same_shape(own.shape, shape):
                raise ValueError(f"values: expected shape {long_axes(shape)}, got {own.shape}")
            kind, parameters = self._distribution
            latent = _native.prior_inverse(kind, parameters.tolist(), own.astype(np.float64).ravel().tolist())
            return np.asarray(latent, dtype=np.float64).reshape(own.shape)

        return agreed(self._comm, found)


# Condition of the parameters of each prior, and its distribution for standard parameters with the
# number to add and the factor.
_STANDARD = {
    "normal": ("a positive `std`", lambda mean, std: (std > 0, ("normal", [0.0, 1.0]), mean, std)),
    "log_normal": ("positive `mean` and `std`", lambda mean, std: ((mean > 0) & (std > 0), ("normal", [0.0, 1.0]), *_logarithm(mean, std))),
    "uniform": ("`a_min` below `a_max`", lambda low, high: (low < high, ("uniform", [0.0, 1.0]), low, high - low)),
    "laplace": ("a positive `alpha`", lambda scale: (scale > 0, ("laplace", [1.0, 0.0]), None, scale)),
}


def _logarithm(mean, std):
    """Return mean and deviation of the logarithm of log-normal numbers."""
    with np.errstate(all="ignore"):
        variance = np.log1p((std / mean) ** 2)
        return np.log(mean) - variance / 2, np.sqrt(variance)


def _prior(kind, parameters, space, result, comm):
    """Create the prior of this kind from its named parameters: numbers or arrays."""
    comm = resolve(comm)

    def check():
        own = space_of(space)
        name, leaf = own._only("a prior")
        numbers, said = {}, {}
        is_array = any(np.ndim(value) > 0 for value in parameters.values())
        if is_array:
            shape = _native.leaf_shape(comm, leaf._native(name))
            for parameter, value in parameters.items():
                array = real_array(value, parameter).astype(np.float64) if np.ndim(value) else np.full(shape, real_number(value, parameter))
                if not same_shape(array.shape, shape):
                    raise ValueError(f"{parameter}: expected one number or shape {long_axes(shape)}, got {array.shape}")
                check_finite(array, parameter)
                numbers[parameter] = array.reshape(tuple(int(n) for n in shape))
                said[parameter] = summary(array) if leaf.kind in ("vector", "parameters") else "an array"
            if kind == "inverse_gamma":
                if np.ndim(parameters["a"]):
                    raise ValueError(f"a: expected one number, got an array of shape {np.shape(parameters['a'])}; only `scale` may be an array")
                a = real_number(parameters["a"], "a")
                fits, rule, standard = numbers["scale"] > 0, "a positive `scale`", (("inverse_gamma", [a, 1.0]), None, numbers["scale"])
            else:
                rule, make = _STANDARD[kind]
                fits, *standard = make(*numbers.values())
            if not fits.all():
                at = tuple(int(i) for i in np.argwhere(~fits)[0])
                found = " and ".join(f"{array[at]:g}" for array in numbers.values())
                raise ValueError(f"a {kind} prior: expected {rule}, got {found} at index {at}")
        else:
            numbers = {name: real_number(number, name) for name, number in parameters.items()}
            said, standard = numbers, None
        name = name if result is None else result
        return (own, numbers, standard, name), {"function": f"a {kind} prior", "space": own._said(), "result": name, **said}, None

    def make(own, _):
        own, numbers, standard, name = own
        pairs = np.stack([np.ravel(values) for values in [*numbers.values(), 0.0 * next(iter(numbers.values()))][:2]], axis=1)
        if standard is None:
            return Prior(_native.prior(comm, own._native(), kind, pairs[0].tolist(), name), comm, own._axes)._of(kind, pairs)
        (base, base_parameters), shift, factor = standard
        native = _native.prior(comm, own._native(), base, base_parameters, name)
        for values, how in ((factor, "times"), (shift, "plus")):
            if values is not None:
                constant = _native.constant(comm, [leaf for leaf, _ in native.target], given(native.target, values, comm))
                native = native.combined(how, constant)
        return Prior(native.function("exp") if kind == "log_normal" else native, comm, own._axes)._of(kind, pairs)

    return together(comm, check, make)


def NormalPrior(mean, std, space, result=None, comm=None):
    """Create normal numbers of a given mean and standard deviation.

    Parameters
    ----------
    mean : float or array_like
        Mean. An array has the shape of the leaf; with `comm`, the part of this rank.
    std : float or array_like
        Standard deviation, positive.
    space : Space
        One real leaf: a field, a vector or parameters.
    result : str, optional
        Name of the leaf of the target. Default: the name of the leaf of `space`.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the field each. Default: this process alone.

    Returns
    -------
    Prior
        A model of standard normal numbers.

    Raises
    ------
    ValueError
        If a parameter is out of range, or `space` does not have exactly one real leaf.

    Notes
    -----
    Collective with `comm`.

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
    """Create log-normal numbers of a given mean and standard deviation.

    Parameters
    ----------
    mean, std : float or array_like
        Mean and standard deviation of the numbers, not of their logarithm; positive.
    space, result, comm
        As in `NormalPrior`.

    Returns
    -------
    Prior
        A model of standard normal numbers.

    Raises
    ------
    ValueError
        As in `NormalPrior`.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> rate = mi.LogNormalPrior(2.0, 0.5, op.vector(1))
    >>> round(float(np.asarray(rate([0.0]))[0]), 3)
    1.94
    """
    return _prior("log_normal", {"mean": mean, "std": std}, space, result, comm)


def UniformPrior(a_min, a_max, space, result=None, comm=None):
    """Create uniform numbers.

    Parameters
    ----------
    a_min, a_max : float or array_like
        Limits, ``a_min < a_max``.
    space, result, comm
        As in `NormalPrior`.

    Returns
    -------
    Prior
        A model of standard normal numbers.

    Raises
    ------
    ValueError
        As in `NormalPrior`.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> np.asarray(mi.UniformPrior(2.0, 6.0, op.vector(1))([0.0])).tolist()
    [4.0]
    """
    return _prior("uniform", {"a_min": a_min, "a_max": a_max}, space, result, comm)


def LaplacePrior(alpha, space, result=None, comm=None):
    """Create numbers with the density ``exp(-|x| / alpha) / (2 alpha)``.

    Parameters
    ----------
    alpha : float or array_like
        Scale, positive.
    space, result, comm
        As in `NormalPrior`.

    Returns
    -------
    Prior
        A model of standard normal numbers.

    Raises
    ------
    ValueError
        As in `NormalPrior`.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> np.asarray(mi.LaplacePrior(1.0, op.vector(1))([0.0])).tolist()
    [0.0]
    """
    return _prior("laplace", {"alpha": alpha}, space, result, comm)


def InvGammaPrior(a, scale, space, result=None, comm=None):
    """Create numbers with a density proportional to ``x**(-a - 1) * exp(-scale / x)``.

    Parameters
    ----------
    a : float
        Shape, positive.
    scale : float or array_like
        Scale, positive.
    space, result, comm
        As in `NormalPrior`.

    Returns
    -------
    Prior
        A model of standard normal numbers.

    Raises
    ------
    ValueError
        As in `NormalPrior`.

    Notes
    -----
    Collective with `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> bool(np.asarray(mi.InvGammaPrior(2.0, 1.0, op.vector(1))([0.0]))[0] > 0)
    True
    """
    return _prior("inverse_gamma", {"a": a, "scale": scale}, space, result, comm)


class CorrelatedField(Model):
    """A model of a Gaussian field whose power spectrum is inferred with it.

    `CorrelatedFieldMaker.finalize` creates it.
    """

    # Latent values of hyperparameters as a model, if models were given for some.
    _given = None

    def amplitude(self, x, group=0):
        """Compute the amplitude of each wavenumber of a group of axes.

        Parameters
        ----------
        x : array_like, Array or dict of them
            Latent values; those of other models are ignored.
        group : int, default 0
            Number of the group, in the order of `CorrelatedFieldMaker.add_fluctuations`.

        Returns
        -------
        wavenumbers : ndarray
            Wavenumbers, 2 pi over a length.
        amplitude : ndarray
            Standard deviation of the modes of each wavenumber in the field. The power spectrum is
            its square times the volume.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> maker = mi.CorrelatedFieldMaker()
        >>> maker.set_amplitude_total_offset(0.0, (0.1, 0.03))
        >>> maker.add_fluctuations(8, 1 / 8, fluctuations=(0.5, 0.2), loglogavgslope=(-3.0, 0.5))
        >>> field = maker.finalize()
        >>> k, amplitude = field.amplitude(field.random(seed=1))
        >>> k.shape, amplitude.shape
        ((5,), (5,))
        """

        own = x
        if self._given is not None:
            found = self._given(x)
            found = found if isinstance(found, collections.abc.Mapping) else {next(iter(self._given.target)): found}
            own = {**x, **found} if isinstance(x, collections.abc.Mapping) else found

        def check():
            number = whole_number(group, "group")
            return (given(self._field.domain, own, self._comm), number), {"function": "amplitude", "group": number}, None

        return together(self._comm, check, lambda own, _: self._field.amplitude(*own))


    def amplitude_model(self, group=0):
        """Return the amplitude of a group of axes as a model, for data and for means over samples.

        Parameters
        ----------
        group : int, default 0
            Number of the group, in the order of `CorrelatedFieldMaker.add_fluctuations`.

        Returns
        -------
        Model
            Its target is the vector ``amplitude``, and its domain has the latent values of the
            field without ``xi``.

        Raises
        ------
        ValueError
            If there is no such group, or its amplitude is fixed.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> maker = mi.CorrelatedFieldMaker()
        >>> maker.set_amplitude_total_offset(0.0, (0.1, 0.03))
        >>> maker.add_fluctuations(8, 1 / 8, fluctuations=(0.5, 0.2), loglogavgslope=(-3.0, 0.5))
        >>> maker.finalize().amplitude_model().target
        {'amplitude': (5,)}
        """
        return self._spectrum(group, False)

    def power_spectrum_model(self, group=0):
        """Return the power spectrum of a group of axes as a model.

        Parameters
        ----------
        group : int, default 0
            Number of the group.

        Returns
        -------
        Model
            Its target is the vector ``power_spectrum``: the square of the amplitude times the
            volume of the axes.

        Raises
        ------
        ValueError
            If there is no such group, or its amplitude is fixed.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> maker = mi.CorrelatedFieldMaker()
        >>> maker.set_amplitude_total_offset(0.0, (0.1, 0.03))
        >>> maker.add_fluctuations(8, 1 / 8, fluctuations=(0.5, 0.2), loglogavgslope=(-3.0, 0.5))
        >>> maker.finalize().power_spectrum_model().target
        {'power_spectrum': (5,)}
        """
        return self._spectrum(group, True)

    def _spectrum(self, group, is_power):
        def check():
            number = whole_number(group, "group")
            return number, {"function": "a spectrum", "group": number, "power": is_power}, None

        model = together(self._comm, check, lambda number, _: Model(self._field.amplitude_model(number, is_power), self._comm, {}))
        names = [name for name in self._given.target if name in model.domain] if self._given is not None else []
        return model.substitute(self._given.giving(*names)) if names else model


def _pair(value, name, log_normal):
    """Return mean and deviation of a normal or log-normal number; a float has deviation 0.

    A model of the number is returned as it is.
    """
    if isinstance(value, Model):
        leaves = list(value.target.space.leaves.values())
        if len(leaves) != 1 or leaves[0].kind != "vector" or leaves[0].shape != (1,):
            raise ValueError(f"{name}: expected a model of a vector of 1 number, got {value!r}")
        return value
    pair = (value, 0.0) if np.ndim(value) == 0 else tuple(value)
    if len(pair) != 2 or value is None:
        raise ValueError(f"{name}: expected a number or a pair of mean and standard deviation, got {value!r}")
    mean, std = [real_number(number, name) for number in pair]
    if not (np.isfinite(mean) and np.isfinite(std) and std >= 0):
        raise ValueError(f"{name}: expected a finite mean and a standard deviation of 0 or more, got {mean:g} and {std:g}")
    if log_normal and not mean > 0:
        raise ValueError(f"{name}: expected a positive mean (log-normal), got {mean:g}")
    return [mean, std]


def _text(value, name):
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, got {type(value).__name__}")
    return value


# Hyperparameters that are normal numbers; the others are log-normal.
_NORMAL = ("loglogavgslope", "loglogslope")

# Names of latent leaves that are not the name of the hyperparameter.
_LATENT = {"loglogavgslope": "slope", "loglogslope": "slope", "cutoff_wavenumber": "cutoff"}

# Mean and standard deviation for which the hyperparameter is exp(latent value) if it is log-normal,
# and the latent value itself if it is normal.
_UNIT = {True: [np.exp(0.5), np.sqrt(np.exp(1.0) * np.expm1(1.0))], False: [0.0, 1.0]}


class CorrelatedFieldMaker:
    """Builder of correlated fields: Gaussian fields with inferred power spectra.

    The field has an offset and one power spectrum per group of axes. Hyperparameters are pairs of
    prior mean and standard deviation; a single number is fixed. A hyperparameter may be a model of
    a vector of one number instead, such as another prior or a number that several fields share; it
    must be positive where the others are log-normal.

    Parameters
    ----------
    prefix : str, default ""
        Branch of its latent values: ``"sky"`` gives ``sky/xi`` and others.

    Notes
    -----
    The grid is periodic. If the data are not, make it 1.5 times as long, and select the part of the
    data with a mask of the grid: ``seen = field.then(operators.select(field.target, mask))``. Its
    result is a vector, so pass the data as ``data.ravel()``.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> maker = mi.CorrelatedFieldMaker("sky")
    >>> maker.set_amplitude_total_offset(2.0, (0.1, 0.03))
    >>> maker.add_fluctuations(
    ...     (8, 8), 1 / 8, (0.5, 0.2), loglogavgslope=(-3.0, 0.5), flexibility=(1.0, 0.5)
    ... )
    >>> sky = maker.finalize()
    >>> sky.target, len(sky.domain)
    ({'field': (8, 8)}, 6)
    >>> list(sky.domain)[:3]
    ['sky/flexibility', 'sky/fluctuations', 'sky/slope']
    """

    def __init__(self, prefix=""):
        self._prefix, self._offset, self._groups = _text(prefix, "prefix"), None, []

    def __repr__(self):
        return f"<meshloom.inference.CorrelatedFieldMaker {self._prefix!r}: groups of cells {[group[1] for group in self._groups]}>"

    def set_amplitude_total_offset(self, offset_mean, offset_std):
        """Set the mean of the field.

        Parameters
        ----------
        offset_mean : float
            Prior mean of the field.
        offset_std : float or pair of float
            Standard deviation of the mean, a log-normal number.

        Raises
        ------
        ValueError
            If a value is not finite, or the mean of `offset_std` is not positive.

        Notes
        -----
        Not collective.
        """
        mean = real_number(offset_mean, "offset_mean")
        if not np.isfinite(mean):
            raise ValueError(f"offset_mean: expected a finite number, got {mean:g}")
        self._offset = (mean, _pair(offset_std, "offset_std", True))

    def add_fluctuations(
        self, shape, distances, fluctuations, loglogavgslope, flexibility=None, asperity=None, prefix="", non_parametric_kind="power"
    ):
        """Add a group of axes whose spectrum is a power law with deviations.

        Parameters
        ----------
        shape : int or sequence of int
            Number of cells along each axis of the group.
        distances : float or sequence of float
            Side lengths of a cell, positive.
        fluctuations : float or pair of float
            Standard deviation of the field, log-normal.
        loglogavgslope : float or pair of float
            Slope of the power law, normal.
        flexibility : float or pair of float, optional
            Size of deviations from the power law, log-normal. Default: none.
        asperity : float or pair of float, optional
            Roughness of these deviations, log-normal; needs `flexibility`. Default: none.
        prefix : str, default ""
            Branch of the group's latent values, below that of the field.
        non_parametric_kind : {"power", "amplitude"}, default "power"
            Quantity that follows the power law. NIFTy.re has "amplitude" by default.

        Raises
        ------
        ValueError
            If a value is not finite or out of range, or `asperity` is given without `flexibility`.

        Notes
        -----
        Not collective.
        """
        if non_parametric_kind not in ("power", "amplitude"):
            raise ValueError(f'non_parametric_kind: expected "power" or "amplitude", got {non_parametric_kind!r}')
        if asperity is not None and flexibility is None:
            raise ValueError("asperity: expected flexibility too, got None")
        hyper = [("fluctuations", fluctuations), ("loglogavgslope", loglogavgslope), ("flexibility", flexibility), ("asperity", asperity)]
        self._add(shape, distances, prefix, non_parametric_kind, hyper)

    def add_fluctuations_matern(
        self, shape, distances, *, scale, cutoff_wavenumber=None, loglogslope, prefix="", renormalize_amplitude=False, cutoff=None
    ):
        """Add a group of axes with an amplitude of Matern type.

        It is ``scale * (1 + (k / cutoff_wavenumber)**2)**(loglogslope / 4)``.

        Parameters
        ----------
        shape, distances, prefix
            As in `add_fluctuations`.
        scale : float or pair of float
            Scale of the amplitude, log-normal.
        cutoff_wavenumber : float or pair of float
            Wavenumber of the cutoff, 2 pi over a length, log-normal. Its latent value is named
            ``cutoff``.
        loglogslope : float or pair of float
            Slope of the power spectrum at large wavenumbers, normal.
        renormalize_amplitude : bool, default False
            Whether `scale` is the standard deviation of the field instead of the amplitude at
            wavenumber 0.
        cutoff : None
            Not accepted: NIFTy's argument in 1 over a length. Multiply both numbers by 2 pi and
            pass `cutoff_wavenumber`.

        Raises
        ------
        ValueError
            If a value is not finite or out of range.
        TypeError
            If `cutoff_wavenumber` is missing or `cutoff` is given.

        Notes
        -----
        Not collective.
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
            raise ValueError(f"distances: expected one number or {axes}, one for each axis, got {len(sides)}")
        sides = np.array([real_number(side, "distances") for side in sides])
        for side in sides:
            if not 0 < side < np.inf:
                raise ValueError(f"distances: expected positive finite numbers, got {side:g}")
        hyper = [None if value is None else (name, _pair(value, name, name not in _NORMAL)) for name, value in hyper]
        _text(prefix, "prefix")
        self._groups.append((prefix, grid.shape, (sides * grid.shape).tolist(), kind, hyper))

    def finalize(self, comm=None):
        """Create the field.

        Parameters
        ----------
        comm : Comm or mpi4py.MPI.Comm, optional
            Ranks that have a part of the field each. Default: this process alone.

        Returns
        -------
        CorrelatedField
            A model with the leaf ``field`` at the cells of the grid of all groups' axes.

        Raises
        ------
        ValueError
            If the offset is not set, there are not one to three axes, or the calls differ between
            ranks.

        Notes
        -----
        Collective with `comm`.
        """
        comm = resolve(comm)

        def check():
            own, models = self._described()
            prefix, shape, size, offset, groups = own
            said = {"prefix": prefix, "shape": shape, "size": size, "set_amplitude_total_offset": offset, "add_fluctuations": groups}
            return (own, models), {"function": "finalize", "models of hyperparameters": list(models), **said}, None

        def make(own, _):
            (prefix, shape, size, offset, groups), models = own
            native, field = _native.correlated_field(comm, three(shape, 1), three(size, 1.0), prefix, offset, groups)
            model = CorrelatedField(native, comm, Space(x=Leaf("cells", shape, size))._axes)
            model._field = field
            return model, models

        model, models = together(comm, check, make)
        if not models:
            return model
        latent = None
        for name, (number, log_normal) in models.items():
            one = log(number) if log_normal else number
            one = one.rename({next(iter(one.target)): name})
            latent = one if latent is None else latent.zip(one)
        found = CorrelatedField(model.substitute(latent)._native, comm, model._axes)
        found._field, found._given = model._field, latent
        return found

    def _described(self):
        """Return prefix, cells and sides along all axes, offset, and groups of axes; and models.

        Models of hyperparameters are by the name of the latent value that they replace, with
        whether it is the logarithm.
        """
        if self._offset is None:
            raise ValueError("the offset is not set; call set_amplitude_total_offset first")
        shape = [n for group in self._groups for n in group[1]]
        size = [side for group in self._groups for side in group[2]]
        if not 1 <= len(shape) <= 3:
            raise ValueError(f"add_fluctuations: expected one to three axes in all, got {len(shape)}")
        models = {}

        def numbers(pair, name, log_normal, *branches):
            if not isinstance(pair, Model):
                return pair
            models["/".join([branch for branch in (self._prefix, *branches) if branch] + [name])] = pair, log_normal
            return _UNIT[log_normal]

        groups, at = [], 0
        for prefix, own, _, kind, hyper in self._groups:
            mine = three([at <= axis < at + len(own) for axis in range(len(shape))], False)
            named = [one and (one[1], _LATENT.get(one[0], one[0]), one[0] not in _NORMAL) for one in hyper]
            groups.append((prefix, mine, kind, [one and numbers(*one, prefix) for one in named]))
            at += len(own)
        mean, std = self._offset
        return (self._prefix, shape, size, (mean, numbers(std, "zero_mode", True)), groups), models
