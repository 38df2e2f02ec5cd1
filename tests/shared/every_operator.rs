//! Every operator there is, made small: the table that checks of adjoints and derivatives run over.

use std::ops::Range;

use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::fft::{Norm, Operator};
use meshloom::inference::{
    AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, InferenceError, MaternScale, Prior, PriorSpectrum,
};
use meshloom::map::{ChunkSize, HostMap, Mapping, Placement, RowReduction};
use meshloom::mesh::Window;
use meshloom::operators::{
    Adjoint, Convolution, Diagonal, Differentiable, Fourier, FourierFilter, Gather, Ghosts, Hartley, HostFunction,
    Interpolation, Join, KernelOperator, Leaf, LinesOfSight, Matrix, Model, OperatorError, Paint, PointwiseOperator,
    RankCollective, Readout, Repeat, Select, Signature, Space, StencilOperator, ToDevice, Wavenumbers, check_adjoint,
    check_derivative, random_field,
};
use meshloom::pm::{Config, LinearDensity, Observable, SimulationOperator};
use meshloom::{Mesh, Rank};

/// Cells of the fields: of 4 KiB a real field of one rank takes two windows.
const SHAPE: [u64; 3] = [8, 16, 12];

type Models = Result<Vec<Model>, OperatorError>;

/// Operators of a type.
pub struct Case {
    /// The type, by its name in `src`.
    pub name: &'static str,
    /// Whether they are linear.
    linear: bool,
    /// Models of it, on the ranks of a rank.
    make: fn(&mut Rank) -> Models,
}

impl Case {
    /// Models of it, on the ranks of a rank.
    #[allow(dead_code)]
    pub fn models(&self, rank: &mut Rank) -> Models {
        (self.make)(rank)
    }
}

const fn linear(name: &'static str, make: fn(&mut Rank) -> Models) -> Case {
    Case { name, linear: true, make }
}

const fn curved(name: &'static str, make: fn(&mut Rank) -> Models) -> Case {
    Case { name, linear: false, make }
}

/// All.
pub const CASES: &[Case] = &[
    linear("Fourier", fourier),
    linear("Fourier::inverse", inverse_fourier),
    linear("Hartley", |rank| one(Hartley::new(rank, &pairs(rank)?)?)),
    linear("FourierFilter", filters),
    linear("Convolution", convolution),
    linear("Wavenumbers", wavenumbers),
    linear("Gather", gathers),
    linear("Diagonal", diagonals),
    linear("Select", select),
    linear("StencilOperator", stencil),
    linear("Ghosts", |rank| one(Ghosts::new(rank, &pairs(rank)?, [[1, 2], [2, 0], [1, 1]])?)),
    linear("Readout", readouts),
    linear("LinesOfSight", lines),
    linear("RankCollective::replicate", |rank| one(RankCollective::replicate(rank, &own_points(rank)?)?)),
    linear("RankCollective::sum_over_ranks", sum_over_ranks),
    linear("RankCollective", collectives),
    linear("LinearDensity", |rank| {
        let grid = Some(mesh(rank).grid().parts());
        let config = Config { particles: 8, mesh: 8, box_size: 80.0, steps: 1, grid, ..Config::default() };
        one(LinearDensity::new(rank, &config, 0.5)?)
    }),
    linear("Join", joins),
    linear("Repeat", |rank| {
        let modes = Space::of("x", Leaf::half_spectrum(&mesh(rank)).components(2))?;
        Ok(vec![Model::new(Repeat::new(&cells(rank)?, 5, "y")?), Model::new(Repeat::new(&modes, 2, "x")?)])
    }),
    linear("ToDevice", |_| one(ToDevice::new(&Space::of("x", Leaf::parameters(3))?)?)),
    linear("Matrix", matrices),
    linear("Matrix::sparse", sparse_matrices),
    linear("Adjoint", |rank| one(Adjoint::new(Hartley::new(rank, &pairs(rank)?)?))),
    curved("PointwiseOperator", pointwise),
    curved("KernelOperator", products),
    curved("HostFunction", host_functions),
    curved("HostMap", host_maps),
    curved("Paint", paints),
    curved("SimulationOperator", simulations),
    curved("CorrelatedField", correlated_fields),
    curved("AmplitudeModel", amplitude_models),
    curved("Interpolation", interpolations),
    curved("OnHost", priors),
    curved("Then", |rank| {
        let (field, smooth) = (grown(rank, "x")?, smoothed(rank)?);
        Ok(vec![field.then(&smooth)?, smooth.then(&field)?.then(&smooth)?])
    }),
    curved("Zip", |rank| Ok(vec![grown(rank, "y")?.zip(&smoothed(rank)?)?])),
    curved("Part", |rank| {
        let both = grown(rank, "y")?.zip(&grown(rank, "z")?)?;
        let wanted = Space::of("z", both.target().leaf("z").expect("one of two").clone())?;
        Ok(vec![both.giving(&wanted)?, smoothed(rank)?.then(&both)?.giving(&wanted)?])
    }),
    curved("Renamed", |rank| {
        // The leaves change places.
        let both = smoothed(rank)?.zip(&grown(rank, "y")?)?;
        Ok(vec![both.renamed(&[("x", "w")], &[("x", "z"), ("y", "a")])?])
    }),
    curved("sums and products", |rank| {
        let (field, smooth) = (grown(rank, "x")?, smoothed(rank)?);
        let ended = smooth.then(&field)?;
        let number = Model::identity(&Space::of("s", Leaf::vector(1))?)?;
        Ok(vec![
            field.plus(&smooth)?,
            field.times(&smooth)?,
            ended.minus(&ended.over(&field.exp()?)?)?,
            ended.times(&number)?,
        ])
    }),
];

/// Checks the adjoints and the Taylor remainders of all operators whose names `wanted` says.
pub fn check(rank: &mut Rank, wanted: impl Fn(&str) -> bool) -> Result<(), OperatorError> {
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        for model in (case.make)(rank)? {
            let x = random_field(rank, model.domain(), 3)?;
            let found = check_adjoint(rank, &model, &x)?;
            // One rank alone has no rank before it.
            let is_zero = model.name() == "exclusive scan" && rank.comm.size() == 1;
            assert!(is_zero || found.tolerance > 0.0, "{}: {model:?} is 0", case.name);
            let dx = random_field(rank, model.domain(), 4)?;
            let found = check_derivative(rank, &model, &x, &dx)?;
            // An order below 1.8 is an error by itself.
            assert_eq!(found.order.is_none(), case.linear, "{}: {model:?}\n{found}", case.name);
        }
    }
    Ok(())
}

fn one(operator: impl Differentiable + 'static) -> Models {
    Ok(vec![Model::new(operator)])
}

fn mesh(rank: &Rank) -> Mesh {
    crate::process_grid::mesh(rank, SHAPE, SHAPE.map(|n| n as f64 * 0.5))
}

fn cells(rank: &Rank) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&mesh(rank)))
}

/// Two components, a batch of two.
fn pairs(rank: &Rank) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&mesh(rank)).components(2).batch(2))
}

fn complex(rank: &Rank) -> Result<Space, OperatorError> {
    Space::of("x", Leaf::cells(&mesh(rank)).complex())
}

/// Points of a rank: uneven, none on some.
fn own_points(rank: &Rank) -> Result<Space, OperatorError> {
    let own = |rank: usize| [5, 0, 2, 7][rank % 4];
    Space::of("x", Leaf::points(own(rank.comm.rank()), (0..rank.comm.size()).map(own).sum()))
}

fn grown(rank: &Rank, result: &str) -> Result<Model, OperatorError> {
    let text = "fn f(x: f32) -> f32 { return x * exp(0.5 * x); }";
    Ok(Model::new(PointwiseOperator::wgsl(text, "f", &cells(rank)?, result)?))
}

/// Products of neighbors: of vectors, and of cells, of which each rank sees its own.
fn products(rank: &mut Rank) -> Models {
    let text = "
        fn value(i: u32) -> f32 { return x(i) * x(i + 1u); }
        fn jvp(i: u32) -> f32 { return dx(i) * x(i + 1u) + x(i) * dx(i + 1u); }
        fn vjp(i: u32) -> f32 { return dy(i) * x(i + 1u) + dy(i - 1u) * x(i - 1u); }";
    let vectors = [9, 8].map(|len| Space::of("x", Leaf::vector(len)));
    let [domain, target] = vectors;
    let cells = cells(rank)?;
    Ok(vec![
        Model::new(KernelOperator::new("products", &domain?, &target?, text)?),
        Model::new(KernelOperator::new("products", &cells, &cells, text)?),
    ])
}

/// Odd sizes, one row that is longer than a segment and one that is empty.
fn vectors(rows: u64, columns: u64) -> Result<[Space; 2], OperatorError> {
    Ok([Space::of("x", Leaf::vector(columns))?, Space::of("y", Leaf::vector(rows))?])
}

fn matrices(rank: &mut Rank) -> Models {
    let [domain, target] = vectors(7, 601)?;
    let values: Vec<f32> = (0..7 * 601).map(|at| ((at * 37 % 101) as f32 - 50.0) / 50.0).collect();
    one(Matrix::new(rank, &domain, &target, &values)?)
}

fn sparse_matrices(rank: &mut Rank) -> Models {
    let [domain, target] = vectors(5, 301)?;
    let counts = [3, 0, 700, 1, 20];
    let offsets: Vec<u64> = (0..=5).map(|row| counts[..row].iter().sum()).collect();
    let columns: Vec<u32> = (0..724).map(|at| at * 53 % 301).collect();
    let values: Vec<f32> = (0..724).map(|at| ((at * 37 % 101) as f32 - 50.0) / 50.0).collect();
    one(Matrix::sparse(rank, &domain, &target, &offsets, &columns, &values)?)
}

/// `y = rate x exp(x / 2)` of cells, and `y = x exp(x / 2)` of parameters.
fn host_functions(rank: &mut Rank) -> Models {
    let rate = |x: &[Vec<f64>]| if x.len() > 1 { x[0][0] } else { 1.0 };
    let pairs =
        |a: &[f64], b: &[f64], f: fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect::<Vec<f64>>();
    let grown = |x: &f64| x * (0.5 * x).exp();
    let product = |x: f64, dx: f64| (1.0 + 0.5 * x) * (0.5 * x).exp() * dx;
    let value = move |x: &[Vec<f64>]| Ok(vec![x[x.len() - 1].iter().map(|own| rate(x) * grown(own)).collect()]);
    let jvp = move |x: &[Vec<f64>], dx: &[Vec<f64>]| {
        let (own, tangent) = (&x[x.len() - 1], &dx[x.len() - 1]);
        let mut dy = pairs(own, tangent, product);
        let faster = if x.len() > 1 { dx[0][0] } else { 0.0 };
        dy.iter_mut().zip(own).for_each(|(dy, own)| *dy = rate(x) * *dy + faster * grown(own));
        Ok(vec![dy])
    };
    let vjp = move |x: &[Vec<f64>], dy: &[Vec<f64>]| {
        let own = &x[x.len() - 1];
        let mut dx = pairs(own, &dy[0], product);
        dx.iter_mut().for_each(|dx| *dx *= rate(x));
        let by_rate = own.iter().zip(&dy[0]).map(|(own, dy)| grown(own) * dy).sum();
        Ok(if x.len() > 1 { vec![vec![by_rate], dx] } else { vec![dx] })
    };
    let cells = Leaf::cells(&mesh(rank));
    let spaces = [
        (Space::new([("rate", Leaf::vector(1)), ("x", cells.clone())])?, Space::of("y", cells)?),
        (Space::of("x", Leaf::parameters(3))?, Space::of("y", Leaf::parameters(3))?),
    ];
    let model = |(domain, target): &(Space, Space)| {
        let signature = Signature::new("grown", domain, target);
        Ok(Model::new(HostFunction::new(rank, signature, "1", value, jvp, vjp)?))
    };
    spaces.iter().map(model).collect()
}

/// Rows of two numbers of 13 items, `exp(a t)` and `b t`, and the sum of the former.
fn host_maps(rank: &mut Rank) -> Models {
    let domain = Space::new([("a", Leaf::parameters(1)), ("b", Leaf::vector(1))])?;
    let mapping = Mapping::new(13).chunk(ChunkSize::Items(4));
    let mapping = mapping.output("y", 2, Placement::Sharded).output("s", 1, Placement::Reduced(RowReduction::Sum));
    let time = |item: u64| 0.1 * item as f64;
    let value = move |items: Range<u64>, x: &[Vec<f64>]| {
        let exp = items.clone().map(|item| (x[0][0] * time(item)).exp()).collect();
        let pairs = items.flat_map(|item| [(x[0][0] * time(item)).exp(), x[1][0] * time(item)]).collect();
        Ok(vec![exp, pairs])
    };
    let jvp = move |items: Range<u64>, x: &[Vec<f64>], dx: &[Vec<f64>]| {
        let slope = |item: u64| time(item) * (x[0][0] * time(item)).exp() * dx[0][0];
        let pairs = items.clone().flat_map(|item| [slope(item), dx[1][0] * time(item)]).collect();
        Ok(vec![items.map(slope).collect(), pairs])
    };
    let vjp = move |items: Range<u64>, x: &[Vec<f64>], dy: &[Vec<f64>]| {
        let slope = |item: u64| time(item) * (x[0][0] * time(item)).exp();
        let by_a = items.clone().enumerate().map(|(at, item)| slope(item) * (dy[0][at] + dy[1][2 * at])).collect();
        let by_b = items.enumerate().map(|(at, item)| time(item) * dy[1][2 * at + 1]).collect();
        Ok(vec![by_a, by_b])
    };
    one(HostMap::new(rank, "curve", &domain, &mapping, value, jvp, vjp)?)
}

fn smoothed(rank: &mut Rank) -> Result<Model, OperatorError> {
    let smooth = Operator { constant: [1.0, 0.0], factor: &|_, wave| (-0.1 * wave.k * wave.k).exp(), laplacian: None };
    let space = cells(rank)?;
    Ok(Model::new(FourierFilter::new(rank, &space, &smooth)?))
}

fn fourier(rank: &mut Rank) -> Models {
    let spaces = [pairs(rank)?, complex(rank)?];
    let norms = [Norm::Backward, Norm::Ortho];
    spaces.iter().zip(norms).map(|(space, norm)| Ok(Model::new(Fourier::new(rank, space, norm)?))).collect()
}

fn inverse_fourier(rank: &mut Rank) -> Models {
    let spaces = [pairs(rank)?, complex(rank)?];
    let norms = [Norm::Backward, Norm::Ortho];
    spaces.iter().zip(norms).map(|(space, norm)| Ok(Model::new(Fourier::new(rank, space, norm)?.inverse()))).collect()
}

fn filters(rank: &mut Rank) -> Models {
    // The derivative along y of a potential: complex, and odd.
    let slope = Operator {
        constant: [0.0, 1.0],
        factor: &|axis, wave| if axis == 1 && !wave.nyquist { wave.k } else { f64::from(u8::from(axis != 1)) },
        laplacian: Some(&|_, wave| wave.k * wave.k),
    };
    let (pairs, complex) = (pairs(rank)?, complex(rank)?);
    Ok(vec![
        Model::new(FourierFilter::new(rank, &pairs, &slope)?),
        Model::new(FourierFilter::padded(rank, &complex, &slope, Some([16, 20, 24]))?),
    ])
}

fn convolution(rank: &mut Rank) -> Models {
    let space = cells(rank)?;
    let kernel = random_field(rank, &space, 7)?;
    one(Convolution::new(rank, &space, &kernel)?)
}

fn wavenumbers(rank: &mut Rank) -> Models {
    let mesh = mesh(rank);
    let modes = Space::of("x", Leaf::modes(&mesh))?;
    let unique = Wavenumbers::unique(&mesh)?.amplitudes(rank, &modes)?;
    let binned = Wavenumbers::edges(&mesh, &[0.5, 1.0, 3.0, 9.0])?.amplitudes(rank, &modes)?;
    Ok(vec![Model::new(unique), Model::new(binned)])
}

fn gathers(rank: &mut Rank) -> Models {
    let space = cells(rank)?;
    let own = space.leaf("x").map_or(0, Leaf::len);
    let index: Vec<u32> = (0..own).map(|place| (place * 13 % 1500) as u32).collect();
    let array = rank.gpu.array("index", own)?;
    rank.recorder.upload(&array, 0, &index)?;
    let entries = |n: u64| Space::of("x", Leaf::vector(n));
    let gather = Gather::new(&entries(1400)?, &space, array)?;
    // Along the last axis; along all axes; a part of the cells, the others 0.
    let [n0, n1, n2] = SHAPE;
    let axis = Gather::block(rank, &entries(n2)?, &space, [None, None, Some((0, n2))])?;
    let all = Gather::block(rank, &entries(n0 * n1 * n2)?, &space, [n0, n1, n2].map(|n| Some((0, n))))?;
    let part = Gather::block(rank, &entries(3 * 20)?, &space, [Some((1, 3)), None, Some((-5, 20))])?;
    let broadcast = Gather::broadcast(&entries(1)?, &space)?;
    // Blocks of complex vectors in a batch.
    let complex = |leaf: Leaf| Space::of("x", leaf.complex().components(2).batch(2));
    let cells = Leaf::cells(&mesh(rank));
    let many = Gather::block(rank, &complex(Leaf::vector(n2))?, &complex(cells)?, [None, None, Some((2, n2))])?;
    Ok([gather, broadcast, axis, all, part, many].map(Model::new).into())
}

fn diagonals(rank: &mut Rank) -> Models {
    let leaf = Leaf::half_spectrum(&mesh(rank));
    let factors = random_field(rank, &Space::of("w", leaf.clone())?, 5)?;
    let complex = Diagonal::new(&Space::of("x", leaf.batch(3))?, &factors)?;
    let space = cells(rank)?;
    let mask = random_field(rank, &space, 6)?;
    Ok(vec![Model::new(complex), Model::new(Diagonal::new(&space, &mask)?)])
}

fn select(rank: &mut Rank) -> Models {
    let space = cells(rank)?;
    one(Select::cells(rank, &space, &[[0, 4, 5], [3, 0, 0], [7, 15, 11], [2, 2, 2], [0, 1, 0]])?)
}

fn stencil(rank: &mut Rank) -> Models {
    let space = pairs(rank)?;
    one(StencilOperator::new(
        rank,
        &space,
        &[([0, 0, 0], -2.5), ([1, 0, -1], 1.25), ([-3, 2, 0], 0.5), ([2, -9, 7], 1.0)],
    )?)
}

fn readouts(rank: &mut Rank) -> Models {
    let (mesh, space) = (mesh(rank), pairs(rank)?);
    // The middle of this rank's cells, their faces, and between.
    let mut points = Vec::new();
    for (i, j, k) in [(0.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.99, 0.01, 0.7)] {
        let part = mesh.own();
        if part.iter().all(|range| !range.is_empty()) {
            let at = |axis: usize, share: f64| {
                0.5 * (part[axis].start as f64 + share * (part[axis].end - part[axis].start) as f64)
            };
            points.push([at(0, i), at(1, j), at(2, k)]);
        }
    }
    let windows = Window::ALL;
    windows.map(|window| Ok(Model::new(Readout::new(rank, &space, window, &points)?))).into_iter().collect()
}

fn lines(rank: &mut Rank) -> Models {
    let space = cells(rank)?;
    let lines = [[[0.1, 0.2, 0.3], [3.9, 7.2, 5.8]], [[0.5, 0.5, 0.0], [0.5, 0.5, 6.0]]];
    one(LinesOfSight::new(rank, &space, &lines, 0.3)?)
}

fn sum_over_ranks(rank: &mut Rank) -> Models {
    let space = Space::of("x", Leaf::points(3, 3 * rank.comm.size() as u64))?;
    one(RankCollective::sum_over_ranks(rank, &space)?)
}

fn collectives(rank: &mut Rank) -> Models {
    let (me, size, space) = (rank.comm.rank(), rank.comm.size(), own_points(rank)?);
    let own = space.leaf("x").map_or(0, Leaf::len);
    let (root, next, before) = (size - 1, (me + 1) % size, (me + size - 1) % size);
    let mut counts = vec![0; size];
    counts[0] = own / 2;
    counts[root] += own - counts[0];
    let at_root = Space::of("x", Leaf::points(if me == root { 4 } else { 0 }, 4))?;
    let equal = Space::of("x", Leaf::points(3, 3 * size as u64))?;
    let operators = [
        RankCollective::all_gather(rank, &space)?,
        RankCollective::gather(rank, &space, root)?,
        RankCollective::broadcast(rank, &at_root, root)?,
        RankCollective::all_to_all(rank, &space, &counts)?,
        RankCollective::send_receive(rank, &space, Some(next), Some(before))?,
        RankCollective::all_reduce(rank, &equal)?,
        RankCollective::scan(rank, &equal)?,
        RankCollective::scan_exclusive(rank, &equal)?,
    ];
    Ok(operators.into_iter().map(Model::new).collect())
}

fn pointwise(rank: &mut Rank) -> Models {
    let leaf = Leaf::cells(&mesh(rank));
    let leaves = [("rate", Leaf::vector(1)), ("v", leaf.clone().components(2)), ("x", leaf.clone())];
    let text = "fn f(x: f32, v: vec2<f32>, rate: f32) -> vec2<f32> { return v * exp(0.5 * rate * x) + vec2<f32>(x * x, rate); }";
    let operator = PointwiseOperator::wgsl(text, "f", &Space::new(leaves)?, "y")?;
    let turn = "fn g(x: vec2<f32>) -> vec2<f32> { return vec2<f32>(x.x * x.y, x.x * x.x - x.y) / (2.0 + dot(x, x)); }";
    let leaf = leaf.complex().batch(2);
    let (domain, target) = (Space::of("x", leaf.clone())?, Space::of("turned", leaf)?);
    Ok(vec![Model::new(operator), Model::new(PointwiseOperator::wgsl_onto(turn, "g", &domain, &target)?)])
}

/// Particles of a lattice with weights, and points without, through windows that are smooth.
fn paints(rank: &mut Rank) -> Models {
    let (mesh, sites) = (mesh(rank), crate::process_grid::mesh(rank, [6, 9, 7], SHAPE.map(|n| n as f64 * 0.5)));
    let lattice = Leaf::cells(&sites);
    let lattice = Space::new([("moved", lattice.clone().components(3)), ("weight", lattice)])?;
    let points = Leaf::points(if rank.comm.rank() == 0 { 30 } else { 0 }, 30).components(3);
    let paints = [(lattice, Window::Tsc), (Space::of("x", points)?, Window::Pcs)];
    paints.map(|(domain, window)| Ok(Model::new(Paint::new(rank, &domain, &mesh, window)?))).into_iter().collect()
}

/// Both schemes (kick, drift, kick and drift, kick, drift), orders and two windows that are smooth.
fn simulations(rank: &mut Rank) -> Models {
    let all = [Observable::Density, Observable::Displacement, Observable::Momentum];
    [(Scheme::FastPm, LptOrder::Third, Window::Pcs), (Scheme::BullFrog, LptOrder::First, Window::Tsc)]
        .map(|(scheme, lpt, window)| {
            let config =
                Config { particles: 8, mesh: 8, box_size: 80.0, steps: 2, scheme, lpt, window, ..Config::default() };
            Ok(Model::new(SimulationOperator::new(
                rank,
                Config { grid: Some(mesh(rank).grid().parts()), ..config },
                2,
                &all,
            )?))
        })
        .into_iter()
        .collect()
}

fn correlated_fields(rank: &mut Rank) -> Models {
    fields(rank)?.iter().map(|field| field.model().map_err(outer)).collect()
}

fn amplitude_models(rank: &mut Rank) -> Models {
    let fields = fields(rank)?;
    let powers = fields[1].power_spectrum_model(rank, 0).map_err(outer)?;
    let amplitudes = fields.iter().map(|field| field.amplitude_model(rank, 0).map_err(outer));
    amplitudes.chain([Ok(powers)]).collect()
}

fn fields(rank: &mut Rank) -> Result<Vec<CorrelatedField>, OperatorError> {
    let mesh = mesh(rank);
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
        CorrelatedField::new(rank, &mesh, &prior)
    };
    amplitudes.map(field).into_iter().map(|field| field.map_err(outer)).collect()
}

/// A table whose nodes are far from all values: differences across a node miss the derivative.
fn interpolations(rank: &mut Rank) -> Models {
    let bent = grown(rank, "x")?.scaled(0.5)?;
    let bent = bent.then(&Model::new(Interpolation::new(rank, bent.target(), &[-3.0, 3.0, 4.0], &[2.0, 1.0, 1.0])?))?;
    Ok(vec![bent])
}

fn joins(rank: &mut Rank) -> Models {
    let of = |leaf: fn(u64) -> Leaf| Space::new([("a", leaf(3)), ("b", leaf(1)), ("c", leaf(70))]);
    let modes = Leaf::half_spectrum(&mesh(rank)).components(2);
    let fields = Space::new([("a", modes.clone()), ("b", modes.batch(3))])?;
    Ok(vec![
        Model::new(Join::new(&of(Leaf::vector)?, &["b", "c", "a"], "all")?),
        Model::new(Join::new(&of(Leaf::parameters)?, &["a", "b", "c"], "all")?),
        Model::new(Join::new(&fields, &["b", "a"], "all")?),
    ])
}

/// Returns the error of an operator of the upper room.
fn outer(error: InferenceError) -> OperatorError {
    OperatorError::failed("inference", error)
}

fn priors(rank: &mut Rank) -> Models {
    let prior = Prior::LogNormal { mean: 3.0, std: 1.0 };
    let spaces = [Space::of("x", Leaf::parameters(4))?, cells(rank)?];
    spaces.iter().map(|space| prior.operator(space, "y").map_err(outer)).collect()
}
