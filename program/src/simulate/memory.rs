//! Forecast of the device memory of a run with its light cone and its groups, which follow the
//! steps.

use meshloom::cluster::Machine;
use meshloom::cosmology::Scheme;
use meshloom::gpu::bytes;
use meshloom::grid::{Grid, Shares};
use meshloom::pm::{ConeForecast, Config, RunForecast, SimulationError};
use meshloom::points::fof;
use meshloom::{Error, Rank};

use super::parameters::RunParameters;

/// A run with its light cone, before there is one.
pub struct Forecast {
    pub run: RunForecast,
    pub cone: Option<ConeForecast>,
    /// Bytes of device memory of the largest rank while groups are looked for: without the
    /// particles of the run, which are on the host then.
    pub groups: Option<u64>,
}

impl Forecast {
    /// Forecasts the memory of `config`, which is that of `parameters`, on ranks of `machine`, for
    /// the rank with the most cells.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn largest(
        parameters: &RunParameters,
        config: &Config,
        shares: Shares,
        machine: &Machine,
    ) -> Result<Self, SimulationError> {
        let grid = config.grid_on(shares, machine)?;
        Self::new(parameters, config, grid, grid.largest(config.cells()), machine)
    }

    /// Forecasts the memory of `config`, which is that of `parameters`, for `rank` of `grid` on
    /// `machine`.
    ///
    /// # Errors
    /// [`SimulationError`] of parameters out of range.
    pub fn new(
        parameters: &RunParameters,
        config: &Config,
        grid: Grid,
        rank: usize,
        machine: &Machine,
    ) -> Result<Self, SimulationError> {
        let (config, shares) = (Config { grid: Some(grid.parts()), ..config.clone() }, grid.shares());
        let run = config.forecast_rank(shares, rank, machine)?;
        let cone = parameters.light_cone.as_ref().map(|cone| cone.forecast_rank(&config, shares, rank)).transpose()?;
        let groups = parameters.linking.map(|_| groups(&config, cone.as_ref(), shares, rank));
        Ok(Forecast { run, cone, groups })
    }

    /// Returns the maximum bytes of device memory before the search for groups, with the light
    /// cone.
    pub fn run_memory(&self) -> u64 {
        let RunForecast { particle_memory, start, stepping, .. } = self.run;
        let (state, crossing) = self.cone.map_or((0, 0), |cone| (cone.state_memory, cone.crossing.memory_bytes));
        particle_memory + start.memory_bytes.max(stepping.memory_bytes + state).max(crossing)
    }

    /// Refuses a run that could not end on the device of `rank`: what comes after the steps
    /// would fail.
    ///
    /// # Errors
    /// [`SimulationError::Memory`].
    pub fn check(&self, rank: &Rank) -> Result<(), Error> {
        let sharing = rank.sharing;
        let Some(available) = rank.memory_share() else { return Ok(()) };
        let groups = "to find groups after the steps; without them, with --linking-length 0, it needs less".to_string();
        let cone = self
            .cone
            .map(|cone| (self.run_memory(), format!("{} for the light cone", bytes(cone.crossing.memory_bytes))));
        let needs = self.groups.map(|needed| (needed, groups)).into_iter().chain(cone);
        match needs.max_by_key(|(needed, _)| *needed).filter(|(needed, _)| *needed > available) {
            Some((needed, detail)) => Err(SimulationError::Memory { needed, detail, available, sharing }.into()),
            None => Ok(()),
        }
    }
}

/// Returns the bytes of device memory for the groups of a run's particles, and of those on its
/// light cone.
fn groups(config: &Config, cone: Option<&ConeForecast>, shares: Shares, rank: usize) -> u64 {
    let total = config.particles.pow(3);
    // What a run holds for its next step at a snapshot: the force, where that begins with a kick,
    // and the beginning of the light cone's step.
    let force = if config.scheme == Scheme::FastPm { 12 * shares.len_of(config.mesh.pow(3), rank) } else { 0 };
    let held = if config.snapshots.is_empty() { 0 } else { force + cone.map_or(0, |cone| cone.state_memory) };
    let in_box = held + fof::device_memory(shares.len_of(total, rank), total);
    // Points of the cone have scale factors, too.
    let on_cone = cone.map_or(0, |cone| {
        let points = shares.len_of(cone.particles, rank);
        fof::device_memory(points, cone.particles) + 8 * points
    });
    in_box.max(on_cone)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::simulate::options::{Arguments, RunOptions};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn forecast(words: &[&str], ranks: usize) -> Forecast {
        let line = Line::parse_from([&["simulate", "--out", "out"], words].concat());
        let parameters =
            RunOptions::gather(&line.arguments).and_then(|options| RunParameters::new(line.arguments.out(), options));
        let Ok(parameters) = parameters else { panic!("{words:?}") };
        Forecast::largest(&parameters, &parameters.config(None), ranks.into(), &Machine::default()).unwrap()
    }

    /// A run of 1024^3 particles on a mesh of as many cells fits a card of 80 GB, groups and all.
    #[test]
    fn groups_are_counted_and_fit_where_the_run_does() {
        let run = ["--particles", "1024", "--mesh", "1024", "--box", "1000"];
        let one = forecast(&run, 1);
        let (groups, sites) = (one.groups.unwrap(), 1024u64.pow(3));
        assert!((55 * sites..72 * sites).contains(&groups), "{groups}");
        assert!(one.run_memory() < 79 << 30 && one.run_memory() == one.run.memory());
        assert_eq!(forecast(&[&run[..], &["--linking-length", "0"]].concat(), 1).groups, None);
        // Several ranks hold what they gave and what they got.
        assert!(forecast(&run, 2).groups.unwrap() > groups * 3 / 4);
        let early = [&run[..], &["--snapshots", "0.5", "--scheme", "fastpm"]].concat();
        assert_eq!(forecast(&early, 1).groups, Some(groups + 12 * sites));
    }
}
