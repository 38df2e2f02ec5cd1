//! The density of smoothed particles: a cubic spline over the k nearest neighbours of each, which ends at the last of
//! them, summed on the device by a callback; compared with sums over all points in f64 on the host.
//!
//! ```text
//! cargo run --release --example sph_sum
//!
//! 100000 particles, 48 neighbours: largest relative difference from brute force 4e-7
//! ```

use meshloom::gpu::{Callback, Gpu, Options, Recorder};
use meshloom::points::neighbors::{KnnQuery, Nearest, Queries};
use meshloom::points::tree::Builder;
use meshloom::points::{Cloud, Domain, Frame};

const PARTICLES: u64 = 100_000;
const NEIGHBORS: u32 = 48;

/// W(q) of the cubic spline with `q` from 0 to 1, times the cube of its support (J. J. Monaghan, J. C. Lattanzio,
/// A&A 149, 135, 1985).
const SPLINE: &str = "
    alias State = vec2<f32>; // support, sum
    fn user_spline(q: f32) -> f32 {
        let p = 1.0 - q;
        return 2.546479 * select(2.0 * p * p * p, 1.0 - 6.0 * q * q * p, q < 0.5);
    }
    fn begin(query: u32, reach: f32) -> State { return State(reach, 0.0); }
    fn each(state: State, near: Neighbor) -> State {
        return State(state.x, state.y + load_mass(near.index) * user_spline(near.distance / state.x));
    }
    fn end(query: u32, state: State) { store_density(query, state.y / (state.x * state.x * state.x)); }
";

fn spline(q: f64) -> f64 {
    let p = (1.0 - q).max(0.0);
    8.0 / std::f64::consts::PI * if q < 0.5 { 1.0 - 6.0 * q * q * p } else { 2.0 * p * p * p }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu = Gpu::open(&Options::from_env()?, 0)?;
    let mut recorder = Recorder::new(&gpu)?;
    let random = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i << 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
    let unit = |i: u64| random(i) as f32 / (1 << 24) as f32;
    // Denser towards the middle of x: a slab in a periodic box of side 1.
    let wave = |x: f32| x + 0.1 * (std::f32::consts::TAU * x).sin();
    let points: Vec<f32> = (0..3 * PARTICLES).map(|i| if i % 3 == 0 { wave(unit(i)) } else { unit(i) }).collect();
    let masses: Vec<f32> = (0..PARTICLES).map(|i| 0.5 + unit(i + (1 << 40))).collect();

    let domain = Domain::new(&[1.0; 3])?;
    let cloud = Cloud::from_host(&mut recorder, &domain, &points)?;
    let tree = Builder::new(&gpu).build(&mut recorder, &cloud, &Frame::over(&domain, cloud.core()))?;
    let (mass, density) = (gpu.array("mass", PARTICLES)?, gpu.array::<f32>("density", PARTICLES)?);
    recorder.upload(&mass, 0, &masses)?;
    let callback = Callback::new(SPLINE).read("mass", &mass).write("density", &density);
    Nearest::new(&gpu).visit(&mut recorder, &tree, Queries::Own, &KnnQuery::nearest(NEIGHBORS), &callback)?;
    let density = recorder.download(&density, 0, PARTICLES)?;

    // Some particles against all others, in f64.
    let points = recorder.download(cloud.positions(), 0, 3 * PARTICLES)?;
    let image = |d: f64| d - d.round();
    let mut worst = 0.0f64;
    for i in (0..PARTICLES as usize).step_by(4999) {
        let along = |j: usize, axis: usize| f64::from(points[3 * i + axis]) - f64::from(points[3 * j + axis]);
        let apart = |j: usize| [0, 1, 2].map(|axis| image(along(j, axis)).powi(2)).iter().sum::<f64>().sqrt();
        let distances: Vec<f64> = (0..PARTICLES as usize).map(apart).collect();
        let mut sorted = distances.clone();
        let support = *sorted.select_nth_unstable_by(NEIGHBORS as usize - 1, f64::total_cmp).1;
        let terms = distances.iter().zip(&masses).map(|(d, mass)| f64::from(*mass) * spline(d / support));
        let exact = terms.sum::<f64>() / support.powi(3);
        worst = worst.max((f64::from(density[i]) / exact - 1.0).abs());
    }
    println!("{PARTICLES} particles, {NEIGHBORS} neighbours: largest relative difference from brute force {worst:.0e}");
    assert!(worst < 1e-5, "single precision should do better");
    Ok(())
}
