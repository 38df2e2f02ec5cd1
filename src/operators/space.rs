//! Spaces: where fields live, as trees of named leaves.
//!
//! A *leaf* is one field: values at the cells or modes of a regular grid, at points, or a small vector that every rank has. A *space* is
//! leaves with names; a name may have parts (`prior/slope`), which makes the tree. Everything here is pure data for one rank, so whether
//! operators fit is known when they are composed.

use std::fmt;
use std::sync::Arc;

use super::error::OperatorError;
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
pub enum Domain {
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
    pub domain: Domain,
    /// Whether a value is real or complex.
    pub values: Values,
    /// Values at one place: the components of a vector.
    pub components: u32,
    /// How many of these fields lie one after the other: samples, for example.
    pub batch: u64,
}

impl Leaf {
    fn real(domain: Domain) -> Self {
        Leaf { domain, values: Values::Real, components: 1, batch: 1 }
    }

    /// Real numbers at the cells of a grid.
    pub fn cells(regular: &RegularGrid) -> Self {
        Leaf::real(Domain::Cells { regular: regular.clone(), ghosts: [[0; 2]; 3] })
    }

    /// The half spectrum of a real field: complex numbers.
    pub fn half_spectrum(regular: &RegularGrid) -> Self {
        Leaf::real(Domain::Modes { regular: regular.clone(), half: true }).complex()
    }

    /// Real numbers at all modes of a grid: what a Hartley transform gives.
    pub fn modes(regular: &RegularGrid) -> Self {
        Leaf::real(Domain::Modes { regular: regular.clone(), half: false })
    }

    /// Real numbers at `own` points of this rank, of `total` on all ranks.
    pub fn points(own: u64, total: u64) -> Self {
        Leaf::real(Domain::Points { own, total })
    }

    /// A vector on the device that every rank has.
    pub fn vector(len: u64) -> Self {
        Leaf::real(Domain::Vector { len })
    }

    /// Numbers on the host that every rank has.
    pub fn parameters(len: u64) -> Self {
        Leaf::real(Domain::Parameters { len })
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
        if let Domain::Cells { ghosts, .. } = &mut self.domain {
            *ghosts = widths;
        }
        self
    }

    /// The grid, of cells and modes.
    pub fn regular(&self) -> Option<&RegularGrid> {
        match &self.domain {
            Domain::Cells { regular, .. } | Domain::Modes { regular, .. } => Some(regular),
            _ => None,
        }
    }

    /// Places of this rank: cells, modes, points or entries.
    pub fn places(&self) -> u64 {
        match &self.domain {
            Domain::Cells { regular, ghosts } => regular.layout(*ghosts).len(),
            Domain::Modes { regular, half } => volume(&regular.modes(*half)),
            Domain::Points { own, .. } => *own,
            Domain::Vector { len } | Domain::Parameters { len } => *len,
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

    /// Whether each rank has a part of it; otherwise every rank has the whole.
    pub fn is_distributed(&self) -> bool {
        !matches!(self.domain, Domain::Vector { .. } | Domain::Parameters { .. })
    }

    /// What is wrong with it, if anything is.
    fn fault(&self) -> Option<String> {
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
        match &self.domain {
            Domain::Cells { regular: RegularGrid { shape: [i, j, k], grid, .. }, ghosts } => {
                write!(f, "cells of {i} x {j} x {k} over {grid} ranks")?;
                if *ghosts != [[0; 2]; 3] {
                    write!(f, " with ghosts {ghosts:?}")?;
                }
            }
            Domain::Modes { regular: RegularGrid { shape: [i, j, k], grid, .. }, half } => {
                write!(f, "{} of {i} x {j} x {k} over {grid} ranks", if *half { "half spectrum" } else { "modes" })?;
            }
            Domain::Points { own, total } => write!(f, "{own} of {total} points")?,
            Domain::Vector { len } => write!(f, "vector of {len}")?,
            Domain::Parameters { len } => write!(f, "{len} parameters")?,
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

/// Leaves with names, in the order of the names. A clone is cheap.
///
/// ```
/// use meshloom::grid::Grid;
/// use meshloom::operators::{Leaf, RegularGrid, Space};
///
/// let regular = RegularGrid { shape: [1, 8, 8], size: [1.0, 2.0, 2.0], grid: Grid::new([1, 1], 1)?, rank: 0 };
/// let latent = Space::new([("xi", Leaf::modes(&regular)), ("spectrum/slope", Leaf::vector(1))])?;
/// assert_eq!(latent.leaf("xi").unwrap().len(), 64);
/// assert_eq!(latent.names().collect::<Vec<_>>(), ["spectrum/slope", "xi"]);
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    leaves: Arc<[(String, Leaf)]>,
}

impl Space {
    /// A space of these leaves.
    ///
    /// # Errors
    /// [`OperatorError::Space`] for an empty or repeated name, a leaf without components, or a grid without cells or length.
    pub fn new<N: Into<String>>(leaves: impl IntoIterator<Item = (N, Leaf)>) -> Result<Self, OperatorError> {
        let mut leaves: Vec<(String, Leaf)> = leaves.into_iter().map(|(name, leaf)| (name.into(), leaf)).collect();
        leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
        let wrong = |leaf: &str, why: String| Err(OperatorError::Space { leaf: leaf.into(), why });
        for (number, (name, leaf)) in leaves.iter().enumerate() {
            if name.is_empty() || name.split('/').any(str::is_empty) {
                return wrong(name, "a name, or a part of one between slashes, is empty".into());
            }
            if number > 0 && leaves[number - 1].0 == *name {
                return wrong(name, "two leaves have this name; give each its own".into());
            }
            if let Some(why) = leaf.fault() {
                return wrong(name, why);
            }
        }
        Ok(Space { leaves: leaves.into() })
    }

    /// A space of one leaf.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(name: &str, leaf: Leaf) -> Result<Self, OperatorError> {
        Self::new([(name, leaf)])
    }

    /// Its leaves, in the order of their names.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (&str, &Leaf)> {
        self.leaves.iter().map(|(name, leaf)| (name.as_str(), leaf))
    }

    /// The names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.leaves().map(|(name, _)| name)
    }

    /// Number of leaves.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Whether there are no leaves.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The place of a leaf in the order.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.leaves.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()
    }

    /// The leaf of this name.
    pub fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.position(name).map(|at| &self.leaves[at].1)
    }

    /// The only leaf, of a space that has one.
    pub fn only(&self) -> Option<(&str, &Leaf)> {
        if self.len() == 1 { self.leaves().next() } else { None }
    }

    /// The leaves below `branch`: `under("prior")` has `prior/slope` and not `prior`.
    pub fn under(&self, branch: &str) -> Self {
        let below = |name: &str| name.strip_prefix(branch).is_some_and(|rest| rest.starts_with('/'));
        Space { leaves: self.leaves.iter().filter(|(name, _)| below(name)).cloned().collect() }
    }

    /// The leaves of both; those of one name must be alike. `operator` stands in the error.
    ///
    /// # Errors
    /// [`OperatorError::Fit`].
    pub fn joined(&self, other: &Space, operator: &str) -> Result<Self, OperatorError> {
        let mut leaves = self.leaves.to_vec();
        for (name, leaf) in other.leaves() {
            match self.leaf(name) {
                None => leaves.push((name.into(), leaf.clone())),
                Some(own) if own == leaf => {}
                Some(own) => return Err(OperatorError::fit(operator, name, own, leaf)),
            }
        }
        Space::new(leaves)
    }

    /// Refuses, for `operator`, fields of another space. Of spaces with one leaf the names do not matter.
    ///
    /// # Errors
    /// [`OperatorError::Fit`].
    pub fn admits(&self, other: &Space, operator: &str) -> Result<(), OperatorError> {
        if Arc::ptr_eq(&self.leaves, &other.leaves) {
            return Ok(());
        }
        if let (Some((name, own)), Some((_, leaf))) = (self.only(), other.only()) {
            return if own == leaf { Ok(()) } else { Err(OperatorError::fit(operator, name, own, leaf)) };
        }
        for (name, own) in self.leaves() {
            match other.leaf(name) {
                Some(leaf) if leaf == own => {}
                Some(leaf) => return Err(OperatorError::fit(operator, name, own, leaf)),
                None => return Err(OperatorError::missing(operator, name, other)),
            }
        }
        match other.names().find(|name| self.position(name).is_none()) {
            Some(name) => Err(OperatorError::surplus(operator, name, self)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaves: Vec<String> = self.leaves().map(|(name, leaf)| format!("{name}: {leaf}")).collect();
        write!(f, "{{{}}}", leaves.join("; "))
    }
}
