//! Chains: moments of known distributions, ranks of the truth, the same bits on any ranks.

use super::field_models::WhiteNoise;
use super::host_models::{Host, Noise, Problem, linear};
use meshloom::Rank;
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::gpu::Gpu;
use meshloom::inference::{
    Algorithm, Existing, Identity, InferenceError, LogLikelihood, LogLikelihoodAt, SampleGroups, Sampler,
    SamplerOptions, VectorSpace, effective_sample_size, split_r_hat,
};
use meshloom::operators::Vector;
use meshloom::random::white_noise;
use std::path::Path;

/// `-ln p + x.x / 2` with its gradient, of a density without data.
type Density = fn(&[f64]) -> (f64, Vec<f64>);

/// A density as a likelihood, whose metric is not known.
struct Given {
    density: Density,
}

struct GivenAt(f64, Vec<f64>);

impl LogLikelihood<Host> for Given {
    fn name(&self) -> String {
        "density".into()
    }
    fn identity(&self, _: &mut Host) -> Result<Identity, InferenceError> {
        Ok(Identity::default())
    }
    fn data(&self, _: &mut Host) -> Result<Vec<f64>, InferenceError> {
        Ok(Vec::new())
    }
    fn energy(&self, space: &mut Host, x: &Vec<f64>) -> Result<f64, InferenceError> {
        self.at(space, x)?.energy(space)
    }
    fn at<'a>(&'a self, _: &mut Host, x: &Vec<f64>) -> Result<Box<dyn LogLikelihoodAt<Host> + 'a>, InferenceError> {
        let (energy, gradient) = (self.density)(x);
        let square: f64 = x.iter().map(|x| x * x).sum();
        let gradient = gradient.iter().zip(x).map(|(g, x)| g - x).collect();
        Ok(Box::new(GivenAt(energy - square / 2.0, gradient)))
    }
    fn normalized_residual(&self, _: &mut Host, _: &Vec<f64>) -> Result<Option<(Vec<f64>, u64)>, InferenceError> {
        Ok(None)
    }
    fn degrees_of_freedom(&self) -> u64 {
        0
    }
}

impl LogLikelihoodAt<Host> for GivenAt {
    fn energy(&self, _: &mut Host) -> Result<f64, InferenceError> {
        if self.0.is_finite() {
            return Ok(self.0);
        }
        Err(InferenceError::NotFinite { what: "energy".into(), value: self.0 })
    }
    fn gradient(&self, _: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        out.clone_from(&self.1);
        Ok(())
    }
    fn metric(&self, _: &mut Host, _: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        out.fill(0.0);
        Ok(())
    }
    fn left_sqrt(&self, _: &mut Host, _: &Vec<f64>, _: &mut Vec<f64>) -> Result<(), InferenceError> {
        unreachable!("samplers take no root")
    }
    fn right_sqrt(&self, _: &mut Host, _: &Vec<f64>, _: &mut Vec<f64>) -> Result<(), InferenceError> {
        unreachable!("samplers take no root")
    }
    fn coordinates(&self, _: &mut Host, _: &Vec<f64>, _: &mut Vec<f64>) -> Result<(), InferenceError> {
        unreachable!("samplers take no coordinates")
    }
}

/// Draws by chain, number and draw; gradients after warm-up; divergent draws; the last length of
/// each chain.
struct Drawn {
    chains: Vec<Vec<Vec<f64>>>,
    gradients: u64,
    divergent: usize,
    lengths: Vec<f64>,
}

fn draw(likelihood: &impl LogLikelihood<Host>, host: &mut Host, options: &SamplerOptions) -> Drawn {
    let groups = SampleGroups::one(&Communicator::solo());
    let count: u64 = host.parts(&Vec::new()).iter().map(|(_, len)| len).sum();
    let mut starts: Vec<Vec<f64>> = Vec::new();
    for chain in 0..options.chains {
        starts.push((0..count).map(|i| white_noise(900 + u64::from(chain), i)).collect());
    }
    let mut sampler = Sampler::new(host, likelihood, &groups, &starts, options).unwrap();
    let chains = vec![vec![Vec::new(); starts[0].len()]; starts.len()];
    let mut drawn = Drawn { lengths: vec![0.0; chains.len()], chains, gradients: 0, divergent: 0 };
    let mut steps = 0;
    while let Some(step) = sampler.step(host).unwrap() {
        steps += 1;
        assert_eq!(step.is_warmup, steps <= options.warmup);
        if step.is_warmup {
            continue;
        }
        for chain in sampler.own() {
            let statistics = sampler.statistics(chain).unwrap();
            drawn.lengths[chain] = statistics.length;
            drawn.gradients += u64::from(statistics.gradients);
            drawn.divergent += usize::from(statistics.is_divergent);
            let place = sampler.position(chain).unwrap();
            drawn.chains[chain].iter_mut().zip(place).for_each(|(own, x)| own.push(*x));
        }
    }
    assert_eq!(steps, options.warmup + options.draws);
    drawn
}

impl Drawn {
    /// Returns the values of a function of a number, by chain.
    fn of(&self, number: usize, function: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
        self.chains.iter().map(|chain| chain[number].iter().map(|x| function(*x)).collect()).collect()
    }

    /// Checks the mean and variance of a number within 5 standard errors of themselves, and a bias
    /// of the variance relative to itself.
    fn check(&self, number: usize, mean: f64, variance: f64, bias: f64, what: &str) {
        let squares = self.of(number, |x| (x - mean).powi(2));
        for (values, wanted, bias) in [(self.of(number, |x| x), mean, 0.0), (squares, variance, bias * variance)] {
            let all: Vec<f64> = values.iter().flatten().copied().collect();
            let found = all.iter().sum::<f64>() / all.len() as f64;
            let spread = all.iter().map(|x| (x - found).powi(2)).sum::<f64>() / all.len() as f64;
            let error = (spread / effective_sample_size(&values)).sqrt();
            assert!((found - wanted).abs() < 5.0 * error + bias, "{what} {number}: {found}, {wanted} ± {error}");
            let r_hat = split_r_hat(&values);
            assert!(r_hat < 1.05, "{what} {number}: {r_hat}");
        }
    }
}

/// Returns correlated data of `n` latent values, and the mean and covariance of their posterior.
fn correlated(n: usize) -> (Problem, Vec<f64>, Vec<Vec<f64>>) {
    // The posterior precision is R^T R / std^2 + 1, with R tridiagonal of growing rows.
    let std = 0.5;
    let row = |i: usize| -> Vec<f64> {
        (0..n)
            .map(|j| match i.abs_diff(j) {
                0 => 1.0 + 4.0 * i as f64 / n as f64,
                1 => 0.8,
                _ => 0.0,
            })
            .collect()
    };
    let rows: Vec<Vec<f64>> = (0..n).map(row).collect();
    let data: Vec<f64> = (0..n).map(|i| white_noise(5, i as u64)).collect();
    let mut precision: Vec<Vec<f64>> = (0..n)
        .map(|i| (0..n).map(|j| rows.iter().map(|row| row[i] * row[j]).sum::<f64>() / (std * std)).collect())
        .collect();
    (0..n).for_each(|i| precision[i][i] += 1.0);
    let covariance = inverse(precision);
    let right: Vec<f64> =
        (0..n).map(|i| rows.iter().zip(&data).map(|(row, d)| row[i] * d).sum::<f64>() / (std * std)).collect();
    let mean = covariance.iter().map(|row| row.iter().zip(&right).map(|(a, b)| a * b).sum()).collect();
    let problem = Problem { noise: Noise::Gaussian { std }, data, latent: n, forward: Box::new(linear(rows)) };
    (problem, mean, covariance)
}

/// Gauss and Jordan's inverse of a positive matrix.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let mut inverse: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for pivot in 0..n {
        let own = matrix[pivot][pivot];
        matrix[pivot].iter_mut().chain(&mut inverse[pivot]).for_each(|x| *x /= own);
        for row in (0..n).filter(|row| *row != pivot) {
            let factor = matrix[row][pivot];
            for column in 0..n {
                matrix[row][column] -= factor * matrix[pivot][column];
                inverse[row][column] -= factor * inverse[pivot][column];
            }
        }
    }
    inverse
}

#[test]
fn draws_have_the_moments_of_a_correlated_gaussian() {
    for (algorithm, n, bias) in [
        (Algorithm::nuts(), 8, 0.0),
        (Algorithm::hmc(10), 8, 0.0),
        (Algorithm::mclmc(10), 20, 0.03),
        (Algorithm::adjusted_mclmc(), 8, 0.0),
    ] {
        let (problem, mean, covariance) = correlated(n);
        let mut host = Host::new((0..n).map(|i| (format!("{i:02}"), 1)));
        let drawn = draw(&problem, &mut host, &SamplerOptions::new(algorithm, 200, 400).seed(3));
        assert_eq!(drawn.divergent, 0, "{algorithm:?}");
        for (number, mean) in mean.iter().enumerate() {
            drawn.check(number, *mean, covariance[number][number], bias, &format!("{algorithm:?}"));
        }
        let sizes: Vec<f64> = (0..n).map(|number| effective_sample_size(&drawn.of(number, |x| x))).collect();
        let least = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        // In units of the scales a Gaussian forgets its positions within about its own size.
        let is_near = |length: &f64| (0.3..3.0).contains(&(length / (n as f64).sqrt()));
        assert!(drawn.lengths.iter().all(|length| *length == 0.0 || is_near(length)), "{:?}", drawn.lengths);
        println!("{algorithm:?}: {:.2?}, {least:.0} effective draws of {} gradients", drawn.lengths, drawn.gradients);
    }
}

/// Neal's funnel: the first number is the logarithm of the variance of the others.
fn funnel(x: &[f64]) -> (f64, Vec<f64>) {
    let others = &x[1..];
    let square: f64 = others.iter().map(|x| x * x).sum();
    let precision = (-x[0]).exp();
    let n = others.len() as f64;
    let first = x[0] + n / 2.0 - precision * square / 2.0;
    let gradient = std::iter::once(first).chain(others.iter().map(|x| precision * x)).collect();
    (x[0] * x[0] / 2.0 + n * x[0] / 2.0 + precision * square / 2.0, gradient)
}

#[test]
fn draws_reach_both_ends_of_a_funnel() {
    let likelihood = Given { density: funnel };
    let nuts = Algorithm::Nuts { acceptance: 0.95, depth: 10 };
    let adjusted = Algorithm::AdjustedMclmc { acceptance: 0.95, length: None };
    for algorithm in [nuts, adjusted] {
        let drawn = draw(&likelihood, &mut Host::new([("x", 5)]), &SamplerOptions::new(algorithm, 500, 1500).seed(1));
        let what = format!("funnel by {algorithm:?}");
        drawn.check(0, 0.0, 1.0, 0.0, &what);
        // The others have the variance of exp of a standard normal number.
        drawn.check(1, 0.0, 0.5_f64.exp(), 0.0, &what);
    }
}

/// Truths of the prior, data of them, and the rank of each truth among its draws are uniform (Talts
/// et al. 2018).
#[test]
fn ranks_of_truths_among_their_draws_are_uniform() {
    const BINS: usize = 8;
    let n = 4;
    let rows: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| if i == j { 2.0 } else { 0.7 / (1 + j) as f64 }).collect()).collect();
    let mut counts = [[0; BINS]; 2];
    let simulations = 160;
    for simulation in 0..simulations {
        let truth: Vec<f64> = (0..n as u64).map(|i| white_noise(40 + simulation, i)).collect();
        let forward = Box::new(linear(rows.clone()));
        let mut problem = Problem { noise: Noise::Gaussian { std: 0.5 }, data: vec![0.0; n], latent: n, forward };
        let noise = |(i, value): (usize, f64)| value + 0.5 * white_noise(4000 + simulation, i as u64);
        problem.data = problem.value(&truth).into_iter().enumerate().map(noise).collect();
        for (algorithm, counts) in [Algorithm::nuts(), Algorithm::adjusted_mclmc()].into_iter().zip(&mut counts) {
            let options = SamplerOptions::new(algorithm, 100, 63).chains(1).seed(simulation);
            let drawn = draw(&problem, &mut Host::new([("x", n)]), &options);
            let rank = drawn.chains[0][0].iter().filter(|x| **x < truth[0]).count();
            counts[rank * BINS / 64] += 1;
        }
    }
    let expected = simulations as f64 / BINS as f64;
    for counts in counts {
        let chi_squared: f64 = counts.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
        // Of 7 degrees of freedom; above 24.3 once in 1000 times.
        assert!(chi_squared < 24.3, "{counts:?}: {chi_squared}");
    }
}

#[test]
fn bad_options_and_starts_are_refused() {
    let groups = SampleGroups::one(&Communicator::solo());
    let (problem, ..) = correlated(3);
    let mut host = Host::new([("x", 3)]);
    let mut refused = |starts: &[Vec<f64>], options: SamplerOptions| {
        Sampler::new(&mut host, &problem, &groups, starts, &options).map(|_| ()).unwrap_err().to_string()
    };
    let one = [vec![0.0; 3]];
    let options = |algorithm| SamplerOptions::new(algorithm, 1, 1);
    for (algorithm, why) in [
        (Algorithm::Nuts { acceptance: 1.0, depth: 5 }, "acceptance: expected a number between 0 and 1, got 1"),
        (Algorithm::Nuts { acceptance: 0.5, depth: 0 }, "depth: expected 1 to 20, got 0"),
        (Algorithm::hmc(0), "steps: expected 1 to"),
        (Algorithm::Mclmc { energy_variance: f64::NAN, steps: 1, length: None }, "energy_variance: expected"),
        (Algorithm::Mclmc { energy_variance: 1.0, steps: 1, length: Some(0.0) }, "length: expected a positive"),
        (Algorithm::AdjustedMclmc { acceptance: 0.0, length: None }, "acceptance: expected a number between 0 and 1"),
        (Algorithm::AdjustedMclmc { acceptance: 0.9, length: Some(-1.0) }, "length: expected a positive"),
    ] {
        let text = refused(&one, options(algorithm));
        assert!(text.contains(why), "{text}");
    }
    let text = refused(&one, options(Algorithm::nuts()).chains(0));
    assert!(text.contains("chains: expected at least 1"), "{text}");
    let text = refused(&one, options(Algorithm::nuts()).thinning(0));
    assert!(text.contains("thinning: expected at least 1"), "{text}");
    let text = refused(&[vec![0.0; 3], vec![0.0; 3]], options(Algorithm::nuts()));
    assert!(text.contains("2 starts are given; expected 1, or one for each of 4 chains"), "{text}");
    let one_number = Given { density: |x| (x[0] * x[0] / 2.0, x.to_vec()) };
    let options_of_one = options(Algorithm::mclmc(1)).chains(1);
    let found = Sampler::new(&mut Host::new([("x", 1)]), &one_number, &groups, &[vec![0.5]], &options_of_one);
    let text = found.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("MCLMC needs at least 2 latent values, got 1"), "{text}");
    let text = refused(&[vec![f64::NAN; 3]], options(Algorithm::nuts()).chains(1));
    assert!(text.contains("the start of chain 0"), "{text}");
}

/// A step into a region without a finite energy is a divergence and no error.
#[test]
fn energies_that_are_not_finite_are_divergences() {
    // A half-normal number: the energy is infinite below 0.
    fn half(x: &[f64]) -> (f64, Vec<f64>) {
        (if x[0] < 0.0 { f64::INFINITY } else { x.iter().map(|x| x * x / 2.0).sum() }, x.to_vec())
    }
    let likelihood = &Given { density: half };
    for (algorithm, count) in [(Algorithm::nuts(), 1), (Algorithm::hmc(5), 1), (Algorithm::adjusted_mclmc(), 2)] {
        let groups = SampleGroups::one(&Communicator::solo());
        let options = SamplerOptions::new(algorithm, 0, 300).chains(1);
        let mut host = Host::new([("x", count)]);
        let start = vec![0.5; count];
        let mut sampler = Sampler::new(&mut host, likelihood, &groups, &[start], &options).unwrap();
        let mut divergent = 0;
        while sampler.step(&mut host).unwrap().is_some() {
            assert!(sampler.position(0).unwrap()[0] >= 0.0);
            divergent += u32::from(sampler.statistics(0).unwrap().is_divergent);
        }
        assert!(divergent > 0, "{algorithm:?}");
    }
}

/// Returns the energies of draws by chain, and the cells of this rank in the last draw of each.
type Bits = Vec<(u32, Vec<u64>)>;

/// Runs `steps` draws at most, from a state in a directory if there is one.
fn chains(
    comm: &Communicator,
    groups: usize,
    algorithm: Algorithm,
    (state, steps): (Option<&Path>, usize),
) -> Result<Bits, InferenceError> {
    let (groups, own) = SampleGroups::split(comm, groups)?;
    let gpu = Gpu::open(&meshloom_sanitizer::options().unwrap(), 0)?;
    let ranks = own.size();
    let mut rank = Rank::new(own, gpu)?;
    crate::process_grid::set(meshloom::grid::Grid::new([ranks, 1], ranks).unwrap());
    let likelihood = WhiteNoise::new(&mut rank, [6, 5, 8])?;
    let start = Vector::zeros(&mut rank.recorder, likelihood.model.domain())?;
    let mut options = SamplerOptions::new(algorithm, 22, 2).seed(7);
    if let Some(state) = state {
        options = options.state(state, Existing::Resume).save_every(5);
    }
    let mut sampler = Sampler::new(&mut rank, &likelihood, &groups, &[start], &options)?;
    let mut found: Bits = sampler.own().map(|chain| (chain as u32, Vec::new())).collect();
    for _ in 0..steps {
        sampler.step(&mut rank)?;
        for (chain, energies) in &mut found {
            energies.push(sampler.statistics(*chain as usize)?.energy.to_bits());
        }
    }
    if steps < 24 {
        return Ok(found);
    }
    let draws = sampler.finish(&mut rank)?;
    assert_eq!((draws.samples.count(), draws.statistics.len(), draws.chains), (8, 8, 4));
    for (chain, energies) in &mut found {
        let own = &draws.statistics[2 * *chain as usize..][..2];
        assert!(own.iter().map(|own| own.energy.to_bits()).eq(energies[22..].iter().copied()));
    }
    let mean = draws.samples.position.get(&mut rank.recorder, "scale")?;
    found[0].1.push(mean[0].to_bits());
    Ok(found)
}

#[test]
fn chains_have_the_same_bits_for_every_number_of_groups_and_ranks() {
    // A few steps.
    let short = Algorithm::AdjustedMclmc { acceptance: 0.9, length: Some(3.0) };
    for algorithm in [Algorithm::Nuts { acceptance: 0.8, depth: 2 }, Algorithm::mclmc(3), short] {
        let run = |groups: usize, ranks: usize| {
            let all = run_threads(groups * ranks, |comm| chains(&comm, groups, algorithm, (None, 24))).unwrap();
            let mut found: Bits = all.into_iter().step_by(ranks).flatten().collect();
            found.sort_unstable();
            // The first chain of each group has the mean of all.
            let means: Vec<u64> =
                found.iter_mut().filter_map(|(_, bits)| (bits.len() > 24).then(|| bits.pop())?).collect();
            assert!(means.len() == groups && means.iter().all(|mean| *mean == means[0]));
            found[0].1.push(means[0]);
            found
        };
        let one = run(1, 1);
        assert_eq!(one.len(), 4);
        assert!(one.iter().all(|(_, energies)| energies.len() >= 24 && energies[0] != energies[23]));
        assert_ne!(one[0].1, one[1].1);
        for (groups, ranks) in [(1, 2), (4, 1)] {
            assert_eq!(run(groups, ranks), one, "{algorithm:?}: {groups} groups of {ranks}");
        }
        // A state of one rank goes on in two groups of two.
        let directory = std::env::temp_dir().join(format!("meshloom-any-chains-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        run_threads(1, |comm| chains(&comm, 1, algorithm, (Some(&directory), 12))).unwrap();
        let rest = run_threads(4, |comm| chains(&comm, 2, algorithm, (Some(&directory), 14))).unwrap();
        for (chain, energies) in rest.into_iter().flatten() {
            assert_eq!(energies[..], one[chain as usize].1[10..24], "{algorithm:?}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// Chains on the host as they go on from a state after each of some numbers of draws.
#[test]
fn chains_resume_to_the_same_bits() {
    let directory = std::env::temp_dir().join(format!("meshloom-chains-{}", std::process::id()));
    let (problem, ..) = correlated(4);
    let groups = SampleGroups::one(&Communicator::solo());
    let mut host = Host::new((0..4).map(|i| (format!("{i}"), 1)));
    let all = |host: &mut Host, options: &SamplerOptions| {
        let draws = Sampler::new(host, &problem, &groups, &[vec![0.1; 4]], options)?.finish(host)?;
        let samples: Vec<_> = (0..draws.samples.count()).map(|one| draws.samples.at(host, one).unwrap()).collect();
        Ok::<_, InferenceError>((draws.samples.position, samples, draws.statistics))
    };
    for algorithm in [Algorithm::nuts(), Algorithm::hmc(3), Algorithm::mclmc(2), Algorithm::adjusted_mclmc()] {
        let _ = std::fs::remove_dir_all(&directory);
        let options = SamplerOptions::new(algorithm, 30, 12).chains(2).thinning(2).seed(2);
        let whole = all(&mut host, &options).unwrap();
        let saving = options.clone().state(&directory, Existing::Resume).save_every(7);
        // Ended within the warm-up and after it, between states.
        for steps in [10, 26] {
            let mut sampler = Sampler::new(&mut host, &problem, &groups, &[vec![0.1; 4]], &saving).unwrap();
            (0..steps).for_each(|_| assert!(sampler.step(&mut host).unwrap().is_some()));
        }
        assert!(all(&mut host, &saving).unwrap() == whole, "{algorithm:?}");
        // It is done; more draws go on from it.
        assert!(all(&mut host, &saving).unwrap() == whole, "{algorithm:?}");
        let with = |draws, existing| {
            let mut options = saving.clone();
            (options.draws, options.existing) = (draws, existing);
            options
        };
        let more = with(20, Existing::Resume);
        assert!(all(&mut host, &more).unwrap().2[..6] == whole.2[..6], "{algorithm:?}");
        let refused = |host: &mut Host, options: SamplerOptions, why: &str| {
            let error = all(host, &options).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("chains.npz"), "{error}");
        };
        refused(&mut host, saving.clone().seed(3), "another seed");
        refused(&mut host, saving.clone().thinning(3), "another thinning");
        refused(&mut host, with(12, Existing::Resume), "raise the number of draws");
        refused(&mut host, with(20, Existing::Refuse), "it would be lost");
        std::fs::write(directory.join("chains.npz"), "no archive").unwrap();
        refused(&mut host, saving.clone(), "remove it to start again");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn groups_without_chains_and_other_seeds_are_refused() {
    let run = |ranks: usize, seeds: fn(usize) -> u64| {
        let found = run_threads(ranks, |comm| {
            let (groups, _) = SampleGroups::split(&comm, ranks)?;
            let (problem, ..) = correlated(3);
            let mut host = Host::new([("x", 3)]);
            let options = SamplerOptions::new(Algorithm::nuts(), 1, 1).seed(seeds(comm.rank()));
            let made = Sampler::new(&mut host, &problem, &groups, &[vec![0.0; 3]], &options);
            Ok::<_, InferenceError>(made.map(|_| ()))
        });
        found.unwrap()
    };
    for found in run(5, |_| 0) {
        let text = found.unwrap_err().to_string();
        assert!(text.contains("5 groups of samples on 5 ranks: each needs the same number of chains"), "{text}");
    }
    for found in run(2, |rank| rank as u64) {
        assert!(matches!(found, Err(InferenceError::Comm(CommError::Differ { .. }))), "{found:?}");
    }
}
