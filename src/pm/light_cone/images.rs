//! The replicas of the box that the light cone of a step can touch. Pure.

use super::cone::{Cone, length};
use super::shell::Shell;
use crate::grid::Box3;
use crate::pm::Config;

/// Replicas that a pass looks at: llvmpipe ends loops after 65,535 rounds, and an invocation has up
/// to 16 particles.
const IMAGES: u64 = 64;

/// Replicas of a pass over `count` particles: no more than a word can count crossings of.
pub(super) fn images_at_once(count: u64) -> usize {
    IMAGES.min(u64::from(u32::MAX - 1) / count.max(1)).max(1) as usize
}

/// A replica of the box as one word: its numbers of sides along the axes from the box, each from
/// -64 to 63 in seven bits.
pub(super) fn image_code(image: [i64; 3]) -> u32 {
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
    use crate::pm::light_cone::Opening;

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
