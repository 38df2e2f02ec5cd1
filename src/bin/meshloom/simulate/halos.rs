//! The halos of a run: groups of its particles, their catalogue and their mass function.

use std::path::Path;

use meshloom::comm::{Communicator, Op};
use meshloom::cosmology::{Overdensity, peculiar_velocity};
use meshloom::grid::split;
use meshloom::io::{Sealed, seal_whole};
use meshloom::pm::{Config, Simulation, SimulationError};
use meshloom::points::fof::{Catalogue, Groups, Linking, Selection};
use meshloom::points::{Cloud, Domain};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use super::mass_function::{MassFunction, OF_GROUPS};
use super::outputs::Outputs;
use crate::catalogue;
use crate::spheres::Spheres;

/// Positions and momenta of this rank's particles, by axis.
type Particles<'a> = [&'a [Vec<f32>; 3]; 2];

/// Groups of this moment's particles, with masses in Msun/h, lengths in Mpc/h and peculiar velocities in km/s.
pub struct Halos {
    catalogue: Catalogue,
    /// Of a particle.
    mass: f64,
    selection: Selection,
    length: f32,
    spheres: Vec<Spheres>,
}

/// The number density of particles that each of `densities` is at this moment, and the mass of a particle in Msun/h.
fn wanted(simulation: &Simulation, densities: &[Overdensity]) -> (Vec<(Overdensity, f64)>, f64) {
    let (config, cosmology) = (simulation.config(), simulation.linear_power().cosmology());
    let particles = config.particles.pow(3);
    let mean = particles as f64 / config.box_size.powi(3);
    let matter = cosmology.matter_fraction(simulation.scale_factor());
    let of = |&density: &Overdensity| (density, mean * density.over_mean(matter));
    (densities.iter().map(of).collect(), cosmology.particle_mass(config.box_size, particles))
}

impl Halos {
    /// Finds groups among all ranks' particles. All ranks call it.
    pub fn find(
        context: &mut Context,
        simulation: &Simulation,
        particles: Particles<'_>,
        linking: Linking,
        overdensities: &[Overdensity],
    ) -> Result<Self, Error> {
        let (config, a) = (simulation.config(), simulation.scale_factor());
        let [points, cloud] = clouds(context, config, a, particles)?;
        let groups = Groups::find(context, &cloud, linking)?;
        drop(cloud);
        let (selection, length) = (Selection::default(), groups.length());
        let mut catalogue = groups.catalogue(&mut context.recorder, &selection)?;
        drop(groups);
        let (densities, mass) = wanted(simulation, overdensities);
        let spheres = Spheres::measure(context, &points, &catalogue, &densities, mass)?;
        drop(points);
        catalogue.mass.iter_mut().for_each(|all| *all *= mass);
        Ok(Halos { catalogue, mass, selection, length, spheres })
    }

    /// Writes `halos.npz`, the mass function and, with `--hdf5`, `halos.0.hdf5` into `directory`; no file has its final name yet. All ranks call it.
    pub fn seal(
        &self,
        comm: &Communicator,
        outputs: &Outputs,
        simulation: &Simulation,
        directory: &Path,
    ) -> Result<Vec<Sealed>, Error> {
        let (halos, side) = (&self.catalogue, simulation.config().box_size);
        let more: Vec<_> = self.spheres.iter().flat_map(Spheres::columns).collect();
        let mut files = vec![catalogue::seal(comm, &directory.join("halos.npz"), halos, &more)?];
        files.extend(hdf5(outputs, simulation, comm, (halos, &self.spheres), directory)?);
        let masses: Vec<f32> = halos.mass.iter().map(|&mass| mass as f32).collect();
        if let Some(masses) = comm.gather_v(0, &masses)? {
            let (power, a) = (simulation.linear_power(), simulation.scale_factor());
            let table =
                MassFunction::new(masses.data(), side, self.mass, self.selection.min_members, power, (a, OF_GROUPS))?;
            let [csv, png] = ["mass_function.csv", "mass_function.png"].map(|name| directory.join(name));
            files.push(seal_whole(&csv, table.csv(&csv)?.as_bytes())?);
            files.push(seal_whole(&png, &table.png(&png)?)?);
        }
        for Spheres { density, mass, .. } in &self.spheres {
            let masses: Vec<f32> = mass.iter().filter(|mass| **mass > 0.0).map(|&mass| mass as f32).collect();
            if let Some(masses) = comm.gather_v(0, &masses)? {
                let (power, a) = (simulation.linear_power(), simulation.scale_factor());
                let table = MassFunction::new(
                    masses.data(),
                    side,
                    self.mass,
                    self.selection.min_members,
                    power,
                    (a, *density),
                )?;
                let csv = directory.join(format!("mass_function_{density}.csv"));
                files.push(seal_whole(&csv, table.csv(&csv)?.as_bytes())?);
            }
        }
        Ok(files)
    }

    /// What is said of them beside their files. All ranks call it.
    pub fn report(&self, comm: &Communicator) -> Result<Value, Error> {
        let halos = &self.catalogue;
        let mut most = [halos.count.iter().copied().max().unwrap_or(0)];
        comm.all_reduce(&mut most, Op::Max)?;
        Ok(json!({
            "linking_length": self.length, "min_members": self.selection.min_members, "count": halos.total,
            "members": halos.members_total, "most_members": most[0], "particle_mass": self.mass,
            "overdensities": self.spheres.iter().map(|spheres| spheres.density.to_string()).collect::<Vec<_>>(),
        }))
    }
}

/// The particles alone, and with their peculiar velocities. All ranks call it.
fn clouds(
    context: &mut Context,
    config: &Config,
    a: f64,
    [positions, momenta]: Particles<'_>,
) -> Result<[Cloud; 2], Error> {
    let positions = in_row_order(&context.comm, config, positions)?;
    let points = Cloud::from_host(&mut context.recorder, &Domain::new(&config.size())?, &positions)?;
    drop(positions);
    let mut velocities = in_row_order(&context.comm, config, momenta)?;
    velocities.iter_mut().for_each(|p| *p = peculiar_velocity(f64::from(*p), a) as f32);
    let array = context.gpu.array::<f32>("velocity", velocities.len() as u64)?;
    context.recorder.upload(&array, 0, &velocities)?;
    let mut moving = points.clone();
    moving.set("velocity", array, 3)?;
    Ok([points, moving])
}

/// Redistributes the rows of all ranks' particles so that those of rank 0 come first in Lagrangian order, then those of rank
/// 1 and so on: a cloud numbers points in this order, and halos must not depend on the process grid. All ranks call it.
fn in_row_order(comm: &Communicator, config: &Config, [x, y, z]: &[Vec<f32>; 3]) -> Result<Vec<f32>, Error> {
    let (n, ranks, me) = (config.particles, comm.size(), comm.rank());
    let values: Vec<f32> = x.iter().zip(y).zip(z).flat_map(|((x, y), z)| [*x, *y, *z]).collect();
    if is_in_order(config, ranks)? {
        return Ok(values);
    }
    let part = |rank: usize| split(n * n, ranks as u64, rank as u64);
    let ends: Vec<u64> = (0..ranks).map(|rank| n * part(rank).end).collect();
    let new_owner = |row: u64| ends.partition_point(|&end| end <= row);
    // Rows ascend on each rank, and so do their new owners.
    let mut counts = vec![0; ranks];
    config.rows(ranks, me)?.for_each(|row| counts[new_owner(row)] += 3 * n);
    let received = comm.all_to_all_v(&values, &counts)?;
    drop(values);
    let own = part(me);
    let mut ordered = vec![0.0; (3 * n * (own.end - own.start)) as usize];
    let mut pieces = received.data().chunks(3 * n as usize);
    let sources = received.counts().iter().enumerate().filter(|(_, count)| **count > 0);
    for (source, _) in sources {
        let rows = config.rows(ranks, source)?.filter(|&row| new_owner(row) == me);
        for (row, piece) in rows.zip(&mut pieces) {
            let at = 3 * (row - n * own.start) as usize;
            ordered[at..at + piece.len()].copy_from_slice(piece);
        }
    }
    Ok(ordered)
}

/// Whether each of `ranks` has its rows already: all in whole planes, of which each rank has as many.
fn is_in_order(config: &Config, ranks: usize) -> Result<bool, Error> {
    let [_, across] = config.grid(ranks).map_err(SimulationError::from)?.parts();
    Ok(across == 1 && config.particles.is_multiple_of(ranks as u64))
}

/// The catalogue in Gadget-4's layout: each rank writes its rows and members. `info` is the header of the box, or of the light cone's space.
#[cfg(feature = "hdf5")]
pub fn seal_hdf5(
    comm: &Communicator,
    path: &Path,
    info: &meshloom::io::hdf5::SnapshotInfo,
    (halos, spheres): (&Catalogue, &[Spheres]),
) -> Result<Sealed, Error> {
    use meshloom::io::collective::seal_groups;
    use meshloom::io::hdf5::{Groups, GroupsPlace, SphereColumns};

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
    seal_groups(comm, path, info, &groups, place)
}

/// The catalogue of a snapshot, with `--hdf5`.
#[cfg(feature = "hdf5")]
fn hdf5(
    outputs: &Outputs,
    simulation: &Simulation,
    comm: &Communicator,
    halos: (&Catalogue, &[Spheres]),
    directory: &Path,
) -> Result<Option<Sealed>, Error> {
    match outputs.parameters.hdf5 {
        None => Ok(None),
        Some(_) => seal_hdf5(comm, &directory.join("halos.0.hdf5"), &simulation.snapshot_info(), halos).map(Some),
    }
}

/// Without the feature there is no `--hdf5`.
#[cfg(not(feature = "hdf5"))]
fn hdf5(
    _: &Outputs,
    _: &Simulation,
    _: &Communicator,
    _: (&Catalogue, &[Spheres]),
    _: &Path,
) -> Result<Option<Sealed>, Error> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use meshloom::comm::run_threads;

    use super::*;

    /// Rows of every grid come into the order of one rank; where they are said to be there, they are.
    #[test]
    fn rows_come_into_lagrangian_order() {
        let n = 6;
        for grid in [[1, 1], [2, 1], [3, 1], [4, 1], [1, 2], [2, 2], [1, 3]] {
            let config = Config { particles: n, mesh: n, grid: Some(grid), ..Config::default() };
            let ranks = grid[0] * grid[1];
            let own =
                |rank: usize| -> Vec<u64> { config.rows(ranks, rank).unwrap().flat_map(|row| row..row + n).collect() };
            let parts = run_threads(ranks, |comm| {
                let sites = own(comm.rank());
                let column = |unit: f32| sites.iter().map(|&site| unit * site as f32).collect::<Vec<f32>>();
                let ordered = in_row_order(&comm, &config, &[column(1.0), column(-1.0), column(0.5)])?;
                Ok::<_, Error>((sites, ordered))
            });
            let parts = parts.unwrap();
            let all: Vec<f32> = parts.iter().flat_map(|(_, ordered)| ordered.clone()).collect();
            let want = (0..n * n * n).map(|site| site as f32).flat_map(|site| [site, -site, 0.5 * site]);
            assert!(all.into_iter().eq(want), "{grid:?}");
            let mut first = 0;
            let there = parts.iter().all(|(sites, ordered)| {
                let range = first..first + ordered.len() as u64 / 3;
                first = range.end;
                range.eq(sites.iter().copied())
            });
            assert_eq!(is_in_order(&config, ranks).unwrap(), there, "{grid:?}");
        }
    }
}
