//! Hamiltonian Monte Carlo with trajectories of a given length (Duane et al. 1987) and the
//! No-U-Turn Sampler (Hoffman & Gelman 2014, with multinomial draws along the trajectory,
//! Betancourt 2017).

use std::rc::Rc;

use super::DrawStatistics;
use super::phase::{Phase, Target};
use super::random::Uniforms;
use crate::inference::error::Result;
use crate::inference::vector_space::{Reduction, VectorSpace};

/// Error of the energy in nats beyond which a trajectory has left the posterior.
pub(super) const DIVERGENT: f64 = 1000.0;

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
    let mut gradients = 0;
    for _ in 0..steps {
        gradients += 1;
        match target.leapfrog(space, &at, step)? {
            Some(next) if next.energy() - start.energy() < DIVERGENT => at = next,
            _ => return Ok(Moved { place: start.clone(), statistics: DrawStatistics::divergent(gradients) }),
        }
    }
    let acceptance = (start.energy() - at.energy()).exp().min(1.0);
    let place = if uniforms.next() < acceptance { at } else { start.clone() };
    Ok(Moved { place, statistics: DrawStatistics { acceptance, gradients, ..DrawStatistics::default() } })
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
    acceptance: f64,
    gradients: u32,
    is_divergent: bool,
}

/// Doubles a trajectory in random directions until it turns back, at most `depth` times.
pub(super) fn nuts<S: VectorSpace>(
    space: &mut S,
    target: &Target<'_, S>,
    start: &Rc<Phase<S::Vector>>,
    (step, depth): (f64, u32),
    uniforms: &mut Uniforms,
) -> Result<Moved<Rc<Phase<S::Vector>>>> {
    let energy = start.energy();
    let mut builder = Builder { target, step, energy, uniforms, acceptance: 0.0, gradients: 0, is_divergent: false };
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
    let Builder { acceptance, gradients, is_divergent, .. } = builder;
    let acceptance = acceptance / f64::from(gradients.max(1));
    let statistics = DrawStatistics { acceptance, gradients, depth: done, is_divergent, ..DrawStatistics::default() };
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
            self.gradients += 1;
            let step = if is_forward { self.step } else { -self.step };
            let Some(place) = self.target.leapfrog(space, from, step)? else {
                self.is_divergent = true;
                return Ok(None);
            };
            self.acceptance += (self.energy - place.energy()).exp().min(1.0);
            if place.energy() - self.energy > DIVERGENT {
                self.is_divergent = true;
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
