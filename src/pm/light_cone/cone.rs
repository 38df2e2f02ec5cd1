//! Coverage of a light cone and its ranges, its part between the two ends of a step as the kernel
//! takes it, and the replicas of the box that this part can touch. Pure.

use std::f64::consts::PI;

use crate::cosmology::{Cosmology, CosmologyError};
use crate::grid::Box3;
use crate::pm::{Config, Result, require};

/// The part of an observer's past light cone that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Cone {
    /// The place of the observer, who looks today, in Mpc/h: in the box.
    pub observer: [f64; 3],
    /// Comoving distance that the cone reaches in Mpc/h, at most [`MOST_BOXES`](Self::MOST_BOXES)
    /// sides of the box.
    pub distance: f64,
    /// The part of the sky; all of it otherwise.
    pub opening: Option<Opening>,
}

/// A round part of the sky.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// Its middle; of any length but 0.
    pub direction: [f64; 3],
    /// The angle in degrees from the middle to the rim: above 0, up to 180.
    pub angle: f64,
}

impl Opening {
    /// Returns the middle as a unit vector.
    pub(super) fn unit(&self) -> [f64; 3] {
        let length = length(self.direction);
        self.direction.map(|x| x / length)
    }
}

/// Returns the length of a vector.
pub(super) fn length(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

impl Cone {
    /// The farthest that a cone reaches, in sides of the box: numbers of replicas along an axis
    /// have seven bits.
    pub const MOST_BOXES: f64 = 60.0;

    /// Checks the cone of a run.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::pm::SimulationError::OutOfRange) for an observer outside of the box, a
    /// distance that the run does not cover or that spans too many boxes, no direction and no
    /// opening; [`CosmologyError`](crate::cosmology::CosmologyError) for scale factors out of range.
    pub fn validate(&self, config: &Config) -> Result<()> {
        let (side, cosmology) = (config.box_size, &config.cosmology);
        let inside = self.observer.iter().all(|x| (0.0..=side).contains(x));
        let place = format!("{:?}", self.observer);
        let allowed = format!("in the box, from 0 to {side} along each axis");
        require(inside, "observer of the light cone", place, allowed)?;
        let (first, last) = (cosmology.comoving_distance(config.a_start)?, cosmology.comoving_distance(config.a_end)?);
        let most = first.min(Self::MOST_BOXES * side);
        let allowed = format!(
            "above {last:.6} Mpc/h, from where light of the end arrives, and up to {most:.6} Mpc/h: what the run covers from its start \
             on ({first:.6}), and {} sides of the box at most",
            Self::MOST_BOXES
        );
        let ok = self.distance > last && self.distance <= most;
        require(ok, "distance of the light cone", self.distance, allowed)?;
        let Some(Opening { direction, angle }) = &self.opening else { return Ok(()) };
        let length = length(*direction);
        let ok = length.is_finite() && length > 0.0;
        let direction = format!("{direction:?}");
        require(ok, "direction of the light cone", direction, "three numbers that are not all 0")?;
        let ok = *angle > 0.0 && *angle <= 180.0;
        require(ok, "opening of the light cone", angle, "an angle above 0, up to 180 degrees")
    }

    /// Returns the comoving volume of the cone between two distances, in (Mpc/h)^3.
    #[must_use]
    pub fn volume(&self, [near, far]: [f64; 2]) -> f64 {
        let sky = self.opening.as_ref().map_or(2.0, |opening| 1.0 - opening.angle.to_radians().cos());
        2.0 * PI * sky / 3.0 * (far.powi(3) - near.powi(3))
    }
}

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

/// Replicas that a pass looks at: llvmpipe ends loops after 65,535 rounds, and an invocation has up
/// to 16 particles.
const IMAGES: u64 = 64;

/// Replicas of a pass over `count` particles: no more than a word can count crossings of.
pub(super) fn images_at_once(count: u64) -> usize {
    IMAGES.min(u64::from(u32::MAX - 1) / count.max(1)).max(1) as usize
}

/// A replica of the box as one word: its numbers of sides along the axes from the box, each from
/// -64 to 63 in seven bits.
fn image_code(image: [i64; 3]) -> u32 {
    image.iter().fold(0, |code, m| code << 7 | (m + 64) as u32)
}

/// Returns the replica that [`image_code`] names.
pub(super) fn image_of(code: u32) -> [i32; 3] {
    [14, 7, 0].map(|shift| (code >> shift & 127) as i32 - 64)
}

/// Returns the replicas of the box in which particles of the sites `own` can cross `shell`,
/// ascending. At its ends they are displaced by up to `reach` spacings along each axis, and within
/// the step they move by up to `motion` of them.
pub(super) fn images(config: &Config, cone: &Cone, shell: &Shell, own: &Box3, [reach, motion]: [f64; 2]) -> Vec<u32> {
    let (n, spacing) = (config.particles as f64, config.box_size / config.particles as f64);
    if own.iter().any(|range| range.is_empty()) {
        return Vec::new();
    }
    // Room for what rounding of f32 and of the observer's place may move.
    let reach = reach * (1.0 + 1e-5) + 1e-3;
    // Who crosses where the cone has begun was no farther from there, at the beginning of the step,
    // than it has moved.
    let far = (shell.distance[0] / spacing).min(cone.distance / spacing + motion) * (1.0 + 1e-5);
    let near = shell.distance[1] / spacing * (1.0 - 1e-5);
    let ends = [0, 1, 2].map(|axis| {
        let observer = cone.observer[axis] / spacing;
        [own[axis].start as f64 - observer - reach, (own[axis].end - 1) as f64 - observer + reach]
    });
    let along = |axis: usize| {
        let [low, high] = ends[axis];
        let range = (((-far - high) / n).ceil() as i64).max(-64)..=(((far - low) / n).floor() as i64).min(63);
        range.map(move |m| (m, [low + m as f64 * n, high + m as f64 * n]))
    };
    let rim = cone.opening.as_ref().map(|opening| (opening.unit(), opening.angle.to_radians()));
    let mut codes = Vec::new();
    for (i, x) in along(0) {
        for (j, y) in along(1) {
            for (k, z) in along(2) {
                let sides = [x, y, z];
                let least = length(sides.map(|[low, high]| low.max(-high).max(0.0)));
                let most = length(sides.map(|[low, high]| high.max(-low)));
                let seen = rim.is_none_or(|(unit, angle)| in_opening(sides, unit, angle));
                if least <= far && most >= near && seen {
                    codes.push(image_code([i, j, k]));
                }
            }
        }
    }
    codes
}

/// Returns `true` if the sphere around a box may be visible in an opening.
fn in_opening(sides: [[f64; 2]; 3], unit: [f64; 3], angle: f64) -> bool {
    let center = sides.map(|[low, high]| 0.5 * (low + high));
    let (away, radius) = (length(center), length(sides.map(|[low, high]| 0.5 * (high - low))));
    if away <= radius {
        return true;
    }
    let along: f64 = center.iter().zip(unit).map(|(x, u)| x * u).sum();
    (along / away).clamp(-1.0, 1.0).acos() - (radius / away).asin() <= angle + 1e-4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, Parameters};
    use crate::pm::light_cone::Opening;

    fn config() -> Config {
        Config { particles: 8, mesh: 8, box_size: 100.0, a_start: 0.5, steps: 4, ..Config::default() }
    }

    fn cone() -> Cone {
        Cone { observer: [10.0, 50.0, 100.0], distance: 400.0, opening: None }
    }

    #[test]
    fn what_no_run_covers_is_refused() {
        let config = config();
        assert!(cone().validate(&config).is_ok());
        let far = config.cosmology.comoving_distance(0.5).unwrap() * 1.001;
        for (bad, word) in [
            (Cone { distance: far, ..cone() }, "distance"),
            (Cone { distance: 0.0, ..cone() }, "distance"),
            (Cone { distance: f64::NAN, ..cone() }, "distance"),
            (Cone { observer: [0.0, f64::NAN, 0.0], ..cone() }, "observer"),
            (Cone { observer: [0.0, 101.0, 0.0], ..cone() }, "observer"),
            (Cone { opening: Some(Opening { direction: [0.0; 3], angle: 3.0 }), ..cone() }, "direction"),
            (Cone { opening: Some(Opening { direction: [f64::NAN; 3], angle: 3.0 }), ..cone() }, "direction"),
            (Cone { opening: Some(Opening { direction: [1.0; 3], angle: 0.0 }), ..cone() }, "opening"),
            (Cone { opening: Some(Opening { direction: [1.0; 3], angle: f64::NAN }), ..cone() }, "opening"),
            (Cone { opening: Some(Opening { direction: [1.0; 3], angle: 180.1 }), ..cone() }, "opening"),
        ] {
            let error = bad.validate(&config).unwrap_err().to_string();
            assert!(error.starts_with(word), "{error}");
        }
        let small = Config { box_size: 5.0, ..config };
        let observer = [0.0; 3];
        assert!(Cone { observer, ..cone() }.validate(&small).unwrap_err().to_string().contains("60 sides"));
    }

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

    #[test]
    fn codes_ascend_with_images() {
        let all: Vec<[i64; 3]> = [-64, -1, 0, 63].map(|m| [m, -m - 1, 5]).to_vec();
        assert!(all.windows(2).all(|pair| image_code(pair[0]) < image_code(pair[1])));
        assert!(all.iter().all(|image| image_of(image_code(*image)).map(i64::from) == *image));
    }

    #[test]
    fn images_hold_every_site_that_a_shell_has() {
        let config = Config { particles: 8, mesh: 8, box_size: 100.0, a_start: 0.5, steps: 4, ..Config::default() };
        let mut cone = Cone { observer: [10.0, 50.0, 100.0], distance: 400.0, opening: None };
        let shell = Shell::new(&config, &cone, [0.9, 0.95]).unwrap();
        let own = [0..8, 2..5, 0..8];
        for opening in [None, Some(Opening { direction: [1.0, 2.0, 0.5], angle: 20.0 })] {
            cone.opening = opening;
            let found = images(&config, &cone, &shell, &own, [0.3, 0.1]);
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
            let mut want = std::collections::BTreeSet::new();
            let most = 5i64;
            let range = -most..=most;
            let all = range.clone().flat_map(|i| range.clone().flat_map(move |j| (-5..=5).map(move |k| [i, j, k])));
            for image in all {
                for site in 0..8 * 3 * 8 {
                    let site = [site / 24, site / 8 % 3 + 2, site % 8];
                    let y: [f64; 3] = std::array::from_fn(|a| {
                        (site[a] + 8 * image[a]) as f64 * 12.5 + 0.25 * 12.5 - cone.observer[a]
                    });
                    let r = length(y);
                    let seen = cone.opening.as_ref().is_none_or(|opening| {
                        let along: f64 = y.iter().zip(opening.unit()).map(|(x, u)| x * u).sum();
                        along >= opening.angle.to_radians().cos() * r
                    });
                    if r >= shell.distance[1] && r < shell.distance[0] && seen {
                        want.insert(image_code(image));
                    }
                }
            }
            assert!(!want.is_empty() && want.iter().all(|code| found.contains(code)), "{:?}", cone.opening);
            // No more than those that have a sphere round them.
            assert!(found.len() < 8 * want.len(), "{} {}", found.len(), want.len());
        }
    }
}
