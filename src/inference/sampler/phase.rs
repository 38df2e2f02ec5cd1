//! Places of a chain with their momenta, the steps between them, and the scales and random numbers
//! of these.

use std::rc::Rc;

use crate::inference::error::{Result, if_finite};
use crate::inference::log_likelihood::{FieldPreconditioner, LogLikelihood, posterior_gradient};
use crate::inference::vector_space::{Elementwise, Reduction, Stream, VectorSpace, clear};
use crate::random::philox4x32;

/// A place and a momentum.
pub(super) struct Phase<V> {
    pub x: V,
    pub momentum: V,
    /// The gradient of the potential.
    pub gradient: V,
    /// `-ln p(data | x) + x.x / 2`.
    pub potential: f64,
    /// `p.p / 2`.
    pub kinetic: f64,
}

impl<V> Phase<V> {
    /// Returns the total energy.
    pub fn energy(&self) -> f64 {
        self.potential + self.kinetic
    }
}

/// The posterior in units of a scale for each latent value, in which momenta have unit mass.
pub(super) struct Target<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub scale: &'a Scale<S>,
}

impl<S: VectorSpace> Target<'_, S> {
    /// Returns the place `x` at rest; `None` if the posterior is not finite there.
    pub fn place(&self, space: &mut S, x: S::Vector) -> Result<Option<Phase<S::Vector>>> {
        let momentum = space.zeros(&x)?;
        let place = |space: &mut S| {
            let at = self.likelihood.at(space, &x)?;
            let gradient = posterior_gradient(space, &*at, &x)?;
            let energy = at.energy(space)?;
            let squares = space.reduce(&[Reduction::Dot(&x, &x), Reduction::Dot(&gradient, &gradient)])?;
            Ok((gradient, energy + squares[0] / 2.0))
        };
        let Some((gradient, potential)) = if_finite(place(space))? else { return Ok(None) };
        Ok(Some(Phase { x, momentum, gradient, potential, kinetic: 0.0 }))
    }

    /// Takes a leapfrog step of a size, which is negative for a step back in time. `None` if the
    /// energy is not finite there. Takes one gradient and blocks twice.
    pub fn leapfrog(&self, space: &mut S, from: &Phase<S::Vector>, step: f64) -> Result<Option<Rc<Phase<S::Vector>>>> {
        let mut momentum = space.copy(&from.momentum)?;
        self.scale.apply(space, (-step / 2.0, &from.gradient), 1.0, &mut momentum)?;
        let mut x = space.copy(&from.x)?;
        self.scale.apply(space, (step, &momentum), 1.0, &mut x)?;
        let mut arrive = |space: &mut S| {
            let at = self.likelihood.at(space, &x)?;
            let gradient = posterior_gradient(space, &*at, &x)?;
            self.scale.apply(space, (-step / 2.0, &gradient), 1.0, &mut momentum)?;
            let energy = at.energy(space)?;
            let squares = space.reduce(&[Reduction::Dot(&x, &x), Reduction::Dot(&momentum, &momentum)])?;
            Ok((gradient, energy + squares[0] / 2.0, squares[1] / 2.0))
        };
        let Some((gradient, potential, kinetic)) = if_finite(arrive(space))? else { return Ok(None) };
        Ok(Some(Rc::new(Phase { x, momentum, gradient, potential, kinetic })))
    }
}

/// Uniform numbers of a stream, one after the other.
pub(super) struct Uniforms {
    key: [u32; 2],
    next: u32,
}

impl Uniforms {
    pub fn new(stream: Stream) -> Self {
        Uniforms { key: [stream.0 as u32, (stream.0 >> 32) as u32], next: 0 }
    }

    /// Returns a number in [0, 1).
    pub fn next(&mut self) -> f64 {
        // White noise never uses this counter, since the last two words of its counters are 0.
        let words = philox4x32([self.next, 0, 0, u32::MAX - 1], self.key);
        self.next += 1;
        let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
        bits as f64 * (-53.0_f64).exp2()
    }
}

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
