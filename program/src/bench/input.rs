//! Options of all subjects: settings, sizes of meshes; and pseudo-random numbers that are the same
//! in every run.

use clap::Args;

use crate::common::Common;

/// Options of every subject.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// Runs of which the median, the least and the greatest are reported, after 2 to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Measure the same work done by the processor for comparison; the ratio is our time over its
    /// time
    #[arg(long)]
    pub reference: bool,
    /// Measure each kernel as well, by the device's clock: once more for each row, and on rank 0
    #[arg(long)]
    pub kernels: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Longest axis: with it no count of cells or bytes leaves 64 bits.
const LONGEST: u64 = 1 << 16;

/// One number for a cube, or three with `x` between.
pub fn shape(text: &str) -> Result<[u64; 3], String> {
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

/// Columns and rows with `x` between.
pub fn plane(text: &str) -> Result<[u64; 2], String> {
    match shape(&format!("{text}x1")) {
        Ok([columns, rows, 1]) if text.contains('x') => Ok([columns, rows]),
        _ => Err(format!("invalid grid `{text}`: expected COLUMNSxROWS, each 1 to {LONGEST}, such as 360x180")),
    }
}

/// `96x80x60`
pub fn name([x, y, z]: [u64; 3]) -> String {
    format!("{x}x{y}x{z}")
}

/// Pseudo-random values between -1 and 1, different for every rank.
pub fn values(count: u64, rank: usize) -> Vec<f32> {
    let mut state = (rank as u32).wrapping_mul(2_654_435_769).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}

/// Returns random keys of the given number of bits, different on every rank.
pub fn keys(count: u64, bits: u32, rank: usize) -> Vec<u64> {
    let mut state = rank as u64;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> (64 - bits)
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}
