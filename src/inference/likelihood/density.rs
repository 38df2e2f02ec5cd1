//! The density of data as a function of the values of a model.

use super::data::{Data, Weighted};
use super::energy::Energy;
use crate::inference::error::Result;
use crate::operators::{Fingerprint, Model, OperatorError, Space, Vector};
use crate::rank::Rank;

/// A density of data. Its domain and the space of its noise are one leaf with the name of the data.
pub(super) struct Density {
    pub name: String,
    pub space: Space,
    pub energy: Energy,
    pub functions: Functions,
    /// Distribution of the squares for a right model.
    pub squares: Squares,
    /// Number of data that count.
    pub count: u64,
    /// The kind of density with its settings.
    pub kind: String,
    pub weighted: Weighted,
    /// Exposures of counts.
    pub exposure: Option<Vector>,
}

/// Functions of the values of a model.
pub(super) struct Functions {
    /// The gradient of the energy.
    pub score: Box<Score>,
    /// The derivative is the right square root of the metric; the value may not exist.
    pub root: Model,
    /// Coordinates whose derivative is the right square root of the metric.
    pub coordinates: Option<Coordinates>,
    /// Data minus model over the standard deviation of noise.
    pub residual: Option<Model>,
}

/// Records the gradient of an energy at a vector in another one.
pub(super) type Score = dyn Fn(&mut Rank, &Vector, &mut Vector) -> Result<(), OperatorError>;

/// Coordinates of the values of a model, along which samples are curved.
#[derive(Clone)]
pub(super) enum Coordinates {
    /// A function whose derivative is the right square root of the metric everywhere.
    Fixed(Model),
    /// A function of the leaves [`EXPANSION`] and [`SIGNAL`]. The derivative by the signal is the
    /// right square root where the two are equal.
    About(Model),
}

/// Leaves of the values of the model at the expansion point and elsewhere, in order of names.
pub(super) const EXPANSION: &str = "expansion";
pub(super) const SIGNAL: &str = "signal";

impl Density {
    /// Creates the density of a kind with a setting: degrees of freedom or the number of classes.
    pub fn new(
        data: &Data<'_>,
        (kind, setting): (&str, f64),
        space: Space,
        weighted: Weighted,
        functions: Functions,
    ) -> Result<Self> {
        let classes = space.only().map_or(1, |(_, leaf)| leaf.components);
        Ok(Density {
            name: data.name.into(),
            energy: Energy::new(data, (kind, setting), classes, &weighted)?,
            space,
            functions,
            squares: Squares::of(kind),
            count: weighted.count,
            kind: format!("{kind} {setting}"),
            weighted,
            exposure: None,
        })
    }

    /// Writes the density, its data, mask and noise into fingerprints. Collective.
    pub fn identify(&self, rank: &mut Rank, [density, data, mask, noise]: [&mut Fingerprint; 4]) -> Result<()> {
        density.text(&self.name);
        density.text(&self.kind);
        let Weighted { data: values, weights, uniform, .. } = &self.weighted;
        data.field(rank, values)?;
        let Some((_, leaf)) = values.space().only() else { return Ok(()) };
        let weights = match weights {
            Some(weights) => {
                let weights = weights.single()?;
                rank.recorder.download(weights, 0, weights.len())?
            }
            None => vec![*uniform as f32; leaf.entries() as usize],
        };
        let counts: Vec<u32> = weights.iter().map(|weight| u32::from(*weight != 0.0)).collect();
        mask.words(rank, leaf, &counts)?;
        noise.words(rank, leaf, bytemuck::cast_slice(&weights))?;
        Ok(self.exposure.as_ref().map_or(Ok(()), |exposure| noise.field(rank, exposure))?)
    }
}

/// The distribution of the squares of residuals for a right model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Squares {
    /// Squares of standard normal numbers.
    Normal,
    /// Mean 1, but far below it for rare counts.
    Counts,
    /// A few outliers decide the mean.
    Wild,
}

impl Squares {
    fn of(kind: &str) -> Self {
        match kind {
            "gaussian" | "gaussian_inferred" => Squares::Normal,
            "poisson" => Squares::Counts,
            _ => Squares::Wild,
        }
    }
}
