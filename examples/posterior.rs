//! The posterior of a log-normal rate from counts: a correlated field whose spectrum is inferred
//! with it, on any device.
//!
//! ```sh
//! cargo run --release --example posterior          # 32 x 32 cells, 6 iterations
//! cargo run --release --example posterior 128 10
//! ```

use meshloom::comm::Communicator;
use meshloom::gpu::{Gpu, Options};
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, Data, Draw, FieldPrior, Fit, FitOptions, IterationOptions, Likelihood,
    NewtonOptions, PriorSpectrum, SampleGroups, Samples, Sampling, Stream, VectorSpace,
};
use meshloom::operators::{Leaf, Model, PointwiseOperator, Vector};
use meshloom::random::philox4x32;
use meshloom::{Error, Rank};

/// Returns what is known before the data: a rate of some 10, whose logarithm has a power spectrum
/// near a power law.
fn prior() -> FieldPrior {
    let amplitude = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: [1.0, 0.5],
        slope: [-3.0, 0.3],
        flexibility: Some([0.5, 0.2]),
        asperity: None,
    };
    let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }];
    FieldPrior { name: "sky".into(), offset_mean: 2.3, offset_std: [0.3, 0.1], axes }
}

/// Returns a Poisson number of this mean, by inversion.
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

/// Returns the only leaf of what a model says of latent values.
fn values(rank: &mut Rank, model: &Model, latent: &Vector) -> Result<Vec<f64>, Error> {
    Ok(model.value(rank, latent)?.get(&mut rank.recorder, "field")?)
}

/// Returns the sum of squares of distances.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Straight samples while the position is far away, bent ones when it is near; many for the end.
fn options(iteration: u32, last: u32) -> IterationOptions {
    IterationOptions {
        pairs: if iteration == last { 10 } else { 2 },
        sampling: if iteration < 2 { Sampling::Linear(Draw::New) } else { Sampling::Curved(Draw::New) },
        position: NewtonOptions::default().absdelta(0.5).steps(15),
        curve: NewtonOptions::default().absdelta(0.1).steps(5),
        ..IterationOptions::default()
    }
}

/// Returns how far the truth is from the mean of the samples, beside how far the samples are, in
/// squares over the whole field. If the posterior is right the truth is one more sample, and its
/// distance one of those that the samples have.
fn compare(rank: &mut Rank, field: &Model, samples: &Samples<Rank>, truth: &[f64]) -> Result<(f64, f64, f64), Error> {
    let all = samples.own().map(|sample| {
        let place = samples.at(rank, sample)?;
        values(rank, field, &place)
    });
    let all: Vec<Vec<f64>> = all.collect::<Result<_, _>>()?;
    let count = all.len() as f64;
    let mean: Vec<f64> = (0..truth.len()).map(|cell| all.iter().map(|one| one[cell]).sum::<f64>() / count).collect();
    let distances: Vec<f64> = all.iter().map(|one| distance(one, &mean)).collect();
    let middle = distances.iter().sum::<f64>() / count;
    let spread = (distances.iter().map(|one| (one - middle).powi(2)).sum::<f64>() / count).sqrt();
    Ok((distance(truth, &mean) / middle, spread / middle, (middle / truth.len() as f64).sqrt()))
}

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (n, iterations) = (words.next().unwrap_or(32), words.next().unwrap_or(6) as u32);
    let mut rank = Rank::new(Communicator::solo(), Gpu::open(&Options::from_env()?, 0)?)?;
    let mesh = rank.mesh([n, n]).periodic([1.0; 2]).build()?;
    let field = CorrelatedField::new(&mut rank, &mesh, &prior())?.model()?;
    let exp = PointwiseOperator::wgsl("fn f(s: f32) -> f32 { return exp(s); }", "f", field.target(), "rate")?;
    let rate = field.then(&Model::new(exp))?;

    // A truth of the prior, and its counts.
    let mut latent = Vector::new(&rank.gpu, rate.domain())?;
    rank.white_noise(Stream(1), &mut latent)?;
    let truth = values(&mut rank, &field, &latent)?;
    let uniform = |cell: usize| (0.5 + f64::from(philox4x32([cell as u32, 0, 0, 7], [1, 2])[0])) / 4294967296.0;
    let counts: Vec<f64> = truth.iter().enumerate().map(|(cell, &s)| poisson(s.exp(), uniform(cell))).collect();
    let leaf = Leaf::cells(&mesh);
    let data = Data { name: "counts", leaf: &leaf, values: &counts, mask: None };
    let likelihood = Likelihood::poisson(&mut rank, &data, None)?.amend(&rate)?;

    // From near the mean of the prior.
    let mut noise = Vector::new(&rank.gpu, rate.domain())?;
    rank.white_noise(Stream(2), &mut noise)?;
    let mut start = VectorSpace::zeros(&mut rank, &noise)?;
    VectorSpace::axpby(&mut rank, 0.1, &noise, 0.0, &mut start)?;
    let groups = SampleGroups::one(&Communicator::solo());
    let options = FitOptions::new(iterations).seed(42).each(|iteration| options(iteration, iterations - 1));
    let mut fit = Fit::new(&mut rank, &likelihood, &groups, &start, &options)?;
    while let Some(report) = fit.step(&mut rank)? {
        println!("{report}");
    }

    // How well, and how sure.
    let (error, spread, std) = compare(&mut rank, &field, fit.samples(), &truth)?;
    println!("logarithm of the rate: standard deviation {std:.3}, truth at {:.2} of it", error.sqrt());
    // Five times the spread of the samples' own distances, and a tenth for what ten pairs do not
    // know.
    assert!(
        (error - 1.0).abs() < 5.0 * spread + 0.1,
        "distance^2 of the truth {error:.3}, of samples 1 +- {spread:.3}"
    );
    // The counts' own noise would leave 1 / sqrt(10) in each cell.
    assert!(std < 0.316, "the posterior knows no more than each count by itself: {std:.3}");
    let chi = fit.history().last().and_then(|last| last.chi_squared[0]).unwrap_or(f64::NAN);
    let noise = (2.0 / (n * n) as f64).sqrt();
    assert!((chi - 1.0).abs() < 5.0 * noise + 0.1, "reduced chi-squared {chi:.3}, expected 1 +- {noise:.3}");
    Ok(())
}
