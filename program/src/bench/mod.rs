//! `meshloom bench`: how fast the library's parts are on this machine, one file per subject, and
//! all of them together.
//!
//! Times are those of all ranks together, from a barrier until the slowest rank's device is done;
//! see [`measure`].

mod all;
mod collectives;
mod commands;
mod copy;
mod exchange;
mod fft;
mod fit;
mod fit_check;
mod fof;
mod ghosts;
mod gradient;
mod halo;
mod infer;
mod input;
mod knn;
mod map;
mod measure;
mod memory;
mod mpi;
mod pairs;
mod pm;
mod points;
mod reference;
mod report;
mod ring;
mod search;
mod session;
mod shallow_water;
mod sort;
mod staging;
mod subject;

use clap::Args;

use crate::failure::Failure;
use subject::Subject;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    subject: Option<Subject>,
    #[command(flatten)]
    all: all::Suite,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.subject {
        Some(subject) => {
            subject.check()?;
            session::run(subject.settings(), |rank| subject.measure(rank))
        }
        None if arguments.all.all => all::run(&arguments.all),
        None => Err(Failure::Usage("bench measures a subject, such as fft, or all of them with --all".into())),
    }
}
