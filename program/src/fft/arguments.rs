//! The options of `meshloom fft`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use meshloom::exchange::Exchange;
use serde::Serialize;

use crate::common::{Common, Precision};
use crate::machine::MachineOption;

/// Longest axis: kernels index no more elements.
pub const LONGEST: u64 = 1 << 32;

#[derive(Args)]
#[command(mut_group("MachineOption", |machine| machine.conflicts_with("input")))]
pub struct Arguments {
    /// An array of 1, 2 or 3 axes, real, complex or integer
    #[arg(value_name = "IN.npy", required_unless_present = "plan_only", conflicts_with = "plan_only")]
    input: Option<PathBuf>,
    /// The transformed array, in NumPy's order and shape
    #[arg(short, long, value_name = "OUT.npy", required_unless_present = "plan_only", conflicts_with = "plan_only")]
    output: Option<PathBuf>,
    /// Transform back
    #[arg(long)]
    pub inverse: bool,
    /// Between real values and the half spectrum, as rfftn and irfftn do
    #[arg(long)]
    pub real: bool,
    /// Length of the last axis that --inverse --real gives [default: 2 (m - 1) of m modes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    pub last_size: Option<u64>,
    /// Which direction has the factor 1/N; ortho: both have its square root
    #[arg(long, value_name = "backward|ortho|forward", default_value = "backward", hide_possible_values = true)]
    pub norm: Norm,
    /// Precision of the computation [default: f32 for float32 and complex64, else f64]
    #[arg(long, value_name = "f32|f64", hide_possible_values = true)]
    pub precision: Option<Precision>,
    #[command(flatten)]
    pub plan: PlanOptions,
    #[command(flatten)]
    pub common: Common,
}

impl Arguments {
    /// Returns the input, which `--plan-only` has not.
    pub fn input(&self) -> &Path {
        self.input.as_deref().unwrap_or(Path::new(""))
    }

    /// Returns the output, which `--plan-only` has not.
    pub fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }
}

/// NumPy's names of normalizations.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    Backward,
    Ortho,
    Forward,
}

impl From<Norm> for meshloom::fft::Norm {
    fn from(norm: Norm) -> Self {
        match norm {
            Norm::Backward => Self::Backward,
            Norm::Ortho => Self::Ortho,
            Norm::Forward => Self::Forward,
        }
    }
}

/// Options of `--plan-only`.
#[derive(Args)]
pub struct PlanOptions {
    /// Forecast the cost of a transform on each rank, without a device or a file; see --shape,
    /// --ranks, --grid
    #[arg(long, requires = "shape")]
    pub plan_only: bool,
    /// The array, as 4096,4096,4096
    #[arg(long, conflicts_with = "input", value_name = "N,N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    pub shape: Vec<u64>,
    /// Fields that are transformed together
    #[arg(long, conflicts_with = "input", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub fields: u64,
    /// Distribute the spectrum as the field [default: as the last pass leaves it]
    #[arg(long, conflicts_with = "input")]
    pub natural: bool,
    /// Pieces of an exchange that are sent while others are transformed
    #[arg(long, conflicts_with = "input", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    pub pieces: Option<u64>,
    /// Most bytes of a message
    #[arg(long, conflicts_with = "input", value_name = "BYTES", default_value_t = Exchange::CHUNK_BYTES, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk_bytes: u64,
    #[command(flatten)]
    pub machine: MachineOption,
    /// With --plan-only: the seconds of a forward transform on 1, 2, 4, .. up to N ranks, as CSV,
    /// and nothing else
    #[arg(long, conflicts_with_all = ["input", "json", "ranks", "grid", "shares"], value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub scaling: Option<u32>,
}
