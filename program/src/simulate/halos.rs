//! The halos of a run: groups of its particles, their catalog and their mass function.

use std::path::Path;

use meshloom::comm::{Communicator, Op};
use meshloom::cosmology::Overdensity;
use meshloom::io::{Sealed, seal_whole};
use meshloom::pm::{Quantity, Simulation};
use meshloom::points::Cloud;
use meshloom::points::fof::{Catalog, Groups, Linking, Selection};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use super::mass_function::{MassFunction, OF_GROUPS};
use super::outputs::Outputs;
use crate::catalog;
use crate::spheres::Spheres;

/// Groups of this moment's particles, with masses in Msun/h, lengths in Mpc/h and peculiar
/// velocities in km/s.
pub struct Halos {
    catalog: Catalog,
    /// Mass of a particle.
    mass: f64,
    selection: Selection,
    length: f32,
    spheres: Vec<Spheres>,
}

/// Returns the number density of particles that each of `densities` is at this moment, and the mass
/// of a particle in Msun/h.
fn wanted(simulation: &Simulation, densities: &[Overdensity]) -> (Vec<(Overdensity, f64)>, f64) {
    let (config, cosmology) = (simulation.config(), simulation.linear_power().cosmology());
    let particles = config.particles.pow(3);
    let mean = particles as f64 / config.box_size.powi(3);
    let matter = cosmology.matter_fraction(simulation.scale_factor());
    let of = |&density: &Overdensity| (density, mean * density.over_mean(matter));
    (densities.iter().map(of).collect(), cosmology.particle_mass(config.box_size, particles))
}

impl Halos {
    /// Finds groups among all ranks' particles, whose [`clouds`] these are. Collective.
    pub fn find(
        rank: &mut Rank,
        simulation: &Simulation,
        [points, cloud]: [Cloud; 2],
        linking: Linking,
        overdensities: &[Overdensity],
    ) -> Result<Self, Error> {
        let groups = Groups::find(rank, &cloud, linking)?;
        drop(cloud);
        let (selection, length) = (Selection::default(), groups.length());
        let mut catalog = groups.catalog(&mut rank.recorder, &selection)?;
        drop(groups);
        let (densities, mass) = wanted(simulation, overdensities);
        let spheres = Spheres::measure(rank, &points, &catalog, &densities, mass)?;
        drop(points);
        catalog.mass.iter_mut().for_each(|all| *all *= mass);
        Ok(Halos { catalog, mass, selection, length, spheres })
    }

    /// Writes `halos.npz`, the mass function and, with `--hdf5`, `halos.0.hdf5` into `directory`;
    /// no file has its final name yet. Collective.
    pub fn seal(
        &self,
        comm: &Communicator,
        outputs: &Outputs,
        simulation: &Simulation,
        directory: &Path,
    ) -> Result<Vec<Sealed>, Error> {
        let (halos, side) = (&self.catalog, simulation.config().box_size);
        let more: Vec<_> = self.spheres.iter().flat_map(Spheres::columns).collect();
        let mut files = vec![catalog::seal(comm, &directory.join("halos.npz"), halos, &more)?];
        files.extend(hdf5(outputs, simulation, comm, (halos, &self.spheres), directory)?);
        let (power, a) = (simulation.linear_power(), simulation.scale_factor());
        let table = |masses: &[f32], density: Overdensity| {
            MassFunction::new((comm, masses), side, self.mass, self.selection.min_members, power, (a, density))
        };
        let masses: Vec<f32> = halos.mass.iter().map(|&mass| mass as f32).collect();
        let of_groups = table(&masses, OF_GROUPS)?;
        if comm.rank() == 0 {
            let [csv, png] = ["mass_function.csv", "mass_function.png"].map(|name| directory.join(name));
            files.push(seal_whole(&csv, of_groups.csv(&csv)?.as_bytes())?);
            files.push(seal_whole(&png, &of_groups.png(&png)?)?);
        }
        for Spheres { density, mass, .. } in &self.spheres {
            let masses: Vec<f32> = mass.iter().filter(|mass| **mass > 0.0).map(|&mass| mass as f32).collect();
            let table = table(&masses, *density)?;
            if comm.rank() == 0 {
                let csv = directory.join(format!("mass_function_{density}.csv"));
                files.push(seal_whole(&csv, table.csv(&csv)?.as_bytes())?);
            }
        }
        Ok(files)
    }

    /// Returns what is said of them beside their files. Collective.
    pub fn report(&self, comm: &Communicator) -> Result<Value, Error> {
        let halos = &self.catalog;
        let mut most = [halos.count.iter().copied().max().unwrap_or(0)];
        comm.all_reduce(&mut most, Op::Max)?;
        Ok(json!({
            "linking_length": self.length, "min_members": self.selection.min_members, "count": halos.total,
            "members": halos.members_total, "most_members": most[0], "particle_mass": self.mass,
            "overdensities": self.spheres.iter().map(|spheres| spheres.density.to_string()).collect::<Vec<_>>(),
        }))
    }
}

/// Returns the particles of this moment alone, and with their peculiar velocities, in Lagrangian
/// order. Collective.
pub fn clouds(rank: &mut Rank, simulation: &mut Simulation) -> Result<[Cloud; 2], Error> {
    let points = simulation.to_particles(rank)?.cloud().clone();
    let mut moving = points.clone();
    moving.set("velocity", simulation.in_order(rank, Quantity::Velocity)?, 3)?;
    Ok([points, moving])
}

/// Returns the catalog in Gadget-4's layout: each rank writes its rows and members. `info` is the
/// header of the box, or of the light cone's space.
#[cfg(feature = "hdf5")]
pub fn seal_hdf5(
    comm: &Communicator,
    path: &Path,
    info: &meshloom::io::hdf5::SnapshotInfo,
    (halos, spheres): (&Catalog, &[Spheres]),
) -> Result<Sealed, Error> {
    use meshloom::io::collective::seal_hdf5;
    use meshloom::io::hdf5::{Groups, GroupsPlace, Hdf5Contents, SphereColumns};

    let narrow = |values: &[f64], unit: f64| values.iter().map(|&x| (x * unit) as f32).collect::<Vec<f32>>();
    let optional = |values: &Option<Vec<f64>>| values.as_deref().map_or_else(Vec::new, |values| narrow(values, 1.0));
    let (velocity, dispersion) = (optional(&halos.velocity), optional(&halos.velocity_dispersion));
    let (center, scale_factor) = (narrow(&halos.center, 1.0), optional(&halos.scale_factor));
    let spheres: Vec<_> =
        spheres.iter().map(|s| (s.gadget_name(), narrow(&s.mass, 1e-10), narrow(&s.radius, 1.0))).collect();
    let spheres: Vec<_> =
        spheres.iter().map(|(name, mass, radius)| SphereColumns { name: name.clone(), mass, radius }).collect();
    let groups = Groups {
        spheres: &spheres,
        label: &halos.label,
        count: &halos.count,
        // The layout has masses in 1e10 Msun/h.
        mass: &narrow(&halos.mass, 1e-10),
        center: center.as_chunks::<3>().0,
        velocity: Some(velocity.as_chunks::<3>().0),
        inertia_radius: &narrow(&halos.inertia_radius, 1.0),
        velocity_dispersion: Some(&dispersion),
        max_radius: &narrow(&halos.max_radius, 1.0),
        scale_factor: halos.scale_factor.as_ref().map(|_| scale_factor.as_slice()),
        offset: &halos.offset,
        members: Some(&halos.members),
    };
    let place = GroupsPlace {
        groups: halos.total,
        first_group: halos.groups.start,
        members: halos.members_total,
        first_member: halos.members_start,
    };
    let contents = Hdf5Contents::Groups { info, groups: &groups, place };
    seal_hdf5(comm, path, &contents, |to| Ok(groups.write(to, info, &place)?))
}

/// Returns the catalog of a snapshot, with `--hdf5`.
#[cfg(feature = "hdf5")]
fn hdf5(
    outputs: &Outputs,
    simulation: &Simulation,
    comm: &Communicator,
    halos: (&Catalog, &[Spheres]),
    directory: &Path,
) -> Result<Option<Sealed>, Error> {
    match outputs.parameters.options.hdf5 {
        None => Ok(None),
        Some(_) => seal_hdf5(comm, &directory.join("halos.0.hdf5"), &simulation.snapshot_info(), halos).map(Some),
    }
}

/// Without the feature, `--hdf5` does not exist.
#[cfg(not(feature = "hdf5"))]
fn hdf5(
    _: &Outputs,
    _: &Simulation,
    _: &Communicator,
    _: (&Catalog, &[Spheres]),
    _: &Path,
) -> Result<Option<Sealed>, Error> {
    Ok(None)
}
