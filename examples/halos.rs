//! From nothing to a catalog of halos, alone, on threads or under MPI; each rank tells of its
//! rows.
//!
//! ```text
//! cargo run --release --example halos            # two threads
//! cargo build --release --features mpi --example halos && mpirun -n 4 target/release/examples/halos
//!
//! rank 0 of 2: halos 0 to 39 of 78, the first of 624 particles at [6.7, 54.7, 0.6]
//! rank 1 of 2: halos 39 to 78 of 78, the first of 40 particles at [41.6, 3.0, 1.1]
//! ```

use meshloom::gpu::Options;
use meshloom::pm::{Config, Noise, Simulation};
use meshloom::points::fof::{Groups, Linking, Selection};
use meshloom::{Error, Launch, launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config { particles: 32, mesh: 64, box_size: 64.0, ..Config::default() };
    let lines = launch(Launch::detect(2), &Options::from_env()?, |rank| {
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;

        let particles = simulation.to_particles(rank)?;
        let groups = Groups::find(rank, particles.cloud(), Linking::Separations(0.2))?;
        let halos = groups.catalog(&mut rank.recorder, &Selection::default())?;
        let first = match (halos.count.first(), halos.center.first_chunk::<3>()) {
            (Some(count), Some(center)) => format!("the first of {count} particles at {center:.1?}"),
            _ => "none of them here".into(),
        };
        let (rank, ranks) = (rank.index(), rank.comm.size());
        let (rows, all) = (halos.groups, halos.total);
        Ok::<_, Error>(format!("rank {rank} of {ranks}: halos {} to {} of {all}, {first}", rows.start, rows.end))
    })?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}
