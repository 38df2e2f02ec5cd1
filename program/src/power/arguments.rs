//! The options of `meshloom power`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use meshloom::mesh::Window;

use crate::common::Common;
use crate::particle_type::ParticleType;

#[derive(Args)]
pub struct Arguments {
    /// A field (3-D array, divided by its mean; see --contrast) or points (shape (N, 3)), f32 or
    /// f64; or a snapshot in HDF5, or the centers of a catalog of groups
    #[arg(value_name = "FIELD.npy|POINTS.npy|SNAPSHOT.hdf5")]
    pub input: PathBuf,
    /// Sides of the periodic box [default: a snapshot's own]
    #[arg(long = "box", value_name = "L|LX,LY,LZ", value_parser = size, allow_hyphen_values = true)]
    pub size: Option<[f64; 3]>,
    /// The spectrum to write: wavenumber, power and number of modes of each bin
    #[arg(short, long, value_name = "OUT.csv")]
    pub output: PathBuf,
    /// Cells of the mesh that points are painted on [default: twice the cube root of their number,
    /// from 16 to 512]
    #[arg(long, value_name = "N|NX,NY,NZ", value_parser = shape)]
    pub mesh: Option<[u64; 3]>,
    /// Window that points are painted with or, with --deconvolve, that a field was painted with
    /// [default: cic]
    #[arg(long, value_name = "cic|tsc|pcs")]
    pub window: Option<Window>,
    /// Divide the power by that of the window
    #[arg(long)]
    pub deconvolve: bool,
    /// Measure a field as it is instead of dividing it by its mean: a density contrast, a
    /// divergence, a temperature. With --cross this holds for the fields of both inputs, or for one
    /// of them
    #[arg(long, value_name = "both|first|other", num_args = 0..=1, require_equals = true, default_missing_value = "both")]
    pub contrast: Option<Contrast>,
    /// Masses or other weights of points, finite and not negative: shape (N), or a snapshot that
    /// has masses [default: 1 each]
    #[arg(long, visible_alias = "weights", value_name = "M.npy")]
    pub masses: Option<PathBuf>,
    /// Masses or other weights of the points of --cross, like --masses
    #[arg(long, visible_alias = "cross-weights", value_name = "M.npy", requires = "cross")]
    pub cross_masses: Option<PathBuf>,
    /// Paint points a second time half a cell away, against the strongest aliases
    #[arg(long)]
    pub interlace: bool,
    /// Subtract volume / number from the power (with masses m: volume * sum m^2 / (sum m)^2): that
    /// of as many random points, with --interlace --deconvolve; without these the window takes a
    /// part of it at small scales, and so much is too much. P_cross and correlation are as measured
    #[arg(long)]
    pub shot_noise: bool,
    /// Another field or points: its power, the cross-spectrum and the correlation (of the powers as
    /// measured, with their shot noise; NaN without power) follow as P_other, P_cross and
    /// correlation
    #[arg(long, value_name = "FIELD.npy|POINTS.npy|SNAPSHOT.hdf5")]
    pub cross: Option<PathBuf>,
    /// Line of sight: quadrupole and hexadecapole of the power follow as P2 and P4
    #[arg(long, value_name = "x|y|z", value_parser = ["x", "y", "z"])]
    pub multipoles: Option<String>,
    #[command(flatten)]
    pub particles: ParticleType,
    #[command(flatten)]
    pub common: Common,
}

/// The inputs whose fields are measured as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contrast {
    Both,
    First,
    Other,
}

/// Parses one number for all axes or one for each.
fn three<T: Copy + std::str::FromStr>(text: &str) -> Option<[T; 3]> {
    let numbers: Option<Vec<T>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    match numbers?[..] {
        [all] => Some([all; 3]),
        [x, y, z] => Some([x, y, z]),
        _ => None,
    }
}

fn size(text: &str) -> Result<[f64; 3], String> {
    let open = |side: &str| side.trim() == "open" || side.trim().parse::<f64>() == Ok(0.0);
    if text.split(',').any(open) {
        return Err("a Fourier spectrum needs a box that is periodic along every axis; give its sides".into());
    }
    let size = three::<f64>(text).ok_or("write one length, or three with commas between")?;
    if is_box(&size) { Ok(size) } else { Err("every side must be a length from 1e-30 to 1e30".into()) }
}

/// Returns `true` if squares and volumes of lengths stay in the range of f64.
pub fn is_box(size: &[f64; 3]) -> bool {
    size.iter().all(|side| (1e-30..=1e30).contains(side))
}

/// Longest side of a mesh: products of two sides stay within 32 bits, which kernels count in.
const MAX_SIDE: u64 = 1 << 14;

fn shape(text: &str) -> Result<[u64; 3], String> {
    let shape = three::<u64>(text).ok_or("write one number of cells, or three with commas between")?;
    if shape.iter().any(|n| !(1..=MAX_SIDE).contains(n)) {
        return Err(format!("every axis must have from 1 to {MAX_SIDE} cells"));
    }
    Ok(shape)
}
