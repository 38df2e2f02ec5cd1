//! `meshloom infer`: the posterior of a correlated field from data on a regular grid.

mod demo;
mod offset;
mod outputs;
mod parameters;
mod picture;
mod problem;

use std::path::PathBuf;

use indicatif::ProgressBar;
use meshloom::comm::{Communicator, Op};
use meshloom::inference::{
    Draw, Fit, FitEnd, FitOptions, Footprint, InferenceError, IterationOptions, Likelihood, LogLikelihood, Progress,
    SampleGroups, Sampling, Schedule, Stream, VectorSpace,
};
use meshloom::operators::Vector;
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use crate::checked_files::check_files;
use crate::common::{Common, shares_value};
use crate::config_file;
use crate::described::{self, check_command};
use crate::failure::{Ended, Failure};
use crate::fit_state::{self, Extent, State};
use crate::phases::Phases;
use crate::run_clock::{RunClock, Stop};
use crate::terminal;
use outputs::Outputs;
pub use parameters::Arguments;
use parameters::{HyperParameters, Kind, Noise, RunParameters};
use problem::{Grids, Problem, look};

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.options()?;
    let parameters = RunParameters::new(arguments, options.clone())?;
    if arguments.configured.print_config {
        return terminal::print(&config_file::text(&options)?);
    }
    let noise = parameters
        .options
        .noise
        .as_ref()
        .and_then(|noise| if let Noise::File(path) = noise { Some(path) } else { None });
    let inputs = [
        &parameters.options.data,
        &parameters.options.exposure,
        &parameters.options.mask,
        &arguments.configured.config,
    ]
    .into_iter()
    .flatten();
    let made: &[&str] = if parameters.options.data.is_none() { &demo::FILES } else { &[] };
    let written: Vec<PathBuf> = outputs::FILES.iter().chain(made).map(|name| parameters.out.join(name)).collect();
    let files = check_files(inputs.chain(noise).map(PathBuf::as_path), written.iter().map(PathBuf::as_path))?;
    check_command(&parameters.out, "infer")?;
    let common = &arguments.common;
    // The process grid is that of a group of samples.
    common.known_ranks().map(|ranks| parameters.sample_groups(ranks, common.grid)).transpose()?;
    let report = common.without_grid().launch(&files, |world| infer(world, &parameters, common))?;
    common.print(report)
}

/// Returns the options of an iteration: the schedule's, except where the user gave others.
fn options(parameters: &RunParameters, schedule: &Schedule, iteration: u32) -> IterationOptions {
    let mut options = schedule.options(iteration);
    options.linear.maxiter = Some(parameters.sample_steps);
    options.curvature = parameters.curvature();
    if let Some(pairs) = parameters.pairs {
        options.pairs = pairs;
    }
    if let Some(bent) = parameters.geovi {
        // Bent samples are worth their time once the position is near.
        options.sampling =
            if bent && iteration > 1 { Sampling::Curved(Draw::New) } else { Sampling::Linear(Draw::New) };
    }
    options
}

/// Returns where a fit begins: near the mean of the prior.
fn start(rank: &mut Rank, problem: &Problem, seed: u64) -> Result<Vector, Error> {
    let mut start = Vector::new(&rank.gpu, problem.likelihood.domain())?;
    let mut noise = Vector::new(&rank.gpu, problem.likelihood.domain())?;
    rank.white_noise(Stream::new(seed, u32::MAX, 0, 0), &mut noise)?;
    VectorSpace::axpby(rank, 0.1, &noise, 0.0, &mut start)?;
    Ok(start)
}

/// One rank's work; returns the content of `run.json`.
fn infer(world: &mut Rank, parameters: &RunParameters, common: &Common) -> Result<Value, Ended> {
    let mut phases = Phases::new(ProgressBar::hidden());
    let directory = described::take(&world.comm, &parameters.out, "infer")?;
    let (shape, integers) = match &parameters.options.data {
        Some(data) => look(data)?,
        None => (demo::SHAPE.to_vec(), true),
    };
    // Wrong words are the same on all ranks.
    let (kind, lognormal) = parameters.resolve(integers)?;
    let grids = Grids::new(&shape, parameters)?;
    let all = world.comm.clone();
    let count = parameters.sample_groups(all.size(), common.grid)?;
    let (groups, own) = SampleGroups::split(&all, count)?;
    let (data, mut files) = match &parameters.options.data {
        Some(data) => (data.clone(), Vec::new()),
        None => {
            let [data, truth] = demo::seal(world, parameters, &grids)?;
            (data.temporary().to_path_buf(), vec![data, truth])
        }
    };
    let grid = common.process_grid(grids.padded, own.shares())?;
    let mut rank = Rank::new(own, world.gpu.clone())?;
    // Devices are shared with other groups, too.
    rank.sharing = world.sharing;
    let problem = Problem::new(&mut rank, grid, parameters, grids, (&data, kind, lognormal))?;
    let found = if parameters.resume { fit_state::find(&parameters.out)? } else { None };
    if let Some(failure) = found.as_ref().and_then(|found| found.of_another(&problem.identity)) {
        return Err(failure.into());
    }
    let state = State::new(&parameters.out, found, parameters.sampling());
    phases.done("start");
    let asked = Asked { all: &all, groups: &groups, problem: &problem, parameters };
    let bar = common.progress(all.rank(), parameters.iterations.into(), "inferring");
    let mut clock = RunClock::of_fit(&world.comm, parameters.options.limit);
    let fitted = asked.fit(&mut rank, &state, &bar, (&mut phases, &mut clock));
    let (fit, memory, stop) = fitted.map_err(|error| overflowed(error, &problem))?;
    bar.finish_and_clear();
    if let Some(stop) = stop {
        clock.answered();
        let place = format_args!("iteration {} of {}", fit.history().len(), parameters.iterations);
        return Err(stop.failure(place).into());
    }
    phases.done("inference");
    let done = Extent { iterations: fit.history().len(), samples: fit.samples().count() };
    let wanted = Extent { iterations: parameters.iterations as usize, samples: 2 * parameters.last_pairs() };
    if let Some(failure) = state.of_other_options(done, wanted) {
        return Err(failure.into());
    }
    let (samples, chains, of_chains) = match &parameters.chains {
        None => (fit.samples().clone(), Value::Null, Vec::new()),
        Some(chains) => {
            let bar = common.progress(all.rank(), 1, "drawing");
            let drawn = chains.draw(&mut rank, &problem.likelihood, &groups, fit.samples(), (&state, &bar, clock))?;
            phases.done("chains");
            drawn
        }
    };

    let outputs =
        Outputs { all: &all, groups: &groups, problem: &problem, samples: &samples, parameters, kind, lognormal };
    files.extend(outputs.write(&mut rank, &data, fit.history())?);
    phases.done("output");
    let mut report = asked.report(&rank, (kind, lognormal))?;
    report["memory"] = memory;
    report["chains"] = chains;
    report["finished"] = (fit.end() != Some(FitEnd::Time)).into();
    report["reduced_chi_squared"] = fit.history().last().and_then(|last| last.chi_squared[0]).into();
    report["energy"] = fit.history().last().map(|last| last.energy).into();
    report["iterations_done"] = fit.history().len().into();
    let last = fit.history().last();
    report["sample_cg_steps"] = last.map(|last| last.sampling.steps).into();
    report["unconverged_samples"] = last.map(|last| last.sampling.unconverged).into();
    report["sample_error_ratio"] = last.map(|last| last.sampling.error_ratio).into();
    report["failed_samples"] = last.map(|last| last.sampling.failed).into();
    report["limited_samples"] = last.map(|last| last.sampling.limited).into();
    report["host_seconds"] = phases.host_seconds(&all)?.into();
    report["seconds"] = json!(phases.finish());
    let expected = problem.likelihood.expected_chi_squared();
    let remedies = ["give more --sample-steps", "give more --iterations, or straight samples with --mode mgvi"];
    let mut warnings = fit_state::warnings(fit.history(), remedies);
    warnings.extend(fit_state::doubts(last, expected, &remedy(&problem)));
    warnings.extend(of_chains);
    let unsettled = fit.unsettled();
    report["settled"] = unsettled.is_none().into();
    // A fit with fewer iterations than settling takes was asked for; it needs no warning.
    if let Some(why) = unsettled.filter(|_| fit.history().len() >= Schedule::LEAST) {
        warnings.push(format!("{why}; go on with --resume --iterations {}", 2 * parameters.iterations));
    }
    report["warnings"] = json!(warnings);
    outputs.publish(&report, files)?;
    if all.rank() == 0 {
        warnings.iter().for_each(|warning| terminal::warn(warning));
    }
    drop(directory);
    Ok(report)
}

/// Returns what to do where data and prior are far apart.
fn remedy(problem: &Problem) -> String {
    let HyperParameters { offset_mean, offset_std: [offset_std, _], fluctuations: [fluctuations, _], .. } =
        problem.hyper;
    format!(
        "a priori the field varies by {fluctuations} around {:.3e}, and as a whole by {offset_std}: where data or noise are powers of ten from that, give --set \
         offset_mean=data, and --set fluctuations=MEAN,STD and --set offset_std=MEAN,STD of their size; where noise is far below the signal --mode geovi, whose samples \
         are curved; else more --iterations, or --noise as it is",
        offset_mean.unwrap_or_default()
    )
}

/// An error of numbers that have left those of f32, with what the user of a command can do about
/// it. The same kind of error on every rank.
fn overflowed(error: Error, problem: &Problem) -> Error {
    match error {
        Error::Inference(InferenceError::NotFinite { what, value }) => {
            InferenceError::Invalid { what: format!("{what} is {value}"), why: remedy(problem) }.into()
        }
        error => error,
    }
}

/// The requested work, and its ranks.
struct Asked<'a> {
    all: &'a Communicator,
    groups: &'a SampleGroups,
    problem: &'a Problem,
    parameters: &'a RunParameters,
}

impl Asked<'_> {
    /// Returns the fit, what `run.json` says of its device memory, and the reason why the fit
    /// stopped before its end. Collective.
    fn fit(
        &self,
        rank: &mut Rank,
        state: &State,
        bar: &ProgressBar,
        (phases, clock): (&mut Phases, &mut RunClock),
    ) -> Result<(Fit<Rank, &Likelihood>, Value, Option<Stop>), Error> {
        let Asked { all, groups, problem, parameters } = *self;
        let start = start(rank, problem, parameters.options.seed.0)?;
        let schedule = Schedule::new(rank, &problem.likelihood, &start);
        let mut options = FitOptions::new(parameters.iterations)
            .each(|iteration| options(parameters, &schedule, iteration))
            .seed(parameters.options.seed.0)
            .memory(parameters.memory())
            .state(&state.directory, state.existing());
        options.until_settled = true;
        let footprint = Footprint::measure(rank, groups, &problem.likelihood, &start)?;
        let memory = memory(parameters, &footprint, groups.count(), rank.concurrency(&start))?;
        state.prepare(all, &problem.identity, all.size() / groups.count())?;
        phases.done("compilation");
        let mut progress = |progress: &Progress| {
            let (Progress::Sample { iteration, .. } | Progress::Step { iteration, .. }) = progress;
            bar.set_position(u64::from(*iteration));
        };
        let mut fit = Fit::new(rank, &problem.likelihood, groups, &start, &options)?;
        while fit.step_with(rank, &mut progress)?.is_some() {
            state.has_moved(all)?;
            if let Some(stop) = clock.stop(all)? {
                return Ok((fit, memory, Some(stop)));
            }
        }
        Ok((fit, memory, None))
    }

    /// Returns what `run.json` says of the problem, ranks and the device. Collective.
    fn report(&self, rank: &Rank, (kind, lognormal): (Kind, bool)) -> Result<Value, Error> {
        let Asked { all, groups, problem, parameters } = *self;
        let (cost, signal) = (rank.exchange_cost(), problem.signal.cost());
        // The metric is the signal's derivative there and back; the likelihood adds no pass.
        let mut metric = [signal.jvp.device_bytes + signal.vjp.device_bytes];
        rank.comm.all_reduce(&mut metric, Op::Sum)?;
        let mut bytes = [cost.sent_bytes, cost.messages];
        all.all_reduce(&mut bytes, Op::Sum)?;
        Ok(json!({
            "command": "infer", "version": env!("CARGO_PKG_VERSION"),
            "parameters": parameters.object((kind, lognormal), &problem.hyper),
            "shape": problem.grids.shape, "field_shape": problem.grids.padded, "distances": problem.grids.distances,
            "data_that_count": problem.likelihood.degrees_of_freedom(),
            "latent_values": problem.likelihood.domain().leaves().map(|(_, leaf)| leaf.total()).sum::<u64>(),
            "device": described::device(rank),
            "ranks": all.size(), "shares": shares_value(all.shares()), "groups": groups.count(), "grid": problem.mesh.grid().to_string(),
            "bytes": {
                "device": null, "device_memory_of_a_metric": metric[0], "between_ranks": bytes[0], "messages": bytes[1],
            },
        }))
    }
}

/// Returns what `run.json` says of the device memory of the rank that takes the most.
/// `together` solves take less time together than one after the other.
fn memory(parameters: &RunParameters, footprint: &Footprint, groups: usize, together: usize) -> Result<Value, Error> {
    let samples = parameters.most_samples().div_ceil(groups);
    let kept = parameters.memory().map_or(Ok(samples), |budget| footprint.kept(samples, budget))?;
    let fits = parameters.memory().map_or(samples, |budget| footprint.concurrency(samples, kept, budget));
    let together = together.min(fits);
    let Footprint { vector, linearization, work, .. } = *footprint;
    Ok(json!({
        "latent_vector": vector, "derivatives_of_a_sample": linearization, "application": work,
        "samples_of_a_group": samples, "samples_that_keep_derivatives": kept, "samples_computed_together": together, "iteration": footprint.bytes(samples, kept, together),
    }))
}
