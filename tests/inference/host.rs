//! Inference: minimizers, samples and whole fits against NIFTy.re, closed forms and statistics.

use super::host_models::{Host, Line, Noise, Problem, dot, linear};
use meshloom::comm::{CommError, Communicator, run_threads};
use meshloom::inference::{
    CgOptions, CgStop, Convergence, Curvature, Draw, EvidenceOptions, Excitation, Excitations, Excited, Existing,
    Expansion, Fit, FitEnd, FitOptions, InferenceError, IterationOptions, Kl, LogLikelihood, NewtonOptions, NewtonStop,
    NormOrder, Objective, ObjectiveAt, Preconditioning, Progress, SampleGroups, Samples, Sampling, VectorSpace,
    conjugate_gradient, evidence, newton_cg, wiener_filter,
};
use serde_json::Value;
use std::rc::Rc;

/// Golden values of NIFTy.re 9.2, which independent code in numpy agrees with.
fn goldens() -> Value {
    serde_json::from_str(include_str!("../goldens/inference.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        value => vec![value.as_f64().unwrap_or_else(|| panic!("{value}"))],
    }
}

fn pair(value: &Value) -> [f64; 2] {
    numbers(value).try_into().unwrap()
}

/// Returns the greatest difference, relative to the greatest number (1 at least).
fn apart(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let scale = wanted.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
    found.iter().zip(wanted).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / scale
}

/// Splitmix64 white noise, as the golden values have it.
fn white(n: usize, seed: u64) -> Vec<f64> {
    let normal = |i: usize| {
        let [u, v] = [uniform(2 * i as u64, seed), uniform(2 * i as u64 + 1, seed)];
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    };
    (0..n).map(normal).collect()
}

/// Excitations `white(n, data + step sample)` and one seed further for the prior.
fn given(iteration_step: u64, first: u64) -> Excitations<Host> {
    Excitations::Given(Rc::new(move |_: &mut Host, excitation: Excitation, out: &mut Vec<f64>| {
        let seed = first + iteration_step * u64::from(excitation.iteration) + 2 * u64::from(excitation.sample);
        *out = white(out.len(), seed + u64::from(excitation.what == Excited::Prior));
        Ok(())
    }))
}

/// One of the golden problems on 12 of 16 cells, and its values.
fn golden_problem(name: &str) -> (Problem, Host, Value) {
    let golden = goldens()[name].clone();
    let line = Line {
        n: 16,
        offset: golden["offset_mean"].as_f64().unwrap(),
        zero_mode: pair(&golden["offset_std"]),
        fluctuations: pair(&golden["fluctuations"]),
        slope: pair(&golden["loglogavgslope"]),
        flexibility: pair(&golden["flexibility"]),
        asperity: pair(&golden["asperity"]),
    };
    let cells: Vec<usize> = numbers(&golden["cells"]).iter().map(|&cell| cell as usize).collect();
    let gain = golden["gain"].as_f64().unwrap();
    let noise = match name {
        "poisson_16" => Noise::Poisson,
        "gaussian_16" => Noise::Gaussian { std: 0.3 },
        _ => Noise::Student { std: 0.3, dof: 3.0 },
    };
    let forward = move |x: &[_]| {
        let field = line.field(x);
        cells.iter().map(|&cell| field[cell].exp() * gain).collect()
    };
    let problem = Problem { noise, data: numbers(&golden["data"]), latent: 35, forward: Box::new(forward) };
    let parts = [("asperity", 1), ("flexibility", 1), ("fluctuations", 1), ("slope", 1), ("spectrum", 14), ("xi", 16)];
    (problem, Host::new(parts.into_iter().chain([("zeromode", 1)])), golden)
}

const PROBLEMS: [&str; 3] = ["poisson_16", "gaussian_16", "student_16"];

#[test]
fn host_problems_are_those_of_the_golden_values() {
    for name in PROBLEMS {
        let (problem, mut host, golden) = golden_problem(name);
        let [x, v, eta] = ["pos", "tangent", "eta_d"].map(|name| numbers(&golden[name]));
        let close = |what: &str, found: &[f64]| {
            assert!(apart(found, &numbers(&golden[what])) < 1e-10, "{name}: {what} {found:?}");
        };
        close("rate_at_pos", &problem.value(&x));
        let at = problem.at(&mut host, &x).unwrap();
        close("energy", &[at.energy(&mut host).unwrap() + dot(&x, &x) / 2.0]);
        let mut out = Vec::new();
        at.gradient(&mut host, &mut out).unwrap();
        host.axpby(1.0, &x, 1.0, &mut out).unwrap();
        close("gradient", &out);
        at.metric(&mut host, &v, &mut out).unwrap();
        host.axpby(1.0, &v, 1.0, &mut out).unwrap();
        close("metric_times_tangent", &out);
        at.left_sqrt(&mut host, &eta, &mut out).unwrap();
        close("left_sqrt_eta_d", &out);
        at.right_sqrt(&mut host, &v, &mut out).unwrap();
        close("right_sqrt_tangent", &out);
        at.coordinates(&mut host, &x, &mut out).unwrap();
        close("tau", &out);
    }
}

/// Returns the golden excitation, whatever sample.
fn golden_excitation(golden: &Value) -> Excitations<Host> {
    let [data, prior] = ["eta_d", "eta_p"].map(|name| numbers(&golden[name]));
    Excitations::Given(Rc::new(move |_: &mut Host, excitation: Excitation, out: &mut Vec<f64>| {
        *out = if excitation.what == Excited::Data { data.clone() } else { prior.clone() };
        Ok(())
    }))
}

#[test]
fn conjugate_gradients_take_the_iterations_of_the_reference() {
    for name in PROBLEMS {
        let (problem, mut host, golden) = golden_problem(name);
        let at = problem.at(&mut host, &numbers(&golden["pos"])).unwrap();
        let mut metric = |host: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>| {
            at.metric(host, v, out)?;
            host.axpby(1.0, v, 1.0, out)
        };
        let gradient = numbers(&golden["gradient"]);
        let found =
            conjugate_gradient(&mut host, &mut metric, None, &gradient, None, &CgOptions::resnorm(1e-10)).unwrap();
        assert!(apart(&found.x, &numbers(&golden["cg_solution"])) < 1e-8, "{name}");
        assert_eq!(Some(found.iterations), golden["cg_iterations"].as_u64(), "{name}");
        assert_eq!(Some(found.applications), golden["cg_matvecs"].as_u64(), "{name}");
        assert_eq!(found.stop, CgStop::Residual);
    }
}

#[test]
fn samples_are_those_of_the_reference() {
    for name in PROBLEMS {
        let (problem, mut host, golden) = golden_problem(name);
        let expansion = Expansion::new(&mut host, &problem, &numbers(&golden["pos"]), &[]).unwrap();
        let excitations = golden_excitation(&golden);
        for (rules, suffix, bound) in
            [(CgOptions::resnorm(1e-10), "", 1e-8), (CgOptions::default(), "_default_stop", 1e-6)]
        {
            let linear = expansion.linear(&mut host, &excitations, [0, 0], &rules).unwrap().x;
            let wanted = numbers(&golden[format!("mgvi_residual{suffix}")]);
            assert!(apart(&linear, &wanted) < bound, "{name}{suffix}: {}", apart(&linear, &wanted));
            for (sign, sample) in [(1.0, "plus"), (-1.0, "minus")] {
                let mut start = vec![0.0; 35];
                host.axpby(sign, &linear, 0.0, &mut start).unwrap();
                let tight = CgOptions { norm: NormOrder::One, ..CgOptions::resnorm(1e-14) };
                let options = match suffix {
                    "" => NewtonOptions { xtol: 1e-13, cg: Some(tight), ..NewtonOptions::default() },
                    _ => NewtonOptions::default(),
                };
                let found = expansion.curve(&mut host, &excitations, [0, 0], sign, &start, &options).unwrap();
                let wanted = &golden[format!("geovi_residual_{sample}{suffix}")];
                if !wanted.is_null() {
                    let apart = apart(&found.x, &numbers(wanted));
                    // Default rules end on a path that roundings lead away from.
                    assert!(apart < if suffix.is_empty() { 1e-8 } else { 1e-4 }, "{name} {sample}{suffix}: {apart}");
                }
                if suffix == "_default_stop" && sample == "plus" {
                    let wanted = golden["geovi_newton_iterations_default"].as_u64().unwrap();
                    assert!(found.steps.abs_diff(wanted) <= 1, "{name}: {} steps, {wanted}", found.steps);
                }
            }
        }
    }
}

/// Returns the golden set of residuals.
fn golden_samples(golden: &Value) -> Samples<Host> {
    let [linear, plus, minus] =
        ["mgvi_residual", "geovi_residual_plus", "geovi_residual_minus"].map(|name| numbers(&golden[name]));
    let mirrored = linear.iter().map(|r| -r).collect();
    Samples::new(
        numbers(&golden["pos"]),
        &SampleGroups::one(&Communicator::solo()),
        4,
        vec![linear, mirrored, plus, minus],
    )
    .unwrap()
}

#[test]
fn energies_averaged_over_samples_and_their_minima_are_those_of_the_reference() {
    for name in PROBLEMS {
        let (problem, mut host, golden) = golden_problem(name);
        let (samples, groups) = (golden_samples(&golden), SampleGroups::one(&Communicator::solo()));
        for kept in [4, 1] {
            let kl = Kl {
                likelihood: &problem,
                samples: &samples,
                groups: &groups,
                constants: &[],
                kept,
                concurrency: 3,
                preconditioner: None,
                curvature: Curvature::default(),
            };
            let (value, at) = kl.at(&mut host, &samples.position).unwrap();
            let mut out = vec![0.0; 35];
            at.gradient(&mut host, &mut out).unwrap();
            assert!(apart(&out, &numbers(&golden["kl_gradient"])) < 1e-9, "{name}");
            at.metric(&mut host, &numbers(&golden["tangent"]), &mut out).unwrap();
            assert!(apart(&out, &numbers(&golden["kl_metric_times_tangent"])) < 1e-9, "{name}");
            assert!(apart(&[value], &numbers(&golden["kl"])) < 1e-10, "{name}");
        }
        let kl = Kl {
            likelihood: &problem,
            samples: &samples,
            groups: &groups,
            constants: &[],
            kept: 4,
            concurrency: 2,
            preconditioner: None,
            curvature: Curvature::default(),
        };
        let tight = CgOptions { norm: NormOrder::One, ..CgOptions::resnorm(1e-12) };
        let options = NewtonOptions { xtol: 1e-10, cg: Some(tight), ..NewtonOptions::default() };
        let found = newton_cg(&mut host, &kl, samples.position.clone(), &options, &mut |_| {}).unwrap();
        // A line search ends where values do not tell places apart: at the root of their rounding.
        assert!(apart(&found.x, &numbers(&golden["kl_minimum"])) < 1e-6, "{name}");
        assert!(apart(&[found.value], &numbers(&golden["kl_minimum_value"])) < 1e-10, "{name}");

        let mut trace = Vec::new();
        let found = newton_cg(&mut host, &kl, samples.position.clone(), &NewtonOptions::default(), &mut |step| {
            trace.push(*step)
        })
        .unwrap();
        let golden = &golden["newton_default"];
        assert_eq!(found.stop, NewtonStop::Step);
        assert_eq!(Some(found.applications), golden["nhev"].as_u64());
        assert_eq!(Some(found.evaluations), golden["nfev"].as_u64());
        assert!(apart(&found.x, &numbers(&golden["x"])) < 1e-6, "{name}");
        let wanted = golden["trace"].as_array().unwrap();
        assert_eq!(trace.len(), wanted.len());
        for (found, wanted) in trace.iter().zip(wanted) {
            assert_eq!(Some(found.applications), wanted["cg_nit"].as_u64());
            assert!(
                apart(&[found.value, found.scale], &[&wanted["energy"], &wanted["scale"]].map(|v| v.as_f64().unwrap()))
                    < 1e-8
            );
            assert!(apart(&[found.length], &numbers(&wanted["descent_norm"])) < 1e-5, "{found:?} {wanted}");
        }
    }
}

/// `x^4 - x^2` of each number, with its curvature.
struct Quartic;

impl Objective<Host> for Quartic {
    fn at<'a>(&'a self, _: &mut Host, x: &Vec<f64>) -> Result<(f64, Box<dyn ObjectiveAt<Host> + 'a>), InferenceError> {
        Ok((x.iter().map(|x| x.powi(4) - x * x).sum(), Box::new(QuarticAt(x.clone()))))
    }
}

struct QuarticAt(Vec<f64>);

impl ObjectiveAt<Host> for QuarticAt {
    fn gradient(&self, _: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = self.0.iter().map(|x| 4.0 * x.powi(3) - 2.0 * x).collect();
        Ok(())
    }

    fn metric(&self, _: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = self.0.iter().zip(v).map(|(x, v)| (12.0 * x * x - 2.0) * v).collect();
        Ok(())
    }
}

#[test]
fn negative_curvature_leads_downhill() {
    // The reference goes uphill here and gives up where it started.
    let found =
        newton_cg(&mut Host::default(), &Quartic, vec![0.1, 0.2], &NewtonOptions::default(), &mut |_| {}).unwrap();
    assert!(apart(&found.x, &[0.5f64.sqrt(); 2]) < 1e-4, "{found:?}");
}

/// Returns the matrix problem of the page: 10 counts of 6 latent values.
fn matrix_problem() -> Problem {
    let rows = white(60, 11).chunks(6).map(|row| row.iter().map(|a| 0.4 * a).collect()).collect();
    let field = linear(rows);
    let forward = move |x: &[_]| field(x).iter().map(|y| y.exp() * 3.0).collect();
    let data = [4.0, 2.0, 7.0, 3.0, 0.0, 5.0, 1.0, 9.0, 4.0, 6.0];
    Problem { noise: Noise::Poisson, data: data.to_vec(), latent: 6, forward: Box::new(forward) }
}

#[test]
fn a_poisson_problem_of_a_matrix_has_the_known_samples_and_minima() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let e: Vec<f64> = white(6, 12).iter().map(|x| 0.3 * x).collect();
    let (excitations, groups) = (given(0, 20), SampleGroups::one(&Communicator::solo()));
    let expansion = Expansion::new(&mut host, &problem, &e, &[]).unwrap();
    let tight = NewtonOptions { xtol: 1e-14, cg: Some(CgOptions::resnorm(1e-13)), ..NewtonOptions::default() };
    let (mut straight, mut curved) = (Vec::new(), Vec::new());
    for sample in 0..2 {
        let residual = expansion.linear(&mut host, &excitations, [0, sample], &CgOptions::resnorm(1e-12)).unwrap().x;
        for sign in [1.0, -1.0] {
            let start: Vec<f64> = residual.iter().map(|r| sign * r).collect();
            curved.push(expansion.curve(&mut host, &excitations, [0, sample], sign, &start, &tight).unwrap().x);
            straight.push(start);
        }
    }
    let close = |found: &[f64], wanted: &[f64]| assert!(apart(found, wanted) < 1e-8, "{found:?} {wanted:?}");
    close(&straight[0], &[0.3917353258, 0.405359226, -0.6900347105, 0.906859095, 0.6854471199, 0.4096296984]);
    close(&curved[0], &[0.4048472844, 0.612344218, -0.7144910442, 0.9281610036, 0.6899498609, 0.4503405984]);
    close(&curved[1], &[-0.3713630138, -0.2341449732, 0.6664940048, -0.8934979667, -0.6851119457, -0.3750263733]);
    let minima = [
        ([0.2591681261, 0.7803833543, 0.0351499132, -0.924299692, 0.8493983263, 1.2968431974], -18.190795757821558),
        ([0.2774615553, 0.668311218, 0.0571439123, -0.9471907459, 0.8560800998, 1.2741286452], -18.19138775654037),
    ];
    for (residuals, (place, value)) in [straight, curved].into_iter().zip(minima) {
        let samples = Samples::new(e.clone(), &groups, 4, residuals).unwrap();
        let kl = Kl {
            likelihood: &problem,
            samples: &samples,
            groups: &groups,
            constants: &[],
            kept: usize::MAX,
            concurrency: 2,
            preconditioner: None,
            curvature: Curvature::default(),
        };
        let found = newton_cg(&mut host, &kl, e.clone(), &tight, &mut |_| {}).unwrap();
        close(&found.x, &place);
        close(&[found.value], &[value]);
    }
}

/// Returns a fit of the page's problems with given noise and tight rules, or the default ones.
fn golden_fit(name: &str, run: &str) -> (Rc<Problem>, Host, Value, Fit<Host, Rc<Problem>>) {
    let (problem, mut host, golden) = golden_problem(name);
    let golden_run = golden[run].clone();
    let strings = |key: &str| -> Vec<String> {
        let names = golden_run[key].as_array().cloned().unwrap_or_default();
        names
            .iter()
            .map(|name| {
                name.as_str()
                    .unwrap()
                    .trim_start_matches("cfax1")
                    .trim_start_matches("cf")
                    .replace("loglogavgslope", "slope")
            })
            .collect()
    };
    let (pairs, modes) = (numbers(&golden_run["n_samples"]), golden_run["mode"].clone());
    let tight = golden_run["tight"].as_bool().unwrap();
    let options = |iteration: u32| {
        let curved = modes[iteration as usize] == "nonlinear";
        let sampling = if curved { Sampling::Curved(Draw::New) } else { Sampling::Linear(Draw::New) };
        let (mut linear, mut newton) = (CgOptions::default(), NewtonOptions::default());
        if tight {
            linear = CgOptions::resnorm(1e-12);
            newton = NewtonOptions {
                xtol: 1e-10,
                cg: Some(CgOptions { norm: NormOrder::One, ..CgOptions::resnorm(1e-12) }),
                // What ended two of the reference's minimizations.
                maxiter: 60,
                ..NewtonOptions::default()
            };
        }
        IterationOptions {
            preconditioning: Preconditioning::Off,
            pairs: pairs[iteration as usize] as usize,
            sampling,
            linear,
            curve: newton,
            position: newton,
            temperature: 1.0,
            curvature: Curvature::default(),
            point_estimates: strings("point_estimates"),
            constants: strings("constants"),
        }
    };
    let groups = SampleGroups::one(&Communicator::solo());
    let iterations = pairs.len() as u32;
    let (start, options) = (numbers(&golden["pos"]), FitOptions::new(iterations).each(options));
    let problem = Rc::new(problem);
    let fit = Fit::new(&mut host, problem.clone(), &groups, &start, &options).unwrap();
    let fit = fit.with_excitations(given(100, 1000)).run(&mut host).unwrap();
    (problem, host, golden_run, fit)
}

#[test]
fn whole_fits_are_those_of_the_reference() {
    let runs = ["run_map", "run_mgvi", "run_geovi", "run_geovi_default", "run_point_estimates", "run_constants"];
    let runs = runs
        .map(|run| ("poisson_16", run))
        .into_iter()
        .chain([("gaussian_16", "run_geovi"), ("student_16", "run_geovi")]);
    for (name, run) in runs {
        let (problem, mut host, golden, fit) = golden_fit(name, run);
        // Default rules end on a path that roundings lead away from.
        let bound = if golden["tight"].as_bool().unwrap() { 1e-6 } else { 1e-4 };
        let close = |what: &str, found: &[f64]| {
            let apart = apart(found, &numbers(&golden[what]));
            assert!(apart < bound, "{name} {run}: {what} {apart}");
        };
        for (report, wanted) in fit.history().iter().zip(golden["history"].as_array().unwrap()) {
            assert!(apart(&[report.energy], &numbers(&wanted["kl"])) < bound, "{name} {run}: {report}, {wanted}");
            if !golden["tight"].as_bool().unwrap() {
                assert_eq!(Some(report.steps), wanted["newton"].as_u64());
                assert_eq!(Some(report.applications), wanted["nhev"].as_u64());
            }
        }
        close("pos", &fit.samples().position);
        if !golden["residuals"].is_null() {
            let found: Vec<f64> =
                fit.samples().own().flat_map(|s| fit.samples().residual(s).unwrap().clone()).collect();
            close("residuals", &found);
            let groups = SampleGroups::one(&Communicator::solo());
            let mut rate = |_: &mut Host, x: &Vec<f64>| Ok(problem.value(x));
            let (mean, std) = fit.samples().mean_and_std(&mut host, &groups, &vec![0.0; 12], &mut rate).unwrap();
            close("rate_mean", &mean);
            close("rate_std", &std);
        }
    }
}

/// Data that depend linearly on latent values, on 35 of 64 cells, and the golden values.
fn wiener_problem() -> (Problem, Value) {
    let golden = goldens()["wiener_64"].clone();
    let amplitude = numbers(&golden["amplitude"]);
    let row = |cell: usize| {
        let mode = |k: usize| {
            let turn = 2.0 * std::f64::consts::PI * (cell * k % 64) as f64 / 64.0;
            amplitude[k.min(64 - k)] * (turn.cos() - turn.sin())
        };
        (0..64).map(mode).collect()
    };
    let rows = numbers(&golden["cells"]).iter().map(|&cell| row(cell as usize)).collect();
    let noise = Noise::Gaussian { std: golden["noise_variance"].as_f64().unwrap().sqrt() };
    let problem = Problem { noise, data: numbers(&golden["data"]), latent: 64, forward: Box::new(linear(rows)) };
    (problem, golden)
}

#[test]
fn a_wiener_filter_has_the_analytic_mean_and_samples() {
    let (problem, golden) = wiener_problem();
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let rules = CgOptions { maxiter: Some(1000), ..CgOptions::resnorm(1e-11) };
    let excitations = golden_excitation(&golden);
    for start in [vec![0.0; 64], white(64, 5)] {
        let found = wiener_filter(&mut host, &problem, &groups, &start, (1, &excitations), &rules).unwrap();
        assert!(!found.is_bent && found.bend < 1e-9, "{}", found.bend);
        let (found, convergence) = (found.samples, found.convergence);
        assert!(convergence.unconverged == 0 && (7..1000).contains(&convergence.steps), "{convergence:?}");
        assert!(apart(&found.position, &numbers(&golden["latent_mean"])) < 1e-9);
        assert!(apart(found.residual(0).unwrap(), &numbers(&golden["mgvi_residual"])) < 1e-9);
        // A curved sample of a linear model is a straight one, and the minimum of any mirrored
        // samples is the mean.
        let expansion = Expansion::new(&mut host, &problem, &start, &[]).unwrap();
        let straight = found.residual(0).unwrap().clone();
        let curved =
            expansion.curve(&mut host, &excitations, [0, 0], 1.0, &straight, &NewtonOptions::default()).unwrap();
        assert!(apart(&curved.x, &straight) < 1e-9);
        let kl = Kl {
            likelihood: &problem,
            samples: &found,
            groups: &groups,
            constants: &[],
            kept: 1,
            concurrency: 2,
            preconditioner: None,
            curvature: Curvature::default(),
        };
        let minimum = newton_cg(&mut host, &kl, start, &NewtonOptions::default(), &mut |_| {}).unwrap();
        assert!(apart(&minimum.x, &found.position) < 1e-4);
    }
}

#[test]
fn samples_that_are_no_solutions_are_told_of() {
    let (problem, _) = wiener_problem();
    // Two steps of the twenty or so that they take; six samples of three pairs, on groups that
    // share a pair.
    let cut = CgOptions { maxiter: Some(2), ..CgOptions::resnorm(1e-11) };
    let run = |groups: usize| {
        let ranks = run_threads(groups, |comm| {
            let (groups, _) = SampleGroups::split(&comm, groups)?;
            let mut host = Host::default();
            let options = |iteration| IterationOptions {
                pairs: 3,
                linear: if iteration == 0 { cut } else { CgOptions::default() },
                sampling: if iteration == 2 { Sampling::Update } else { Sampling::Linear(Draw::New) },
                curve: NewtonOptions::default().steps(1),
                position: NewtonOptions::default().steps(1),
                ..IterationOptions::default()
            };
            let options = FitOptions::new(3).each(options);
            let fit = Fit::new(&mut host, &problem, &groups, &vec![0.0; 64], &options)?.run(&mut host)?;
            let seed = Excitations::Seed(1);
            let filter = wiener_filter(&mut host, &problem, &groups, &vec![0.0; 64], (3, &seed), &cut)?;
            // What conjugate gradients have left undone does not point to another model.
            assert!(!filter.is_bent, "{}", filter.bend);
            Ok::<_, InferenceError>((
                fit.history().iter().map(|report| report.sampling).collect::<Vec<_>>(),
                filter.convergence,
            ))
        });
        ranks.unwrap().remove(0)
    };
    let (fit, filter) = run(1);
    assert_eq!([fit[0], filter].map(|found| (found.steps, found.unconverged)), [(2, 6), (2, 7)]);
    assert!(fit[1].steps > 6 && fit[1].unconverged == 0, "{fit:?}");
    // An update draws nothing, and keeps the error of the draw.
    assert_eq!(fit[2], Convergence { steps: 0, ..fit[1] });
    assert_eq!(run(4), (fit, filter));
}

#[test]
fn a_filter_of_a_model_that_is_not_linear_says_so() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let seed = Excitations::Seed(1);
    let found = wiener_filter(&mut host, &problem, &groups, &vec![0.0; 6], (1, &seed), &CgOptions::default()).unwrap();
    assert!(found.is_bent && found.bend > 0.01, "{}", found.bend);
}

/// Data of this size about `exp(x)` for one latent value each, and Poisson noise: far from the
/// start the energy is not a parabola.
fn counts_of(size: f64) -> Problem {
    let forward = |x: &[_]| x.iter().map(|x: &rustfft::num_complex::Complex64| x.exp()).collect();
    let data = (0..8).map(|i| (size * (1.0 + 0.1 * f64::from(i))).round()).collect();
    Problem { noise: Noise::Poisson, data, latent: 8, forward: Box::new(forward) }
}

#[test]
fn a_fit_that_begins_far_from_the_data_comes_to_them() {
    // Nine halvings end at e^16 for a count of 1000; where the data are needs a thousandth of a
    // step.
    let groups = SampleGroups::one(&Communicator::solo());
    for size in [1e3, 1e6] {
        let problem = counts_of(size);
        let host = &mut Host::default();
        let fit = Fit::new(host, &problem, &groups, &vec![0.0; 8], &FitOptions::new(3)).unwrap().run(host).unwrap();
        let last = fit.history().last().unwrap();
        assert!(last.stop != NewtonStop::NoDescent && last.doubts(Some([0.0, 3.0])).is_empty(), "{size}: {last}");
        for (x, data) in fit.samples().position.iter().zip(&problem.data) {
            // A count d knows its rate's logarithm to 1 / sqrt(d); the prior pulls by ln(d) / d.
            assert!((x - data.ln()).abs() < 5.0 / size.sqrt(), "{size}: {x} {}", data.ln());
        }
    }
}

/// A bowl whose gradient points uphill: no line search can find a descent.
struct WrongSigns;

impl Objective<Host> for WrongSigns {
    fn at<'a>(&'a self, _: &mut Host, x: &Vec<f64>) -> Result<(f64, Box<dyn ObjectiveAt<Host> + 'a>), InferenceError> {
        Ok((dot(x, x), Box::new(WrongSignsAt(x.clone()))))
    }
}

struct WrongSignsAt(Vec<f64>);

impl ObjectiveAt<Host> for WrongSignsAt {
    fn gradient(&self, _: &mut Host, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = self.0.iter().map(|x| -2.0 * x).collect();
        Ok(())
    }

    fn metric(&self, _: &mut Host, v: &Vec<f64>, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        *out = v.iter().map(|v| 2.0 * v).collect();
        Ok(())
    }
}

#[test]
fn a_minimum_to_rounding_is_told_from_a_search_that_finds_nothing() {
    let stop =
        |x: f64| newton_cg(&mut Host::default(), &WrongSigns, vec![x; 3], &NewtonOptions::default(), &mut |_| {});
    let far = stop(10.0).unwrap();
    assert_eq!((far.stop, &far.x[..]), (NewtonStop::NoDescent, &[10.0; 3][..]));
    // Closer to it than a standard deviation: samples could not tell.
    assert_eq!(stop(1e-3).unwrap().stop, NewtonStop::Rounding);
}

/// Setup of a rank: pairs, seed, what one of its data has more than others', iterations.
type Differ = dyn Fn(usize) -> (usize, u64, f64, u32) + Sync;

#[test]
fn ranks_that_set_up_different_fits_all_learn_of_it() {
    // In two groups of a rank each, and as two ranks of one group, where the vectors are whole on
    // both.
    let run = |groups: usize, differ: &Differ| {
        let said = run_threads(2, |comm| {
            let mut problem = matrix_problem();
            let (pairs, seed, datum, iterations) = differ(comm.rank());
            problem.data[3] += datum;
            let (groups, _) = SampleGroups::split(&comm, groups)?;
            let options = move |_| IterationOptions { pairs, ..IterationOptions::default() };
            let options = FitOptions::new(iterations).each(options).seed(seed);
            let fit = Fit::new(&mut Host::default(), &problem, &groups, &vec![0.1; 6], &options);
            Ok::<_, InferenceError>(match fit {
                Err(InferenceError::Comm(error @ CommError::Differ { .. })) => error.to_string(),
                other => format!("{other:?}"),
            })
        });
        said.unwrap()
    };
    let cases: [(&Differ, &str); 3] = [
        (
            &|rank| (2 + rank, 1, 0.0, 2),
            "`pairs (n_samples) of iteration 0` differs between ranks: rank 0 has 2, rank 1 has 3;",
        ),
        (&|rank| (2, rank as u64, 0.0, 2), "`seed` differs between ranks: rank 0 has 0, rank 1 has 1;"),
        (&|rank| (2, 1, 0.0, 2 + rank as u32), "`iterations` differs between ranks: rank 0 has 2, rank 1 has 3;"),
    ];
    for (differ, what) in cases {
        for groups in [1, 2] {
            for said in run(groups, differ) {
                assert!(said.starts_with("fit: ") && said.contains(what), "{groups}: {said}");
            }
        }
    }
    // A difference of 10^-6 of one datum's noise, too.
    for said in run(2, &|rank| (2, 1, 1e-6 * rank as f64, 2)) {
        assert!(said.starts_with("fit: `data` differs between ranks: rank 0 has \"fingerprint"), "{said}");
    }
    assert!(run(2, &|_| (2, 1, 0.0, 2)).iter().all(|said| said.starts_with("Ok(Fit")));
}

/// `ln det` of a symmetric positive matrix, and `b.A^-1 b`.
fn determinant_and_form(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> [f64; 2] {
    let (mut log, mut form) = (0.0, 0.0);
    for k in 0..b.len() {
        log += a[k][k].ln();
        form += b[k] * b[k] / a[k][k];
        for i in k + 1..b.len() {
            let factor = a[i][k] / a[k][k];
            b[i] -= factor * b[k];
            for j in k..b.len() {
                a[i][j] -= factor * a[k][j];
            }
        }
    }
    [log, form]
}

#[test]
fn the_evidence_of_a_linear_problem_is_known() {
    let (problem, golden) = wiener_problem();
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let rules = CgOptions { maxiter: Some(1000), ..CgOptions::resnorm(1e-11) };
    let start = vec![0.0; 64];
    // Data have the covariance R R^T + noise; the energy leaves out the noise's own determinant and
    // powers of 2 pi.
    let variance = golden["noise_variance"].as_f64().unwrap();
    let rows: Vec<Vec<f64>> = {
        let columns = (0..64).map(|i| problem.value(&(0..64).map(|j| f64::from(u8::from(i == j))).collect::<Vec<_>>()));
        let columns: Vec<Vec<f64>> = columns.collect();
        (0..35).map(|cell| columns.iter().map(|column| column[cell] / variance.sqrt()).collect()).collect()
    };
    let one = |i: usize, j: usize| dot(&rows[i], &rows[j]) + f64::from(u8::from(i == j));
    let covariance = (0..35).map(|i| (0..35).map(|j| one(i, j)).collect()).collect();
    let data = problem.data.iter().map(|d| d / variance.sqrt()).collect();
    let [log, form] = determinant_and_form(covariance, data);

    let excitations = Excitations::Seed(3);
    let samples = wiener_filter(&mut host, &problem, &groups, &start, (200, &excitations), &rules).unwrap().samples;
    let all = EvidenceOptions::default();
    let found = evidence(&mut host, &problem, &groups, &samples, &all).unwrap();
    assert!(found.log_determinant.iter().all(|bound| (bound - log).abs() < 1e-6), "{found:?} {log}");
    // The mean of H is known to its standard error; at the mean it is H + n / 2 exactly.
    assert!((found.lower + (form + log) / 2.0).abs() < 4.0 * found.error, "{found:?}, {}", -(form + log) / 2.0);
    // Without samples it is Laplace's approximation, which is exact here.
    let place = Samples::none(samples.position.clone());
    let exact = evidence(&mut host, &problem, &groups, &place, &all).unwrap();
    let wanted = -(form + log) / 2.0;
    assert!((exact.lower - wanted).abs() < 1e-6 && (exact.upper - wanted).abs() < 1e-6, "{exact:?}");
    assert!(exact.error == 0.0 && exact.doubt().is_none());
    // Few directions and steps leave bounds on both sides, and an error of chance.
    for (directions, steps) in [(0, 3), (0, 30), (3, 2), (10, 1), (10, 20), (34, 1)] {
        let few = EvidenceOptions { directions, steps, ..all };
        let found = evidence(&mut host, &problem, &groups, &place, &few).unwrap();
        assert!(found.lower - 3.0 * found.error <= wanted + 1e-9, "{few:?}: {found:?} {wanted}");
        assert!(found.upper + 3.0 * found.error >= wanted - 1e-9, "{few:?}: {found:?} {wanted}");
        let apart = found.upper - found.lower;
        assert!(apart >= 0.0 && (steps < 20 || apart < 0.1), "{few:?}: {found:?}");
    }
}

/// Random matrices whose determinants are known: the error is that of the estimate, and quadrature
/// is on the right sides.
#[test]
fn bounds_of_determinants_hold_within_their_error() {
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let (n, problems) = (40, 60);
    let mut squares = 0.0;
    for number in 0..problems as u64 {
        // Curvatures over six decades, in all directions.
        let scale = |j: usize| 10_f64.powf(3.0 * j as f64 / n as f64);
        let noise = white(n * n, 100 + number);
        let rows: Vec<Vec<f64>> =
            noise.chunks(n).map(|row| (0..n).map(|j| row[j] * scale(j) / 6.0).collect()).collect();
        let one =
            |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>() + f64::from(u8::from(i == j));
        let metric = (0..n).map(|i| (0..n).map(|j| one(i, j)).collect()).collect();
        let [log, _] = determinant_and_form(metric, vec![0.0; n]);
        let forward = Box::new(linear(rows.clone()));
        let problem = Problem { noise: Noise::Gaussian { std: 1.0 }, data: vec![0.0; n], latent: n, forward };
        let options = EvidenceOptions { directions: number % 3 * 5, probes: 8, steps: 200, seed: number };
        let found = evidence(&mut host, &problem, &groups, &Samples::none(vec![0.0; n]), &options).unwrap();
        let [low, high] = found.log_determinant;
        assert!(low <= high && high - low < 0.1, "{number}: {found:?}");
        // The error is that of the evidence, which has half of the logarithm.
        let deviation = ((low + high) / 2.0 - log) / (2.0 * found.error);
        squares += deviation * deviation;
    }
    // Eight random vectors tell a standard error with 7 degrees of freedom: squares of such a
    // deviation have the mean 7 / 5 and the standard deviation 2.8, and their mean over the
    // problems is within three of its own.
    let mean = squares / problems as f64;
    assert!((mean - 1.4).abs() < 3.0 * 2.8 / (problems as f64).sqrt(), "{mean}");
}

#[test]
fn the_error_of_the_evidence_is_its_scatter_over_seeds() {
    let (problem, _) = wiener_problem();
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let rules = CgOptions { maxiter: Some(1000), ..CgOptions::resnorm(1e-9) };
    let mut of = |pairs: usize, seed: u64| {
        let seed = Excitations::Seed(seed);
        let found = wiener_filter(&mut host, &problem, &groups, &vec![0.0; 64], (pairs, &seed), &rules).unwrap();
        evidence(&mut host, &problem, &groups, &found.samples, &EvidenceOptions::default()).unwrap()
    };
    let found: Vec<_> = (0..200).map(|seed| of(8, seed)).collect();
    let mean = found.iter().map(|one| one.lower).sum::<f64>() / 200.0;
    let scatter = found.iter().map(|one| (one.lower - mean).powi(2)).sum::<f64>() / 199.0;
    let told = found.iter().map(|one| one.error.powi(2)).sum::<f64>() / 200.0;
    // A variance from 200 numbers is right to 10 %, and that of the other side to 4 %.
    assert!((told / scatter - 1.0).abs() < 0.35, "{told} {scatter}");
    // Of 64 latent values each pair has an energy of variance 64 / 2.
    assert!((told / (32.0 / 8.0) - 1.0).abs() < 0.2, "{told}");
    assert_eq!(of(1, 0).error, f64::INFINITY);
}

#[test]
fn curvatures_that_several_directions_have_all_count_for_the_evidence() {
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let place = Samples::none(vec![0.0; 6]);
    // Data say nothing of a weight of 0. A small curvature between equal large ones does not show
    // that none is left.
    for weights in [[3.0; 6], [3.0, 3.0, 0.0, 2.0, 2.0, 2.0], [3.0, 3.0, 3.0, 1e-4, 1e-4, 0.0], [0.0; 6]] {
        let row = |i: usize| (0..6).map(|j| if i == j { weights[i] } else { 0.0 }).collect();
        let forward = Box::new(linear((0..6).map(row).collect()));
        let problem = Problem { noise: Noise::Gaussian { std: 1.0 }, data: vec![0.0; 6], latent: 6, forward };
        let log: f64 = weights.iter().map(|weight| (weight * weight).ln_1p()).sum();
        let found = evidence(&mut host, &problem, &groups, &place, &EvidenceOptions::default()).unwrap();
        assert!(found.log_determinant.iter().all(|bound| (bound - log).abs() < 1e-6), "{weights:?}: {found:?}, {log}");
        assert!((found.lower + log / 2.0).abs() < 1e-6 && found.error == 0.0, "{weights:?}: {found:?}");
    }
}

/// Returns the matrix Wiener problem of the page: 4 data of 3 latent values.
fn small_wiener_problem() -> Problem {
    let rows = white(12, 1).chunks(3).map(<[f64]>::to_vec).collect();
    Problem { noise: Noise::Gaussian { std: 0.5 }, data: white(4, 2), latent: 3, forward: Box::new(linear(rows)) }
}

#[test]
fn samples_have_the_analytic_covariance() {
    const PAIRS: u32 = 4096;
    let (problem, mut host) = (small_wiener_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let rules = CgOptions::resnorm(1e-12);
    let start = vec![0.0; 3];
    let one = wiener_filter(&mut host, &problem, &groups, &start, (1, &given(0, 3)), &rules).unwrap().samples;
    assert!(apart(&one.position, &[0.4897747937, -0.0663342657, -0.3057771876]) < 1e-9);
    assert!(apart(one.residual(0).unwrap(), &[0.6059006143, 0.3960062719, -0.5915585819]) < 1e-9);
    let expansion = Expansion::new(&mut host, &problem, &start, &[]).unwrap();
    let mut sums = [[0.0; 3]; 3];
    for sample in 0..PAIRS {
        let r = expansion.linear(&mut host, &Excitations::Seed(17), [0, sample], &rules).unwrap().x;
        sums.iter_mut()
            .enumerate()
            .for_each(|(i, row)| row.iter_mut().enumerate().for_each(|(j, sum)| *sum += r[i] * r[j]));
    }
    let (diagonal, off) = ([0.1097981175, 0.0616514262, 0.1476489032], [0.00236714, -0.0322862615, -0.0413226954]);
    let wanted = |i: usize, j: usize| -> f64 { if i == j { diagonal[i] } else { off[i + j - 1] } };
    for i in 0..3 {
        for j in 0..3 {
            // The variance of a product of two normal numbers is C_ii C_jj + C_ij^2.
            let error = ((wanted(i, i) * wanted(j, j) + wanted(i, j).powi(2)) / f64::from(PAIRS)).sqrt();
            let found = sums[i][j] / f64::from(PAIRS);
            assert!((found - wanted(i, j)).abs() < 4.5 * error, "{i} {j}: {found}, {}", wanted(i, j));
        }
    }
}

#[test]
fn a_temperature_is_noise_that_is_larger() {
    let groups = SampleGroups::one(&Communicator::solo());
    let fit = |std: f64, temperature: f64, sampling: Sampling| {
        let mut problem = small_wiener_problem();
        problem.noise = Noise::Gaussian { std };
        let options = move |_| IterationOptions {
            sampling,
            temperature,
            linear: CgOptions::resnorm(1e-12),
            position: NewtonOptions { cg: Some(CgOptions::resnorm(1e-12)), ..NewtonOptions::default() },
            ..IterationOptions::default()
        };
        let (host, options) = (&mut Host::default(), FitOptions::new(2).each(options));
        let fit = Fit::new(host, &problem, &groups, &vec![0.1; 3], &options).unwrap().run(host).unwrap();
        let (history, samples) = (fit.history().to_vec(), fit.into_samples());
        let residuals: Vec<f64> = samples.own().flat_map(|s| samples.residual(s).unwrap().clone()).collect();
        ([samples.position, residuals, vec![history[1].energy]].concat(), history[1].chi_squared[0].unwrap())
    };
    for sampling in [Sampling::Linear(Draw::New), Sampling::Curved(Draw::New)] {
        let [(hot, of_hot), (noisy, of_noisy)] = [fit(0.5, 4.0, sampling), fit(1.0, 1.0, sampling)];
        assert!(apart(&hot, &noisy) < 1e-9, "{sampling:?}: {hot:?}, {noisy:?}");
        // It is reported for the data's own noise.
        assert!((of_hot / of_noisy - 4.0).abs() < 1e-9, "{of_hot}, {of_noisy}");
    }
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    // 200 truths of the prior, each with counts of its own: how often are true rates within 1 and 2
    // standard deviations of the mean?
    let (mut host, groups) = (Host::default(), SampleGroups::one(&Communicator::solo()));
    let (mut within, mut all) = ([0u32; 2], 0u32);
    for case in 0..200 {
        let mut problem = matrix_problem();
        let truth = white(6, 10_000 + case);
        problem.data =
            problem.value(&truth).iter().zip(0..).map(|(&rate, i)| poisson(rate, uniform(i, 20_000 + case))).collect();
        let options = |iteration| IterationOptions {
            pairs: if iteration < 2 { 2 } else { 20 },
            sampling: if iteration < 2 { Sampling::Linear(Draw::New) } else { Sampling::Curved(Draw::New) },
            position: NewtonOptions::default().steps(10),
            curve: NewtonOptions::default().steps(10),
            ..IterationOptions::default()
        };
        let options = FitOptions::new(3).each(options).seed(case);
        let fit = Fit::new(&mut host, &problem, &groups, &vec![0.0; 6], &options).unwrap();
        let samples = fit.run(&mut host).unwrap().into_samples();
        let mut latent = |_: &mut Host, x: &Vec<f64>| Ok(x.clone());
        let (mean, std) = samples.mean_and_std(&mut host, &groups, &truth, &mut latent).unwrap();
        for ((mean, std), truth) in mean.iter().zip(&std).zip(&truth) {
            all += 1;
            within
                .iter_mut()
                .zip([1.0, 2.0])
                .for_each(|(within, widths)| *within += u32::from((mean - truth).abs() < widths * std));
        }
    }
    for (within, wanted) in within.into_iter().zip([0.6827, 0.9545_f64]) {
        // Three standard errors of the count, and .01 by which posteriors are not normal and 40
        // samples do not give their width.
        let (found, error) = (f64::from(within) / f64::from(all), (wanted * (1.0 - wanted) / f64::from(all)).sqrt());
        assert!((found - wanted).abs() < 3.0 * error + 0.01, "{found}, {wanted}");
    }
}

fn uniform(i: u64, seed: u64) -> f64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (((z ^ (z >> 31)) >> 11) as f64 + 0.5) * (-53f64).exp2()
}

/// Returns the count below which a Poisson distribution has a part `u`.
fn poisson(rate: f64, u: f64) -> f64 {
    let (mut count, mut term) = (0.0, (-rate).exp());
    let mut below = term;
    while below < u && count < 1e4 {
        count += 1.0;
        term *= rate / count;
        below += term;
    }
    count
}

#[test]
fn a_sample_does_not_depend_on_how_many_there_are() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let residuals = |host: &mut Host, pairs: usize| {
        let options = move |_| IterationOptions {
            pairs,
            position: NewtonOptions::default().steps(0),
            ..IterationOptions::default()
        };
        let options = FitOptions::new(1).each(options);
        let fit = Fit::new(host, &problem, &groups, &vec![0.1; 6], &options).unwrap().run(host).unwrap();
        fit.samples().own().map(|s| fit.samples().residual(s).unwrap().clone()).collect::<Vec<_>>()
    };
    let (few, many) = (residuals(&mut host, 2), residuals(&mut host, 5));
    assert_eq!(few[..], many[..4]);
    assert_eq!(many.len(), 10);
    for pair in many.chunks(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(plus, minus)| *plus == -minus));
    }
    assert_ne!(many[0], many[2]);
}

#[test]
fn what_is_kept_does_not_change_a_bit() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let options = |_| IterationOptions { position: NewtonOptions::default().steps(0), ..IterationOptions::default() };
    let options = FitOptions::new(1).each(options);
    let fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options).unwrap();
    let samples = fit.run(&mut host).unwrap().into_samples();
    let mut of = |kept: usize| {
        let kl = Kl {
            likelihood: &problem,
            samples: &samples,
            groups: &groups,
            constants: &[],
            kept,
            concurrency: 3,
            preconditioner: None,
            curvature: Curvature::default(),
        };
        let found = newton_cg(&mut host, &kl, vec![0.1; 6], &NewtonOptions::default(), &mut |_| {}).unwrap();
        (found.x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>(), found.value.to_bits(), found.applications)
    };
    let all = of(usize::MAX);
    assert!(all.2 > 0);
    for kept in 0..=samples.count() {
        assert_eq!(of(kept), all, "{kept}");
    }
}

/// Returns what all iterations of a fit have given, as bits.
fn bits(fit: &Fit<Host, &Problem>) -> (Vec<u64>, Vec<u64>) {
    let position = fit.samples().position.iter().map(|x| x.to_bits()).collect();
    (position, fit.history().iter().map(|report| report.energy.to_bits()).collect())
}

/// Different numbers of samples, modes, point estimates: all that an iteration can differ in.
fn varied(iteration: u32) -> IterationOptions {
    let modes = [
        Sampling::Linear(Draw::New),
        Sampling::Curved(Draw::New),
        Sampling::Update,
        Sampling::Linear(Draw::Again),
        Sampling::Curved(Draw::Again),
    ];
    IterationOptions {
        pairs: [1, 4, 4, 3, 3, 0][iteration as usize % 6],
        sampling: modes[iteration as usize % 5],
        position: NewtonOptions::default().steps(3),
        curve: NewtonOptions::default().steps(3),
        ..IterationOptions::default()
    }
}

#[test]
fn fits_have_the_same_bits_for_every_number_of_groups() {
    let run = |groups: usize| {
        let ranks = run_threads(groups, |comm| {
            let (problem, mut host) = (matrix_problem(), Host::default());
            let (groups, own) = SampleGroups::split(&comm, groups)?;
            assert_eq!(own.size(), 1);
            let options = FitOptions::new(6).each(varied);
            let fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options)?.run(&mut host)?;
            let mut rate = |_: &mut Host, x: &Vec<f64>| Ok(problem.value(x));
            let (_, std) = fit.samples().mean_and_std(&mut host, &groups, &vec![0.0; 10], &mut rate)?;
            Ok::<_, InferenceError>((bits(&fit), std.iter().map(|x| x.to_bits()).collect::<Vec<u64>>()))
        });
        ranks.unwrap_or_else(|error| panic!("{groups} groups: {error}"))
    };
    let one = run(1).remove(0);
    for groups in [2, 3, 4, 5, 8] {
        for (rank, found) in run(groups).into_iter().enumerate() {
            assert_eq!(found, one, "{groups} groups, rank {rank}");
        }
    }
}

/// A directory for one test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("meshloom-inference-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn resumed_fits_have_the_bits_of_uninterrupted_ones() {
    let run = |groups: usize, iterations: u32, directory: Option<&std::path::Path>| {
        let ranks = run_threads(groups, |comm| {
            let (problem, mut host) = (matrix_problem(), Host::default());
            let (groups, _) = SampleGroups::split(&comm, groups)?;
            let mut options = FitOptions::new(iterations).each(varied);
            if let Some(directory) = directory {
                options = options.state(directory, Existing::Resume);
            }
            let fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options)?;
            Ok::<_, InferenceError>(bits(&fit.run(&mut host)?))
        });
        ranks.unwrap().remove(0)
    };
    let whole = run(1, 6, None);
    for stop in 1..6 {
        let scratch = Scratch::new(&format!("resume-{stop}"));
        // As often as one likes, on other numbers of groups.
        run(1, stop, Some(&scratch.0));
        run(4, (stop + 1).min(6), Some(&scratch.0));
        assert_eq!(run(2, 6, Some(&scratch.0)), whole, "stopped after {stop}");
        assert_eq!(run(1, 6, Some(&scratch.0)), whole);
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    }
    // And in one process, one iteration after the other.
    let (problem, groups) = (matrix_problem(), SampleGroups::one(&Communicator::solo()));
    let (mut host, options) = (Host::default(), |iterations| FitOptions::new(iterations).each(varied));
    let mut fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options(1)).unwrap();
    for iterations in 1..=6 {
        fit.set(|own| *own = options(iterations));
        assert_eq!(fit.step(&mut host).unwrap().unwrap().iteration, iterations - 1);
        assert!(fit.step(&mut host).unwrap().is_none() && fit.end() == Some(FitEnd::Done));
    }
    assert_eq!(bits(&fit), whole);
}

#[test]
fn a_fit_that_is_saved_is_not_lost_unasked() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let scratch = Scratch::new("kept");
    let mut fit = |iterations, existing| {
        let options = FitOptions::new(iterations).each(varied).state(&scratch.0, existing);
        Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options)?.run(&mut host)
    };
    let first = fit(3, Existing::Refuse).unwrap();
    let state = std::fs::read(scratch.0.join("state.npz")).unwrap();
    let error = fit(1, Existing::Refuse).unwrap_err().to_string();
    assert!(["state.npz", "`resume=True`", "`overwrite=True`"].iter().all(|what| error.contains(what)), "{error}");
    // Nothing is left to do, and the fit says so.
    let again = fit(3, Existing::Resume).unwrap();
    assert_eq!((first.end(), again.end()), (Some(FitEnd::Done), Some(FitEnd::AlreadyDone)));
    assert_eq!(bits(&again), bits(&first));
    assert!(std::fs::read(scratch.0.join("state.npz")).unwrap() == state);
    let replaced = fit(1, Existing::Overwrite).unwrap();
    assert_eq!((replaced.history().len(), replaced.end()), (1, Some(FitEnd::Done)));
    assert!(std::fs::read(scratch.0.join("state.npz")).unwrap() != state);
}

/// Starts of two groups that have the same length, or that differ in one small number.
#[test]
fn groups_start_at_one_place() {
    let run = |differ: fn(&mut Vec<f64>)| {
        run_threads(2, |comm| {
            let (problem, mut start) = (matrix_problem(), vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
            let (groups, _) = SampleGroups::split(&comm, 2)?;
            if comm.rank() == 1 {
                differ(&mut start);
            }
            let found = Fit::new(&mut Host::default(), &problem, &groups, &start, &FitOptions::new(1));
            Ok::<_, InferenceError>(found.err().map(|error| error.to_string()))
        })
        .unwrap()
    };
    let differ: [fn(&mut Vec<f64>); 2] = [|start| start.swap(0, 5), |start| start[2] += 1e-4];
    for said in differ.into_iter().flat_map(run) {
        assert!(said.unwrap().contains("`start, times random numbers` differs between ranks"));
    }
    assert_eq!(run(|start| start[2] *= 1.0 + 1e-8), [None, None]);
}

#[test]
fn a_killed_fit_goes_on_to_the_same_bits() {
    const DIRECTORY: &str = "MESHLOOM_TEST_FIT_TO_BE_KILLED";
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let options = FitOptions::new(6).each(varied);
    if let Ok(directory) = std::env::var(DIRECTORY) {
        // In the middle of the fourth iteration.
        let die = |progress: &Progress| {
            if matches!(progress, Progress::Sample { iteration: 3, sample: 2, .. }) {
                let pid = std::process::id().to_string();
                std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
        };
        let options = options.state(directory, Existing::Resume);
        let mut fit = Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], &options).unwrap();
        while let Ok(Some(_)) = fit.step_with(&mut host, &mut |progress| die(progress)) {}
        return;
    }
    let scratch = Scratch::new("killed");
    // In the program of all tests of devices this file is a module of another.
    let module = module_path!().split_once("::").map_or(String::new(), |(_, module)| format!("{module}::"));
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}a_killed_fit_goes_on_to_the_same_bits")])
        .env(DIRECTORY, &scratch.0)
        .output()
        .unwrap();
    assert!(!child.status.success(), "it was not killed: {}", String::from_utf8_lossy(&child.stdout));
    let state = std::fs::metadata(scratch.0.join("state.npz")).unwrap();
    assert!(state.len() > 0);
    let mut run = |options: &FitOptions| {
        Fit::new(&mut host, &problem, &groups, &vec![0.1; 6], options).unwrap().run(&mut host).unwrap()
    };
    let on = run(&options.clone().state(&scratch.0, Existing::Resume));
    let whole = run(&options);
    assert_eq!(bits(&on), bits(&whole));
    assert_eq!(on.history().len(), 6);
}

#[test]
fn a_broken_state_is_an_error_and_stays() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let scratch = Scratch::new("broken");
    let mut run = |seed: u64, problem: &Problem, start: usize| {
        let options = FitOptions::new(2).seed(seed).state(&scratch.0, Existing::Resume);
        Fit::new(&mut host, problem, &groups, &vec![0.1; start], &options)?.run(&mut host).map(drop)
    };
    let of_state = |found: Result<(), InferenceError>, text: &str| match found {
        Err(error @ InferenceError::State { .. }) => {
            assert!(error.to_string().contains(text) && error.to_string().contains("state.npz"), "{error}");
        }
        other => panic!("{text}: {other:?}"),
    };
    run(1, &problem, 6).unwrap();
    of_state(run(2, &problem, 6), "seed 1");
    let other = Problem { data: vec![1.0; 4], ..small_wiener_problem() };
    of_state(run(1, &other, 3), "kind of likelihood");
    // As many data of the same noise, but others; and another model of the same data.
    let mut data = problem.data.clone();
    data[3] += 1e-6;
    of_state(run(1, &Problem { data, ..matrix_problem() }, 6), "data differ");
    let twice = |x: &[_]| (matrix_problem().forward)(x).iter().map(|y| y * 1.5).collect();
    of_state(run(1, &Problem { forward: Box::new(twice), ..matrix_problem() }, 6), "model or its priors differ");
    let file = scratch.0.join("state.npz");
    let bytes = std::fs::read(&file).unwrap();
    // The last byte of the last array, before the archive's directory.
    let last = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap() - 1;
    for (broken, text) in [
        (bytes[..bytes.len() / 2].to_vec(), "start again"),
        (b"no state".to_vec(), "start again"),
        (Vec::new(), "start again"),
        (bytes.iter().enumerate().map(|(i, &b)| if i == last { !b } else { b }).collect(), "start again"),
    ] {
        std::fs::write(&file, &broken).unwrap();
        of_state(run(1, &problem, 6), text);
        assert_eq!(std::fs::read(&file).unwrap(), broken);
    }
    std::fs::write(&file, &bytes).unwrap();
    run(1, &problem, 6).unwrap();
}

#[test]
fn a_fit_ends_when_it_is_told_and_tells_what_it_does() {
    let (problem, mut host) = (matrix_problem(), Host::default());
    let groups = SampleGroups::one(&Communicator::solo());
    let (mut lines, mut drawn, mut steps) = (Vec::new(), 0, 0);
    let options = FitOptions::new(10).each(|_| IterationOptions::default());
    let mut fit = Fit::new(&mut host, &problem, &groups, &vec![0.0; 6], &options).unwrap();
    let mut progress = |progress: &Progress| match progress {
        Progress::Sample { of, .. } => {
            assert_eq!(*of, 4);
            drawn += 1;
        }
        Progress::Step { .. } => steps += 1,
    };
    while lines.len() < 3 {
        lines.push(fit.step_with(&mut host, &mut progress).unwrap().unwrap().to_string());
        assert_eq!(fit.samples().count(), 4);
    }
    assert_eq!((fit.end(), fit.history().len(), drawn), (None, 3, 12));
    assert_eq!(steps, fit.history().iter().map(|report| report.steps).sum::<u64>());
    assert!(lines[2].starts_with("iteration 2: energy ") && lines[2].contains("chi2/dof data "), "{lines:?}");
    let mut options = FitOptions::new(10);
    options.time = Some(std::time::Duration::ZERO);
    let fit = Fit::new(&mut host, &problem, &groups, &vec![0.0; 6], &options).unwrap().run(&mut host).unwrap();
    assert_eq!((fit.end(), fit.history().len()), (Some(FitEnd::Time), 0));
}

#[test]
fn wrong_options_are_errors_before_anything_is_done() {
    let problem = matrix_problem();
    let try_with = |options: IterationOptions, start: Vec<f64>| {
        let mut host = Host::new([("a", 2), ("b/c", 1), ("b/d", 3)]);
        let groups = SampleGroups::one(&Communicator::solo());
        let options = FitOptions::new(1).each(move |_| options.clone());
        Fit::new(&mut host, &problem, &groups, &start, &options)?.run(&mut host).map(Fit::into_samples)
    };
    let start = vec![0.2; 6];
    let unknown = IterationOptions { constants: vec!["c".into()], ..IterationOptions::default() };
    assert!(try_with(unknown, start.clone()).unwrap_err().to_string().contains("no part `c`"));
    let negative = IterationOptions { linear: CgOptions::absdelta(-1.0), ..IterationOptions::default() };
    assert!(matches!(try_with(negative, start.clone()), Err(InferenceError::Options { .. })));
    let infinite = try_with(IterationOptions::default(), vec![f64::INFINITY; 6]);
    assert!(matches!(infinite, Err(InferenceError::NotFinite { .. })), "{infinite:?}");
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let cold = IterationOptions { temperature, ..IterationOptions::default() };
        assert!(matches!(try_with(cold, start.clone()), Err(InferenceError::Options { .. })));
    }
    // Rates that overflow.
    let far = try_with(IterationOptions { pairs: 0, ..IterationOptions::default() }, vec![1e4; 6]);
    assert!(matches!(far, Err(InferenceError::NotFinite { .. })), "{far:?}");
    // A branch is all of its parts.
    let branch = IterationOptions {
        point_estimates: vec!["b".into()],
        constants: vec!["a".into()],
        ..IterationOptions::default()
    };
    let samples = try_with(branch, start).unwrap();
    assert_eq!(samples.position[..2], [0.2; 2]);
    assert_eq!(samples.residual(0).unwrap()[2..], [0.0; 4]);
    let groups = |groups: usize, ranks: usize| {
        run_threads(ranks, |comm| {
            let (groups, _) = SampleGroups::split(&comm, groups)?;
            let host = &mut Host::default();
            let fit = Fit::new(host, &problem, &groups, &vec![0.2; 6], &FitOptions::new(1))?.run(host)?;
            Ok::<_, InferenceError>(fit.samples().count())
        })
    };
    assert_eq!(groups(4, 4).unwrap(), [4; 4]);
    assert!(groups(5, 5).unwrap_err().to_string().contains("1 of them have nothing to do"));
    assert!(groups(2, 3).unwrap_err().to_string().contains("divides the ranks"));
}

/// A part that becomes a point estimate is known from then on: an update must not begin where the
/// part was displaced.
#[test]
fn an_update_leaves_new_point_estimates_where_they_are() {
    let problem = matrix_problem();
    let groups = SampleGroups::one(&Communicator::solo());
    let host = || Host::new([("a", 2), ("b", 4)]);
    let options = |sampling, names: &[&str]| IterationOptions {
        pairs: 2,
        sampling,
        // Newton's method is stopped on its way, so that its beginning matters.
        curve: NewtonOptions::default().steps(1),
        position: NewtonOptions::default().steps(0),
        point_estimates: names.iter().map(|name| (*name).to_string()).collect(),
        ..IterationOptions::default()
    };
    let both = FitOptions::new(2).each(|iteration| match iteration {
        0 => options(Sampling::Curved(Draw::New), &[]),
        _ => options(Sampling::Update, &["b"]),
    });
    let drawn = |space: &mut Host| {
        let mut fit = Fit::new(space, &problem, &groups, &vec![0.2; 6], &both).unwrap();
        fit.step(space).unwrap().unwrap();
        fit
    };
    let mut space = host();
    let found = drawn(&mut space).run(&mut space).unwrap();
    // The same with the part cleared by hand.
    let mut fit = drawn(&mut space);
    let residuals = (0..4).map(|sample| {
        let mut residual = fit.samples().residual(sample).unwrap().clone();
        assert!(residual[2..].iter().any(|&x| x != 0.0));
        residual[2..].fill(0.0);
        residual
    });
    let samples = Samples::new(fit.samples().position.clone(), &groups, 4, residuals.collect()).unwrap();
    *fit.samples_mut() = samples;
    let wanted = fit.run(&mut space).unwrap();
    for sample in 0..4 {
        assert_eq!(found.samples().residual(sample), wanted.samples().residual(sample), "{sample}");
    }
}
