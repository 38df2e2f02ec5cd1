//! Data to try with: counts of a field that is drawn from its prior.

use std::path::PathBuf;

use meshloom::inference::{Stream, VectorSpace};
use meshloom::io::collective::write_npy;
use meshloom::operators::{Field, Worker};
use meshloom::{Context, Error};

use super::parameters::RunParameters;
use super::problem::{Grids, model_of};
use crate::common::Common;

/// Cells of the data.
pub const SHAPE: [u64; 2] = [64, 64];

/// Which of the random streams of a seed the truth and its counts have; no iteration counts so far.
const TRUTH: u32 = u32::MAX - 1;

/// A number between 0 and 1 for a draw of a cell (splitmix64).
fn uniform(seed: u64, cell: u64, draw: u64) -> f64 {
    let start = seed.wrapping_add((cell + 1).wrapping_mul(0xd134_2543_de82_ef95));
    let mut z = start.wrapping_add((draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((((z ^ (z >> 31)) >> 11) as f64) + 0.5) * 2f64.powi(-53)
}

/// A count of this rate: events whose waiting times fill one.
fn poisson(rate: f64, seed: u64, cell: u64) -> i64 {
    let (mut time, mut count) = (0.0, 0);
    loop {
        time -= uniform(seed, cell, count as u64).ln();
        if time > rate {
            return count;
        }
        count += 1;
    }
}

/// Writes `data.npy` and `truth.npy`, and returns the path of the data. All ranks call it.
pub fn write(context: &mut Context, parameters: &RunParameters, common: &Common) -> Result<PathBuf, Error> {
    let Ok(grids) = Grids::new(&SHAPE, parameters) else {
        // The shape has two axes, for which two numbers are right or one.
        return Err(meshloom::io::IoError::Shape {
            path: "--distances".into(),
            found: vec![parameters.distances.as_ref().map_or(0, Vec::len) as u64],
            wanted: "1 or 2 numbers".into(),
        }
        .into());
    };
    let comm = context.comm.clone();
    let grid = common.process_grid(grids.padded, comm.size())?;
    let mut worker = Worker::new(context, grid)?;
    let (regular, _, signal) = model_of(&mut worker, &grids, parameters, true)?;
    let mut latent = Field::new(worker.gpu(), signal.domain())?;
    worker.white_noise(Stream::new(parameters.seed, TRUTH, 0, 0), &mut latent)?;
    // Hyper-parameters stay what is expected of them.
    for name in ["asperity", "flexibility", "fluctuations", "slope", "zero_mode"] {
        if latent.space().position(name).is_some() {
            latent.set(&mut worker.context.recorder, name, &[0.0])?;
        }
    }
    let truth = signal.value(&mut worker, &latent)?.get(&mut worker.context.recorder, "signal")?;
    let lines = grids.lines(&regular.part());
    let of = |name: &str| parameters.out.join(name);
    write_npy::<f32, Error>(&comm, &of("truth.npy"), &SHAPE, |writer| {
        for (own, elements) in &lines {
            let line = &truth[*own..][..(elements.end - elements.start) as usize];
            let line: Vec<f32> = line.iter().map(|&value| value as f32).collect();
            writer.write(elements.start, &line)?;
        }
        Ok(())
    })?;
    let data = of("data.npy");
    write_npy::<i64, Error>(&comm, &data, &SHAPE, |writer| {
        for (own, elements) in &lines {
            let count = |cell: u64| poisson(truth[own + (cell - elements.start) as usize], parameters.seed, cell);
            let line: Vec<i64> = elements.clone().map(count).collect();
            writer.write(elements.start, &line)?;
        }
        Ok(())
    })?;
    Ok(data)
}
