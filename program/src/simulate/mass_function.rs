//! The mass function of a run's halos beside models: as a table and as a picture.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::cosmology::{CosmologyError, LinearPower, MassBin, MassBins, Multiplicity, Overdensity};
use meshloom::io::{Column, IoError, csv_text};
use meshloom_program::plots::{Axis, Curve, LinePlot, Points};

use crate::trace;

/// Bins per factor of 10 in mass: as many as a box of some 100 Mpc/h fills with halos.
const BINS_PER_DECADE: u32 = 5;

/// Points of a curve per factor of 10 in mass.
const CURVE_PER_DECADE: f64 = 20.0;

/// Densities over the mean that Tinker's fit has.
const TINKER_RANGE: [f64; 2] = [200.0, 3200.0];

/// The density of halos that groups of friends of friends are compared with.
pub const OF_GROUPS: Overdensity = Overdensity::Mean(200.0);

/// The models beside groups, and the names and colors of their curves.
const MODELS: [Multiplicity; 3] = [Multiplicity::ShethTormen, Multiplicity::TINKER_MEAN, Multiplicity::Watson];
const NAMES: [&str; 3] = ["Sheth & Tormen", "Tinker et al., 200 × mean density", "Watson et al., friends of friends"];
const COLORS: [[u8; 3]; 3] = [[226, 118, 62], [40, 90, 160], [46, 139, 87]];
const FOUND: [u8; 3] = [62, 29, 102];

/// Halos of a box, binned by mass, and the mass functions of the models.
pub struct MassFunction<'a> {
    power: &'a LinearPower,
    a: f64,
    bins: Vec<MassBin>,
    /// For each model the mean dn/dlnM of each bin.
    expected: [Vec<f64>; 3],
}

impl<'a> MassFunction<'a> {
    /// Bins all ranks' groups, `masses` (Msun/h) of this one, of at least `min_members` particles
    /// of `particle_mass` (Msun/h), found in a cube of side `box_size` (Mpc/h) at scale factor `a`,
    /// beside Tinker's halos of `density`, where his fit has it, and not a number elsewhere. The
    /// bins follow from the other arguments, never from the masses. Collective.
    pub fn new(
        (comm, masses): (&Communicator, &[f32]),
        box_size: f64,
        particle_mass: f64,
        min_members: u64,
        power: &'a LinearPower,
        (a, density): (f64, Overdensity),
    ) -> Result<Self, Error> {
        let particles = (power.cosmology().matter_density() * box_size.powi(3) / particle_mass).round();
        // A run of fewer particles than a group needs gets one bin.
        let particles = (particles as u64).max(min_members);
        let bins = MassBins::new(particle_mass, min_members, particles, BINS_PER_DECADE)?;
        let mut counts = bins.counts(masses)?;
        comm.all_reduce(&mut counts, Op::Sum)?;
        let wanted = density.over_mean(power.cosmology().matter_fraction(a));
        let overdensity = wanted.clamp(TINKER_RANGE[0], TINKER_RANGE[1]);
        let [groups, _, linked] = MODELS;
        let mut expected = bins.expected(power, &[groups, Multiplicity::Tinker { overdensity }, linked], a)?;
        if overdensity != wanted {
            expected[1].fill(f64::NAN);
        }
        Ok(Self { power, a, bins: bins.mass_function(&counts, box_size)?, expected })
    }

    /// Checks before a run that it can have a mass function: bins and curves of masses for which
    /// linear theory has a variance.
    pub fn check(
        power: &LinearPower,
        box_size: f64,
        particles: u64,
        min_members: u64,
        a: f64,
    ) -> Result<(), CosmologyError> {
        let particle_mass = power.cosmology().particle_mass(box_size, particles);
        let bins = MassBins::new(particle_mass, min_members, particles.max(min_members), BINS_PER_DECADE)?;
        let (first, last) = (bins.edges()[0], bins.edges()[bins.edges().len() - 1]);
        shown(first, last).into_iter().try_for_each(|mass| power.mass_variance(mass, a).map(drop))
    }

    /// Returns the text of `mass_function.csv`, one row per bin, also for empty bins, up to the one
    /// beyond the heaviest halo.
    pub fn csv(&self, path: &Path) -> Result<String, IoError> {
        let filled = self.bins.iter().rposition(|bin| bin.count > 0).map_or(0, |last| last + 1);
        let bins = &self.bins[..self.bins.len().min(filled + 1)];
        let column = |value: fn(&MassBin) -> f64| bins.iter().map(value).collect::<Vec<_>>();
        let [low, high, mass] = [column(|bin| bin.mass_low), column(|bin| bin.mass_high), column(|bin| bin.mass)];
        let [found, error] = [column(|bin| bin.dn_dlnm), column(|bin| bin.error)];
        let count: Vec<u64> = bins.iter().map(|bin| bin.count).collect();
        let [sheth_tormen, tinker, watson] = self.expected.each_ref().map(|model| &model[..bins.len()]);
        let columns = [
            ("mass_low", Column::F64(&low)),
            ("mass_high", Column::F64(&high)),
            ("mass", Column::F64(&mass)),
            ("count", Column::U64(&count)),
            ("dn_dlnM", Column::F64(&found)),
            ("error", Column::F64(&error)),
            ("sheth_tormen", Column::F64(sheth_tormen)),
            ("tinker", Column::F64(tinker)),
            ("watson", Column::F64(watson)),
        ];
        csv_text(path, &columns)
    }

    /// Returns the bytes of `mass_function.png`: bins with halos as points with their Poisson
    /// errors, and the models.
    pub fn png(&self, path: &Path) -> Result<Vec<u8>, meshloom::Error> {
        let _activity = trace::activity("draw mass function");
        // Masses from the first bin to the last with a halo.
        let first = self.bins[0].mass_low;
        let last = self.bins.iter().rfind(|bin| bin.count > 0).map_or(first, |bin| bin.mass_high);
        let range = shown(first, last);
        let points = (CURVE_PER_DECADE * (range[1] / range[0]).log10()).ceil();
        let mut lines = [const { Vec::new() }; MODELS.len()];
        for i in 0..=points as u32 {
            let mass = range[0] * (range[1] / range[0]).powf(f64::from(i) / points);
            let variance = self.power.mass_variance(mass, self.a)?;
            for (line, model) in lines.iter_mut().zip(MODELS) {
                line.push((mass, model.dn_dlnm(&variance)?));
            }
        }
        let found: Vec<_> =
            self.bins.iter().filter(|bin| bin.count > 0).map(|bin| (bin.mass, bin.dn_dlnm, bin.error)).collect();
        let curves = [0, 1, 2].map(|i| Curve { name: NAMES[i], at: &lines[i], color: COLORS[i], dashed: i == 1 });
        let plot = LinePlot {
            title: &format!("Halo mass function at redshift {}", redshift(self.a)),
            x: Axis::logarithmic("M [M☉/h]", range),
            y: Axis::logarithmic("dn/dlnM [(h/Mpc)³]", self.heights(&found, &lines[1])),
            bands: &[],
            curves: &curves,
            points: &[Points { name: "friends of friends", at: &found, color: FOUND }],
        };
        Ok(plot.draw(path)?.png_bytes(path)?)
    }

    /// Returns the range of the dn/dlnM axis: the halos with their errors, and the start of the
    /// curve where there are none.
    fn heights(&self, found: &[(f64, f64, f64)], curve: &[(f64, f64)]) -> [f64; 2] {
        // At early times a model may give 0.
        let start = curve[0].1.max(1e-30);
        let high = found.iter().map(|(_, y, error)| y + error).fold(start, f64::max);
        // The error bar of a bin with one halo reaches 0: bars do not count.
        let low = found.iter().map(|&(_, y, _)| y).fold(high, f64::min);
        [(low / 3.0).min(high / 100.0), high * 2.0]
    }
}

/// Returns the range of masses that a plot of bins from `first` to `last` shows: a decade at least.
fn shown(first: f64, last: f64) -> [f64; 2] {
    [first / 1.25, (last * 1.6).max(first * 10.0)]
}

/// Returns the redshift of a scale factor with at most two decimals.
pub fn redshift(a: f64) -> f64 {
    ((1.0 / a - 1.0) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshloom::cosmology::{Cosmology, TransferKind};

    /// Returns the mass function of these groups of one rank.
    fn of<'a>(
        masses: &[f32],
        side: f64,
        particle: f64,
        power: &'a LinearPower,
        at: (f64, Overdensity),
    ) -> MassFunction<'a> {
        MassFunction::new((&Communicator::solo(), masses), side, particle, 20, power, at).unwrap()
    }

    /// Particles of a 64^3 run in 128 Mpc/h.
    fn particle_mass(power: &LinearPower) -> f64 {
        power.cosmology().matter_density() * 8.0
    }

    #[test]
    fn table_has_a_row_a_bin_and_its_columns() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let particle = particle_mass(&power);
        let masses = [20.0, 25.0, 300.0].map(|n| (n * particle) as f32);
        let table = of(&masses, 128.0, particle, &power, (1.0, OF_GROUPS));
        let text = table.csv(Path::new("mass_function.csv")).unwrap();
        let rows: Vec<Vec<f64>> =
            text.lines().skip(1).map(|row| row.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
        assert!(text.starts_with("mass_low,mass_high,mass,count,dn_dlnM,error,sheth_tormen,tinker,watson\n"));
        assert_eq!(rows.iter().map(|row| row[3]).sum::<f64>(), 3.0);
        assert_eq!(rows[0][0], 19.5 * particle);
        // The last row but one has the heaviest halo.
        let [.., heaviest, empty] = &rows[..] else { panic!("{text}") };
        assert!(heaviest[0] < 300.0 * particle && 300.0 * particle < heaviest[1] && empty[3] == 0.0, "{text}");
        let first = rows[0].clone();
        // All particles in one halo are in the last bin of all, and without halos there is one row.
        let rows = |masses: &[f32]| {
            let table = of(masses, 128.0, particle, &power, (1.0, OF_GROUPS));
            (table.csv(Path::new("mass_function.csv")).unwrap().lines().count() - 1, table.bins.len())
        };
        let (all, bins) = rows(&[(64f64.powi(3) * particle) as f32]);
        assert_eq!((all, rows(&[]).0), (bins, 1));
        // A group of at least 20 particles is 1.4e13 Msun/h: about one in (15 Mpc/h)^3.
        assert!(first[6..].iter().all(|model| (1e-4..1e-3).contains(model)), "{first:?}");
    }

    #[test]
    fn tinker_is_of_the_density_that_masses_are_of() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let particle = particle_mass(&power);
        let tinker = |density: &str, a: f64| {
            let table = of(&[], 128.0, particle, &power, (a, density.parse().unwrap()));
            table.expected[1][0]
        };
        // Of the density of the time: 500 times critical are 1607 times the mean today, and 640 at
        // z = 1.
        let (today, early) = (500.0 / 0.3111, 500.0 / power.cosmology().matter_fraction(0.5));
        for (overdensity, a) in [(today, 1.0), (early, 0.5)] {
            assert_eq!(tinker("500c", a), tinker(&format!("{overdensity}m"), a), "{a}");
        }
        // The same halo has less mass within a denser sphere.
        assert!(tinker("500c", 1.0) < tinker("vir", 1.0) && tinker("vir", 1.0) < tinker("200m", 1.0));
        assert!(tinker("2500c", 1.0).is_nan() && tinker("100m", 1.0).is_nan());
    }

    #[test]
    fn boxes_beyond_linear_theory_have_none() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        for (side, possible) in [(1e-5, false), (1.0, true), (1e4, true), (1e6, false), (1e9, false)] {
            let checked = MassFunction::check(&power, side, 512, 20, 1.0);
            assert_eq!(checked.is_ok(), possible, "{side}: {checked:?}");
            if possible {
                let particle = power.cosmology().particle_mass(side, 512);
                let all = (512.0 * particle) as f32;
                let table = of(&[all], side, particle, &power, (1.0, OF_GROUPS));
                table.png(Path::new("mass_function.png")).unwrap();
            }
        }
    }

    #[test]
    fn there_is_a_picture_of_many_halos_of_few_and_of_none() {
        let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full).unwrap();
        let particle = particle_mass(&power);
        let all = (64f64.powi(3) * particle) as f32;
        for (masses, a) in [(vec![], 1.0), (vec![], 0.02), (vec![(30.0 * particle) as f32], 0.5), (vec![all], 1.0)] {
            let table = of(&masses, 128.0, particle, &power, (a, OF_GROUPS));
            assert!(table.png(Path::new("mass_function.png")).unwrap().starts_with(b"\x89PNG"));
        }
    }
}
