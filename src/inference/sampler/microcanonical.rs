//! Microcanonical Langevin Monte Carlo (Robnik, De Luca, Silverstein & Seljak 2023).
//!
//! A particle moves at a speed of 1 through the scaled posterior, which turns its direction `u`:
//! ```text
//! dx = u dt      du = -(1 - u u^T) g / (n - 1) dt + noise
//! ```
//! with the gradient `g` and `n` numbers. Leapfrog steps are not corrected by accepting them, so
//! draws have a bias of about the error of the energy. [`adjusted`] accepts or rejects the end of a
//! trajectory without noise (Robnik, Cohn-Gordon & Seljak 2025).

use std::rc::Rc;

use super::DrawStatistics;
use super::hamiltonian::{DIVERGENT, Moved};
use super::phase::{Phase, Target, finite};
use super::random::Uniforms;
use crate::inference::error::Result;
use crate::inference::vector_space::{Reduction, Stream, VectorSpace};

/// A place and a direction. The momentum of the phase is the direction, and its gradient is that by
/// the scaled numbers.
pub(super) struct Flight<S: VectorSpace> {
    /// The place; its momentum is the direction.
    pub place: Rc<Phase<S::Vector>>,
    /// `g.g` and `g.u`.
    pub square: f64,
    pub along: f64,
}

/// A kick of the direction by the gradient: `u' = a g + b u`, of length 1.
struct Kick {
    of_gradient: f64,
    of_direction: f64,
    /// Change of the kinetic energy.
    change: f64,
}

impl Kick {
    /// Returns the kick of half a step, for `n` numbers.
    fn new(step: f64, square: f64, along: f64, n: f64) -> Self {
        let norm = square.sqrt();
        if norm == 0.0 {
            return Kick { of_gradient: 0.0, of_direction: 1.0, change: 0.0 };
        }
        // The cosine of the angle to the downward direction.
        let cosine = (-along / norm).clamp(-1.0, 1.0);
        let size = step / 2.0 * norm / (n - 1.0);
        let zeta = (-size).exp();
        let down = (1.0 - zeta) * (1.0 + zeta + cosine * (1.0 - zeta));
        let length = (down * down + 4.0 * zeta * zeta + 4.0 * zeta * down * cosine).sqrt();
        let change = size - std::f64::consts::LN_2 + (1.0 + cosine + (1.0 - cosine) * zeta * zeta).ln();
        Kick { of_gradient: -down / (norm * length), of_direction: 2.0 * zeta / length, change: (n - 1.0) * change }
    }
}

impl<S: VectorSpace> Flight<S> {
    /// Starts at a place in a random direction.
    pub fn start(space: &mut S, target: &Target<'_, S>, from: &Phase<S::Vector>, stream: Stream) -> Result<Self> {
        let (x, mut gradient) = (space.copy(&from.x)?, space.like(&from.x)?);
        target.scale.apply(space, (1.0, &from.gradient), 0.0, &mut gradient)?;
        Flight::turn(space, (x, gradient, from.potential), stream)
    }

    /// Takes a random direction at a place with a scaled gradient and a potential.
    fn turn(space: &mut S, (x, gradient, potential): (S::Vector, S::Vector, f64), stream: Stream) -> Result<Self> {
        let (mut noise, mut direction) = (space.like(&x)?, space.like(&x)?);
        space.white_noise(stream, &mut noise)?;
        let dots = space.reduce(&[
            Reduction::Dot(&noise, &noise),
            Reduction::Dot(&gradient, &gradient),
            Reduction::Dot(&gradient, &noise),
        ])?;
        let norm = dots[0].sqrt();
        space.axpby(1.0 / norm, &noise, 0.0, &mut direction)?;
        let place = Rc::new(Phase { x, momentum: direction, gradient, potential, kinetic: 0.0 });
        Ok(Flight { place, square: dots[1], along: dots[2] / norm })
    }

    /// Returns the flight of a state from its place, direction and numbers.
    pub fn resume(
        space: &mut S,
        target: &Target<'_, S>,
        from: &Phase<S::Vector>,
        momentum: S::Vector,
        [square, along]: [f64; 2],
    ) -> Result<Self> {
        let (x, mut gradient) = (space.copy(&from.x)?, space.like(&from.x)?);
        target.scale.apply(space, (1.0, &from.gradient), 0.0, &mut gradient)?;
        let place = Rc::new(Phase { x, momentum, gradient, potential: from.potential, kinetic: 0.0 });
        Ok(Flight { place, square, along })
    }

    /// Starts again at the place of a flight, in a random direction.
    pub fn restart(&self, space: &mut S, stream: Stream) -> Result<Self> {
        let Phase { x, gradient, potential, .. } = &*self.place;
        let (x, gradient) = (space.copy(x)?, space.copy(gradient)?);
        Flight::turn(space, (x, gradient, *potential), stream)
    }

    /// Takes a step of size `step` through `n` numbers, and turns the direction at random so that
    /// it is forgotten after a distance of `length`. Returns the error of the energy; `None` if the
    /// posterior is not finite there. Takes one gradient and blocks twice.
    pub fn step(
        &self,
        space: &mut S,
        target: &Target<'_, S>,
        (step, length): (f64, f64),
        stream: Stream,
    ) -> Result<Option<(Self, f64)>> {
        let Phase { x, momentum, gradient, potential, .. } = &*self.place;
        let n = space.len(x) as f64;
        let first = Kick::new(step, self.square, self.along, n);
        let mut direction = space.copy(momentum)?;
        space.axpby(first.of_gradient, gradient, first.of_direction, &mut direction)?;
        let mut to = space.copy(x)?;
        target.scale.apply(space, (step, &direction), 1.0, &mut to)?;
        let mut noise = space.like(x)?;
        space.white_noise(stream, &mut noise)?;
        let arrive = |space: &mut S| {
            let at = target.likelihood.at(space, &to)?;
            let (mut plain, mut gradient) = (space.like(&to)?, space.like(&to)?);
            at.gradient(space, &mut plain)?;
            space.axpby(1.0, &to, 1.0, &mut plain)?;
            target.scale.apply(space, (1.0, &plain), 0.0, &mut gradient)?;
            let energy = at.energy(space)?;
            let dots = space.reduce(&[
                Reduction::Dot(&to, &to),
                Reduction::Dot(&gradient, &gradient),
                Reduction::Dot(&gradient, &direction),
                Reduction::Dot(&direction, &direction),
                Reduction::Dot(&gradient, &noise),
                Reduction::Dot(&direction, &noise),
                Reduction::Dot(&noise, &noise),
            ])?;
            Ok((gradient, energy, dots))
        };
        let Some((gradient, energy, dots)) = finite(arrive(space))? else { return Ok(None) };
        let &[places, square, along, own, gradient_noise, own_noise, noise_noise] = &dots[..] else {
            return Ok(None);
        };
        let reached = energy + places / 2.0;
        let second = Kick::new(step, square, along / own.sqrt(), n);
        let error = reached - potential + first.change + second.change;
        if !error.is_finite() {
            return Ok(None);
        }
        // u'' = a g + b u of length 1, then u = (u'' + c z) / length.
        let (a, b) = (second.of_gradient, second.of_direction / own.sqrt());
        let c = (((2.0 * step / length).exp() - 1.0) / n).sqrt();
        let with_noise = a * gradient_noise + b * own_noise;
        let total = (1.0 + 2.0 * c * with_noise + c * c * noise_noise).sqrt();
        space.axpby(a / total, &gradient, b / total, &mut direction)?;
        space.axpby(c / total, &noise, 1.0, &mut direction)?;
        let along = (a * square + b * along + c * gradient_noise) / total;
        let place = Rc::new(Phase { x: to, momentum: direction, gradient, potential: reached, kinetic: 0.0 });
        Ok(Some((Flight { place, square, along }, error)))
    }
}

/// Follows a trajectory from the place of a flight in a random direction, and accepts its end or
/// stays, with the place `None`. Its number of steps is uniform, with the mean `length / step` or
/// `most` if that is less.
pub(super) fn adjusted<S: VectorSpace>(
    space: &mut S,
    target: &Target<'_, S>,
    from: &Flight<S>,
    (step, length, most): (f64, f64, f64),
    (stream, uniforms): (Stream, &mut Uniforms),
) -> Result<Moved<Option<Flight<S>>>> {
    let mean = (length / step).round().clamp(1.0, most);
    let steps = 1 + (uniforms.next() * (2.0 * mean - 1.0)) as u32;
    let mut at = from.restart(space, stream.below([u32::MAX, 0, 0]))?;
    let mut error = 0.0;
    for number in 0..steps {
        // No noise: the direction is never forgotten along the way.
        let next = at.step(space, target, (step, f64::INFINITY), stream.below([number, 0, 0]))?;
        error += next.as_ref().map_or(f64::INFINITY, |(_, error)| *error);
        match next {
            Some((next, _)) if error < DIVERGENT => at = next,
            _ => return Ok(Moved { place: None, statistics: DrawStatistics::divergent(number + 1) }),
        }
    }
    let acceptance = (-error).exp().min(1.0);
    let place = (uniforms.next() < acceptance).then_some(at);
    Ok(Moved { place, statistics: DrawStatistics { acceptance, gradients: steps, ..DrawStatistics::default() } })
}
