//! Samples and fits of fields on the device, in f32, against those of NIFTy.re in f64 with the same
//! noise.

use std::rc::Rc;

use super::events::Events;
use super::shared::{field, flat, golden, grid, numbers, pair, ranks, ranks_with};
use meshloom::comm::Communicator;
use meshloom::gpu::{Options, Profile};
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CgOptions, CorrelatedField, Curvature, Data, Draw, Elementwise, Excitation, Excitations,
    Excited, Expansion, FieldPrior, Fit, FitOptions, Footprint, InferenceError, IterationOptions, Kl, Likelihood,
    LogLikelihood, NewtonOptions, NoiseLevel, Objective, Preconditioning, PriorSpectrum, Reduction, SampleGroups,
    Samples, Sampling, Stream, VectorSpace, conjugate_gradient, newton_cg,
};
use meshloom::mesh::{PointsInCells, Window};
use meshloom::operators::{Leaf, Linear, Model, PointwiseOperator, Readout, Select, Space, Vector};
use meshloom::{Mesh, Rank};
use serde_json::Value;

const PROBLEMS: [&str; 3] = ["poisson_16", "gaussian_16", "student_16"];

/// Tolerance of f32, relative to the greatest number: some 100 roundings, which the metric's
/// condition of some 100 amplifies.
const BOUND: f64 = 1e-3;

/// Returns the rate of the page's problems: 1.5 exp(field) at 16 cells, of which 12 have data.
fn rate(rank: &mut Rank, golden: &Value) -> Result<Model, InferenceError> {
    let mesh = grid(rank, &[16], &[golden["distances"].as_f64().unwrap()]);
    rate_on(rank, golden, &mesh)
}

/// Creates it on another grid.
fn rate_on(rank: &mut Rank, golden: &Value, mesh: &Mesh) -> Result<Model, InferenceError> {
    let amplitude = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: pair(&golden["fluctuations"]),
        slope: pair(&golden["loglogavgslope"]),
        flexibility: Some(pair(&golden["flexibility"])),
        asperity: Some(pair(&golden["asperity"])),
    };
    let prior = FieldPrior {
        name: String::new(),
        offset_mean: golden["offset_mean"].as_f64().unwrap(),
        offset_std: pair(&golden["offset_std"]),
        axes: vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }],
    };
    let model = CorrelatedField::new(rank, mesh, &prior)?.model()?;
    let text = format!("fn f(s: f32) -> f32 {{ return {:?} * exp(s); }}", golden["gain"].as_f64().unwrap());
    Ok(model.then(&Model::new(PointwiseOperator::wgsl(&text, "f", model.target(), "rate")?))?)
}

/// Numbers at the cells that have data, 0 at the others.
fn at_cells(golden: &Value, values: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0; 16];
    numbers(&golden["cells"]).iter().zip(values).for_each(|(&cell, value)| all[cell as usize] = *value);
    all
}

pub fn likelihood(rank: &mut Rank, name: &str, golden: &Value) -> Result<Likelihood, InferenceError> {
    let model = rate(rank, golden)?;
    let leaf = Leaf::cells(&grid(rank, &[16], &[golden["distances"].as_f64().unwrap()]));
    let values = at_cells(golden, &numbers(&golden["data"]));
    let mask: Vec<bool> = at_cells(golden, &[1.0; 12]).iter().map(|&one| one == 1.0).collect();
    let data = Data { name: "data", leaf: &leaf, values: &values, mask: Some(&mask) };
    let sigma = vec![0.3; 16];
    let likelihood = match name {
        "poisson_16" => Likelihood::poisson(rank, &data, None)?,
        "gaussian_16" => Likelihood::gaussian(rank, &data, NoiseLevel::Each(&sigma))?,
        _ => Likelihood::student_t(rank, &data, NoiseLevel::Each(&sigma), 3.0)?,
    };
    likelihood.amend(&model)
}

/// Excitations from lists of numbers: data at the cells that have some, and latent values.
fn excitations(golden: &Value, list: impl Fn(Excitation) -> Vec<f64> + 'static) -> Excitations<Rank> {
    let golden = golden.clone();
    Excitations::Given(Rc::new(move |rank: &mut Rank, excitation: Excitation, out: &mut Vector| {
        let values = list(excitation);
        let values = if excitation.what == Excited::Data { at_cells(&golden, &values) } else { values };
        *out = field(rank, &out.space().clone(), &values)?;
        Ok(())
    }))
}

fn host(rank: &mut Rank, field: &Vector) -> Result<Vec<f64>, InferenceError> {
    Ok(flat(rank, field)?.into_iter().map(|(_, value)| value).collect())
}

fn close(what: &str, found: &[f64], wanted: &[f64]) {
    within(BOUND, what, found, wanted);
}

/// Compares with golden values.
fn within(bound: f64, what: &str, found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
    let apart = found.iter().zip(wanted).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / scale;
    assert!(apart < bound, "{what}: {apart}");
}

/// Distance of a minimum from another where values of some 20 to 70 are known to 10^-6 of
/// themselves: the root of twice that, in directions of curvature 1. Bent samples are minima, too.
const MINIMUM: f64 = 1e-2;

#[test]
fn samples_and_energies_are_those_of_the_reference() {
    for name in PROBLEMS {
        let golden = golden("inference.json")[name].clone();
        ranks([1, 1], |rank| {
            let likelihood = likelihood(rank, name, &golden)?;
            let position = field(rank, likelihood.domain(), &numbers(&golden["pos"]))?;
            let (data, prior) = (numbers(&golden["eta_d"]), numbers(&golden["eta_p"]));
            let given =
                excitations(
                    &golden,
                    move |excitation| {
                        if excitation.what == Excited::Data { data.clone() } else { prior.clone() }
                    },
                );
            let expansion = Expansion::new(rank, &likelihood, &position, &[])?;
            let linear = expansion.linear(rank, &given, [0, 0], &CgOptions::resnorm(1e-4))?.x;
            close(&format!("{name} straight"), &host(rank, &linear)?, &numbers(&golden["mgvi_residual"]));
            let mut residuals = vec![linear.clone(), field(rank, likelihood.domain(), &[0.0; 35])?];
            rank.vector_axpby(-1.0, &linear, 0.0, &mut residuals[1])?;
            for (sign, wanted) in [(1.0, "geovi_residual_plus"), (-1.0, "geovi_residual_minus")] {
                let start = residuals[usize::from(sign < 0.0)].clone();
                let options = NewtonOptions::default();
                let found = expansion.curve(rank, &given, [0, 0], sign, &start, &options)?;
                within(MINIMUM, &format!("{name} {wanted}"), &host(rank, &found.x)?, &numbers(&golden[wanted]));
                residuals.push(field(rank, likelihood.domain(), &numbers(&golden[wanted]))?);
            }
            let groups = SampleGroups::one(&Communicator::solo());
            let samples = Samples::new(position, &groups, 4, residuals)?;
            let kl = Kl {
                likelihood: &likelihood,
                samples: &samples,
                groups: &groups,
                constants: &[],
                kept: 2,
                concurrency: 2,
                preconditioner: None,
                curvature: Curvature::default(),
            };
            let (value, at) = kl.at(rank, &samples.position)?;
            let mut out = rank.like(&samples.position)?;
            at.gradient(rank, &mut out)?;
            close(&format!("{name} gradient"), &host(rank, &out)?, &numbers(&golden["kl_gradient"]));
            let tangent = field(rank, likelihood.domain(), &numbers(&golden["tangent"]))?;
            at.metric(rank, &tangent, &mut out)?;
            close(&format!("{name} metric"), &host(rank, &out)?, &numbers(&golden["kl_metric_times_tangent"]));
            close(&format!("{name} energy"), &[value], &numbers(&golden["kl"]));
            let start = VectorSpace::copy(rank, &samples.position)?;
            let found = newton_cg(rank, &kl, start, &NewtonOptions::default(), &mut |_| {})?;
            within(MINIMUM, &format!("{name} minimum"), &host(rank, &found.x)?, &numbers(&golden["kl_minimum"]));
            close(&format!("{name} least"), &[found.value], &numbers(&golden["kl_minimum_value"]));
            Ok(())
        });
    }
}

#[test]
fn a_whole_fit_is_that_of_the_reference() {
    let golden = golden("inference.json")["poisson_16"].clone();
    ranks([1, 1], |rank| {
        let likelihood = likelihood(rank, "poisson_16", &golden)?;
        let run = &golden["run_geovi_default"];
        let (pairs, modes) = (numbers(&run["n_samples"]), run["mode"].clone());
        let options = |iteration: u32| IterationOptions {
            pairs: pairs[iteration as usize] as usize,
            sampling: match modes[iteration as usize] == "nonlinear" {
                true => Sampling::Curved(Draw::New),
                false => Sampling::Linear(Draw::New),
            },
            preconditioning: Preconditioning::Off,
            ..IterationOptions::default()
        };
        let given = excitations(&golden, |excitation| {
            let seed = 1000 + 100 * u64::from(excitation.iteration) + 2 * u64::from(excitation.sample);
            match excitation.what {
                Excited::Data => white(12, seed),
                Excited::Prior => white(35, seed + 1),
            }
        });
        let start = field(rank, likelihood.domain(), &numbers(&golden["pos"]))?;
        let groups = SampleGroups::one(&Communicator::solo());
        let options = FitOptions::new(3).each(options);
        let fit = Fit::new(rank, &likelihood, &groups, &start, &options)?.with_excitations(given).run(rank)?;
        for (report, wanted) in fit.history().iter().zip(run["history"].as_array().unwrap()) {
            close(&report.to_string(), &[report.energy], &numbers(&wanted["kl"]));
        }
        close("position", &host(rank, &fit.samples().position)?, &numbers(&run["pos"]));
        for (sample, wanted) in fit.samples().own().zip(run["residuals"].as_array().unwrap()) {
            close("residual", &host(rank, fit.samples().residual(sample).unwrap())?, &numbers(wanted));
        }
        let model = rate(rank, &golden)?;
        let like = Vector::new(&rank.gpu, model.target())?;
        let mut value = |rank: &mut Rank, x: &Vector| Ok(model.value(rank, x)?);
        let (mean, std) = fit.samples().mean_and_std(rank, &groups, &like, &mut value)?;
        let mut cells = |field: &Vector| -> Result<Vec<f64>, InferenceError> {
            let all = host(rank, field)?;
            Ok(numbers(&golden["cells"]).iter().map(|&cell| all[cell as usize]).collect())
        };
        close("mean of the rate", &cells(&mean)?, &numbers(&run["rate_mean"]));
        close("standard deviation of the rate", &cells(&std)?, &numbers(&run["rate_std"]));
        Ok(())
    });
}

/// Returns the white noise of the goldens: Box-Muller on splitmix64.
fn white(count: usize, seed: u64) -> Vec<f64> {
    let uniform = |n: u64| {
        let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((z ^ (z >> 31)) >> 11) as f64) + 0.5) * 2f64.powi(-53)
    };
    let normal = |n: u64| (-2.0 * uniform(2 * n).ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform(2 * n + 1)).cos();
    (0..count as u64).map(normal).collect()
}

#[test]
fn sums_of_fields_are_those_of_the_host() {
    for parts in [[1, 1], [2, 1]] {
        ranks(parts, |rank| {
            let mesh = grid(rank, &[6, 7, 5], &[1.0]);
            let leaves = [
                ("a", Leaf::vector(3)),
                ("b", Leaf::cells(&mesh)),
                ("c", Leaf::parameters(2)),
                ("d", Leaf::vector(5000)),
            ];
            let space = Space::new(leaves)?;
            let len = 3 + 210 + 2 + 5000;
            let [x, y]: [Vec<f64>; 2] =
                [1, 2].map(|seed| white(len, seed).into_iter().map(|x| f64::from(x as f32)).collect());
            let [fx, fy] = [&x, &y].map(|values| field(rank, &space, values));
            let (fx, fy) = (fx?, fy?);
            let found = rank.reduce(&[Reduction::Dot(&fx, &fy), Reduction::Norm1(&fx), Reduction::Dot(&fy, &fy)])?;
            let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let wanted = [product(&x, &y), x.iter().map(|x| x.abs()).sum(), product(&y, &y)];
            for (found, wanted) in found.iter().zip(wanted) {
                // Products are rounded to f32, of up to some 10.
                assert!((found - wanted).abs() < 1e-6 * len as f64, "{found} {wanted}");
            }
            assert_eq!(rank.len(&fx), len as u64);
            Ok(())
        });
    }
}

/// Noise at points is that of the point, whichever ranks there are: of readings at positions, two
/// of them one place, and of selected cells.
#[test]
fn noise_at_points_is_the_same_on_any_ranks() {
    let positions: Vec<[f64; 3]> = {
        let numbers = white(3 * 40, 91);
        let mut all: Vec<[f64; 3]> =
            numbers.chunks(3).map(|x| [0, 1, 2].map(|a| (x[a] + 10.0).rem_euclid(1.0))).collect();
        all[7] = all[3];
        all
    };
    let cells: Vec<[u64; 3]> = (0..30).map(|n| [n % 4, n / 4 % 6, n % 5]).collect();
    let mut first = None;
    for parts in [[1, 1], [3, 1], [2, 2], [1, 5]] {
        let found = ranks(parts, |rank| {
            let mesh = grid(rank, &[4, 6, 5], &[0.25, 1.0 / 6.0, 0.2]);
            let domain = Space::of("x", Leaf::cells(&mesh).batch(2))?;
            let owns = |position: &[f64; 3]| mesh.owns(PointsInCells::cell_of(*position, mesh.size(), mesh.shape()));
            let own: Vec<[f64; 3]> = positions.iter().copied().filter(owns).collect();
            let read = Readout::new(rank, &domain, Window::Cic, &own)?;
            let selected = Select::cells(rank, &domain, &cells)?;
            let mut all = Vec::new();
            let of_cells: Vec<[u64; 3]> = cells.iter().copied().filter(|cell| mesh.owns(*cell)).collect();
            let places = [own.iter().map(|x| x.map(f64::to_bits)).collect::<Vec<_>>(), of_cells];
            for (space, places) in [&read.signature().target, &selected.signature().target].into_iter().zip(places) {
                let mut noise = Vector::new(&rank.gpu, space)?;
                rank.white_noise(Stream(5), &mut noise)?;
                let values = noise.get(&mut rank.recorder, "x")?;
                assert_eq!(values.len(), 2 * places.len());
                // Both fields of the batch.
                all.extend(
                    (0..values.len()).map(|at| (places[at % places.len()], at / places.len(), values[at].to_bits())),
                );
            }
            Ok(all)
        });
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_unstable();
        assert_eq!(found.len(), 2 * 70);
        // Different points have different noise, also where they are at one place.
        let mut bits: Vec<u64> = found.iter().map(|(.., bits)| *bits).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), 140);
        let square: f64 = bits.iter().map(|&bits| f64::from_bits(bits).powi(2)).sum();
        // 140 squares of variance 2.
        assert!((square / 140.0 - 1.0).abs() < 4.0 * (2.0_f64 / 140.0).sqrt(), "{square}");
        assert_eq!(*first.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

/// A fit knows its memory before it runs and keeps within its budget.
#[test]
fn a_fit_keeps_within_its_memory() {
    let golden = golden("inference.json")["poisson_16"].clone();
    // No other test of the process has this window, so no other test allocates on this device
    // meanwhile.
    let options = Options { window_bytes: Some(2 << 20), ..meshloom_sanitizer::options().unwrap() };
    ranks_with([1, 1], &options, |rank| {
        let mesh = grid(rank, &[96, 96], &[0.01]);
        let rate = rate_on(rank, &golden, &mesh)?;
        let leaf = Leaf::cells(&mesh);
        let data = Data { name: "data", leaf: &leaf, values: &[3.0; 96 * 96], mask: None };
        let likelihood = Likelihood::poisson(rank, &data, None)?.amend(&rate)?;
        let start = Vector::zeros(&mut rank.recorder, likelihood.domain())?;
        let groups = SampleGroups::one(&Communicator::solo());
        let few = CgOptions { maxiter: Some(2), ..CgOptions::default() };
        let steps = NewtonOptions { cg: Some(few), ..NewtonOptions::default().steps(1) };
        let options = |_| IterationOptions {
            pairs: 3,
            sampling: Sampling::Curved(Draw::New),
            linear: few,
            position: steps,
            curve: steps,
            ..IterationOptions::default()
        };
        // The first one also counts what is made once and stays: uniforms of kernels.
        let first = Footprint::measure(rank, &groups, &likelihood, &start)?;
        let footprint = Footprint::measure(rank, &groups, &likelihood, &start)?;
        assert!(first.work >= footprint.work, "{first:?}, {footprint:?}");
        assert!(footprint.vector >= 4 * 96 * 96 && footprint.linearization > footprint.vector, "{footprint:?}");
        assert_eq!(Footprint::measure(rank, &groups, &likelihood, &start)?, footprint);
        let mut run = |memory: u64| -> Result<_, InferenceError> {
            rank.settle()?;
            let before = rank.allocated();
            let options = FitOptions::new(1).each(options).memory(memory);
            let fit = Fit::new(rank, &likelihood, &groups, &start, &options)?.run(rank)?;
            // Between solves and stacks of samples the pool is emptied. Otherwise it gives nothing
            // back: what is allocated now is the most there was.
            let taken = [rank.allocated(), rank.gpu.most_used()].map(|bytes| bytes - before);
            Ok((taken, fit.history()[0].energy.to_bits()))
        };
        let ([_, all], energy) = run(u64::MAX)?;
        let forecast = footprint.bytes(6, 6, 6);
        assert!(all <= forecast && 2 * all > forecast, "{all} of {forecast}, {footprint:?}");
        for kept in [0, 3] {
            let budget = footprint.bytes(6, kept, 1);
            let ([taken, _], same) = run(budget)?;
            assert!(taken <= budget && taken < all, "{kept}: {taken} of {budget}");
            assert_eq!(same, energy);
        }
        let least = footprint.bytes(6, 0, 1);
        let error = run(least - 1).unwrap_err();
        assert!(matches!(error, InferenceError::Memory { needed, samples: 6, .. } if needed == least), "{error}");
        Ok(())
    });
}

/// A model compiles its kernels ahead. A fit on stacks of samples uses those for single vectors,
/// too, and compiles one form of each transform.
#[test]
fn a_fit_compiles_no_kernel_in_two_forms() {
    let golden = golden("inference.json")["poisson_16"].clone();
    // A device of its own, on which no other test compiles kernels.
    let options = Options { kernels: 409, ..Options::from_env().unwrap() };
    ranks_with([1, 1], &options, |rank| {
        // Transforms there and back have the same kernels where axes have the same lengths.
        let mesh = grid(rank, &[24, 24], &[0.1]);
        let rate = rate_on(rank, &golden, &mesh)?;
        let leaf = Leaf::cells(&mesh);
        let data = Data { name: "data", leaf: &leaf, values: &[3.0; 24 * 24], mask: None };
        let likelihood = Likelihood::poisson(rank, &data, None)?.amend(&rate)?;
        let start = Vector::zeros(&mut rank.recorder, likelihood.domain())?;
        let groups = SampleGroups::one(&Communicator::solo());
        let options = FitOptions::new(1).each(|_| IterationOptions { pairs: 2, ..IterationOptions::default() });
        let mut report = Ok(());
        let events = Events::of(tracing::Level::DEBUG, || {
            let fit = Fit::new(rank, &likelihood, &groups, &start, &options);
            report = fit.and_then(|fit| fit.run(rank).map(drop));
        });
        report?;
        let compiled = events.iter().filter(|event| event.contains("kernel compiled"));
        let mut labels: Vec<&str> = compiled.filter_map(|event| event.split('"').nth(1)).collect();
        labels.sort_unstable();
        let ahead = ["inference::amplitude", "inference::modulate"];
        assert!(!labels.iter().any(|label| ahead.iter().any(|start| label.starts_with(start))), "{labels:?}");
        let transforms: Vec<_> = labels.iter().filter(|label| label.starts_with("fft::")).collect();
        assert!(!transforms.is_empty() && transforms.windows(2).all(|two| two[0] != two[1]), "{labels:?}");
        Ok(())
    });
}

/// `Rank` creates vectors with all leaves in one array, with padding. `Vector::new` has one array
/// for each leaf.
#[test]
fn vectors_in_one_array_are_those_of_arrays_for_each_leaf() {
    let mut bits = Vec::new();
    for parts in [[1, 1], [2, 1], [3, 1]] {
        let found = ranks(parts, |rank| {
            let mesh = grid(rank, &[5, 7, 3], &[1.0]);
            // Lengths around the padding, an empty leaf, parameters, and cells that some ranks have
            // few of.
            let short = [1, 63, 64, 65, 0, 2].map(|len| (format!("{len}"), Leaf::vector(len)));
            let long = [("c", Leaf::cells(&mesh)), ("m", Leaf::modes(&mesh).components(2)), ("z", Leaf::vector(5000))];
            let long =
                long.into_iter().chain([("p", Leaf::parameters(3))]).map(|(name, leaf)| (name.to_string(), leaf));
            let space = Space::new(long.chain(short))?;
            let len = space.total_numbers() as usize;
            let values = |seed: u64| white(len, seed).into_iter().map(|x| f64::from(x as f32)).collect::<Vec<f64>>();
            let apart = [1, 2, 3].map(|seed| field(rank, &space, &values(seed)));
            let [x, y, z] = [&apart[0], &apart[1], &apart[2]].map(|found| found.as_ref().unwrap());
            // Fill the memory of the pool with NaN, so that padding that is not cleared would show.
            for _ in 0..4 {
                let mut array = Vec::new();
                for len in [5000, 6000, 7000] {
                    let one = rank.gpu.array::<f32>("poison", len)?;
                    rank.recorder.upload(&one, 0, &vec![f32::NAN; len as usize])?;
                    array.push(one);
                }
            }
            let [mut jx, mut jy, mut jz] =
                [VectorSpace::copy(rank, x)?, VectorSpace::copy(rank, y)?, VectorSpace::copy(rank, z)?];
            rank.recorder.submit()?;
            let before = rank.recorder.counts().dispatches;
            rank.vector_axpby(0.5, &jx, -1.5, &mut jy)?;
            rank.recorder.submit()?;
            assert_eq!(rank.recorder.counts().dispatches - before, 1);
            let mut y = y.clone();
            rank.vector_axpby(0.5, x, -1.5, &mut y)?;
            VectorSpace::multiply(rank, 2.0, [&jx, &jy], 0.25, &mut jz)?;
            let mut z = z.clone();
            VectorSpace::multiply(rank, 2.0, [x, &y], 0.25, &mut z)?;
            let some = ["m", "z", "64", "1", "p"].map(String::from);
            rank.add(Some(&some), &[(0.1, &jx), (-3.0, &jy)], &mut jz)?;
            rank.add(Some(&some), &[(0.1, x), (-3.0, &y)], &mut z)?;
            VectorSpace::multiply(rank, 1.0, [&jz, &jz], 0.0, &mut jx)?;
            rank.map(Elementwise::Sqrt, &mut jx)?;
            let mut x = x.clone();
            VectorSpace::multiply(rank, 1.0, [&z, &z], 0.0, &mut x)?;
            rank.map(Elementwise::Sqrt, &mut x)?;
            for (one, other) in [(&jx, &x), (&jy, &y), (&jz, &z)] {
                for name in space.names() {
                    let [one, other] = [one.get(&mut rank.recorder, name)?, other.get(&mut rank.recorder, name)?];
                    assert_eq!(one, other, "{name}");
                }
            }
            // Many sums, whole and over some parts.
            let sums = |x, y, z| {
                let [whole, over] = [Reduction::Dot(x, y), Reduction::DotOver(&some, y, z)];
                [whole, over, Reduction::Norm1(z), Reduction::Dot(z, z), Reduction::DotOver(&some[3..4], x, z)]
            };
            rank.recorder.submit()?;
            let before = rank.recorder.counts().dispatches;
            let joined = rank.reduce(&sums(&jx, &jy, &jz))?;
            let dispatches = rank.recorder.counts().dispatches - before;
            assert_eq!(joined, rank.reduce(&sums(&x, &y, &z))?);
            let many: Vec<_> = (0..8).map(|_| Reduction::Dot(&jx, &jy)).collect();
            let before = rank.recorder.counts().dispatches;
            assert_eq!(rank.reduce(&many)?, vec![joined[0]; 8]);
            assert_eq!(rank.recorder.counts().dispatches - before, 2);
            Ok((joined, dispatches))
        });
        assert!(found.iter().all(|(sums, _)| *sums == found[0].0));
        // The whole vectors in one pass; of the parts some are neighbors.
        assert!(found[0].1 <= 12, "{}", found[0].1);
        bits.push(found[0].0.clone());
    }
    assert!(bits.iter().all(|sums| *sums == bits[0]), "{bits:?}");
}

#[test]
fn an_iteration_of_conjugate_gradients_waits_once_at_most_and_allocates_nothing() {
    let golden = golden("inference.json")["poisson_16"].clone();
    ranks([1, 1], |rank| {
        let likelihood = likelihood(rank, "poisson_16", &golden)?;
        let position = field(rank, likelihood.domain(), &numbers(&golden["pos"]))?;
        let at = likelihood.at(rank, &position)?;
        let gradient = field(rank, likelihood.domain(), &numbers(&golden["gradient"]))?;
        let (v, mut out) = (VectorSpace::copy(rank, &gradient)?, rank.like(&gradient)?);
        rank.recorder.wait()?;
        let before = rank.recorder.counts().dispatches;
        at.metric(rank, &v, &mut out)?;
        rank.recorder.wait()?;
        let of_metric = rank.recorder.counts().dispatches - before;
        let mut counts = Vec::new();
        for maxiter in [4, 12] {
            let rules = CgOptions { maxiter: Some(maxiter), miniter: Some(maxiter), ..CgOptions::absdelta(0.0) };
            rank.recorder.wait()?;
            let before = rank.recorder.counts();
            let found = conjugate_gradient(
                rank,
                &mut |rank, v, out| {
                    at.metric(rank, v, out)?;
                    rank.vector_axpby(1.0, v, 1.0, out).map_err(InferenceError::from)
                },
                None,
                &v,
                None,
                &rules,
            )?;
            assert_eq!(found.iterations, maxiter);
            let after = rank.recorder.counts();
            counts.push([
                after.downloads - before.downloads,
                after.uploads - before.uploads,
                after.dispatches - before.dispatches,
            ]);
        }
        let waits = if rank.gpu.capabilities().profile == Profile::Gpu { 2 } else { 8 };
        assert_eq!(counts[1][0] - counts[0][0], waits, "{counts:?}");
        assert_eq!(counts[1][1], counts[0][1], "{counts:?}");
        // The product adds the vector.
        assert_eq!(counts[1][2] - counts[0][2], 8 * (of_metric + 1 + 7), "{counts:?}");
        Ok(())
    });
}

/// Data that every rank has, and a model that devices round in their own ways: minimizers go by the
/// energy, and all ranks must go together.
#[test]
fn the_energy_of_data_that_every_rank_has_is_that_of_the_first_rank() {
    let found = ranks([2, 1], |rank| {
        let leaf = Leaf::vector(3);
        let data = Data { name: "data", leaf: &leaf, values: &[1.0, -2.0, 0.5], mask: None };
        let likelihood = Likelihood::gaussian(rank, &data, NoiseLevel::Each(&[1.0; 3]))?;
        let x = field(rank, likelihood.domain(), &[rank.comm.rank() as f64; 3])?;
        likelihood.energy(rank, &x)
    });
    assert_eq!(found, [2.625; 2]);
}
