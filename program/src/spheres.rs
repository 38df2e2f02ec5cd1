//! Spherical overdensities about the centers of groups.

use meshloom::cosmology::Overdensity;
use meshloom::host_memory;
use meshloom::points::fof::Catalog;
use meshloom::points::{Cloud, Counts, Domain, Predicate, Targets};
use meshloom::{Error, Rank};

use crate::coordinates::Universe;

/// A spherical overdensity about the center of each of this rank's groups: 0 for those that have
/// none.
pub struct Spheres {
    pub density: Overdensity,
    pub mass: Vec<f64>,
    pub radius: Vec<f64>,
}

/// The least points of a sphere that is looked at: in smaller ones chance decides where the mean
/// density falls.
const LEAST: u32 = 10;

impl Spheres {
    /// Returns the spheres of no groups.
    pub fn none(density: Overdensity) -> Spheres {
        Spheres { density, mass: Vec::new(), radius: Vec::new() }
    }

    /// Returns the spheres of each of `densities`, which are points per volume, about the centers
    /// of groups, counting all points; each point has the mass `unit`. Collective.
    pub fn measure(
        rank: &mut Rank,
        cloud: &Cloud,
        groups: &Catalog,
        densities: &[(Overdensity, f64)],
        unit: f64,
    ) -> Result<Vec<Spheres>, Error> {
        if densities.is_empty() {
            return Ok(Vec::new());
        }
        let centers = host_memory::collect("centers of groups", groups.center.iter().map(|&x| x as f32))?;
        let centers = Cloud::from_host(&mut rank.recorder, cloud.domain(), &centers)?;
        let search = rank.search(&cloud.clone().into())?;
        let values: Vec<f64> = densities.iter().map(|(_, density)| *density).collect();
        let spheres = Predicate::overdensity(&values, LEAST);
        let counts = rank.query(&search, Targets::Of(&centers.into()), spheres, Counts)?;
        let spheres = densities.iter().enumerate().map(|(which, &(density, points))| {
            let counts = counts.iter().skip(which).step_by(densities.len()).map(|&count| count as f64);
            let radius = |count: f64| match cloud.domain().dims() {
                2 => (count / points / std::f64::consts::PI).sqrt(),
                _ => (0.75 / std::f64::consts::PI * count / points).cbrt(),
            };
            Spheres {
                density,
                mass: counts.clone().map(|count| count * unit).collect(),
                radius: counts.map(radius).collect(),
            }
        });
        Ok(spheres.collect())
    }

    /// Returns the columns of a catalog.
    pub fn columns(&self) -> [(String, &[f64]); 2] {
        let Spheres { density, mass, radius } = self;
        [(format!("mass_{density}"), mass.as_slice()), (format!("radius_{density}"), radius.as_slice())]
    }

    /// Gadget-4's name of the density.
    #[cfg(feature = "hdf5")]
    pub fn gadget_name(&self) -> String {
        match self.density {
            Overdensity::Mean(times) => format!("Mean{times}"),
            Overdensity::Critical(times) => format!("Crit{times}"),
            Overdensity::Virial => "TopHat200".into(),
        }
    }
}

/// Returns the overdensities that words name, each once; an error in words for others.
pub fn overdensities(words: &[String]) -> Result<Vec<Overdensity>, String> {
    let mut all = Vec::new();
    for word in words {
        let density = word.parse().map_err(|error| format!("--overdensity: {error}"))?;
        if all.contains(&density) {
            return Err(format!("--overdensity has {density} twice; give it once"));
        }
        all.push(density);
    }
    Ok(all)
}

/// Overdensities of points in a box, each with what it is of their mean density. The critical
/// density and the virial one, which is of a flat universe, are known of snapshots that say their
/// cosmology; the points are taken for all of its matter. An error in words for what cannot be.
pub fn in_box(
    all: Vec<Overdensity>,
    domain: &Domain,
    universe: Option<Universe>,
) -> Result<Vec<(Overdensity, f64)>, String> {
    let open = (0..domain.dims()).any(|axis| domain.side(axis).is_none());
    if open && !all.is_empty() {
        return Err(
            "--overdensity is in units of the mean density, which needs a box: give --box a side for every axis".into(),
        );
    }
    let of_mean = |density: Overdensity| {
        let matter = match (density, universe) {
            // The mean density needs nothing beside the points.
            (Overdensity::Mean(_), _) => 1.0,
            _ if domain.dims() != 3 => {
                return Err(format!("--overdensity {density} is of three axes; give numbers with m"));
            }
            (_, None) => {
                return Err(format!(
                    "--overdensity {density} needs a cosmology, but the points have none; give numbers with m, a snapshot in HDF5 whose \
                     attributes say its cosmology and moment, or have simulate write it"
                ));
            }
            (Overdensity::Virial, Some(Universe { omega_k, .. })) if omega_k.abs() > FLAT => {
                return Err(format!(
                    "--overdensity vir is of a flat universe, and Omega_k of the snapshot is {omega_k}; give numbers with m or c"
                ));
            }
            (_, Some(universe)) => universe.matter_fraction,
        };
        Ok((density, density.over_mean(matter)))
    };
    all.into_iter().map(of_mean).collect()
}

/// Files round their densities: a universe that is as flat as that is flat. The virial overdensity
/// changes by a part in a thousand.
const FLAT: f64 = 1e-3;
