//! The posterior of a log-normal rate from counts: a correlated field whose spectrum is inferred with it, on any device.
//!
//! ```sh
//! cargo run --release --example posterior          # 64 x 64 cells, 5 iterations
//! cargo run --release --example posterior 128 8
//! ```

use std::time::Instant;

use meshloom::comm::Communicator;
use meshloom::gpu::{Gpu, Options};
use meshloom::grid::Grid;
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, Data, Draw, Excitations, FieldPrior, IterationOptions, Likelihood,
    NewtonOptions, OptimizeKl, SampleGroups, Sampling, Spectrum, Stream, VectorSpace,
};
use meshloom::operators::{Field, Leaf, Model, PointwiseOperator, RegularGrid, Worker};
use meshloom::{Context, Error};

/// A Poisson number of this mean, by inversion.
fn poisson(mean: f64, uniform: f64) -> f64 {
    let (mut count, mut term) = (0.0, (-mean).exp());
    let mut below = term;
    while below < uniform && count < 1e4 {
        count += 1.0;
        term *= mean / count;
        below += term;
    }
    count
}

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (n, iterations) = (words.next().unwrap_or(64), words.next().unwrap_or(5) as u32);
    let began = Instant::now();
    let mut context = Context::new(Communicator::solo(), Gpu::open(&Options::from_env()?, 0)?)?;
    let mut worker = Worker::new(&mut context, Grid::new([1, 1], 1)?)?;

    // What is known before the data: a log-normal rate of some 10, whose spectrum is near a power law.
    let regular = RegularGrid { shape: [1, n, n], size: [1.0; 3], grid: worker.comms.grid(), rank: 0 };
    let amplitude = AmplitudePrior::NonParametric {
        of: Spectrum::Power,
        fluctuations: [1.0, 0.5],
        slope: [-3.0, 0.3],
        flexibility: Some([0.5, 0.2]),
        asperity: None,
    };
    let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }];
    let prior = FieldPrior { name: "sky".into(), offset_mean: 2.3, offset_std: [0.3, 0.1], axes };
    let field = CorrelatedField::new(&mut worker, &regular, &prior)?.model()?;
    let exp = PointwiseOperator::wgsl("fn f(s: f32) -> f32 { return exp(s); }", "f", field.target(), "rate")?;
    let rate = field.then(&Model::new(exp))?;

    // A truth of the prior, and its counts.
    let mut truth = Field::new(worker.gpu(), rate.domain())?;
    worker.white_noise(Stream(1), &mut truth)?;
    let true_rate = rate.value(&mut worker, &truth)?.get(&mut worker.context.recorder, "rate")?;
    let uniform =
        |i: usize| (0.5 + meshloom::cosmology::philox4x32([i as u32, 0, 0, 7], [1, 2])[0] as f64) / 4294967296.0;
    let counts: Vec<f64> = true_rate.iter().enumerate().map(|(i, &rate)| poisson(rate, uniform(i))).collect();
    let leaf = Leaf::cells(&regular);
    let data = Data { name: "counts", leaf: &leaf, values: &counts, mask: None };
    let likelihood = Likelihood::poisson(&mut worker, &data, None)?.amend(&rate)?;

    // Straight samples first, bent ones later.
    let groups = SampleGroups::one(&Communicator::solo());
    let options = |iteration: u32| IterationOptions {
        pairs: 2 + iteration as usize / 2,
        sampling: if iteration < 3 { Sampling::Linear(Draw::New) } else { Sampling::Curved(Draw::New) },
        position: NewtonOptions::default().absdelta(0.5).steps(15),
        curve: NewtonOptions::default().absdelta(0.1).steps(5),
        ..IterationOptions::default()
    };
    let mut start = Field::new(worker.gpu(), rate.domain())?;
    worker.white_noise(Stream(2), &mut start)?;
    let mut near = worker.zeros(&start)?;
    VectorSpace::axpby(&mut worker, 0.1, &start, 0.0, &mut near)?;
    println!("ready after {:.2} s", began.elapsed().as_secs_f64());
    let fit = OptimizeKl::new(&likelihood, &groups, iterations)
        .excitations(Excitations::Seed(42))
        .options(options)
        .callback(|_, _, report| {
            println!("{report}");
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .run(&mut worker, &near)?;

    // How well, and how sure.
    let like = Field::new(worker.gpu(), rate.target())?;
    let mut value = |worker: &mut Worker<'_>, x: &Field| Ok(rate.value(worker, x)?);
    let (mean, std) = fit.samples.mean_and_std(&mut worker, &groups, &like, &mut value)?;
    let mean = mean.get(&mut worker.context.recorder, "rate")?;
    let std = std.get(&mut worker.context.recorder, "rate")?;
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let error = square(&mut mean.iter().zip(&true_rate).map(|(a, b)| a - b)) / square(&mut true_rate.iter().copied());
    let within =
        mean.iter().zip(&std).zip(&true_rate).filter(|((mean, std), truth)| (*mean - *truth).abs() < **std).count();
    println!(
        "relative error of the rate {:.3}; {:.1} % of the truth within one sigma",
        error.sqrt(),
        100.0 * within as f64 / mean.len() as f64
    );
    println!("{:.2} s in all", began.elapsed().as_secs_f64());
    Ok(())
}
