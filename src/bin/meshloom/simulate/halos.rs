//! The halos of a run: groups of its particles in the units of the field, their catalogue and their mass function.

use meshloom::comm::Op;
use meshloom::cosmology::peculiar_velocity;
use meshloom::grid::split;
use meshloom::io::{NpyFile, Sealed, seal_whole};
use meshloom::pm::Simulation;
use meshloom::points::fof::{Catalogue, Groups, Linking, Selection};
use meshloom::points::{Cloud, Domain};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use super::mass_function::MassFunction;
use super::outputs::Outputs;
use super::parameters::Parameters;
use crate::catalogue;

/// Finds groups among the particles whose positions and momenta were just written, and seals `halos.npz` (Msun/h, Mpc/h, peculiar
/// km/s), the mass function and, where snapshots are asked for in HDF5, `halos.0.hdf5`. All ranks call it.
pub fn seal(
    rank: &Context,
    parameters: &Parameters,
    outputs: &Outputs,
    simulation: &Simulation,
    [positions, momenta]: [&Sealed; 2],
) -> Result<(Vec<Sealed>, Value), Error> {
    let comm = &rank.comm;
    let (a, side) = (simulation.scale_factor(), parameters.box_size);
    let count = parameters.particles.pow(3);
    let mut context = Context::new(comm.clone(), rank.gpu.clone())?;
    // From the disk rather than from the ranks' memory: rows are numbered as in the file, whatever the grid of ranks.
    let rows = split(count, comm.size() as u64, comm.rank() as u64);
    let read = |file: &Sealed| NpyFile::open(file.temporary())?.read_f32(3 * rows.start..3 * rows.end);
    let mut cloud = Cloud::from_host(&mut context.recorder, &Domain::new(&[side; 3])?, &read(positions)?)?;
    let velocities: Vec<f32> = read(momenta)?.into_iter().map(|p| peculiar_velocity(f64::from(p), a) as f32).collect();
    let array = rank.gpu.array::<f32>("velocity", velocities.len() as u64)?;
    context.recorder.upload(&array, 0, &velocities)?;
    drop(velocities);
    cloud.set("velocity", array, 3)?;
    let groups = Groups::find(&mut context, &cloud, Linking::Separations(parameters.linking_length))?;
    drop(cloud);
    let selection = Selection::default();
    let mut halos = groups.catalogue(&mut context.recorder, &selection)?;
    let power = simulation.linear_power();
    let particle = power.cosmology().particle_mass(side, count);
    halos.mass.iter_mut().for_each(|mass| *mass *= particle);

    let mut files = vec![catalogue::seal(comm, &outputs.path("halos.npz"), &halos)?];
    files.extend(hdf5(parameters, outputs, simulation, rank, &halos)?);
    let masses: Vec<f32> = halos.mass.iter().map(|&mass| mass as f32).collect();
    if let Some(masses) = comm.gather_v(0, &masses)? {
        let table = MassFunction::new(masses.data(), side, particle, selection.min_members, power, a)?;
        let [csv, png] = ["mass_function.csv", "mass_function.png"].map(|name| outputs.path(name));
        files.push(seal_whole(&csv, table.csv(&csv)?.as_bytes())?);
        files.push(seal_whole(&png, &table.png(&png)?)?);
    }
    let mut most = [halos.count.iter().copied().max().unwrap_or(0)];
    comm.all_reduce(&mut most, Op::Max)?;
    let report = json!({
        "linking_length": groups.length(), "min_members": selection.min_members, "count": halos.total,
        "members": halos.members_total, "most_members": most[0], "particle_mass": particle,
    });
    Ok((files, report))
}

/// The catalogue in Gadget-4's layout, where HDF5 is asked for: rank 0 writes what all ranks have.
#[cfg(feature = "hdf5")]
fn hdf5(
    parameters: &Parameters,
    outputs: &Outputs,
    simulation: &Simulation,
    rank: &Context,
    halos: &Catalogue,
) -> Result<Option<Sealed>, Error> {
    use meshloom::io::hdf5;

    if parameters.hdf5.is_none() {
        return Ok(None);
    }
    let comm = &rank.comm;
    let narrow = |values: &[f64], unit: f64| values.iter().map(|&x| (x * unit) as f32).collect::<Vec<f32>>();
    let none = Vec::new();
    let [velocity, dispersion] =
        [&halos.velocity, &halos.velocity_dispersion].map(|values| values.as_ref().unwrap_or(&none));
    // Its masses are in 1e10 Msun/h.
    let reals = [
        (&halos.mass, 1e-10),
        (&halos.center, 1.0),
        (velocity, 1.0),
        (&halos.inertia_radius, 1.0),
        (dispersion, 1.0),
        (&halos.max_radius, 1.0),
    ];
    let mut gathered = Vec::new();
    for (values, unit) in reals {
        gathered.extend(comm.gather_v(0, &narrow(values, unit))?);
    }
    let integers =
        [comm.gather_v(0, &halos.label)?, comm.gather_v(0, &halos.count)?, comm.gather_v(0, &halos.members)?];
    let ([Some(label), Some(count), Some(members)], [mass, center, velocity, inertia, dispersion, most]) =
        (integers, gathered.as_slice())
    else {
        return Ok(None);
    };
    let offset: Vec<u64> = [0]
        .into_iter()
        .chain(count.data().iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        }))
        .collect();
    let groups = hdf5::Groups {
        label: label.data(),
        count: count.data(),
        mass: mass.data(),
        center: center.data().as_chunks::<3>().0,
        velocity: Some(velocity.data().as_chunks::<3>().0),
        inertia_radius: inertia.data(),
        velocity_dispersion: Some(dispersion.data()),
        max_radius: most.data(),
        offset: &offset,
        members: Some(members.data()),
    };
    Ok(Some(hdf5::seal_groups(outputs.path("halos.0.hdf5"), &simulation.snapshot_info(), &groups)?))
}

/// No run without the feature gets here with HDF5 asked for.
#[cfg(not(feature = "hdf5"))]
fn hdf5(_: &Parameters, _: &Outputs, _: &Simulation, _: &Context, _: &Catalogue) -> Result<Option<Sealed>, Error> {
    Ok(None)
}
