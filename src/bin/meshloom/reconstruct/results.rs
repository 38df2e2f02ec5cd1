//! What a fit has found: files, and what describes them.

use meshloom::Error;
use meshloom::comm::Op;
use meshloom::inference::{Fit, Likelihood, SampleGroups, VectorSpace};
use meshloom::io::Sealed;
use meshloom::operators::{Field, Worker};
use serde_json::{Value, json};

use super::outputs::{Outputs, cells_of};
use super::spectra::Spectra;
use super::{Problem, field};

/// All files, none of which has its final name yet, and the content of `run.json`. All ranks call it.
pub fn write<'w>(
    problem: &mut Problem<'_, 'w>,
    outputs: &Outputs<'_>,
    (fit, likelihood): (&Fit<Worker<'w>>, &Likelihood),
    truth: Option<&[f32]>,
) -> Result<(Vec<Sealed>, Value), Error> {
    let Problem { worker, run, cells, sites, data, .. } = &mut *problem;
    let position = &fit.samples.position;
    let density = run.value(worker, position)?;
    let [noise, found, data] = [position, &density, &*data].map(|field| cells_of(worker, field));
    let (noise, found, data) = (noise?, found?, data?);
    let mut files =
        vec![outputs.cells("white_noise.npy", sites, &noise)?, outputs.cells("density.npy", cells, &found)?];
    files.extend(outputs.iterations(&fit.history)?);
    let truth = truth.map(|values| field(worker, run, true, values)).transpose()?;
    let true_density = truth.as_ref().map(|noise| run.value(worker, noise)).transpose()?;
    let mut panels = vec![&data[..], &found];
    let evolved = true_density.as_ref().map(|density| cells_of(worker, density)).transpose()?;
    panels.extend(evolved.as_deref());
    files.extend(outputs.picture(cells, &panels)?);
    let residual = likelihood.normalized_residual(worker, position)?;
    let chi_squared = match residual {
        Some(residual) => Some(VectorSpace::dot(worker, &residual, &residual)? / cells.cells() as f64),
        None => None,
    };
    files.extend(samples(problem, outputs, fit, &density)?);
    let mut report = describe(problem, outputs, fit)?;
    report["chi_squared"] = json!({
        "of_white_noise": chi_squared,
        "of_samples": (fit.samples.count() > 0).then(|| fit.history.last().and_then(|last| last.chi_squared[0])).flatten(),
    });
    let truth = truth.as_ref().zip(true_density.as_ref());
    files.extend(spectra(problem, outputs, [position, &density], truth, &mut report)?);
    Ok((files, report))
}

/// How sure the result is: standard deviations over samples, and the samples. All ranks call it.
fn samples<'w>(
    problem: &mut Problem<'_, 'w>,
    outputs: &Outputs<'_>,
    fit: &Fit<Worker<'w>>,
    density: &Field,
) -> Result<Vec<Sealed>, Error> {
    if fit.samples.count() == 0 {
        return Ok(Vec::new());
    }
    let Problem { worker, run, cells, sites, .. } = problem;
    let (samples, groups) = (&fit.samples, SampleGroups::one(&outputs.comm));
    let (_, noise) =
        samples.mean_and_std(worker, &groups, &samples.position, &mut |worker, x| VectorSpace::copy(worker, x))?;
    let (_, evolved) = samples.mean_and_std(worker, &groups, density, &mut |worker, x| Ok(run.value(worker, x)?))?;
    let [noise, evolved] = [&noise, &evolved].map(|field| cells_of(worker, field));
    let sample = |number: usize| {
        let place = samples.at(worker, number)?;
        cells_of(worker, &place)
    };
    Ok(vec![
        outputs.cells("white_noise_std.npy", sites, &noise?)?,
        outputs.cells("density_std.npy", cells, &evolved?)?,
        outputs.many_cells("samples.npy", sites, samples.count(), sample)?,
    ])
}

/// Spectra, and how the result agrees with the truth, which is given as noise and density. All ranks call it.
fn spectra(
    problem: &mut Problem<'_, '_>,
    outputs: &Outputs<'_>,
    [position, density]: [&Field; 2],
    truth: Option<(&Field, &Field)>,
    report: &mut Value,
) -> Result<Vec<Sealed>, Error> {
    let Problem { parameters, worker, config, cells, sites, data, .. } = problem;
    let of_cells = Spectra::new(worker, cells)?;
    let [found, of_data] = [density, &*data].map(|field| of_cells.power(worker, field));
    let (found, of_data) = (found?, of_data?);
    let noise = parameters.noise.powi(2) * cells.cell_volume();
    let power = parameters.universe.power()?;
    let linear = found.iter().map(|bin| power.at(bin.k, config.a_end)).collect::<Result<Vec<f64>, _>>()?;
    let mut files: Vec<Sealed> = outputs.spectrum([&found, &of_data], noise, &linear)?.into_iter().collect();
    report["agreement"] = Value::Null;
    if let Some((true_noise, true_density)) = truth {
        let of_noise = Spectra::new(worker, sites)?.agreement(worker, position, true_noise)?;
        let of_density = of_cells.agreement(worker, density, true_density)?;
        // From the largest scale on, as long as the true density has more power than the data's noise.
        let signal = of_density.power[1].iter().take_while(|bin| bin.power > noise).count();
        files.extend(outputs.agreement(&of_noise, &of_density)?);
        report["agreement"] = json!({
            "signal_dominates_up_to_k": signal.checked_sub(1).map(|bin| of_density.power[1][bin].k),
            "white_noise": of_noise.pooled(&|bin| bin < signal), "density": of_density.pooled(&|bin| bin < signal),
            "white_noise_all": of_noise.pooled(&|_| true), "density_all": of_density.pooled(&|_| true),
        });
    }
    Ok(files)
}

/// What `run.json` says but for times and what follows from spectra. All ranks call it.
fn describe(problem: &Problem<'_, '_>, outputs: &Outputs<'_>, fit: &Fit<Worker<'_>>) -> Result<Value, Error> {
    let Problem { parameters, worker, config, memory, .. } = problem;
    let (info, counts) = (worker.gpu().info(), worker.context.recorder.counts());
    let cost = worker.comms.cost();
    let mut bytes = [cost.sent, cost.messages];
    outputs.comm.all_reduce(&mut bytes, Op::Sum)?;
    let history: Vec<Value> = fit
        .history
        .iter()
        .map(|it| {
            json!({
                "iteration": it.iteration, "samples": it.samples, "energy": it.energy, "newton_steps": it.steps,
                "cg_steps": it.applications, "reduced_chi_squared": it.chi_squared[0], "seconds": it.seconds,
            })
        })
        .collect();
    Ok(json!({
        "command": "reconstruct", "version": env!("CARGO_PKG_VERSION"), "parameters": parameters.object(config),
        "iterations": history, "samples": fit.samples.count(),
        "device": { "name": info.name, "driver": info.driver, "driver_info": info.driver_info,
                    "backend": format!("{:?}", info.backend) },
        "ranks": outputs.comm.size(), "grid": worker.comms.grid().to_string(),
        "bytes": { "device_memory_of_a_linearisation": memory.total(), "between_ranks": bytes[0], "messages": bytes[1] },
        "submissions": counts.submits, "dispatches": counts.dispatches,
    }))
}
