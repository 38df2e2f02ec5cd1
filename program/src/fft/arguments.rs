//! The options of `meshloom fft`.

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::fft::{Norm, Precision};

use crate::common::Common;
use crate::speeds::SpeedOptions;

/// Longest axis: kernels index no more elements.
pub const LONGEST: u64 = 1 << 32;

#[derive(Args)]
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
    #[arg(long, value_name = "backward|ortho|forward", default_value = "backward", value_parser = norm)]
    pub norm: Norm,
    /// Precision of the computation [default: f32 for float32 and complex64, else f64]
    #[arg(long, value_name = "f32|f64", value_parser = precision)]
    pub precision: Option<Precision>,
    #[command(flatten)]
    pub plan: PlanOptions,
    #[command(flatten)]
    pub common: Common,
}

impl Arguments {
    /// The input, which `--plan-only` has not.
    pub fn input(&self) -> &Path {
        self.input.as_deref().unwrap_or(Path::new(""))
    }

    /// The output, which `--plan-only` has not.
    pub fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }
}

pub const NORMS: [(&str, Norm); 3] = [("backward", Norm::Backward), ("ortho", Norm::Ortho), ("forward", Norm::Forward)];
pub const PRECISIONS: [(&str, Precision); 2] = [("f32", Precision::Single), ("f64", Precision::Double)];

fn norm(text: &str) -> Result<Norm, String> {
    let found = NORMS.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, norm)| norm).ok_or_else(|| "write backward, ortho or forward".into())
}

fn precision(text: &str) -> Result<Precision, String> {
    let found = PRECISIONS.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, precision)| precision).ok_or_else(|| "write f32 or f64".into())
}

/// The name of a value of an option.
pub fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

/// Options of `--plan-only`.
#[derive(Args)]
pub struct PlanOptions {
    /// Forecast the cost of a transform on each rank, without a device or a file; see --shape, --ranks, --grid
    #[arg(long, requires = "shape")]
    pub plan_only: bool,
    /// The array, as 4096,4096,4096
    #[arg(long, value_name = "N,N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    pub shape: Vec<u64>,
    /// Fields that are transformed together [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    fields: Option<u64>,
    /// Distribute the spectrum as the field [default: as the last pass leaves it]
    #[arg(long)]
    pub natural: bool,
    /// Pieces of an exchange that are sent while others are transformed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    pub pieces: Option<u64>,
    /// Most bytes of a message [default: 2097152]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    chunk_bytes: Option<u64>,
    #[command(flatten)]
    pub speeds: SpeedOptions,
}

impl PlanOptions {
    /// Fields that are transformed together.
    pub fn fields(&self) -> u64 {
        self.fields.unwrap_or(1)
    }

    /// Most bytes of a message.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.unwrap_or(2 << 20)
    }

    /// The first given option that is for `--plan-only` alone.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--shape", !self.shape.is_empty()),
            ("--fields", self.fields.is_some()),
            ("--natural", self.natural),
            ("--pieces", self.pieces.is_some()),
            ("--chunk-bytes", self.chunk_bytes.is_some()),
        ];
        given.into_iter().find(|&(_, given)| given).map(|(name, _)| name).or_else(|| self.speeds.given())
    }
}
