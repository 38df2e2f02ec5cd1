//! The moves of chains.
//!
//! - Hamiltonian Monte Carlo with trajectories of a given length (Duane et al. 1987), and the
//!   No-U-Turn Sampler (Hoffman & Gelman 2014, with multinomial draws along the trajectory,
//!   Betancourt 2017).
//! - Microcanonical Langevin Monte Carlo (Robnik, De Luca, Silverstein & Seljak 2023). A particle
//!   moves at a speed of 1 through the scaled posterior, which turns its direction `u`:
//!   ```text
//!   dx = u dt      du = -(1 - u u^T) g / (n - 1) dt + noise
//!   ```
//!   with the gradient `g` and `n` numbers. Leapfrog steps are not corrected by accepting them, so
//!   draws have a bias of about the error of the energy. [`adjusted`] accepts or rejects the end of
//!   a trajectory without noise (Robnik, Cohn-Gordon & Seljak 2025).

use std::rc::Rc;

use super::DrawStatistics;
use super::phase::{Phase, Target, Uniforms};
use crate::inference::error::{Result, if_finite};
use crate::inference::log_likelihood::posterior_gradient;
use crate::inference::vector_space::{Reduction, Stream, VectorSpace};

/// Error of the energy in nats beyond which a trajectory has left the posterior.
const DIVERGENT: f64 = 1000.0;

/// The end of a transition.
pub(super) struct Moved<P> {
    /// The next place.
    pub place: P,
    /// Statistics of the trajectory; the chain adds those of `place`.
    pub statistics: DrawStatistics,
}

/// Follows a trajectory of `steps` leapfrog steps and accepts its end or stays.
pub(super) fn hmc<S: VectorSpace>(
    space: &mut S,
    target: &Target<'_, S>,
    start: &Rc<Phase<S::Vector>>,
    (step, steps): (f64, u32),
    uniforms: &mut Uniforms,
) -> Result<Moved<Rc<Phase<S::Vector>>>> {
    let mut at = start.clone();
    for gradients in 1..=steps {
        match target.leapfrog(space, &at, step)? {
            Some(next) if next.energy() - start.energy() < DIVERGENT => at = next,
            _ => return Ok(Moved { place: start.clone(), statistics: DrawStatistics::divergent(gradients) }),
        }
    }
    let acceptance = (start.energy() - at.energy()).exp().min(1.0);
    let place = if uniforms.next() < acceptance { at } else { start.clone() };
    Ok(Moved { place, statistics: DrawStatistics { acceptance, gradients: steps, ..DrawStatistics::default() } })
}

/// A part of a trajectory.
struct Tree<V> {
    /// The first and the last place in time.
    ends: [Rc<Phase<V>>; 2],
    /// The sum of momenta.
    momentum: V,
    /// A place drawn by the weights.
    drawn: Rc<Phase<V>>,
    /// The logarithm of the sum of weights.
    weight: f64,
}

struct Builder<'a, 'b, S: VectorSpace> {
    target: &'a Target<'b, S>,
    step: f64,
    /// Energy of the start.
    energy: f64,
    uniforms: &'a mut Uniforms,
    /// Sum of acceptances, gradients, and whether the integration failed.
    statistics: DrawStatistics,
}

/// Doubles a trajectory in random directions until it turns back, at most `depth` times.
pub(super) fn nuts<S: VectorSpace>(
    space: &mut S,
    target: &Target<'_, S>,
    start: &Rc<Phase<S::Vector>>,
    (step, depth): (f64, u32),
    uniforms: &mut Uniforms,
) -> Result<Moved<Rc<Phase<S::Vector>>>> {
    let statistics = DrawStatistics::default();
    let mut builder = Builder { target, step, energy: start.energy(), uniforms, statistics };
    let mut tree = builder.leaf(space, start.clone())?;
    let mut done = 0;
    while done < depth {
        let is_forward = builder.uniforms.next() < 0.5;
        let from = tree.ends[usize::from(is_forward)].clone();
        let Some(new) = builder.build(space, done, &from, is_forward)? else { break };
        done += 1;
        // The new half is preferred, so that draws move far.
        let drawn = if builder.uniforms.next() < (new.weight - tree.weight).exp() { &new.drawn } else { &tree.drawn };
        let drawn = drawn.clone();
        let (joined, is_turning) = join(space, tree, new, is_forward)?;
        tree = Tree { drawn, ..joined };
        if is_turning {
            break;
        }
    }
    let mut statistics = DrawStatistics { depth: done, ..builder.statistics };
    statistics.acceptance /= f64::from(statistics.gradients.max(1));
    Ok(Moved { place: tree.drawn, statistics })
}

impl<S: VectorSpace> Builder<'_, '_, S> {
    /// Returns the tree of one place.
    fn leaf(&self, space: &mut S, place: Rc<Phase<S::Vector>>) -> Result<Tree<S::Vector>> {
        let momentum = space.copy(&place.momentum)?;
        let weight = self.energy - place.energy();
        Ok(Tree { ends: [place.clone(), place.clone()], momentum, drawn: place, weight })
    }

    /// Returns the tree of `2^depth` places that follow `from`; `None` if a part of it turns back
    /// or diverges.
    fn build(
        &mut self,
        space: &mut S,
        depth: u32,
        from: &Phase<S::Vector>,
        is_forward: bool,
    ) -> Result<Option<Tree<S::Vector>>> {
        if depth == 0 {
            self.statistics.gradients += 1;
            let step = if is_forward { self.step } else { -self.step };
            let Some(place) = self.target.leapfrog(space, from, step)? else {
                self.statistics.is_divergent = true;
                return Ok(None);
            };
            self.statistics.acceptance += (self.energy - place.energy()).exp().min(1.0);
            if place.energy() - self.energy > DIVERGENT {
                self.statistics.is_divergent = true;
                return Ok(None);
            }
            return self.leaf(space, place).map(Some);
        }
        let Some(first) = self.build(space, depth - 1, from, is_forward)? else { return Ok(None) };
        let end = first.ends[usize::from(is_forward)].clone();
        let Some(second) = self.build(space, depth - 1, &end, is_forward)? else { return Ok(None) };
        let of_second = (second.weight - log_add(first.weight, second.weight)).exp();
        let drawn = if self.uniforms.next() < of_second { &second.drawn } else { &first.drawn };
        let drawn = drawn.clone();
        let (joined, is_turning) = join(space, first, second, is_forward)?;
        Ok((!is_turning).then_some(Tree { drawn, ..joined }))
    }
}

/// Returns the logarithm of the sum of two numbers, given by their logarithms.
fn log_add(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    most + ((a - most).exp() + (b - most).exp()).ln()
}

/// Joins a tree and the one that follows it in a direction of time. Returns whether the trajectory
/// turns back: along the whole, or from one half to the first place of the other. Blocks once.
fn join<S: VectorSpace>(
    space: &mut S,
    first: Tree<S::Vector>,
    second: Tree<S::Vector>,
    is_forward: bool,
) -> Result<(Tree<S::Vector>, bool)> {
    let [before, after] = if is_forward { [first, second] } else { [second, first] };
    let [(a0, a1), (b0, b1)] = [&before, &after].map(|tree| (&tree.ends[0], &tree.ends[1]));
    let [a, b] = [&before.momentum, &after.momentum];
    let dots = space.reduce(&[
        Reduction::Dot(a, &a0.momentum),
        Reduction::Dot(b, &a0.momentum),
        Reduction::Dot(a, &b1.momentum),
        Reduction::Dot(b, &b1.momentum),
        Reduction::Dot(&b0.momentum, &a0.momentum),
        Reduction::Dot(a, &b0.momentum),
        Reduction::Dot(b, &a1.momentum),
        Reduction::Dot(&a1.momentum, &b1.momentum),
    ])?;
    let projections = [
        dots[0] + dots[1],
        dots[2] + dots[3],
        dots[0] + dots[4],
        dots[5] + 2.0 * b0.kinetic,
        dots[6] + 2.0 * a1.kinetic,
        dots[3] + dots[7],
    ];
    let is_turning = projections.iter().any(|projection| *projection <= 0.0);
    let mut momentum = space.copy(a)?;
    space.axpby(1.0, b, 1.0, &mut momentum)?;
    let weight = log_add(before.weight, after.weight);
    let ends = [a0.clone(), b1.clone()];
    Ok((Tree { ends, momentum, drawn: before.drawn, weight }, is_turning))
}

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
            let (plain, mut gradient) = (posterior_gradient(space, &*at, &to)?, space.like(&to)?);
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
        let Some((gradient, energy, dots)) = if_finite(arrive(space))? else { return Ok(None) };
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
