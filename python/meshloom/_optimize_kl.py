"""Variational inference: samples around a position, then a better position for these samples."""

import os
import warnings
from typing import NamedTuple, Optional

from . import _native
from ._arguments import real_number, whole_number
from ._comm import agreed, all_groups, gathered, given_or_not, heard, resolve, together
from ._likelihood import Likelihood
from ._model import Model, given, result
from ._recipe import Unchanging, check_alone
from ._samples_file import host, made_samples, write_samples
from ._space import Fields


def sample_groups(comm, count):
    """Split ranks into groups that draw different samples of a fit.

    Parameters
    ----------
    comm : Comm or mpi4py.MPI.Comm
        All ranks.
    count : int
        Number of groups: a divisor of the number of ranks, and at most the number of samples (both
        signs) of an iteration.

    Returns
    -------
    Comm
        The ranks of this rank's group. Pass it as ``comm=`` to models and data.

    Raises
    ------
    ValueError
        If `count` does not divide the number of ranks, or differs between ranks.

    Notes
    -----
    Collective. Each group has neighboring ranks and holds whole fields, distributed over its ranks.
    `optimize_kl`, `wiener_filter`, `Samples` and `evidence` are then collective over all groups.
    Results have the same bits for every number of groups.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> from meshloom import inference as mi, operators as op
    >>> def fit(comm, groups):
    ...     group = mi.sample_groups(comm, groups)
    ...     text, space = "fn f(x: f32) -> f32 { return 3.0 * x; }", op.Space(x=op.cells(4))
    ...     line = op.pointwise(text, "f", space, "y", comm=group)
    ...     likelihood = mi.Gaussian([1.0, 2.0, 3.0, 4.0]).amend(line)
    ...     samples, _ = mi.optimize_kl(likelihood, n_total_iterations=1, n_samples=1)
    ...     return np.asarray(samples[1])
    >>> one = meshloom.ranks(1, lambda comm: fit(comm, 1))[0]
    >>> all(np.array_equal(two, one) for two in meshloom.ranks(2, lambda comm: fit(comm, 2)))
    True
    """
    comm = resolve(comm)

    def check():
        own = whole_number(count, "count", 1)
        return own, {"function": "sample_groups", "count": own}, None

    return together(comm, check, lambda own, _: comm._sample_groups(own))


class IterationReport(NamedTuple):
    """Report of one iteration of a fit.

    Attributes
    ----------
    iteration : int
        Number of the iteration, from 0.
    n_samples : int
        Number of samples, both signs.
    energy : float
        Energy averaged over the samples. It is not a bound of ``-ln p(data)``; energies of two
        iterations can be compared only for the same samples.
    steps : int
        Newton steps of the position.
    applications : int
        Products with the metric in these steps.
    reduced_chi_squared, latent_chi_squared : float or None
        Of the data and of the latent values; about 1 is expected.
    seconds : float
        Duration of the iteration.
    sample_steps : int
        Steps of conjugate gradients of the slowest sample; 0 in an update.
    unconverged_samples : int
        Samples whose conjugate gradients missed their target. An update keeps the error of the
        draw.
    gave_up : bool
        Whether no step lowers the energy although the minimum is elsewhere.
    sample_error_ratio : float
        Largest error of conjugate gradients over its target, of the residual or of the change of
        the energy. 1 or less has converged.
    failed_samples : int
        Curved samples for which Newton's method found no descent direction.
    limited_samples : int
        Curved samples for which Newton's method used all `maxiter` steps.
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
    """Bounds of the logarithm of the evidence, the result of `evidence`.

    They hold up to constants of the likelihood, and if the samples are normal.

    Attributes
    ----------
    lower, upper : float
        Bounds of the logarithm of the evidence.
    error : float
        Standard error of both bounds: of the mean over pairs of samples (infinite for one pair, 0
        without samples) and of the mean over random vectors.
    log_determinant : tuple of float
        Bounds of the logarithm of the determinant of the metric.
    products : int
        Number of products with the metric.
    """

    lower: float
    upper: float
    error: float
    log_determinant: tuple[float, float]
    products: int


class Samples(Unchanging):
    """A position and samples of the posterior around it, the result of a fit.

    ``len(samples)`` is the number of samples, both signs, and ``samples[i]`` is one of them: a
    field of the domain of the likelihood.

    Notes
    -----
    Indexing and all methods are collective with the likelihood's `comm`, and over all groups of
    `sample_groups`: every rank must ask for the same sample. `save` writes them to a file; on one
    rank they also pickle, without the likelihood.
    """

    def __init__(self, native, domain):
        self._native, self._domain, self._comm = native, domain, domain._comm

    @property
    def pos(self):
        """Mean of the approximation, or the most probable position without samples.

        A field of the domain of the likelihood.
        """
        return result(self._domain, self._native.position())

    def __len__(self):
        return self._native.count

    def __getitem__(self, number):
        """Return sample `number`, a field of the domain of the likelihood. Collective."""


        def check():
            own = whole_number(number, "number", -(2**63))
            if not -len(self) <= own < len(self):
                raise IndexError(f"number: expected -{len(self)} to {len(self) - 1}, got {own}")
            return own % len(self), {"function": "a sample", "number": own}, None

        sample = together(all_groups(self._comm), check, lambda number, _: self._native.sample(number))
        return result(self._domain, sample)

    def map(self, function):
        """Apply a function to all samples.

        Parameters
        ----------
        function : callable
            Takes a sample, a field of the domain of the likelihood: a `Model` or any function.

        Returns
        -------
        list
            Results in the order of the samples; of the position alone if there is no sample.

        Notes
        -----
        Collective with the likelihood's `comm`, and over all groups of `sample_groups`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import inference as mi, operators as op
        >>> unit = op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0])
        >>> samples = mi.wiener_filter(mi.Gaussian([2.0, 4.0]).amend(unit))
        >>> len(samples.map(lambda x: float(np.asarray(x).max())))
        4
        """
        if not callable(function):
            raise TypeError(f"function: expected a function of a sample, got {type(function).__name__}")
        return [function(self[number]) for number in range(len(self))] or [function(self.pos)]

    def __repr__(self):
        return f"<meshloom.Samples: {len(self)} of {dict(self._domain)}>"

    def mean_and_std(self, model, *, ddof=1):
        """Compute the posterior mean and standard deviation of a model.

        Parameters
        ----------
        model : Model
            Takes leaves of the likelihood's domain.
        ddof : {0, 1}, default 1
            Delta degrees of freedom, as in NumPy: the variance of n samples divides by ``n -
            ddof``. Choose 0 for a linear model and linear samples (MGVI, `wiener_filter`), whose
            mean is known; there 1 is too large by ``sqrt(n / (n - 1))``.

        Returns
        -------
        mean, std : Array, ndarray or dict of them
            Fields of the target of `model`. Without samples, the value at the position and 0.

        Raises
        ------
        ValueError
            If `ddof` is neither 0 nor 1, or the model takes other leaves.
        TypeError
            If `model` is not a model.

        Notes
        -----
        Collective with the likelihood's `comm`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import inference as mi, operators as op
        >>> unit = op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0])
        >>> samples = mi.wiener_filter(mi.Gaussian([2.0, 4.0]).amend(unit))
        >>> mean, std = samples.mean_and_std(unit, ddof=0)
        >>> np.round(np.asarray(mean).astype(float), 3).tolist()
        [1.0, 2.0]
        """

        def check():
            if not isinstance(model, Model):
                raise TypeError(f"model: expected a model, got {type(model).__name__}")
            own = whole_number(ddof, "ddof", 0)
            if own > 1:
                raise ValueError(f"ddof: expected 0 or 1, got {own}")
            return (model._native, own), {"function": "mean_and_std", "ddof": own}, None

        mean, std = together(all_groups(self._comm), check, lambda own, _: self._native.mean_and_std(*own))
        return result(model.target, mean), result(model.target, std)

    def mean(self, model):
        """Compute the posterior mean of a model, the first result of `mean_and_std`.

        Parameters
        ----------
        model : Model
            Takes leaves of the likelihood's domain.

        Returns
        -------
        Array, ndarray or dict of them
            A field of the target of `model`.

        Notes
        -----
        Collective with the likelihood's `comm`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import inference as mi, operators as op
        >>> unit = op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0])
        >>> samples = mi.wiener_filter(mi.Gaussian([2.0, 4.0]).amend(unit))
        >>> np.round(np.asarray(samples.mean(unit)).astype(float), 3).tolist()
        [1.0, 2.0]
        """
        return self.mean_and_std(model)[0]

    def save(self, path):
        """Write position and samples to a file, which `load_samples` reads without the likelihood.

        Parameters
        ----------
        path : path-like
            File to write; an existing file is replaced once the new one is complete.

        Raises
        ------
        meshloom.Error
            If the file cannot be written.

        Notes
        -----
        Collective with the likelihood's `comm`, and over all groups of `sample_groups`. The file
        has the same bytes on any number of ranks and groups.

        It is an npz file of NumPy without pickled objects: the text ``about`` (JSON: version, kind,
        leaves), and for each leaf an array such as ``position/x`` and ``residuals/x``, whose first
        axis counts samples. A sample is the position plus its residual. `Chains` also have
        ``statistics/energy`` and others.

        Examples
        --------
        >>> import os, tempfile
        >>> from meshloom import inference as mi, operators as op
        >>> unit = op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0])
        >>> samples = mi.wiener_filter(mi.Gaussian([2.0, 4.0]).amend(unit))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     path = os.path.join(directory, "samples.npz")
        ...     samples.save(path)
        ...     again = mi.load_samples(path)
        >>> (again[1].numpy() == samples[1].numpy()).all()
        np.True_
        """
        write_samples(self, path)

    # Names of further arguments, dictionaries of arrays in files and pickles, with their keys.
    _others: dict[str, tuple[str, ...]] = {}

    def __reduce__(self):
        check_alone(self, self._comm)
        residuals = [host(self._native.residual(number)) for number in range(len(self))]
        others = {name: getattr(self, name) for name in self._others}
        return _again, (type(self), self._domain.space, host(self._native.position()), residuals, others)


def _again(kind, space, position, residuals, others):
    """Return the samples of a pickle, on this process alone."""
    return made_samples(kind, Fields._of_space(space, resolve(None)), len(residuals), position, residuals, others)


def _cg(kwargs):
    """Return the options of conjugate gradients without NIFTy's names for printing."""
    return {name: value for name, value in (kwargs or {}).items() if name != "name" and value is not None}


def _newton(kwargs, where):
    kwargs = dict(kwargs or {})
    if set(kwargs) - {"minimize_kwargs"}:
        raise ValueError(f"{where}: expected minimize_kwargs, got {sorted(kwargs)}")
    rules = _cg(kwargs.get("minimize_kwargs"))
    if "cg_kwargs" in rules:
        rules["cg_kwargs"] = _cg(rules["cg_kwargs"])
    return rules


def _names(value, what):
    if isinstance(value, str):
        raise TypeError(f"{what}: expected a sequence of names, got text")
    return [str(name) for name in value]


def _at(value, iteration):
    return value(iteration) if callable(value) else value


def _linear(kwargs):
    kwargs = dict(kwargs or {})
    kwargs.pop("cg_name", None)
    if set(kwargs) - {"cg_kwargs"}:
        raise ValueError(f"draw_linear_kwargs: expected cg_kwargs, got {sorted(kwargs)}")
    return _cg(kwargs.get("cg_kwargs"))


def _likelihood_of(likelihood):
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood: expected one of meshloom.inference, got {type(likelihood).__name__}")
    return likelihood


def _warn_of(fit, what):
    """Warn of samples whose equations are not solved."""
    for doubt in fit.sample_doubts(what):
        warnings.warn(doubt, RuntimeWarning, stacklevel=3)


def _warn_of_doubts(fit):
    """Warn of an unreliable result."""
    for doubt in fit.doubts:
        warnings.warn(doubt, RuntimeWarning, stacklevel=3)


# Largest number of iterations by default.
_ITERATIONS = _native.NativeFit.ITERATIONS

# Kind of the noise at the start of a fit, different from that of a mock truth with its seed.
_START = 1


def _given(likelihood, position):
    """Return the position that a rank passes, or None."""
    return None if position is None else given(likelihood._native.domain, position, likelihood._comm)


def _start(likelihood, position, seed, scale):
    """Return the start of a fit: `position`, or random numbers times `scale`. Collective."""
    leaves = [native for native, _ in likelihood._native.domain]
    return _native.white_noise(likelihood._comm, leaves, seed, scale, _START) if position is None else position


def _told(progress, total, comm):
    """A function of what happens within an iteration, and one of an iteration's end."""
    if progress is None:
        return None, lambda iteration: None
    if callable(progress):
        return heard(comm, lambda iteration, what: progress(iteration, total, what)), lambda iteration: None
    if not hasattr(progress, "update"):
        raise TypeError("progress: expected a function of (iteration, iterations, what) or a tqdm bar")
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
    preconditioning="fields",
    curvature="sample_average",
    memory=None,
    budget=None,
):
    """Fit a model to data: posterior samples by MGVI or geoVI, or the most probable position.

    Each iteration draws samples around the position. Then it moves the position to the minimum of
    the energy averaged over the samples.

    Parameters
    ----------
    likelihood : Likelihood
        Likelihood of a model of standard normal latent values.
    position : array_like or dict, optional
        Start, unless the fit resumes from a state. Default: 0.1 times standard normal numbers of
        the seed, different from those of `Likelihood.random`. Start near the data: set the mean of
        a field with `CorrelatedFieldMaker.set_amplitude_total_offset`.
    n_total_iterations : int, optional
        Number of iterations. By default the fit ends once it has settled, after 20 iterations at
        most: over two iterations with equal numbers of samples, the reduced chi-squared of data and
        of latent values changes by at most 3 %, and the energy by at most 0.05 sqrt(n) for n data
        (0.5 below 100 data).
    n_samples : int or callable, optional
        Number of mirrored pairs of samples; 0 finds the most probable position. Default: 2 in the
        first two iterations, 6 in the next two, then 12.
    seed : int, default 0
        Seed of all random numbers, 0 or more.
    sample_mode : str or callable, optional
        "linear_resample", "linear_sample" (MGVI), "nonlinear_resample", "nonlinear_sample" (geoVI)
        or "nonlinear_update". "resample" draws new random numbers, "sample" reuses those of the
        iteration before, and "update" curves the samples of the iteration before again. Default:
        linear in the first two iterations, nonlinear with new random numbers in the next three,
        then updates. Samples of a likelihood without coordinates stay linear.
    constants : sequence of str or callable, default ()
        Latent values, or branches of them, that are not changed.
    point_estimates : sequence of str or callable, default ()
        Latent values, or branches of them, that are fitted but not sampled.
    draw_linear_kwargs : dict or callable, optional
        ``cg_kwargs``: `absdelta`, `resnorm`, `norm_ord`, `miniter` and `maxiter` of the conjugate
        gradients that draw a linear sample.
    nonlinearly_update_kwargs, kl_kwargs : dict or callable, optional
        ``minimize_kwargs``: `xtol`, `absdelta`, `miniter`, `maxiter`, `energy_reduction_factor` and
        `cg_kwargs` of Newton's method, which curves samples and moves the position.
    callback : callable, optional
        Called as ``callback(samples, report)`` after each iteration. The fit ends on all ranks if
        it returns True on any rank.
    progress : callable or tqdm bar, optional
        Called as ``progress(iteration, n_total_iterations, what)`` for each sample and step; it
        must not use the device. Or a progress bar of iterations.
    odir : path-like, optional
        Directory that stores the state after each iteration.
    resume : bool, default False
        Continue from the state in `odir` if there is one, with the same bits as without an
        interruption. Options of finished iterations are ignored.
    overwrite : bool, default False
        Replace the state in `odir` after the first iteration.
    temperature : float or callable, default 1.0
        Raise the likelihood to the power ``1 / temperature``. Above 1 the data count less, as with
        noise ``sqrt(temperature)`` times as large. Falling temperatures (annealing) fit first what
        the data determine best. Reports have the energy at this temperature and chi-squared at 1.
    preconditioning : str or callable, default "fields"
        Precondition the conjugate gradients of linear samples and of the position: "fields" for
        models with correlated fields and for initial conditions of simulations, "always" for any
        model, "off" for the steps of NIFTy. With a preconditioner the position also stops at steps
        that lower the energy by less than 0.1, unless `kl_kwargs` has `absdelta`. Building it takes
        up to 209 products with the metric in each iteration.
    curvature : str or callable, default "sample_average"
        Metric of the steps of the position. With "at_position" a product takes one application of
        the metric instead of one for each sample, and groups exchange gradients only. The minimum
        is the same. It suits nearly linear models; others may take many times as many steps.
    memory : int, optional
        Limit of device memory per rank in bytes. Samples whose derivatives do not fit compute them
        again in each product, with the same bits.
    budget : float, optional
        Time in seconds, 0 or more, after which no iteration begins, by the clock of rank 0.

    Returns
    -------
    samples : Samples
        Position and samples of the last iteration.
    reports : list of IterationReport
        One report per iteration, those before a resumption included.

    Raises
    ------
    ValueError
        If an option is invalid or differs between ranks, or the state in `odir` has more iterations
        or other samples than requested.
    meshloom.Error
        If an energy is not finite, the state in `odir` belongs to another fit (data, mask, noise,
        exposure, seed, latent values or model), `odir` has a state without `resume` or `overwrite`,
        the fit needs more than `memory`, or the device fails.

    Warns
    -----
    RuntimeWarning
        At the end of the fit, if it has not settled, samples of the last iteration have not
        converged (deviations may then be many times too large), no step lowered the energy, or the
        reduced chi-squared of the data is far from 1: half or twice the value that the number of
        data explains.
    UserWarning
        If the state in `odir` has all iterations already.

    Notes
    -----
    Collective with the likelihood's `comm`, and over all groups of `sample_groups`. Results have
    the same bits on any number of ranks and groups. A callable option is called with the number of
    each iteration before the first one.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> text = "fn f(x: f32) -> f32 { return 3.0 * x; }"
    >>> line = op.pointwise(text, "f", op.Space(x=op.cells(4)), "y")
    >>> likelihood = mi.Gaussian([1.0, 2.0, 3.0, 4.0], noise_std=1.0).amend(line)
    >>> samples, reports = mi.optimize_kl(likelihood, n_total_iterations=3, n_samples=4)
    >>> mean, std = samples.mean_and_std(line)
    >>> np.round(np.asarray(mean).astype(float), 3).tolist(), len(samples), len(reports)
    ([0.9, 1.8, 2.7, 3.6], 8, 3)
    """
    # The likelihood has the ranks that exchange errors, so it is checked first.
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
            "preconditioning": _at(preconditioning, iteration),
            "curvature": _at(curvature, iteration),
        }

    def check():
        total = _ITERATIONS if n_total_iterations is None else whole_number(n_total_iterations, "n_total_iterations")
        told, done = _told(progress, total, comm)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function of (samples, report), got {type(callback).__name__}")
        if resume and odir is None:
            raise ValueError("resume: expected odir, the directory of the state, got None")
        if overwrite and (resume or odir is None):
            raise ValueError("overwrite replaces a state in odir: expected odir and no resume")
        each = [options(iteration) for iteration in range(total)]
        parsed = _native.NativeOptions(each)
        limits = None if memory is None else whole_number(memory, "memory"), None if budget is None else real_number(budget, "budget")
        if limits[1] is not None and not 0 <= limits[1] < 2**63:
            raise ValueError(f"budget: expected seconds from 0 on, got {budget}")
        own = whole_number(seed, "seed"), _given(likelihood, position), each, parsed, None if odir is None else os.fspath(odir), told, done, limits
        # The extension module compares the other options.
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
                "raise n_total_iterations, or leave out resume to start again"
            )
        return fit

    def ends(samples, report):
        """Return True if the callback ends the fit; ranks may have different callbacks, or none."""
        done(report.iteration)
        return callback is not None and bool(callback(samples, report))

    fit = agreed(comm, begun)
    is_done = fit.known()[0] == "already done"
    if is_done:
        warnings.warn(f"the state in {odir} has settled or has all {total} iterations already, so no iteration was done; raise n_total_iterations", stacklevel=2)
    while True:
        went_on = not is_done and agreed(comm, fit.step)
        end, unsettled, history = fit.known()
        samples, reports = Samples(fit.samples(), likelihood.domain), [IterationReport(*position, *of_samples) for position, of_samples in history]
        if (went_on or is_done) and reports and any(gathered(comm, lambda: (None, {}, ends(samples, reports[-1])))[1]) or end:
            break
    if reports:
        _warn_of(samples._native, f"{len(samples)} samples of iteration {reports[-1].iteration}")
    _warn_of_doubts(samples._native)
    if n_total_iterations is None and len(reports) >= total and unsettled is not None:
        warnings.warn(f"{unsettled}; pass n_total_iterations (default {total}), or odir and resume", RuntimeWarning, stacklevel=2)
    return samples, reports


def wiener_filter(likelihood, position=None, *, n_samples=2, seed=0, draw_linear_kwargs=None):
    """Sample the posterior of a linear model with Gaussian noise.

    Parameters
    ----------
    likelihood : Likelihood
        Likelihood of a linear model, with Gaussian noise.
    position : array_like or dict, optional
        Point at which the model is linearized. Default: 0.
    n_samples : int, default 2
        Number of mirrored pairs of samples, 0 or more. The mean needs none. Take 20 for standard
        deviations, which are then known to 16 %.
    seed : int, default 0
        Seed of the samples, 0 or more.
    draw_linear_kwargs : dict, optional
        As in `optimize_kl`.

    Returns
    -------
    Samples
        The posterior mean, and samples around it.

    Raises
    ------
    ValueError
        If an option is invalid or differs between ranks.

    Warns
    -----
    RuntimeWarning
        If conjugate gradients reach `maxiter` before they converge, or if the gradient of the
        energy at the mean shows that the model is not linear or the noise not Gaussian. The result
        is then wrong.

    Notes
    -----
    Collective with the likelihood's `comm`, and over all groups of `sample_groups`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> unit = op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0])
    >>> samples = mi.wiener_filter(mi.Gaussian([2.0, 4.0]).amend(unit))
    >>> np.round(np.asarray(samples.pos).astype(float), 3).tolist(), len(samples)
    ([1.0, 2.0], 4)
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
    samples = Samples(native, likelihood.domain)
    _warn_of_doubts(native)
    _warn_of(native, f"the mean and {len(samples)} samples")
    return samples


def evidence(likelihood, samples, *, directions=64, probes=8, steps=20, seed=0):
    """Estimate the probability of the data under a model, to compare models of the same data.

    Parameters
    ----------
    likelihood : Likelihood
        Likelihood of the fit.
    samples : Samples
        Result of the fit.
    directions : int, default 64
        Number of directions whose part of the determinant is exact; as many vectors are stored.
    probes : int, default 8
        Number of random vectors for the rest, 1 or more; 2 or more give an error estimate.
    steps : int, default 20
        Largest number of products with the metric per random vector, 1 or more.
    seed : int, default 0
        Seed of the random vectors. Models that are compared with the same seed share much of the
        error.

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        If an option is out of range or differs between ranks.

    Warns
    -----
    RuntimeWarning
        If the bounds differ by more than two errors.

    Notes
    -----
    Collective with the likelihood's `comm`, and over all groups of `sample_groups`.

    The bounds include the unknown part of the determinant of the metric (Gauss and Gauss-Radau
    quadrature). They hold up to `error` if the samples are normal around their mean, as those of a
    linear model with Gaussian noise. Otherwise both are approximations: samples of geoVI are not
    normal. Without samples it is Laplace's approximation. Prefer the larger model only if its
    `lower` exceeds the `upper` of the other by several `error`.

    Examples
    --------
    >>> from meshloom import inference as mi, operators as op
    >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.cells(2), [1.0, 1.0]))
    >>> found = mi.evidence(likelihood, mi.wiener_filter(likelihood))
    >>> found.lower <= found.upper
    True
    """
    comm = all_groups(_likelihood_of(likelihood)._comm)

    def check():
        if not isinstance(samples, Samples):
            raise TypeError(f"samples: expected the samples of a fit, got {type(samples).__name__}")
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
    """Comparisons of `check_metric`. Both numbers of a pair are equal up to rounding.

    Attributes
    ----------
    symmetric : tuple of float
        Products ``<u, M v>`` and ``<v, M u>`` with the metric M, for random directions u and v.
    square : tuple of float
        ``<u, M u>`` and ``|R u|^2`` with the right square root R of the metric.
    transposed : tuple of float
        ``<R u, eta>`` and ``<u, L eta>`` with the left square root L and random data eta.
    slope : tuple of float
        Slope of the energy along u, from its gradient and from differences of energies.
    coordinates : float or None
        Distance between ``R u`` and the derivative along u of the coordinates that curve samples,
        over the length of ``R u``; None if the likelihood has no coordinates.
    """

    symmetric: tuple[float, float]
    square: tuple[float, float]
    transposed: tuple[float, float]
    slope: tuple[float, float]
    coordinates: Optional[float]


def check_metric(likelihood, position=None, *, seed=0):
    """Compare the gradient, the metric, its square roots and the coordinates of a likelihood.

    Call it before a fit: it finds models whose derivatives do not match their values.

    Parameters
    ----------
    likelihood : Likelihood
        Likelihood of a model.
    position : array_like or dict, optional
        Point at which the derivatives are compared. Default: 0.1 times standard normal numbers of
        the seed.
    seed : int, default 0
        Seed of the random directions, 0 or more.

    Returns
    -------
    MetricCheck

    Raises
    ------
    ValueError
        If two numbers that should be equal differ by more than rounding; the message names them.

    Notes
    -----
    Collective with the likelihood's `comm`.

    Examples
    --------
    >>> from meshloom import inference as mi, operators as op
    >>> text = "fn rate(x: f32) -> f32 { return exp(x); }"
    >>> rate = op.pointwise(text, "rate", op.Space(x=op.cells(3)), "rate")
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
