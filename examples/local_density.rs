//! The density of a cloud of points wherever one asks: `k` points in the circle that reaches to the
//! k-th of them. Computed at every pixel of a picture by a callback, so that no list of neighbors
//! is stored.
//!
//! ```text
//! cargo run --release --features image --example local_density -- docs   # writes docs/local-density.png
//!
//! 262144 places, 30000 points, 24 neighbors: density 2.0e3 least, 5.6e3 median, 1.8e7 most
//! ```

use std::path::Path;

use meshloom::gpu::Options;
use meshloom::io::density_png;
use meshloom::points::{Domain, Particles, Predicate, Targets, Visit};
use meshloom::{Launch, Rank, launch};

const POINTS: usize = 30_000;
const NEIGHBORS: u32 = 24;
const PIXELS: usize = 512;

/// Points of a galaxy with two arms in a periodic box of side 1, by a generator of random numbers.
fn galaxy() -> Vec<f32> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut points = Vec::with_capacity(2 * POINTS);
    for i in 0..POINTS {
        let (r, spread) = (0.01 - 0.12 * (1.0 - random()).ln(), random() + random() + random() - 1.5);
        let arm = std::f32::consts::PI * (i % 2) as f32 - 3.0 * (r / 0.01).ln().max(0.0) + 0.5 * spread;
        match i % 8 {
            0 => points.extend([random(), random()]), // the field
            _ => points.extend([0.5 + r * arm.cos(), 0.5 + r * arm.sin()]),
        }
    }
    points
}

/// Returns the density at the center of each pixel.
fn density(rank: &mut Rank) -> meshloom::Result<Vec<f32>> {
    let domain = Domain::new(&[1.0, 1.0])?;
    let points = Particles::from_host(rank, &domain, &galaxy())?;
    let center = |i: usize| (i as f32 + 0.5) / PIXELS as f32;
    let centers: Vec<f32> = (0..PIXELS * PIXELS).flat_map(|i| [center(i % PIXELS), center(i / PIXELS)]).collect();
    let centers = Particles::from_host(rank, &domain, &centers)?;

    // `reach` is the distance of the last neighbor, `query` the index of the pixel.
    let visit = Visit::new(format!(
        "alias State = f32;
        fn begin(query: u32, reach: f32) -> State {{ return {NEIGHBORS}.0 / (3.14159265 * reach * reach); }}
        fn each(state: State, near: Neighbor) -> State {{ return state; }}
        fn end(query: u32, state: State) {{ set_density(query, state); }}"
    ));
    let search = rank.search(&points)?;
    let nearest = Predicate::nearest(NEIGHBORS);
    let found = rank.query(&search, Targets::Of(&centers), nearest, visit.write("density", 1))?;
    let density = found.get::<f32>("density")?;
    Ok(rank.recorder.download(&density, 0, density.len())?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let map = launch(Launch::Solo, &Options::from_env()?, density)?.remove(0);
    let path = Path::new(&directory).join("local-density.png");
    density_png(&map, PIXELS, PIXELS, &path)?;
    let mut sorted = map;
    sorted.sort_by(f32::total_cmp);
    let (count, last) = (sorted.len(), sorted.len() - 1);
    println!(
        "{count} places, {POINTS} points, {NEIGHBORS} neighbors: density {:.1e} least, {:.1e} median, {:.1e} most",
        sorted[0],
        sorted[count / 2],
        sorted[last]
    );
    println!("wrote {}", path.display());
    Ok(())
}
