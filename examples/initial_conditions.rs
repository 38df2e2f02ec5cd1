//! Initial conditions whose evolution explains a noisy density: the maximum of the posterior by
//! gradient descent (Adam, Kingma & Ba 2015), over any number of ranks. All fields stay on the
//! device. Writes a picture of the data and of the density that was found, side by side.
//!
//! ```text
//! cargo run --release --features image --example initial_conditions -- . 2    # writes initial-conditions.png, on two ranks
//! ```

use meshloom::gpu::Options;
use meshloom::io::density_png;
use meshloom::pm::{Config, Gradient, Noise, Simulation};
use meshloom::{Error, Field, Launch, Rank, launch};

/// Standard deviation of the data's noise in a cell, whose mean density is 1.
const SIGMA: f64 = 0.3;
const ITERATIONS: i32 = 100;
const CELLS: u64 = 32;

meshloom::kernel_params! {
    /// Factors of a step of Adam: the size of the step and the corrections of both means.
    struct Adam {
        step: f32,
        first: f32,
        second: f32,
    }
}

/// Returns the density summed along the last axis on rank 0, one number for each column.
fn columns(rank: &mut Rank, density: &Field) -> Result<Vec<f32>, Error> {
    let all = rank.gather(density, 0)?.unwrap_or_default();
    Ok(all.chunks(CELLS as usize).map(|column| column.iter().map(|cell| cell.max(0.0)).sum()).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = std::path::Path::new(&words.next().unwrap_or_else(|| ".".into())).join("initial-conditions.png");
    let ranks = words.next().map_or(Ok(1), |text| text.parse())?;
    let config = Config { particles: CELLS, mesh: CELLS, box_size: 320.0, steps: 4, ..Config::default() };
    launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        // Data: the density of a run of which only the noise is unknown, and noise of each cell.
        let mut truth = Simulation::new(rank, Config { seed: 7, ..config.clone() }, Noise::Seed)?;
        truth.run(rank, |_, _, _| Ok::<_, Error>(()))?;
        let (cells, sites) = (truth.cell_mesh().clone(), truth.site_mesh().clone());
        let mut data = rank.fill_white_noise(&cells, 8)?;
        let density = truth.density(rank)?;
        rank.axpby(1.0, &density, SIGMA, &mut data)?;

        // The derivative of half of chi-squared by the density.
        let by_density = format!("fn cell(c: Cell) -> f32 {{ return (found(c) - data(c)) / {}; }}", SIGMA * SIGMA);
        let by_density = rank.stencil(&cells, by_density);
        // Before there are data, the noise is normal with variance 1.
        let mean =
            rank.stencil(&sites, "fn cell(c: Cell) -> f32 { return 0.9 * mean(c) + 0.1 * (slope(c) + noise(c)); }");
        let square = rank.stencil(
            &sites,
            "fn cell(c: Cell) -> f32 { let s = slope(c) + noise(c); return 0.99 * square(c) + 0.01 * s * s; }",
        );
        let step = rank.stencil(
            &sites,
            "fn cell(c: Cell) -> f32 {
                 return noise(c) - params.step * params.first * mean(c) / (sqrt(params.second * square(c)) + 1e-8);
             }",
        );
        let [mut noise, mut m, mut v, mut next] =
            [rank.zeros(&sites)?, rank.zeros(&sites)?, rank.zeros(&sites)?, rank.zeros::<f32>(&sites)?];
        let mut gradient = Gradient::new(rank, config.clone(), 1)?;
        let (mut found, mut by) = (rank.zeros(&cells)?, rank.zeros::<f32>(&cells)?);
        for iteration in 1..=ITERATIONS {
            let of = gradient.evaluate(rank, Noise::Field(&noise), |observer, rank| {
                found = observer.density(rank)?;
                by_density.run(rank, &(), &[("found", &found), ("data", &data)], &mut by)?;
                observer.add_density(rank, &by)?;
                Ok::<_, Error>(0.5 * SIGMA * SIGMA * rank.dot(&by, &by)?)
            })?;
            let [first, second] = [0.9f32, 0.99].map(|keep| 1.0 / (1.0 - keep.powi(iteration)));
            let (loss, slope) = (of.loss, of.white_noise);
            mean.run(rank, &(), &[("mean", &m), ("slope", &slope), ("noise", &noise)], &mut next)?;
            std::mem::swap(&mut m, &mut next);
            square.run(rank, &(), &[("square", &v), ("slope", &slope), ("noise", &noise)], &mut next)?;
            std::mem::swap(&mut v, &mut next);
            let adam = Adam { step: 0.1, first, second };
            step.run(rank, &adam, &[("noise", &noise), ("mean", &m), ("square", &v)], &mut next)?;
            std::mem::swap(&mut noise, &mut next);
            if rank.index() == 0 && iteration % 10 == 0 {
                println!("{iteration:3}: chi-squared per cell {:.3}", 2.0 * loss / cells.total_cells() as f64);
            }
        }
        let (data, found) = (columns(rank, &data)?, columns(rank, &found)?);
        if rank.index() == 0 {
            let rows = data.chunks(CELLS as usize).zip(found.chunks(CELLS as usize));
            let both: Vec<f32> = rows.flat_map(|(data, found)| [data, found].concat()).collect();
            density_png(&both, 2 * CELLS as usize, CELLS as usize, &path)?;
            println!("wrote {}", path.display());
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}
