//! The light cone between the two ends of a step, as the kernel takes it. Pure.

use super::cone::Cone;
use crate::cosmology::{Cosmology, CosmologyError};
use crate::pm::Config;

/// Coefficients of the distance in a step.
const TERMS: usize = 8;

/// The light cone in a step. All is in f64; the kernel works in f32 and in spacings of the lattice.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    /// Scale factors of its ends.
    pub a: [f64; 2],
    /// Comoving distances from which light of the two ends arrives today, in Mpc/h.
    pub distance: [f64; 2],
    /// The distance as a polynomial of `t = (sqrt(a) - sqrt(a0)) / (sqrt(a1) - sqrt(a0))`,
    /// ascending, in Mpc/h. With matter alone it is linear in t, so that the seventh degree leaves
    /// no more than a unit in the last place of f32 also where a step begins at half the scale
    /// factor that it ends at.
    pub polynomial: [f64; TERMS],
    /// The part of the step after which the cone reaches no farther than asked for: 0 for all of
    /// it.
    pub cut: f64,
    /// Factors that convert the momenta at the two ends to the change of position over the whole
    /// step: da / (a^3 E).
    pub slopes: [f64; 2],
}

impl Shell {
    /// Creates the shell of the step between the scale factors `a`.
    pub fn new(config: &Config, cone: &Cone, a: [f64; 2]) -> Result<Self, CosmologyError> {
        let cosmology = &config.cosmology;
        let [first, last] = a;
        let at = |a: f64| cosmology.comoving_distance(a);
        let roots = a.map(f64::sqrt);
        let between = |t: f64| (roots[0] + t * (roots[1] - roots[0])).powi(2).clamp(first, last);
        let cut = (cosmology.scale_factor_at(cone.distance)? - first) / (last - first);
        Ok(Shell {
            a,
            distance: [at(first)?, at(last)?],
            polynomial: polynomial(cosmology, between)?,
            cut: cut.max(0.0),
            slopes: a.map(|a| (last - first) / (a.powi(3) * cosmology.expansion_rate(a))),
        })
    }

    /// Returns `true` if the cone reaches as far as some of the step.
    pub fn is_reached(&self) -> bool {
        self.cut < 1.0
    }
}

/// Returns the distance as a polynomial of t from 0 to 1, where `scale_factor` gives that of t.
pub(super) fn polynomial(
    cosmology: &Cosmology,
    scale_factor: impl Fn(f64) -> f64,
) -> Result<[f64; TERMS], CosmologyError> {
    // Chebyshev's points, ends included.
    let nodes: [f64; TERMS] =
        std::array::from_fn(|i| 0.5 - 0.5 * (std::f64::consts::PI * i as f64 / (TERMS - 1) as f64).cos());
    let mut values = [0.0; TERMS];
    for (value, t) in values.iter_mut().zip(nodes) {
        *value = cosmology.comoving_distance(scale_factor(t))?;
    }
    Ok(interpolated(nodes, values))
}

/// Returns the polynomial through `values` at `nodes`, ascending: Newton's divided differences,
/// multiplied out.
fn interpolated<const N: usize>(nodes: [f64; N], values: [f64; N]) -> [f64; N] {
    let mut divided = values;
    for order in 1..N {
        for i in (order..N).rev() {
            divided[i] = (divided[i] - divided[i - 1]) / (nodes[i] - nodes[i - order]);
        }
    }
    let mut polynomial = [0.0; N];
    for i in (0..N).rev() {
        // p = p (t - node) + divided
        for j in (1..N).rev() {
            polynomial[j] = polynomial[j - 1] - nodes[i] * polynomial[j];
        }
        polynomial[0] = divided[i] - nodes[i] * polynomial[0];
    }
    polynomial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, Parameters};

    #[test]
    fn the_distance_of_a_step_is_the_integral() {
        let dark = Parameters { w0: -0.8, wa: 0.3, radiation: Some(3.046), ..Parameters::default() };
        for cosmology in [Cosmology::planck18(), Cosmology::simple(), Cosmology::new(dark).unwrap()] {
            let config = Config { cosmology, a_start: 0.02, ..Config::default() };
            let cone = Cone { observer: [0.0; 3], distance: 3000.0, opening: None };
            for a in [[0.02, 0.04], [0.0625, 0.15625], [0.3, 0.301], [0.5, 1.0], [0.99, 1.0]] {
                let shell = Shell::new(&config, &cone, a).unwrap();
                for s in [0.0, 0.1, 0.37, 0.5, 0.93, 1.0] {
                    let there = a[0] + s * (a[1] - a[0]);
                    let t = (there.sqrt() - a[0].sqrt()) / (a[1].sqrt() - a[0].sqrt());
                    let found = shell.polynomial.iter().rev().fold(0.0, |sum, term| sum * t + term);
                    let want = cosmology.comoving_distance(there).unwrap();
                    // A unit in the last place of f32, of the largest distance there is.
                    assert!((found - want).abs() <= shell.distance[0] * 2f64.powi(-23), "{a:?} {s}: {found} {want}");
                }
                let momentum = |a: f64| (a * a) * cosmology.expansion_rate(a) * a;
                assert!((shell.slopes[1] * momentum(a[1]) - (a[1] - a[0])).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn a_cone_begins_within_a_step() {
        let config = Config { a_start: 0.5, ..Config::default() };
        let distance = config.cosmology.comoving_distance(0.75).unwrap();
        let cone = Cone { observer: [0.0; 3], distance, opening: None };
        let shell = |a| Shell::new(&config, &cone, a).unwrap();
        assert!((shell([0.7, 0.8]).cut - 0.5).abs() < 1e-9);
        assert!(!shell([0.6, 0.7]).is_reached() && shell([0.8, 0.9]).is_reached());
        assert_eq!(shell([0.8, 0.9]).cut, 0.0);
    }
}
