//! The `meshloom` program: one file a command, this one to tell them apart.

mod bench;
mod catalogue;
mod common;
mod coordinates;
mod devices;
mod fft;
mod fof;
mod knn;
mod neighbors;
mod pairs;
mod phases;
mod points;
mod power;
mod search;
mod simulate;
mod sort;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use common::Failure;

/// Simulations made of fields and particles on any GPU, over any number of devices or MPI ranks
#[derive(Parser)]
#[command(name = "meshloom", version, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the adapters, what they can do and what they would be used for
    Devices(devices::Arguments),
    /// Run a cosmological particle-mesh simulation
    Simulate(simulate::Arguments),
    /// Measure the power spectrum of a field or of points
    Power(power::Arguments),
    /// Transform an array as NumPy's fftn, ifftn, rfftn and irfftn do
    Fft(fft::Arguments),
    /// Find the order of points along a space-filling curve
    Sort(sort::Arguments),
    /// Find the nearest neighbours of points
    Knn(knn::Arguments),
    /// Find all neighbours of points within a radius
    Neighbors(neighbors::Arguments),
    /// Count pairs of points by distance
    Pairs(pairs::Arguments),
    /// Find groups of points: friends of friends
    Fof(fof::Arguments),
    /// Measure how fast the parts of the library are on this machine
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MESHLOOM_LOG").unwrap_or_else(|_| "error".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    // Under MPI every process finds wrong words alike: one speaks for all.
    let first = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .is_none_or(|rank| rank.trim() == "0");
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => {
            if first {
                drop(error.print());
            }
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    if let Err(error) = meshloom::io::cleanup::install_interrupt_handler() {
        tracing::debug!(%error, "interrupts will leave temporary files");
    }
    if meshloom::comm::mpi_launched() {
        // The launcher says what happened.
        meshloom::io::cleanup::silence_interrupt_message();
    }
    let result = match program.command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Power(arguments) => power::run(&arguments),
        Command::Fft(arguments) => fft::run(&arguments),
        Command::Sort(arguments) => sort::run(&arguments),
        Command::Knn(arguments) => knn::run(&arguments),
        Command::Neighbors(arguments) => neighbors::run(&arguments),
        Command::Pairs(arguments) => pairs::run(&arguments),
        Command::Fof(arguments) => fof::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Failed(message)) => (message, 1),
    };
    meshloom::io::cleanup::remove_all();
    if first {
        eprintln!("meshloom: {message}");
    }
    ExitCode::from(code)
}
