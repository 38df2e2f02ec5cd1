//! Every operator there is, made small: the table that checks of adjoints and derivatives run over.

use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::fft::{Norm, Operator};
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, InferenceError, MaternScale, Prior, PriorSpectrum,
};
use meshloom::mesh::Window;
use meshloom::operators::{
    Adjoint, Convolution, Diagonal, Differentiable, Fourier, FourierFilter, Gather, Ghosts, Hartley, KernelOperator,
    Leaf, LinesOfSight, Model, OperatorError, PointwiseOperator, RankCollective, Readout, RegularGrid, Replicate,
    Select, Space, StencilOperator, SumOverRanks, ToDevice, Wavenumbers, Worker, check_adjoint, check_derivative,
    random_field,
};
use meshloom::pm::{Config, Observable, SimulationOperator};

/// Cells of the fields: of 4 KiB a real field of one rank takes two windows.
const SHAPE: [u64; 3] = [8, 16, 12];

type Models = Result<Vec<Model>, OperatorError>;

/// Operators of a type.
pub struct Case {
    /// The type, by its name in `src`.
    pub name: &'static str,
    /// Whether they are linear.
    linear: bool,
    /// Models of it, on the ranks of a worker.
    make: fn(&mut Worker<'_>) -> Models,
}

impl Case {
    /// Models of it, on the ranks of a worker.
    #[allow(dead_code)]
    pub fn models(&self, worker: &mut Worker<'_>) -> Models {
        (self.make)(worker)
    }
}

const fn linear(name: &'static str, make: fn(&mut Worker<'_>) -> Models) -> Case {
    Case { name, linear: true, make }
}

const fn curved(name: &'static str, make: fn(&mut Worker<'_>) -> Models) -> Case {
    Case { name, linear: false, make }
}

/// All.
pub const CASES: &[Case] = &[
    linear("Fourier", fourier),
    linear("InverseFourier", inverse_fourier),
    linear("Hartley", |worker| one(Hartley::new(worker, &pairs(worker)?)?)),
    linear("FourierFilter", filters),
    linear("Convolution", convolution),
    linear("Wavenumbers", wavenumbers),
    linear("Gather", gathers),
    linear("Diagonal", diagonals),
    linear("Select", select),
    linear("StencilOperator", stencil),
    linear("Ghosts", |worker| one(Ghosts::new(worker, &pairs(worker)?, [[1, 2], [2, 0], [1, 1]])?)),
    linear("Readout", readouts),
    linear("LinesOfSight", lines),
    linear("Replicate", |worker| one(Replicate::new(worker, &own_points(worker)?)?)),
    linear("SumOverRanks", sum_over_ranks),
    linear("RankCollective", collectives),
    linear("ToDevice", |_| one(ToDevice::new(&Space::of("x", Leaf::parameters(3))?)?)),
    linear("Adjoint", |worker| one(Adjoint(Hartley::new(worker, &pairs(worker)?)?))),
    curved("PointwiseOperator", pointwise),
    curved("KernelOperator", products),
    curved("SimulationOperator", simulations),
    curved("CorrelatedField", correlated_fields),
    curved("OnHost", priors),
    curved("Then", |worker| {
        let (field, smooth) = (grown(worker, "x")?, smoothed(worker)?);
        Ok(vec![field.then(&smooth)?, smooth.then(&field)?.then(&smooth)?])
    }),
    curved("Zip", |worker| Ok(vec![grown(worker, "y")?.zip(&smoothed(worker)?)?])),
    curved("Part", |worker| {
        let both = grown(worker, "y")?.zip(&grown(worker, "z")?)?;
        let wanted = Space::of("z", both.target().leaf("z").expect("one of two").clone())?;
        Ok(vec![both.giving(&wanted)?, smoothed(worker)?.then(&both)?.giving(&wanted)?])
    }),
    curved("Renamed", |worker| Ok(vec![smoothed(worker)?.then(&grown(worker, "y")?)?.named("z")?])),
    curved("sums and products", |worker| {
        let (field, smooth) = (grown(worker, "x")?, smoothed(worker)?);
        Ok(vec![field.plus(&smooth)?, field.times(&smooth)?])
    }),
];

/// Checks the adjoints and the Taylor remainders of all operators whose names `wanted` says.
pub fn check(worker: &mut Worker<'_>, wanted: impl Fn(&str) -> bool) -> Result<(), OperatorError> {
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        for model in (case.make)(worker)? {
            let x = random_field(worker, model.domain(), 3)?;
            let found = check_adjoint(worker, &model, &x)?;
            // Before one rank alone there is nobody.
            let is_zero = model.name() == "exclusive scan" && worker.comm().size() == 1;
            assert!(is_zero || found.tolerance > 0.0, "{}: {model:?} is 0", case.name);
            let dx = random_field(worker, model.domain(), 4)?;
            let found = check_derivative(worker, &model, &x, &dx)?;
            // An order below 1.8 is an error by itself.
            assert_eq!(found.order.is_none(), case.linear, "{}: {model:?}\n{found}", case.name);
        }
    }
    Ok(())
}

fn one(operator: impl Differentiable + 'static) -> Models {
    Ok(vec![Model::new(operator)])
}

fn regular(worker: &Worker<'_>) -> RegularGrid {
    let size = SHAPE.map(|n| n as f64 * 0.5);
    RegularGrid { shape: SHAPE, size, grid: worker.comms.grid(), rank: worker.comm().rank() }
}

fn cells(worker: &Worker<'_>) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&regular(worker)))
}

/// Two components, a batch of two.
fn pairs(worker: &Worker<'_>) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&regular(worker)).components(2).batch(2))
}

fn complex(worker: &Worker<'_>) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&regular(worker)).complex())
}

/// Points of a rank: uneven, none on some.
fn own_points(worker: &Worker<'_>) -> Result<Space, OperatorError> {
    let own = |rank: usize| [5, 0, 2, 7][rank % 4];
    Space::of("x", Leaf::points(own(worker.comm().rank()), (0..worker.comm().size()).map(own).sum()))
}

fn grown(worker: &Worker<'_>, result: &str) -> Result<Model, OperatorError> {
    let text = "fn f(x: f32) -> f32 { return x * exp(0.5 * x); }";
    Ok(Model::new(PointwiseOperator::wgsl(text, "f", &cells(worker)?, result)?))
}

/// Products of neighbors: of vectors, and of cells, of which each rank sees its own.
fn products(worker: &mut Worker<'_>) -> Models {
    let text = "
        fn value(i: u32) -> f32 { return x(i) * x(i + 1u); }
        fn jvp(i: u32) -> f32 { return dx(i) * x(i + 1u) + x(i) * dx(i + 1u); }
        fn vjp(i: u32) -> f32 { return dy(i) * x(i + 1u) + dy(i - 1u) * x(i - 1u); }";
    let vectors = [9, 8].map(|len| Space::of("x", Leaf::vector(len)));
    let [domain, target] = vectors;
    let cells = cells(worker)?;
    Ok(vec![
        Model::new(KernelOperator::new("products", &domain?, &target?, text)?),
        Model::new(KernelOperator::new("products", &cells, &cells, text)?),
    ])
}

fn smoothed(worker: &mut Worker<'_>) -> Result<Model, OperatorError> {
    let smooth = Operator { constant: [1.0, 0.0], factor: &|_, wave| (-0.1 * wave.k * wave.k).exp(), laplacian: None };
    let space = cells(worker)?;
    Ok(Model::new(FourierFilter::new(worker, &space, &smooth)?))
}

fn fourier(worker: &mut Worker<'_>) -> Models {
    let spaces = [pairs(worker)?, complex(worker)?];
    let norms = [Norm::Backward, Norm::Ortho];
    spaces.iter().zip(norms).map(|(space, norm)| Ok(Model::new(Fourier::new(worker, space, norm)?))).collect()
}

fn inverse_fourier(worker: &mut Worker<'_>) -> Models {
    let spaces = [pairs(worker)?, complex(worker)?];
    let norms = [Norm::Backward, Norm::Ortho];
    spaces.iter().zip(norms).map(|(space, norm)| Ok(Model::new(Fourier::new(worker, space, norm)?.inverse()))).collect()
}

fn filters(worker: &mut Worker<'_>) -> Models {
    // The derivative along y of a potential: complex, and odd.
    let slope = Operator {
        constant: [0.0, 1.0],
        factor: &|axis, wave| if axis == 1 && !wave.nyquist { wave.k } else { f64::from(u8::from(axis != 1)) },
        laplacian: Some(&|_, wave| wave.k * wave.k),
    };
    let (pairs, complex) = (pairs(worker)?, complex(worker)?);
    Ok(vec![
        Model::new(FourierFilter::new(worker, &pairs, &slope)?),
        Model::new(FourierFilter::padded(worker, &complex, &slope, Some([16, 20, 24]))?),
    ])
}

fn convolution(worker: &mut Worker<'_>) -> Models {
    let space = cells(worker)?;
    let kernel = random_field(worker, &space, 7)?;
    one(Convolution::new(worker, &space, &kernel)?)
}

fn wavenumbers(worker: &mut Worker<'_>) -> Models {
    let regular = regular(worker);
    let modes = Space::of("x", Leaf::modes(&regular))?;
    let unique = Wavenumbers::unique(&regular)?.amplitudes(worker, &modes)?;
    let binned = Wavenumbers::edges(&regular, &[0.5, 1.0, 3.0, 9.0])?.amplitudes(worker, &modes)?;
    Ok(vec![Model::new(unique), Model::new(binned)])
}

fn gathers(worker: &mut Worker<'_>) -> Models {
    let space = cells(worker)?;
    let own = space.leaf("x").map_or(0, Leaf::len);
    let index: Vec<u32> = (0..own).map(|place| (place * 13 % 1500) as u32).collect();
    let array = worker.gpu().array("index", own)?;
    worker.context.recorder.upload(&array, 0, &index)?;
    let entries = |n: u64| Space::of("x", Leaf::vector(n));
    let gather = Gather::new(&entries(1400)?, &space, array)?;
    Ok(vec![Model::new(gather), Model::new(Gather::broadcast(&entries(1)?, &space)?)])
}

fn diagonals(worker: &mut Worker<'_>) -> Models {
    let leaf = Leaf::half_spectrum(&regular(worker));
    let factors = random_field(worker, &Space::of("w", leaf.clone())?, 5)?;
    let complex = Diagonal::new(&Space::of("x", leaf.batch(3))?, &factors)?;
    let space = cells(worker)?;
    let mask = random_field(worker, &space, 6)?;
    Ok(vec![Model::new(complex), Model::new(Diagonal::new(&space, &mask)?)])
}

fn select(worker: &mut Worker<'_>) -> Models {
    let space = cells(worker)?;
    one(Select::cells(worker, &space, &[[0, 4, 5], [3, 0, 0], [7, 15, 11], [2, 2, 2], [0, 1, 0]])?)
}

fn stencil(worker: &mut Worker<'_>) -> Models {
    let space = pairs(worker)?;
    one(StencilOperator::new(
        worker,
        &space,
        &[([0, 0, 0], -2.5), ([1, 0, -1], 1.25), ([-3, 2, 0], 0.5), ([2, -9, 7], 1.0)],
    )?)
}

fn readouts(worker: &mut Worker<'_>) -> Models {
    let (regular, space) = (regular(worker), pairs(worker)?);
    // The middle of this rank's cells, their faces, and between.
    let mut points = Vec::new();
    for (i, j, k) in [(0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.99, 0.01, 0.7)] {
        let part = regular.part();
        if part.iter().all(|range| !range.is_empty()) {
            let at = |axis: usize, share: f64| {
                0.5 * (part[axis].start as f64 + share * (part[axis].end - part[axis].start) as f64)
            };
            points.push([at(0, i), at(1, j), at(2, k)]);
        }
    }
    let windows = Window::ALL;
    windows.map(|window| Ok(Model::new(Readout::new(worker, &space, window, &points)?))).into_iter().collect()
}

fn lines(worker: &mut Worker<'_>) -> Models {
    let space = cells(worker)?;
    let lines = [[[0.1, 0.2, 0.3], [3.9, 7.2, 5.8]], [[0.5, 0.5, 0.0], [0.5, 0.5, 6.0]]];
    one(LinesOfSight::new(worker, &space, &lines, 0.3)?)
}

fn sum_over_ranks(worker: &mut Worker<'_>) -> Models {
    let space = Space::of("x", Leaf::points(3, 3 * worker.comm().size() as u64))?;
    one(SumOverRanks::new(worker, &space)?)
}

fn collectives(worker: &mut Worker<'_>) -> Models {
    let (me, size, space) = (worker.comm().rank(), worker.comm().size(), own_points(worker)?);
    let own = space.leaf("x").map_or(0, Leaf::len);
    let (root, next, before) = (size - 1, (me + 1) % size, (me + size - 1) % size);
    let mut counts = vec![0; size];
    counts[0] = own / 2;
    counts[root] += own - counts[0];
    let at_root = Space::of("x", Leaf::points(if me == root { 4 } else { 0 }, 4))?;
    let equal = Space::of("x", Leaf::points(3, 3 * size as u64))?;
    let operators = [
        RankCollective::all_gather(worker, &space)?,
        RankCollective::gather(worker, &space, root)?,
        RankCollective::broadcast(worker, &at_root, root)?,
        RankCollective::all_to_all(worker, &space, &counts)?,
        RankCollective::send_receive(worker, &space, Some(next), Some(before))?,
        RankCollective::all_reduce(worker, &equal)?,
        RankCollective::scan(worker, &equal)?,
        RankCollective::scan_exclusive(worker, &equal)?,
    ];
    Ok(operators.into_iter().map(Model::new).collect())
}

fn pointwise(worker: &mut Worker<'_>) -> Models {
    let leaf = Leaf::cells(&regular(worker));
    let leaves = [("rate", Leaf::vector(1)), ("v", leaf.clone().components(2)), ("x", leaf.clone())];
    let text = "fn f(x: f32, v: vec2<f32>, rate: f32) -> vec2<f32> { return v * exp(0.5 * rate * x) + vec2<f32>(x * x, rate); }";
    let operator = PointwiseOperator::wgsl(text, "f", &Space::new(leaves)?, "y")?;
    let turn = "fn g(x: vec2<f32>) -> vec2<f32> { return vec2<f32>(x.x * x.y, x.x * x.x - x.y) / (2.0 + dot(x, x)); }";
    let leaf = leaf.complex().batch(2);
    let (domain, target) = (Space::of("x", leaf.clone())?, Space::of("turned", leaf)?);
    Ok(vec![Model::new(operator), Model::new(PointwiseOperator::wgsl_onto(turn, "g", &domain, &target)?)])
}

/// Both schemes (kick, drift, kick and drift, kick, drift), orders and two windows that are smooth.
fn simulations(worker: &mut Worker<'_>) -> Models {
    let all = [Observable::Density, Observable::Displacement, Observable::Momentum];
    [(Scheme::FastPm, LptOrder::Second, Window::Pcs), (Scheme::BullFrog, LptOrder::First, Window::Tsc)]
        .map(|(scheme, lpt, window)| {
            let config =
                Config { particles: 8, mesh: 8, box_size: 80.0, steps: 2, scheme, lpt, window, ..Config::default() };
            Ok(Model::new(SimulationOperator::new(worker, config, 2, &all)?))
        })
        .into_iter()
        .collect()
}

fn correlated_fields(worker: &mut Worker<'_>) -> Models {
    let regular = regular(worker);
    let amplitudes = [
        AmplitudePrior::Matern {
            of: MaternScale::Deviation,
            scale: [0.5, 0.1],
            cutoff_wavenumber: [5.0, 2.0],
            slope: [-4.0, 0.1],
        },
        AmplitudePrior::NonParametric {
            of: PriorSpectrum::Power,
            fluctuations: [0.8, 0.4],
            slope: [-3.0, 0.3],
            flexibility: Some([0.5, 0.2]),
            asperity: None,
        },
    ];
    let field = |amplitude| {
        let axes = vec![AxesPrior { name: String::new(), axes: [true; 3], amplitude }];
        let prior = FieldPrior { name: String::new(), offset_mean: -1.0, offset_std: [0.3, 0.1], axes };
        CorrelatedField::new(worker, &regular, &prior)?.model()
    };
    amplitudes.map(field).into_iter().map(|model| model.map_err(outer)).collect()
}

/// The error of an operator of the upper room.
fn outer(error: InferenceError) -> OperatorError {
    OperatorError::failed("inference", error)
}

fn priors(worker: &mut Worker<'_>) -> Models {
    let prior = Prior::LogNormal { mean: 3.0, std: 1.0 };
    let spaces = [Space::of("x", Leaf::parameters(4))?, cells(worker)?];
    spaces.iter().map(|space| prior.operator(space, "y").map_err(outer)).collect()
}
