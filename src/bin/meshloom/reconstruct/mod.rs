//! `meshloom reconstruct`: initial conditions whose evolution explains a noisy density, and how sure they are.

mod outputs;
mod parameters;
mod results;
mod spectra;

use std::ops::ControlFlow;

use indicatif::ProgressBar;
use meshloom::comm::Op;
use meshloom::inference::{
    CgOptions, Data, Draw, Excitations, Fit, IterationOptions, Likelihood, NewtonOptions, NoiseLevel, OptimizeKl,
    Progress, SampleGroups, Sampling, Stream, VectorSpace,
};
use meshloom::io::{IoError, NpyFile, OutputDir};
use meshloom::operators::{Field, Model, OperatorError, RegularGrid, Worker};
use meshloom::pm::{Config, GradientMemory, Observable, SimulationOperator};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::phases::Phases;
use outputs::{Outputs, read_cells};
pub use parameters::Arguments;
use parameters::Parameters;
use results::write;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let parameters = Parameters::gather(arguments)?;
    let common = &arguments.common;
    let report = common.launch_together(|context| {
        let bar = common.progress(context.comm.rank(), 1 + u64::from(parameters.iterations), "reconstructing");
        reconstruct(context, &parameters, bar)
    })?;
    common.print(report)
}

/// What a reconstruction works with on one rank.
struct Problem<'p, 'w> {
    parameters: &'p Parameters,
    worker: Worker<'w>,
    config: Config,
    run: Model,
    memory: GradientMemory,
    /// The cells of the density, and of the noise.
    cells: RegularGrid,
    sites: RegularGrid,
    data: Field,
}

/// One rank's work; returns the content of `run.json`.
fn reconstruct(
    context: &mut Context,
    parameters: &Parameters,
    bar: ProgressBar,
) -> Result<Result<Value, Failure>, Error> {
    let mut phases = Phases::new(ProgressBar::hidden());
    let file = NpyFile::open(&parameters.density)?.accept_integers();
    let &[mesh, _, _] = file.shape() else { return Err(not_cubic(&file)) };
    if file.shape() != [mesh; 3] {
        return Err(not_cubic(&file));
    }
    let config = parameters.config(mesh);
    config.validate()?;
    let (grid, comm) = (config.grid(context.comm.size())?, context.comm.clone());
    let directory = if comm.rank() == 0 { Some(OutputDir::create(&parameters.out)?) } else { None };
    comm.barrier()?;
    let regular = |shape: [u64; 3]| RegularGrid { shape, size: config.size(), grid, rank: comm.rank() };
    let (cells, sites) = (regular(config.cells()), regular(config.sites()));
    let values = read_cells(&file, &cells)?;
    if let Some(wrong) = not_of_mean_one(context, &values, parameters.noise, mesh)? {
        return Ok(Err(Failure::Failed(format!("{}: {wrong}", meshloom::io::printable_path(&parameters.density)))));
    }
    let truth = parameters.truth.as_ref().map(|path| read_cells(&NpyFile::open(path)?, &sites)).transpose()?;

    let mut worker = Worker::new(context, grid).map_err(OperatorError::from)?;
    let operator =
        SimulationOperator::new(&mut worker, config.clone(), parameters.checkpoint_every, &[Observable::Density])?;
    let memory = operator.memory();
    let run = Model::new(operator);
    let data = field(&mut worker, &run, false, &values)?;
    let mut problem = Problem { parameters, worker, config, run, memory, cells, sites, data };
    phases.done("start");
    let (fit, likelihood) = fit(&mut problem, &values, &bar)?;
    bar.finish_and_clear();
    phases.done("fit");
    let outputs = Outputs { directory: &parameters.out, comm };
    let (files, mut report) = write(&mut problem, &outputs, (&fit, &likelihood), truth.as_deref())?;
    phases.done("output");
    report["host_seconds"] = phases.host_seconds(&outputs.comm)?.into();
    report["seconds"] = json!(phases.finish());
    outputs.publish(&report, files)?;
    drop(directory);
    Ok(Ok(report))
}

fn not_cubic(file: &NpyFile) -> Error {
    let wanted = "(m, m, m): the density on the cells of a cubic mesh".into();
    IoError::Shape { path: file.path().into(), found: file.shape().to_vec(), wanted }.into()
}

/// What is wrong with a density whose mean is not 1, as far as noise explains. The same on all ranks.
fn not_of_mean_one(context: &Context, values: &[f32], noise: f64, mesh: u64) -> Result<Option<String>, Error> {
    let mut sum = [values.iter().map(|&value| f64::from(value)).sum::<f64>()];
    context.comm.all_reduce(&mut sum, Op::Sum)?;
    let cells = (mesh as f64).powi(3);
    let (mean, most) = (sum[0] / cells, 1e-3 + 6.0 * noise / cells.sqrt());
    Ok(((mean - 1.0).abs() > most).then(|| {
        format!("its mean is {mean:.4}, and 1 within {most:.1e}, what noise explains, is needed: give 1 + contrast, as `simulate --save-density` writes it")
    }))
}

/// A field of the run's domain, or its target.
fn field(worker: &mut Worker<'_>, run: &Model, of_domain: bool, values: &[f32]) -> Result<Field, Error> {
    let space = if of_domain { run.domain() } else { run.target() };
    let field = Field::new(worker.gpu(), space)?;
    let name = space.names().next().unwrap_or_default();
    worker.context.recorder.upload(field.array(name)?, 0, values)?;
    Ok(field)
}

/// The most probable initial conditions and then, if they are asked for, samples and their mean.
fn fit<'w>(
    problem: &mut Problem<'_, 'w>,
    values: &[f32],
    bar: &ProgressBar,
) -> Result<(Fit<Worker<'w>>, Likelihood), Error> {
    let Problem { parameters, worker, run, memory, sites, .. } = problem;
    let values: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    let Some((name, leaf)) = run.target().only() else { return Err(no_leaf(run)) };
    let data = Data { name, leaf, values: &values, mask: None };
    let likelihood = Likelihood::gaussian(worker, &data, NoiseLevel::Uniform(parameters.noise))?.amend(run)?;
    let groups = SampleGroups::one(worker.comm());
    let numbers = sites.cells() as f64;
    // In natural units of information, of which each number has some.
    let (position, pairs) = (NewtonOptions::default().absdelta(1e-4 * numbers).steps(30), parameters.pairs);
    let kept = kept(worker, memory);
    let options = |iteration: u32| IterationOptions {
        pairs: if iteration == 0 { 0 } else { pairs },
        sampling: Sampling::Linear(if iteration < 2 { Draw::New } else { Draw::Again }),
        linear: CgOptions::absdelta(1e-5 * numbers),
        position: if iteration == 0 { position } else { position.steps(5) },
        kept,
        ..IterationOptions::default()
    };
    // Where all is uniform particles lie on nodes, and cloud in cell has no derivative there: the start is a little beside.
    let mut start = Field::new(worker.gpu(), run.domain())?;
    let mut noise = Field::new(worker.gpu(), run.domain())?;
    worker.white_noise(Stream::new(parameters.seed, u32::MAX, 0, 0), &mut noise)?;
    worker.axpby(0.05, &noise, 0.0, &mut start)?;
    let fit = OptimizeKl::new(&likelihood, &groups, 1 + parameters.iterations)
        .excitations(Excitations::Seed(parameters.seed))
        .options(options)
        .progress(|progress| {
            if let Progress::Step { step, .. } = progress {
                bar.set_message(format!("step {}, energy {:.4e}", step.number, step.value));
                bar.tick();
            }
        })
        .callback(|_, _, report| {
            bar.set_position(u64::from(report.iteration) + 1);
            Ok(ControlFlow::Continue(()))
        })
        .run(worker, &start)?;
    Ok((fit, likelihood))
}

fn no_leaf(run: &Model) -> Error {
    OperatorError::Invalid { operator: run.name(), why: format!("it gives {}, not one leaf", run.target()) }.into()
}

/// Samples whose run stays in memory for its derivatives: as many as the device has room for beside one that is made anew each time.
fn kept(worker: &Worker<'_>, memory: &GradientMemory) -> usize {
    let (gpu, sharing) = (worker.gpu(), worker.context.sharing as u64);
    let one = memory.states as u64 * memory.state;
    match gpu.capabilities().memory {
        Some(all) => ((all / sharing).saturating_sub(2 * memory.total()) / one.max(1)).min(1 << 16) as usize,
        None => usize::MAX,
    }
}
