//! Times of transforms on one rank: `cargo bench --bench fft -- [SIZE ..]` prints nanoseconds per
//! cell.
//!
//! `meshloom bench fft` tells more; this needs no feature.

use std::time::Instant;

use meshloom::comm::Communicator;
use meshloom::exchange::GridComms;
use meshloom::fft::{Transform, Value};
use meshloom::gpu::{Gpu, Options, Recorder};
use meshloom::grid::Grid;

type Failure = Box<dyn std::error::Error>;

/// Least seconds of one of some runs, after one that compiles.
fn least(recorder: &mut Recorder, mut work: impl FnMut(&mut Recorder) -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut least = f64::INFINITY;
    for run in 0..8 {
        recorder.wait()?;
        let start = Instant::now();
        work(recorder)?;
        recorder.wait()?;
        if run > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}

fn bench<T: Value>(gpu: &Gpu, n: u64, name: &str) -> Result<(), Failure> {
    let (shape, comm) = ([n; 3], Communicator::solo());
    let grid = Grid::auto(shape, 1);
    let transform = Transform::<T>::new(gpu, shape, grid, 0)?;
    let (mut recorder, mut comms) = (Recorder::new(gpu)?, GridComms::new(&comm, grid)?);
    let layout = transform.field_layout();
    let field = gpu.array::<T>("bench::field", layout.len())?;
    recorder.clear(&field);
    let spectrum = transform.spectrum(gpu)?;
    let forward =
        least(&mut recorder, |recorder| Ok(transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?))?;
    let inverse =
        least(&mut recorder, |recorder| Ok(transform.inverse(recorder, &mut comms, &spectrum, &field, &layout)?))?;
    let per_cell = |seconds: f64| seconds * 1e9 / (n * n * n) as f64;
    println!(
        "{n:>4}^3 {name:<7}  forward {:8.3} ns per cell  inverse {:8.3} ns per cell",
        per_cell(forward),
        per_cell(inverse)
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    // Cargo gives options of its own.
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let mut sizes = words.map(|word| word.parse()).collect::<Result<Vec<u64>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![32, 60, 64, 96, 128];
    }
    let gpu = Gpu::open(&Options::from_env()?, 0)?;
    println!("{}", gpu.info().name);
    for n in sizes {
        bench::<[f32; 2]>(&gpu, n, "complex")?;
        bench::<f32>(&gpu, n, "real")?;
    }
    Ok(())
}
