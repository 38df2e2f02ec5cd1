//! Leaves of spaces: where the values of one field are, and what they are.
//!
//! Values at the cells or modes of a regular grid, at points, or a small vector that every rank has.

use std::fmt;

use super::point_numbers::{PointNumbers, PointOrder};
use crate::fft::Values;
use crate::grid::{Box3, FieldLayout, Grid, split, volume};

/// A regular, periodic grid, cut over the ranks of a process grid. A grid of fewer axes has one cell along the first ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RegularGrid {
    /// Cells along each axis, of all ranks.
    pub shape: [u64; 3],
    /// Length of the box along each axis, in the caller's unit.
    pub size: [f64; 3],
    /// How it is cut over ranks.
    pub grid: Grid,
    /// This rank.
    pub rank: usize,
}

impl RegularGrid {
    /// Distances between neighbouring cells, by axis.
    pub fn distances(&self) -> [f64; 3] {
        [0, 1, 2].map(|a| self.size[a] / self.shape[a] as f64)
    }

    /// Volume of a cell.
    pub fn cell_volume(&self) -> f64 {
        self.distances().iter().product()
    }

    /// Cells of all ranks.
    pub fn cells(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, &n| product.saturating_mul(n))
    }

    /// The cells of this rank.
    pub fn part(&self) -> Box3 {
        self.grid.part(self.shape, self.rank)
    }

    /// Whether this rank has the cell.
    pub fn owns(&self, cell: [u64; 3]) -> bool {
        self.part().iter().zip(cell).all(|(range, at)| range.contains(&at))
    }

    /// The layout of this rank's cells with `ghosts`.
    pub fn layout(&self, ghosts: [[u64; 2]; 3]) -> FieldLayout {
        FieldLayout::new(self.part(), ghosts)
    }

    /// The modes of this rank, as a [`Transform`](crate::fft::Transform) leaves them: the first axis whole, the second and third cut.
    pub fn modes(&self, half: bool) -> Box3 {
        let [n0, n1, n2] = self.shape;
        let ([p0, p1], [i, j]) = (self.grid.parts(), self.grid.at(self.rank));
        let last = if half { n2 / 2 + 1 } else { n2 };
        [0..n0, split(n1, p0 as u64, i as u64), split(last, p1 as u64, j as u64)]
    }
}

/// Where the values of a leaf are.
#[derive(Clone, Debug, PartialEq)]
pub enum Support {
    /// At the cells of a grid; with the ghosts of this rank, if it has any.
    Cells {
        /// The grid.
        regular: RegularGrid,
        /// Ghost cells below and above this rank's, by axis.
        ghosts: [[u64; 2]; 3],
    },
    /// At the modes of a grid, cut as [`RegularGrid::modes`] says; mode `m` stands at `m mod n`.
    Modes {
        /// The grid whose modes they are.
        regular: RegularGrid,
        /// Whether the last axis has modes `0..=n/2` only, those of a real field.
        half: bool,
    },
    /// At points, each on one rank.
    Points {
        /// Points of this rank.
        own: u64,
        /// Points of all ranks.
        total: u64,
        /// Which of all points they are.
        order: PointOrder,
    },
    /// A small vector on the device, the same on every rank.
    Vector {
        /// Its length.
        len: u64,
    },
    /// Numbers in f64 on the host, the same on every rank.
    Parameters {
        /// How many.
        len: u64,
    },
}

/// One field of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// Where its values are.
    pub support: Support,
    /// Whether a value is real or complex.
    pub values: Values,
    /// Values at one place: the components of a vector.
    pub components: u32,
    /// How many of these fields lie one after the other: samples, for example.
    pub batch: u64,
}

impl Leaf {
    fn real(support: Support) -> Self {
        Leaf { support, values: Values::Real, components: 1, batch: 1 }
    }

    /// Real numbers at the cells of a grid.
    pub fn cells(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Cells { regular: regular.clone(), ghosts: [[0; 2]; 3] })
    }

    /// The half spectrum of a real field: complex numbers.
    pub fn half_spectrum(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Modes { regular: regular.clone(), half: true }).complex()
    }

    /// Real numbers at all modes of a grid: what a Hartley transform gives.
    pub fn modes(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Modes { regular: regular.clone(), half: false })
    }

    /// Real numbers at `own` points of this rank, of `total` on all ranks, who have them one rank after the other ([`PointOrder::Ranks`]). What operators give at
    /// points ([`Readout`](super::Readout), [`Select`](super::Select)) is at numbered ones: take the leaf of their target.
    pub fn points(own: u64, total: u64) -> Self {
        Leaf::real(Support::Points { own, total, order: PointOrder::Ranks })
    }

    /// Real numbers at the points of this rank with these numbers, of `total` on all ranks.
    pub fn numbered_points(numbers: PointNumbers, total: u64) -> Self {
        Leaf::real(Support::Points { own: numbers.get().len() as u64, total, order: PointOrder::Numbers(numbers) })
    }

    /// A vector on the device that every rank has.
    pub fn vector(len: u64) -> Self {
        Leaf::real(Support::Vector { len })
    }

    /// Numbers on the host that every rank has.
    pub fn parameters(len: u64) -> Self {
        Leaf::real(Support::Parameters { len })
    }

    /// The same with complex values.
    #[must_use]
    pub fn complex(mut self) -> Self {
        self.values = Values::Complex;
        self
    }

    /// The same with so many components at each place. They lie one after the other, each a whole field.
    #[must_use]
    pub fn components(mut self, components: u32) -> Self {
        self.components = components;
        self
    }

    /// The same for so many fields at once, one after the other.
    #[must_use]
    pub fn batch(mut self, batch: u64) -> Self {
        self.batch = batch;
        self
    }

    /// The same with ghost cells; of cells only.
    #[must_use]
    pub fn ghosts(mut self, widths: [[u64; 2]; 3]) -> Self {
        if let Support::Cells { ghosts, .. } = &mut self.support {
            *ghosts = widths;
        }
        self
    }

    /// The grid, of cells and modes.
    pub fn regular(&self) -> Option<&RegularGrid> {
        match &self.support {
            Support::Cells { regular, .. } | Support::Modes { regular, .. } => Some(regular),
            _ => None,
        }
    }

    /// Places of this rank: cells, modes, points or entries.
    pub fn places(&self) -> u64 {
        match &self.support {
            Support::Cells { regular, ghosts } => regular.layout(*ghosts).len(),
            Support::Modes { regular, half } => volume(&regular.modes(*half)),
            Support::Points { own, .. } => *own,
            Support::Vector { len } | Support::Parameters { len } => *len,
        }
    }

    /// Fields of one value per place: components times batch.
    pub fn fields(&self) -> u64 {
        self.batch.saturating_mul(u64::from(self.components))
    }

    /// Numbers of a value: 1, or 2 of a complex one.
    pub fn numbers(&self) -> u64 {
        if self.values == Values::Complex { 2 } else { 1 }
    }

    /// Real numbers of this rank.
    pub fn len(&self) -> u64 {
        self.places().saturating_mul(self.fields()).saturating_mul(self.numbers())
    }

    /// Whether this rank has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Real numbers of all ranks, ghosts included.
    pub fn total(&self) -> u64 {
        let product = |n: [u64; 3]| n.into_iter().fold(1, u64::saturating_mul);
        let places = match &self.support {
            Support::Cells { regular, ghosts } => product(
                [0, 1, 2].map(|a| regular.shape[a] + regular.grid.along(a) as u64 * (ghosts[a][0] + ghosts[a][1])),
            ),
            Support::Modes { regular: RegularGrid { shape: [n0, n1, n2], .. }, half } => {
                product([*n0, *n1, if *half { n2 / 2 + 1 } else { *n2 }])
            }
            Support::Points { total, .. } => *total,
            Support::Vector { len } | Support::Parameters { len } => *len,
        };
        places.saturating_mul(self.fields()).saturating_mul(self.numbers())
    }

    /// Whether each rank has a part of it; otherwise every rank has the whole.
    pub fn is_distributed(&self) -> bool {
        !matches!(self.support, Support::Vector { .. } | Support::Parameters { .. })
    }

    /// What is wrong with it, if anything is.
    pub(super) fn fault(&self) -> Option<String> {
        if self.components == 0 || self.batch == 0 {
            return Some(format!("{} components in a batch of {}; both are 1 at least", self.components, self.batch));
        }
        let RegularGrid { shape, size, grid, rank } = self.regular()?;
        if shape.contains(&0) || size.iter().any(|length| !(length.is_finite() && *length > 0.0)) {
            return Some(format!("a grid of {shape:?} cells and size {size:?}; every axis needs cells and a length"));
        }
        (*rank >= grid.ranks()).then(|| format!("rank {rank} of a process grid of {} ranks", grid.ranks()))
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.support {
            Support::Cells { regular: RegularGrid { shape: [i, j, k], grid, .. }, ghosts } => {
                write!(f, "cells of {i} x {j} x {k} over {grid} ranks")?;
                if *ghosts != [[0; 2]; 3] {
                    write!(f, " with ghosts {ghosts:?}")?;
                }
            }
            Support::Modes { regular: RegularGrid { shape: [i, j, k], grid, .. }, half } => {
                write!(f, "{} of {i} x {j} x {k} over {grid} ranks", if *half { "half spectrum" } else { "modes" })?;
            }
            Support::Points { own, total, order } => {
                let kind = match order {
                    PointOrder::Ranks => "points",
                    PointOrder::Numbers(_) => "numbered points",
                };
                write!(f, "{own} of {total} {kind}")?;
            }
            Support::Vector { len } => write!(f, "vector of {len}")?,
            Support::Parameters { len } => write!(f, "{len} parameters")?,
        }
        match (self.values, self.components) {
            (Values::Real, 1) => {}
            (Values::Real, components) => write!(f, ", {components} components")?,
            (Values::Complex, 1) => write!(f, ", complex")?,
            (Values::Complex, components) => write!(f, ", {components} complex components")?,
        }
        if self.batch > 1 { write!(f, ", batch of {}", self.batch) } else { Ok(()) }
    }
}
