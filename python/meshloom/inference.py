"""Inference: what data say about the latent values of a model, and how sure that is.

Latent values are standard normal a priori; all prior knowledge is in the model. Names are those of NIFTy where things are the same.

===============================================================  =================================================================================
`CorrelatedFieldMaker`                                           fields whose power spectrum is inferred with them
`NormalPrior`, `LogNormalPrior`, `UniformPrior`,                 numbers of other distributions
`LaplacePrior`, `InvGammaPrior`
`Gaussian`, `Poissonian`, `StudentT`, `Categorical`,             likelihoods of data; ``.amend(model)`` and ``+``
`VariableCovarianceGaussian`, `VariableCovarianceStudentT`
`optimize_kl`                                                    a fit by MGVI or geoVI, or to the most probable place
`sample_groups`                                                  groups of ranks that have samples of their own
`wiener_filter`, `evidence`                                      linear models in one call; how probable data are under a model
`check_metric`                                                   compares derivatives of a likelihood with each other
===============================================================  =================================================================================

Examples
--------
>>> import numpy as np
>>> from meshloom import inference as mi, operators as op
>>> maker = mi.CorrelatedFieldMaker("sky")
>>> maker.set_amplitude_total_offset(1.0, (0.3, 0.1))
>>> maker.add_fluctuations(32, 1 / 32, fluctuations=(1.0, 0.3), loglogavgslope=(-4.0, 0.5))
>>> sky = maker.finalize()
>>> rate = sky.then(op.pointwise("fn rate(field: f32) -> f32 { return exp(field); }", "rate", sky.target, "rate"))
>>> counts = np.random.default_rng(1).poisson(np.asarray(rate(rate.random(seed=2))))
>>> samples, reports = mi.optimize_kl(mi.Poissonian(counts).amend(rate), n_total_iterations=3, n_samples=2, sample_mode="nonlinear_resample")
>>> mean, std = samples.mean_and_std(rate)
>>> mean.shape, bool(0.5 < reports[-1].reduced_chi_squared < 2.0)
((32,), True)
"""

from ._likelihood import Categorical, DataReport, Gaussian, Likelihood, Poissonian, StudentT, VariableCovarianceGaussian, VariableCovarianceStudentT
from ._optimize_kl import Evidence, IterationReport, MetricCheck, Samples, check_metric, evidence, optimize_kl, sample_groups, wiener_filter
from ._priors import CorrelatedField, CorrelatedFieldMaker, InvGammaPrior, LaplacePrior, LogNormalPrior, NormalPrior, UniformPrior

__all__ = [
    "Categorical",
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
    "Samples",
    "StudentT",
    "UniformPrior",
    "VariableCovarianceGaussian",
    "VariableCovarianceStudentT",
    "check_metric",
    "evidence",
    "optimize_kl",
    "sample_groups",
    "wiener_filter",
]
