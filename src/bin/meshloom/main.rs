//! The `meshloom` program: one file a command, this one to tell them apart.

mod common;
mod devices;
mod power;
mod simulate;

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
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MESHLOOM_LOG").unwrap_or_else(|_| "error".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    let program = Program::parse();
    if let Err(error) = meshloom::io::cleanup::install_interrupt_handler() {
        tracing::debug!(%error, "interrupts will leave temporary files");
    }
    let result = match program.command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Power(arguments) => power::run(&arguments),
    };
    let (message, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Failed(message)) => (message, 1),
    };
    meshloom::io::cleanup::remove_all();
    eprintln!("meshloom: {message}");
    ExitCode::from(code)
}
