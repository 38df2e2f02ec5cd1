//! What a light cone covers, its ranges, and which replicas of the box a shell of it can touch. Pure.

use std::f64::consts::PI;

use super::shell::Shell;
use crate::cosmology::StepOp;
use crate::grid::Box3;
use crate::pm::{Config, SimulationError};

/// The part of an observer's past light cone that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Cone {
    /// The place of the observer, who looks today, in Mpc/h: in the box.
    pub observer: [f64; 3],
    /// How far the cone reaches: a comoving distance in Mpc/h, at most [`MOST_BOXES`](Self::MOST_BOXES) sides of the box.
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
    /// The middle as a unit vector.
    pub(super) fn unit(&self) -> [f64; 3] {
        let length = length(self.direction);
        self.direction.map(|x| x / length)
    }
}

fn length(v: [f64; 3]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// What a cone will hold and cost, before there is one: of uniform matter, and of the rank that has most.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConeForecast {
    /// Particles of all ranks.
    pub particles: u64,
    /// Bytes of device memory beside the run's.
    pub device_memory: u64,
    /// Bytes of the host's memory for particles that have crossed.
    pub host_memory: u64,
    /// Bytes of device memory that are read and written by all steps.
    pub device: u64,
    /// Steps that the cone crosses.
    pub steps: usize,
}

impl Cone {
    /// The farthest that a cone reaches, in sides of the box: numbers of replicas along an axis have seven bits.
    pub const MOST_BOXES: f64 = 60.0;

    /// Checks the cone of a run.
    ///
    /// # Errors
    /// [`SimulationError::OutOfRange`] for an observer outside of the box, a distance that the run does not cover or that spans too many
    /// boxes, no direction and no opening; [`CosmologyError`](crate::cosmology::CosmologyError) for scale factors out of range.
    pub fn validate(&self, config: &Config) -> Result<(), SimulationError> {
        let range = |what: &'static str, value: String, ok: bool, allowed: String| {
            if ok { Ok(()) } else { Err(SimulationError::OutOfRange { what, value, allowed }) }
        };
        let (side, cosmology) = (config.box_size, &config.cosmology);
        let inside = self.observer.iter().all(|x| (0.0..=side).contains(x));
        let place = format!("{:?}", self.observer);
        range("observer of the light cone", place, inside, format!("in the box, from 0 to {side} along each axis"))?;
        let (first, last) = (cosmology.comoving_distance(config.a_start)?, cosmology.comoving_distance(config.a_end)?);
        let most = first.min(Self::MOST_BOXES * side);
        let allowed = format!(
            "above {last:.6} Mpc/h, from where light of the end arrives, and up to {most:.6} Mpc/h: what the run covers from its start \
             on ({first:.6}), and {} sides of the box at most",
            Self::MOST_BOXES
        );
        let ok = self.distance > last && self.distance <= most;
        range("distance of the light cone", self.distance.to_string(), ok, allowed)?;
        let Some(Opening { direction, angle }) = &self.opening else { return Ok(()) };
        let length = length(*direction);
        let ok = length.is_finite() && length > 0.0;
        range("direction of the light cone", format!("{direction:?}"), ok, "three numbers that are not all 0".into())?;
        let ok = *angle > 0.0 && *angle <= 180.0;
        range("opening of the light cone", angle.to_string(), ok, "an angle above 0, up to 180 degrees".into())
    }

    /// The comoving volume of the cone between two distances, in (Mpc/h)^3.
    pub fn volume(&self, [near, far]: [f64; 2]) -> f64 {
        let sky = self.opening.as_ref().map_or(2.0, |opening| 1.0 - opening.angle.to_radians().cos());
        2.0 * PI * sky / 3.0 * (far.powi(3) - near.powi(3))
    }

    /// What this cone of a run on `ranks` ranks will hold and cost.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and those of the configuration.
    pub fn forecast(&self, config: &Config, ranks: usize) -> Result<ConeForecast, SimulationError> {
        self.validate(config)?;
        let own = config.grid(ranks)?.part(config.sites(), 0);
        let (count, near) = (crate::grid::volume(&own), config.cosmology.comoving_distance(config.a_end)?);
        let density = (config.particles as f64 / config.box_size).powi(3);
        let particles = (density * self.volume([near, self.distance])) as u64;
        let epoch = |op: &StepOp| if let StepOp::Reached { a, .. } = op { Some(*a) } else { None };
        let epochs: Vec<f64> = config.schedule()?.iter().filter_map(epoch).collect();
        let (mut device, mut steps) = (0, 0);
        for pair in epochs.windows(2) {
            let shell = Shell::new(config, self, [pair[0], pair[1]])?;
            if !shell.is_reached() {
                continue;
            }
            // Displacements of this size decide little here.
            let images = images(config, self, &shell, &own, [0.0; 2]).len();
            let parts = images.div_ceil(super::images_at_once(count)) as u64;
            // The state is copied once; the greatest displacement is sought; for each part of the replicas displacements are read, numbers are
            // written and summed, and what crosses is read and written.
            device += count * (2 * 24 + 24 + parts * (24 + 4 + 12 + 8));
            steps += 1;
        }
        let rows = super::ROW * 4;
        device += particles / ranks as u64 * (2 * rows + 48);
        Ok(ConeForecast {
            particles,
            device_memory: count * (2 * 24 + 8 + rows),
            host_memory: particles.div_ceil(ranks as u64) * rows,
            device,
            steps,
        })
    }
}

/// A replica of the box as one word: its numbers of sides along the axes from the box, each from -64 to 63 in seven bits.
pub(super) fn image_code(image: [i64; 3]) -> u32 {
    image.iter().fold(0, |code, m| code << 7 | (m + 64) as u32)
}

/// The replica that [`image_code`] names.
pub(super) fn image_of(code: u32) -> [i32; 3] {
    [14, 7, 0].map(|shift| (code >> shift & 127) as i32 - 64)
}

/// The replicas of the box in which particles of the sites `own` can cross `shell`, ascending. At its ends they are displaced by up to `reach`
/// spacings along each axis, and within the step they move by up to `motion` of them.
pub(super) fn images(config: &Config, cone: &Cone, shell: &Shell, own: &Box3, [reach, motion]: [f64; 2]) -> Vec<u32> {
    let (n, spacing) = (config.particles as f64, config.box_size / config.particles as f64);
    if own.iter().any(|range| range.is_empty()) {
        return Vec::new();
    }
    // Room for what rounding of f32 and of the observer's place may move.
    let reach = reach * (1.0 + 1e-5) + 1e-3;
    // Who crosses where the cone has begun was no farther from there, at the beginning of the step, than it has moved.
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

/// Whether the sphere round a box may be seen in an opening.
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

    fn config() -> Config {
        Config { particles: 8, mesh: 8, box_size: 100.0, a_start: 0.5, steps: 4, ..Config::default() }
    }

    fn cone() -> Cone {
        Cone { observer: [10.0, 50.0, 100.0], distance: 400.0, opening: None }
    }

    #[test]
    fn codes_ascend_with_images() {
        let all: Vec<[i64; 3]> = [-64, -1, 0, 63].map(|m| [m, -m - 1, 5]).to_vec();
        assert!(all.windows(2).all(|pair| image_code(pair[0]) < image_code(pair[1])));
        assert!(all.iter().all(|image| image_of(image_code(*image)).map(i64::from) == *image));
    }

    #[test]
    fn images_hold_every_site_that_a_shell_has() {
        let (config, mut cone) = (config(), cone());
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
    fn a_forecast_counts_the_volume() {
        let config = config();
        let whole = cone().forecast(&config, 1).unwrap();
        let density = 512.0 / 1e6;
        assert_eq!(whole.particles, (density * 4.0 / 3.0 * PI * 400f64.powi(3)) as u64);
        let half = Cone { opening: Some(Opening { direction: [0.0, 0.0, 1.0], angle: 90.0 }), ..cone() };
        let half = half.forecast(&config, 2).unwrap();
        assert!(half.particles.abs_diff(whole.particles / 2) <= 1 && half.device_memory < whole.device_memory);
        // 400 Mpc/h are a = 0.88: the last of four steps from 0.5.
        assert_eq!((whole.steps, half.steps), (1, 1));
    }
}
