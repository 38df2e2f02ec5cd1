//! `meshloom bench infer`: what a fit of counts is made of: the model, products with its metric,
//! steps of conjugate gradients, an iteration.

use std::time::Instant;

use clap::Args;
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CgOptions, CorrelatedField, Data, FieldPrior, Fit, FitOptions, Footprint,
    IterationOptions, Likelihood, LogLikelihood, LogLikelihoodAt, NewtonOptions, Precondition, Preconditioner,
    Preconditioning, PriorSpectrum, SampleGroups, Stream, VectorSpace, conjugate_gradient,
};
use meshloom::operators::{Leaf, Model, PointwiseOperator, Vector};
use meshloom::{Error, Mesh, Rank};
use serde_json::{Value, json};

use super::input::Settings;
use super::report::{Report, amount, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Cells of the square grid along each axis; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64,128",
        value_parser = clap::value_parser!(u64).range(2..=1 << 14))]
    size: Vec<u64>,
    /// Mirrored pairs of samples
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    samples: u64,
    #[command(flatten)]
    pub settings: Settings,
}

/// Steps of the position.
const STEPS: u64 = 5;

/// Steps of conjugate gradients that are measured together: enough that their start counts little.
const CG_STEPS: u64 = 40;

const COLUMNS: [&str; 11] = [
    "cells",
    "latent values",
    "kernels",
    "model compiled",
    "energy and gradient",
    "metric",
    "step of conjugate gradients",
    "preconditioned step",
    "first iteration",
    "least .. greatest",
    "memory of a sample",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let mut session = Session::new("infer", &arguments.settings, rank, 5 * arguments.size.len(), &COLUMNS);
    session.report.note(format!(
        "counts with a log-normal rate whose spectrum is inferred with it; an iteration draws {} straight samples and moves the position {STEPS} steps",
        2 * arguments.samples
    ));
    for &n in &arguments.size {
        measure_one(&mut session, n, arguments.samples)?;
    }
    Ok(session.finish())
}

/// Returns a log-normal rate on `n` x `n` cells.
fn rate(rank: &mut Rank, mesh: &Mesh) -> Result<Model, Error> {
    let amplitude = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: [1.0, 0.3],
        slope: [-3.0, 0.5],
        flexibility: Some([0.5, 0.2]),
        asperity: None,
    };
    let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }];
    let prior = FieldPrior { name: String::new(), offset_mean: 1.0, offset_std: [0.5, 0.2], axes };
    let field = CorrelatedField::new(rank, mesh, &prior)?.model()?;
    let exp = PointwiseOperator::wgsl("fn f(s: f32) -> f32 { return exp(s); }", "f", field.target(), "rate")?;
    Ok(field.then(&Model::new(exp))?)
}

/// Counts that are the rates of a place of the prior, rounded; and a place near its mean, where a
/// fit may begin.
fn counts(rank: &mut Rank, mesh: &Mesh) -> Result<(Vec<f64>, Vector), Error> {
    let model = rate(rank, mesh)?;
    let mut truth = Vector::new(&rank.gpu, model.domain())?;
    rank.white_noise(Stream(1), &mut truth)?;
    let rates = model.value(rank, &truth)?.get(&mut rank.recorder, "rate")?;
    let mut start = Vector::new(&rank.gpu, model.domain())?;
    VectorSpace::axpby(rank, 0.1, &truth, 0.0, &mut start)?;
    Ok((rates.into_iter().map(f64::round).collect(), start))
}

/// Measures and reports a problem. Collective.
fn measure_one(session: &mut Session, n: u64, pairs: u64) -> Result<(), Error> {
    let Session { rank, clock, report, settings } = session;
    let (comm, kernels) = (rank.comm.clone(), rank.gpu.compiled());
    let shape = [1, n, n];
    let grid = settings.common.process_grid(shape, comm.shares())?;
    let rank = &mut **rank;
    let mesh = rank.mesh(shape).periodic([1.0; 3]).grid(grid.parts()).build()?;
    // Kernels of the model's value are compiled with this; those of derivatives and energies are
    // not.
    let began = Instant::now();
    let (counts, start) = counts(rank, &mesh)?;
    let leaf = Leaf::cells(&mesh);
    let model = rate(rank, &mesh)?;
    let data = Data { name: "counts", leaf: &leaf, values: &counts, mask: None };
    let likelihood = Likelihood::poisson(rank, &data, None)?.amend(&model)?;
    let (mut out, mut product) = (rank.like(&start)?, rank.like(&start)?);
    let at = likelihood.at(rank, &start)?;
    at.gradient(rank, &mut out)?;
    at.metric(rank, &out, &mut product)?;
    at.energy(rank)?;
    rank.recorder.wait()?;
    let compiled = began.elapsed().as_secs_f64();
    let kernels = rank.gpu.compiled() - kernels;

    let gradient = clock.together(rank, |rank: &mut Rank| {
        let at = likelihood.at(rank, &start)?;
        at.energy(rank)?;
        Ok(at.gradient(rank, &mut out)?)
    })?;
    let metric = clock.together(rank, |rank: &mut Rank| Ok(at.metric(rank, &out, &mut product)?))?;
    let groups = SampleGroups::one(&comm);
    let preconditioner = Preconditioner::new(rank, &likelihood, &groups, (&start, &[]), Preconditioning::default())?;
    let mut steps = Vec::new();
    for own in [None, preconditioner.as_ref()] {
        let measured = clock.together(rank, |rank: &mut Rank| run_steps(rank, &*at, own, &out))?;
        steps.push(measured.of_parts(CG_STEPS as u32));
    }
    drop((at, preconditioner));
    let numbers = rank.len(&start);
    let options = FitOptions::new(1).each(|_| options(pairs, numbers));
    let footprint = Footprint::measure(rank, &groups, &likelihood, &start)?;
    let mut applications = 0;
    let iteration = clock.together(rank, |rank: &mut Rank| {
        let fit = Fit::new(rank, &likelihood, &groups, &start, &options)?.run(rank)?;
        applications = fit.history().iter().map(|report| report.applications).sum();
        Ok(())
    })?;
    report.row(vec![
        format!("{n}x{n}"),
        numbers.to_string(),
        kernels.to_string(),
        time(compiled),
        time(gradient.median),
        time(metric.median),
        time(steps[0].median),
        time(steps[1].median),
        time(iteration.median),
        range(&iteration),
        amount(footprint.sample(true)),
    ]);
    report.result(json!({
        "cells": [n, n], "latent_values": numbers, "pairs": pairs, "kernels": kernels, "compiled": { "seconds": compiled },
        "gradient": { "seconds": gradient }, "metric": { "seconds": metric }, "step": { "seconds": steps[0] },
        "preconditioned_step": { "seconds": steps[1] },
        "seconds": iteration,
        "metrics_of_the_position": applications, "bytes": bytes(&footprint, pairs, rank.concurrency(&start)),
    }));
    Ok(())
}

/// Runs [`CG_STEPS`] steps of conjugate gradients.
fn run_steps(
    rank: &mut Rank,
    at: &dyn LogLikelihoodAt<Rank>,
    preconditioner: Option<&Preconditioner<Rank>>,
    j: &Vector,
) -> Result<(), Error> {
    let mut metric = |rank: &mut Rank, v: &Vector, out: &mut Vector| {
        at.metric(rank, v, out)?;
        VectorSpace::axpby(rank, 1.0, v, 1.0, out)
    };
    let rules = CgOptions { maxiter: Some(CG_STEPS), miniter: Some(CG_STEPS), ..CgOptions::absdelta(0.0) };
    let preconditioner = preconditioner.map(|own| own as &dyn Precondition<Rank>);
    conjugate_gradient(rank, &mut metric, preconditioner, j, None, &rules)?;
    Ok(())
}

/// Returns an iteration that ends after a fixed number of steps.
fn options(pairs: u64, numbers: u64) -> IterationOptions {
    IterationOptions {
        pairs: pairs as usize,
        linear: CgOptions { maxiter: Some(100), ..CgOptions::absdelta(1e-5 * numbers as f64) },
        position: NewtonOptions { xtol: 0.0, ..NewtonOptions::default().steps(STEPS) },
        ..IterationOptions::default()
    }
}

/// Returns what a fit takes of the device, of the rank that takes the most.
fn bytes(footprint: &Footprint, pairs: u64, together: usize) -> Value {
    json!({
        "vector": footprint.vector, "linearization": footprint.linearization, "work": footprint.work,
        "sample": footprint.sample(true), "iteration": footprint.bytes(2 * pairs as usize, usize::MAX, together),
    })
}
