//! Subjects of measurements.

use clap::Subcommand;
use meshloom::Rank;

use super::input::Settings;
use super::report::Report;
use super::{
    collectives, commands, exchange, fft, fof, ghosts, gradient, halo, infer, knn, map, memory, pairs, pm,
    shallow_water, sort, staging,
};
use crate::failure::{Ended, Failure};

/// A part of the library and what of it is to be measured.
#[derive(Subcommand)]
pub enum Subject {
    /// Fourier transforms, forward and inverse, of real and complex fields
    Fft(fft::Arguments),
    /// The exchanges of a distributed complex transform by themselves, or messages of given sizes,
    /// beside MPI's own where it runs the ranks
    Exchange(exchange::Arguments),
    /// Collectives of the host and of device arrays, beside MPI's own where it runs the ranks
    Collectives(collectives::Arguments),
    /// Dispatches, submissions, waits, clears and copies: what commands cost by themselves
    Commands(commands::Arguments),
    /// Reads of rows at strides, and additions to random places: device memory in the patterns of
    /// kernels
    Memory(memory::Arguments),
    /// Copies between device memory, staging buffers and the host: the parts of an exchange
    Staging(staging::Arguments),
    /// A function of many items over ranks and chunks, and its sum
    Map(map::Arguments),
    /// Filling the ghost cells of a field, and adding them to their owners
    Halo(halo::Arguments),
    /// Sorting random keys of 63 and 32 bits, with their index as payload
    Sort(sort::Arguments),
    /// Trees over points, and the nearest neighbors of all of them
    Knn(knn::Arguments),
    /// Trees over points, and the histogram of the distances of their pairs
    Pairs(pairs::Arguments),
    /// Trees over points, and friends-of-friends groups
    Fof(fof::Arguments),
    /// Copies of other ranks' points within reach, and groups over all ranks
    Ghosts(ghosts::Arguments),
    /// Steps of a particle-mesh simulation: a force, kicks and a drift
    Pm(pm::Arguments),
    /// The gradient of a loss of a particle-mesh simulation, beside the simulation
    Gradient(gradient::Arguments),
    /// A fit of counts with a log-normal rate: compiling the model, products with its metric, an
    /// iteration
    Infer(infer::Arguments),
    /// Steps of the shallow-water model
    ShallowWater(shallow_water::Arguments),
}

/// The reference that `--reference` compares a subject with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A library for the processor, which only builds with the feature `reference` have.
    Library,
    /// Another implementation of the same work, in every build.
    OtherWay,
    /// Nothing.
    None,
}

/// Does `work` with the arguments of a subject.
macro_rules! with_arguments {
    ($subject:expr, $arguments:ident => $work:expr) => {
        match $subject {
            Subject::Fft($arguments) => $work,
            Subject::Exchange($arguments) => $work,
            Subject::Collectives($arguments) => $work,
            Subject::Commands($arguments) => $work,
            Subject::Memory($arguments) => $work,
            Subject::Staging($arguments) => $work,
            Subject::Map($arguments) => $work,
            Subject::Halo($arguments) => $work,
            Subject::Sort($arguments) => $work,
            Subject::Knn($arguments) => $work,
            Subject::Pairs($arguments) => $work,
            Subject::Fof($arguments) => $work,
            Subject::Ghosts($arguments) => $work,
            Subject::Pm($arguments) => $work,
            Subject::Gradient($arguments) => $work,
            Subject::Infer($arguments) => $work,
            Subject::ShallowWater($arguments) => $work,
        }
    };
}

impl Subject {
    pub fn settings(&self) -> &Settings {
        with_arguments!(self, arguments => &arguments.settings)
    }

    pub fn settings_mut(&mut self) -> &mut Settings {
        with_arguments!(self, arguments => &mut arguments.settings)
    }

    /// Returns what `--reference` compares it with.
    pub fn peer(&self) -> Peer {
        match self {
            Subject::Fft(_)
            | Subject::Map(_)
            | Subject::Sort(_)
            | Subject::Knn(_)
            | Subject::Pairs(_)
            | Subject::Fof(_)
            | Subject::ShallowWater(_) => Peer::Library,
            Subject::Exchange(_) | Subject::Halo(_) => Peer::OtherWay,
            // Under MPI collectives are always beside its own.
            Subject::Collectives(_)
            | Subject::Commands(_)
            | Subject::Memory(_)
            | Subject::Staging(_)
            | Subject::Ghosts(_)
            | Subject::Pm(_)
            | Subject::Gradient(_)
            | Subject::Infer(_) => Peer::None,
        }
    }

    /// Refuses `--reference` where there is nothing to compare with.
    ///
    /// # Errors
    /// [`Failure::Failed`] in builds without the libraries, [`Failure::Usage`] for subjects without
    /// a peer.
    pub fn check(&self) -> Result<(), Failure> {
        match self.peer() {
            Peer::Library => super::reference::check(self.settings().reference),
            Peer::None if self.settings().reference => {
                Err(Failure::Usage("no library for processors does this; leave --reference out".into()))
            }
            _ => Ok(()),
        }
    }

    /// Measures it. Collective.
    pub fn measure(&self, rank: &mut Rank) -> Result<Report, Ended> {
        Ok(match self {
            Subject::Fft(arguments) => fft::measure(rank, arguments)?,
            Subject::Exchange(arguments) => exchange::measure(rank, arguments)?,
            Subject::Collectives(arguments) => collectives::measure(rank, arguments)?,
            Subject::Commands(arguments) => commands::measure(rank, arguments)?,
            Subject::Memory(arguments) => memory::measure(rank, arguments)?,
            Subject::Staging(arguments) => staging::measure(rank, arguments)?,
            Subject::Map(arguments) => map::measure(rank, arguments)?,
            Subject::Halo(arguments) => halo::measure(rank, arguments)?,
            Subject::Sort(arguments) => sort::measure(rank, arguments)?,
            Subject::Knn(arguments) => knn::measure(rank, arguments)?,
            Subject::Pairs(arguments) => pairs::measure(rank, arguments)?,
            Subject::Fof(arguments) => fof::measure(rank, arguments)?,
            Subject::Ghosts(arguments) => ghosts::measure(rank, arguments)?,
            Subject::Pm(arguments) => pm::measure(rank, arguments)?,
            Subject::Gradient(arguments) => gradient::measure(rank, arguments)?,
            Subject::Infer(arguments) => infer::measure(rank, arguments)?,
            Subject::ShallowWater(arguments) => shallow_water::measure(rank, arguments)?,
        })
    }
}
