//! A complex transform in three dimensions over any number of ranks: a plane wave has one mode.
//!
//! ```text
//! cargo run --release --example distributed_fft            # one rank
//! cargo run --release --example distributed_fft -- 4       # four ranks as threads
//! mpirun -n 4 target/release/examples/distributed_fft      # four MPI ranks (built with --features mpi)
//!
//! rank 0 has the cells [0..8, 0..24, 0..20] and the modes [0..32, 0..6, 0..20]
//! rank 1 has the cells [8..16, 0..24, 0..20] and the modes [0..32, 6..12, 0..20]
//!   of them [3, 7, 18] with 15360.000 of the wave
//! rank 2 has the cells [16..24, 0..24, 0..20] and the modes [0..32, 12..18, 0..20]
//! rank 3 has the cells [24..32, 0..24, 0..20] and the modes [0..32, 18..24, 0..20]
//! ```

use std::f64::consts::TAU;

use meshloom::exchange::GridComms;
use meshloom::fft::Transform;
use meshloom::gpu::{Options, Recorder};
use meshloom::grid::{Box3, Grid};
use meshloom::{Error, Launch, launch};

/// All points of a box, in the order of memory.
fn points(part: &Box3) -> impl Iterator<Item = [u64; 3]> {
    let [x, y, z] = part.clone();
    x.flat_map(move |i| {
        y.clone().flat_map({
            let z = z.clone();
            move |j| z.clone().map(move |k| [i, j, k])
        })
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let (shape, mode) = ([32u64, 24, 20], [3u64, 7, 18]); // 18 of 20 is the mode -2

    let texts = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let grid = Grid::auto(shape, rank.comm.size());
        let transform = Transform::<[f32; 2]>::new(&rank.gpu, shape, grid, rank.comm.rank())?;
        let (mut recorder, mut comms) = (Recorder::new(&rank.gpu)?, GridComms::new(&rank.comm, grid)?);

        let layout = transform.field_layout();
        let wave = |at: [u64; 3]| {
            let turns: f64 = (0..3).map(|a| (mode[a] * at[a] % shape[a]) as f64 / shape[a] as f64).sum();
            [(TAU * turns).cos() as f32, (TAU * turns).sin() as f32]
        };
        let cells: Vec<_> = points(&layout.own).map(wave).collect();
        let (field, spectrum) = (transform.field(&rank.gpu, &layout)?, transform.spectrum(&rank.gpu)?);
        recorder.upload(&field, 0, &cells)?;
        transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;

        let (part, modes) = (transform.spectrum_part(), recorder.download(&spectrum, 0, spectrum.len())?);
        let mut text = format!("rank {} has the cells {:?} and the modes {part:?}", rank.comm.rank(), layout.own);
        for (at, [re, im]) in points(&part).zip(modes).filter(|(_, [re, im])| re.hypot(*im) > 0.5) {
            assert!(at == mode && (re - 15360.0).abs() < 0.5 && im.abs() < 0.5);
            text += &format!("\n  of them {at:?} with {re:.3} of the wave");
        }
        Ok::<_, Error>(text)
    })?;
    texts.iter().for_each(|text| println!("{text}"));
    Ok(())
}
