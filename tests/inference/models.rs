//! Models of inference: correlated fields, priors and likelihoods, against goldens in f64.

use std::rc::Rc;

use super::shared::{close, field, flat, golden, grid, numbers, pair, ranks, ranks_with};
use meshloom::comm::Communicator;
use meshloom::gpu::Options;
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CgOptions, CorrelatedField, Data, Draw, EvidenceOptions, Excitation, Excitations,
    Excited, Expansion, FieldPrior, Fit, FitOptions, InferenceError, IterationOptions, Likelihood, LogLikelihood,
    MaternScale, NewtonOptions, NoiseLevel, Prior, PriorSpectrum, SampleGroups, Samples, Sampling, VectorSpace,
    check_metric, evidence,
};
use meshloom::operators::{
    Diagonal, Leaf, Model, PointwiseOperator, Select, Space, Vector, check_adjoint, check_derivative, random_field,
};
use meshloom::{Mesh, Rank};
use serde_json::Value;

/// Process grids: alone, slabs, pencils, more ranks than lines of the smallest grid.
const GRIDS: [[usize; 2]; 4] = [[1, 1], [2, 1], [1, 3], [2, 2]];

/// Returns the field prior of a golden.
fn prior_of(golden: &Value) -> FieldPrior {
    let amplitude = if golden.get("cutoff").is_some() {
        let cutoff_wavenumber = pair(&golden["cutoff"]).map(|value| 2.0 * std::f64::consts::PI * value);
        AmplitudePrior::Matern {
            of: MaternScale::Deviation,
            scale: pair(&golden["scale"]),
            cutoff_wavenumber,
            slope: pair(&golden["loglogslope"]),
        }
    } else {
        AmplitudePrior::NonParametric {
            of: if golden["kind"] == "power" { PriorSpectrum::Power } else { PriorSpectrum::Amplitude },
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

fn grid_of(rank: &Rank, golden: &Value) -> Mesh {
    let shape: Vec<u64> = numbers(&golden["shape"]).into_iter().map(|n| n as u64).collect();
    grid(rank, &shape, &numbers(&golden["distances"]))
}

/// Bits of a field, with their places among those of all ranks.
fn bits(rank: &mut Rank, field: &Vector) -> Result<Vec<(usize, u32)>, InferenceError> {
    Ok(flat(rank, field)?.into_iter().map(|(at, value)| (at, (value as f32).to_bits())).collect())
}

/// Returns what ranks found, each its part, as one; where several have a number they have the same.
fn together(found: Vec<Vec<(usize, u32)>>) -> Vec<(usize, u32)> {
    let mut all = found.concat();
    all.sort_unstable();
    all.dedup();
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "ranks differ");
    all
}

/// Roundings of a correlated field: exponents of up to 8 are computed to a few roundings of
/// themselves, exponentials amplify these by the exponent (32 roundings), sums of 16 to 64 modes
/// and the transform add some 16.
const ROUNDINGS: f64 = 64.0;

#[test]
fn correlated_fields_are_those_of_the_goldens_on_any_ranks() {
    let all = golden("inference_models.json");
    for name in ["field_16_power", "field_16_amplitude_noasp", "field_6x10_power", "field_8_line", "field_16_matern"] {
        let golden = &all[name];
        let mut first = None;
        for parts in GRIDS {
            let found = ranks(parts, |rank| {
                let mesh = grid_of(rank, golden);
                let correlated = CorrelatedField::new(rank, &mesh, &prior_of(golden))?;
                let model = correlated.model()?;
                let x = field(rank, model.domain(), &latent(golden, "x"))?;
                let at = model.at(rank, &x)?;
                close(rank, name, &at.value, &numbers(&golden["field"]), ROUNDINGS)?;
                let amplitude = correlated.amplitude(rank, &x, 0)?;
                for (found, wanted) in amplitude.iter().zip(numbers(&golden["amplitude"])) {
                    let away = (found - wanted).abs() / wanted / f64::from(f32::EPSILON);
                    assert!(away < ROUNDINGS, "{name}: {found} {wanted}");
                }
                let (mut jvp, mut vjp) =
                    (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, model.domain())?);
                let (dx, dy) = if golden.get("jvp").is_some() {
                    (
                        field(rank, model.domain(), &numbers(&golden["tangent"]))?,
                        field(rank, model.target(), &numbers(&golden["cotangent"]))?,
                    )
                } else {
                    let dx = latent(golden, "x");
                    (field(rank, model.domain(), &dx)?, field(rank, model.target(), &numbers(&golden["field"]))?)
                };
                at.jvp(rank, &dx, &mut jvp)?;
                at.vjp(rank, &dy, &mut vjp)?;
                if golden.get("jvp").is_some() {
                    close(rank, name, &jvp, &numbers(&golden["jvp"]), ROUNDINGS)?;
                    close(rank, name, &vjp, &numbers(&golden["vjp"]), 2.0 * ROUNDINGS)?;
                }
                if parts == [1, 1] {
                    check_adjoint(rank, &model, &x)?;
                    let check = check_derivative(rank, &model, &x, &dx)?;
                    assert!(check.order.is_some(), "{check}");
                }
                Ok([bits(rank, &at.value)?, bits(rank, &jvp)?, bits(rank, &vjp)?])
            });
            let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank[n].clone()).collect()));
            assert_eq!(*first.get_or_insert(found.clone()), found, "{name} {parts:?}");
        }
    }
}

/// Returns a golden's latent values in the order of this library's names: Matérn's have another.
fn latent(golden: &Value, of: &str) -> Vec<f64> {
    let mut x = numbers(&golden[of]);
    if golden.get("cutoff").is_some() {
        // Cutoff, slope, scale.
        x.swap(1, 2);
    }
    x
}

/// Creates the reference's field of 8 x 8 cells, whose hyper-parameters are given by hand.
#[test]
fn the_field_of_the_study_has_its_amplitudes() {
    ranks([1, 1], |rank| {
        let mesh = grid(rank, &[8, 8], &[0.125]);
        let amplitude = AmplitudePrior::NonParametric {
            of: PriorSpectrum::Power,
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
        let correlated = CorrelatedField::new(rank, &mesh, &prior)?;
        let model = correlated.model()?;
        let names: Vec<&str> = model.domain().names().collect();
        let wanted = ["asperity", "flexibility", "fluctuations", "slope", "spectrum", "xi", "zero_mode"];
        assert_eq!(names, wanted.map(|name| format!("sky/{name}")));
        let flat_x = [&[-0.1, 0.3, 0.1, -0.2][..], &white(26, 5), &white(64, 6), &[0.5]].concat();
        let x = field(rank, model.domain(), &flat_x)?;
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
        for (mode, (found, wanted)) in correlated.amplitude(rank, &x, 0)?.into_iter().zip(wanted).enumerate() {
            // There amplitudes are in units of mode 0, whose own is that number.
            let wanted = wanted * 0.11092580201359463;
            assert!((found / wanted - 1.0).abs() < ROUNDINGS * f64::from(f32::EPSILON), "{mode}: {found} {wanted}");
        }
        let y = model.value(rank, &x)?.get(&mut rank.recorder, "field")?;
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

/// Returns the white noise of the goldens: Box-Muller on splitmix64.
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
        of: PriorSpectrum::Power,
        fluctuations: [fluctuations, 0.5 * fluctuations],
        slope: [slope, 0.3],
        flexibility: Some([0.5, 0.2]),
        asperity: None,
    }
}

/// Space (two axes, sides without a common measure) and time, each with its amplitude: against the
/// definition, with the amplitudes that the field itself tells.
#[test]
fn amplitudes_of_several_groups_of_axes_are_multiplied() {
    let mut first = None;
    for parts in GRIDS {
        let found = ranks(parts, |rank| {
            let shape = [6, 5, 4];
            let size = [1.5, 2.0, 2.0 * 2f64.powf(0.3)];
            let mesh = crate::process_grid::mesh(rank, shape, size);
            let space = AxesPrior { name: "space".into(), axes: [false, true, true], amplitude: power_law(0.8, -3.0) };
            let amplitude = AmplitudePrior::Matern {
                of: MaternScale::Deviation,
                scale: [0.5, 0.1],
                cutoff_wavenumber: [5.0, 2.0],
                slope: [-4.0, 0.0],
            };
            let time = AxesPrior { name: "time".into(), axes: [true, false, false], amplitude };
            let prior =
                FieldPrior { name: String::new(), offset_mean: -1.0, offset_std: [0.3, 0.1], axes: vec![space, time] };
            let correlated = CorrelatedField::new(rank, &mesh, &prior)?;
            let model = correlated.model()?;
            assert_eq!(model.domain().leaf("space/spectrum").unwrap().len(), 2 * (3 * 3 - 2));
            assert!(model.domain().leaf("time/slope").is_none() && model.domain().leaf("time/cutoff").is_some());
            let all: usize = model.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
            let flat_x = white(all, 8);
            let x = field(rank, model.domain(), &flat_x)?;
            let at = model.at(rank, &x)?;
            let dx = field(rank, model.domain(), &white(all, 9))?;
            let dy = field(rank, model.target(), &white(120, 10))?;
            let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, model.domain())?);
            at.jvp(rank, &dx, &mut jvp)?;
            at.vjp(rank, &dy, &mut vjp)?;
            check_adjoint_alone(rank, &model, &x)?;
            let amplitudes = [correlated.amplitude(rank, &x, 0)?, correlated.amplitude(rank, &x, 1)?];
            let wanted = by_definition(
                &mesh,
                &correlated,
                &amplitudes,
                &flat_x[model
                    .domain()
                    .leaves()
                    .take_while(|(name, _)| *name != "xi")
                    .map(|(_, leaf)| leaf.total() as usize)
                    .sum()..],
            );
            close(rank, "product", &at.value, &wanted, ROUNDINGS)?;
            Ok([bits(rank, &at.value)?, bits(rank, &jvp)?, bits(rank, &vjp)?])
        });
        let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank[n].clone()).collect()));
        assert_eq!(*first.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

/// Returns a log-normal number of a mean and a standard deviation for a latent value.
fn log_normal([mean, std]: [f64; 2], latent: f64) -> f64 {
    let variance = (std / mean).powi(2).ln_1p();
    (mean.ln() - variance / 2.0 + variance.sqrt() * latent).exp()
}

/// Returns the amplitudes of a field of standard deviation `scale` whose wavenumbers have the
/// exponents `e`, for amplitudes that go with `exp(half e)`.
fn normalized(e: &[f64], multiplicity: &[f64], scale: f64, half: f64) -> Vec<f64> {
    let sum: f64 = e.iter().zip(multiplicity).map(|(e, count)| count * (2.0 * half * e).exp()).sum();
    e.iter().map(|e| scale * (half * e).exp() / sum.sqrt()).collect()
}

/// Grids, whose sides have no common measure, with their process grids and the number of priors.
/// Numbers of wavenumbers are at the limits of tiles and workgroups: 2, 4, a tile of 512 and one
/// more; 16 tiles, which one workgroup takes, and one more; more than a tile for each of 256
/// workgroups.
const SPECTRA: [([u64; 3], &[[usize; 2]], usize); 8] = [
    ([2, 1, 1], &[[1, 1]], 4),
    ([2, 2, 1], &[[1, 1]], 4),
    ([62, 30, 1], &[[1, 1]], 4),
    ([52, 36, 1], &[[1, 1]], 4),
    ([254, 126, 1], &[[1, 1]], 4),
    ([5460, 4, 1], &[[1, 1]], 4),
    ([724, 724, 1], &[[1, 1]], 1),
    ([200, 200, 1], &[[1, 1], [2, 1]], 4),
];

/// Against the definition in f64.
#[test]
fn amplitudes_of_many_wavenumbers_are_those_of_the_definition_on_any_ranks() {
    let rough = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Power,
        fluctuations: [1.0, 0.5],
        slope: [-3.0, 0.3],
        flexibility: Some([0.5, 0.2]),
        asperity: Some([0.4, 0.1]),
    };
    let straight = AmplitudePrior::NonParametric {
        of: PriorSpectrum::Amplitude,
        fluctuations: [1.0, 0.5],
        slope: [-1.5, 0.3],
        flexibility: None,
        asperity: None,
    };
    let matern = AmplitudePrior::Matern {
        of: MaternScale::Deviation,
        scale: [0.5, 0.1],
        cutoff_wavenumber: [50.0, 20.0],
        slope: [-4.0, 0.2],
    };
    let priors = [rough, power_law(0.8, -3.0), straight, matern];
    let cases =
        SPECTRA.iter().flat_map(|spectrum| priors[..spectrum.2].iter().map(move |amplitude| (spectrum, amplitude)));
    for ((shape, grids, _), amplitude) in cases {
        let mut first = None;
        for &parts in *grids {
            let found = ranks(parts, |rank| {
                let size = [2f64.powf(0.3), 1.0, 1.0];
                let mesh = crate::process_grid::mesh(rank, *shape, size);
                let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude: amplitude.clone() }];
                let prior = FieldPrior { name: String::new(), offset_mean: 0.0, offset_std: [0.3, 0.0], axes };
                let correlated = CorrelatedField::new(rank, &mesh, &prior)?;
                let model = correlated.model()?;
                let all: usize = model.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
                let flat_x = white(all, 12);
                let x = field(rank, model.domain(), &flat_x)?;
                let mut start = 0;
                let mut of = |name: &str| {
                    let leaf = model.domain().leaf(name).map_or(0, |leaf| leaf.total() as usize);
                    start += leaf;
                    &flat_x[start - leaf..start]
                };
                let only = |values: &[f64]| values.first().copied().unwrap_or(0.0);
                // Leaves are in the order of their names.
                let k = &correlated.wavenumbers(0)[1..];
                let (e, scale, half): (Vec<f64>, f64, f64) = match amplitude {
                    AmplitudePrior::Matern { scale, cutoff_wavenumber, slope, .. } => {
                        let cutoff = log_normal(*cutoff_wavenumber, of("cutoff")[0]);
                        let scale = log_normal(*scale, of("scale")[0]);
                        let slope = slope[0] + slope[1] * of("slope")[0];
                        (k.iter().map(|k| slope / 4.0 * (k / cutoff).powi(2).ln_1p()).collect(), scale, 1.0)
                    }
                    AmplitudePrior::NonParametric { of: spectrum, fluctuations, slope, flexibility, asperity } => {
                        let asperity = asperity.map_or(0.0, |given| log_normal(given, only(of("asperity"))));
                        let flexibility = flexibility.map_or(0.0, |given| log_normal(given, only(of("flexibility"))));
                        let scale = log_normal(*fluctuations, of("fluctuations")[0]);
                        let slope = slope[0] + slope[1] * of("slope")[0];
                        let steps = of("spectrum");
                        let (mut velocity, mut position) = (0.0, 0.0);
                        let mut positions = vec![0.0];
                        for (step, k) in steps.chunks(2).zip(k.windows(2)) {
                            let t = (k[1] / k[0]).ln();
                            let kick = flexibility * t.sqrt() * step[1];
                            let drift = flexibility * t.sqrt() * step[0] * (t * t / 12.0 + asperity).sqrt();
                            position += t * velocity + 0.5 * t * kick + drift;
                            velocity += kick;
                            positions.push(position);
                        }
                        positions.resize(k.len(), 0.0);
                        let log = |k: &f64, first: f64| (k / first).ln();
                        let tilt = if k.len() > 1 { positions[k.len() - 1] / log(&k[k.len() - 1], k[0]) } else { 0.0 };
                        let e = k.iter().zip(&positions).map(|(k_j, d)| (slope - tilt) * log(k_j, k[0]) + d).collect();
                        (e, scale, if *spectrum == PriorSpectrum::Power { 0.5 } else { 1.0 })
                    }
                };
                let along = |n: u64, axis: usize| (2.0 * std::f64::consts::PI * n as f64 / size[axis]).powi(2);
                // One mode of wavenumber 0 and of the highest along each axis, else two.
                let count = |n: u64, axis: usize| if n == 0 || 2 * n == shape[axis] { 1.0 } else { 2.0 };
                let modes = (0..=shape[0] / 2).flat_map(|i| (0..=shape[1] / 2).map(move |j| [i, j]));
                let mut modes: Vec<_> =
                    modes.map(|[i, j]| (along(i, 0) + along(j, 1), count(i, 0) * count(j, 1))).skip(1).collect();
                modes.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(
                    modes.len() == k.len()
                        && modes.iter().zip(k).all(|(mode, k)| (mode.0.sqrt() / k - 1.0).abs() < 1e-9)
                );
                let multiplicity: Vec<f64> = modes.iter().map(|mode| mode.1).collect();
                let wanted = normalized(&e, &multiplicity, scale, half);
                let found = correlated.amplitude(rank, &x, 0)?;
                // Exponents are known to roundings of the largest.
                let most = e.iter().fold(1.0, |most: f64, e| most.max(e.abs()));
                for (mode, (found, wanted)) in found[1..].iter().zip(&wanted).enumerate() {
                    let away = (found / wanted - 1.0).abs() / most / f64::from(f32::EPSILON);
                    assert!(away < ROUNDINGS, "{shape:?}, {amplitude:?}, {mode}: {found} {wanted} {away}");
                }
                let at = model.at(rank, &x)?;
                let (dx, dy) = (random_field(rank, model.domain(), 3)?, random_field(rank, model.target(), 4)?);
                let (mut jvp, mut vjp) =
                    (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, model.domain())?);
                at.jvp(rank, &dx, &mut jvp)?;
                at.vjp(rank, &dy, &mut vjp)?;
                if parts == [1, 1] {
                    check_adjoint_alone(rank, &model, &x)?;
                }
                Ok([bits(rank, &at.value)?, bits(rank, &jvp)?, bits(rank, &vjp)?])
            });
            let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank[n].clone()).collect()));
            assert!(*first.get_or_insert(found.clone()) == found, "{shape:?} {amplitude:?} {parts:?}");
        }
    }
}

/// A cotangent that is not finite at one cell is in all modes, and by them in the sums that are
/// cotangents of amplitudes: no number hides it.
#[test]
fn cotangents_that_are_not_finite_reach_all_that_they_are_made_of() {
    for parts in [[1, 1], [2, 1]] {
        ranks(parts, |rank| {
            let shape = [6, 5, 4];
            let mesh = grid(rank, &shape, &[1.0]);
            let space = AxesPrior { name: "space".into(), axes: [true; 3], amplitude: power_law(0.8, -3.0) };
            let prior =
                FieldPrior { name: String::new(), offset_mean: -1.0, offset_std: [0.3, 0.1], axes: vec![space] };
            let model = CorrelatedField::new(rank, &mesh, &prior)?.model()?;
            let all: usize = model.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
            let x = field(rank, model.domain(), &white(all, 8))?;
            let at = model.at(rank, &x)?;
            for bad in [f64::NAN, f64::INFINITY] {
                let mut cotangent = white(120, 10);
                cotangent[77] = bad;
                let dy = field(rank, model.target(), &cotangent)?;
                let mut vjp = Vector::new(&rank.gpu, model.domain())?;
                at.vjp(rank, &dy, &mut vjp)?;
                let hidden: Vec<_> = flat(rank, &vjp)?.into_iter().filter(|(_, value)| value.is_finite()).collect();
                assert!(hidden.is_empty(), "{parts:?}, {bad}: {hidden:?}");
            }
            Ok(())
        });
    }
}

fn check_adjoint_alone(rank: &mut Rank, model: &Model, x: &Vector) -> Result<(), InferenceError> {
    check_adjoint(rank, model, x)?;
    let dx = random_field(rank, model.domain(), 3)?;
    let check = check_derivative(rank, model, x, &dx)?;
    assert!((check.order.unwrap() - 2.0).abs() < 0.3, "{check}");
    Ok(())
}

/// `offset + sum_k A_k xi_k cas(2 pi k x)`.
fn by_definition(mesh: &Mesh, correlated: &CorrelatedField, amplitudes: &[Vec<f64>; 2], xi: &[f64]) -> Vec<f64> {
    let places = |n: [u64; 3]| {
        let all = (0..n[0]).flat_map(move |i| (0..n[1]).flat_map(move |j| (0..n[2]).map(move |k| [i, j, k])));
        all.collect::<Vec<_>>()
    };
    let wavenumber = |mode: [u64; 3], axes: [bool; 3]| {
        let along = |a: usize| {
            let m = mode[a].min(mesh.shape()[a] - mode[a]) as f64;
            if axes[a] { (2.0 * std::f64::consts::PI * m / mesh.size()[a]).powi(2) } else { 0.0 }
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
        places(mesh.shape()).into_iter().zip(xi).map(|(mode, xi)| (mode, amplitude(mode) * xi)).collect();
    let at = |cell: [u64; 3]| {
        let term = |(mode, value): &([u64; 3], f64)| {
            let turns: f64 = (0..3).map(|a| (mode[a] * cell[a]) as f64 / mesh.shape()[a] as f64).sum();
            let (sin, cos) = (2.0 * std::f64::consts::PI * turns).sin_cos();
            value * (cos - sin)
        };
        -1.0 + modes.iter().map(term).sum::<f64>()
    };
    places(mesh.shape()).into_iter().map(at).collect()
}

#[test]
fn fields_that_cannot_be_are_refused() {
    ranks([1, 1], |rank| {
        let mesh = grid(rank, &[4, 4], &[1.0]);
        let axes = |axes: [bool; 3]| AxesPrior { name: String::new(), axes, amplitude: power_law(1.0, -2.0) };
        let prior =
            |axes: Vec<AxesPrior>| FieldPrior { name: String::new(), offset_mean: 0.0, offset_std: [1.0, 0.5], axes };
        // Ghost cells of the mesh are left out.
        let ghosted = mesh.with_ghosts([[0, 0], [1, 1], [1, 1]]).unwrap();
        let field = CorrelatedField::new(rank, &ghosted, &prior(vec![axes([true; 3])]))?.model()?;
        assert_eq!(field.target().leaf("field").and_then(Leaf::mesh), Some(&mesh));
        let mut refused = |prior: FieldPrior, what: &str| {
            let error = CorrelatedField::new(rank, &mesh, &prior).unwrap_err();
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
fn six<'a>(rank: &Rank, values: &'a [f64], leaf: &'a Leaf) -> Data<'a> {
    let own = rank.comm.rank() + 1 == rank.comm.size();
    Data { name: "data", leaf, values: if own { values } else { &[] }, mask: None }
}

/// Points of which the last rank has all.
fn six_points(rank: &Rank) -> Leaf {
    let own = rank.comm.rank() + 1 == rank.comm.size();
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
    for kind in ["gaussian", "poissonian", "student_t", "variable_covariance_gaussian", "variable_covariance_student_t"]
    {
        let golden = &all[kind];
        let two = kind.starts_with("variable");
        ranks([1, 1], |rank| {
            let leaf = six_points(rank);
            let (values, counts) = (of("data"), of("counts"));
            let data = six(rank, &values, &leaf);
            let likelihood = match kind {
                "gaussian" => Likelihood::gaussian(rank, &data, NoiseLevel::Each(&sigma))?,
                "poissonian" => Likelihood::poisson(rank, &six(rank, &counts, &leaf), None)?,
                "student_t" => Likelihood::student_t(rank, &data, NoiseLevel::Each(&sigma), dof)?,
                "variable_covariance_gaussian" => Likelihood::gaussian_inferred(rank, &data)?,
                _ => Likelihood::student_t_inferred(rank, &data, dof)?,
            };
            let [s, v, w] = if two {
                [("s", "inverse_std"), ("v", "inverse_std_tangent"), ("w", "inverse_std_white")]
                    .map(|(a, b)| both(a, b))
            } else {
                ["s", "v", "w"].map(of)
            };
            let space = likelihood.domain().clone();
            let [x, v, w] = [s, v, w].map(|flat| field(rank, &space, &flat));
            let (x, v, w) = (x?, v?, w?);
            let energy = likelihood.energy(rank, &x)?;
            let wanted = golden["energy"].as_f64().unwrap();
            // Data and weights are rounded, which moves terms of up to 30.
            assert!(
                (energy - wanted).abs() < 32.0 * f64::from(f32::EPSILON) * wanted.abs(),
                "{kind}: {energy} {wanted}"
            );
            let at = likelihood.at(rank, &x)?;
            assert_eq!(at.energy(rank)?, energy);
            let mut out = Vector::new(&rank.gpu, &space)?;
            // Differences of rounded numbers of up to 10, some of which are divided by their own
            // size.
            at.gradient(rank, &mut out)?;
            close(rank, kind, &out, &numbers(&golden["gradient"]), 32.0)?;
            at.metric(rank, &v, &mut out)?;
            close(rank, kind, &out, &numbers(&golden["metric"]), 8.0)?;
            at.left_sqrt(rank, &w, &mut out)?;
            close(rank, kind, &out, &numbers(&golden["left_sqrt"]), 8.0)?;
            at.right_sqrt(rank, &v, &mut out)?;
            close(rank, kind, &out, &numbers(&golden["right_sqrt"]), 8.0)?;
            if kind == "variable_covariance_student_t" {
                let error = at.coordinates(rank, &x, &mut out).unwrap_err();
                assert!(matches!(error, InferenceError::NoTransformation { .. }), "{error}");
            } else if two {
                // Golden coordinates of NIFTy have the data in place of the mean, whose width is
                // wrong.
                let here: Vec<f64> = flat(rank, &x)?.iter().map(|(_, s)| *s).collect();
                let away: Vec<f64> = here.iter().enumerate().map(|(i, s)| s * (1.1 + 0.02 * i as f64)).collect();
                let moved = field(rank, &space, &away)?;
                at.coordinates(rank, &moved, &mut out)?;
                let wanted: Vec<f64> = (0..12)
                    .map(|i| if i < 6 { away[6 + i] * (away[i] - here[i]) } else { 2f64.sqrt() * away[i].ln() })
                    .collect();
                close(rank, kind, &out, &wanted, 64.0)?;
            } else {
                at.coordinates(rank, &x, &mut out)?;
                close(rank, kind, &out, &numbers(&golden["transformation"]), 16.0)?;
            }
            let residual = likelihood.normalized_residual(rank, &x)?.unwrap();
            let wanted = numbers(&golden["residual"]);
            close(rank, kind, &residual, &wanted, 32.0)?;
            let report = likelihood.report(rank, &x)?;
            let chi: f64 = wanted.iter().map(|r| r * r).sum::<f64>() / 6.0;
            assert!((report[0].reduced_chi_squared - chi).abs() < 1e-5 * chi && report[0].count == 6, "{report:?}");
            assert!((report[0].mean - wanted.iter().sum::<f64>() / 6.0).abs() < 1e-6, "{report:?}");
            check_metric(rank, &likelihood, &x, 21)?;
            Ok(())
        });
    }
}

/// Returns the model of the goldens of 16 cells: `gain exp(field)` at some cells.
fn rate_at_cells(rank: &mut Rank, golden: &Value) -> Result<Model, InferenceError> {
    let mesh = grid_of(rank, golden);
    let field = CorrelatedField::new(rank, &mesh, &prior_of(golden))?.model()?;
    let cells: Vec<[u64; 3]> = numbers(&golden["cells"]).into_iter().map(|cell| [0, 0, cell as u64]).collect();
    let seen = Model::new(Select::cells(rank, field.target(), &cells)?);
    let text = format!("fn rate(x: f32) -> f32 {{ return {:?} * exp(x); }}", golden["gain"].as_f64().unwrap());
    let rate = Model::new(PointwiseOperator::wgsl(&text, "rate", seen.target(), "rate")?);
    Ok(field.then(&seen)?.then(&rate)?)
}

/// Returns what this rank has of numbers at the golden's cells.
fn own_cells(rank: &Rank, golden: &Value, values: &Value) -> Vec<f64> {
    let mesh = grid_of(rank, golden);
    let cells = numbers(&golden["cells"]);
    let own = cells.iter().zip(numbers(values)).filter(|(cell, _)| mesh.owns([0, 0, **cell as u64]));
    own.map(|(_, value)| value).collect()
}

#[test]
fn amended_likelihoods_are_those_of_the_goldens_on_any_ranks() {
    let all = golden("inference.json");
    for name in ["poisson_16", "gaussian_16", "student_16"] {
        let golden = &all[name];
        let mut first = None;
        for parts in [[1, 1], [1, 2], [1, 3], [2, 2]] {
            let found = ranks(parts, |rank| {
                let model = rate_at_cells(rank, golden)?;
                let values = own_cells(rank, golden, &golden["data"]);
                let (_, leaf) = model.target().only().unwrap();
                let data = Data { name: "data", leaf, values: &values, mask: None };
                let likelihood = match name {
                    "poisson_16" => Likelihood::poisson(rank, &data, None)?,
                    "gaussian_16" => Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(0.3))?,
                    _ => Likelihood::student_t(rank, &data, NoiseLevel::Uniform(0.3), 3.0)?,
                };
                let likelihood = likelihood.amend(&model)?;
                assert_eq!(likelihood.degrees_of_freedom(), 12);
                let x = field(rank, likelihood.domain(), &numbers(&golden["pos"]))?;
                let v = field(rank, likelihood.domain(), &numbers(&golden["tangent"]))?;
                let eta = field(rank, likelihood.data_space(), &own_cells(rank, golden, &golden["eta_d"]))?;
                let prior = rank.vector_dot(&x, &x)? / 2.0;
                let energy = likelihood.energy(rank, &x)?;
                let wanted = golden["energy"].as_f64().unwrap() - prior;
                // The model's values are good to some 32 roundings; the slopes along them add up to
                // a few times the energy.
                let away = (energy - wanted).abs() / (f64::from(f32::EPSILON) * wanted.abs());
                assert!(away < ROUNDINGS, "{name}: {energy} {wanted}, {away} roundings");
                let at = likelihood.at(rank, &x)?;
                let (mut gradient, mut metric, mut left, mut right, mut tau) = (
                    Vector::new(&rank.gpu, likelihood.domain())?,
                    Vector::new(&rank.gpu, likelihood.domain())?,
                    Vector::new(&rank.gpu, likelihood.domain())?,
                    Vector::new(&rank.gpu, likelihood.data_space())?,
                    Vector::new(&rank.gpu, likelihood.data_space())?,
                );
                at.gradient(rank, &mut gradient)?;
                at.metric(rank, &v, &mut metric)?;
                at.left_sqrt(rank, &eta, &mut left)?;
                at.right_sqrt(rank, &v, &mut right)?;
                at.coordinates(rank, &x, &mut tau)?;
                close(rank, name, &right, &own_cells(rank, golden, &golden["right_sqrt_tangent"]), ROUNDINGS)?;
                close(rank, name, &tau, &own_cells(rank, golden, &golden["tau"]), ROUNDINGS)?;
                // Without what the prior adds.
                let less = |name: &str, other: &str| -> Vec<f64> {
                    numbers(&golden[name]).iter().zip(numbers(&golden[other])).map(|(a, b)| a - b).collect()
                };
                let wanted = [
                    ("gradient", &gradient, less("gradient", "pos")),
                    ("metric", &metric, less("metric_times_tangent", "tangent")),
                    ("left", &left, numbers(&golden["left_sqrt_eta_d"])),
                ];
                for (what, found, wanted) in wanted {
                    // Of the whole vector: parts are sums of terms that cancel.
                    let most = wanted.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                    for (at, value) in flat(rank, found)? {
                        let away = (value - wanted[at]).abs() / (most * f64::from(f32::EPSILON));
                        assert!(away < 2.0 * ROUNDINGS, "{name}, {what}[{at}]: {value} {}, {away}", wanted[at]);
                    }
                }
                if parts == [1, 1] {
                    check_metric(rank, &likelihood, &x, 21)?;
                    let report = likelihood.report(rank, &x)?;
                    assert!(report[0].reduced_chi_squared > 0.1 && report[0].count == 12, "{report:?}");
                }
                let whole = [bits(rank, &gradient)?, bits(rank, &metric)?, bits(rank, &left)?];
                Ok((energy.to_bits(), whole))
            });
            let energies: Vec<u64> = found.iter().map(|rank| rank.0).collect();
            let found = [0, 1, 2].map(|n| together(found.iter().map(|rank| rank.1[n].clone()).collect()));
            let (energy, vectors) = first.get_or_insert((energies[0], found.clone()));
            assert!(energies.iter().all(|own| own == energy) && *vectors == found, "{name} {parts:?}");
        }
    }
}

/// Returns the log-normal rate of 64 x 64 cells of the goldens, and the likelihood of this rank's
/// counts.
fn large_poisson(rank: &mut Rank) -> Result<(Model, Likelihood), InferenceError> {
    let counts = numbers(&golden("poisson_64_counts.json"));
    let mut description = golden("poisson_64_given.json")["model"].clone();
    description["kind"] = "power".into();
    let mesh = grid(rank, &[64, 64], &[1.0 / 64.0]);
    let correlated = CorrelatedField::new(rank, &mesh, &prior_of(&description))?.model()?;
    let rate = "fn rate(x: f32) -> f32 { return exp(x); }";
    let rate = correlated.then(&Model::new(PointwiseOperator::wgsl(rate, "rate", correlated.target(), "rate")?))?;
    let leaf = Leaf::cells(&mesh);
    let part = mesh.own();
    // Along the first axis there is one cell.
    let lines = part[1].clone().filter(|_| part[0].contains(&0));
    let cells = lines.flat_map(|j| part[2].clone().map(move |k| (64 * j + k) as usize));
    let own: Vec<f64> = cells.map(|at| counts[at]).collect();
    let data = Data { name: "counts", leaf: &leaf, values: &own, mask: None };
    let likelihood = Likelihood::poisson(rank, &data, None)?.amend(&rate)?;
    Ok((rate, likelihood))
}

/// Statistics of logarithms of rates in samples, and the true ones: the relative error of the mean
/// rate, the error of the mean logarithm (root of mean square), the mean of its standard deviation,
/// and the parts of the cells whose truth is within one and two of these.
fn away_from(truth: &[f64], samples: &[Vec<f64>]) -> [f64; 5] {
    let (count, cells) = (samples.len() as f64, truth.len() as f64);
    let (mut error, mut power, mut rms, mut width, mut within) = (0.0, 0.0, 0.0, 0.0, [0.0; 2]);
    for (cell, truth) in truth.iter().enumerate() {
        let mean = samples.iter().map(|s| s[cell]).sum::<f64>() / count;
        let std = (samples.iter().map(|s| (s[cell] - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        let rate = samples.iter().map(|s| s[cell].exp()).sum::<f64>() / count;
        error += (rate - truth.exp()).powi(2);
        power += truth.exp().powi(2);
        rms += (mean - truth).powi(2) / cells;
        width += std / cells;
        for (within, widths) in within.iter_mut().zip([1.0, 2.0]) {
            *within += f64::from(u8::from((mean - truth).abs() < widths * std)) / cells;
        }
    }
    [(error / power).sqrt(), rms.sqrt(), width, within[0], within[1]]
}

/// A fit has the statistics of four fits by NIFTy in f64 with other random numbers, within 5 of the
/// standard deviations of these, and what 3 iterations differ from 8 in: it begins at the truth,
/// where NIFTy's energies are up to 85 below those after 8 iterations.
#[test]
fn a_fit_of_the_large_poisson_problem_has_the_known_statistics() {
    ranks([1, 1], |rank| {
        let (rate, likelihood) = large_poisson(rank)?;
        let n: usize = likelihood.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
        let truth = field(rank, likelihood.domain(), &white(n, 601))?;
        let groups = SampleGroups::one(&Communicator::solo());
        let options = |iteration| IterationOptions {
            pairs: 4,
            sampling: if iteration == 0 { Sampling::Linear(Draw::New) } else { Sampling::Curved(Draw::New) },
            linear: CgOptions { maxiter: Some(100), ..CgOptions::absdelta(1e-5 * n as f64) },
            curve: NewtonOptions { xtol: 1e-4, ..NewtonOptions::default().steps(5) },
            position: NewtonOptions { xtol: 1e-4, ..NewtonOptions::default().steps(35) },
            ..IterationOptions::default()
        };
        let options = FitOptions::new(3).each(options).seed(3);
        let fit = Fit::new(rank, &likelihood, &groups, &truth, &options)?.run(rank)?;
        let logarithms = |rank: &mut Rank, x: &Vector| -> Result<Vec<f64>, InferenceError> {
            let value = rate.value(rank, x)?;
            Ok(flat(rank, &value)?.into_iter().map(|(_, rate)| rate.ln()).collect())
        };
        let true_rate = logarithms(rank, &truth)?;
        let mut samples = Vec::new();
        for sample in fit.samples().own() {
            let place = fit.samples().at(rank, sample)?;
            samples.push(logarithms(rank, &place)?);
        }
        let [error, rms, width, one, two] = away_from(&true_rate, &samples);
        let last = fit.history().last().unwrap();
        // What is found, the mean of NIFTy's four fits, their standard deviation, and what a fit of
        // 3 iterations from the truth may have beside that: what NIFTy's one fit from there has
        // after 8.
        let found = [
            ("energy", last.energy, -21396.4, 27.3, 85.0),
            ("reduced chi-squared", last.chi_squared[0].unwrap(), 1.0065, 0.0090, 0.0),
            ("relative error of the rate", error, 0.16017, 0.00052, 0.0002),
            ("error of the logarithm", rms, 0.4706, 0.0017, 0.0046),
            ("deviation of the logarithm", width, 0.4402, 0.0025, 0.0075),
            ("within one deviation", one, 0.6541, 0.0046, 0.0129),
            ("within two", two, 0.8973, 0.0028, 0.0085),
            ("chi-squared of latent values", last.chi_squared[1].unwrap(), 1.0266, 0.0065, 0.0),
        ];
        for (what, found, wanted, deviation, more) in found {
            assert!((found - wanted).abs() < 5.0 * deviation + more, "{what}: {found}, not {wanted} +- {deviation}");
        }
        Ok(())
    });
}

/// Counts of 64 x 64 cells at the start of the golden's run.
#[test]
fn the_large_poisson_problem_starts_as_the_golden() {
    let all = golden("poisson_64_given.json");
    let start = &all["start"];
    let mut first = None;
    for parts in [[1, 1], [2, 2]] {
        let found = ranks(parts, |rank| {
            let (_, likelihood) = large_poisson(rank)?;
            let n: usize = likelihood.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum();
            let x = white(n, 603).iter().map(|value| 0.1 * value).collect::<Vec<_>>();
            let x = field(rank, likelihood.domain(), &x)?;
            let v = field(rank, likelihood.domain(), &white(n, 604))?;
            let along = field(rank, likelihood.domain(), &white(n, 606))?;
            let prior = rank.vector_dot(&x, &x)? / 2.0;
            let at = likelihood.at(rank, &x)?;
            let energy = at.energy(rank)? + prior;
            let (mut gradient, mut metric) =
                (Vector::new(&rank.gpu, likelihood.domain())?, Vector::new(&rank.gpu, likelihood.domain())?);
            at.gradient(rank, &mut gradient)?;
            at.metric(rank, &v, &mut metric)?;
            rank.vector_axpby(1.0, &x, 1.0, &mut gradient)?;
            rank.vector_axpby(1.0, &v, 1.0, &mut metric)?;
            let found = [
                ("energy", energy),
                ("gradient_norm", rank.vector_dot(&gradient, &gradient)?.sqrt()),
                ("metric_norm", rank.vector_dot(&metric, &metric)?.sqrt()),
                ("gradient_dot", rank.vector_dot(&gradient, &along)?),
                ("metric_dot", rank.vector_dot(&metric, &along)?),
            ];
            for (what, found) in found {
                let wanted = start[what].as_f64().unwrap();
                // Dots are what is left of terms of up to the norm times 64; each is good to some
                // 32 roundings.
                let scale = if what.ends_with("dot") { 5000.0 * 64.0 / 8.0 } else { wanted.abs() };
                assert!(
                    (found - wanted).abs() < ROUNDINGS * f64::from(f32::EPSILON) * scale,
                    "{what}: {found} {wanted}"
                );
            }
            let values = flat(rank, &gradient)?;
            Ok(values.into_iter().map(|(at, value)| (at, (value as f32).to_bits())).collect::<Vec<_>>())
        });
        let found = together(found);
        assert_eq!(*first.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

/// Energies of 10^7 against f64: for the model's values as they are, in f32.
#[test]
fn energies_resolve_small_differences() {
    ranks([1, 1], |rank| {
        let n = 4096;
        let leaf = Leaf::points(n as u64, n as u64);
        let single = |value: f64| f64::from(value as f32);
        let noise = white(n, 71);
        let first: Vec<f64> = noise.iter().map(|x| single(3000.0 + 500.0 * x)).collect();
        let second: Vec<f64> = white(n, 72).iter().map(|x| single((0.5 * x).exp())).collect();
        let counts: Vec<f64> = first.iter().zip(white(n, 73)).map(|(s, x)| (s + 60.0 * x).round().max(0.0)).collect();
        let numbers: Vec<f64> = first.iter().zip(white(n, 74)).map(|(s, x)| single(s + 70.0 * x)).collect();
        let of = |values| Data { name: "data", leaf: &leaf, values, mask: None };
        let both = [&first[..], &second].concat();
        let third = |dof: f64, q: f64| (dof + 1.0) / 2.0 * (q / dof).ln_1p();
        let pairs = || first.iter().zip(&second).zip(&numbers).map(|((s, c), d)| (*s, *c, *d));
        let cases = [
            (
                Likelihood::poisson(rank, &of(&counts), None)?,
                &first,
                first.iter().zip(&counts).map(|(s, d)| s - d * s.ln()).sum::<f64>(),
            ),
            (
                Likelihood::gaussian(rank, &of(&numbers), NoiseLevel::Uniform(1.0))?,
                &first,
                pairs().map(|(s, _, d)| (s - d).powi(2) / 2.0).sum(),
            ),
            (
                Likelihood::student_t(rank, &of(&numbers), NoiseLevel::Uniform(1.0), 2500.0)?,
                &first,
                pairs().map(|(s, _, d)| third(2500.0, (s - d).powi(2))).sum(),
            ),
            (
                Likelihood::gaussian_inferred(rank, &of(&numbers))?,
                &both,
                pairs().map(|(m, c, d)| (c * (m - d)).powi(2) / 2.0 - c.ln()).sum(),
            ),
            (
                Likelihood::student_t_inferred(rank, &of(&numbers), 2500.0)?,
                &both,
                pairs().map(|(m, c, d)| third(2500.0, ((m - d) / c).powi(2)) + c.ln()).sum(),
            ),
        ];
        for (number, (likelihood, x, wanted)) in cases.into_iter().enumerate() {
            let x = field(rank, likelihood.domain(), x)?;
            let found = likelihood.energy(rank, &x)?;
            assert!(wanted.abs() > 3e6, "{number}: {wanted}");
            assert!((found - wanted).abs() < 1e-4 * (wanted.abs() / 1e7).max(1.0), "{number}: {found} {wanted}");
        }
        Ok(())
    });
}

/// Same with classes, whose energies are logarithms of sums: of near logits, and of logits far
/// from that of the datum.
#[test]
fn energies_of_classes_resolve_small_differences() {
    ranks([1, 1], |rank| {
        let (n, classes) = (4096, 5);
        let leaf = Leaf::points(n as u64, n as u64);
        let own: Vec<f64> = (0..n).map(|i| (i % classes) as f64).collect();
        let data = Data { name: "class", leaf: &leaf, values: &own, mask: None };
        let likelihood = Likelihood::categorical(rank, &data, classes as u32)?;
        let noise = white(n * classes, 75);
        for (spread, below) in [(1.0, 0.0), (30.0, 0.0), (0.3, 2500.0)] {
            let logit = |at: usize| if own[at % n] == (at / n) as f64 { -below } else { 0.0 };
            let s: Vec<f64> = (0..n * classes).map(|at| f64::from((logit(at) + spread * noise[at]) as f32)).collect();
            let energy = |i: usize| {
                let all = (0..classes).map(|class| s[class * n + i]);
                let most = all.clone().fold(f64::NEG_INFINITY, f64::max);
                most - s[own[i] as usize * n + i] + all.map(|logit| (logit - most).exp()).sum::<f64>().ln()
            };
            let wanted: f64 = (0..n).map(energy).sum();
            let x = field(rank, likelihood.domain(), &s)?;
            let found = likelihood.energy(rank, &x)?;
            assert!((found - wanted).abs() < 1e-11 * wanted, "{spread} {below}: {found} {wanted}");
        }
        Ok(())
    });
}

/// Log-normal rates that are too small or too great for f32: no derivative is NaN where the energy
/// is finite, and where it is not that is an error.
#[test]
fn rates_beyond_the_range_of_floats_are_finite_or_errors() {
    ranks([1, 1], |rank| {
        let x = [-1e4, -200.0, -103.5, -95.0, -88.0, -80.0, 0.0, 80.0];
        let n = x.len();
        let leaf = Leaf::points(n as u64, n as u64);
        let space = Space::of("x", leaf.clone())?;
        let rate = "fn rate(x: f32) -> f32 { return exp(x); }";
        let rate = Model::new(PointwiseOperator::wgsl(rate, "rate", &space, "counts")?);
        let mut of = |counts: &[f64], x: &[f64]| -> Result<_, InferenceError> {
            let data = Data { name: "counts", leaf: &leaf, values: counts, mask: None };
            let likelihood = Likelihood::poisson(rank, &data, None)?.amend(&rate)?;
            let x = field(rank, likelihood.domain(), x)?;
            let at = likelihood.at(rank, &x)?;
            let mut out = Vector::new(&rank.gpu, likelihood.domain())?;
            let ones = field(rank, likelihood.domain(), &vec![1.0; n])?;
            let mut found = Vec::new();
            at.gradient(rank, &mut out)?;
            found.extend(flat(rank, &out)?);
            at.metric(rank, &ones, &mut out)?;
            found.extend(flat(rank, &out)?);
            let residual = likelihood.normalized_residual(rank, &x)?.unwrap();
            found.extend(flat(rank, &residual)?);
            Ok((at.energy(rank), found.into_iter().map(|(_, value)| value).collect::<Vec<f64>>()))
        };
        // Without counts energy, gradient and metric all are the rate, and the residual is its
        // root.
        let (energy, found) = of(&[0.0; 8], &x)?;
        let wanted: f64 = x.iter().map(|x| x.exp()).sum();
        assert!((energy? / wanted - 1.0).abs() < 1e-5);
        for (at, found) in found.iter().enumerate() {
            let rate = x[at % n].exp();
            let wanted = if at < 2 * n { rate } else { -rate.sqrt() };
            // What is below the least normal number may be 0.
            assert!(
                (found - wanted).abs() <= 1e-5 * wanted.abs() + 2e-19 * f64::from(u8::from(at >= 2 * n)) + 2e-38,
                "{at}: {found}"
            );
        }
        // Where something was counted, a rate of 0 is impossible.
        let (energy, found) = of(&[3.0; 8], &x)?;
        assert!(matches!(energy, Err(InferenceError::NotFinite { .. })), "{energy:?}");
        assert!(found.iter().all(|value| value.is_finite()), "{found:?}");
        let (energy, found) = of(&[3.0; 8], &[-80.0, -60.0, -10.0, 0.0, 1.0, 10.0, 60.0, 80.0])?;
        assert!(energy.is_ok() && found.iter().all(|value| value.is_finite()), "{energy:?} {found:?}");
        // Too great for f32.
        for counts in [[0.0; 8], [3.0; 8]] {
            let (energy, _) = of(&counts, &[0.0, 0.0, 0.0, 0.0, 89.0, 0.0, 0.0, 0.0])?;
            assert!(matches!(energy, Err(InferenceError::NotFinite { .. })), "{energy:?}");
        }
        // A model that says a negative rate, where nothing was counted, too.
        let data = Data { name: "counts", leaf: &leaf, values: &[0.0; 8], mask: None };
        let likelihood = Likelihood::poisson(rank, &data, None)?;
        let s = field(rank, likelihood.domain(), &[1.0, 2.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0])?;
        assert!(matches!(likelihood.energy(rank, &s), Err(InferenceError::NotFinite { .. })));
        Ok(())
    });
}

#[test]
fn priors_are_those_of_the_goldens() {
    let all = golden("inference_models.json");
    let golden = &all["priors"];
    let xi = numbers(&golden["xi"]);
    // How far the device may be, relative and of a unit: roundings, the fits', and the errors of
    // exponentials.
    let cases = [
        ("normal_2_p3", Prior::Normal { mean: 2.0, std: 0.3 }, 4e-7),
        ("lognormal_3_1", Prior::LogNormal { mean: 3.0, std: 1.0 }, 2e-6),
        ("uniform_m1_4", Prior::Uniform { low: -1.0, high: 4.0 }, 2e-6),
        ("laplace_2", Prior::Laplace { scale: 2.0 }, 2e-6),
        ("invgamma_a2_scale3", Prior::InverseGamma { shape: 2.0, scale: 3.0 }, 1e-5),
    ];
    ranks([1, 1], |rank| {
        for (name, prior, bound) in cases {
            let (wanted, slopes) = (numbers(&golden[name]), numbers(&golden[&format!("{name}_derivative")]));
            // NIFTy tabulates the inverse gamma distribution.
            let exact = if name.starts_with("invgamma") { 2e-5 } else { 1e-11 };
            let close = |found: f64, wanted: f64, bound: f64| {
                assert!((found - wanted).abs() < bound * (1.0 + wanted.abs()), "{name}: {found} {wanted}");
            };
            for ((xi, wanted), slope) in xi.iter().zip(&wanted).zip(&slopes) {
                close(prior.value(*xi), *wanted, exact);
                close(prior.derivative(*xi), *slope, if exact > 1e-6 { 1e-2 } else { exact });
                let h = 1e-4;
                let difference = (prior.value(xi + h) - prior.value(xi - h)) / (2.0 * h);
                close(prior.derivative(*xi), difference, 1e-6 * (1.0 + difference.abs()));
            }
            for leaf in [Leaf::vector(7), Leaf::parameters(7)] {
                let domain = Space::of("xi", leaf)?;
                let model = prior.operator(&domain, "x")?;
                let x = field(rank, &domain, &xi)?;
                let at = model.at(rank, &x)?;
                let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, &domain)?);
                let ones = field(rank, &domain, &[1.0; 7])?;
                at.jvp(rank, &ones, &mut jvp)?;
                at.vjp(rank, &at.value, &mut vjp)?;
                let found = [&at.value, &jvp, &vjp].map(|field| flat(rank, field));
                let [value, jvp, vjp] = found;
                let (value, jvp, vjp) = (value?, jvp?, vjp?);
                for (n, &xi) in xi.iter().enumerate() {
                    close(value[n].1, prior.value(xi), bound);
                    // A fit's slope has some digits less.
                    close(jvp[n].1, prior.derivative(xi), 8.0 * bound);
                    close(vjp[n].1, jvp[n].1 * value[n].1, 4e-7);
                }
            }
        }
        let space = Space::of("xi", Leaf::vector(7))?;
        let refused = [
            Prior::Normal { mean: f64::NAN, std: 1.0 },
            Prior::LogNormal { mean: -1.0, std: 1.0 },
            Prior::Uniform { low: 1.0, high: 1.0 },
            Prior::Laplace { scale: 0.0 },
            Prior::InverseGamma { shape: 2.0, scale: -3.0 },
        ];
        for prior in refused {
            assert!(matches!(prior.operator(&space, "x"), Err(InferenceError::Invalid { .. })), "{prior:?}");
        }
        Ok(())
    });
}

/// Returns what a likelihood of few data gives: energy, gradient, metric times a vector, and the
/// residual.
fn all_of(
    rank: &mut Rank,
    likelihood: &Likelihood,
    x: &[f64],
    v: &[f64],
) -> Result<(f64, [Vec<f64>; 2]), InferenceError> {
    let (x, v) = (field(rank, likelihood.domain(), x)?, field(rank, likelihood.domain(), v)?);
    let at = likelihood.at(rank, &x)?;
    let mut out = Vector::new(&rank.gpu, likelihood.domain())?;
    at.gradient(rank, &mut out)?;
    let gradient = flat(rank, &out)?.into_iter().map(|(_, value)| value).collect();
    at.metric(rank, &v, &mut out)?;
    let metric = flat(rank, &out)?.into_iter().map(|(_, value)| value).collect();
    check_metric(rank, likelihood, &x, 21)?;
    Ok((at.energy(rank)?, [gradient, metric]))
}

#[test]
fn what_is_masked_does_not_count() {
    ranks([1, 1], |rank| {
        let counts = [3.0, f64::NAN, 0.0, 7.0, 2.0, -4.0];
        let mask = [true, false, true, true, true, false];
        let kept = [0, 2, 3, 4];
        let exposure = [2.0, 1.0, 0.5, 3.0, 1.0, 0.0];
        let (x, v) = (white(12, 31).iter().map(|x| x.exp()).collect::<Vec<_>>(), white(12, 32));
        let (leaf, few) = (Leaf::points(6, 6), Leaf::points(4, 4));
        let of = |values: &[f64], components: usize| -> Vec<f64> {
            (0..components).flat_map(|c| kept.map(|at| values[6 * c + at])).collect()
        };
        let small = of(&counts, 1);
        let all = Data { name: "data", leaf: &leaf, values: &counts, mask: Some(&mask) };
        let alone = Data { name: "data", leaf: &few, values: &small, mask: None };
        let sigma = [0.5; 6];
        let pairs = [
            (
                Likelihood::poisson(rank, &all, Some(&exposure))?,
                Likelihood::poisson(rank, &alone, Some(&of(&exposure, 1)))?,
                1,
            ),
            (
                Likelihood::gaussian(rank, &all, NoiseLevel::Uniform(0.5))?,
                Likelihood::gaussian(rank, &alone, NoiseLevel::Each(&sigma[..4]))?,
                1,
            ),
            (
                Likelihood::student_t(rank, &all, NoiseLevel::Each(&sigma), 4.0)?,
                Likelihood::student_t(rank, &alone, NoiseLevel::Uniform(0.5), 4.0)?,
                1,
            ),
            (Likelihood::gaussian_inferred(rank, &all)?, Likelihood::gaussian_inferred(rank, &alone)?, 2),
            (Likelihood::student_t_inferred(rank, &all, 4.0)?, Likelihood::student_t_inferred(rank, &alone, 4.0)?, 2),
        ];
        for (number, (masked, selected, components)) in pairs.into_iter().enumerate() {
            assert_eq!([&masked, &selected].map(Likelihood::degrees_of_freedom), [4, 4]);
            let (energy, found) = all_of(rank, &masked, &x[..6 * components], &v[..6 * components])?;
            let (wanted_energy, wanted) = all_of(rank, &selected, &of(&x, components), &of(&v, components))?;
            assert!((energy - wanted_energy).abs() < 1e-9 * (1.0 + energy.abs()), "{number}: {energy} {wanted_energy}");
            for (found, wanted) in found.iter().zip(&wanted) {
                let rest = (0..6 * components).filter(|at| !mask[at % 6]);
                assert!(rest.clone().all(|at| found[at] == 0.0), "{number}: {found:?}");
                for (found, wanted) in of(found, components).iter().zip(wanted) {
                    assert!((found - wanted).abs() <= 1e-6 * (1.0 + wanted.abs()), "{number}: {found} {wanted}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn each_number_that_a_model_says_of_a_datum_counts_for_the_evidence() {
    ranks([1, 1], |rank| {
        let (leaf, values) = (six_points(rank), [0.5, -1.0, 2.0, 0.25, 0.0, 1.0]);
        let data = six(rank, &values, &leaf);
        let likelihood = Likelihood::gaussian_inferred(rank, &data)?;
        // Means of 0 and inverse deviations of 1, where curvatures are 1 and 2.
        let place = field(rank, likelihood.domain(), &[[0.0; 6], [1.0; 6]].concat())?;
        let groups = SampleGroups::one(&Communicator::solo());
        let found = evidence(rank, &likelihood, &groups, &Samples::none(place), &EvidenceOptions::default())?;
        let wanted = 6.0 * (2.0_f64.ln() + 3.0_f64.ln());
        for bound in found.log_determinant {
            assert!((bound - wanted).abs() < 1e-4, "{found:?} {wanted}");
        }
        Ok(())
    });
}

#[test]
fn chi_squared_is_of_data_that_have_residuals() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(4, 4);
        let data = |name, values| Data { name, leaf: &leaf, values, mask: None };
        let (ones, classes) = ([1.0; 4], [0.0, 2.0, 1.0, 1.0]);
        let values = Likelihood::gaussian(rank, &data("values", &ones), NoiseLevel::Uniform(1.0))?;
        let both = values.plus(&Likelihood::categorical(rank, &data("classes", &classes), 3)?)?;
        assert_eq!(both.degrees_of_freedom(), 8);
        let groups = SampleGroups::one(&Communicator::solo());
        let options = |_| IterationOptions {
            pairs: 0,
            position: NewtonOptions::default().steps(0),
            ..IterationOptions::default()
        };
        let start = field(rank, both.domain(), &[0.0; 16])?;
        let fit = Fit::new(rank, &both, &groups, &start, &FitOptions::new(1).each(options))?.run(rank)?;
        assert_eq!(fit.history()[0].chi_squared[0], Some(1.0));
        Ok(())
    });
}

#[test]
fn classes_follow_the_softmax() {
    ranks([1, 1], |rank| {
        let (classes, places) = (5, 7);
        let leaf = Leaf::points(places as u64, places as u64);
        let own = [0.0, 4.0, 2.0, 2.0, 9.0, 1.0, 3.0];
        let mask = own.map(|class| class < 5.0);
        let data = Data { name: "class", leaf: &leaf, values: &own, mask: Some(&mask) };
        let likelihood = Likelihood::categorical(rank, &data, classes as u32)?;
        let (s, v) = (white(classes * places, 51), white(classes * places, 52));
        let (energy, [gradient, metric]) = all_of(rank, &likelihood, &s, &v)?;
        let mut wanted_energy = 0.0;
        for place in 0..places {
            let at = |class: usize| class * places + place;
            let sum: f64 = (0..classes).map(|class| s[at(class)].exp()).sum();
            let p: Vec<f64> = (0..classes).map(|class| s[at(class)].exp() / sum).collect();
            let along: f64 = (0..classes).map(|class| p[class] * v[at(class)]).sum();
            let weight = f64::from(u8::from(mask[place]));
            if mask[place] {
                wanted_energy -= p[own[place] as usize].ln();
            }
            for class in 0..classes {
                let hit = f64::from(u8::from(own[place] as usize == class));
                let wanted = [weight * (p[class] - hit), weight * p[class] * (v[at(class)] - along)];
                for (found, wanted) in [gradient[at(class)], metric[at(class)]].into_iter().zip(wanted) {
                    assert!((found - wanted).abs() < 2e-6, "{place} {class}: {found} {wanted}");
                }
            }
        }
        assert!((energy - wanted_energy).abs() < 1e-5, "{energy} {wanted_energy}");
        let x = field(rank, likelihood.domain(), &s)?;
        assert!(likelihood.normalized_residual(rank, &x)?.is_none() && likelihood.report(rank, &x)?.is_empty());
        let mut out = Vector::new(&rank.gpu, likelihood.data_space())?;
        let error = likelihood.at(rank, &x)?.coordinates(rank, &x, &mut out).unwrap_err();
        assert!(matches!(error, InferenceError::NoTransformation { .. }), "{error}");
        Ok(())
    });
}

#[test]
fn sums_of_likelihoods_are_sums() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(5, 5);
        let (counts, values) = ([1.0, 4.0, 0.0, 2.0, 3.0], [0.5, -1.0, 2.0, 0.25, 0.0]);
        let first = Data { name: "counts", leaf: &leaf, values: &counts, mask: None };
        let second = Data { name: "angles", leaf: &leaf, values: &values, mask: None };
        let space = |names: &[&str]| Space::new(names.iter().map(|name| (*name, leaf.clone())));
        let rate = "fn rate(a: f32, b: f32) -> f32 { return exp(a + 0.5 * b); }";
        let rate = Model::new(PointwiseOperator::wgsl(rate, "rate", &space(&["a", "b"])?, "counts")?);
        let angle = "fn angle(b: f32, c: f32) -> f32 { return b * c; }";
        let angle = Model::new(PointwiseOperator::wgsl(angle, "angle", &space(&["b", "c"])?, "angles")?);
        let first = Likelihood::poisson(rank, &first, None)?.amend(&rate)?;
        let second = Likelihood::gaussian(rank, &second, NoiseLevel::Uniform(0.5))?.amend(&angle)?;
        let both = first.plus(&second)?;
        assert_eq!(both.domain().names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(both.data_space().names().collect::<Vec<_>>(), ["angles", "counts"]);
        let (x, v) = (white(15, 61), white(15, 62));
        let (energy, [gradient, metric]) = all_of(rank, &both, &x, &v)?;
        let (first_energy, [first_gradient, first_metric]) = all_of(rank, &first, &x[..10], &v[..10])?;
        let (second_energy, [second_gradient, second_metric]) = all_of(rank, &second, &x[5..], &v[5..])?;
        assert!((energy - first_energy - second_energy).abs() < 1e-12 * energy.abs());
        for (found, first, second) in
            [(gradient, first_gradient, second_gradient), (metric, first_metric, second_metric)]
        {
            for at in 0..15 {
                let wanted = first.get(at).unwrap_or(&0.0) + if at < 5 { 0.0 } else { second[at - 5] };
                assert!((found[at] - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{at}: {} {wanted}", found[at]);
            }
        }
        let mut tau = Vector::new(&rank.gpu, both.data_space())?;
        let x = field(rank, both.domain(), &x)?;
        both.at(rank, &x)?.coordinates(rank, &x, &mut tau)?;
        assert_eq!(both.report(rank, &x)?.iter().map(|report| report.count).collect::<Vec<_>>(), [5, 5]);
        let error = first.plus(&first).unwrap_err();
        assert!(error.to_string().contains("two data sets"), "{error}");
        Ok(())
    });
}

/// One model says what two data sets are of: as one kernel, as two models side by side, and after
/// something that both take.
#[test]
fn sums_are_amended_by_one_model() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(5, 5);
        let (counts, values) = ([1.0, 4.0, 0.0, 2.0, 3.0], [0.5, -1.0, 2.0, 0.25, 0.0]);
        let data = |name, values| Data { name, leaf: &leaf, values, mask: None };
        let first = Likelihood::poisson(rank, &data("counts", &counts), None)?;
        let second = Likelihood::gaussian(rank, &data("angles", &values), NoiseLevel::Uniform(0.5))?;
        let both = first.plus(&second)?;
        let space = |names: &[&str]| Space::new(names.iter().map(|name| (*name, leaf.clone())));
        let rate = "fn rate(a: f32, b: f32) -> f32 { return exp(a + 0.5 * b); }";
        let rate = Model::new(PointwiseOperator::wgsl(rate, "rate", &space(&["a", "b"])?, "counts")?);
        let angle = "fn angle(b: f32, c: f32) -> f32 { return b * c; }";
        let angle = Model::new(PointwiseOperator::wgsl(angle, "angle", &space(&["b", "c"])?, "angles")?);
        let halves = field(rank, angle.target(), &[0.5; 5])?;
        let half = angle.then(&Model::new(Diagonal::new(angle.target(), &halves)?))?;
        let beside = rate.zip(&half)?;
        let (x, v) = (white(15, 63), white(15, 64));
        let after = Model::identity(&space(&["a", "b", "c"])?)?.then(&beside)?;
        for (model, angle) in [(rate.zip(&angle)?, &angle), (beside.clone(), &half), (after, &half)] {
            let apart = first.amend(&rate)?.plus(&second.amend(angle)?)?;
            let together = both.amend(&model)?;
            assert_eq!(together.domain().names().collect::<Vec<_>>(), ["a", "b", "c"]);
            let (energy, [gradient, metric]) = all_of(rank, &together, &x, &v)?;
            let (wanted_energy, [wanted_gradient, wanted_metric]) = all_of(rank, &apart, &x, &v)?;
            assert!((energy - wanted_energy).abs() < 1e-6 * energy.abs(), "{model:?}: {energy}, not {wanted_energy}");
            for (found, wanted) in gradient.iter().chain(&metric).zip(wanted_gradient.iter().chain(&wanted_metric)) {
                assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "{model:?}: {found}, not {wanted}");
            }
        }
        let error = both.amend(&rate).unwrap_err().to_string();
        assert!(error.contains("angles"), "{error}");
        let error = beside.giving(&space(&["counts", "lengths"])?).unwrap_err().to_string();
        assert!(error.contains("lengths"), "{error}");
        Ok(())
    });
}

/// Two data sets of one field: the field is transformed once for both, and the preconditioner finds
/// it.
#[test]
fn data_sets_share_the_model_that_amends_their_sum() {
    for parts in [[1, 1], [2, 1]] {
        ranks(parts, |rank| {
            let mesh = grid(rank, &[8, 6], &[0.1, 0.1]);
            let amplitude = AmplitudePrior::NonParametric {
                of: PriorSpectrum::Power,
                fluctuations: [1.0, 0.3],
                slope: [-3.0, 0.5],
                flexibility: Some([0.5, 0.2]),
                asperity: None,
            };
            let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }];
            let prior = FieldPrior { name: String::new(), offset_mean: 1.0, offset_std: [0.5, 0.2], axes };
            let sky = CorrelatedField::new(rank, &mesh, &prior)?.model()?;
            let leaf = Leaf::cells(&mesh);
            let own = leaf.len() as usize;
            let (twos, halves) = (vec![2.0; own], vec![0.5; own]);
            let data = |name, values| Data { name, leaf: &leaf, values, mask: None };
            let first = Likelihood::poisson(rank, &data("counts", &twos), None)?;
            let second = Likelihood::gaussian(rank, &data("depths", &halves), NoiseLevel::Uniform(0.5))?;
            let step = |text: &str, name| {
                Ok::<_, InferenceError>(Model::new(PointwiseOperator::wgsl(text, name, sky.target(), name)?))
            };
            let counts = step("fn counts(s: f32) -> f32 { return exp(s); }", "counts")?;
            let depths = step("fn depths(s: f32) -> f32 { return s * s; }", "depths")?;
            let both = Model::identity(sky.target())?.then(&counts.zip(&depths)?)?;
            // At once, and in two steps.
            let sum = first.plus(&second)?;
            let together = [sum.amend(&sky.then(&both)?)?, sum.amend(&both)?.amend(&sky)?];
            let apart = first.amend(&sky.then(&counts)?)?.plus(&second.amend(&sky.then(&depths)?)?)?;
            let x = random_field(rank, apart.domain(), 3)?;
            let v = random_field(rank, apart.domain(), 4)?;
            let mut found = Vec::new();
            for likelihood in together.iter().chain([&apart]) {
                check_metric(rank, likelihood, &x, 21)?;
                let at = likelihood.at(rank, &x)?;
                assert_eq!(at.fields(rank)?.len(), 1);
                let mut out = rank.like(&x)?;
                at.gradient(rank, &mut out)?;
                let gradient = flat(rank, &out)?;
                rank.recorder.wait()?;
                let before = rank.recorder.counts().dispatches;
                at.metric(rank, &v, &mut out)?;
                rank.recorder.wait()?;
                let dispatches = rank.recorder.counts().dispatches - before;
                let metric = flat(rank, &out)?;
                let chi_squared =
                    likelihood.report(rank, &x)?.iter().map(|report| report.reduced_chi_squared).collect::<Vec<_>>();
                let energies = [at.energy(rank)?, likelihood.energy(rank, &x)?];
                found.push((energies, chi_squared, [gradient, metric].concat(), dispatches));
            }
            let [wanted, shared] = [&found[2], &found[0]];
            for one in &found[..2] {
                assert_eq!(one.0, wanted.0);
                assert_eq!(one.1, wanted.1);
                for ((_, found), (_, wanted)) in one.2.iter().zip(&wanted.2) {
                    assert!((found - wanted).abs() < 1e-5 * (1.0 + wanted.abs()), "{found}, not {wanted}");
                }
            }
            // The field is most of a product.
            assert!(4 * shared.3 < 3 * wanted.3, "{} dispatches, {} apart", shared.3, wanted.3);
            Ok(())
        });
    }
}

#[test]
fn data_that_cannot_be_are_refused() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(3, 3);
        let of = |values| Data { name: "sky", leaf: &leaf, values, mask: None };
        let refused = |found: Result<Likelihood, InferenceError>, what: &str| {
            let error = found.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, InferenceError::Invalid { .. }) && text.contains("data `sky`"), "{text}");
            assert!(text.contains(what), "{text}, not {what}");
        };
        let sound = [1.0, 2.0, 0.0];
        refused(Likelihood::poisson(rank, &of(&[1.0, -1.0, 0.0]), None), "number 1 is -1");
        refused(Likelihood::poisson(rank, &of(&[1.0, 2.0, 0.5]), None), "whole numbers");
        refused(Likelihood::poisson(rank, &of(&[1.0, 2.0]), None), "2 data for 3 places");
        refused(Likelihood::poisson(rank, &of(&sound), Some(&[1.0, 2.0])), "2 exposures for 3 places");
        refused(Likelihood::poisson(rank, &of(&sound), Some(&[1.0, -2.0, 1.0])), "exposure of number 1");
        refused(Likelihood::poisson(rank, &of(&sound), Some(&[1.0, 0.0, 1.0])), "exposure of 0");
        refused(Likelihood::poisson(rank, &of(&[0.0; 3]), Some(&[0.0; 3])), "none of them counts");
        refused(Likelihood::gaussian(rank, &of(&[1.0, f64::NAN, 0.0]), NoiseLevel::Uniform(1.0)), "number 1 is NaN");
        for sigma in [0.0, 1e-50, 1e50, f64::NAN] {
            refused(Likelihood::gaussian(rank, &of(&sound), NoiseLevel::Uniform(sigma)), "it must be positive");
        }
        refused(Likelihood::gaussian(rank, &of(&sound), NoiseLevel::Each(&[1.0; 2])), "standard deviations of noise");
        refused(Likelihood::gaussian(rank, &of(&sound), NoiseLevel::Each(&[1.0, 1.0, -1.0])), "number 2");
        refused(Likelihood::student_t(rank, &of(&sound), NoiseLevel::Uniform(1.0), 0.0), "degrees of freedom");
        refused(Likelihood::categorical(rank, &of(&sound), 2), "number 1 is 2");
        refused(Likelihood::categorical(rank, &of(&sound), 1), "1 classes");
        let masked = Data { mask: Some(&[false; 3]), ..of(&sound) };
        refused(Likelihood::gaussian(rank, &masked, NoiseLevel::Uniform(1.0)), "none of them counts");
        let masked = Data { mask: Some(&[true; 2]), ..of(&sound) };
        refused(Likelihood::gaussian(rank, &masked, NoiseLevel::Uniform(1.0)), "entries of the mask");
        // A model of other places.
        let likelihood = Likelihood::gaussian(rank, &of(&sound), NoiseLevel::Uniform(1.0))?;
        let space = Space::of("x", Leaf::points(4, 4))?;
        let model = Model::new(PointwiseOperator::wgsl("fn f(x: f32) -> f32 { return x; }", "f", &space, "y")?);
        let error = likelihood.amend(&model).unwrap_err().to_string();
        assert!(error.contains("sky") && error.contains("points"), "{error}");
        // Latent values that lack a leaf of the model, at the start of a fit and in a sum.
        let both = Space::new([("a", leaf.clone()), ("b", leaf.clone())])?;
        let text = "fn f(a: f32, b: f32) -> f32 { return a * b; }";
        let of_two = likelihood.amend(&Model::new(PointwiseOperator::wgsl(text, "f", &both, "sky")?))?;
        let only = Vector::zeros(&mut rank.recorder, &Space::new([("a", leaf.clone()), ("c", leaf.clone())])?)?;
        let groups = SampleGroups::one(&Communicator::solo());
        let fit = Fit::new(rank, &of_two, &groups, &only, &FitOptions::new(1));
        let error = fit.and_then(|fit| fit.run(rank)).unwrap_err();
        assert!(matches!(error, InferenceError::Operators(_)) && error.to_string().contains("`b`"), "{error}");
        let error = of_two.energy(rank, &only).unwrap_err();
        assert!(error.to_string().contains("`b`"), "{error}");
        // An energy that is not finite.
        let x = field(rank, likelihood.domain(), &[1.0, f64::INFINITY, 0.0])?;
        assert!(matches!(likelihood.energy(rank, &x), Err(InferenceError::NotFinite { .. })));
        Ok(())
    });
}

#[test]
fn a_metric_takes_the_dispatches_that_its_cost_says_and_waits_for_nothing() {
    // No other test of the process has this window, so no other test allocates on this device
    // meanwhile.
    let options = Options { window_bytes: Some(1 << 20), kernels: 404, ..meshloom_sanitizer::options().unwrap() };
    ranks_with([1, 1], &options, |rank| {
        let mesh = grid(rank, &[10, 12], &[0.1]);
        let prior = FieldPrior {
            name: String::new(),
            offset_mean: 1.0,
            offset_std: [0.5, 0.2],
            axes: vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude: power_law(1.0, -3.0) }],
        };
        let correlated = CorrelatedField::new(rank, &mesh, &prior)?.model()?;
        let rate = "fn rate(x: f32) -> f32 { return exp(x); }";
        let rate = Model::new(PointwiseOperator::wgsl(rate, "rate", correlated.target(), "rate")?);
        let model = correlated.then(&rate)?;
        let leaf = Leaf::cells(&mesh);
        let (counts, exposure, mask) = (vec![2.0; 120], vec![0.5; 120], [&[true; 100][..], &[false; 20]].concat());
        let data = Data { name: "counts", leaf: &leaf, values: &counts, mask: Some(&mask) };
        let likelihood = Likelihood::poisson(rank, &data, Some(&exposure))?.amend(&model)?;
        let x = field(rank, likelihood.domain(), &white(correlated_len(&likelihood), 81))?;
        let at = likelihood.at(rank, &x)?;
        let (v, mut out) = (random_field(rank, likelihood.domain(), 82)?, Vector::new(&rank.gpu, likelihood.domain())?);
        let mut seen = Vec::new();
        for _ in 0..3 {
            at.metric(rank, &v, &mut out)?;
            rank.recorder.submit()?;
            seen.push((rank.recorder.counts(), rank.gpu.allocations(), rank.gpu.compiled()));
        }
        let [_, (before, allocations, compiled), (after, later_allocations, later_compiled)] = seen[..] else {
            unreachable!()
        };
        assert_eq!((later_allocations, later_compiled), (allocations, compiled));
        assert_eq!((after.uploads, after.downloads), (before.uploads, before.downloads));
        // What the likelihood adds is in the model's last step, whose derivative and its transpose
        // are one dispatch.
        let cost = model.cost();
        assert_eq!(after.dispatches - before.dispatches, cost.jvp.dispatches + cost.vjp.dispatches - 1);
        // Of an image: vectors, amplitude, modes, two passes of a transform, that step; two passes,
        // modes, a sum, amplitude, vectors.
        assert_eq!(after.dispatches - before.dispatches, 12);
        Ok(())
    });
}

fn correlated_len(likelihood: &Likelihood) -> usize {
    likelihood.domain().leaves().map(|(_, leaf)| leaf.total() as usize).sum()
}

/// Bent samples of an inferred mean and width have the widths of the posterior, found by
/// integration in f64. Where the coordinates had data in place of the mean, the width's deviation
/// was 1.3 to 1.4 times as large.
#[test]
fn bent_samples_of_an_inferred_width_are_as_wide_as_the_posterior() {
    // Gauss-Hermite quadrature takes the place of random numbers.
    let nodes = [(0.0, 8.0 / 15.0), (1.355_626_2, 0.222_075_9), (2.856_970, 0.011_257_41)];
    let nodes: Vec<(f64, f64)> =
        nodes.into_iter().flat_map(|(z, w)| if z == 0.0 { vec![(z, w)] } else { vec![(z, w), (-z, w)] }).collect();
    ranks([1, 1], |rank| {
        for (n, deviation) in [(5usize, 2.0), (50, 1.0), (500, 0.5)] {
            // Data of mean 0 and this root mean square.
            let raw = white(n, 31);
            let mean = raw.iter().sum::<f64>() / n as f64;
            let size = (raw.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
            let values: Vec<f64> = raw.iter().map(|d| deviation * (d - mean) / size).collect();
            let leaf = Leaf::points(n as u64, n as u64);
            let data = Data { name: "data", leaf: &leaf, values: &values, mask: None };
            // A leaf with a value for each datum, which has no effect, makes the two numbers those
            // of all data.
            let latent = [("mean", Leaf::vector(1)), ("rest", leaf.clone()), ("width", Leaf::vector(1))];
            let latent = Space::new(latent)?;
            let text = "fn says(mean: f32, rest: f32, width: f32) -> vec2<f32> {
                return vec2<f32>(mean + 0.0 * rest, exp(width));
            }";
            let model = Model::new(PointwiseOperator::wgsl(text, "says", &latent, "data")?);
            let likelihood = Likelihood::gaussian_inferred(rank, &data)?.amend(&model)?;

            let (count, squares) = (n as f64, n as f64 * deviation * deviation);
            // -ln of the posterior of the width x, with the mean integrated out.
            let energy = |x: f64| {
                let c2 = (2.0 * x).exp();
                c2 * squares / 2.0 - count * x + x * x / 2.0 + (1.0 + count * c2).ln() / 2.0
            };
            let grid: Vec<f64> = (0..=40_000).map(|i| -4.0 + 8.0 * f64::from(i) / 40_000.0).collect();
            let least = grid.iter().map(|&x| energy(x)).fold(f64::INFINITY, f64::min);
            let weights: Vec<f64> = grid.iter().map(|&x| (least - energy(x)).exp()).collect();
            let moment = |of: &dyn Fn(f64) -> f64| {
                grid.iter().zip(&weights).map(|(&x, w)| w * of(x)).sum::<f64>() / weights.iter().sum::<f64>()
            };
            let exact_mean = moment(&|x| x);
            let exact = moment(&|x| (x - exact_mean).powi(2)).sqrt();

            // The most probable place, mean 0, and the metric there.
            let most = |x: f64| (2.0 * x).exp() * squares - count + x;
            let mut at = 0.0;
            for _ in 0..50 {
                at -= most(at) / (2.0 * (2.0 * at).exp() * squares + 1.0);
            }
            let metric = [count * (2.0 * at).exp() + 1.0, 2.0 * count + 1.0];
            let latent_values = move |mean: f64, width: f64| [vec![mean], vec![0.0; n], vec![width]].concat();
            let position = field(rank, &latent, &latent_values(0.0, at))?;
            let expansion = Expansion::new(rank, &likelihood, &position, &[])?;
            let start = field(rank, &latent, &latent_values(0.0, 0.0))?;
            let (mut sums, mut total) = ([0.0; 2], 0.0);
            for &(z, a) in &nodes {
                for &(y, b) in &nodes {
                    let t = latent_values(z * metric[0].sqrt(), y * metric[1].sqrt());
                    let given = Excitations::Given(Rc::new(
                        move |rank: &mut Rank, excitation: Excitation, out: &mut Vector| {
                            let values = if excitation.what == Excited::Prior { t.clone() } else { vec![0.0; 2 * n] };
                            *out = field(rank, &out.space().clone(), &values)?;
                            Ok(())
                        },
                    ));
                    let found = expansion.curve(rank, &given, [0, 0], 1.0, &start, &NewtonOptions::default())?;
                    let x = flat(rank, &found.x)?[n + 1].1;
                    sums = [sums[0] + a * b * x, sums[1] + a * b * x * x];
                    total += a * b;
                }
            }
            let found = (sums[1] / total - (sums[0] / total).powi(2)).sqrt();
            assert!((found / exact - 1.0).abs() < 0.05, "{n} data: {found} for {exact}");
        }
        Ok(())
    });
}

/// A check compares the coordinates' derivative with the root of the metric: coordinates with
/// data in place of the mean are refused.
#[test]
fn coordinates_of_another_metric_are_found() {
    ranks([1, 1], |rank| {
        let leaf = Leaf::points(5, 5);
        let data = Data { name: "data", leaf: &leaf, values: &[0.5, -1.0, 2.0, 0.25, 0.0], mask: None };
        let inferred = Likelihood::gaussian_inferred(rank, &data)?;
        let x = field(rank, inferred.domain(), &[0.3, -0.4, 1.0, 0.5, 0.2, 1.5, 0.8, 1.1, 2.0, 0.6])?;
        let found = check_metric(rank, &inferred, &x, 21)?;
        assert!(found.coordinates.is_some_and(|away| away < 1e-3), "{found:?}");
        let student = Likelihood::student_t_inferred(rank, &data, 3.0)?;
        assert_eq!(check_metric(rank, &student, &x, 21)?.coordinates, None);
        // Without steps nothing is bent, so that no coordinates are needed.
        let positive = "fn positive(s: vec2<f32>) -> vec2<f32> { return vec2<f32>(s.x, exp(s.y)); }";
        let positive = Model::new(PointwiseOperator::wgsl(positive, "positive", student.domain(), "data")?);
        let (student, x) = (student.amend(&positive)?, field(rank, student.domain(), &[0.0; 10])?);
        let groups = SampleGroups::one(&Communicator::solo());
        let options = |steps: u64| IterationOptions {
            sampling: Sampling::Curved(Draw::New),
            curve: NewtonOptions::default().steps(steps),
            position: NewtonOptions::default().steps(0),
            ..IterationOptions::default()
        };
        let [none, one] = [0, 1].map(|steps| FitOptions::new(1).each(|_| options(steps)));
        Fit::new(rank, &student, &groups, &x, &none)?.run(rank)?;
        let error = Fit::new(rank, &student, &groups, &x, &one)?.run(rank).unwrap_err();
        assert!(matches!(error, InferenceError::NoTransformation { .. }), "{error}");
        Ok(())
    });
}
