//! `meshloom bench`: how fast the library's parts are on this machine, one file per subject.
//!
//! Times are those of all ranks together, from a barrier until the slowest rank's device is done; see [`measure`].

mod collectives;
mod copy;
mod exchange;
mod fft;
mod fof;
mod halo;
mod knn;
mod measure;
mod pairs;
mod points;
mod random;
#[cfg_attr(feature = "mpi", path = "mpi.rs")]
#[cfg_attr(not(feature = "mpi"), path = "no_mpi.rs")]
mod raw;
mod reference;
mod report;
mod ring;
mod search;
mod session;
mod settings;
mod size;
mod sort;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// Fourier transforms, forward and inverse, of real and complex fields
    Fft(fft::Arguments),
    /// The exchanges of a distributed complex transform by themselves, or messages of given sizes, beside MPI's own where it runs the ranks
    Exchange(exchange::Arguments),
    /// Collectives of the host, beside MPI's own where it runs the ranks
    Collectives(collectives::Arguments),
    /// Filling the ghost cells of a field, and adding them to their owners
    Halo(halo::Arguments),
    /// Sorting random keys of 63 and 32 bits, with their index as payload
    Sort(sort::Arguments),
    /// Trees over points, and the nearest neighbours of all of them
    Knn(knn::Arguments),
    /// Trees over points, and the histogram of the distances of their pairs
    Pairs(pairs::Arguments),
    /// Trees over points, and friends-of-friends groups
    Fof(fof::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.subject {
        Subject::Fft(arguments) => fft::run(arguments),
        Subject::Exchange(arguments) => exchange::run(arguments),
        Subject::Collectives(arguments) => collectives::run(arguments),
        Subject::Halo(arguments) => halo::run(arguments),
        Subject::Sort(arguments) => sort::run(arguments),
        Subject::Knn(arguments) => knn::run(arguments),
        Subject::Pairs(arguments) => pairs::run(arguments),
        Subject::Fof(arguments) => fof::run(arguments),
    }
}
