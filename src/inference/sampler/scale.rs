//! The scale of each latent value.

use crate::inference::error::Result;
use crate::inference::log_likelihood::{FieldPreconditioner, LogLikelihood};
use crate::inference::vector_space::{Elementwise, Stream, VectorSpace, clear};

/// The stream of random signs of all chains.
const STREAM: Stream = Stream(0x7363_616c);

/// Products with random vectors for a part of several numbers.
const PROBES: u32 = 4;

/// A linear map `S` from standard normal numbers to about the deviations of latent values from
/// their mean.
pub(super) struct Scale<S: VectorSpace> {
    /// The standard deviation of each number.
    pub diagonal: S::Vector,
    /// Parts whose numbers are correlated; the diagonal does not matter there.
    pub fields: Vec<Box<dyn FieldPreconditioner<S>>>,
}

impl<S: VectorSpace> Scale<S> {
    /// Computes `y = a S v + b y`. `S` is symmetric.
    pub fn apply(&self, space: &mut S, (a, v): (f64, &S::Vector), b: f64, y: &mut S::Vector) -> Result<()> {
        if self.fields.is_empty() {
            return space.multiply(a, [&self.diagonal, v], b, y);
        }
        let mut scaled = space.like(v)?;
        space.multiply(1.0, [&self.diagonal, v], 0.0, &mut scaled)?;
        self.fields.iter().try_for_each(|field| field.root(space, v, &mut scaled))?;
        space.axpby(a, &scaled, b, y)
    }

    /// Creates the scale at the start `x` of a chain: `1 / sqrt(1 + d)` with an estimate `d` of the
    /// diagonal of the likelihood's metric.
    ///
    /// Parts that excite fields have the scales of their preconditioner. Of another part, `d` is
    /// the mean of `v M v` over vectors `v` of random signs, which is exact for a part of one
    /// number. Takes the products of the preconditioners, one for each part of one number, and
    /// [`PROBES`] for other parts.
    pub fn new(space: &mut S, likelihood: &dyn LogLikelihood<S>, x: &S::Vector) -> Result<Self> {
        let at = likelihood.at(space, x)?;
        let mut fields = at.fields(space)?;
        let parts = space.parts(x);
        let mut precision = space.zeros(x)?;
        let [mut signs, mut product] = [space.like(x)?, space.like(x)?];
        for (number, (name, len)) in parts.iter().enumerate() {
            if fields.iter().any(|field| field.part() == name) {
                continue;
            }
            let others = parts.iter().map(|(other, _)| other).filter(|other| *other != name);
            let others: Vec<String> = others.cloned().collect();
            let probes = if *len > 1 { PROBES } else { 1 };
            for probe in 0..probes {
                space.white_noise(STREAM.below([number as u32, probe, 0]), &mut signs)?;
                space.map(Elementwise::Sign, &mut signs)?;
                clear(space, &others, &mut signs)?;
                at.metric(space, &signs, &mut product)?;
                clear(space, &others, &mut product)?;
                space.multiply(1.0 / f64::from(probes), [&signs, &product], 1.0, &mut precision)?;
            }
        }
        space.map(Elementwise::Deviation, &mut precision)?;
        let mut diagonal = precision;
        let mut correlated = Vec::new();
        for (number, mut field) in fields.drain(..).enumerate() {
            let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| at.metric(space, v, out);
            field.build(space, &mut metric, STREAM.below([number as u32, 0, 1]), x)?;
            if !field.scale(space, &mut diagonal)? {
                correlated.push(field);
            }
        }
        Ok(Scale { diagonal, fields: correlated })
    }

    /// Creates the scale of a state, from the place of its chain and the numbers of correlated
    /// parts.
    pub fn restore(
        space: &mut S,
        likelihood: &dyn LogLikelihood<S>,
        x: &S::Vector,
        (diagonal, numbers): (S::Vector, &[f64]),
    ) -> Result<Option<Self>> {
        let mut fields = likelihood.at(space, x)?.fields(space)?;
        fields.retain(|field| !field.numbers().is_empty());
        let mut rest = numbers;
        for field in &mut fields {
            let Some((own, others)) = rest.split_at_checked(field.numbers().len()) else { return Ok(None) };
            field.restore(space, own)?;
            rest = others;
        }
        Ok(rest.is_empty().then_some(Scale { diagonal, fields }))
    }

    /// Returns the numbers of the correlated parts.
    pub fn numbers(&self) -> Vec<f64> {
        self.fields.iter().flat_map(|field| field.numbers()).copied().collect()
    }
}
