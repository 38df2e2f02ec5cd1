//! Leaves of spaces: values at the cells or modes of a regular grid, at points, or in a small
//! vector.

use std::fmt;

use super::point_numbers::{PointNumbers, PointOrder};
use crate::fft::Values;
use crate::grid::{Box3, FieldLayout, Grid, Mesh, split, volume};

/// A regular, periodic grid, distributed over a process grid. Fewer axes are padded in front by 1.
#[derive(Clone, Debug, PartialEq)]
pub struct RegularGrid {
    /// Number of cells along each axis, of all ranks.
    pub shape: [u64; 3],
    /// Side lengths of the box in the caller's unit; positive.
    pub size: [f64; 3],
    /// The process grid.
    pub grid: Grid,
    /// The number of this rank.
    pub rank: usize,
}

impl From<&Mesh> for RegularGrid {
    /// Takes the cells, the box and the process grid of a mesh; its ghost cells are left out.
    fn from(mesh: &Mesh) -> Self {
        RegularGrid { shape: mesh.shape(), size: mesh.size(), grid: mesh.grid(), rank: mesh.rank() }
    }
}

impl RegularGrid {
    /// Returns the distance of neighboring cells along each axis.
    #[must_use]
    pub fn distances(&self) -> [f64; 3] {
        [0, 1, 2].map(|a| self.size[a] / self.shape[a] as f64)
    }

    /// Returns the volume of a cell.
    #[must_use]
    pub fn cell_volume(&self) -> f64 {
        self.distances().iter().product()
    }

    /// Returns the number of cells of all ranks.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, &n| product.saturating_mul(n))
    }

    /// Returns the cells of this rank.
    #[must_use]
    pub fn part(&self) -> Box3 {
        self.grid.part(self.shape, self.rank)
    }

    /// Returns `true` if this rank owns the cell.
    #[must_use]
    pub fn owns(&self, cell: [u64; 3]) -> bool {
        self.part().iter().zip(cell).all(|(range, at)| range.contains(&at))
    }

    /// Returns the layout of this rank's cells with `ghosts`.
    #[must_use]
    pub fn layout(&self, ghosts: [[u64; 2]; 3]) -> FieldLayout {
        FieldLayout::new(self.part(), ghosts)
    }

    /// Returns the modes of this rank, as a [`Transform`](crate::fft::Transform) leaves them: the
    /// second and third axis are cut.
    #[must_use]
    pub fn modes(&self, half: bool) -> Box3 {
        let [n0, n1, n2] = self.shape;
        let ([p0, p1], [i, j]) = (self.grid.parts(), self.grid.at(self.rank));
        let last = if half { n2 / 2 + 1 } else { n2 };
        [0..n0, split(n1, p0 as u64, i as u64), split(last, p1 as u64, j as u64)]
    }
}

/// The places of the values of a leaf.
#[derive(Clone, Debug, PartialEq)]
pub enum Support {
    /// The cells of a grid, with ghost cells of this rank.
    Cells {
        /// The grid.
        regular: RegularGrid,
        /// Ghost cells below and above the cells of this rank, by axis.
        ghosts: [[u64; 2]; 3],
    },
    /// The modes of a grid ([`RegularGrid::modes`]); mode `m` has index `m mod n`.
    Modes {
        /// The grid.
        regular: RegularGrid,
        /// Whether the last axis has only the modes `0..=n/2` of a real field.
        half: bool,
    },
    /// Points, each on one rank.
    Points {
        /// Number of points of this rank.
        own: u64,
        /// Number of points of all ranks.
        total: u64,
        /// The order among the points of all ranks.
        order: PointOrder,
    },
    /// A small vector on the device, the same on every rank.
    Vector {
        /// Number of entries.
        len: u64,
    },
    /// Parameters in f64 on the host, the same on every rank.
    Parameters {
        /// Number of parameters.
        len: u64,
    },
}

/// One named field of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// The places of the values.
    pub support: Support,
    /// Whether a value is real or complex.
    pub values: Values,
    /// Number of values at one place.
    pub components: u32,
    /// Number of fields in sequence, such as samples.
    pub batch: u64,
}

impl Leaf {
    fn real(support: Support) -> Self {
        Leaf { support, values: Values::Real, components: 1, batch: 1 }
    }

    /// Creates a real leaf at the cells of a grid.
    #[must_use]
    pub fn cells(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Cells { regular: regular.clone(), ghosts: [[0; 2]; 3] })
    }

    /// Creates a complex leaf at the half spectrum of real fields.
    #[must_use]
    pub fn half_spectrum(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Modes { regular: regular.clone(), half: true }).complex()
    }

    /// Creates a real leaf at all modes of a grid, for Hartley transforms.
    #[must_use]
    pub fn modes(regular: &RegularGrid) -> Self {
        Leaf::real(Support::Modes { regular: regular.clone(), half: false })
    }

    /// Creates a real leaf at `own` of `total` points, in the order of ranks
    /// ([`PointOrder::Ranks`]). [`Readout`](super::Readout) and [`Select`](super::Select) have
    /// numbered points: take the leaf of their target.
    #[must_use]
    pub fn points(own: u64, total: u64) -> Self {
        Leaf::real(Support::Points { own, total, order: PointOrder::Ranks })
    }

    /// Creates a real leaf at numbered points of this rank, of `total` on all ranks.
    #[must_use]
    pub fn numbered_points(numbers: PointNumbers, total: u64) -> Self {
        Leaf::real(Support::Points { own: numbers.get().len() as u64, total, order: PointOrder::Numbers(numbers) })
    }

    /// Creates a vector on the device that is equal on all ranks.
    #[must_use]
    pub fn vector(len: u64) -> Self {
        Leaf::real(Support::Vector { len })
    }

    /// Creates parameters on the host that are equal on all ranks.
    #[must_use]
    pub fn parameters(len: u64) -> Self {
        Leaf::real(Support::Parameters { len })
    }

    /// Makes the values complex.
    #[must_use]
    pub fn complex(mut self) -> Self {
        self.values = Values::Complex;
        self
    }

    /// Sets the number of components at each place; each is a whole field in memory.
    #[must_use]
    pub fn components(mut self, components: u32) -> Self {
        self.components = components;
        self
    }

    /// Sets the number of fields in sequence.
    #[must_use]
    pub fn batch(mut self, batch: u64) -> Self {
        self.batch = batch;
        self
    }

    /// Sets the ghost widths of a leaf at cells.
    #[must_use]
    pub fn ghosts(mut self, widths: [[u64; 2]; 3]) -> Self {
        if let Support::Cells { ghosts, .. } = &mut self.support {
            *ghosts = widths;
        }
        self
    }

    /// Returns the grid of cells or modes.
    #[must_use]
    pub fn regular(&self) -> Option<&RegularGrid> {
        match &self.support {
            Support::Cells { regular, .. } | Support::Modes { regular, .. } => Some(regular),
            _ => None,
        }
    }

    /// Returns the number of places of this rank: cells, modes, points or entries.
    #[must_use]
    pub fn places(&self) -> u64 {
        match &self.support {
            Support::Cells { regular, ghosts } => regular.layout(*ghosts).len(),
            Support::Modes { regular, half } => volume(&regular.modes(*half)),
            Support::Points { own, .. } => *own,
            Support::Vector { len } | Support::Parameters { len } => *len,
        }
    }

    /// Returns the number of fields with one value per place: components times batch.
    #[must_use]
    pub fn fields(&self) -> u64 {
        self.batch.saturating_mul(u64::from(self.components))
    }

    /// Returns the numbers per value: 1 for real, 2 for complex values.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        if self.values == Values::Complex { 2 } else { 1 }
    }

    /// Returns the number of real numbers of this rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.places().saturating_mul(self.fields()).saturating_mul(self.numbers())
    }

    /// Returns `true` if this rank has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of real numbers of all ranks, ghost cells included.
    #[must_use]
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

    /// Returns `true` if each rank has a part, `false` if each has the whole.
    #[must_use]
    pub fn is_distributed(&self) -> bool {
        !matches!(self.support, Support::Vector { .. } | Support::Parameters { .. })
    }

    /// Returns the reason why the leaf is invalid, if it is.
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
