//! Friends of friends in a cloud of points, drawn: each group of 20 and more in a color of its
//! own, the rest grey.
//!
//! ```text
//! cargo run --release --features image --example groups   # writes groups.png
//!
//! 40000 points, linking length 0.3 mean separations: 75 groups of 20 and more hold 12051 of them
//! ```

use std::path::Path;

use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::gpu::{Gpu, Options};
use meshloom::io::{RgbImage, write_whole};
use meshloom::points::fof::{Groups, Linking, Selection};
use meshloom::points::{Cloud, Domain};

const POINTS: usize = 40_000;
const PIXELS: u32 = 720;
const KNOTS: usize = 70;
const PARAMETER: f64 = 0.3;

/// Clumps of all sizes along threads in a periodic box of side 1, and a field around them.
fn cosmic_web() -> Vec<f32> {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let knots: Vec<[f32; 2]> = (0..KNOTS).map(|_| [random(), random()]).collect();
    let across =
        |from: [f32; 2], to: [f32; 2]| [0, 1].map(|axis| to[axis] - from[axis] - (to[axis] - from[axis]).round());
    let pairs = knots.iter().flat_map(|&from| knots.iter().map(move |&to| (from, to)));
    let threads = pairs.map(|(from, to)| (from, across(from, to))).filter(|(_, by)| by[0].hypot(by[1]) < 0.16);
    let threads: Vec<_> = threads.collect();
    let mut points = Vec::with_capacity(2 * POINTS);
    for i in 0..POINTS {
        let bell = [0, 1].map(|_| random() + random() + random() - 1.5);
        points.extend(match i % 10 {
            0..=3 => [random(), random()],
            4..=6 => {
                let ([x, y], by) = threads[(random() * threads.len() as f32) as usize];
                let along = random();
                [x + along * by[0] + 0.006 * bell[0], y + along * by[1] + 0.006 * bell[1]]
            }
            _ => {
                // The first knots are the richest, and the widest.
                let rank = random() * random();
                let [x, y] = knots[(rank * KNOTS as f32) as usize];
                let r = 0.03 * (1.0 - rank) * random();
                [x + r * bell[0], y + r * bell[1]]
            }
        });
    }
    points
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let mut rank = Rank::new(Communicator::solo(), Gpu::open(&Options::from_env()?, 0)?)?;
    let cloud = Cloud::from_host(&mut rank.recorder, &Domain::new(&[1.0, 1.0])?, &cosmic_web())?;
    let groups = Groups::find(&mut rank, &cloud, Linking::Separations(PARAMETER))?;
    let catalog = groups.catalog(&mut rank.recorder, &Selection::default())?;

    let mut picture = RgbImage::new(PIXELS, PIXELS, [255; 3])?;
    let at = rank.recorder.download(cloud.positions(), 0, cloud.positions().len())?;
    let mut dot = |point: u64, color: [u8; 3], size: u32| {
        let [x, y] = [0, 1].map(|axis| (at[2 * point as usize + axis] * PIXELS as f32) as u32);
        for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
            picture.row_mut((y + j) % PIXELS)[((x + i) % PIXELS) as usize] = color;
        }
    };
    (0..cloud.len()).for_each(|point| dot(point, [190; 3], 1));
    for (group, ends) in catalog.offset.windows(2).enumerate() {
        // Angles of the golden ratio are far from those before them.
        let turn = group as f32 * 0.618_034 * std::f32::consts::TAU;
        let color = [0.0, 2.1, 4.2].map(|phase| (125.0 + 95.0 * (turn + phase).sin()) as u8);
        catalog.members[ends[0] as usize..ends[1] as usize].iter().for_each(|&point| dot(point, color, 2));
    }
    let path = Path::new(&directory).join("groups.png");
    write_whole(&path, &picture.png_bytes(&path)?)?;
    println!(
        "{POINTS} points, linking length {PARAMETER} mean separations: {} groups of 20 and more hold {} of them",
        catalog.total, catalog.members_total
    );
    println!("wrote {}", path.display());
    Ok(())
}
