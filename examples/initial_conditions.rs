//! Initial conditions whose evolution explains a noisy density: the maximum of the posterior by
//! gradient descent (Adam, Kingma & Ba 2015), over any number of ranks. Writes a picture of the
//! data and of the density that was found, side by side.
//!
//! ```text
//! cargo run --release --features image --example initial_conditions -- docs 2    # docs/initial-conditions.png, on two ranks
//! ```

use meshloom::comm::Op;
use meshloom::gpu::Options;
use meshloom::io::density_png;
use meshloom::pm::{Config, Gradient, Noise, Simulation};
use meshloom::random::white_noise;
use meshloom::{Error, Launch, launch};

/// Standard deviation of the data's noise in a cell, whose mean density is 1.
const SIGMA: f32 = 0.3;
const ITERATIONS: i32 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = std::path::Path::new(&words.next().unwrap_or_else(|| ".".into())).join("initial-conditions.png");
    let ranks = words.next().map_or(Ok(1), |text| text.parse())?;
    launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        // Each rank has whole planes along x, of as many particles as cells.
        let base = Config { grid: Some([rank.comm.size(), 1]), ..Config::default() };
        let config = Config { particles: 32, mesh: 32, box_size: 320.0, steps: 4, ..base };
        // Data: the density of a run of which only its noise is unknown.
        let mut truth = Simulation::new(rank, Config { seed: 7, ..config.clone() }, Noise::Seed)?;
        truth.run(rank, |_, _, _| Ok::<_, Error>(()))?;
        let (own, mut data) = truth.density(rank)?;
        data.iter_mut().zip(own[0].start * 32 * 32..).for_each(|(d, cell)| *d += SIGMA * white_noise(8, cell) as f32);

        let mut gradient = Gradient::new(rank, config.clone(), 1)?;
        let [mut density, mut noise, mut mean, mut square] = [(); 4].map(|()| vec![0.0f32; data.len()]);
        for iteration in 1..=ITERATIONS {
            let found = gradient.evaluate(rank, Noise::Values(&noise), |observer, rank| {
                density = observer.run().density(rank)?.1;
                let residuals: Vec<f32> = density.iter().zip(&data).map(|(s, d)| (s - d) / SIGMA).collect();
                let by = rank.gpu.array("by", density.len() as u64)?;
                rank.recorder.upload(&by, 0, &residuals.iter().map(|r| r / SIGMA).collect::<Vec<_>>())?;
                observer.add_density(rank, &by)?;
                let mut energy = [residuals.iter().map(|r| 0.5 * f64::from(r * r)).sum::<f64>()];
                rank.comm.all_reduce(&mut energy, Op::Sum)?;
                Ok::<_, Error>(energy[0])
            })?;
            let slope = rank.recorder.download(&found.white_noise, 0, data.len() as u64)?;
            let [first, second] = [0.9f32, 0.99].map(|keep| 1.0 / (1.0 - keep.powi(iteration)));
            for (i, slope) in slope.iter().enumerate() {
                // The noise is normal with variance 1 before there are data.
                let slope = slope + noise[i];
                mean[i] = 0.9 * mean[i] + 0.1 * slope;
                square[i] = 0.99 * square[i] + 0.01 * slope * slope;
                noise[i] -= 0.1 * first * mean[i] / ((second * square[i]).sqrt() + 1e-8);
            }
            if rank.index() == 0 && iteration % 10 == 0 {
                println!("{iteration:3}: chi-squared per cell {:.3}", 2.0 * found.loss / 32f64.powi(3));
            }
        }
        let column = |line: &[f32]| line.iter().map(|cell| cell.max(0.0)).sum::<f32>();
        let map = |field: &[f32]| rank.comm.gather_v(0, &field.chunks(32).map(column).collect::<Vec<_>>());
        if let (Some(data), Some(found)) = (map(&data)?, map(&density)?) {
            let rows = data.data().chunks(32).zip(found.data().chunks(32));
            let both: Vec<f32> = rows.flat_map(|(data, found)| [data, found].concat()).collect();
            density_png(&both, 64, 32, &path)?;
            println!("wrote {}", path.display());
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}
