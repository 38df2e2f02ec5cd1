//! The preconditioner of cells whose modes data know by their wavenumbers.
//!
//! White noise at cells that an evolution filters, as in a simulation, has a metric that is about
//! diagonal in modes: `1 + d(k)`. Products with fields `v` of random signs give `d`, the ratio of
//! `Re(H v H M v)` to `(H v)^2` over the modes of a bin of wavenumbers, with the Hartley transform
//! `H`. With `n` cells
//! ```text
//! P = H 1 / (1 + d(k)) H / n
//! ```
//! Cost of a product with `P`: two transforms and a dispatch that moves 12 bytes for each mode.

use std::f64::consts::PI;

use super::conjugate_gradient::{Metric, Precondition};
use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::FieldPreconditioner;
use super::vector_space::{Elementwise, Stream, VectorSpace};
use crate::grid::Mesh;
use crate::operators::{Contents, Direction, Gather, Hartley, Leaf, Linear, OperatorError, Space, Vector, Wavenumbers};
use crate::rank::Rank;

/// Products with the metric.
const PROBES: u32 = 4;

/// Bins of wavenumbers, at most.
const BINS: f64 = 4096.0;

/// A preconditioner that is not built yet, or is.
pub(super) struct FilterPreconditioner {
    leaf: String,
    modes: Space,
    hartley: Hartley,
    /// From a number for each bin to modes.
    bins: Gather,
    /// `d` of each bin.
    precision: Vec<f64>,
    /// `1 / (n (1 + d))` and `1 / (n sqrt(1 + d))` of each mode.
    weights: [Vector; 2],
}

impl FilterPreconditioner {
    /// Creates the part of a leaf at the cells of a mesh.
    pub fn new(rank: &mut Rank, leaf: String, mesh: &Mesh) -> Result<Self> {
        let [modes, cells] = [Leaf::modes(mesh), Leaf::cells(mesh)].map(|own| Space::of("field", own));
        let (modes, cells) = (modes?, cells?);
        let (shape, size) = (mesh.shape(), mesh.size());
        let axes = || (0..3).filter(|&axis| shape[axis] > 1);
        let most = axes().map(|axis| (PI * shape[axis] as f64 / size[axis]).powi(2)).sum::<f64>().sqrt();
        let first = axes().map(|axis| 2.0 * PI / size[axis]).fold(f64::INFINITY, f64::min).max(most / BINS);
        // The mode 0 has a bin of its own.
        let count = if first.is_finite() { (most / first).ceil() as u64 + 2 } else { 1 };
        let first = if first.is_finite() { first } else { 1.0 };
        let edges: Vec<f64> =
            (0..=count).map(|edge| if edge == 0 { 0.0 } else { (edge as f64 - 0.5) * first }).collect();
        let bins = Wavenumbers::edges(mesh, &edges)?.amplitudes(rank, &modes)?;
        let weights = [Vector::new(&rank.gpu, &modes)?, Vector::new(&rank.gpu, &modes)?];
        let precision = vec![0.0; count as usize];
        Ok(FilterPreconditioner { leaf, modes, hartley: Hartley::new(rank, &cells)?, bins, precision, weights })
    }

    /// Fills the weights of modes from the precision of bins.
    fn weigh(&mut self, rank: &mut Rank) -> Result<()> {
        let total = self.modes.only().map_or(1, |(_, leaf)| leaf.total()) as f64;
        for (power, weights) in [1.0, 0.5].into_iter().zip(&mut self.weights) {
            let values: Vec<f64> = self.precision.iter().map(|d| (1.0 + d).powf(-power) / total).collect();
            let mut of_bins = Vector::new(&rank.gpu, &self.bins.signature().domain)?;
            of_bins.set(&mut rank.recorder, "amplitudes", &values)?;
            self.bins.run(rank, Direction::Forward, &of_bins, weights)?;
        }
        Ok(())
    }

    /// Computes `out = H w H v` of a part.
    fn filter(&self, rank: &mut Rank, weights: &Vector, v: &Vector, out: &Vector) -> Result<()> {
        let cells = &self.hartley.signature().domain;
        let of = |vector: &Vector| Vector::over(cells, vec![Contents::Device(vector.array(&self.leaf)?.clone())]);
        let (v, mut out) = (of(v)?, of(out)?);
        let [mut modes, mut weighted] = [Vector::new(&rank.gpu, &self.modes)?, Vector::new(&rank.gpu, &self.modes)?];
        self.hartley.run(rank, Direction::Forward, &v, &mut modes)?;
        rank.multiply(1.0, [weights, &modes], 0.0, &mut weighted)?;
        Ok(self.hartley.run(rank, Direction::Adjoint, &weighted, &mut out)?)
    }
}

impl FieldPreconditioner<Rank> for FilterPreconditioner {
    fn part(&self) -> &str {
        &self.leaf
    }

    fn build(&mut self, rank: &mut Rank, metric: &mut Metric<'_, Rank>, stream: Stream, like: &Vector) -> Result<()> {
        let cells = self.hartley.signature().domain.clone();
        let [mut products, mut squares] =
            [Vector::zeros(&mut rank.recorder, &self.modes)?, Vector::zeros(&mut rank.recorder, &self.modes)?];
        let [mut of_signs, mut of_product] =
            [Vector::new(&rank.gpu, &self.modes)?, Vector::new(&rank.gpu, &self.modes)?];
        for probe in 0..PROBES {
            let mut signs = Vector::new(&rank.gpu, &cells)?;
            rank.white_noise(stream.below([probe, 0, 0]), &mut signs)?;
            rank.map(Elementwise::Sign, &mut signs)?;
            let mut v = Vector::zeros(&mut rank.recorder, like.space())?;
            let mut own = Vector::over(&cells, vec![Contents::Device(v.array(&self.leaf)?.clone())])?;
            rank.vector_axpby(1.0, &signs, 0.0, &mut own)?;
            v.put(own);
            let mut product = rank.like(like)?;
            metric(rank, &v, &mut product)?;
            let product = Vector::over(&cells, vec![Contents::Device(product.array(&self.leaf)?.clone())])?;
            self.hartley.run(rank, Direction::Forward, &signs, &mut of_signs)?;
            self.hartley.run(rank, Direction::Forward, &product, &mut of_product)?;
            rank.multiply(1.0, [&of_signs, &of_product], 1.0, &mut products)?;
            rank.multiply(1.0, [&of_signs, &of_signs], 1.0, &mut squares)?;
        }
        let mut sums = |modes: &Vector| -> Result<Vec<f64>, OperatorError> {
            let mut of_bins = Vector::new(&rank.gpu, &self.bins.signature().domain)?;
            self.bins.run(rank, Direction::Adjoint, modes, &mut of_bins)?;
            of_bins.get(&mut rank.recorder, "amplitudes")
        };
        let (products, squares) = (sums(&products)?, sums(&squares)?);
        for (precision, (product, square)) in self.precision.iter_mut().zip(products.iter().zip(&squares)) {
            let ratio =
                InferenceError::finite("the precision of modes", if *square > 0.0 { product / square } else { 0.0 })?;
            *precision = ratio.max(0.0);
        }
        self.weigh(rank)
    }

    fn root(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<()> {
        self.filter(rank, &self.weights[1], v, out)
    }

    fn numbers(&self) -> &[f64] {
        &self.precision
    }

    fn restore(&mut self, rank: &mut Rank, numbers: &[f64]) -> Result<()> {
        self.precision.copy_from_slice(numbers);
        self.weigh(rank)
    }

    fn share(&mut self, rank: &mut Rank, groups: &SampleGroups) -> Result<()> {
        groups.share_numbers(&mut self.precision)?;
        self.weigh(rank)
    }
}

impl Precondition<Rank> for FilterPreconditioner {
    fn apply(&self, rank: &mut Rank, r: &Vector, out: &mut Vector) -> Result<()> {
        self.filter(rank, &self.weights[0], r, out)
    }
}
