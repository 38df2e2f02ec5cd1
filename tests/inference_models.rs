//! Models of inference: correlated fields, priors and likelihoods, against goldens in f64.

#[path = "shared/inference.rs"]
#[allow(dead_code)]
mod shared;

use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, Data, FieldPrior, InferenceError, Likelihood, MaternScale, Noise,
    Spectrum, check_metric,
};
use meshloom::operators::{Field, Leaf, Model, RegularGrid, Worker, check_adjoint, check_derivative, random_field};
use serde_json::Value;
use shared::{close, field, flat, golden, grid, numbers, pair, ranks};

/// Process grids: alone, slabs, pencils, more ranks than lines of the smallest grid.
const GRIDS: [[usize; 2]; 4] = [[1, 1], [2, 1], [1, 3], [2, 2]];

/// The field prior of a golden.
fn prior_of(golden: &Value) -> FieldPrior {
    let amplitude = if golden.get("cutoff").is_some() {
        let cutoff = pair(&golden["cutoff"]).map(|value| 2.0 * std::f64::consts::PI * value);
        AmplitudePrior::Matern {
            of: MaternScale::FourthPowers,
            scale: pair(&golden["scale"]),
            cutoff,
            slope: pair(&golden["loglogslope"]),
        }
    } else {
        AmplitudePrior::NonParametric {
            of: if golden["kind"] == "power" { Spectrum::Power } else { Spectrum::Amplitude },
            fluctuations: pair(&golden["fluctuations"]),
            slope: pair(&golden["loglogavgslope"]),
            flexibility: golden.get("flexibility").map(pair),
            asperity: golden.get("asperity").map(pair),
        }
    };
    FieldPrior {
        name: String::new(),
        offset_mean: golden["offset_mean"].as_f64().unwrap(),
        offset_std: pair(&golden["offset_std"]),
        axes: vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }],
    }
}

fn grid_of(worker: &Worker<'_>, golden: &Value) -> RegularGrid {
    let shape: Vec<u64> = numbers(&golden["shape"]).into_iter().map(|n| n as u64).collect();
    grid(worker, &shape, &numbers(&golden["distances"]))
}

/// Bits of a field, with their places among those of all ranks.
fn bits(worker: &mut Worker<'_>, field: &Field) -> Result<Vec<(usize, u32)>, InferenceError> {
    Ok(flat(worker, field)?.into_iter().map(|(at, value)| (at, (value as f32).to_bits())).collect())
}

/// What ranks found, each its part, as one; where several have a number they have the same.
fn together(found: Vec<Vec<(usize, u32)>>) -> Vec<(usize, u32)> {
    let mut all = found.concat();
    all.sort_unstable();
    all.dedup();
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "ranks differ");
    all
}

/// Roundings of a correlated field: exponents of up to 8 are computed to a few roundings of themselves, exponentials amplify these by the
/// exponent (32 roundings), sums of 16 to 64 modes and the transform add some 16.
const ROUNDINGS: f64 = 64.0;

#[test]
fn correlated_fields_are_those_of_the_goldens_on_any_ranks() {
    let all = golden("inference_models.json");
    for name in ["field_16_power", "field_16_amplitude_noasp", "field_6x10_power", "field_8_line", "field_16_matern"] {
        let golden = &all[name];
        let mut first = None;
        for parts in GRIDS {
            let found = ranks(parts, |worker| {
                let regular = grid_of(worker, golden);
                let correlated = CorrelatedField::new(worker, &regular, &prior_of(golden))?;
                let model = correlated.model()?;
                let x = field(worker, model.domain(), &latent(golden, "x"))?;
                let at = model.at(worker, &x)?;
                close(worker, name, &at.value, &numbers(&golden["field"]), ROUNDINGS)?;
                let amplitude = correlated.amplitude(worker, &x, 0)?;
                for (found, wanted) in amplitude.iter().zip(numbers(&golden["amplitude"])) {
                    let away = (found - wanted).abs() / wanted / f64::from(f32::EPSILON);
                    assert!(away < ROUNDINGS, "{name}: {found} {wanted}");
                }
                let (mut jvp, mut vjp) =
                    (Field::new(worker.gpu(), model.target())?, Field::new(worker.gpu(), model.domain())?);
                let (dx, dy) = if golden.get("jvp").is_some() {
                    (
                        field(worker, model.domain(), &numbers(&golden["tangent"]))?,
                        field(worker, model.target(), &numbers(&golden["cotangent"]))?,
                    )
                } else {
                    let dx = latent(golden, "x");
                    (field(worker, model.domain(), &dx)?, field(worker, model.target(), &numbers(&golden["field"]))?)
                };
                at.jvp(worker, &dx, &mut jvp)?;
                at.vjp(worker, &dy, &mut vjp)?;
                if golden.get("jvp").is_some() {
                    close(worker, name, &jvp, &numbers(&golden["jvp"]), ROUNDINGS)?;
                    close(worker, name, &vjp, &numbers(&golden["vjp"]), 2.0 * ROUNDINGS)?;
                }
                if parts == [1, 1] {
                    check_adjoint(worker, &model, &x)?;
                    let check = check_derivative(worker, &model, &x, &dx)?;
                    assert!(check.order.is_some(), "{check}");
                }
                Ok([bits(worker, &at.value)?, bits(worker, &jvp)?, bits(worker, &vjp)?])
            });
            let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank[n].clone()).collect()));
            assert_eq!(*first.get_or_insert(found.clone()), found, "{name} {parts:?}");
        }
    }
}

/// A golden's latent values in the order of this library's names: Matérn's have another.
fn latent(golden: &Value, of: &str) -> Vec<f64> {
    let mut x = numbers(&golden[of]);
    if golden.get("cutoff").is_some() {
        // Cutoff, slope, scale.
        x.swap(1, 2);
    }
    x
}

/// The reference's field of 8 x 8 cells, whose hyper-parameters are given by hand.
#[test]
fn the_field_of_the_study_has_its_amplitudes() {
    ranks([1, 1], |worker| {
        let regular = grid(worker, &[8, 8], &[0.125]);
        let amplitude = AmplitudePrior::NonParametric {
            of: Spectrum::Power,
            fluctuations: [1.0, 0.5],
            slope: [-3.0, 0.2],
            flexibility: Some([1.0, 0.2]),
            asperity: Some([0.5, 0.05]),
        };
        let prior = FieldPrior {
            name: "sky".into(),
            offset_mean: 2.0,
            offset_std: [0.1, 0.03],
            axes: vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }],
        };
        let correlated = CorrelatedField::new(worker, &regular, &prior)?;
        let model = correlated.model()?;
        let names: Vec<&str> = model.domain().names().collect();
        let wanted = ["asperity", "flexibility", "fluctuations", "slope", "spectrum", "xi", "zero_mode"];
        assert_eq!(names, wanted.map(|name| format!("sky/{name}")));
        let flat_x = [&[-0.1, 0.3, 0.1, -0.2][..], &white(26, 5), &white(64, 6), &[0.5]].concat();
        let x = field(worker, model.domain(), &flat_x)?;
        let wanted = [
            1.0,
            3.177819712,
            1.9533839893,
            0.9537483205,
            0.7360443738,
            0.5231689934,
            0.4637571496,
            0.5181082269,
            0.4229750647,
            0.4129095688,
            0.3966340436,
            0.3561637313,
            0.3196061193,
            0.2987196193,
            0.2281472673,
        ];
        for (mode, (found, wanted)) in correlated.amplitude(worker, &x, 0)?.into_iter().zip(wanted).enumerate() {
            // There amplitudes are in units of mode 0, whose own is that number.
            let wanted = wanted * 0.11092580201359463;
            assert!((found / wanted - 1.0).abs() < ROUNDINGS * f64::from(f32::EPSILON), "{mode}: {found} {wanted}");
        }
        let y = model.value(worker, &x)?.get(&mut worker.context.recorder, "field")?;
        let close = |found: f64, wanted: f64| {
            assert!((found - wanted).abs() < ROUNDINGS * f64::from(f32::EPSILON) * wanted.abs(), "{found} {wanted}");
        };
        for (found, wanted) in y.iter().zip([3.1687425129, 2.7428771496, 1.9019777317, 0.8327615919]) {
            close(*found, wanted);
        }
        close(y[10], 1.195600457797104);
        close(y.iter().sum(), 122.79916107380207);
        close(y.iter().map(|y| y * y).sum(), 298.6008343960875);
        Ok(())
    });
}

/// The white noise of the goldens: Box-Muller on splitmix64.
fn white(count: usize, seed: u64) -> Vec<f64> {
    let uniform = |n: u64| {
        let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((z ^ (z >> 31)) >> 11) as f64) + 0.5) * 2f64.powi(-53)
    };
    (0..count as u64)
        .map(|n| (-2.0 * uniform(2 * n).ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform(2 * n + 1)).cos())
        .collect()
}

fn power_law(fluctuations: f64, slope: f64) -> AmplitudePrior {
    AmplitudePrior::NonParametric {
        of: Spectrum::Power,
        fluctuations: [fluctuations, 0.5 * fluctuations],
        slope: [slope, 0.3],
        flexibility: Some([0.5, 0.2]),
        asperity: None,
    }
}

/// Space (two axes, sides without a common measure) and time, each with its amplitude: against the definition, with the amplitudes that the
/// field itself tells.
#[test]
fn amplitudes_of_several_groups_of_axes_are_multiplied() {
    let mut first = None;
    for parts in GRIDS {
        let found = ranks(parts, |worker| {
            let shape = [6, 5, 4];
            let size = [1.5, 2.0, 2.0 * 2f64.powf(0.3)];
            let regular = RegularGrid { shape, size, ..grid(worker, &shape, &[1.0]) };
            let space = AxesPrior { name: "space".into(), axes: [false, true, true], amplitude: power_law(0.8, -3.0) };
            let amplitude = AmplitudePrior::Matern {
                of: MaternScale::Deviation,
                scale: [0.5, 0.1],
                cutoff: [5.0, 2.0],
                slope: [-4.0, 0.0],
            };
            let time = AxesPrior { name: "time".into(), axes: [true, false, false], amplitude };
            let prior =
                FieldPrior { name: String::new(), offset_mean: -1.0, offset_std: [0.3, 0.1], axes: vec![space, time] };
            let correlated = CorrelatedField::new(worker, &regular, &prior)?;
            let model = correlated.model()?;
            assert_eq!(model.domain().leaf("space/spectrum").unwrap().len(), 2 * (3 * 3 - 2));
            assert!(model.domain().leaf("time/slope").is_none() && model.domain().leaf("time/cutoff").is_some());
            let all: usize = model.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
            let flat_x = white(all, 8);
            let x = field(worker, model.domain(), &flat_x)?;
            let at = model.at(worker, &x)?;
            let dx = field(worker, model.domain(), &white(all, 9))?;
            let dy = field(worker, model.target(), &white(120, 10))?;
            let (mut jvp, mut vjp) =
                (Field::new(worker.gpu(), model.target())?, Field::new(worker.gpu(), model.domain())?);
            at.jvp(worker, &dx, &mut jvp)?;
            at.vjp(worker, &dy, &mut vjp)?;
            check_adjoint_alone(worker, &model, &x)?;
            let amplitudes = [correlated.amplitude(worker, &x, 0)?, correlated.amplitude(worker, &x, 1)?];
            let wanted = by_definition(
                &regular,
                &correlated,
                &amplitudes,
                &flat_x[model
                    .domain()
                    .leaves()
                    .take_while(|(name, _)| *name != "xi")
                    .map(|(_, leaf)| leaf.total() as usize)
                    .sum()..],
            );
            close(worker, "product", &at.value, &wanted, ROUNDINGS)?;
            Ok([bits(worker, &at.value)?, bits(worker, &jvp)?, bits(worker, &vjp)?])
        });
        let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank[n].clone()).collect()));
        assert_eq!(*first.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

fn check_adjoint_alone(worker: &mut Worker<'_>, model: &Model, x: &Field) -> Result<(), InferenceError> {
    check_adjoint(worker, model, x)?;
    let dx = random_field(worker, model.domain(), 3)?;
    let check = check_derivative(worker, model, x, &dx)?;
    assert!((check.order.unwrap() - 2.0).abs() < 0.3, "{check}");
    Ok(())
}

/// `offset + sum_k A_k xi_k cas(2 pi k x)`.
fn by_definition(
    regular: &RegularGrid,
    correlated: &CorrelatedField,
    amplitudes: &[Vec<f64>; 2],
    xi: &[f64],
) -> Vec<f64> {
    let places = |n: [u64; 3]| {
        let all = (0..n[0]).flat_map(move |i| (0..n[1]).flat_map(move |j| (0..n[2]).map(move |k| [i, j, k])));
        all.collect::<Vec<_>>()
    };
    let wavenumber = |mode: [u64; 3], axes: [bool; 3]| {
        let along = |a: usize| {
            let m = mode[a].min(regular.shape[a] - mode[a]) as f64;
            if axes[a] { (2.0 * std::f64::consts::PI * m / regular.size[a]).powi(2) } else { 0.0 }
        };
        (along(0) + along(1) + along(2)).sqrt()
    };
    let amplitude = |mode: [u64; 3]| {
        let of = |group: usize, axes: [bool; 3]| {
            let k = wavenumber(mode, axes);
            let bin = correlated.wavenumbers(group).iter().position(|own| (own - k).abs() < 1e-9).unwrap();
            amplitudes[group][bin]
        };
        of(0, [false, true, true]) * of(1, [true, false, false])
    };
    let modes: Vec<([u64; 3], f64)> =
        places(regular.shape).into_iter().zip(xi).map(|(mode, xi)| (mode, amplitude(mode) * xi)).collect();
    let at = |cell: [u64; 3]| {
        let term = |(mode, value): &([u64; 3], f64)| {
            let turns: f64 = (0..3).map(|a| (mode[a] * cell[a]) as f64 / regular.shape[a] as f64).sum();
            let (sin, cos) = (2.0 * std::f64::consts::PI * turns).sin_cos();
            value * (cos - sin)
        };
        -1.0 + modes.iter().map(term).sum::<f64>()
    };
    places(regular.shape).into_iter().map(at).collect()
}

#[test]
fn fields_that_cannot_be_are_refused() {
    ranks([1, 1], |worker| {
        let regular = grid(worker, &[4, 4], &[1.0]);
        let axes = |axes: [bool; 3]| AxesPrior { name: String::new(), axes, amplitude: power_law(1.0, -2.0) };
        let prior =
            |axes: Vec<AxesPrior>| FieldPrior { name: String::new(), offset_mean: 0.0, offset_std: [1.0, 0.5], axes };
        let mut refused = |prior: FieldPrior, what: &str| {
            let error = CorrelatedField::new(worker, &regular, &prior).unwrap_err();
            assert!(matches!(error, InferenceError::Invalid { .. }) && error.to_string().contains(what), "{error}");
        };
        refused(prior(vec![]), "axis 1 is in 0");
        refused(prior(vec![axes([true; 3]), axes([false, true, false])]), "axis 1 is in 2");
        refused(prior(vec![axes([true, false, false]), axes([false, true, true])]), "no axis of more than one cell");
        refused(prior(vec![axes([false, true, false]), axes([false, false, true])]), "have the name");
        refused(FieldPrior { offset_std: [0.0, 1.0], ..prior(vec![axes([true; 3])]) }, "`zero_mode`");
        refused(FieldPrior { offset_mean: f64::NAN, ..prior(vec![axes([true; 3])]) }, "its offset");
        let AxesPrior { amplitude, .. } = axes([true; 3]);
        let AmplitudePrior::NonParametric { of, fluctuations, slope, asperity, .. } = amplitude else { unreachable!() };
        let amplitude =
            AmplitudePrior::NonParametric { of, fluctuations, slope, flexibility: Some([-1.0, 0.1]), asperity };
        refused(prior(vec![AxesPrior { amplitude, ..axes([true; 3]) }]), "`flexibility`");
        Ok(())
    });
}

/// A likelihood of six data, as the goldens have it, over points that the last rank has.
fn six<'a>(worker: &Worker<'_>, values: &'a [f64], leaf: &'a Leaf) -> Data<'a> {
    let own = worker.comm().rank() + 1 == worker.comm().size();
    Data { name: "data", leaf, values: if own { values } else { &[] }, mask: None }
}

/// Points of which the last rank has all.
fn six_points(worker: &Worker<'_>) -> Leaf {
    let own = worker.comm().rank() + 1 == worker.comm().size();
    Leaf::points(if own { 6 } else { 0 }, 6)
}

#[test]
fn likelihoods_are_those_of_the_goldens() {
    let all = golden("inference_models.json");
    let input = &all["likelihood_input"];
    let of = |name: &str| numbers(&input[name]);
    let both = |a: &str, b: &str| [of(a), of(b)].concat();
    let (sigma, dof): (Vec<f64>, f64) =
        (of("noise_cov_inv").iter().map(|inverse| 1.0 / inverse.sqrt()).collect(), input["dof"].as_f64().unwrap());
    for kind in
        ["gaussian", "poissonian", "student_t", "variable_covariance_gaussian", "variable_covariance_student_t"]
    {
        let golden = &all[kind];
        let two = kind.starts_with("variable");
        ranks([1, 1], |worker| {
            let leaf = six_points(worker);
            let (values, counts) = (of("data"), of("counts"));
            let data = six(worker, &values, &leaf);
            let likelihood = match kind {
                "gaussian" => Likelihood::gaussian(worker, &data, Noise::Each(&sigma))?,
                "poissonian" => Likelihood::poisson(worker, &six(worker, &counts, &leaf), None)?,
                "student_t" => Likelihood::student_t(worker, &data, Noise::Each(&sigma), dof)?,
                "variable_covariance_gaussian" => Likelihood::gaussian_inferred(worker, &data)?,
                _ => Likelihood::student_t_inferred(worker, &data, dof)?,
            };
            let [s, v, w] = if two {
                [("s", "inverse_std"), ("v", "inverse_std_tangent"), ("w", "inverse_std_white")].map(|(a, b)| both(a, b))
            } else {
                ["s", "v", "w"].map(of)
            };
            let space = likelihood.domain().clone();
            let [x, v, w] = [s, v, w].map(|flat| field(worker, &space, &flat));
            let (x, v, w) = (x?, v?, w?);
            let energy = likelihood.energy(worker, &x)?;
            let wanted = golden["energy"].as_f64().unwrap();
            // Data and weights are rounded, which moves terms of up to 30.
            assert!((energy - wanted).abs() < 32.0 * f64::from(f32::EPSILON) * wanted.abs(), "{kind}: {energy} {wanted}");
            let at = likelihood.at(worker, &x)?;
            assert_eq!(at.energy(worker)?, energy);
            let mut out = Field::new(worker.gpu(), &space)?;
            // Differences of rounded numbers of up to 10, some of which are divided by their own size.
            at.gradient(worker, &mut out)?;
            close(worker, kind, &out, &numbers(&golden["gradient"]), 32.0)?;
            at.metric(worker, &v, &mut out)?;
            close(worker, kind, &out, &numbers(&golden["metric"]), 8.0)?;
            at.left_sqrt(worker, &w, &mut out)?;
            close(worker, kind, &out, &numbers(&golden["left_sqrt"]), 8.0)?;
            at.right_sqrt(worker, &v, &mut out)?;
            close(worker, kind, &out, &numbers(&golden["right_sqrt"]), 8.0)?;
            if kind == "variable_covariance_student_t" {
                let error = likelihood.transformation(worker, &x, &mut out).unwrap_err();
                assert!(matches!(error, InferenceError::NoTransformation { .. }), "{error}");
            } else {
                likelihood.transformation(worker, &x, &mut out)?;
                close(worker, kind, &out, &numbers(&golden["transformation"]), 16.0)?;
            }
            let residual = likelihood.normalised_residual(worker, &x)?.unwrap();
            let wanted = numbers(&golden["residual"]);
            close(worker, kind, &residual, &wanted, 32.0)?;
            let report = likelihood.report(worker, &x)?;
            let chi: f64 = wanted.iter().map(|r| r * r).sum::<f64>() / 6.0;
            assert!((report[0].reduced_chi_squared - chi).abs() < 1e-5 * chi && report[0].count == 6, "{report:?}");
            assert!((report[0].mean - wanted.iter().sum::<f64>() / 6.0).abs() < 1e-6, "{report:?}");
            check_metric(worker, &likelihood, &x)?;
            Ok(())
        });
    }
}
