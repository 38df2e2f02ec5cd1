//! Data to try with: counts of a field that is drawn from its prior.

use std::ops::Range;

use meshloom::comm::{CommError, Communicator, Op};
use meshloom::grid::Grid;
use meshloom::inference::{Stream, VectorSpace};
use meshloom::io::Sealed;
use meshloom::io::collective::seal_npy;
use meshloom::operators::Vector;
use meshloom::{Error, Rank};

use super::parameters::RunParameters;
use super::problem::{Grids, model_of};
use crate::failure::{Ended, Failure};

/// Cells of the data.
pub const SHAPE: [u64; 2] = [64, 64];

/// Names of the data and the truth.
pub const FILES: [&str; 2] = ["data.npy", "truth.npy"];

/// Which of the random streams of a seed the truth and its counts have; no iteration counts so far.
const TRUTH: u32 = u32::MAX - 1;

/// Returns a number between 0 and 1 for a draw of a cell (splitmix64).
fn uniform(seed: u64, cell: u64, draw: u64) -> f64 {
    let start = seed.wrapping_add((cell + 1).wrapping_mul(0xd134_2543_de82_ef95));
    let mut z = start.wrapping_add((draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((((z ^ (z >> 31)) >> 11) as f64) + 0.5) * 2f64.powi(-53)
}

/// Rates at most: counts of them are exact in f32.
const MOST: f64 = 1e6;

/// Rates from which on counts are normal numbers, which then differ from Poisson's by less than the
/// truth is known by.
const MANY: f64 = 1e3;

/// Returns a count of this rate, [`MOST`] at most: events whose waiting times fill one.
fn poisson(rate: f64, seed: u64, cell: u64) -> i64 {
    if rate > MANY {
        let [radius, angle] = [0, 1].map(|draw| uniform(seed, cell, draw));
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        return (rate + rate.sqrt() * normal).round().max(0.0) as i64;
    }
    let (mut time, mut count) = (0.0, 0);
    loop {
        time -= uniform(seed, cell, count as u64).ln();
        if time > rate {
            return count;
        }
        count += 1;
    }
}

/// Returns the data, and the truth that they are drawn from, neither of which has its name yet.
/// Collective.
pub fn seal(rank: &mut Rank, parameters: &RunParameters, grids: &Grids) -> Result<[Sealed; 2], Ended> {
    let comm = rank.comm.clone();
    // All ranks work together here, not one group of samples.
    let grid = Grid::auto(grids.padded, comm.shares());
    let (mesh, _, signal) = model_of(rank, grid, grids, &parameters.hyper, true)?;
    let mut latent = Vector::new(&rank.gpu, signal.domain())?;
    rank.white_noise(Stream::new(parameters.options.seed.0, TRUTH, 0, 0), &mut latent)?;
    // Hyper-parameters stay what is expected of them.
    for name in ["asperity", "flexibility", "fluctuations", "slope", "zero_mode"] {
        if latent.space().position(name).is_some() {
            latent.set(&mut rank.recorder, name, &[0.0])?;
        }
    }
    let truth = signal.value(rank, &latent)?.get(&mut rank.recorder, "signal")?;
    let lines = grids.lines(mesh.own());
    let rates = |(own, elements): &(usize, Range<u64>)| &truth[*own..][..(elements.end - elements.start) as usize];
    if let Some(failure) = too_large(&comm, lines.iter().flat_map(rates))? {
        return Err(failure.into());
    }
    let [data, truth] = FILES.map(|name| parameters.out.join(name));
    let data = seal_npy::<i64, Error>(&comm, &data, &SHAPE, |writer| {
        for line in &lines {
            let counts =
                line.1.clone().zip(rates(line)).map(|(cell, rate)| poisson(*rate, parameters.options.seed.0, cell));
            writer.write(line.1.start, &counts.collect::<Vec<i64>>())?;
        }
        Ok(())
    })?;
    let truth = seal_npy::<f32, Error>(&comm, &truth, &SHAPE, |writer| {
        for line in &lines {
            let values: Vec<f32> = rates(line).iter().map(|&value| value as f32).collect();
            writer.write(line.1.start, &values)?;
        }
        Ok(())
    })?;
    Ok([data, truth])
}

/// Refuses rates of any rank that are NaN or that counts cannot have. Collective.
fn too_large<'a>(comm: &Communicator, rates: impl Iterator<Item = &'a f64>) -> Result<Option<Failure>, CommError> {
    let mut greatest = [rates.fold(0.0, |all: f64, rate| if rate.is_nan() { f64::INFINITY } else { all.max(*rate) })];
    comm.all_reduce(&mut greatest, Op::Max)?;
    let [greatest] = greatest;
    Ok((greatest > MOST).then(|| {
        Failure::Usage(format!(
            "--demo: a cell has a rate of {greatest:e}, and they are {MOST:e} at most; give a smaller offset_mean, of which rates are the \
             exponential (--set offset_mean=2), or smaller fluctuations"
        ))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_mean_and_variance_of_their_rate() {
        let cells = 2000;
        for rate in [0.5, 7.0, MANY, MANY + 1.0, MOST] {
            let counts: Vec<f64> = (0..cells).map(|cell| poisson(rate, 1, cell) as f64).collect();
            let mean = counts.iter().sum::<f64>() / cells as f64;
            let variance = counts.iter().map(|count| (count - rate).powi(2)).sum::<f64>() / cells as f64;
            assert!((mean - rate).abs() < 5.0 * (rate / cells as f64).sqrt(), "{rate}: {mean}");
            assert!(
                (variance / rate - 1.0).abs() < 5.0 * ((2.0 + 1.0 / rate) / cells as f64).sqrt(),
                "{rate}: {variance}"
            );
        }
    }

    #[test]
    fn rates_that_no_count_has_are_refused() {
        let refused = |rates: &[f64]| too_large(&Communicator::solo(), rates.iter()).unwrap().map(|it| it.message());
        assert_eq!(refused(&[0.0, 1e6]), None);
        for wrong in [f64::NAN, f64::INFINITY, 1.1e6] {
            assert!(refused(&[wrong, 1.0]).unwrap().contains("offset_mean"), "{wrong}");
        }
    }
}
