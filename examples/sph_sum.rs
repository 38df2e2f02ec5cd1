//! Smoothed-particle sums over the 32 nearest neighbors of each particle, on any number of ranks:
//! number density and mean velocity.
//!
//! ```text
//! MESHLOOM_RANKS=3 cargo run --release --example sph_sum
//!
//! rank 1: density of the first 19502.057
//! rank 2: density of the first 19502.059
//! rank 0: density of the first 22065.521
//! ```

use meshloom::points::{Domain, Particles, Predicate, Targets, Visit};
use meshloom::{Error, Rank, grid::split};

/// W(q) of the cubic spline with q from 0 to 1, times the cube of its support (Monaghan and
/// Lattanzio, A&A 149, 135, 1985).
const SPH: &str = "
    struct State { support: f32, weight: f32, momentum: vec3<f32> }
    fn begin(query: u32, reach: f32) -> State { return State(reach, 0.0, vec3<f32>(0.0)); }
    fn each(s: State, near: Neighbor) -> State {
        let q = near.distance / s.support;
        let w = 2.546479 * select(2.0 * cube(1.0 - q), 1.0 - 6.0 * q * q * (1.0 - q), q < 0.5);
        return State(s.support, s.weight + w, s.momentum + w * velocity(near.index));
    }
    fn cube(x: f32) -> f32 { return x * x * x; }
    fn end(query: u32, s: State) { set_density(query, s.weight / cube(s.support)); set_smooth(query, s.momentum / s.weight); }";

/// Adds to particles `density` and `smooth`, the smoothed velocity.
pub fn smooth(rank: &mut Rank, particles: &mut Particles) -> Result<(), Error> {
    let search = rank.search(particles)?;
    let visit = Visit::new(SPH).read("velocity").write("density", 1).write("smooth", 3);
    Ok(particles.put(rank.query(&search, Targets::Own, Predicate::nearest(32), visit)?)?)
}

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    meshloom::run(|rank| {
        // A sequence that fills the box evenly; velocities as in a Hubble flow.
        let rows = split(20_000, rank.comm.size() as u64, rank.comm.rank() as u64);
        let axes = [0.819_172_513_4, 0.671_043_606_7, 0.549_700_477_9];
        let x: Vec<f32> = rows.flat_map(|i| axes.map(|step| (i as f64 * step).fract() as f32)).collect();
        let mut p = Particles::from_host(rank, &Domain::new(&[1.0; 3])?, &x)?.with(rank, "velocity", &x, 3)?;
        smooth(rank, &mut p)?;
        println!("rank {}: density of the first {}", rank.comm.rank(), p.download::<f32>(rank, "density")?[0]);
        Ok(())
    })?;
    Ok(())
}
