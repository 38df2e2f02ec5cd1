//! `meshloom reconstruct`: initial conditions whose evolution explains a noisy density, and how
//! sure they are.

mod estimate;
mod fitting;
mod options;
mod outputs;
mod parameters;
mod problem;
mod results;
mod spectra;

use std::path::PathBuf;

use indicatif::ProgressBar;
use meshloom::Rank;
use meshloom::inference::SampleGroups;
use serde_json::{Value, json};

use crate::checked_files::check_files;
use crate::config_file;
use crate::described::{self, check_command};
use crate::failure::{Ended, Failure};
use crate::fit_state::{self, State};
use crate::phases::Phases;
use crate::terminal;
pub use options::Arguments;
use outputs::Outputs;
use parameters::Parameters;
use problem::{Problem, density, groups_of};

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (common, options) = (&arguments.common, arguments.configured.options()?);
    if arguments.configured.print_config {
        return terminal::print(&config_file::text(&options)?);
    }
    let parameters = Parameters::new(options.clone(), common.grid)?;
    if arguments.estimate {
        return estimate::run(common, &parameters);
    }
    let written = outputs::FILES.map(|name| arguments.out().join(name));
    let inputs = [&options.density, &options.truth, &options.universe.power_table, &arguments.configured.config]
        .into_iter()
        .flatten();
    // An existing one must not be replaced.
    let directory = [arguments.out()].into_iter().filter(|out| !out.is_dir());
    let mut files = check_files(inputs.map(PathBuf::as_path), directory.chain(written.iter().map(PathBuf::as_path)))?;
    // What is written is in the directory and not beside it, which ranks need not share.
    files.outputs.retain(|output| output.as_path() != arguments.out());
    check_command(arguments.out(), "reconstruct")?;
    // How many groups of samples have room is seen later.
    common.known_ranks().map(|ranks| parameters.sample_groups(ranks, |_| true)).transpose()?;
    let report = common.without_grid().launch(&files, |rank| reconstruct(rank, arguments, &parameters))?;
    common.print(report)
}

/// One rank's work; returns the content of `run.json`.
fn reconstruct(rank: &mut Rank, arguments: &Arguments, parameters: &Parameters) -> Result<Value, Ended> {
    let mut phases = Phases::new(ProgressBar::hidden());
    let (all, sharing, out) = (rank.comm.clone(), rank.sharing, arguments.out());
    let directory = described::take(&all, out, "reconstruct")?;
    let (file, config) = density(parameters)?;
    let found = if arguments.resume { fit_state::find(out)? } else { None };
    let groups = groups_of(rank, parameters, &config, found.as_ref().map(|found| found.each))?;
    let (groups, own) = SampleGroups::split(&all, groups)?;
    let mut group = Rank::new(own, rank.gpu.clone())?;
    // Devices are shared with other groups, too.
    group.sharing = sharing;
    let mut problem = Problem::new(&mut group, groups, parameters, (file, config))?;
    if let Some(failure) = found.as_ref().and_then(|found| found.of_another(&problem.identity)) {
        return Err(failure.into());
    }
    let each = all.size() / problem.groups.count();
    let state = State::new(out, found, parameters.sampling());
    state.prepare(&all, &problem.identity, each)?;
    phases.done("start");
    let warnings = problem.config.warnings(&parameters.universe.power()?)?;
    if all.rank() == 0 {
        warnings.iter().for_each(|said| terminal::warn(said));
    }
    let fitted = fitting::fit(&mut problem, &state, &arguments.common)?;
    phases.done("fit");
    let outputs = Outputs { directory: out, all };
    let (files, mut report) = results::write(&mut problem, &outputs, &fitted)?;
    phases.done("output");
    report["host_seconds"] = phases.host_seconds(&outputs.all)?.into();
    report["seconds"] = json!(phases.finish());
    let last = fitted.fit.history().last();
    let advice = "data of less --noise need more steps than there are: --map-only finds the most probable conditions";
    let mut of_fit = fit_state::warnings(fitted.fit.history(), [advice, "give --mode mgvi"]);
    of_fit.extend(fit_state::doubts(last, None, "give --noise as it is, and the --box and cosmology of the data"));
    of_fit.extend(fitted.warnings.iter().cloned());
    report["warnings"] = warnings.iter().chain(&of_fit).cloned().collect::<Vec<String>>().into();
    outputs.publish(&report, files)?;
    if outputs.all.rank() == 0 {
        of_fit.iter().for_each(|warning| terminal::warn(warning));
    }
    drop(directory);
    Ok(report)
}
