//! Forecast of the memory and cost of a light cone. Pure.

use super::Cone;
use super::cone::{Shell, images, images_at_once};
use super::crossing::{AT_ONCE, rows_at_once, words_at_once};
use super::particles::ROW;
use crate::cosmology::StepOp;
use crate::gpu::LONGEST;
use crate::grid::{Cost, Shares, volume};
use crate::pm::{Config, Result, require};

/// Forecast of the memory and cost of a light cone, for uniform matter and the rank with the most
/// particles.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConeForecast {
    /// Particles of all ranks.
    pub particles: u64,
    /// Cost of the crossings. Its memory is beside the particles of the run, while particles cross
    /// with the force mesh free, or while those that have crossed are sorted.
    pub crossing: Cost,
    /// Bytes of device memory for the state at the beginning of a step, beside its force mesh.
    pub state_memory: u64,
    /// Bytes of the host's memory for particles that have crossed.
    pub host_memory: u64,
    /// Steps that the cone crosses.
    pub steps: usize,
}

impl Cone {
    /// Forecasts the memory and cost of this cone of a run on a number of ranks, or on ranks with
    /// [`Shares`], for the rank with the most sites.
    ///
    /// # Errors
    /// Same as [`validate`](Self::validate), errors of the configuration, and
    /// [`OutOfRange`](crate::pm::SimulationError::OutOfRange) for more particles than a rank can
    /// number.
    pub fn forecast(&self, config: &Config, ranks: impl Into<Shares>) -> Result<ConeForecast> {
        let shares = ranks.into();
        self.forecast_rank(config, shares, config.grid(shares)?.largest(config.sites()))
    }

    /// Forecasts the memory and cost of this cone for `rank` of ranks with `shares`.
    ///
    /// # Errors
    /// Same as [`forecast`](Self::forecast).
    pub fn forecast_rank(&self, config: &Config, shares: Shares, rank: usize) -> Result<ConeForecast> {
        self.validate(config)?;
        let own = config.grid(shares)?.part(config.sites(), rank);
        let (count, near) = (volume(&own), config.cosmology.comoving_distance(config.a_end)?);
        let density = (config.particles as f64 / config.box_size).powi(3);
        let particles = (density * self.volume([near, self.distance])) as u64;
        let crossed = shares.len_of(particles, rank);
        let few_enough = |what: &'static str, count: u64, most: u64| {
            require(count <= most, what, count, format!("at most {most}; use more ranks"))
        };
        few_enough("particles of a rank beside a light cone", count, LONGEST / 3)?;
        few_enough("particles of a light cone on a rank", crossed, LONGEST)?;
        let epochs: Vec<f64> = config.schedule()?.iter().filter_map(StepOp::epoch).collect();
        let (mut device, mut steps) = (0, 0);
        for pair in epochs.windows(2) {
            let shell = Shell::new(config, self, [pair[0], pair[1]])?;
            if !shell.is_reached() {
                continue;
            }
            // Displacements of this size decide little here.
            let images = images(config, self, &shell, &own, [0.0; 2]).len();
            let parts = images.div_ceil(images_at_once(count)) as u64;
            // The state is copied once; the greatest displacement is sought; for each part of the
            // replicas displacements are read, numbers are written and summed, and what crosses is
            // read and written.
            device += count * (2 * 24 + 24 + parts * (24 + 4 + 12 + 8));
            steps += 1;
        }
        let rows = ROW as u64 * 4;
        device += crossed * (2 * rows + 48);
        let crossing = count * (2 * 24 + 8) + rows_at_once(count) * rows;
        Ok(ConeForecast {
            particles,
            crossing: Cost {
                device_bytes: device,
                memory_bytes: crossing.max(sorting(crossed, shares.ranks())),
                ..Cost::default()
            },
            state_memory: count * 24,
            host_memory: crossed * rows,
            steps,
        })
    }
}

/// Returns the bytes of device memory for sorting `rows` rows of a rank: keys and their order,
/// twice with other ranks; then rows, or some words of each, before and after the move, and on
/// several ranks in transit.
fn sorting(rows: u64, ranks: usize) -> u64 {
    let (ordering, arrays) = if ranks == 1 { (31, 2) } else { (51, 4) };
    let moving = 8 + 4 * arrays * words_at_once(rows, AT_ONCE) as u64;
    rows * moving.max(ordering)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;
    use crate::pm::light_cone::Opening;

    #[test]
    fn a_forecast_counts_the_volume() {
        let config = Config { particles: 8, mesh: 8, box_size: 100.0, a_start: 0.5, steps: 4, ..Config::default() };
        let cone = || Cone { observer: [10.0, 50.0, 100.0], distance: 400.0, opening: None };
        let whole = cone().forecast(&config, 1).unwrap();
        let density = 512.0 / 1e6;
        assert_eq!(whole.particles, (density * 4.0 / 3.0 * PI * 400f64.powi(3)) as u64);
        let half = Cone { opening: Some(Opening { direction: [0.0, 0.0, 1.0], angle: 90.0 }), ..cone() };
        let half = half.forecast(&config, 2).unwrap();
        assert!(
            half.particles.abs_diff(whole.particles / 2) <= 1
                && half.crossing.memory_bytes < whole.crossing.memory_bytes
        );
        // 400 Mpc/h are a = 0.88: the last of four steps from 0.5.
        assert_eq!((whole.steps, half.steps), (1, 1));
    }

    #[test]
    fn a_cone_that_no_rank_can_number_is_refused_before_the_run() {
        let config = Config { particles: 1024, mesh: 1024, box_size: 1024.0, a_start: 0.1, ..Config::default() };
        // 1.4e11 particles.
        let cone = Cone { observer: [0.0; 3], distance: 3200.0, opening: None };
        let refused = cone.forecast(&config, 16).unwrap_err().to_string();
        assert!(refused.contains("on a rank") && refused.contains("more ranks"), "{refused}");
        let many = cone.forecast(&config, 64).unwrap();
        assert!(many.crossing.memory_bytes > many.particles / 64 * 31 && many.state_memory == 24 << 24);
    }
}
