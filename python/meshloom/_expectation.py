"""Means over Markov chains: their errors, and derivatives of expectations."""

from typing import Any, NamedTuple

import numpy as np

from . import _native
from ._arguments import whole_number
from ._comm import gathered, resolve
from ._model import Model


class Statistics(NamedTuple):
    """Statistics of draws of Markov chains, the result of `statistics` and `expect`.

    Every field is a float, or an array with one number for each quantity.

    Attributes
    ----------
    mean : float or ndarray
        Mean of all draws.
    error_of_mean : float or ndarray
        Standard error of the mean: ``sqrt(variance * tau / n)`` for n draws.
    variance : float or ndarray
        Variance of all draws, divided by n - 1.
    tau : float or ndarray
        Integrated autocorrelation time in draws, 1 + 2 times the sum of autocorrelations: 1 for
        independent draws.
    r_hat : float or ndarray
        Split R-hat: near 1 if all halves of chains have the same distribution.
    effective_sample_size : float or ndarray
        Number of independent draws with the same error of the mean.
    """

    mean: Any
    error_of_mean: Any
    variance: Any
    tau: Any
    r_hat: Any
    effective_sample_size: Any


def _of_all(values):
    """Return the statistics of draws of all chains: chains, draws, and axes of quantities."""
    chains, draws = values.shape[:2]
    flat = np.ascontiguousarray(values.reshape(chains, draws, -1))
    size, r_hat = (np.array(found) for found in _native.diagnostics(flat))
    count = chains * draws
    variance = flat.var(axis=(0, 1), ddof=1) if count > 1 else np.full(flat.shape[2], np.nan)
    # The sample size is that of halves of chains, without the draw in the middle of an odd number.
    tau = 2 * (draws // 2) * chains / size
    error = np.where(variance == 0, 0.0, np.sqrt(variance * tau / count))
    found = flat.mean(axis=(0, 1)), error, variance, tau, r_hat, size
    return Statistics(*(one.reshape(values.shape[2:])[()] for one in found))


def statistics(values, comm=None):
    """Compute the mean of draws of Markov chains, its error, and how far the chains tell it.

    Parameters
    ----------
    values : array_like, shape (chains, draws, ...) or (draws,)
        Finite real numbers. With `comm`, chains of this rank: none, or any number. One axis is one
        chain.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have chains. Default: this process alone.

    Returns
    -------
    Statistics
        The same on all ranks. ``tau``, ``r_hat`` and ``effective_sample_size`` are NaN for fewer
        than 4 draws in a chain and for draws that are all equal.

    Raises
    ------
    ValueError
        If values are not finite real numbers, there are none, or shapes of ranks differ.

    Notes
    -----
    Collective with `comm`. Each rank receives the draws of all ranks, so the result has the same
    bits on any number of ranks. For draws of `sample`: ``statistics(chains.draws(model))``.

    The autocorrelation time is the sum over Geyer's initial monotone sequence (Geyer 1992) of
    halves of chains, combined as in Stan (Gelman et al. 2013), as in
    `Chains.effective_sample_size`; R-hat is that of `Chains.split_r_hat`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi
    >>> found = mi.statistics(np.random.default_rng(1).standard_normal((4, 1000)))
    >>> bool(abs(found.mean) < 4 * found.error_of_mean), bool(0.9 < found.tau < 1.1)
    (True, True)
    """
    comm = resolve(comm)

    def check():
        own = np.asarray(values)
        own = own[None] if own.ndim == 1 else own
        if own.ndim < 2 or own.dtype.kind not in "biuf":
            raise ValueError(f"values: expected real numbers of shape (chains, draws, ...), got {own.dtype} of shape {own.shape}")
        own = own.astype(np.float64)
        if not np.isfinite(own).all():
            raise ValueError(f"values: expected finite numbers, got {own[~np.isfinite(own)][0]}")
        return None, {"function": "statistics", "shape of a chain": own.shape[1:]}, own

    own = np.concatenate(gathered(comm, check)[1])
    if own.shape[0] * own.shape[1] == 0:
        raise ValueError("values: expected at least one draw, got none")
    return _of_all(own)


def expect(f, log_density, x, *, n_chains=1):
    """Compute an expectation over draws, and its derivative by parameters of the distribution.

    Parameters
    ----------
    f : Model or array_like
        The quantity at each draw: a model of `operators.map_items` over the draws, one number for
        each; or, if it does not depend on the parameters, its numbers for this rank's draws.
    log_density : Model
        Logarithm of the density of each draw up to a constant, a model of `operators.map_items`
        over the same draws. The draws must follow the density at `x`.
    x : array_like, Array or dict of them
        Parameters: a field of the domains of both models.
    n_chains : int, default 1
        Number of Markov chains, whose draws follow each other in equal numbers.

    Returns
    -------
    statistics : Statistics
        Of `f`: its mean, the error of the mean, and more.
    gradient : Array, ndarray or dict of them
        Derivative of the expectation by `x`.

    Raises
    ------
    ValueError
        If models have other targets or numbers of draws, or `n_chains` does not divide the draws.

    Notes
    -----
    Collective with the models' `comm`. The gradient is the mean of ``(f - mean(f)) d log_density +
    df`` (the score-function estimator). Subtracting the mean reduces its variance and multiplies
    the first term by 1 - 1/n for n independent draws. `statistics` describes the error of the mean.
    Values of models are float32; the rest is computed in float64. Results have the same bits on any
    number of ranks.

    Examples
    --------
    The expectation of the square of normal numbers of mean a has the derivative 2 a:

    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> draws = 1.5 + np.random.default_rng(1).standard_normal(4000)
    >>> log_density = op.map_items(
    ...     (
    ...         lambda draws, a: -0.5 * (draws - a) ** 2,
    ...         lambda draws, a, da: (draws - a) * da,
    ...         lambda draws, a, dy: ((draws - a) * dy)[:, None],
    ...     ),
    ...     draws,
    ...     op.parameters(1),
    ... )
    >>> found, gradient = mi.expect(draws**2, log_density, [1.5])
    >>> bool(abs(found.mean - 3.25) < 4 * found.error_of_mean), bool(abs(gradient[0] - 3) < 0.3)
    (True, True)
    """
    if not isinstance(log_density, Model):
        raise TypeError(f"log_density: expected a model, got {type(log_density).__name__}")
    comm = log_density._comm
    is_model = isinstance(f, Model)

    def leaf_of(model, what):
        name, leaf = next(iter(model.target.space.leaves.items()))
        if len(model.target) != 1 or leaf.kind != "points" or leaf.components != 1 or leaf.complex:
            raise ValueError(f"{what}: expected a model with one real number for each draw, got {dict(model.target)}")
        return name, leaf.shape

    def check():
        name, shape = leaf_of(log_density, "log_density")
        own_name, values = None, None
        if is_model:
            own_name, own = leaf_of(f, "f")
            if own != shape:
                raise ValueError(f"f: expected {shape[2]} draws as in log_density, got {own[2]}")
        else:
            values = np.asarray(f)
            if values.shape != (shape[1],) or values.dtype.kind not in "biuf":
                raise ValueError(f"f: expected {shape[1]} real numbers, one for each draw of this rank, got {values.dtype} of shape {values.shape}")
            values = values.astype(np.float64)
            if not np.isfinite(values).all():
                raise ValueError(f"f: expected finite numbers, got {values[~np.isfinite(values)][0]}")
        chains = whole_number(n_chains, "n_chains", 1)
        if shape[2] % chains:
            raise ValueError(f"n_chains: expected a divisor of {shape[2]} draws, got {chains}")
        return (name, own_name, values, chains, shape[2]), {"function": "expect", "n_chains": chains, "f": "a model" if is_model else "an array"}, None

    (name, own_name, values, chains, total), _ = gathered(comm, check)
    both = log_density.rename({name: "log_density"})
    both = both.zip(f.rename({own_name: "f"})) if is_model else both
    at = both.at(x)
    own = np.asarray(at.value["f"]).astype(np.float64) if is_model else values
    parts = gathered(comm, lambda: (None, {}, own))[1]
    found = _of_all(np.concatenate(parts).reshape(chains, -1))
    score = (own - found.mean) / total
    return found, at.vjp({"log_density": score, "f": np.full(len(own), 1 / total)} if is_model else score)
