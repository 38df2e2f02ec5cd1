//! Operators on devices: values and derivatives against f64 on the host, adjoints by dot products, the same bits for every number of ranks.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::rc::Rc;

use meshloom::Context;
use meshloom::comm::{Communicator, RunError, run_threads};
use meshloom::fft::{Norm, Operator};
use meshloom::gpu::{Gpu, Options};
use meshloom::grid::Grid;
use meshloom::operators::{
    Adjoint, Differentiable, Field, Fourier, FourierFilter, Hartley, Leaf, Linearisation, Linearised, Model,
    OperatorCost, OperatorError, PointwiseOperator, RegularGrid, Space, Worker, check_adjoint, check_derivative,
    random_field,
};

/// Process grids: alone, slabs, pencils, more ranks than planes of the smallest mesh.
const GRIDS: [[usize; 2]; 5] = [[1, 1], [2, 1], [3, 1], [2, 2], [1, 3]];

fn context(comm: Communicator, options: &Options) -> Result<Context, OperatorError> {
    let gpu = Gpu::open(options, 0)?;
    Ok(Context::new(comm, gpu)?)
}

/// Runs `body` on the ranks of a process grid and returns what they give, in order.
fn on_grid<T: Send>(
    parts: [usize; 2],
    options: &Options,
    body: impl Fn(&mut Worker<'_>) -> Result<T, OperatorError> + Sync,
) -> Vec<T> {
    let ranks = parts[0] * parts[1];
    let results: Result<Vec<T>, RunError<OperatorError>> = run_threads(ranks, |comm| {
        let mut context = context(comm, options)?;
        let mut worker = Worker::new(&mut context, Grid::new(parts, ranks).unwrap())?;
        body(&mut worker)
    });
    results.unwrap_or_else(|error| panic!("{parts:?}: {error}"))
}

/// As found, and with windows of 4 KiB.
fn options() -> [Options; 2] {
    let options = Options::from_env().unwrap();
    [options.clone(), Options { window_bytes: Some(4096), ..options }]
}

fn regular(worker: &Worker<'_>, shape: [u64; 3]) -> RegularGrid {
    let size = shape.map(|n| n as f64 * 0.5);
    RegularGrid { shape, size, grid: worker.comms.grid(), rank: worker.comm().rank() }
}

/// The cells of a box in C order, by global index.
fn cells(regular: &RegularGrid) -> Vec<u64> {
    let (part, [_, n1, n2]) = (regular.part(), regular.shape);
    let mut cells = Vec::new();
    for i in part[0].clone() {
        for j in part[1].clone() {
            cells.extend(part[2].clone().map(|k| (i * n1 + j) * n2 + k));
        }
    }
    cells
}

/// A number between -1 and 1 for a cell.
fn number(cell: u64, salt: u64) -> f64 {
    let mixed = (cell + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from((((mixed ^ (mixed >> 32)) >> 40) as f32) / (1u32 << 23) as f32) - 1.0
}

const FLOW: &str = "
    struct State { v: vec3<f32>, energy: f32 }
    fn step(x: f32, v: vec3<f32>) -> State {
        let pushed = v * exp(-x * x) + vec3<f32>(x, 0.5, -x);
        return State(pushed, 0.5 * dot(pushed, pushed));
    }
    fn flow(x: f32, v: vec3<f32>, z: vec2<f32>) -> vec2<f32> {
        let state = step(x, v);
        let turned = vec2<f32>(z.x * cos(state.energy) - z.y * sin(state.energy), z.x * sin(state.energy) + z.y * cos(state.energy));
        return select(turned, vec2<f32>(log(1.0 + state.energy), state.v.z), x > 0.25);
    }";

/// The values of all leaves on the host.
fn host(worker: &mut Worker<'_>, field: &Field) -> Result<BTreeMap<String, Vec<f64>>, OperatorError> {
    let names: Vec<String> = field.space().names().map(Into::into).collect();
    names.into_iter().map(|name| Ok((name.clone(), field.get(&mut worker.context.recorder, &name)?))).collect()
}

/// What a pointwise function takes or gives at a place, counted over batches: leaves in the order of their names.
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
    for (options, parts) in options().into_iter().zip([[1, 1], [2, 1]]) {
        on_grid(parts, &options, |worker| {
            let regular = regular(worker, [5, 17, 16]);
            let cells = Leaf::cells(&regular).batch(2);
            let leaves = [("x", cells.clone()), ("v", cells.clone().components(3)), ("z", cells.clone().complex())];
            let (domain, target) = (Space::new(leaves)?, Space::of("turned", cells.clone().complex())?);
            let operator = PointwiseOperator::wgsl_onto(FLOW, "flow", &domain, &target)?;
            let function = operator.map().function().clone();
            let model = Model::new(operator);
            let (x, dx) = (random_field(worker, &domain, 3)?, random_field(worker, &domain, 4)?);
            let dy = random_field(worker, &target, 5)?;
            let at = model.at(worker, &x)?;
            let mut jvp = Field::new(worker.gpu(), &target)?;
            let mut vjp = Field::new(worker.gpu(), &domain)?;
            at.jvp(worker, &dx, &mut jvp)?;
            at.vjp(worker, &dy, &mut vjp)?;

            let [x, dx, dy, y, jvp, vjp] = [&x, &dx, &dy, &at.value, &jvp, &vjp].map(|field| host(worker, field));
            let (x, dx, dy, y, jvp, vjp) = (x?, dx?, dy?, y?, jvp?, vjp?);
            let close = |what: &str, found: Vec<f64>, wanted: Vec<f64>| {
                let scale = 1.0 + wanted.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                for (found, wanted) in found.iter().zip(&wanted) {
                    // Some thirty roundings; sin and cos of WGSL are good to 2^-11 in all, of these drivers to rounding.
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

fn pointwise(text: &str, domain: &Space, result: &str) -> Result<Model, OperatorError> {
    Ok(Model::new(PointwiseOperator::wgsl(text, "f", domain, result)?))
}

#[test]
fn ten_pointwise_operators_are_one_dispatch() {
    on_grid([1, 1], &options()[0], |worker| {
        let space = Space::of("x", Leaf::cells(&regular(worker, [4, 5, 6])))?;
        let step = pointwise("fn f(x: f32) -> f32 { return x + 0.5 * sin(x); }", &space, "x")?;
        let mut chain = step.clone();
        for _ in 0..9 {
            chain = chain.then(&step)?;
        }
        // Branches of a zip, and their product, are fused as well.
        let square = pointwise("fn f(x: f32) -> f32 { return x * x; }", &space, "x")?;
        let whole = chain.times(&square)?.plus(&chain)?;
        assert!(whole.is_pointwise(), "{whole:?}");
        let x = random_field(worker, &space, 1)?;
        for model in [&chain, &whole] {
            worker.context.recorder.wait()?;
            let before = worker.context.recorder.counts();
            let at = model.at(worker, &x)?;
            let (mut dy, mut dx) = (Field::new(worker.gpu(), &space)?, Field::new(worker.gpu(), &space)?);
            at.jvp(worker, &x, &mut dy)?;
            at.vjp(worker, &x, &mut dx)?;
            worker.context.recorder.wait()?;
            let after = worker.context.recorder.counts();
            assert_eq!(after.dispatches - before.dispatches, 3, "one for each call");
            let words = 4 * 4 * 5 * 6;
            let cost = model.cost();
            assert_eq!(
                [cost.apply, cost.jvp, cost.vjp].map(|cost| (cost.passes, cost.bytes)),
                [(1, 2 * words), (1, 3 * words), (1, 3 * words)]
            );
            check_adjoint(worker, model, &x)?;
            let check = check_derivative(worker, model, &x, &x)?;
            assert!((check.order.unwrap() - 2.0).abs() < 0.2, "{check}");
        }
        let (x, y) = (host(worker, &x)?, chain.value(worker, &x)?);
        for (x, y) in x["x"].iter().zip(host(worker, &y)?["x"].iter()) {
            let wanted = (0..10).fold(*x, |x, _| x + 0.5 * x.sin());
            assert!((y - wanted).abs() < 1e-5, "{y} {wanted}");
        }
        Ok(())
    });
}

/// The part of this rank of `all`, by cell of the mesh.
fn own<T: Copy>(regular: &RegularGrid, all: &[T]) -> Vec<T> {
    cells(regular).into_iter().map(|cell| all[cell as usize]).collect()
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
        let found = on_grid(parts, &options, |worker| {
            let regular = regular(worker, shape);
            let space = Space::of("x", Leaf::cells(&regular))?;
            let pairs = Space::of("x", Leaf::cells(&regular).components(2).batch(2))?;
            let complex = Space::of("x", Leaf::cells(&regular).complex().batch(3))?;
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
            let own_cells = own(&regular, &x);
            let mut field = Field::new(worker.gpu(), &space)?;
            field.set(&mut worker.context.recorder, "x", &own_cells)?;
            let models = [
                Model::new(Fourier::new(worker, &space, Norm::Backward)?),
                Model::new(Fourier::new(worker, &complex, Norm::Ortho)?),
                Model::new(Adjoint(Fourier::new(worker, &pairs, Norm::Forward)?)),
                Model::new(Hartley::new(worker, &pairs)?),
                Model::new(FourierFilter::new(worker, &space, &multiplier)?),
                Model::new(FourierFilter::padded(worker, &complex, &multiplier, Some([8, 10, 12]))?),
            ];
            for model in &models {
                let x = random_field(worker, model.domain(), 9)?;
                check_adjoint(worker, model, &x)?;
                assert!(model.cost().apply.passes >= 3);
                assert_eq!(model.cost().apply.messages > 0, parts != [1, 1], "{model:?}");
            }
            // There and back is the number of cells.
            let hartley = Hartley::new(worker, &space)?;
            let modes = Space::of("x", Leaf::modes(&regular))?;
            let there = Model::new(hartley);
            let y = there.value(worker, &field)?;
            let back = there.at(worker, &field)?;
            let mut again = Field::new(worker.gpu(), &space)?;
            back.vjp(worker, &y, &mut again)?;
            for (again, x) in host(worker, &again)?["x"].iter().zip(&own_cells) {
                assert!((again / 120.0 - x).abs() < 1e-6, "{again} {x}");
            }
            assert_eq!(y.space(), &modes);
            let part = regular.modes(false);
            let mut found = Vec::new();
            let values = y.get(&mut worker.context.recorder, "x")?;
            let mut values = values.into_iter();
            for i in part[0].clone() {
                for j in part[1].clone() {
                    for k in part[2].clone() {
                        let cell = (i * shape[1] + j) * shape[2] + k;
                        found.push((cell as usize, values.next().unwrap() as f32));
                    }
                }
            }
            let filtered = models[4].value(worker, &field)?;
            let filtered = filtered.get(&mut worker.context.recorder, "x")?;
            let filtered =
                cells(&regular).into_iter().zip(filtered).map(|(cell, value)| (120 + cell as usize, value as f32));
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

#[test]
fn what_does_not_fit_is_said_when_it_is_composed() {
    on_grid([1, 1], &options()[0], |worker| {
        let regular = regular(worker, [4, 4, 4]);
        let other = RegularGrid { shape: [4, 4, 8], ..regular.clone() };
        let cut = RegularGrid { grid: Grid::new([2, 1], 2).unwrap(), ..regular.clone() };
        let space = Space::of("x", Leaf::cells(&regular))?;
        let square = pointwise("fn f(x: f32) -> f32 { return x * x; }", &space, "y")?;
        let fails = |what: Result<Model, OperatorError>, wanted: &[&str]| {
            let error = what.unwrap_err().to_string();
            assert!(wanted.iter().all(|part| error.contains(part)), "{error}\n{wanted:?}");
        };
        let on = |leaf: Leaf| pointwise("fn f(x: f32) -> f32 { return exp(x); }", &Space::of("x", leaf)?, "y");
        fails(square.then(&on(Leaf::cells(&other))?), &["operator `f`", "4 x 4 x 8", "4 x 4 x 4"]);
        fails(square.then(&on(Leaf::cells(&regular).batch(2))?), &["batch of 2"]);
        fails(square.then(&on(Leaf::cells(&cut))?), &["over 2x1 ranks", "over 1x1 ranks"]);
        fails(square.zip(&square), &["`y`", "two leaves"]);
        fails(square.zip(&on(Leaf::cells(&other))?.named("z")?), &["leaf `x`", "4 x 4 x 8"]);
        let wide = Space::new([("x", Leaf::cells(&regular)), ("v", Leaf::cells(&regular).components(3))])?;
        fails(
            pointwise("fn f(x: f32, v: vec2<f32>) -> f32 { return x * v.x; }", &wide, "y"),
            &["operator `f`, leaf `v`", "3 components"],
        );
        fails(pointwise("fn f(x: f32, w: f32) -> f32 { return x * w; }", &wide, "y"), &["`w`"]);
        fails(
            pointwise("fn f(x: f32) -> f32 {\n let n = i32(x);\n return x; }", &space, "y"),
            &["operator `f`", "line 2", "integers"],
        );
        let mixed = Space::new([("x", Leaf::cells(&regular)), ("w", Leaf::vector(64))])?;
        fails(pointwise("fn f(x: f32, w: f32) -> f32 { return x * w; }", &mixed, "y"), &["not the same places"]);
        let foreign = Space::of("x", Leaf::cells(&cut))?;
        fails(Fourier::new(worker, &foreign, Norm::Backward).map(Model::new), &["Fourier transform", "2x1", "1x1"]);
        for (leaf, wanted) in [
            (Leaf::cells(&RegularGrid { shape: [0, 1, 1], ..regular.clone() }), "every axis needs cells"),
            (Leaf::cells(&RegularGrid { size: [1.0, f64::NAN, 1.0], ..regular.clone() }), "a length"),
            (Leaf::vector(3).batch(0), "batch of 0"),
        ] {
            let error = Space::of("x", leaf).unwrap_err().to_string();
            assert!(error.contains("`x`") && error.contains(wanted), "{error}");
        }
        // Fields of another space are refused before anything is recorded.
        let (field, vector) = (Field::new(worker.gpu(), &space)?, Space::of("n", Leaf::vector(3))?);
        let mut wrong = Field::new(worker.gpu(), &vector)?;
        let error = square.apply(worker, &field, &mut wrong).unwrap_err().to_string();
        assert!(error.contains("operator `f`") && error.contains("vector of 3"), "{error}");
        let mut same = field.clone();
        assert!(square.apply(worker, &field, &mut same).is_err(), "in place");
        // NaN is found by whoever sums.
        let mut field = Field::new(worker.gpu(), &space)?;
        let mut values = vec![1.0; 64];
        values[17] = f64::NAN;
        field.set(&mut worker.context.recorder, "x", &values)?;
        let error = worker.dot(&field, &field).unwrap_err().to_string();
        assert!(error.contains("leaf `x`") && error.contains("NaN"), "{error}");
        Ok(())
    });
}

/// A derivative that is wrong by a factor.
struct Wrong(Model);

impl Differentiable for Wrong {
    fn name(&self) -> String {
        "wrong".into()
    }
    fn domain(&self) -> &Space {
        self.0.domain()
    }
    fn target(&self) -> &Space {
        self.0.target()
    }
    fn apply(&self, worker: &mut Worker<'_>, x: &Field, y: &mut Field) -> Result<(), OperatorError> {
        self.0.apply(worker, x, y)
    }
    fn linearise(
        self: Rc<Self>,
        worker: &mut Worker<'_>,
        x: &Field,
        y: &mut Field,
    ) -> Result<Box<dyn Linearised>, OperatorError> {
        self.0.apply(worker, x, y)?;
        Ok(Box::new(WrongAt(self.0.at(worker, x)?)))
    }
    fn cost(&self) -> OperatorCost {
        OperatorCost::default()
    }
}

struct WrongAt(Linearisation);

impl Linearised for WrongAt {
    fn jvp(&self, worker: &mut Worker<'_>, dx: &Field, dy: &mut Field) -> Result<(), OperatorError> {
        self.0.jvp(worker, dx, dy)?;
        let half = dy.clone();
        let mut out = Field::new(worker.gpu(), dy.space())?;
        worker.axpby(1.01, &half, 0.0, &mut out)?;
        dy.copy_from(&mut worker.context.recorder, &out)
    }
    fn vjp(&self, worker: &mut Worker<'_>, dy: &Field, dx: &mut Field) -> Result<(), OperatorError> {
        self.0.vjp(worker, dy, dx)
    }
}

#[test]
fn checks_find_a_wrong_derivative() {
    on_grid([1, 1], &options()[0], |worker| {
        let space = Space::of("x", Leaf::cells(&regular(worker, [4, 4, 4])))?;
        let right = pointwise("fn f(x: f32) -> f32 { return exp(x); }", &space, "y")?;
        let x = random_field(worker, &space, 1)?;
        check_adjoint(worker, &right, &x)?;
        check_derivative(worker, &right, &x, &x)?;
        let wrong = Model::new(Wrong(right));
        assert!(matches!(check_adjoint(worker, &wrong, &x), Err(OperatorError::Check { .. })));
        let error = check_derivative(worker, &wrong, &x, &x).unwrap_err().to_string();
        assert!(error.contains("order 1.") || error.contains("order 0."), "{error}");
        Ok(())
    });
}
