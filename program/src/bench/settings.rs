//! Options that all subjects have.

use clap::Args;

use crate::common::Common;

/// Options of every subject.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Runs of which the median, the least and the greatest are reported, after 2 to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Measure the same work done by the processor for comparison; the ratio is our time over its time
    #[arg(long)]
    pub reference: bool,
    /// Measure each kernel as well, by the device's clock: once more for each row, and on rank 0
    #[arg(long)]
    pub kernels: bool,
    #[command(flatten)]
    pub common: Common,
}
