//! `meshloom bench`: how fast the library's parts are on this machine, one file per subject.
//!
//! Times are those of all ranks together, from a barrier until the slowest rank's device is done; see [`measure`].

mod copy;
mod exchange;
mod fft;
mod fof;
mod halo;
mod knn;
mod measure;
mod pairs;
mod points;
mod reference;
mod report;
mod search;
mod session;
mod sort;

use clap::{Args, Subcommand};
use meshloom::{Context, Error};

use crate::common::{Common, Failure};
use crate::terminal;
use report::Report;

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
}

/// Options of every subject.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Runs of which the median, the least and the greatest are reported, after 2 to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Measure the same work done by the processor for comparison; the ratio is our time over its time
    #[arg(long)]
    pub reference: bool,
    #[command(flatten)]
    pub common: Common,
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
    }
}

/// The report of a rank, or the message about wrong options, which is the same on all ranks.
type Found = Result<Report, String>;

impl Settings {
    /// Measures on all ranks and prints what rank 0 reports, right or wrong.
    ///
    /// # Errors
    /// Those of the options and the work, and [`Report::verdict`].
    fn run(&self, body: impl Fn(&mut Context) -> Result<Found, Error> + Sync) -> Result<(), Failure> {
        let Some(found) = self.common.launch(body)? else { return Ok(()) };
        let report = found.map_err(Failure::Usage)?;
        let verdict = report.verdict();
        let printed = match self.common.json {
            true => terminal::print_object(&report.json()),
            false => terminal::print(&report.text()),
        };
        verdict.and(printed)
    }
}

/// Longest axis: with it no count of cells or bytes leaves 64 bits.
const LONGEST: u64 = 1 << 16;

/// One number for a cube, or three with `x` between.
fn shape(text: &str) -> Result<[u64; 3], String> {
    let axis = |number: &str| number.trim().parse::<u64>().ok();
    let axes: Option<Vec<u64>> = text.split('x').map(axis).collect();
    let shape = match axes.as_deref() {
        Some(&[all]) => [all; 3],
        Some(&[x, y, z]) => [x, y, z],
        _ => return Err(format!("`{text}` is no size; write one number of cells, or three as 96x80x60")),
    };
    if shape.iter().any(|n| !(1..=LONGEST).contains(n)) {
        return Err(format!("every axis must have from 1 to {LONGEST} cells"));
    }
    Ok(shape)
}

/// `96x80x60`
fn name([x, y, z]: [u64; 3]) -> String {
    format!("{x}x{y}x{z}")
}

/// Pseudo-random values between -1 and 1, different for every rank.
fn values(count: u64, rank: usize) -> Vec<f32> {
    let mut state = (rank as u32).wrapping_mul(2_654_435_769).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}
