//! The `meshloom` program: a module for each command; this one reads the command line.

mod bench;
mod catalog;
mod chains;
mod chatter;
mod checked;
mod checked_files;
mod common;
mod config_file;
mod coordinates;
mod described;
mod devices;
mod evolution;
mod failure;
mod fft;
mod fit_state;
mod fof;
mod heap;
mod infer;
mod kernels;
mod knn;
mod machine;
mod manual;
mod neighbors;
#[cfg(test)]
mod one_meaning;
mod output_name;
mod pairs;
mod particle_type;
mod phases;
mod point_values;
mod points;
mod power;
mod projection;
mod reconstruct;
mod resumable;
mod run_clock;
mod same_call;
mod sample_groups;
mod scaling;
mod search;
mod shallow_water;
mod simulate;
mod sort;
mod space;
mod spheres;
mod terminal;
mod trace;
mod universe;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

/// The version, and whether the program has MPI and HDF5.
const VERSION: &str = match (cfg!(feature = "mpi"), cfg!(feature = "hdf5")) {
    (true, true) => concat!(env!("CARGO_PKG_VERSION"), " (mpi, hdf5)"),
    (true, false) => concat!(env!("CARGO_PKG_VERSION"), " (mpi, no hdf5)"),
    (false, true) => concat!(env!("CARGO_PKG_VERSION"), " (no mpi, hdf5)"),
    (false, false) => concat!(env!("CARGO_PKG_VERSION"), " (no mpi, no hdf5)"),
};

/// Simulations made of fields and particles on any GPU, over any number of devices or MPI ranks
#[derive(Parser)]
#[command(name = "meshloom", version = VERSION, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the adapters with their limits, features and kernel profiles
    Devices(devices::Arguments),
    /// Run a cosmological particle-mesh simulation
    Simulate(simulate::Arguments),
    /// Find the initial conditions whose evolution explains a noisy density
    Reconstruct(reconstruct::Arguments),
    /// Infer a correlated field and its uncertainty from data on a grid
    Infer(infer::Arguments),
    /// Run the shallow-water model: a jet in a channel
    ShallowWater(shallow_water::Arguments),
    /// Measure the power spectrum of a field or of points
    Power(power::Arguments),
    /// Transform an array as NumPy's fftn, ifftn, rfftn and irfftn do
    Fft(fft::Arguments),
    /// Find the order of points along a space-filling curve
    Sort(sort::Arguments),
    /// Find the nearest neighbors of points
    Knn(knn::Arguments),
    /// Find all neighbors of points within a radius
    Neighbors(neighbors::Arguments),
    /// Count pairs of points by distance
    Pairs(pairs::Arguments),
    /// Find friends-of-friends groups of points
    Fof(fof::Arguments),
    /// Measure how fast the parts of the library are on this machine
    Bench(bench::Arguments),
    /// List the compute kernels of the library, or print one as a driver gets it
    Kernels(kernels::Arguments),
    /// Print a script that completes words of this program in a shell
    Completions(manual::CompletionArguments),
    /// Print the manual page of the program or of a command
    Man(manual::Arguments),
}

/// Time for the first process of an MPI job to report errors in the arguments of all.
const BEFORE_OTHERS_END: std::time::Duration = std::time::Duration::from_secs(1);

fn main() -> ExitCode {
    let chosen = EnvFilter::try_from_env("MESHLOOM_LOG").ok();
    if chosen.as_ref().is_none_or(|filter| filter.max_level_hint() <= Some(LevelFilter::ERROR)) {
        // SAFETY: this is the beginning of the program, and no thread has been started.
        unsafe { chatter::silence() };
    }
    // Under MPI every process has the same wrong arguments: the first prints the message.
    let first = terminal::is_first();
    let outcome = parse(first).and_then(|parsed| match parsed {
        Some((program, options)) => {
            subscribe(chosen, &options);
            run(program)
        }
        None => Ok(()),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            meshloom::io::cleanup::remove_all();
            match first {
                true => terminal::complain(&failure.message()),
                // A launcher ends all processes when one has failed: the first says why before.
                false => std::thread::sleep(BEFORE_OTHERS_END),
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Options of a command that decide what is logged.
struct LogOptions {
    /// The command has the option `--trace`.
    is_traced: bool,
    /// The command has the option `--quiet`.
    is_quiet: bool,
}

impl LogOptions {
    /// Finds the options of a command, and of those within it.
    fn of(words: &ArgMatches) -> Self {
        let within = words.subcommand().map(|(_, words)| LogOptions::of(words));
        let (is_traced, is_quiet) = within.map_or((false, false), |log| (log.is_traced, log.is_quiet));
        LogOptions {
            is_traced: is_traced || matches!(words.try_get_one::<PathBuf>("trace"), Ok(Some(_))),
            is_quiet: is_quiet || matches!(words.try_get_one::<bool>("quiet"), Ok(Some(true))),
        }
    }

    /// Returns the filter of messages if `MESHLOOM_LOG` sets none. At a terminal, they tell why a
    /// first run waits.
    fn filter(&self, is_at_terminal: bool) -> &'static str {
        if is_at_terminal && !self.is_quiet { "error,meshloom::compilation=info" } else { "error" }
    }
}

/// Subscribes to the messages of the library that pass the filter, and to its timeline if the run
/// is traced.
fn subscribe(chosen: Option<EnvFilter>, options: &LogOptions) {
    let filter = chosen.unwrap_or_else(|| options.filter(std::io::stderr().is_terminal()).into());
    // A subscriber of the timeline makes each kernel a pass of its own.
    let filter = match "meshloom::timeline=off".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let diagnostics = fmt::layer().with_writer(|| terminal::Diagnostics).without_time().log_internal_errors(false);
    let timeline = options.is_traced.then(trace::layer);
    tracing_subscriber::registry().with(diagnostics.with_filter(filter)).with(timeline).init();
}

/// Parses the command line, and finds its options for the log; `None` if it asks for help or the
/// version, which is then printed.
fn parse(first: bool) -> Result<Option<(Program, LogOptions)>, Failure> {
    // Without colors, whose codes could not be told from control characters in the arguments.
    let plain = Program::command().styles(Styles::plain());
    let parsed =
        plain.try_get_matches().and_then(|words| Ok((Program::from_arg_matches(&words)?, LogOptions::of(&words))));
    let error = match parsed {
        Ok(parsed) => return Ok(Some(parsed)),
        Err(error) => error,
    };
    if error.use_stderr() {
        return Err(Failure::Words(error.render().ansi().to_string()));
    }
    match Program::try_parse() {
        Err(help) if first => terminal::written(help.print())?,
        _ => {}
    }
    Ok(None)
}

fn run(program: Program) -> Result<(), Failure> {
    if let Err(error) = meshloom_program::interrupt::install_interrupt_handler() {
        tracing::debug!(%error, "interrupts will leave temporary files");
    }
    if meshloom::comm::mpi_launched() {
        // The launcher reports the interrupt.
        meshloom_program::interrupt::silence_interrupt_message();
    }
    match program.command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Reconstruct(arguments) => reconstruct::run(&arguments),
        Command::Infer(arguments) => infer::run(&arguments),
        Command::ShallowWater(arguments) => shallow_water::run(&arguments),
        Command::Power(arguments) => power::run(&arguments),
        Command::Fft(arguments) => fft::run(&arguments),
        Command::Sort(arguments) => sort::run(&arguments),
        Command::Knn(arguments) => knn::run(&arguments),
        Command::Neighbors(arguments) => neighbors::run(&arguments),
        Command::Pairs(arguments) => pairs::run(&arguments),
        Command::Fof(arguments) => fof::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Completions(arguments) => manual::complete(&arguments, Program::command()),
        Command::Man(arguments) => manual::run(&arguments, Program::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_options_are_found_within_commands() {
        let options = |words: &str| LogOptions::of(&Program::command().try_get_matches_from(words.split(' ')).unwrap());
        for (words, is_traced, is_quiet) in [
            ("meshloom devices", false, false),
            ("meshloom simulate -o run --particles 8", false, false),
            ("meshloom simulate -o run --particles 8 --quiet", false, true),
            ("meshloom bench exchange --trace t.json", true, false),
            ("meshloom knn a.npy -k 3 -o b.npz --quiet --trace t.json", true, true),
        ] {
            let found = options(words);
            assert_eq!((found.is_traced, found.is_quiet), (is_traced, is_quiet), "{words}");
            assert_eq!(
                [found.filter(true).contains("compilation"), found.filter(false) != "error"],
                [!is_quiet, false]
            );
        }
    }
}
