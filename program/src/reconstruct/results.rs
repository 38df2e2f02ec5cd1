//! Results of a fit: files, and their description.

use meshloom::Error;
use meshloom::Rank;
use meshloom::comm::Op;
use meshloom::inference::VectorSpace;
use meshloom::io::Sealed;
use meshloom::operators::Vector;
use serde_json::{Value, json};

use super::fitting::Fitted;
use super::outputs::{Outputs, cells_of};
use super::problem::Problem;
use super::spectra::Spectra;

/// Ratio of the true density's power to the noise power above which the signal dominates a scale:
/// there a Wiener filter's correlation with the truth, `sqrt(P / (P + N))`, is above 0.91.
const DOMINATES: f64 = 5.0;

/// White noise and the density that it evolves into.
type Universe = [Vector; 2];

/// All files, none of which has its final name yet, and the content of `run.json`. Collective.
pub fn write(
    problem: &mut Problem<'_, '_>,
    outputs: &Outputs<'_>,
    fitted: &Fitted,
) -> Result<(Vec<Sealed>, Value), Error> {
    let position = VectorSpace::copy(problem.rank, &fitted.samples.position)?;
    let found = evolved(problem, position)?;
    let truth = match problem.truth.take() {
        Some(values) => {
            let noise = problem.field(true, &values)?;
            Some(evolved(problem, noise)?)
        }
        None => None,
    };
    let mut files = fields(problem, outputs, &found, truth.as_ref())?;
    files.extend(outputs.iterations(fitted.fit.history(), |iteration| fitted.temperature(iteration))?);
    let mut report = describe(problem, outputs, fitted)?;
    report["chi_squared"] = chi_squared(problem, fitted)?;
    let sure = samples(problem, outputs, fitted, &found[1])?;
    let std = sure.map(|(written, std)| {
        files.extend(written);
        std
    });
    let (written, agreement) = spectra(problem, outputs, &found, truth.as_ref())?;
    files.extend(written);
    report["agreement"] = agreement;
    if let (Some(truth), Some(std)) = (&truth, &std) {
        let count = fitted.samples.count();
        report["agreement"]["error_over_std"] = error_over_std(problem, [&found[0], &truth[0], std], count)?.into();
    }
    Ok((files, report))
}

/// White noise with the density that it evolves into.
fn evolved(problem: &mut Problem<'_, '_>, noise: Vector) -> Result<Universe, Error> {
    let density = problem.run.value(problem.rank, &noise)?;
    Ok([noise, density])
}

/// Returns the fields that were found, and a picture with data and truth. Collective.
fn fields(
    problem: &mut Problem<'_, '_>,
    outputs: &Outputs<'_>,
    [noise, density]: &Universe,
    truth: Option<&Universe>,
) -> Result<Vec<Sealed>, Error> {
    let Problem { groups, rank, cells, sites, values, .. } = problem;
    let (noise, density) = (cells_of(rank, noise)?, cells_of(rank, density)?);
    let truth = truth.map(|[_, density]| cells_of(rank, density)).transpose()?;
    let mut files = vec![
        outputs.cells("white_noise.npy", groups, sites, &noise)?,
        outputs.cells("density.npy", groups, cells, &density)?,
    ];
    let truth = truth.as_deref().map(|truth| ("truth", truth));
    let panels: Vec<_> = [("data", &values[..]), ("reconstruction", &density)].into_iter().chain(truth).collect();
    files.extend(outputs.picture(&rank.comm, cells, &panels)?);
    Ok(files)
}

/// Chi-squared a cell: of what was found, and the mean of samples. Collective.
fn chi_squared(problem: &mut Problem<'_, '_>, fitted: &Fitted) -> Result<Value, Error> {
    let (rank, samples) = (&mut *problem.rank, &fitted.samples);
    let residual = fitted.likelihood.normalized_residual(rank, &samples.position)?;
    let square = residual.map(|residual| VectorSpace::dot(rank, &residual, &residual)).transpose()?;
    let is_of_samples = samples.count() > 0 && fitted.chains.is_null();
    let last = fitted.fit.history().last().filter(|_| is_of_samples);
    Ok(json!({
        "of_white_noise": square.map(|square| square / problem.cells.total_cells() as f64),
        "of_samples": last.and_then(|last| last.chi_squared[0]),
    }))
}

/// Writes the uncertainty of the result: standard deviations over samples, and the samples; with
/// the standard deviation of the noise. Collective.
fn samples(
    problem: &mut Problem<'_, '_>,
    outputs: &Outputs<'_>,
    fitted: &Fitted,
    density: &Vector,
) -> Result<Option<(Vec<Sealed>, Vector)>, Error> {
    let samples = &fitted.samples;
    if samples.count() == 0 {
        return Ok(None);
    }
    let Problem { groups, rank, run, cells, sites, .. } = problem;
    let mut latent = |rank: &mut Rank, x: &Vector| VectorSpace::copy(rank, x);
    let (_, noise) = samples.mean_and_std(rank, groups, &samples.position, &mut latent)?;
    let mut evolve = |rank: &mut Rank, x: &Vector| Ok(run.value(rank, x)?);
    let (_, evolved) = samples.mean_and_std(rank, groups, density, &mut evolve)?;
    let stds = [cells_of(rank, &noise)?, cells_of(rank, &evolved)?];
    let sample = |number: usize| {
        let place = samples.at(rank, number)?;
        cells_of(rank, &place)
    };
    let files = vec![
        outputs.cells("white_noise_std.npy", groups, sites, &stds[0])?,
        outputs.cells("density_std.npy", groups, cells, &stds[1])?,
        outputs.many_cells("samples.npy", sites, (samples.count(), samples.own()), sample)?,
    ];
    Ok(Some((files, noise)))
}

/// Spectra, and how the result agrees with the truth. Collective.
fn spectra(
    problem: &mut Problem<'_, '_>,
    outputs: &Outputs<'_>,
    [found_noise, found]: &Universe,
    truth: Option<&Universe>,
) -> Result<(Vec<Sealed>, Value), Error> {
    let (data, noise) = (problem.data()?, problem.noise_power());
    let Problem { parameters, rank, config, cells, sites, .. } = problem;
    let of_cells = Spectra::new(rank, cells)?;
    let (bins, of_data) = (of_cells.power(rank, found)?, of_cells.power(rank, &data)?);
    let power = parameters.universe.power()?;
    let linear = bins.iter().map(|bin| power.at(bin.k, config.a_end)).collect::<Result<Vec<f64>, _>>()?;
    let mut files: Vec<Sealed> = outputs.spectrum([&bins, &of_data], noise, &linear)?.into_iter().collect();
    let Some([true_noise, true_density]) = truth else { return Ok((files, Value::Null)) };
    let of_noise = Spectra::new(rank, sites)?.agreement(rank, found_noise, true_noise)?;
    let of_density = of_cells.agreement(rank, found, true_density)?;
    let bins = &of_density.power[1];
    let wiener = (0..bins.len()).map(|bin| of_density.wiener(noise, &|other| other == bin)).collect();
    files.extend(outputs.agreement(&of_noise, &of_density, wiener)?);
    // From the largest scale on, as long as the true density has several times the power of the
    // data's noise.
    let signal = bins.iter().take_while(|bin| bin.power > DOMINATES * noise).count();
    let agreement = json!({
        "signal_dominates_up_to_k": signal.checked_sub(1).map(|bin| bins[bin].k),
        "white_noise": of_noise.pooled(&|bin| bin < signal), "density": of_density.pooled(&|bin| bin < signal),
        "density_wiener": of_density.wiener(noise, &|bin| bin < signal),
        "white_noise_all": of_noise.pooled(&|_| true), "density_all": of_density.pooled(&|_| true),
        "density_all_wiener": of_density.wiener(noise, &|_| true),
    });
    Ok((files, agreement))
}

/// Returns the root mean square of the difference of truth and result over the standard deviation:
/// 1 if both are correct. `std` is that of `count` samples about their mean; mirrored samples have
/// the position as their mean, so that no degree of freedom is lost. Collective.
fn error_over_std(
    problem: &mut Problem<'_, '_>,
    [found, truth, std]: [&Vector; 3],
    count: usize,
) -> Result<f64, Error> {
    let rank = &mut *problem.rank;
    let mut error = VectorSpace::copy(rank, found)?;
    VectorSpace::axpby(rank, -1.0, truth, 1.0, &mut error)?;
    let squares = [VectorSpace::dot(rank, &error, &error)?, VectorSpace::dot(rank, std, std)?];
    let about_the_position = (count as f64 - 1.0) / count as f64;
    Ok((squares[0] / (squares[1] * about_the_position)).sqrt())
}

/// Returns the content of `run.json` without times and results from spectra. Collective.
fn describe(problem: &Problem<'_, '_>, outputs: &Outputs<'_>, fitted: &Fitted) -> Result<Value, Error> {
    let Problem { parameters, groups, rank, memory, identity, .. } = problem;
    let counts = rank.recorder.counts();
    let cost = rank.exchange_cost();
    let mut bytes = [cost.sent_bytes, cost.messages];
    outputs.all.all_reduce(&mut bytes, Op::Sum)?;
    let iterations = fitted.fit.history().iter().map(|it| {
        json!({
            "iteration": it.iteration, "temperature": fitted.temperature(it.iteration), "samples": it.samples,
            "energy": it.energy, "newton_steps": it.steps, "cg_steps": it.applications,
            "reduced_chi_squared": it.chi_squared[0], "seconds": it.seconds,
            "sample_cg_steps": it.sampling.steps, "unconverged_samples": it.sampling.unconverged,
            "sample_error_ratio": it.sampling.error_ratio, "failed_samples": it.sampling.failed,
            "limited_samples": it.sampling.limited,
        })
    });
    Ok(json!({
        "command": "reconstruct", "version": env!("CARGO_PKG_VERSION"), "problem": identity,
        "parameters": parameters.object(), "iterations": iterations.collect::<Vec<Value>>(),
        "samples": fitted.samples.count(), "chains": fitted.chains,
        "device": crate::described::device(rank),
        "ranks": outputs.all.size(), "shares": crate::common::shares_value(outputs.all.shares()), "groups": groups.count(), "grid": problem.cells.grid().to_string(),
        "bytes": {
            "device": null, "device_memory_of_a_linearization": memory.total(), "between_ranks": bytes[0], "messages": bytes[1],
        },
        "submissions": counts.submits, "dispatches": counts.dispatches,
    }))
}
