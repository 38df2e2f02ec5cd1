//! Friends of friends in a cloud of points, drawn: each group of 20 and more in a colour of its own, the rest grey.
//!
//! ```text
//! cargo run --release --features cli --example groups -- docs   # writes docs/groups.png
//!
//! 40000 points, linking length 0.4 mean separations: 217 groups of 20 and more hold 24041 of them
//! ```

use std::path::Path;

use image::{Rgb, RgbImage};
use meshloom::comm::Communicator;
use meshloom::device::{Gpu, Options, Recorder};
use meshloom::exchange::Exchange;
use meshloom::fof::{Groups, Linking, Selection};
use meshloom::particles::{Cloud, Domain};

const POINTS: usize = 40_000;
const PIXELS: u32 = 720;
const PARAMETER: f64 = 0.4;

/// Clumps of all sizes along threads in a periodic box of side 1, and a field around them.
fn cosmic_web() -> Vec<f32> {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let knots: Vec<[f32; 2]> = (0..40).map(|_| [random(), random()]).collect();
    let mut points = Vec::with_capacity(2 * POINTS);
    while points.len() < 2 * POINTS {
        let [from, to] = [random(), random()].map(|x| knots[(x * 40.0) as usize]);
        let across = [0, 1].map(|axis| to[axis] - from[axis] - (to[axis] - from[axis]).round());
        let bell = random() + random() + random() - 1.5;
        match (random() * 10.0) as u32 {
            0..=3 => points.extend([random(), random()]),
            4..=5 if across[0].hypot(across[1]) < 0.2 => {
                let along = random();
                points.extend([0, 1].map(|axis| from[axis] + along * across[axis] + 0.008 * (random() - 0.5)));
            }
            6..=9 => {
                let (r, turn) = (0.03 * bell.abs() * random() * random(), std::f32::consts::TAU * random());
                points.extend([from[0] + r * turn.cos(), from[1] + r * turn.sin()]);
            }
            _ => {}
        }
    }
    points
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let gpu = Gpu::open(&Options::from_env()?, 0)?;
    let (mut recorder, mut exchange) = (Recorder::new(&gpu)?, Exchange::new(Communicator::solo()));
    let cloud = Cloud::from_host(&mut recorder, &Domain::new(&[1.0, 1.0])?, &cosmic_web())?;
    let groups = Groups::find(&mut recorder, &mut exchange, &cloud, Linking::Separations(PARAMETER))?;
    let catalogue = groups.catalogue(&mut recorder, &Selection::default())?;

    let mut picture = RgbImage::from_pixel(PIXELS, PIXELS, Rgb([255; 3]));
    let at = recorder.download(cloud.positions(), 0, cloud.positions().len())?;
    let mut dot = |point: u64, color: [u8; 3], size: u32| {
        let [x, y] = [0, 1].map(|axis| (at[2 * point as usize + axis] * PIXELS as f32) as u32);
        for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
            picture.put_pixel((x + i) % PIXELS, (y + j) % PIXELS, Rgb(color));
        }
    };
    (0..cloud.len()).for_each(|point| dot(point, [190; 3], 1));
    for (group, ends) in catalogue.offset.windows(2).enumerate() {
        // Angles of the golden ratio are far from those before them.
        let turn = group as f32 * 0.618_034 * std::f32::consts::TAU;
        let color = [0.0, 2.1, 4.2].map(|phase| (125.0 + 95.0 * (turn + phase).sin()) as u8);
        catalogue.members[ends[0] as usize..ends[1] as usize].iter().for_each(|&point| dot(point, color, 2));
    }
    let path = Path::new(&directory).join("groups.png");
    picture.save(&path)?;
    println!(
        "{POINTS} points, linking length {PARAMETER} mean separations: {} groups of 20 and more hold {} of them",
        catalogue.total, catalogue.members_total
    );
    println!("wrote {}", path.display());
    Ok(())
}
