//! The state at the start: a jet in geostrophic balance with a ripple on its surface.
//!
//! ```text
//! u = 10 m/s exp(-((y - Ly / 2) / (0.02 Lx))^2)
//! eta = -sum over rows of dy u f / g, less its mean, + 0.2 m sin(10 pi x / Lx) cos(8 pi y / Ly)
//! ```
//!
//! Elevation and u are functions of the row, except for the ripple, which is a product of a
//! function of the row and one of the column: the host computes rows and columns in f64, the device
//! the cells.

use std::f64::consts::PI;
use std::ops::Range;

use super::ShallowWaterConfig;

/// The jet's speed in m/s, and its width over the length of the grid.
const JET: [f64; 2] = [10.0, 0.02];
/// The ripple's height in m, and its half waves along x and y.
const RIPPLE: [f64; 3] = [0.2, 10.0, 8.0];

/// Returns the elevation without ripple, the ripple's part, and u of each row of a range, one after
/// the other.
pub(super) fn rows(config: &ShallowWaterConfig, range: Range<u64>) -> Vec<f64> {
    let ([nx, ny], [dx, dy]) = (config.cells, config.spacing);
    let [length_x, length_y] = [(nx - 1) as f64 * dx, (ny - 1) as f64 * dy];
    let jet = |y: f64| JET[0] * (-(y - 0.5 * length_y).powi(2) / (JET[1] * length_x).powi(2)).exp();
    let mut sum = 0.0;
    let elevation: Vec<f64> = (0..ny + 2)
        .map(|row| {
            let y = (row as f64 - 1.0) * dy;
            sum -= dy * jet(y) * (config.coriolis[0] + y * config.coriolis[1]) / config.gravity;
            sum
        })
        .collect();
    let mean = elevation.iter().sum::<f64>() / elevation.len() as f64;
    let ripple = |row: u64| RIPPLE[0] * (row as f64 * dy / length_y * RIPPLE[2] * PI).cos();
    let first = range.clone().map(|row| elevation[row as usize + 1] - mean);
    first.chain(range.clone().map(ripple)).chain(range.map(|row| jet(row as f64 * dy))).collect()
}

/// Returns the ripple's part of each column of a range.
pub(super) fn columns(config: &ShallowWaterConfig, range: Range<u64>) -> Vec<f64> {
    let (dx, length) = (config.spacing[0], (config.cells[0] - 1) as f64 * config.spacing[0]);
    range.map(|column| (column as f64 * dx / length * RIPPLE[1] * PI).sin()).collect()
}
