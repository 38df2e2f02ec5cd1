//! Artifacts of the particles' lattice in a run. Pure.

use std::f64::consts::PI;

use crate::cosmology::{CosmologyError, LinearPower};
use crate::mesh::Window;

use super::Config;

/// Displacements of the start, in cells of the force mesh, below which a lattice on the nodes of a
/// mesh grows wrongly with cloud in cell: measured with `scripts/growth.py`, the longest waves of a
/// box grow by 2 % more than with [`Window::Tsc`] from 0.17 cells, by 7 % from 0.08 and by 13 %
/// from 0.04.
const SMALL_DISPLACEMENT: f64 = 0.15;

impl Config {
    /// Returns the strongest spurious wave that the lattice paints into the force mesh before any
    /// particle has moved, by its wavenumber along an axis in units of the box's fundamental mode;
    /// `None` if the mesh has a whole number of cells per particle.
    ///
    /// The lattice has waves at multiples of `particles`. Waves that are too short for the mesh are
    /// aliased to longer ones, by a multiple of `mesh`. If that is a whole multiple of `particles`,
    /// these are waves of the lattice again, without force on its sites; otherwise they displace
    /// particles as if there were structure, most of all the wave that the window damps least.
    ///
    /// ```
    /// use meshloom::pm::Config;
    ///
    /// let false_wave = |particles, mesh| Config { particles, mesh, ..Config::default() }.false_wave();
    /// assert_eq!((false_wave(96, 128), false_wave(96, 192)), (Some(32), None));
    /// ```
    #[must_use]
    pub fn false_wave(&self) -> Option<u64> {
        let (n, m) = (self.particles, self.mesh);
        if n == 0 || m.is_multiple_of(n) {
            return None;
        }
        let folded = |wave: u64| (wave % m).min(m - wave % m);
        let left = |wave: u64| self.window.transform(2.0 * PI * wave as f64 / m as f64).abs();
        // The window leaves little of waves of more than two to a cell.
        let waves = (1..=2 * m / n + 1).map(|j| j * n).filter(|&wave| !folded(wave).is_multiple_of(n));
        waves.max_by(|&one, &other| left(one).total_cmp(&left(other))).map(folded)
    }

    /// Returns the rms displacement along an axis of linear theory at the start, in cells of the
    /// force mesh; of the waves that the lattice has.
    ///
    /// # Errors
    /// [`CosmologyError`] of a start out of range.
    pub fn start_displacement(&self, power: &LinearPower) -> Result<f64, CosmologyError> {
        let fundamental = 2.0 * PI / self.box_size;
        // The mean alone is missing: its mode takes as much of the space of wave vectors as any
        // other.
        let low = fundamental * (0.75 / PI).cbrt();
        let high = fundamental * 0.5 * self.particles as f64;
        Ok(power.displacement([low, high], self.a_start)? * self.mesh as f64 / self.box_size)
    }

    /// Returns whether displacements at the start are so small a part of a cell that cloud in cell
    /// makes structure grow too fast.
    ///
    /// Particles begin on nodes of the mesh, where that window has a kink: what it paints of a
    /// particle that moves by a small part of a cell, and the force that it reads out there, depend
    /// on which side of the node it is. [`Window::Tsc`] has no kink there.
    ///
    /// # Errors
    /// Same as [`start_displacement`](Self::start_displacement).
    pub fn grows_off_nodes(&self, power: &LinearPower) -> Result<bool, CosmologyError> {
        let on_nodes = self.window == Window::Cic && self.false_wave().is_none();
        Ok(on_nodes && self.start_displacement(power)? < SMALL_DISPLACEMENT)
    }

    /// Returns what the user of a run should know that goes ahead although its numbers spoil its
    /// physics, one sentence each: of a [false wave](Self::false_wave), and of [growth from
    /// displacements beside nodes](Self::grows_off_nodes).
    ///
    /// # Errors
    /// Same as [`start_displacement`](Self::start_displacement).
    pub fn warnings(&self, power: &LinearPower) -> Result<Vec<String>, CosmologyError> {
        let Config { particles, mesh, .. } = self;
        let mut said = Vec::new();
        if let Some(wave) = self.false_wave() {
            said.push(format!(
                "a mesh of {mesh} cells along an axis is not a multiple of {particles} particles: their lattice adds a false wave of {wave} times the fundamental \
                 mode, which grows like structure; take a mesh of {}, or a number of particles that divides {mesh}",
                2 * particles
            ));
        }
        if self.grows_off_nodes(power)? {
            said.push(format!(
                "particles move by {} cells of the mesh before the first step: for displacements this small and the window cic, structure grows about 10 % \
                 too fast; take the window tsc",
                significant(self.start_displacement(power)?)
            ));
        }
        Ok(said)
    }
}

/// Returns a positive number with two significant digits.
fn significant(x: f64) -> String {
    let decimals = (1.0 - x.log10().floor()).clamp(0.0, 12.0) as usize;
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, TransferKind};

    #[test]
    fn lattices_alias_to_what_a_painted_one_shows() {
        let config = |particles, mesh| Config { particles, mesh, ..Config::default() };
        for (n, m) in
            [(4u64, 4u64), (4, 8), (4, 12), (4, 5), (4, 6), (4, 7), (4, 9), (4, 10), (5, 16), (6, 16), (12, 16)]
        {
            // The lattice by cloud in cell along an axis, and its waves by definition.
            let mut density = vec![0.0; m as usize];
            for site in 0..n {
                let (first, weights) = Window::Cic.nodes(site as f64 * m as f64 / n as f64);
                for (node, weight) in weights.iter().enumerate() {
                    density[(first as usize + node) % m as usize] += weight;
                }
            }
            let strength = |wave: u64| {
                let turn = |cell: usize| 2.0 * PI * (wave * cell as u64) as f64 / m as f64;
                let [re, im] = [f64::cos, f64::sin]
                    .map(|part| density.iter().enumerate().map(|(cell, mass)| mass * part(turn(cell))).sum::<f64>());
                re.hypot(im)
            };
            // Waves of the lattice itself are genuine.
            let mut strongest = (1e-9 * n as f64, None);
            for wave in (1..=m / 2).filter(|wave| !wave.is_multiple_of(n)) {
                if strength(wave) > strongest.0 * (1.0 + 1e-9) {
                    strongest = (strength(wave), Some(wave));
                }
            }
            assert_eq!(config(n, m).false_wave(), strongest.1, "{n} on {m}");
        }
    }

    #[test]
    fn large_boxes_and_early_starts_are_the_ones() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let usual = Config::default();
        // Measured by `scripts/growth.py` with 32^3 particles on a mesh of 64, seed 1: the few
        // longest waves scatter, most in the smallest box.
        let small = Config { particles: 32, mesh: 64, ..Config::default() };
        for (box_size, measured) in [(64.0, 0.275), (128.0, 0.171), (320.0, 0.079), (640.0, 0.039)] {
            let found = Config { box_size, ..small.clone() }.start_displacement(&power).unwrap();
            assert!((found / measured - 1.0).abs() < 0.25, "{box_size}: {found} {measured}");
        }
        assert!(!usual.grows_off_nodes(&power).unwrap());
        for other in [Config { box_size: 640.0, ..usual.clone() }, Config { a_start: 0.02, ..usual.clone() }] {
            assert!(other.grows_off_nodes(&power).unwrap());
            assert!(!Config { window: Window::Tsc, ..other }.grows_off_nodes(&power).unwrap());
        }
    }

    #[test]
    fn sound_runs_have_no_warnings_and_others_say_what_to_take() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let of = |config: Config| config.warnings(&power).unwrap();
        assert_eq!(of(Config::default()), [""; 0]);
        let [aliased] = &of(Config { particles: 96, box_size: 960.0, ..Config::default() })[..] else { panic!("one") };
        assert!(aliased.contains("false wave of 32 times") && aliased.contains("take a mesh of 192"), "{aliased}");
        let large = Config { box_size: 640.0, ..Config::default() };
        let [early] = &of(large.clone())[..] else { panic!("one") };
        assert!(early.contains("0.086 cells") && early.contains("take the window tsc"), "{early}");
        assert_eq!(of(Config { window: Window::Tsc, ..large }), [""; 0]);
    }
}
