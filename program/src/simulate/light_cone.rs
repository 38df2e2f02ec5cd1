//! The light cone of a run as files: its particles, and the halos among them.

#[cfg(feature = "hdf5")]
use meshloom::host_memory;
use meshloom::io::Sealed;
use meshloom::pm::{LightCone, Simulation};
use meshloom::{Error, Rank};
use serde_json::Value;

use super::outputs::Outputs;

/// Without the feature, `--light-cone` does not exist.
#[cfg(not(feature = "hdf5"))]
pub fn seal(_: &mut Rank, _: &Outputs, _: &Simulation, _: &LightCone) -> Result<(Vec<Sealed>, Value), Error> {
    Ok((Vec::new(), Value::Null))
}

#[cfg(feature = "hdf5")]
pub use with_hdf5::seal;

#[cfg(feature = "hdf5")]
mod with_hdf5 {
    use meshloom::comm::Op;
    use meshloom::pm::{Cone, ConeParticles};
    use meshloom::points::fof::{Catalog, Groups, Linking, Selection};
    use meshloom::points::{Cloud, Domain};
    use serde_json::json;

    use super::*;
    use crate::catalog;
    use crate::simulate::halos::seal_hdf5;

    /// Writes `light_cone.hdf5` and, where the run finds groups, `light_cone_halos.npz` and with
    /// `--hdf5` `light_cone_halos.0.hdf5`; no file has its final name yet. Also what is said of
    /// them. Collective.
    pub fn seal(
        rank: &mut Rank,
        outputs: &Outputs,
        simulation: &Simulation,
        light_cone: &LightCone,
    ) -> Result<(Vec<Sealed>, Value), Error> {
        let particles = light_cone.particles(rank)?;
        let (comm, cone, info) = (rank.comm.clone(), light_cone.cone(), simulation.snapshot_info());
        let mut files = vec![particles.seal_hdf5(&comm, &outputs.path("light_cone.hdf5"), cone, info)?];
        let Cone { observer, distance, opening } = cone;
        let mut said = json!({
            "observer": observer, "distance": distance,
            "redshift": 1.0 / simulation.config().cosmology.scale_factor_at(*distance)? - 1.0,
            "direction": opening.as_ref().map(|opening| opening.direction),
            "opening": opening.as_ref().map(|opening| opening.angle),
            "particles": particles.total(), "halos": Value::Null,
        });
        let Some(linking) = outputs.parameters.linking else { return Ok((files, said)) };
        let (halos, length) = halos(rank, simulation, &particles, linking)?;
        files.push(catalog::seal(&comm, &outputs.path("light_cone_halos.npz"), &halos, &[])?);
        if outputs.parameters.options.hdf5.is_some() {
            // The cone lies in open space.
            let space = meshloom::io::hdf5::SnapshotInfo { box_size: 0.0, ..info };
            files.push(seal_hdf5(&comm, &outputs.path("light_cone_halos.0.hdf5"), &space, (&halos, &[]))?);
        }
        let mut most = [halos.count.iter().copied().max().unwrap_or(0)];
        comm.all_reduce(&mut most, Op::Max)?;
        said["halos"] = json!({
            "linking_length": length, "min_members": Selection::default().min_members, "count": halos.total,
            "members": halos.members_total, "most_members": most[0],
        });
        Ok((files, said))
    }

    /// Groups of the particles on the cone, with masses in Msun/h, places from the observer, mean
    /// scale factors and radial velocities, and the linking length: as long as in the box.
    /// Collective.
    fn halos(
        rank: &mut Rank,
        simulation: &Simulation,
        particles: &ConeParticles,
        linking: Linking,
    ) -> Result<(Catalog, f32), Error> {
        let config = simulation.config();
        let count = config.particles.pow(3);
        let length = linking.length(&Domain::new(&config.size())?, count)?;
        let values = |width: usize, of: &dyn Fn(&mut Vec<f32>, meshloom::pm::ConeParticle)| {
            let mut all = host_memory::reserve("particles on the light cone", particles.len() * width)?;
            particles.iter().for_each(|particle| of(&mut all, particle));
            Ok::<_, Error>(all)
        };
        let positions = values(3, &|all, particle| all.extend(particle.position))?;
        let mut cloud = Cloud::from_host(&mut rank.recorder, &Domain::new(&[0.0; 3])?, &positions)?;
        drop(positions);
        let columns = [
            ("velocity", 3, values(3, &|all, particle| all.extend(particle.velocity))?),
            ("scale_factor", 1, values(1, &|all, particle| all.push(particle.scale_factor))?),
        ];
        for (name, width, values) in columns {
            let array = rank.gpu.array::<f32>(name, values.len() as u64)?;
            rank.recorder.upload(&array, 0, &values)?;
            cloud.set(name, array, width)?;
        }
        let groups = Groups::find(rank, &cloud, Linking::Length(length.into()))?;
        drop(cloud);
        let selection = Selection { observer: Some([0.0; 3]), ..Selection::default() };
        let mut catalog = groups.catalog(&mut rank.recorder, &selection)?;
        let mass = simulation.linear_power().cosmology().particle_mass(config.box_size, count);
        catalog.mass.iter_mut().for_each(|all| *all *= mass);
        Ok((catalog, groups.length()))
    }
}
