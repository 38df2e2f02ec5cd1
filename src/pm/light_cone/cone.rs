//! Coverage of a light cone, and its ranges. Pure.

use std::f64::consts::PI;

use crate::pm::error::require;
use crate::pm::{Config, Result};

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
}
