//! The scale of each latent value at the start of a chain.

use crate::inference::error::InferenceError;
use crate::inference::log_likelihood::LogLikelihood;
use crate::inference::vector_space::{Elementwise, Stream, VectorSpace, clear};

/// The stream of random signs of all chains.
const STREAM: Stream = Stream(0x7363_616c);

/// Products with random vectors for a part of several numbers.
const PROBES: u32 = 4;

/// Returns about one standard deviation of each number: `1 / sqrt(1 + d)` with an estimate `d` of
/// the diagonal of the likelihood's metric at `x`.
///
/// Modes of fields have the amplitudes of their preconditioner. Of another part, `d` is the mean of
/// `v M v` over vectors `v` of random signs, which is exact for a part of one number. Takes one
/// product for each field and each part of one number, and [`PROBES`] for other parts.
pub(super) fn initial_scale<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    x: &S::Vector,
) -> Result<S::Vector, InferenceError> {
    let at = likelihood.at(space, x)?;
    let mut fields = at.fields(space)?;
    let parts = space.parts(x);
    let mut precision = space.zeros(x)?;
    let [mut signs, mut product] = [space.like(x)?, space.like(x)?];
    for (number, (name, len)) in parts.iter().enumerate() {
        if fields.iter().any(|field| field.part() == name) {
            continue;
        }
        let others: Vec<String> =
            parts.iter().map(|(other, _)| other).filter(|other| *other != name).cloned().collect();
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
    let mut scale = precision;
    for (number, field) in fields.iter_mut().enumerate() {
        let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| at.metric(space, v, out);
        field.build(space, &mut metric, STREAM.below([number as u32, 0, 1]), x)?;
        field.scale(space, &mut scale)?;
    }
    Ok(scale)
}
