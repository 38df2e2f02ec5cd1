//! Operators on devices: values and derivatives against f64 on the host, adjoints by dot products,
//! the same bits for every number of ranks.

use super::every_operator;
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;
use std::path::Path;
use std::rc::Rc;

use super::ranks::{GRIDS, cells, host, mesh, number, on_grid, options, own};
use meshloom::fft::{Norm, Operator, Wave};
use meshloom::gpu::Options;
use meshloom::grid::MeshOptions;
use meshloom::inference::Prior;
use meshloom::mesh::Window;
use meshloom::operators::{
    Adjoint, Convolution, Diagonal, Differentiable, Fingerprint, Fourier, FourierFilter, Ghosts, Hartley, HostFunction,
    HostResult, KernelOperator, Leaf, Linearization, Linearized, LinesOfSight, Matrix, Model, OperatorCost,
    OperatorError, PointNumbers, PointwiseOperator, Readout, Select, Signature, Space, StencilOperator, Vector,
    Wavenumbers, check_adjoint, check_derivative, check_finite, random_field,
};
use meshloom::{Mesh, Rank};

const FLOW: &str = "
    struct State { v: vec3<f32>, energy: f32 }
    fn step(x: f32, v: vec3<f32>) -> State {
        let pushed = v * exp(-x * x) + vec3<f32>(x, 0.5, -x);
        return State(pushed, 0.5 * dot(pushed, pushed));
    }
    fn flow(x: f32, v: vec3<f32>, z: vec2<f32>) -> vec2<f32> {
        let state = step(x, v);
        // A rotation without sin and cos, which WGSL wants to 2^-11 only.
        let t = state.energy;
        let turn = vec2<f32>(1.0 - t * t, 2.0 * t) / (1.0 + t * t);
        let turned = vec2<f32>(z.x * turn.x - z.y * turn.y, z.x * turn.y + z.y * turn.x);
        return select(turned, vec2<f32>(log(1.0 + state.energy), state.v.z), x > 0.25);
    }";

/// Returns what a pointwise function takes or gives at a place, counted over batches: leaves in the
/// order of their names.
fn at_place(space: &Space, values: &BTreeMap<String, Vec<f64>>, place: usize) -> Vec<f64> {
    let mut found = Vec::new();
    for (name, leaf) in space.leaves() {
        let (places, values) = (leaf.places() as usize, &values[name]);
        let (batch, cell) = (place / places, place % places);
        let components = leaf.components as usize;
        if leaf.numbers() == 2 {
            found.extend(&values[2 * place..2 * place + 2]);
        } else {
            found.extend((0..components).map(|c| values[(batch * components + c) * places + cell]));
        }
    }
    found
}

#[test]
fn pointwise_functions_and_their_derivatives_are_those_of_the_host() {
    // All windows of a function's arguments and results are bound at once: of 16 KiB they are nine
    // at most, and some devices bind ten.
    let [whole, small] = options();
    for (options, parts) in [(whole, [1, 1]), (Options { window_bytes: Some(16 << 10), ..small }, [2, 1])] {
        on_grid(parts, &options, |rank| {
            let mesh = mesh(rank, [5, 17, 16]);
            let cells = Leaf::cells(&mesh).batch(2);
            let leaves = [("x", cells.clone()), ("v", cells.clone().components(3)), ("z", cells.clone().complex())];
            let (domain, target) = (Space::new(leaves)?, Space::of("turned", cells.clone().complex())?);
            let operator = PointwiseOperator::wgsl_onto(FLOW, "flow", &domain, &target)?;
            let function = operator.function().clone();
            let model = Model::new(operator);
            let (x, dx) = (random_field(rank, &domain, 3)?, random_field(rank, &domain, 4)?);
            let dy = random_field(rank, &target, 5)?;
            let at = model.at(rank, &x)?;
            let mut jvp = Vector::new(&rank.gpu, &target)?;
            let mut vjp = Vector::new(&rank.gpu, &domain)?;
            at.jvp(rank, &dx, &mut jvp)?;
            at.vjp(rank, &dy, &mut vjp)?;

            let [x, dx, dy, y, jvp, vjp] = [&x, &dx, &dy, &at.value, &jvp, &vjp].map(|field| host(rank, field));
            let (x, dx, dy, y, jvp, vjp) = (x?, dx?, dy?, y?, jvp?, vjp?);
            let close = |what: &str, found: Vec<f64>, wanted: Vec<f64>| {
                let scale = 1.0 + wanted.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                for (found, wanted) in found.iter().zip(&wanted) {
                    // Some forty roundings, a few more for exp, which WGSL wants to 3 + 2 |x| of
                    // them.
                    assert!(
                        (found - wanted).abs() <= 64.0 * f64::from(f32::EPSILON) * scale,
                        "{what}: {found}, {wanted}"
                    );
                }
            };
            for place in 0..2 * cells.places() as usize {
                let (at_x, at_dx) = (at_place(&domain, &x, place), at_place(&domain, &dx, place));
                let at_dy = at_place(&target, &dy, place);
                close("value", at_place(&target, &y, place), function.evaluate(&at_x));
                let wanted = function.jvp().evaluate(&[&at_x[..], &at_dx].concat());
                close("jvp", at_place(&target, &jvp, place), wanted);
                let wanted = function.vjp().evaluate(&[&at_x[..], &at_dy].concat());
                close("vjp", at_place(&domain, &vjp, place), wanted);
            }
            Ok(())
        });
    }
}

/// Software renderers treat four places together if their number allows it.
#[test]
fn places_have_the_same_bits_whatever_their_number() {
    const TEXT: &str = "fn f(x: f32, v: vec2<f32>) -> vec2<f32> {
        if x < -0.5 || (v.x > 1.0 && x != 0.25) { return vec2<f32>(max(exp(-x), 0.5), pow(abs(v.y), 1.5)); }
        return vec2<f32>(select(v.x / (1.0 + x * x), sqrt(abs(x)), v.y > x), 0.5);
    }";
    const FEW: usize = 24;
    on_grid([1, 1], &options()[0], |rank| {
        let mut found = Vec::new();
        for places in [FEW, FEW + 1, FEW + 2, FEW + 4] {
            let leaf = Leaf::vector(places as u64).batch(2);
            let domain = Space::new([("x", leaf.clone()), ("v", leaf.clone().components(2))])?;
            let target = Space::of("y", leaf.components(2))?;
            let model = Model::new(PointwiseOperator::wgsl_onto(TEXT, "f", &domain, &target)?);
            let field = |rank: &mut Rank, space: &Space, shift: f64| {
                let mut field = Vector::new(&rank.gpu, space)?;
                for (name, leaf) in space.leaves() {
                    let value = |at: usize| ((at % places * 7 + at / places) as f64 * 1.7 + shift).sin() * 2.0;
                    let values: Vec<f64> = (0..leaf.len() as usize).map(value).collect();
                    field.set(&mut rank.recorder, name, &values)?;
                }
                Ok::<_, OperatorError>(field)
            };
            let (x, dx, dy) = (field(rank, &domain, 0.1)?, field(rank, &domain, 0.7)?, field(rank, &target, 0.3)?);
            let at = model.at(rank, &x)?;
            let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, &target)?, Vector::new(&rank.gpu, &domain)?);
            at.jvp(rank, &dx, &mut jvp)?;
            at.vjp(rank, &dy, &mut vjp)?;
            let mut bits = Vec::new();
            for vector in [&at.value, &jvp, &vjp] {
                for values in host(rank, vector)?.values() {
                    let common = values.chunks(places).flat_map(|one| &one[..FEW]);
                    bits.extend(common.map(|value| value.to_bits()));
                }
            }
            found.push(bits);
        }
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
        Ok(())
    });
}

fn pointwise(text: &str, domain: &Space, result: &str) -> Result<Model, OperatorError> {
    Ok(Model::new(PointwiseOperator::wgsl(text, "f", domain, result)?))
}

#[test]
fn ten_pointwise_operators_are_one_dispatch() {
    on_grid([1, 1], &options()[0], |rank| {
        let space = Space::of("x", Leaf::cells(&mesh(rank, [4, 5, 6])))?;
        let step = pointwise("fn f(x: f32) -> f32 { return x + 0.5 * x / (1.0 + x * x); }", &space, "x")?;
        let mut chain = step.clone();
        for _ in 0..9 {
            chain = chain.then(&step)?;
        }
        // Branches of a zip, and their product, are fused as well.
        let square = pointwise("fn f(x: f32) -> f32 { return x * x; }", &space, "x")?;
        let whole = chain.times(&square)?.plus(&chain)?;
        assert!(whole.is_pointwise(), "{whole:?}");
        let x = random_field(rank, &space, 1)?;
        for model in [&chain, &whole] {
            rank.recorder.wait()?;
            let before = rank.recorder.counts();
            let at = model.at(rank, &x)?;
            let (mut dy, mut dx) = (Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, &space)?);
            at.jvp(rank, &x, &mut dy)?;
            at.vjp(rank, &x, &mut dx)?;
            rank.recorder.wait()?;
            let after = rank.recorder.counts();
            assert_eq!(after.dispatches - before.dispatches, 3, "one for each call");
            // The derivative and its transpose at once are one, too, and what one after the other
            // gives.
            let (mut at_once, mut apart) = (Vector::new(&rank.gpu, &space)?, Vector::new(&rank.gpu, &space)?);
            at.normal(rank, &x, &mut at_once)?;
            rank.recorder.wait()?;
            assert_eq!(rank.recorder.counts().dispatches - after.dispatches, 1);
            at.vjp(rank, &dy, &mut apart)?;
            for (at_once, apart) in host(rank, &at_once)?["x"].iter().zip(&host(rank, &apart)?["x"]) {
                assert!((at_once - apart).abs() <= 1e-5 * apart.abs(), "{at_once} {apart}");
            }
            let words = 4 * 4 * 5 * 6;
            let cost = model.cost();
            assert_eq!(
                [cost.apply, cost.jvp, cost.vjp].map(|cost| (cost.dispatches, cost.device_bytes)),
                [(1, 2 * words), (1, 3 * words), (1, 3 * words)]
            );
            check_adjoint(rank, model, &x)?;
            let check = check_derivative(rank, model, &x, &x)?;
            assert!((check.order.unwrap() - 2.0).abs() < 0.2, "{check}");
        }
        let (x, y) = (host(rank, &x)?, chain.value(rank, &x)?);
        for (x, y) in x["x"].iter().zip(host(rank, &y)?["x"].iter()) {
            let wanted = (0..10).fold(*x, |x, _| x + 0.5 * x / (1.0 + x * x));
            assert!((y - wanted).abs() < 1e-5, "{y} {wanted}");
        }
        Ok(())
    });
}

#[test]
fn every_operator_has_its_adjoint_and_its_derivative() {
    for parts in GRIDS {
        on_grid(parts, &options()[0], |rank| every_operator::check(rank, |_| true));
    }
}

/// Returns the fingerprint of a model.
fn fingerprint(rank: &mut Rank, model: &Model) -> Result<u64, OperatorError> {
    let mut fingerprint = Fingerprint::new();
    model.identify(rank, &mut fingerprint)?;
    Ok(fingerprint.value())
}

/// Models that depend on the ranks by their definition, or by the indices and points that the table
/// gives each rank.
const OF_THE_RANKS: [&str; 5] =
    ["Gather", "Readout", "RankCollective::replicate", "RankCollective::sum_over_ranks", "RankCollective"];

#[test]
fn fingerprints_tell_operators_apart_and_know_no_ranks() {
    let marks = |parts, of_the_ranks: bool| {
        let all = on_grid(parts, &options()[0], |rank| {
            let mut marks = Vec::new();
            for case in every_operator::CASES {
                if of_the_ranks || !OF_THE_RANKS.contains(&case.name) {
                    for model in case.models(rank)? {
                        marks.push((case.name, fingerprint(rank, &model)?));
                    }
                }
            }
            Ok(marks)
        });
        assert!(all.iter().all(|marks| *marks == all[0]), "ranks of {parts:?} differ");
        all[0].clone()
    };
    let one = marks([1, 1], false);
    for parts in [[2, 1], [1, 3], [2, 2]] {
        assert_eq!(marks(parts, false), one, "{parts:?}");
    }
    let all = marks([1, 1], true);
    let apart: BTreeSet<u64> = all.iter().map(|(_, mark)| *mark).collect();
    // The adjoint of a Hartley transform and a transform between the same spaces have two names.
    assert_eq!(apart.len(), all.len(), "{all:?}");
}

/// Pairs of models that differ in one constant, a name or a shape.
#[test]
fn fingerprints_know_every_constant() {
    let marks = |parts| {
        let all = on_grid(parts, &options()[0], |rank| {
            let mesh = mesh(rank, [4, 6, 8]);
            let space = Space::of("x", Leaf::cells(&mesh))?;
            let field = |rank: &mut Rank, other: bool| {
                let mut field = random_field(rank, &space, 5)?;
                let mut values = field.get(&mut rank.recorder, "x")?;
                if other && let Some(at) = mesh.owns([3, 5, 7]).then(|| values.len() - 1) {
                    values[at] += 1e-6;
                }
                field.set(&mut rank.recorder, "x", &values)?;
                Ok::<_, OperatorError>(field)
            };
            let mut pairs = Vec::new();
            for other in [false, true] {
                let (unit, tiny) = (if other { 1.5 } else { 1.0 }, if other { 1e-6 } else { 0.0 });
                let factors = field(rank, other)?;
                let damp = |_: usize, wave: Wave| (-unit * wave.k).exp();
                let damp = Operator { constant: [1.0, 0.0], factor: &damp, laplacian: None };
                let lines = [[[0.1, 0.2, 0.3], [1.0, 2.0 + tiny, 1.0]]];
                let own: Vec<[f64; 3]> = mesh.owns([0, 0, 0]).then_some([0.1 + tiny, 0.1, 0.1]).into_iter().collect();
                let text = "fn f(x: f32, w: f32) -> f32 { return x * w; }";
                let weights = Vector::over(&Space::of("w", Leaf::cells(&mesh))?, factors.contents().to_vec())?;
                let larger = crate::process_grid::mesh(rank, mesh.shape(), mesh.size().map(|length| length * unit));
                let prior = Prior::Normal { mean: 0.0, std: 1.0 + tiny };
                let prior =
                    |space: &Space| prior.operator(space, "y").map_err(|error| OperatorError::failed("prior", error));
                let models = [
                    Model::new(Diagonal::new(&space, &factors)?),
                    Model::new(Convolution::new(rank, &space, &factors)?),
                    Model::new(PointwiseOperator::wgsl_with(text, "f", &space, &weights, "y")?),
                    Model::new(FourierFilter::new(rank, &space, &damp)?),
                    Model::new(StencilOperator::new(rank, &space, &[([0, 0, 1], 1.0 + tiny)])?),
                    Model::new(LinesOfSight::new(rank, &space, &lines, 0.3)?),
                    Model::new(Readout::new(rank, &space, Window::Cic, &own)?),
                    Model::new(Select::cells(rank, &space, &[[0, 0, if other { 2 } else { 1 }]])?),
                    pointwise(&format!("fn f(x: f32) -> f32 {{ return {unit:?} * x; }}"), &space, "y")?,
                    pointwise("fn f(x: f32) -> f32 { return x; }", &space, if other { "z" } else { "y" })?,
                    pointwise("fn f(x: f32) -> f32 { return x; }", &Space::of("x", Leaf::cells(&larger))?, "y")?,
                    prior(&space)?,
                    prior(&Space::of("x", Leaf::parameters(3))?)?,
                ];
                pairs.push(models.iter().map(|model| fingerprint(rank, model)).collect::<Result<Vec<_>, _>>()?);
            }
            Ok(pairs)
        });
        assert!(all.iter().all(|marks| *marks == all[0]), "ranks of {parts:?} differ");
        all[0].clone()
    };
    let one = marks([1, 1]);
    for (number, (first, other)) in one[0].iter().zip(&one[1]).enumerate() {
        assert_ne!(first, other, "model {number}");
    }
    assert_eq!(marks([2, 2]), one);
}

#[test]
fn every_operator_works_in_small_windows() {
    for parts in [[1, 1], [1, 2]] {
        on_grid(parts, &options()[1], |rank| every_operator::check(rank, |_| true));
    }
}

/// Compares the types that `src` makes operators of, and those that the documentation lists.
#[test]
fn no_operator_is_left_out_of_the_checks() {
    // Programs of tests run in the package's directory, which need not be the one that they were
    // built in.
    let root = Path::new("");
    let mut found = BTreeSet::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let of = [" Linear for ", " Differentiable for "].iter().find_map(|text| line.split_once(text));
                found.extend(of.map(|(_, rest)| rest.split(['<', ' ']).next().unwrap().to_owned()));
            }
        }
    }
    // All linear operators at once; and the root of a metric, which has no value: `check_metric`
    // applies both of its products.
    for other in ["L", "LocalRoot"] {
        assert!(found.remove(other), "{other}");
    }
    let page = std::fs::read_to_string(root.join("docs/operators.md")).unwrap();
    let (_, table) = page.split_once("## Linear operators").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        found.extend(names.map(|name| name.split("::").next().unwrap().to_owned()));
    }
    let checked: BTreeSet<&str> = every_operator::CASES.iter().map(|case| case.name).collect();
    assert!(found.len() > 15, "{found:?}");
    let left: Vec<&String> = found.iter().filter(|name| !checked.contains(name.as_str())).collect();
    assert!(left.is_empty(), "give them a row in tests/shared/every_operator.rs: {left:?}");
}

/// `Re F x + Im F x` by its definition.
fn hartley(shape: [u64; 3], x: &[f64]) -> Vec<f64> {
    let places = |n: u64| (0..n).collect::<Vec<_>>();
    let [n0, n1, n2] = shape;
    let all: Vec<[u64; 3]> =
        places(n0 * n1 * n2).into_iter().map(|at| [at / (n1 * n2), at / n2 % n1, at % n2]).collect();
    let cas = |k: &[u64; 3], at: &[u64; 3]| {
        let turns: f64 = (0..3).map(|a| (k[a] * at[a] % shape[a]) as f64 / shape[a] as f64).sum();
        (2.0 * PI * turns).cos() - (2.0 * PI * turns).sin()
    };
    all.iter().map(|k| all.iter().zip(x).map(|(at, x)| x * cas(k, at)).sum()).collect()
}

#[test]
fn transforms_and_filters_have_their_adjoints_on_all_grids() {
    let shape = [4, 5, 6];
    let x: Vec<f64> = (0..120).map(|cell| number(cell, 7)).collect();
    let wanted = hartley(shape, &x);
    let mut bits: Option<Vec<u32>> = None;
    for (options, parts) in options().iter().flat_map(|options| GRIDS.map(|parts| (options.clone(), parts))) {
        let found = on_grid(parts, &options, |rank| {
            let mesh = mesh(rank, shape);
            let space = Space::of("x", Leaf::cells(&mesh))?;
            let pairs = Space::of("x", Leaf::cells(&mesh).components(2).batch(2))?;
            let complex = Space::of("x", Leaf::cells(&mesh).complex().batch(3))?;
            // Derivative along y of a smoothed potential.
            let multiplier = Operator {
                constant: [0.0, 1.0],
                factor: &|axis, wave| {
                    if axis == 1 && wave.nyquist {
                        0.0
                    } else {
                        (-0.05 * wave.k * wave.k).exp() * if axis == 1 { wave.k } else { 1.0 }
                    }
                },
                laplacian: Some(&|_, wave| wave.k * wave.k),
            };
            let own_cells = own(&mesh, &x);
            let mut field = Vector::new(&rank.gpu, &space)?;
            field.set(&mut rank.recorder, "x", &own_cells)?;
            let models = [
                Model::new(Fourier::new(rank, &space, Norm::Backward)?),
                Model::new(Fourier::new(rank, &complex, Norm::Ortho)?),
                Model::new(Adjoint::new(Fourier::new(rank, &pairs, Norm::Forward)?)),
                Model::new(Hartley::new(rank, &pairs)?),
                Model::new(FourierFilter::new(rank, &space, &multiplier)?),
                Model::new(FourierFilter::padded(rank, &complex, &multiplier, Some([8, 10, 12]))?),
                Model::new(Fourier::new(rank, &space, Norm::Backward)?.inverse()),
                Model::new(Fourier::new(rank, &complex, Norm::Ortho)?.inverse()),
                Model::new(Adjoint::new(Fourier::new(rank, &pairs, Norm::Forward)?.inverse())),
            ];
            for model in &models {
                let x = random_field(rank, model.domain(), 9)?;
                check_adjoint(rank, model, &x)?;
                assert!(model.cost().apply.dispatches >= 3);
                assert_eq!(model.cost().apply.messages > 0, parts != [1, 1], "{model:?}");
            }
            // The inverse gives the field back.
            for norm in [Norm::Backward, Norm::Ortho] {
                let mut fourier = || Fourier::new(rank, &space, norm);
                let both = Model::new(fourier()?).then(&Model::new(fourier()?.inverse()))?;
                let again = both.value(rank, &field)?;
                for (again, x) in host(rank, &again)?["x"].iter().zip(&own_cells) {
                    assert!((again - x).abs() < 1e-6, "{again} {x}");
                }
            }
            // There and back is the number of cells.
            let hartley = Hartley::new(rank, &space)?;
            let modes = Space::of("x", Leaf::modes(&mesh))?;
            let there = Model::new(hartley);
            let y = there.value(rank, &field)?;
            let back = there.at(rank, &field)?;
            let mut again = Vector::new(&rank.gpu, &space)?;
            back.vjp(rank, &y, &mut again)?;
            for (again, x) in host(rank, &again)?["x"].iter().zip(&own_cells) {
                assert!((again / 120.0 - x).abs() < 1e-6, "{again} {x}");
            }
            assert_eq!(y.space(), &modes);
            let part = mesh.modes(false);
            let mut found = Vec::new();
            let values = y.get(&mut rank.recorder, "x")?;
            let mut values = values.into_iter();
            for i in part[0].clone() {
                for j in part[1].clone() {
                    for k in part[2].clone() {
                        let cell = (i * shape[1] + j) * shape[2] + k;
                        found.push((cell as usize, values.next().unwrap() as f32));
                    }
                }
            }
            let filtered = models[4].value(rank, &field)?;
            let filtered = filtered.get(&mut rank.recorder, "x")?;
            let filtered =
                cells(&mesh).into_iter().zip(filtered).map(|(cell, value)| (120 + cell as usize, value as f32));
            found.extend(filtered);
            Ok(found)
        });
        let mut all = vec![f32::NAN; 240];
        found.into_iter().flatten().for_each(|(at, value)| all[at] = value);
        for (found, wanted) in all.iter().zip(&wanted) {
            assert!((f64::from(*found) - wanted).abs() < 1e-5, "{parts:?}: {found} {wanted}");
        }
        let found: Vec<u32> = all.into_iter().map(f32::to_bits).collect();
        assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
    }
}

/// Lines that take several passes: a prime is a convolution there, whose second half goes backward,
/// and a product of primes has factors.
#[test]
fn hartley_transforms_of_long_lines_have_the_sign_of_their_definition() {
    for n in [4099u64, 9409] {
        let x: Vec<f64> = (0..n).map(|cell| f64::from(number(cell, 3) as f32)).collect();
        let [found, back] = on_grid([1, 1], &options()[0], |rank| {
            let space = Space::of("x", Leaf::cells(&mesh(rank, [1, 1, n])))?;
            let hartley = Model::new(Hartley::new(rank, &space)?);
            let mut field = Vector::new(&rank.gpu, &space)?;
            field.set(&mut rank.recorder, "x", &x)?;
            let at = hartley.at(rank, &field)?;
            let mut back = Vector::new(&rank.gpu, &space)?;
            let modes = field.get(&mut rank.recorder, "x")?;
            let mut cotangent = Vector::new(&rank.gpu, hartley.target())?;
            cotangent.set(&mut rank.recorder, "x", &modes)?;
            at.vjp(rank, &cotangent, &mut back)?;
            Ok([at.value.get(&mut rank.recorder, "x")?, back.get(&mut rank.recorder, "x")?])
        })
        .remove(0);
        // Each of some log n stages rounds the sum of all squares, four units in the last place at
        // most for a butterfly and its twiddle; a convolution has two transforms of four times the
        // length.
        let size = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let bound = 2.0 * (4 * n).ilog2() as f64 * 4.0 * f64::from(f32::EPSILON) / 2.0 * size;
        for k in (0..n).step_by(211) {
            let term = |(at, x): (u64, &f64)| {
                let turns = (k * at % n) as f64 / n as f64;
                x * ((2.0 * PI * turns).cos() - (2.0 * PI * turns).sin())
            };
            let wanted: f64 = (0..n).zip(&x).map(term).sum();
            for found in [found[k as usize], back[k as usize]] {
                assert!((found - wanted).abs() < bound, "{n}, mode {k}: {found} {wanted}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_said_when_it_is_composed() {
    on_grid([1, 1], &options()[0], |rank| {
        let mesh = mesh(rank, [4, 4, 4]);
        let other = crate::process_grid::mesh(rank, [4, 4, 8], mesh.size());
        let cut = Mesh::new(&MeshOptions { grid: Some([2, 1]), ..mesh.options().clone() }, 2, 0).unwrap();
        let space = Space::of("x", Leaf::cells(&mesh))?;
        let square = pointwise("fn f(x: f32) -> f32 { return x * x; }", &space, "y")?;
        let fails = |what: Result<Model, OperatorError>, wanted: &[&str]| {
            let error = what.unwrap_err().to_string();
            assert!(wanted.iter().all(|part| error.contains(part)), "{error}\n{wanted:?}");
        };
        let on = |leaf: Leaf| pointwise("fn f(x: f32) -> f32 { return exp(x); }", &Space::of("x", leaf)?, "y");
        fails(square.then(&on(Leaf::cells(&other))?), &["operator `f`", "4 x 4 x 8", "4 x 4 x 4"]);
        fails(square.then(&on(Leaf::cells(&mesh).batch(2))?), &["batch of 2"]);
        fails(square.then(&on(Leaf::cells(&cut))?), &["over 2x1 ranks", "over 1x1 ranks"]);
        fails(square.zip(&square), &["`y`", "two leaves"]);
        fails(square.zip(&on(Leaf::cells(&other))?.named("z")?), &["leaf `x`", "4 x 4 x 8"]);
        let wide = Space::new([("x", Leaf::cells(&mesh)), ("v", Leaf::cells(&mesh).components(3))])?;
        fails(
            pointwise("fn f(x: f32, v: vec2<f32>) -> f32 { return x * v.x; }", &wide, "y"),
            &["operator `f`, leaf `v`", "3 components"],
        );
        fails(pointwise("fn f(x: f32, w: f32) -> f32 { return x * w; }", &wide, "y"), &["`w`"]);
        fails(
            pointwise("fn f(x: f32) -> f32 {\n let n = i32(x);\n return x; }", &space, "y"),
            &["operator `f`", "line 2", "integers"],
        );
        let mixed = Space::new([("x", Leaf::cells(&mesh)), ("w", Leaf::vector(64))])?;
        fails(pointwise("fn f(x: f32, w: f32) -> f32 { return x * w; }", &mixed, "y"), &["not the same places"]);
        let open = Mesh::new(&MeshOptions { periodic: [true, false, true], ..mesh.options().clone() }, 1, 0).unwrap();
        let open = Space::of("x", Leaf::cells(&open))?;
        fails(
            Ghosts::new(rank, &open, [[1; 2]; 3]).map(Model::new),
            &["ghost cells", "periodic along all axes", "[true, false, true]"],
        );
        let foreign = Space::of("x", Leaf::cells(&cut))?;
        fails(
            Fourier::new(rank, &foreign, Norm::Backward).map(Model::new),
            &["Fourier transform", "2x1", "rank 0 of 1;"],
        );
        let error = Space::of("x", Leaf::vector(3).batch(0)).unwrap_err().to_string();
        assert!(error.contains("`x`") && error.contains("batch of 0"), "{error}");
        // Fields of another space are refused before anything is recorded.
        let (field, vector) = (Vector::new(&rank.gpu, &space)?, Space::of("n", Leaf::vector(3))?);
        let mut wrong = Vector::new(&rank.gpu, &vector)?;
        let error = square.apply(rank, &field, &mut wrong).unwrap_err().to_string();
        assert!(error.contains("operator `f`") && error.contains("vector of 3"), "{error}");
        let mut same = field.clone();
        assert!(square.apply(rank, &field, &mut same).is_err(), "in place");
        let at = square.at(rank, &field)?;
        let (dy, mut dx) = (Vector::new(&rank.gpu, square.target())?, Vector::new(&rank.gpu, &space)?);
        assert!(matches!(at.jvp(rank, &field, &mut wrong), Err(OperatorError::Fit { .. })));
        assert!(matches!(at.vjp(rank, &dy, &mut wrong), Err(OperatorError::Fit { .. })));
        assert!(matches!(at.vjp(rank, &wrong, &mut dx), Err(OperatorError::Fit { .. })));
        // NaN is found by any sum.
        let mut field = Vector::new(&rank.gpu, &space)?;
        let mut values = vec![1.0; 64];
        values[17] = f64::NAN;
        field.set(&mut rank.recorder, "x", &values)?;
        let error = rank.vector_dot(&field, &field).unwrap_err().to_string();
        assert!(error.contains("leaf `x`") && error.contains("NaN"), "{error}");
        Ok(())
    });
}

/// A derivative that is wrong by a factor.
struct Wrong(Model);

impl Differentiable for Wrong {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }
    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.0.apply(rank, x, y)
    }
    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.0.apply(rank, x, y)?;
        Ok(Box::new(WrongAt(self.0.at(rank, x)?)))
    }
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        self.0.identify(rank, out)
    }
    fn cost(&self) -> OperatorCost {
        OperatorCost::default()
    }
}

struct WrongAt(Linearization);

impl Linearized for WrongAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.0.jvp(rank, dx, dy)?;
        let half = dy.clone();
        let mut out = Vector::new(&rank.gpu, dy.space())?;
        rank.vector_axpby(1.01, &half, 0.0, &mut out)?;
        dy.copy_from(&mut rank.recorder, &out)
    }
    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.0.vjp(rank, dy, dx)
    }
}

#[test]
fn checks_find_a_wrong_derivative() {
    on_grid([1, 1], &options()[0], |rank| {
        let space = Space::of("x", Leaf::cells(&mesh(rank, [4, 4, 4])))?;
        let right = pointwise("fn f(x: f32) -> f32 { return exp(x); }", &space, "y")?;
        let x = random_field(rank, &space, 1)?;
        check_adjoint(rank, &right, &x)?;
        check_derivative(rank, &right, &x, &x)?;
        let wrong = Model::new(Wrong(right));
        let error = check_adjoint(rank, &wrong, &x).unwrap_err();
        assert!(
            matches!(error, OperatorError::Check { .. }) && error.to_string().ends_with("so the jvp is wrong"),
            "{error}"
        );
        let error = check_derivative(rank, &wrong, &x, &x).unwrap_err().to_string();
        assert!(error.contains("the value and the jvp disagree"), "{error}");
        assert!(error.contains("order 1.") || error.contains("order 0."), "{error}");
        let signature = Signature::new("exp", &space, &space);
        let exp = |x: &[Vec<f64>], d: &[Vec<f64>]| Ok(vec![x[0].iter().zip(&d[0]).map(|(x, d)| x.exp() * d).collect()]);
        let twice =
            |x: &[Vec<f64>], d: &[Vec<f64>]| Ok(vec![x[0].iter().zip(&d[0]).map(|(x, d)| 2.0 * x.exp() * d).collect()]);
        let value = |x: &[Vec<f64>]| Ok(vec![x[0].iter().map(|x| x.exp()).collect()]);
        let model = Model::new(HostFunction::new(rank, signature, "", value, exp, twice)?);
        check_derivative(rank, &model, &x, &x)?;
        let error = check_adjoint(rank, &model, &x).unwrap_err().to_string();
        assert!(error.ends_with("so the vjp is wrong"), "{error}");
        Ok(())
    });
}

#[test]
fn warmed_derivatives_allocate_compile_and_move_nothing() {
    // No other test of the process has this window, so no other test allocates on this device
    // meanwhile.
    let options = Options { window_bytes: Some(1 << 20), kernels: 405, ..options()[0].clone() };
    on_grid([1, 1], &options, |rank| {
        let mesh = mesh(rank, [6, 5, 8]);
        let cells = Space::of("x", Leaf::cells(&mesh))?;
        let filter =
            Operator { constant: [1.0, 0.0], factor: &|_, wave| (-0.1 * wave.k * wave.k).exp(), laplacian: None };
        let modes = Space::of("xi", Leaf::modes(&mesh))?;
        let amplitudes = Wavenumbers::unique(&mesh)?.amplitudes(rank, &modes)?;
        let both = Model::new(amplitudes).named("a")?.zip(&Model::identity(&modes)?)?;
        let text = "fn f(a: f32, xi: f32) -> f32 { return a * xi; }";
        let stencil = StencilOperator::new(rank, &cells, &[([0, 0, 1], 0.5), ([0, 0, -1], -0.5)])?;
        let points = [[0.1, 0.2, 0.3], [2.9, 2.4, 3.9]];
        let parts = [
            Model::new(PointwiseOperator::wgsl(text, "f", both.target(), "x")?),
            Model::new(Adjoint::new(Hartley::new(rank, &cells)?)),
            Model::new(FourierFilter::new(rank, &cells, &filter)?),
            pointwise("fn f(x: f32) -> f32 { return exp(x); }", &cells, "x")?,
            Model::new(stencil),
            Model::new(Readout::new(rank, &cells, Window::Tsc, &points)?),
        ];
        let model = parts.iter().try_fold(both, |model, next| model.then(next))?;
        let x = random_field(rank, model.domain(), 1)?;
        let at = model.at(rank, &x)?;
        let (dx, dy) = (random_field(rank, model.domain(), 2)?, random_field(rank, model.target(), 3)?);
        let (mut jvp, mut vjp) = (Vector::new(&rank.gpu, model.target())?, Vector::new(&rank.gpu, model.domain())?);
        let mut seen = Vec::new();
        for _ in 0..3 {
            at.jvp(rank, &dx, &mut jvp)?;
            at.vjp(rank, &dy, &mut vjp)?;
            rank.recorder.submit()?;
            let counts = rank.recorder.counts();
            seen.push((counts, rank.gpu.allocations(), rank.gpu.compiled()));
        }
        let [_, (before, allocations, compiled), (after, later_allocations, later_compiled)] = seen[..] else {
            unreachable!()
        };
        assert_eq!((later_allocations, later_compiled), (allocations, compiled));
        assert_eq!(
            (after.submits - before.submits, after.uploads, after.downloads),
            (1, before.uploads, before.downloads)
        );
        check_adjoint(rank, &model, &x)?;
        Ok(())
    });
}

#[test]
fn the_operator_that_is_not_finite_is_named() {
    on_grid([2, 1], &options()[0], |rank| {
        let cells = Space::of("x", Leaf::cells(&mesh(rank, [4, 5, 6])))?;
        let stencil = Model::new(StencilOperator::new(rank, &cells, &[([0, 0, 1], 0.5)])?);
        let text = "fn growth(x: f32) -> f32 { return exp(200.0 * x); }";
        let growth = Model::new(PointwiseOperator::wgsl(text, "growth", &cells, "x")?);
        let model = stencil.then(&growth)?.then(&stencil)?;
        let mut x = Vector::new(&rank.gpu, &cells)?;
        let mut values = vec![0.0; cells.leaf("x").unwrap().len() as usize];
        x.set(&mut rank.recorder, "x", &values)?;
        assert_eq!(check_finite(rank, &model, &x)?.space(), model.target());
        // One cell of one rank.
        values[17] = f64::from(u8::from(rank.comm.rank() == 1));
        x.set(&mut rank.recorder, "x", &values)?;
        let error = check_finite(rank, &model, &x).unwrap_err();
        assert!(matches!(&error, OperatorError::NotFinite { operator, .. } if operator == "growth"), "{error}");
        Ok(())
    });
}

#[test]
fn functions_side_by_side_share_their_leaves() {
    on_grid([1, 1], &options()[0], |rank| {
        let cells = Leaf::cells(&mesh(rank, [3, 4, 5]));
        let space = |names: &[&str]| Space::new(names.iter().map(|name| (*name, cells.clone())));
        let first = pointwise("fn f(x: f32, a: f32) -> f32 { return a * exp(x); }", &space(&["a", "x"])?, "z")?;
        let text = "fn f(m: f32, x: f32, b: f32) -> vec2<f32> { return vec2<f32>(x * m, b + m); }";
        let second = pointwise(text, &space(&["b", "m", "x"])?, "c")?;
        let third = "fn f(c: vec2<f32>, z: f32) -> f32 { return c.x * z + c.y * c.y; }";
        let both = second.zip(&first)?;
        let model = both.then(&pointwise(third, both.target(), "y")?)?;
        assert!(both.is_pointwise() && model.is_pointwise());
        assert_eq!(model.domain().names().collect::<Vec<_>>(), ["a", "b", "m", "x"]);
        let x = random_field(rank, model.domain(), 1)?;
        check_adjoint(rank, &model, &x)?;
        check_derivative(rank, &model, &x, &x)?;
        let (value, x) = (model.value(rank, &x)?, host(rank, &x)?);
        for (n, found) in host(rank, &value)?["y"].iter().enumerate() {
            let [a, b, m, x] = ["a", "b", "m", "x"].map(|name| x[name][n]);
            let wanted = x * m * a * x.exp() + (b + m).powi(2);
            assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
        }
        Ok(())
    });
}

#[test]
fn one_number_counts_for_all_places() {
    let mut bits: Option<Vec<u32>> = None;
    for parts in GRIDS {
        let found = on_grid(parts, &options()[1], |rank| {
            let leaf = Leaf::cells(&mesh(rank, [4, 5, 6])).batch(2);
            let leaves = [("rates", Leaf::vector(1).components(2).batch(2)), ("x", leaf)];
            let domain = Space::new(leaves)?;
            let text = "fn f(x: f32, rates: vec2<f32>) -> f32 { return rates.x * exp(rates.y * x); }";
            let model = pointwise(text, &domain, "y")?;
            assert!(model.is_pointwise());
            let mut x = random_field(rank, &domain, 1)?;
            x.set(&mut rank.recorder, "rates", &[0.5, 1.5, -0.25, 0.75])?;
            check_adjoint(rank, &model, &x)?;
            let direction = random_field(rank, &domain, 2)?;
            let check = check_derivative(rank, &model, &x, &direction)?;
            assert!((check.order.unwrap() - 2.0).abs() < 0.2, "{check}");
            let own = mesh(rank, [4, 5, 6]);
            let all: Vec<f64> = (0..240).map(|n| number(n, 40)).collect();
            let values =
                (0..2).flat_map(|batch| cells(&own).into_iter().map(move |cell| (batch * 120 + cell) as usize));
            let values: Vec<f64> = values.map(|at| all[at]).collect();
            x.set(&mut rank.recorder, "x", &values)?;
            let at = model.at(rank, &x)?;
            let mut dx = Vector::new(&rank.gpu, &domain)?;
            let mut dy = Vector::new(&rank.gpu, model.target())?;
            dy.set(&mut rank.recorder, "y", &vec![1.0; values.len()])?;
            at.vjp(rank, &dy, &mut dx)?;
            let found = host(rank, &dx)?["rates"].clone();
            for (batch, [a, b]) in [[0.5, 1.5], [-0.25, 0.75]].into_iter().enumerate() {
                let x = &all[batch * 120..][..120];
                let wanted =
                    [x.iter().map(|x| (b * x).exp()).sum::<f64>(), x.iter().map(|x| a * x * (b * x).exp()).sum()];
                for (found, wanted) in found[2 * batch..].iter().zip(wanted) {
                    assert!((found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()) * 10.0, "{found} {wanted}");
                }
            }
            Ok(found.iter().map(|&value| (value as f32).to_bits()).collect::<Vec<_>>())
        });
        for found in found {
            assert_eq!(*bits.get_or_insert(found.clone()), found, "{parts:?}");
        }
    }
}

#[test]
fn constants_are_arguments_that_are_not_varied() {
    on_grid([1, 1], &options()[0], |rank| {
        let cells = Leaf::cells(&mesh(rank, [3, 4, 5]));
        let space = |names: &[&str]| Space::new(names.iter().map(|name| (*name, cells.clone())));
        let (x, weights) = (random_field(rank, &space(&["x"])?, 1)?, random_field(rank, &space(&["w"])?, 2)?);
        let others = random_field(rank, &space(&["w"])?, 3)?;
        let with = |text: &str, domain: &Space, constants: &Vector, result: &str| {
            Ok::<_, OperatorError>(Model::new(PointwiseOperator::wgsl_with(text, "f", domain, constants, result)?))
        };
        // The constant comes first among the arguments, the argument has another name than the
        // leaf.
        let first = with("fn f(w: f32, z: f32) -> f32 { return w * exp(z); }", &space(&["x"])?, &weights, "y")?;
        let second = with("fn f(y: f32, w: f32) -> f32 { return y * y + w; }", first.target(), &others, "y")?;
        let third = with("fn f(x: f32, w: f32) -> f32 { return x / (2.0 + w); }", &space(&["x"])?, &others, "z")?;
        let model = first.then(&second)?.zip(&third)?;
        assert!(model.is_pointwise());
        assert_eq!(model.domain().names().collect::<Vec<_>>(), ["x"]);
        check_adjoint(rank, &model, &x)?;
        let check = check_derivative(rank, &model, &x, &x)?;
        assert!((check.order.unwrap() - 2.0).abs() < 0.2, "{check}");
        let value = model.value(rank, &x)?;
        let (found, x) = (host(rank, &value)?, host(rank, &x)?);
        let (fixed, others) = (host(rank, &weights)?, host(rank, &others)?);
        for n in 0..60 {
            let (x, w, v) = (x["x"][n], fixed["w"][n], others["w"][n]);
            let wanted = [(w * x.exp()).powi(2) + v, x / (2.0 + v)];
            for (found, wanted) in [found["y"][n], found["z"][n]].into_iter().zip(wanted) {
                assert!((found - wanted).abs() < 16.0 * f64::from(f32::EPSILON) * 10.0, "{found} {wanted}");
            }
        }
        let clash = with("fn f(w: f32, v: f32) -> f32 { return w * v; }", &space(&["v", "w"])?, &weights, "y");
        assert!(clash.is_err(), "a leaf of the domain and a constant have one name");
        Ok(())
    });
}

#[test]
fn pointwise_functions_meet_behind_other_operators() {
    on_grid([1, 1], &options()[0], |rank| {
        let cells = Space::of("x", Leaf::cells(&mesh(rank, [4, 5, 6])))?;
        let stencil = Model::new(StencilOperator::new(rank, &cells, &[([0, 0, 1], 0.5), ([0, 0, 0], -0.5)])?);
        let square = pointwise("fn f(x: f32) -> f32 { return x * x; }", &cells, "y")?;
        let grown = pointwise("fn f(x: f32) -> f32 { return exp(x); }", &cells, "z")?;
        let end = stencil.then(&square)?.then(&grown)?;
        let both = end.then(&square.then(&stencil)?)?;
        assert_eq!(end.cost().apply.dispatches, stencil.cost().apply.dispatches + 1);
        assert_eq!(both.cost().apply.dispatches, 2 * stencil.cost().apply.dispatches + 1);
        assert!(matches!(end.parted(), [Some(_), Some(_)]) && matches!(both.parted(), [Some(_), None]));
        let x = random_field(rank, &cells, 1)?;
        check_adjoint(rank, &both, &x)?;
        check_derivative(rank, &both, &x, &x)?;
        Ok(())
    });
}

/// Sums of products, and of fields alone of magnitudes: as many at once as are asked for, of leaves
/// of all kinds.
#[test]
fn many_sums_at_once_are_those_of_each() {
    let whole = meshloom_sanitizer::options().unwrap();
    // In one window each, and in three, of which a product of two arrays takes six of the eight
    // bindings that every device has.
    let windows = Options { window_bytes: Some(1 << 14), ..whole.clone() };
    for options in [whole, windows] {
        on_grid([1, 1], &options, |rank| {
            let cells = Leaf::cells(&mesh(rank, [4, 50, 60]));
            let space = Space::new([("cells", cells), ("few", Leaf::vector(5)), ("many", Leaf::vector(5000))])?;
            let [x, y, z] =
                [random_field(rank, &space, 1)?, random_field(rank, &space, 2)?, random_field(rank, &space, 3)?];
            let asked = [
                (&x, Some(&y)),
                (&x, None),
                (&y, Some(&y)),
                (&y, Some(&z)),
                (&z, None),
                (&z, Some(&x)),
                (&y, None),
                (&x, Some(&x)),
            ];
            let found = rank.vector_sums(&asked)?;
            for (one, found) in asked.into_iter().zip(found) {
                assert_eq!(rank.vector_sums(&[one])?, [found], "alone");
                let (a, b) = (host(rank, one.0)?, one.1.map(|b| host(rank, b)).transpose()?);
                let terms = a.iter().flat_map(|(name, a)| {
                    let b = b.as_ref().map(|b| &b[name]);
                    a.iter().enumerate().map(move |(at, a)| b.map_or(a.abs(), |b| a * b[at]))
                });
                let (wanted, scale) = terms.fold((0.0, 0.0), |(sum, scale), term| (sum + term, scale + term.abs()));
                // Products are rounded to f32, magnitudes are exact.
                let bound = if one.1.is_some() { 6e-8 } else { 1e-12 };
                assert!((found - wanted).abs() <= bound * scale, "{found} {wanted}");
            }
            let before = rank.recorder.counts();
            rank.vector_sums(&asked)?;
            let after = rank.recorder.counts();
            assert_eq!((after.submits - before.submits, after.downloads - before.downloads), (1, 1));
            Ok(())
        });
    }
}

/// Vectors that every rank has, as two devices would have them, which round in their own ways:
/// loops are left by such sums, and all ranks must leave together.
#[test]
fn sums_of_what_every_rank_has_are_those_of_the_first_rank() {
    let found = on_grid([2, 1], &meshloom_sanitizer::options().unwrap(), |rank| {
        let few = [("few", Leaf::vector(5)), ("host", Leaf::parameters(3))];
        let leaves = few.clone().into_iter().chain([("many", Leaf::vector(5000))]);
        let (few, all) = (Space::new(few)?, Space::new(leaves)?);
        let mut found = Vec::new();
        for space in [few, all] {
            let of_rank = |rank: u64| 7 + rank;
            let own = random_field(rank, &space, of_rank(rank.comm.rank() as u64))?;
            let first = random_field(rank, &space, of_rank(0))?;
            found.push(
                [[(&own, Some(&own)), (&own, None)], [(&first, Some(&first)), (&first, None)]]
                    .map(|asked| rank.vector_sums(&asked)),
            );
        }
        found.into_iter().flatten().collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(found[0], found[1]);
    assert!(found[1].chunks(2).all(|pair| pair[0] == pair[1] && pair[0].iter().all(|sum| *sum > 0.0)), "{found:?}");
}

/// By global place, of leaves of all kinds.
#[test]
fn random_fields_are_the_same_on_all_grids() {
    let shape = [4, 5, 6];
    let whole = |parts: [usize; 2]| {
        let found = on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            let mesh = mesh(rank, shape);
            let ghosted = mesh.with_ghosts([[1, 2], [0, 1], [0, 0]]).unwrap();
            let (index, ranks) = (rank.index(), rank.size());
            let given = |rank: usize| if ranks == 1 { 6 } else { [3, 1, 2][rank % 3] };
            let numbers: Vec<u64> = cells(&mesh).iter().map(|cell| 1000 + cell).collect();
            let numbers = PointNumbers::new(&mut rank.recorder, numbers)?;
            let leaves = [
                ("cells", Leaf::cells(&mesh).components(2)),
                ("ghosts", Leaf::cells(&ghosted)),
                ("modes", Leaf::half_spectrum(&mesh)),
                ("numbered", Leaf::numbered_points(numbers, 120)),
                ("points", Leaf::points(given(index), (0..ranks).map(given).sum())),
            ];
            let mut all = Vec::new();
            for (name, leaf) in leaves {
                let space = Space::of(name, leaf)?;
                let field = random_field(rank, &space, 5)?;
                all.push(field.get(&mut rank.recorder, name)?);
            }
            let (layout, modes) = (ghosted.layout().clone(), ghosted.modes(true));
            Ok((cells(&mesh), layout, modes, all))
        });
        let mut fields = [vec![0.0; 240], vec![0.0; 120], vec![0.0; 2 * 80], vec![0.0; 120], Vec::new()];
        for (cells, layout, [x, y, z], all) in found {
            for (at, &cell) in cells.iter().enumerate() {
                let cell = cell as usize;
                (fields[0][cell], fields[0][120 + cell]) = (all[0][at], all[0][cells.len() + at]);
                fields[3][cell] = all[3][at];
            }
            let [_, rows, columns] = layout.shape();
            for (i, j, k) in places(&layout.own) {
                let global = [i, j, k];
                let own = [0, 1, 2].map(|a| global[a] - layout.own[a].start + layout.ghosts[a][0]);
                let at = (own[0] * rows + own[1]) * columns + own[2];
                fields[1][((i * 5 + j) * 6 + k) as usize] = all[1][at as usize];
            }
            for (at, (i, j, k)) in places(&[x, y, z]).into_iter().enumerate() {
                let mode = 2 * ((i * 5 + j) * 4 + k) as usize;
                fields[2][mode..mode + 2].copy_from_slice(&all[2][2 * at..2 * at + 2]);
            }
            fields[4].extend(&all[4]);
        }
        fields
    };
    let alone = whole([1, 1]);
    for parts in [[2, 1], [2, 2], [1, 3]] {
        let parted = whole(parts);
        assert_eq!(alone[..4], parted[..4], "{parts:?}");
        let points = parted[4].len().min(6);
        assert_eq!(alone[4][..points], parted[4][..points], "{parts:?}");
    }
    let mut all = alone.concat();
    all.sort_by(f64::total_cmp);
    all.dedup();
    assert_eq!(all.len(), 240 + 120 + 160 + 120 + 6, "no number comes twice");
}

fn places([x, y, z]: &[std::ops::Range<u64>; 3]) -> Vec<(u64, u64, u64)> {
    let row = |i: u64, j: u64| z.clone().map(move |k| (i, j, k));
    x.clone().flat_map(|i| y.clone().flat_map(|j| row(i, j)).collect::<Vec<_>>()).collect()
}

#[test]
fn kernels_of_a_caller_see_zeros_beyond_their_vectors_and_mistakes_are_explained() {
    on_grid([1, 1], &Options::from_env().unwrap(), |rank| {
        let spaces = [6, 5].map(|len| Space::of("x", Leaf::vector(len)).unwrap());
        let operator = |text: &str| KernelOperator::new("sums", &spaces[0], &spaces[1], text);
        let text = "
            fn value(i: u32) -> f32 { return x(i - 1u) + 10.0 * x(i) + 100.0 * x(i + 2u); }
            fn jvp(i: u32) -> f32 { return dx(i - 1u) + 10.0 * dx(i) + 100.0 * dx(i + 2u); }
            fn vjp(i: u32) -> f32 { return dy(i + 1u) + 10.0 * dy(i) + 100.0 * dy(i - 2u); }";
        let sums = Model::new(operator(text)?);
        let mut x = Vector::new(&rank.gpu, &spaces[0])?;
        x.set(&mut rank.recorder, "x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
        let value = sums.value(rank, &x)?.get(&mut rank.recorder, "x")?;
        assert_eq!(value, [310.0, 421.0, 532.0, 643.0, 54.0]);
        check_adjoint(rank, &sums, &x)?;
        let error = operator("fn value(i: u32) -> f32 { return x(i); }").err().unwrap().to_string();
        assert!(error.contains("fn jvp"), "{error}");
        let host = Space::of("p", Leaf::parameters(3))?;
        let error = KernelOperator::new("sums", &host, &spaces[1], text).err().unwrap().to_string();
        assert!(error.contains("expected one real leaf on the device"), "{error}");
        Ok(())
    });
}

#[test]
fn vectors_share_memory_with_fields() {
    for parts in [[1, 1], [2, 1]] {
        on_grid(parts, &meshloom_sanitizer::options().unwrap(), |rank| {
            let failed = |error: meshloom::field::FieldError| OperatorError::failed("test", error);
            let mesh = mesh(rank, [4, 5, 6]);
            let mut field = rank.fill(&mesh, |[x, y, z]| x + 10.0 * y + 100.0 * z).map_err(failed)?;
            let vector = Vector::of_fields([("x", &field), ("again", &field)])?;
            assert_eq!(vector.space().names().collect::<Vec<_>>(), ["again", "x"]);
            let zero = rank.zeros(&mesh).map_err(failed)?;
            rank.axpby(1.0, &zero, 2.0, &mut field).map_err(|error| OperatorError::failed("test", error))?;
            assert!(vector.field("again")?.array().len() == mesh.array_len());
            let (own, found) = (rank.download(&field).map_err(failed)?, vector.get(&mut rank.recorder, "x")?);
            assert!(own.iter().map(|&value| f64::from(value)).eq(found), "the memory is the same");

            let pairs = Vector::zeros(&mut rank.recorder, &Space::of("v", Leaf::cells(&mesh).components(3).batch(2))?)?;
            assert_eq!(pairs.field("v")?.components(), 6);
            for leaf in [Leaf::cells(&mesh).complex(), Leaf::modes(&mesh), Leaf::vector(3)] {
                let other = Vector::zeros(&mut rank.recorder, &Space::of("v", leaf)?)?;
                assert!(other.field("v").unwrap_err().to_string().contains("expected real cells"));
            }
            assert!(pairs.field("w").unwrap_err().to_string().contains("`w`"));
            assert!(Vector::of_fields([("", &field)]).is_err());
            Ok(())
        });
    }
}

/// A matrix row by row: its shape `[rows, columns]`, the offsets of rows, and their entries.
struct Entries {
    shape: [u64; 2],
    offsets: Vec<u64>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

/// Returns a dense matrix, and a sparse one with an empty row and column, entries at the same
/// place, and a row and a column of several segments.
fn matrices() -> [Entries; 2] {
    let value = |at: u64| number(at, 3) as f32;
    let counts = [5, 0, 70_001, 1, 300];
    let offsets: Vec<u64> = (0..=5).map(|row| counts[..row].iter().sum()).collect();
    let column = |at: u64| if at < 70_000 { at * 7 % 11 } else { 12 };
    [
        Entries {
            shape: [3, 1001],
            offsets: (0..=3).map(|row| row * 1001).collect(),
            columns: (0..3003).map(|at| at % 1001).collect(),
            values: (0..3003).map(value).collect(),
        },
        Entries {
            shape: [5, 13],
            columns: (0..offsets[5]).map(|at| column(at) as u32).collect(),
            values: (0..offsets[5]).map(value).collect(),
            offsets,
        },
    ]
}

#[test]
fn matrices_and_their_adjoints_are_those_of_the_host() {
    for (number_of, entries) in matrices().iter().enumerate() {
        let [rows, columns] = entries.shape;
        let mut results = Vec::new();
        // Entries of the sparse matrix have too many windows of 4 KiB.
        for (parts, options) in [([1, 1], &options()[0]), ([2, 1], &options()[0]), ([1, 1], &options()[1 - number_of])]
        {
            results.extend(on_grid(parts, options, |rank| {
                let (domain, target) = (Space::of("x", Leaf::vector(columns))?, Space::of("y", Leaf::vector(rows))?);
                let model = match number_of {
                    0 => Model::new(Matrix::new(rank, &domain, &target, &entries.values)?),
                    _ => {
                        let Entries { offsets, columns, values, .. } = entries;
                        Model::new(Matrix::sparse(rank, &domain, &target, offsets, columns, values)?)
                    }
                };
                let (x, dy) = (random_field(rank, &domain, 1)?, random_field(rank, &target, 2)?);
                let at = model.at(rank, &x)?;
                let mut dx = Vector::new(&rank.gpu, &domain)?;
                at.vjp(rank, &dy, &mut dx)?;
                let recorder = &mut rank.recorder;
                Ok([
                    x.get(recorder, "x")?,
                    dy.get(recorder, "y")?,
                    at.value.get(recorder, "y")?,
                    dx.get(recorder, "x")?,
                ])
            }));
        }
        assert!(results.iter().all(|found| *found == results[0]));
        let [x, dy, y, dx] = &results[0];
        let mut wanted = [vec![[0.0; 2]; rows as usize], vec![[0.0; 2]; columns as usize]];
        for row in 0..rows as usize {
            for at in entries.offsets[row] as usize..entries.offsets[row + 1] as usize {
                let (column, value) = (entries.columns[at] as usize, f64::from(entries.values[at]));
                for (side, place, term) in [(0, row, value * x[column]), (1, column, value * dy[row])] {
                    let [sum, size] = &mut wanted[side][place];
                    (*sum, *size) = (*sum + term, *size + term.abs());
                }
            }
        }
        for (found, wanted) in [(y, &wanted[0]), (dx, &wanted[1])] {
            for (found, [wanted, size]) in found.iter().zip(wanted) {
                assert!((found - wanted).abs() <= 3e-6 * size, "{found} {wanted} {size}");
            }
        }
    }
}

#[test]
fn matrices_refuse_what_is_none() {
    on_grid([2, 1], &options()[0], |rank| {
        let [x, y] = [3, 2].map(|len| Space::of("x", Leaf::vector(len)));
        let (x, y) = (x?, y?);
        let error = |found: Result<(), OperatorError>, text: &str| {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        let dense = |rank: &mut Rank, values: &[f32]| Matrix::new(rank, &x, &y, values).map(drop);
        error(dense(rank, &[1.0; 5]), "expected 2 x 3 values, got 5");
        error(dense(rank, &[1.0, 1.0, f32::NAN, 1.0, 1.0, 1.0]), "entry 2: expected a finite number, got NaN");
        let index = rank.index() as f32;
        error(dense(rank, &[index; 6]), "`matrix` differs between ranks");
        let cells = Space::of("x", Leaf::cells(&mesh(rank, [4, 4, 4])))?;
        error(Matrix::new(rank, &cells, &y, &[1.0; 128]).map(drop), "expected one real vector");
        let sparse = |rank: &mut Rank, offsets: &[u64], columns: &[u32]| {
            Matrix::sparse(rank, &x, &y, offsets, columns, &[1.0, 2.0]).map(drop)
        };
        sparse(rank, &[0, 1, 2], &[0, 2])?;
        error(sparse(rank, &[0, 2], &[0, 2]), "expected 3 offsets for 2 rows, got 2");
        error(sparse(rank, &[0, 3, 2], &[0, 2]), "row 1: its offset 3 is above the next one, 2");
        error(sparse(rank, &[0, 1, 3], &[0, 2]), "got 0 to 3, 2 values and 2 columns");
        error(sparse(rank, &[0, 1, 2], &[0, 3]), "entry 1: expected a column below 3, got 3");
        Ok(())
    });
}

/// Errors of functions on the host, on one rank and on all.
#[test]
fn errors_of_functions_on_the_host_reach_all_ranks() {
    let errors = |value: fn(&[Vec<f64>]) -> HostResult| {
        on_grid([2, 1], &options()[0], |rank| {
            let space = Space::of("x", Leaf::cells(&mesh(rank, [4, 4, 4])))?;
            let own = Rc::new(rank.index());
            let value = move |x: &[Vec<f64>]| if *own == 1 { value(x) } else { Ok(x.to_vec()) };
            let product = |_: &[Vec<f64>], d: &[Vec<f64>]| Ok(d.to_vec());
            let signature = Signature::new("mine", &space, &space);
            let model = Model::new(HostFunction::new(rank, signature, "1", value, product, product)?);
            let x = random_field(rank, &space, 1)?;
            let error = model.value(rank, &x).unwrap_err();
            // Ranks are in step afterwards.
            model.derivative(rank, &x)?.jvp(rank, &x, &mut Vector::new(&rank.gpu, &space)?)?;
            Ok(error)
        })
    };
    let found = errors(|_| Err("no luck".into()));
    assert!(matches!(&found[1], OperatorError::Failed { .. }), "{}", found[1]);
    assert_eq!(found[1].to_string(), "operator `mine (value)`: no luck");
    assert_eq!(found[0].to_string(), "rank 1: operator `mine (value)`: no luck");
    let found = errors(|x| Ok(vec![x[0][1..].to_vec()]));
    assert!(
        matches!(&found[1], OperatorError::Fit { leaf, why, .. } if leaf == "x" && why.ends_with("got 31")),
        "{}",
        found[1]
    );
    let found = errors(|_| Ok(Vec::new()));
    assert!(found[0].to_string().contains("value: expected 1 leaves"), "{}", found[0]);
    for value in [f64::NAN, f64::INFINITY] {
        let function: fn(&[Vec<f64>]) -> HostResult = match value.is_nan() {
            true => |x| Ok(vec![x[0].iter().enumerate().map(|(at, x)| if at == 3 { f64::NAN } else { *x }).collect()]),
            false => |x| Ok(vec![x[0].iter().enumerate().map(|(at, x)| if at == 3 { 1e300 } else { *x }).collect()]),
        };
        for error in errors(function) {
            let text = "rank 1: number 3 of leaf `x` of its value";
            let is_same = |found: f64| found.to_bits() == value.to_bits();
            assert!(
                matches!(&error, OperatorError::NotFinite { what, value, .. } if what == text && is_same(*value)),
                "{error}"
            );
        }
    }
    on_grid([2, 1], &options()[0], |rank| {
        let (cells, sum) = (Space::of("x", Leaf::cells(&mesh(rank, [4, 4, 4])))?, Space::of("y", Leaf::vector(1))?);
        let product = |_: &[Vec<f64>], d: &[Vec<f64>]| Ok(d.to_vec());
        let signature = Signature::new("sum", &cells, &sum);
        let found = HostFunction::new(rank, signature, "1", |x| Ok(x.to_vec()), product, product);
        let error = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("leaf `y` of the target is replicated, but leaf `x` is distributed"), "{error}");
        Ok(())
    });
}
