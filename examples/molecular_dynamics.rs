//! Molecular dynamics of a Lennard-Jones liquid over ranks, with the same bits on any number of
//! them.
//!
//! ```text
//! MESHLOOM_RANKS=3 cargo run --release --example molecular_dynamics --features hdf5
//!
//! rank 0: energy per atom -3.965, after 100 steps -3.965
//! ```

use meshloom::comm::Op;
use meshloom::points::{Domain, Particles, Predicate, Targets, Visit};
use meshloom::{Error, Rank, grid::split};

/// Force on an atom and, in the fourth component, its potential energy: 4 (r^-12 - r^-6), 0 at 2.5,
/// half of it for each of a pair.
const LENNARD_JONES: &str = "
    alias State = vec4<f32>;
    fn begin(query: u32, reach: f32) -> State { return State(0.0); }
    fn each(state: State, near: Neighbor) -> State {
        let s = 1.0 / dot(near.offset, near.offset);
        let s3 = s * s * s;
        return state + State(24.0 * s * s3 * (1.0 - 2.0 * s3) * near.offset, 2.0 * s3 * (s3 - 1.0) + 0.0081584);
    }
    fn end(query: u32, state: State) { set_f(query, state); }";

meshloom::kernel_params! { struct Step { kick: f32, drift: f32 } }

/// Returns this rank's atoms of a cubic lattice of 12^3, with velocities that differ.
pub fn lattice(rank: &mut Rank) -> Result<Particles, Error> {
    let id: Vec<u32> = split(1728, rank.comm.size() as u64, rank.comm.rank() as u64).map(|i| i as u32).collect();
    let x: Vec<f32> = id.iter().flat_map(|&i| [i, i / 12, i / 144].map(|n| 1.1 * (n % 12) as f32)).collect();
    let v: Vec<f32> = id.iter().flat_map(|&i| [1, 2, 3].map(|axis| ((i * axis) as f32).sin())).collect();
    let mut atoms =
        Particles::from_host(rank, &Domain::new(&[13.2; 3])?, &x)?.with(rank, "v", &v, 3)?.with(rank, "id", &id, 1)?;
    force(rank, &mut atoms)?;
    Ok(atoms)
}

fn force(rank: &mut Rank, atoms: &mut Particles) -> Result<(), Error> {
    rank.distribute(atoms)?;
    let search = rank.search(atoms)?;
    let visit = Visit::new(LENNARD_JONES).write("f", 4).ordered();
    Ok(atoms.put(rank.query(&search, Targets::Own, Predicate::within(2.5).exclude_self(), visit)?)?)
}

/// Moves atoms by a time `dt`: kick, drift, kick.
pub fn step(rank: &mut Rank, atoms: &mut Particles, dt: f32) -> Result<(), Error> {
    let step = Step { kick: 0.5 * dt, drift: dt };
    rank.each(atoms, "v += params.kick * f.xyz; x += params.drift * v;", &step)?;
    force(rank, atoms)?;
    Ok(rank.each(atoms, "v += params.kick * f.xyz;", &step)?)
}

/// Returns the energy per atom.
pub fn energy(rank: &mut Rank, atoms: &Particles) -> Result<f64, Error> {
    let (v, f) = (atoms.download::<f32>(rank, "v")?, atoms.download::<f32>(rank, "f")?);
    let kinetic: f64 = v.iter().map(|v| 0.5 * f64::from(*v).powi(2)).sum();
    let mut sum = [kinetic + f.iter().skip(3).step_by(4).map(|&energy| f64::from(energy)).sum::<f64>()];
    rank.comm.all_reduce(&mut sum, Op::Sum)?;
    Ok(sum[0] / 1728.0)
}

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    meshloom::run(|rank| {
        let mut atoms = lattice(rank)?;
        let before = energy(rank, &atoms)?;
        for _ in 0..100 {
            step(rank, &mut atoms, 0.002)?;
        }
        let after = energy(rank, &atoms)?;
        println!("rank {}: energy per atom {before:.3}, after 100 steps {after:.3}", rank.comm.rank());
        #[cfg(feature = "hdf5")]
        atoms.by(rank, "id")?.write_hdf5(rank, "atoms.hdf5", &["x", "v", "id"])?;
        Ok(())
    })?;
    Ok(())
}
