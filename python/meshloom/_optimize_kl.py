"""The loop of an inference: samples about a position, then a better position for these samples, and again."""

import os
import warnings
from typing import NamedTuple, Optional

from . import _native
from ._arguments import real_number, whole_number
from ._comm import agreed, all_groups, gathered, given_or_not, heard, resolve, together
from ._likelihood import Likelihood
from ._model import Model, given, result


def sample_groups(comm, count):
    """This rank in one of `count` groups of ranks, to which the samples of a fit are dealt. All ranks of `comm` call it.

    Ranks are a grid of groups and space: each group, of ranks next to each other, holds whole fields, cut over its ranks, and draws samples of its own; sums over samples go
    between groups. A model and data that are made with ``comm=group`` are those of the group's ranks, and `optimize_kl`, `wiener_filter`, `Samples` and
    `evidence` work with all groups, whose ranks call them together. Results are the same to the bit for every number of groups.

    Parameters
    ----------
    comm : Comm or mpi4py.MPI.Comm
    count : int
        Groups: a divisor of the number of ranks, and no more than the samples (both signs) that an iteration draws at most.

    Returns
    -------
    Comm
        The ranks of this rank's group.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> from meshloom import inference as mi, operators as op
    >>> def fit(comm, groups):
    ...     group = mi.sample_groups(comm, groups)
    ...     line = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells(4)), "y", comm=group)
    ...     samples, _ = mi.optimize_kl(mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line), n_total_iterations=1, n_samples=1)
    ...     return np.asarray(samples[1])
    >>> one = meshloom.ranks(1, lambda comm: fit(comm, 1))[0]
    >>> all(np.array_equal(found, one) for found in meshloom.ranks(2, lambda comm: fit(comm, 2)))
    True
    """
    comm = resolve(comm)

    def check():
        own = whole_number(count, "count", 1)
        return own, {"function": "sample_groups", "count": own}, None

    return together(comm, check, lambda own, _: comm._sample_groups(own))


class IterationReport(NamedTuple):
    """An iteration of a fit.

    Attributes
    ----------
    energy : float
        Energy averaged over samples. It is no bound of ``-ln p(data)``; energies of two iterations are comparable only with the same samples.
    steps, applications : int
        Newton steps of the position, and products with the metric for them.
    reduced_chi_squared, latent_chi_squared : float or None
        Of the data and of the latent values; about 1 is expected.
    sample_steps : int
        Steps of conjugate gradients of the sample that took the most; 0 in an update.
    unconverged_samples : int
        Samples whose conjugate gradients missed their target. An update keeps the error of the draw.
    gave_up : bool
        Whether the position ended where no step lowers the energy, though the minimum is elsewhere.
    sample_error_ratio : float
        The largest error of conjugate gradients over its target: of the residual, or of the change of the energy. 1 or less has converged.
    failed_samples : int
        Bent samples for which Newton's method found no descent.
    limited_samples : int
        Bent samples for which Newton's method took all `maxiter` steps.
    """

    iteration: int
    n_samples: int
    energy: float
    steps: int
    applications: int
    reduced_chi_squared: Optional[float]
    latent_chi_squared: Optional[float]
    seconds: float
    sample_steps: int
    unconverged_samples: int
    gave_up: bool
    sample_error_ratio: float
    failed_samples: int
    limited_samples: int


class Evidence(NamedTuple):
    """Bounds of the logarithm of the evidence, up to constants of the likelihood, if the samples are normal.

    `error` is the standard error of both bounds: of the mean over pairs of samples (infinite for one pair, 0 without samples) and of
    the mean over random vectors. `log_determinant` has the bounds of the logarithm of the metric's determinant, `products`
    counts products with the metric.
    """

    lower: float
    upper: float
    error: float
    log_determinant: tuple[float, float]
    products: int


class Samples:
    """A position and samples of the posterior about it. ``samples[i]`` is a sample, a field of what the likelihood is a function of; where groups of ranks
    have samples of their own, it comes to all of them, and all ranks ask for it.

    Attributes
    ----------
    pos : Array or dict of Array
        The mean of the approximation, or the most probable place where there are no samples.
    """

    def __init__(self, native, likelihood):
        self._native, self._likelihood = native, likelihood

    @property
    def pos(self):
        return result(self._likelihood.domain, self._native.position())

    def __len__(self):
        return self._native.count

    def __getitem__(self, number):


        def check():
            own = whole_number(number, "number", -(2**63))
            if not -len(self) <= own < len(self):
                raise IndexError(f"there is no sample {own} of {len(self)}")
            return own % len(self), {"function": "a sample", "number": own}, None

        sample = together(all_groups(self._likelihood._comm), check, lambda number, _: self._native.sample(number))
        return result(self._likelihood.domain, sample)

    def __repr__(self):
        return f"<meshloom.Samples: {len(self)} of {dict(self._likelihood.domain)}>"

    def mean_and_std(self, model, *, ddof=1):
        """Return the mean of a model over all samples and the standard deviation of one; without samples its value at the position, and 0.

        Parameters
        ----------
        model : Model
            Takes leaves of the likelihood's domain.
        ddof : {0, 1}
            Delta degrees of freedom, as in NumPy: the variance of n samples divides by ``n - ddof``. 0 is right for a linear model and linear
            samples (MGVI, `wiener_filter`), which are mirrored about their known mean; 1 is too large there by ``sqrt(n / (n - 1))``.
        """

        def check():
            if not isinstance(model, Model):
                raise TypeError(f"model must be a meshloom model, not {type(model).__name__}")
            own = whole_number(ddof, "ddof", 0)
            if own > 1:
                raise ValueError(f"ddof: expected 0 or 1, got {own}")
            return (model._native, own), {"function": "mean_and_std", "ddof": own}, None

        mean, std = together(all_groups(self._likelihood._comm), check, lambda own, _: self._native.mean_and_std(*own))
        return result(model.target, mean), result(model.target, std)

    def mean(self, model):
        """The mean of a model over all samples."""
        return self.mean_and_std(model)[0]


def _cg(kwargs):
    """Rules for conjugate gradients, without a name for prints."""
    return {name: value for name, value in (kwargs or {}).items() if name != "name" and value is not None}


def _newton(kwargs, where):
    kwargs = dict(kwargs or {})
    if set(kwargs) - {"minimize_kwargs"}:
        raise ValueError(f"{where} has {sorted(kwargs)}; it takes minimize_kwargs")
    rules = _cg(kwargs.get("minimize_kwargs"))
    if "cg_kwargs" in rules:
        rules["cg_kwargs"] = _cg(rules["cg_kwargs"])
    return rules


def _names(value, what):
    if isinstance(value, str):
        raise TypeError(f"{what} must be a sequence of names, not text")
    return [str(name) for name in value]


def _at(value, iteration):
    return value(iteration) if callable(value) else value


def _linear(kwargs):
    kwargs = dict(kwargs or {})
    kwargs.pop("cg_name", None)
    if set(kwargs) - {"cg_kwargs"}:
        raise ValueError(f"draw_linear_kwargs has {sorted(kwargs)}; it takes cg_kwargs")
    return _cg(kwargs.get("cg_kwargs"))


def _likelihood_of(likelihood):
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood must be one of meshloom.inference, not {type(likelihood).__name__}")
    return likelihood


def _warn_of(fit, what):
    """Warns of samples that are not solved."""
    for doubt in fit.sample_doubts(what):
        warnings.warn(doubt, RuntimeWarning, stacklevel=3)


def _warn_of_doubts(fit):
    """Warns of a result that is not to be relied on."""
    for doubt in fit.doubts:
        warnings.warn(doubt, RuntimeWarning, stacklevel=3)


# Iterations at most where their number is not given.
_ITERATIONS = _native.NativeFit.ITERATIONS

# The kind of noise that a fit starts with: other than that of a mock truth with the same seed.
_START = 1


def _given(likelihood, position):
    """The position that a rank gives, or None."""
    return None if position is None else given(likelihood._native.domain, position, likelihood._comm)


def _start(likelihood, position, seed, scale):
    """Where a fit starts: the position that is given, or numbers of the seed times a scale. All ranks call it."""
    leaves = [native for native, _ in likelihood._native.domain]
    return _native.white_noise(likelihood._comm, leaves, seed, scale, _START) if position is None else position


def _told(progress, total, comm):
    """A function of what happens within an iteration, and one of an iteration's end."""
    if progress is None:
        return None, lambda iteration: None
    if callable(progress):
        return heard(comm, lambda iteration, what: progress(iteration, total, what)), lambda iteration: None
    if not hasattr(progress, "update"):
        raise TypeError("progress must be a function of (iteration, iterations, what), or a bar with update and total as tqdm's")
    progress.total = total
    return None, heard(comm, lambda iteration: progress.update(1))


def optimize_kl(
    likelihood,
    position=None,
    *,
    n_total_iterations=None,
    n_samples=None,
    seed=0,
    sample_mode=None,
    constants=(),
    point_estimates=(),
    draw_linear_kwargs=None,
    nonlinearly_update_kwargs=None,
    kl_kwargs=None,
    callback=None,
    progress=None,
    odir=None,
    resume=False,
    overwrite=False,
    temperature=1.0,
    memory=None,
    budget=None,
):
    """Fit a model to data: samples of the posterior by MGVI or geoVI, or its most probable place.

    Each iteration draws samples about the position, and then moves it to where the energy averaged over them is least. Every option from `n_samples` to
    `kl_kwargs` but `seed`, and `temperature`, may be a function of the iteration's number, which is called before the first iteration. Results are the same on any number of ranks,
    to the bit, whether they share each sample's field, or `sample_groups` of them have samples of their own.

    Parameters
    ----------
    likelihood : Likelihood
        Of a model of standard normal latent values.
    position : array_like or dict, optional
        Starting point, unless the fit resumes from a state. Default: 0.1 times standard
        normal numbers drawn with the seed, different from those of `Likelihood.random`.
        Start near the data: give a field their mean (`set_amplitude_total_offset`).
    n_total_iterations : int, optional
        Iterations. Without it the fit ends once it has settled, after 20 iterations at most: over two iterations with as many samples the reduced chi-squared of data
        and of latent values changes by 3 % at most, and the energy by 0.004 for each datum.
    n_samples : int, optional
        Mirrored pairs of samples; 0 looks for the most probable place. Without it 2 in the first two iterations, 6 in the next two, then 12.
    seed : int
        Of all random numbers.
    sample_mode : {"linear_resample", "linear_sample", "nonlinear_resample", "nonlinear_sample", "nonlinear_update"}
        Straight samples (MGVI) or bent ones (geoVI), with new random numbers or those of the iteration before; or those of the iteration before, bent anew.
        Without it they are straight in the first two iterations and bent in the next three, with new random numbers, and then updated. Samples of a likelihood
        without coordinates stay straight.
    constants, point_estimates : sequence of str
        Latent values, or branches of them, that keep their place; that are fitted, but taken as known by samples.
    draw_linear_kwargs : dict, optional
        ``cg_kwargs``: `absdelta`, `resnorm`, `norm_ord`, `miniter`, `maxiter` of the conjugate gradients that draw a straight sample. Where `maxiter` ends
        them before they have converged there is a `RuntimeWarning`: deviations may be many times too large.
    nonlinearly_update_kwargs, kl_kwargs : dict, optional
        ``minimize_kwargs``: `xtol`, `absdelta`, `miniter`, `maxiter`, `energy_reduction_factor` and `cg_kwargs` of Newton's method, which bends samples and
        moves the position.
    callback : callable, optional
        Called as ``callback(samples, report)`` after each iteration; the fit ends where it returns True on any rank, on all of them.
    progress : callable or tqdm bar, optional
        Called as ``progress(iteration, n_total_iterations, what)`` for each sample and step, while the device is at work, which it must not use; or a bar
        that is advanced by iterations.
    odir : path, optional
        Directory in which the state is saved after each iteration. One that has a state already is an `Error` without `resume` or `overwrite`.
    resume : bool
        Go on from the state in `odir`, if there is one, to the same bits as without an interruption. A state of other data, mask, noise, exposure, seed, latent
        values or model (priors and constants of operators included) is an `Error`. Options of iterations that are done do not matter; a state
        that has all of them, or more, and other samples than are asked for is a ValueError.
    overwrite : bool
        Replace the state in `odir` after the first iteration.
    temperature : float
        The likelihood is taken to the power of ``1 / temperature``: above 1 data count less, as with noise ``sqrt(temperature)`` times as large. Falling
        temperatures (annealing) fit first what the data determine best. Reports have the energy at this temperature and chi-squared at 1.
    memory : int, optional
        Bytes of device memory that a rank may use. Samples whose derivatives do not fit compute them again in each product, to the same bits. A fit
        that needs more is an `Error` before the first iteration.
    budget : float, optional
        Seconds after which no iteration begins, by the clock of rank 0. There are fewer reports than `n_total_iterations` then; `resume` goes on.

    Returns
    -------
    samples : Samples
    reports : list of IterationReport
        Those before a resumption, too.

    Warns
    -----
    RuntimeWarning
        Once, at the end: where a fit without `n_total_iterations` has not settled, where samples of the last iteration have not converged, where the last iteration ended with no step that lowers the energy though the minimum is elsewhere, and where the reduced
        chi-squared of the data is far from 1: half or twice of what the spread of so many data explains (of counts, and without samples, only above).

    UserWarning
        Where the state in `odir` has all iterations already, so that none is done.

    Raises
    ------
    ValueError
        For options that cannot be, or that are not the same on all ranks.
    Error
        For energies that are not finite, a state of another fit, a state that would be lost, and what the device fails with.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> line = op.pointwise("fn f(x: f32) -> f32 { return 3.0 * x; }", "f", op.Space(x=op.cells(4)), "y")
    >>> likelihood = mi.Gaussian([1.0, 2.0, 3.0, 4.0], noise_std=1.0).amend(line)
    >>> samples, reports = mi.optimize_kl(likelihood, n_total_iterations=3, n_samples=4)
    >>> mean, std = samples.mean_and_std(line)
    >>> np.round(np.asarray(mean).astype(float), 3).tolist(), len(samples), len(reports)
    ([0.9, 1.8, 2.7, 3.6], 8, 3)
    """
    # Without a likelihood there are no ranks to tell.
    comm = all_groups(_likelihood_of(likelihood)._comm)

    def options(iteration):
        asked = {
            "n_samples": n_samples,
            "sample_mode": sample_mode,
            "linear": draw_linear_kwargs,
            "curve": nonlinearly_update_kwargs,
            "position": kl_kwargs,
        }
        checks = {
            "n_samples": lambda value: whole_number(value, "n_samples"),
            "linear": _linear,
            "curve": lambda value: _newton(value, "nonlinearly_update_kwargs"),
            "position": lambda value: _newton(value, "kl_kwargs"),
        }
        # Options that are None follow the schedule of the library.
        now = {name: _at(value, iteration) for name, value in asked.items()}
        given = {name: checks.get(name, lambda value: value)(value) for name, value in now.items() if value is not None}
        return given | {
            "constants": _names(_at(constants, iteration), "constants"),
            "point_estimates": _names(_at(point_estimates, iteration), "point_estimates"),
            "temperature": real_number(_at(temperature, iteration), "temperature"),
        }

    def check():
        total = _ITERATIONS if n_total_iterations is None else whole_number(n_total_iterations, "n_total_iterations")
        told, done = _told(progress, total, comm)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of (samples, report), not {type(callback).__name__}")
        if resume and odir is None:
            raise ValueError("resume goes on from a state in odir; give that directory")
        if overwrite and (resume or odir is None):
            raise ValueError("overwrite replaces a state in odir; give that directory, and leave resume out")
        each = [options(iteration) for iteration in range(total)]
        parsed = _native.NativeOptions(each)
        limits = None if memory is None else whole_number(memory, "memory"), None if budget is None else real_number(budget, "budget")
        if limits[1] is not None and not 0 <= limits[1] < 2**63:
            raise ValueError(f"budget: expected seconds from 0 on, got {budget}")
        own = whole_number(seed, "seed"), _given(likelihood, position), each, parsed, None if odir is None else os.fspath(odir), told, done, limits
        # The library compares the rest.
        alike = {"function": "optimize_kl", "n_total_iterations": total, "position": given_or_not(position), "odir": given_or_not(odir), "resume": bool(resume), "overwrite": bool(overwrite)}
        return own, alike, None

    (seed, start, each, options, odir, told, done, limits), _ = gathered(comm, check)
    start, total = agreed(comm, _start, likelihood, start, seed, 0.1), len(each)

    def begun():
        state = None if odir is None else (odir, "resume" if resume else "overwrite" if overwrite else "refuse")
        fit = _native.NativeFit(likelihood._native, start, options, seed, n_total_iterations is None, state, told, *limits)
        samples, finished = fit.samples(), len(fit.known()[2])
        asked = 2 * each[-1]["n_samples"] if each and "n_samples" in each[-1] else samples.count
        if finished > total or finished == total and samples.count != asked:
            raise ValueError(
                f"the state in odir has {samples.count} samples after {finished} iterations, and this call asks for {asked} after {total}: "
                "give more n_total_iterations, or leave resume out to begin anew"
            )
        return fit

    def ends(samples, report):
        """Whether a callback ends the fit; ranks may have different ones, or none."""
        done(report.iteration)
        return callback is not None and bool(callback(samples, report))

    fit = agreed(comm, begun)
    is_done = fit.known()[0] == "already done"
    if is_done:
        warnings.warn(f"the state in {odir} has settled or has all {total} iterations already: none is done; give more n_total_iterations", stacklevel=2)
    while True:
        went_on = not is_done and agreed(comm, fit.step)
        end, unsettled, history = fit.known()
        samples, reports = Samples(fit.samples(), likelihood), [IterationReport(*position, *of_samples) for position, of_samples in history]
        if (went_on or is_done) and reports and any(gathered(comm, lambda: (None, {}, ends(samples, reports[-1])))[1]) or end:
            break
    if reports:
        _warn_of(samples._native, f"{len(samples)} samples of iteration {reports[-1].iteration}")
    _warn_of_doubts(samples._native)
    if n_total_iterations is None and len(reports) >= total and unsettled is not None:
        warnings.warn(f"{unsettled}; give n_total_iterations, of which {total} is the default, or odir and resume", RuntimeWarning, stacklevel=2)
    return samples, reports


def wiener_filter(likelihood, position=None, *, n_samples=2, seed=0, draw_linear_kwargs=None):
    """The posterior of a model that is linear about `position` and of Gaussian noise: its mean and `n_samples` mirrored pairs of samples.

    Where conjugate gradients reach `maxiter` before they have converged there is a `RuntimeWarning`: neither mean nor deviations are right then. So is there where
    the model is not linear or the noise not Gaussian: the gradient of the energy at the mean tells.

    Returns
    -------
    Samples
    """
    comm = all_groups(_likelihood_of(likelihood)._comm)

    def check():
        start = _given(likelihood, position)
        pairs, own_seed, linear = whole_number(n_samples, "n_samples"), whole_number(seed, "seed"), _linear(draw_linear_kwargs)
        _native.NativeOptions([{"linear": linear}])
        alike = {"function": "wiener_filter", "position": given_or_not(position), "n_samples": pairs, "seed": own_seed, "draw_linear_kwargs": linear}
        return (start, pairs, own_seed, linear), alike, None

    def filtered(own, _):
        start, *manner = own
        return _native.NativeSamples.wiener_filter(likelihood._native, _start(likelihood, start, 0, 0.0), *manner)

    native = together(comm, check, filtered)
    samples = Samples(native, likelihood)
    _warn_of_doubts(native)
    _warn_of(native, f"the mean and {len(samples)} samples")
    return samples


def evidence(likelihood, samples, *, directions=64, probes=8, steps=20, seed=0):
    """Estimate how probable the data are under the model, from the samples of a fit, to compare models of the same data.

    The bounds include the unknown part of the determinant of the metric (Gauss and Gauss-Radau quadrature). They hold up to
    `error` if the samples are normal about their mean, as those of a linear model with Gaussian noise are. Otherwise both
    are approximations: samples of geoVI are not normal. Without samples it is Laplace's approximation. Choose the larger model only
    if its `lower` exceeds the `upper` of the other by several `error`.

    Parameters
    ----------
    likelihood : Likelihood
    samples : Samples
    directions : int
        Directions whose part of the determinant is exact. As many vectors are kept.
    probes : int
        Random vectors for the rest; 2 or more tell their error.
    steps : int
        Products with the metric for each of them, at most.
    seed : int
        Seed of the random vectors. Models of the same data that are compared with the same seed share much of the error.

    Returns
    -------
    Evidence

    Warns
    -----
    RuntimeWarning
        Where the bounds are further apart than two of their errors.
    """
    comm = all_groups(_likelihood_of(likelihood)._comm)

    def check():
        if not isinstance(samples, Samples):
            raise TypeError(f"samples must be those of a fit, not {type(samples).__name__}")
        own = (
            whole_number(directions, "directions"),
            whole_number(probes, "probes", 1),
            whole_number(steps, "steps", 1),
            whole_number(seed, "seed"),
        )
        return own, {"function": "evidence", **dict(zip(("directions", "probes", "steps", "seed"), own))}, None

    *found, doubt = together(comm, check, lambda own, _: samples._native.evidence(likelihood._native, *own))
    if doubt:
        warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    lower, upper, error, determinant, products = found
    return Evidence(lower, upper, error, tuple(determinant), products)


class MetricCheck(NamedTuple):
    """The comparisons of `check_metric`. Both numbers of a pair are equal up to rounding.

    Attributes
    ----------
    symmetric : tuple of float
        Products ``<u, M v>`` and ``<v, M u>`` with the metric M, for random directions u and v.
    square : tuple of float
        ``<u, M u>`` and ``|R u|^2`` with the right square root R of the metric.
    transposed : tuple of float
        ``<R u, eta>`` and ``<u, L eta>`` with the left square root L and random data eta.
    slope : tuple of float
        The slope of the energy along u, by its gradient and by differences of energies.
    coordinates : float or None
        Distance between ``R u`` and the derivative along u of the coordinates that bend samples, over the length of ``R u``; None if the likelihood has no coordinates.
    """

    symmetric: tuple[float, float]
    square: tuple[float, float]
    transposed: tuple[float, float]
    slope: tuple[float, float]
    coordinates: Optional[float]


def check_metric(likelihood, position=None, *, seed=0):
    """Compare the gradient, the metric, its square roots and the coordinates of a likelihood with each other.

    Call it before a fit: it finds models whose derivatives do not match their values. Collective.

    Parameters
    ----------
    likelihood : Likelihood
    position : array_like or dict, optional
        Point at which the derivatives are compared. Default: 0.1 times standard normal
        numbers drawn with the seed.
    seed : int
        Seed of the random directions.

    Returns
    -------
    MetricCheck

    Raises
    ------
    ValueError
        If two numbers that should be equal differ by more than rounding; it names them.

    Examples
    --------
    >>> from meshloom import inference as mi, operators as op
    >>> rate = op.pointwise("fn rate(x: f32) -> f32 { return exp(x); }", "rate", op.Space(x=op.cells(3)), "rate")
    >>> check = mi.check_metric(mi.Poissonian([3, 0, 5]).amend(rate))
    >>> check.coordinates < 1e-3
    True
    """
    comm = _likelihood_of(likelihood)._comm

    def check():
        start, own = _given(likelihood, position), whole_number(seed, "seed")
        return (start, own), {"function": "check_metric", "position": given_or_not(position), "seed": own}, None

    def checked(own, _):
        start, number = own
        return likelihood._native.check_metric(_start(likelihood, start, number, 0.1), number)

    return MetricCheck(*together(comm, check, checked))
