//! `meshloom bench`: how fast the library's parts are on this machine, one file per subject.
//!
//! Times are those of all ranks together, from a barrier until the slowest rank's device is done; see [`measure`].

mod copy;
mod exchange;
mod fft;
mod fof;
mod ghosts;
mod halo;
mod knn;
mod measure;
mod pairs;
mod points;
mod random;
mod reference;
mod report;
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
    /// The exchanges of a distributed complex transform, by themselves
    Exchange(exchange::Arguments),
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
    /// Copies of other ranks' points within reach, and groups over all ranks
    Ghosts(ghosts::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.subject {
        Subject::Fft(arguments) => fft::run(arguments),
        Subject::Exchange(arguments) => exchange::run(arguments),
        Subject::Halo(arguments) => halo::run(arguments),
        Subject::Sort(arguments) => sort::run(arguments),
        Subject::Knn(arguments) => knn::run(arguments),
        Subject::Pairs(arguments) => pairs::run(arguments),
        Subject::Fof(arguments) => fof::run(arguments),
        Subject::Ghosts(arguments) => ghosts::run(arguments),
    }
}
