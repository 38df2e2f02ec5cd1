"""Samplers: Markov chains whose draws follow the posterior."""

import os
import warnings

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._comm import agreed, all_groups, gathered, given_or_not, heard, resolve
from ._model import Model
from ._optimize_kl import Samples, _given, _likelihood_of
from ._samples_file import made_samples, read_samples

# Kind of the noise at the starts of chains, different from those of mock truths and fits.
_START = 2

# Draws after which ranks exchange errors; groups do not wait for each other within them.
_TOGETHER = 16


# Numbers of a draw.
_STATISTICS = "energy", "acceptance", "step_size", "length", "n_gradients", "depth", "is_divergent"


class Chains(Samples):
    """Draws of Markov chains from the posterior, the result of `sample`.

    It has all that `Samples` have: `pos` is the mean of the draws, ``chains[i]`` is a draw (one
    chain after the other), and `mean_and_std` works on any model.

    Attributes
    ----------
    n_chains, n_draws : int
        Number of chains, and of kept draws of each.
    statistics : dict of ndarray
        How each draw was made, arrays of shape (`n_chains`, `n_draws`): ``energy`` (minus the
        logarithm of the posterior up to constants), ``acceptance`` (1 for MCLMC), ``step_size``,
        ``length`` (of MCLMC, otherwise 0), ``n_gradients``, ``depth`` (doublings of NUTS) and
        ``is_divergent``.

    Notes
    -----
    Indexing and all methods are collective with the likelihood's `comm`, and over all groups of
    `sample_groups`.
    """

    _others = {"statistics": _STATISTICS}

    def __init__(self, native, domain, statistics):
        super().__init__(native, domain)
        self.statistics = statistics
        self.n_chains, self.n_draws = statistics["energy"].shape

    def __repr__(self):
        return f"<meshloom.Chains: {self.n_chains} of {self.n_draws} draws of {dict(self._domain)}>"

    def draws(self, model=None):
        """Compute a model at all draws.

        Parameters
        ----------
        model : Model, optional
            Takes leaves of the likelihood's domain. Default: the latent values themselves.

        Returns
        -------
        ndarray or dict of ndarray
            Values of this rank, of shape (`n_chains`, `n_draws`) and the shape of a value.

        Notes
        -----
        Collective with the likelihood's `comm`. All draws are on the host at once: give a model
        with few values, such as a power spectrum or some places of a field.

        Examples
        --------
        >>> from meshloom import inference as mi, operators as op
        >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.cells(2), [1.0, 1.0]))
        >>> mi.sample(likelihood, n_warmup=20, n_draws=30, n_chains=2).draws().shape
        (2, 30, 2)
        """

        def check():
            if model is not None and not isinstance(model, Model):
                raise TypeError(f"model: expected a model, got {type(model).__name__}")
            return None, {"function": "draws", "model": given_or_not(model)}, None

        gathered(all_groups(self._comm), check)
        values = self.map(lambda draw: draw if model is None else model(self._inputs(model, draw)))
        shape = self.n_chains, self.n_draws
        if values and isinstance(values[0], dict):
            stacked = {name: np.stack([np.asarray(value[name]) for value in values]) for name in values[0]}
            return {name: array.reshape(shape + array.shape[1:]) for name, array in stacked.items()}
        stacked = np.stack([np.asarray(value) for value in values])
        return stacked.reshape(shape + stacked.shape[1:])

    def _inputs(self, model, draw):
        """Return the leaves of a draw that a model takes."""
        missing = set(dict(model.domain)) - set(draw) if isinstance(draw, dict) else ()
        if missing:
            raise ValueError(f"model: the draws have no {sorted(missing)}, but {sorted(draw)}")
        return {name: draw[name] for name in dict(model.domain)} if isinstance(draw, dict) else draw

    def _diagnostics(self, model, which):
        def one(array):
            flat = array.reshape(self.n_chains, self.n_draws, -1).astype(np.float64)
            return np.array(_native.diagnostics(flat)[which]).reshape(array.shape[2:])

        draws = self.draws(model)
        return {name: one(array) for name, array in draws.items()} if isinstance(draws, dict) else one(draws)

    def effective_sample_size(self, model=None):
        """Compute how many independent draws would have the same error of the mean.

        Parameters
        ----------
        model : Model, optional
            As in `draws`.

        Returns
        -------
        ndarray or dict of ndarray
            One number for each value of the model; NaN for values that are equal in all draws and
            for fewer than 4 draws. The standard error of a mean is the standard deviation over the
            root of this number.

        Notes
        -----
        Collective with the likelihood's `comm`. Geyer's initial monotone sequence over halves of
        chains (Gelman et al. 2013).

        Examples
        --------
        >>> from meshloom import inference as mi, operators as op
        >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.cells(2), [1.0, 1.0]))
        >>> chains = mi.sample(likelihood, n_warmup=50, n_draws=100, n_chains=2)
        >>> bool((chains.effective_sample_size() > 20).all())
        True
        """
        return self._diagnostics(model, 0)

    def split_r_hat(self, model=None):
        """Compute how far chains agree: the deviation of all draws over that within chains.

        Parameters
        ----------
        model : Model, optional
            As in `draws`.

        Returns
        -------
        ndarray or dict of ndarray
            One number for each value of the model: near 1 if all halves of chains have the same
            distribution. 1.01 is a common limit. NaN as for `effective_sample_size`.

        Notes
        -----
        Collective with the likelihood's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi, operators as op
        >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.cells(2), [1.0, 1.0]))
        >>> chains = mi.sample(likelihood, n_warmup=50, n_draws=100, n_chains=2)
        >>> bool((chains.split_r_hat() < 1.3).all())
        True
        """
        return self._diagnostics(model, 1)

    def to_arviz(self, model=None):
        """Return draws and statistics for ArviZ, which must be installed.

        Parameters
        ----------
        model : Model, optional
            As in `draws`.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            Groups ``posterior`` and ``sample_stats``, with the names of ArviZ.

        Raises
        ------
        ImportError
            If ArviZ is not installed.

        Notes
        -----
        Collective with the likelihood's `comm`.
        """
        draws = self.draws(model)
        draws = draws if isinstance(draws, dict) else {"x": draws}
        names = {"acceptance": "acceptance_rate", "n_gradients": "n_steps", "depth": "tree_depth", "is_divergent": "diverging"}
        statistics = {names.get(name, name): array for name, array in self.statistics.items()}
        statistics["lp"] = -statistics["energy"]
        return _from_dict()({"posterior": draws, "sample_stats": statistics})


def _from_dict():
    """Return the function of ArviZ that takes groups of arrays, of any version."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs the package arviz: pip install arviz") from error
    if int(arviz.__version__.split(".")[0]) < 1:
        return lambda groups: arviz.from_dict(**groups)
    return arviz.from_dict


def _told(progress, total, comm):
    """Return a function that is called after each draw."""
    if progress is None:
        return lambda draw, what: None
    if callable(progress):
        return heard(comm, lambda draw, what: progress(draw, total, what))
    if not hasattr(progress, "update"):
        raise TypeError("progress: expected a function of (draw, draws, what) or a tqdm bar")
    progress.total = total
    return heard(comm, lambda draw, what: progress.update(1))


def sample(
    likelihood,
    position=None,
    *,
    algorithm="nuts",
    n_warmup=500,
    n_draws=500,
    n_chains=4,
    thinning=1,
    seed=0,
    target_acceptance=None,
    max_depth=None,
    n_steps=None,
    energy_variance=None,
    length=None,
    progress=None,
    odir=None,
    resume=False,
    overwrite=False,
    save_every=100,
):
    """Sample the posterior by Markov chains.

    Unlike the samples of `optimize_kl`, draws follow the posterior itself, whatever its shape; they
    take many more gradients.

    Parameters
    ----------
    likelihood : Likelihood
        Likelihood of a model of standard normal latent values.
    position : array_like, dict or Samples, optional
        Start of all chains, or samples of a fit of which each chain starts at one. Default: 0.1
        times standard normal numbers, different for each chain. The samples of a short
        `optimize_kl` shorten the warm-up most.
    algorithm : {"nuts", "hmc", "mclmc", "adjusted_mclmc"}, default "nuts"
        The No-U-Turn Sampler, Hamiltonian Monte Carlo, or microcanonical Langevin Monte Carlo.
        MCLMC takes the fewest gradients for many latent values, but its draws have a small bias.
        Adjusted MCLMC accepts or rejects trajectories, so that its draws have none.
    n_warmup : int, default 500
        Number of draws of each chain that adapt step size and scales and are dropped.
    n_draws : int, default 500
        Number of draws of each chain after that.
    n_chains : int, default 4
        Number of chains, a multiple of the number of groups of `sample_groups`.
    thinning : int, default 1
        Number of draws from one that is kept to the next. Kept draws stay on the device.
    seed : int, default 0
        Seed of all random numbers, 0 or more.
    target_acceptance : float, default 0.8
        Mean acceptance, between 0 and 1; adjusted MCLMC has 0.9 as default, and MCLMC has none.
        Raise it if draws are divergent.
    max_depth : int, default 10
        Maximum number of doublings of a trajectory of NUTS, 1 to 20.
    n_steps : int, default 16
        Steps of a draw: their mean number for HMC, their number for MCLMC.
    energy_variance : float, default 5e-4
        Variance of the energy's error per step and latent value of MCLMC. Less gives less bias.
    length : float, optional
        Distance in standard deviations after which MCLMC forgets its direction. Default: 0.4 times
        the distance over which positions are correlated, measured in the warm-up. For adjusted
        MCLMC the mean length of a trajectory. Default: pi / 2 times the root of the number of
        latent values, which makes draws of a Gaussian independent.
    progress : callable or tqdm bar, optional
        Called as ``progress(draw, draws, what)`` after each draw, where `what` is "warm-up" or
        "draw". Or a progress bar of draws.
    odir : path-like, optional
        Directory that stores the state of the chains, ``chains.npz``.
    resume : bool, default False
        Go on from the state in `odir` if there is one, to the same draws as without an
        interruption. `n_draws` may be larger than before.
    overwrite : bool, default False
        Replace the state in `odir`.
    save_every : int, default 100
        Number of draws, of the warm-up too, from one state to the next. Each state has all kept
        draws.

    Returns
    -------
    Chains

    Raises
    ------
    ValueError
        If an option is invalid, does not belong to `algorithm`, or differs between ranks.
    meshloom.Error
        If the energy of a start is not finite, the state in `odir` belongs to other chains, `odir`
        has a state without `resume` or `overwrite`, or the device fails.

    Warns
    -----
    RuntimeWarning
        If draws are divergent, or trajectories of NUTS reached `max_depth` more than once in 20.

    Notes
    -----
    Collective with the likelihood's `comm`, and over all groups of `sample_groups`, which have
    equal numbers of chains each. Draws have the same bits on any number of ranks and groups.

    Scales of latent values start from the preconditioner of correlated fields and from products
    with the metric, and are adapted in the windows of Stan. NUTS draws from its trajectories as
    Betancourt (2017), MCLMC follows Robnik et al. (2023) and its adjusted form Robnik,
    Cohn-Gordon & Seljak (2025).

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.Space(x=op.cells(2)), [1.0, 1.0]))
    >>> chains = mi.sample(likelihood, n_warmup=50, n_draws=100, n_chains=2)
    >>> len(chains), chains.statistics["acceptance"].shape
    (200, (2, 100))
    >>> bool(np.allclose(np.asarray(chains.pos), [1.0, 2.0], atol=0.4))
    True
    """
    comm = all_groups(_likelihood_of(likelihood)._comm)

    def check():
        own = {"target_acceptance": target_acceptance, "energy_variance": energy_variance, "length": length}
        options = {name: real_number(value, name) for name, value in own.items() if value is not None}
        own = {"max_depth": max_depth, "n_steps": n_steps}
        options |= {name: whole_number(value, name) for name, value in own.items() if value is not None}
        numbers = [
            whole_number(n_warmup, "n_warmup"),
            whole_number(n_draws, "n_draws", 1),
            whole_number(n_chains, "n_chains", 1),
            whole_number(thinning, "thinning", 1),
        ]
        for name, number in zip(("n_warmup", "n_draws", "n_chains", "thinning", *own), [*numbers, *(options.get(name, 0) for name in own)]):
            if number >= 2**31:
                raise ValueError(f"{name}: expected less than 2^31, got {number}")
        if numbers[3] > numbers[1]:
            raise ValueError(f"thinning: expected at most n_draws = {numbers[1]}, got {numbers[3]}")
        told = _told(progress, numbers[0] + numbers[1], comm)
        if resume and odir is None:
            raise ValueError("resume: expected odir, the directory of the state, got None")
        if overwrite and (resume or odir is None):
            raise ValueError("overwrite replaces a state in odir: expected odir and no resume")
        use = "resume" if resume else "overwrite" if overwrite else "refuse"
        every = whole_number(save_every, "save_every", 1)
        if every >= 2**31:
            raise ValueError(f"save_every: expected less than 2^31, got {every}")
        state = None if odir is None else (os.fspath(odir), use, every)
        own_seed = whole_number(seed, "seed")
        is_fit = isinstance(position, Samples)
        start = None if is_fit or position is None else _given(likelihood, position)
        kind = "samples" if is_fit else given_or_not(position)
        names = ("n_warmup", "n_draws", "n_chains", "thinning")
        alike = {"function": "sample", "algorithm": algorithm, "position": kind, "seed": own_seed, **dict(zip(names, numbers)), **options}
        alike |= {"odir": given_or_not(odir), "resume": bool(resume), "overwrite": bool(overwrite), "save_every": every}
        return (numbers, options, own_seed, told, start, state), alike, None

    (numbers, options, own_seed, told, start, state), _ = gathered(comm, check)
    if isinstance(position, Samples):
        places = [position[chain % len(position)] if len(position) else position.pos for chain in range(numbers[2])]
        starts = [agreed(comm, _given, likelihood, place) for place in places]
    elif start is None:
        leaves = [native for native, _ in likelihood._native.domain]
        starts = [_native.white_noise(likelihood._comm, leaves, own_seed, 0.1, _START + chain) for chain in range(numbers[2])]
    else:
        starts = [start]
    native = agreed(comm, lambda: _native.NativeSampler(likelihood._native, starts, (str(algorithm), options), numbers, own_seed, state))
    total = numbers[0] + numbers[1]

    def run(first):
        for draw in range(first, min(first + _TOGETHER, total)):
            # Chains that go on from a state have fewer draws left.
            step = native.step()
            if step is not None:
                number, is_warmup = step
                told(number if is_warmup else numbers[0] + number, "warm-up" if is_warmup else "draw")

    for first in range(0, total, _TOGETHER):
        agreed(comm, run, first)
    samples, statistics = agreed(comm, native.finish)
    columns = {name: np.array(column).reshape(numbers[2], -1) for name, column in zip(_STATISTICS, zip(*statistics))}
    chains = Chains(samples, likelihood.domain, columns)
    _warn_of_chains(chains, max_depth or 10, algorithm)
    return chains


def load_samples(path, comm=None):
    """Read the file of `Samples.save`.

    Parameters
    ----------
    path : path-like
        File, which all ranks can read.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that have a part of the fields each. Default: this process alone.

    Returns
    -------
    Samples or Chains
        As they were saved, with the same bits. `mean_and_std` and others take models of the same
        leaves, created with the same `comm`.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    meshloom.Error
        If the file is incomplete, damaged or of another kind.

    Notes
    -----
    Collective with `comm`, and over all groups of `sample_groups`. The numbers of ranks and groups
    may be others than those of `Samples.save`.

    Examples
    --------
    See `Samples.save`.
    """
    comm = resolve(comm)

    def check():
        parts, text = read_samples(os.fspath(path), {"Samples": Samples, "Chains": Chains}, comm)
        return parts, {"function": "load_samples", "file": text}, None

    parts, _ = gathered(all_groups(comm), check)
    return agreed(all_groups(comm), made_samples, *parts)


def _warn_of_chains(chains, max_depth, algorithm):
    """Warn of draws that do not follow the posterior."""
    divergent = int(chains.statistics["is_divergent"].sum())
    if divergent:
        warnings.warn(
            f"{divergent} of {len(chains)} draws are divergent: steps are too large for a part of the posterior, which draws miss; "
            "raise target_acceptance or lower energy_variance, or reparametrize the model",
            RuntimeWarning,
            stacklevel=3,
        )
    deep = int((chains.statistics["depth"] >= max_depth).sum()) if algorithm == "nuts" else 0
    if 20 * deep > len(chains):
        warnings.warn(
            f"{deep} of {len(chains)} trajectories reached max_depth = {max_depth}; raise it or n_warmup", RuntimeWarning, stacklevel=3
        )
