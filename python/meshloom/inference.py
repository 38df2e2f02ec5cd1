"""Inference: posterior samples of the latent values of a model, given data.

Latent values are standard normal a priori: the model has all prior knowledge. Names are those of
NIFTy where the meaning is the same.

===============================================================  ===============================
`CorrelatedFieldMaker`                                           fields with an inferred spectrum
`NormalPrior`, `LogNormalPrior`, `UniformPrior`,                 numbers with other distributions
`LaplacePrior`, `InvGammaPrior`
`Gaussian`, `Poissonian`, `StudentT`, `Categorical`,             likelihoods of data, for
`VariableCovarianceGaussian`, `VariableCovarianceStudentT`       ``.amend(model)`` and ``+``
`optimize_kl`                                                    fits by MGVI, geoVI or MAP
`wiener_filter`                                                  the posterior of linear models
`sample`                                                         Markov chains: NUTS, HMC, MCLMC
`expect`, `statistics`                                           expectations, errors of means
`minimize`, `least_squares`                                      optimizers of SciPy
`Samples.save`, `load_samples`                                   samples in a file
`evidence`                                                       comparison of models
`check_metric`                                                   test of a likelihood's derivatives
`sample_groups`                                                  groups of ranks for samples
===============================================================  ===============================

Examples
--------
>>> import numpy as np
>>> from meshloom import inference as mi, operators as op
>>> maker = mi.CorrelatedFieldMaker("sky")
>>> maker.set_amplitude_total_offset(1.0, (0.3, 0.1))
>>> maker.add_fluctuations(32, 1 / 32, fluctuations=(1.0, 0.3), loglogavgslope=(-4.0, 0.5))
>>> sky = maker.finalize()
>>> rate = op.exp(sky)
>>> counts = np.random.default_rng(1).poisson(np.asarray(rate(rate.random(seed=2))))
>>> likelihood = mi.Poissonian(counts).amend(rate)
>>> samples, reports = mi.optimize_kl(
...     likelihood, n_total_iterations=3, n_samples=2, sample_mode="nonlinear_resample"
... )
>>> mean, std = samples.mean_and_std(rate)
>>> mean.shape, bool(0.5 < reports[-1].reduced_chi_squared < 2.0)
((32,), True)
"""

from ._expectation import Statistics, expect, statistics
from ._likelihood import Categorical, DataReport, Gaussian, Likelihood, Poissonian, StudentT, VariableCovarianceGaussian, VariableCovarianceStudentT
from ._optimize import least_squares, minimize
from ._optimize_kl import Evidence, IterationReport, MetricCheck, Samples, check_metric, evidence, optimize_kl, sample_groups, wiener_filter
from ._priors import CorrelatedField, CorrelatedFieldMaker, InvGammaPrior, LaplacePrior, LogNormalPrior, NormalPrior, Prior, UniformPrior
from ._sample import Chains, load_samples, sample

__all__ = [
    "Categorical",
    "Chains",
    "CorrelatedField",
    "CorrelatedFieldMaker",
    "DataReport",
    "Evidence",
    "Gaussian",
    "InvGammaPrior",
    "IterationReport",
    "LaplacePrior",
    "Likelihood",
    "LogNormalPrior",
    "MetricCheck",
    "NormalPrior",
    "Poissonian",
    "Prior",
    "Samples",
    "Statistics",
    "StudentT",
    "UniformPrior",
    "VariableCovarianceGaussian",
    "VariableCovarianceStudentT",
    "check_metric",
    "evidence",
    "expect",
    "least_squares",
    "load_samples",
    "minimize",
    "optimize_kl",
    "sample",
    "sample_groups",
    "statistics",
    "wiener_filter",
]
