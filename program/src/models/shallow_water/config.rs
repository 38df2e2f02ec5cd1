//! Parameters of a run, their ranges, and what follows from them without a device.

use super::ShallowWaterError;
use meshloom::grid::{Grid, LayoutError, Shares};
use serde::Serialize;

/// A run of the shallow-water model: a channel, periodic in x, between walls in the south and
/// north. SI units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShallowWaterConfig {
    /// Columns (x) and rows (y).
    pub cells: [u64; 2],
    /// Sides of a cell, in m.
    pub spacing: [f64; 2],
    /// Acceleration by gravity, in m/s^2.
    pub gravity: f64,
    /// Mean depth, in m.
    pub depth: f64,
    /// The Coriolis parameter at the southern row, in 1/s, and its growth to the north, in 1/(m s).
    pub coriolis: [f64; 2],
    /// Lateral viscosity, in m^2/s.
    pub viscosity: f64,
    /// Repeats two mistakes of mpi4jax's example, as that runs on one rank: friction of v from
    /// differences to u, and ghost columns that are not filled again after friction.
    pub compatible: bool,
    /// The process grid: parts along y and x; chosen by [`process_grid`](Self::process_grid)
    /// otherwise.
    #[serde(skip)]
    pub grid: Option<[usize; 2]>,
}

impl Default for ShallowWaterConfig {
    fn default() -> Self {
        ShallowWaterConfig {
            cells: [360, 180],
            spacing: [5e3; 2],
            gravity: 9.81,
            depth: 100.0,
            coriolis: [2e-4, 2e-11],
            viscosity: 5.0,
            compatible: false,
            grid: None,
        }
    }
}

/// Part of the time in which a gravity wave crosses a cell that a step takes.
const COURANT: f64 = 0.125;

/// Weights of this tendency and of the last: Adams-Bashforth's, 3/2 and -1/2, with a tenth more of
/// damping.
const ADAMS_BASHFORTH: [f64; 2] = [1.6, -0.6];

/// Longest axis.
const LONGEST_AXIS: u64 = 1 << 24;

/// Names in kernels of the numbers that they know a run by: g / dx, g / dy, 1 / dx, 1 / dy, the
/// depth at rest and half of g; what is added of this tendency and of the one before; of friction
/// along x and y; the Coriolis parameter of the first row of the grid, and its growth from row to
/// row.
pub(super) const NAMES: [&str; 12] = [
    "gravity_x",
    "gravity_y",
    "per_dx",
    "per_dy",
    "depth",
    "half_gravity",
    "this_tendency",
    "last_tendency",
    "friction_x",
    "friction_y",
    "coriolis",
    "coriolis_growth",
];

/// Numbers that kernels know a run by, in the order of [`NAMES`].
pub(super) type Coefficients = [f64; NAMES.len()];

impl ShallowWaterConfig {
    /// Checks the parameters.
    ///
    /// # Errors
    /// [`ShallowWaterError::OutOfRange`].
    pub fn validate(&self) -> Result<(), ShallowWaterError> {
        let range = |what: &'static str, value: f64, ok: bool, allowed: &'static str| {
            if ok { Ok(()) } else { Err(ShallowWaterError::OutOfRange { what, value, allowed }) }
        };
        let [nx, ny] = self.cells;
        range("number of columns", nx as f64, (4..=LONGEST_AXIS).contains(&nx), "from 4 to 2^24")?;
        range("number of rows", ny as f64, (2..=LONGEST_AXIS).contains(&ny), "from 2 to 2^24")?;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for spacing in self.spacing {
            range("side of a cell", spacing, positive(spacing), "above 0 m")?;
        }
        range("gravity", self.gravity, positive(self.gravity), "above 0 m/s^2")?;
        range("depth", self.depth, positive(self.depth), "above 0 m")?;
        range("Coriolis parameter", self.coriolis[0], self.coriolis[0].is_finite(), "a finite number")?;
        range("growth of the Coriolis parameter", self.coriolis[1], self.coriolis[1].is_finite(), "a finite number")?;
        // More makes the explicit friction grow what it should damp.
        let most = self.spacing.map(|side| side * side / (8.0 * self.time_step()));
        let ok = self.viscosity >= 0.0 && most.iter().all(|most| self.viscosity <= *most);
        range("viscosity", self.viscosity, ok, "from 0 to an eighth of a cell's side squared over a time step")
    }

    /// Seconds of a step.
    #[must_use]
    pub fn time_step(&self) -> f64 {
        COURANT * self.spacing[0].min(self.spacing[1]) / (self.gravity * self.depth).sqrt()
    }

    /// Cells in the order of arrays: rows, columns, and one layer.
    #[must_use]
    pub fn shape(&self) -> [u64; 3] {
        [self.cells[1], self.cells[0], 1]
    }

    /// Returns the process grid of a run on a number of ranks, or on ranks with [`Shares`]: that of
    /// the configuration, or the one with the fewest ghost cells on a rank. Axis 0 is y.
    ///
    /// # Errors
    /// [`LayoutError::Grid`] if the configuration's has another number of ranks.
    pub fn process_grid(&self, ranks: impl Into<Shares>) -> Result<Grid, LayoutError> {
        let shares = ranks.into();
        if let Some(parts) = self.grid {
            return Grid::new(parts, shares);
        }
        let ranks = shares.ranks();
        let [nx, ny] = self.cells;
        let ghosts = |&[p0, p1]: &[usize; 2]| {
            let along = |n: u64, parts: usize, across: u64| if parts > 1 { n.div_ceil(across) } else { 0 };
            // Rows above and below if y is cut, and columns at either side if x is.
            let cells = along(nx, p0, p1 as u64) + along(ny, p1, p0 as u64);
            // Parts without cells do nothing.
            (p0 as u64 > ny || p1 as u64 > nx, cells, p1)
        };
        let grids = (1..=ranks).filter(|p1| ranks.is_multiple_of(*p1)).map(|p1| [ranks / p1, p1]);
        Grid::new(grids.min_by_key(ghosts).unwrap_or([ranks, 1]), shares)
    }

    /// Returns the coefficients of the first step, which is Euler's and has no friction before it,
    /// and of all others.
    pub(super) fn coefficients(&self) -> [Coefficients; 2] {
        let ([dx, dy], dt) = (self.spacing, self.time_step());
        let of = |[this, last]: [f64; 2], viscosity: f64| {
            [
                self.gravity / dx,
                self.gravity / dy,
                1.0 / dx,
                1.0 / dy,
                self.depth,
                0.5 * self.gravity,
                dt * this,
                dt * last,
                dt * viscosity / (dx * dx),
                dt * viscosity / (dy * dy),
                self.coriolis[0],
                self.coriolis[1] * dy,
            ]
        };
        [of([1.0, 0.0], 0.0), of(ADAMS_BASHFORTH, self.viscosity)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_demo_of_the_field() {
        let config = ShallowWaterConfig::default();
        config.validate().unwrap();
        assert!((config.time_step() - 19.954_714_275_440_654).abs() < 1e-14);
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        type Change = fn(&mut ShallowWaterConfig);
        let changes: [(Change, &str); 6] = [
            (|c| c.cells = [3, 10], "number of columns is 3"),
            (|c| c.cells = [10, 1], "number of rows is 1"),
            (|c| c.spacing[1] = 0.0, "side of a cell is 0"),
            (|c| c.depth = f64::NAN, "depth is NaN"),
            (|c| c.coriolis[0] = f64::INFINITY, "Coriolis parameter is inf"),
            (|c| c.viscosity = 1e9, "viscosity is 1000000000"),
        ];
        for (change, word) in changes {
            let mut config = ShallowWaterConfig::default();
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn process_grids_have_short_borders_and_no_empty_parts() {
        let parts = |cells: [u64; 2], ranks: usize| {
            let config = ShallowWaterConfig { cells, ..ShallowWaterConfig::default() };
            config.process_grid(ranks).unwrap().parts()
        };
        assert_eq!(parts([360, 180], 1), [1, 1]);
        // Columns are shorter than rows.
        assert_eq!(parts([360, 180], 2), [1, 2]);
        assert_eq!(parts([180, 360], 2), [2, 1]);
        assert_eq!(parts([360, 180], 8), [2, 4]);
        assert_eq!(parts([3600, 1800], 1000), [25, 40]);
        assert_eq!(parts([1000, 2], 7), [1, 7]);
        let fixed = ShallowWaterConfig { grid: Some([2, 3]), ..ShallowWaterConfig::default() };
        assert_eq!(fixed.process_grid(6).unwrap().parts(), [2, 3]);
        assert!(fixed.process_grid(4).is_err());
    }
}
