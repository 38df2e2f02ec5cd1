//! What fusing is worth: `cargo bench --bench operators -- [CELLS ..]` prints nanoseconds per cell of ten pointwise operators, composed to one
//! kernel, one after the other, and written by hand as one kernel; their value and both derivatives. Then what linear operators cost on 64^3 cells.

use std::time::Instant;

use meshloom::comm::Communicator;
use meshloom::fft::{Norm, Operator};
use meshloom::gpu::{Gpu, Kernel, KernelSource, Options};
use meshloom::grid::Grid;
use meshloom::mesh::Window;
use meshloom::operators::{
    Convolution, Diagonal, Field, Fourier, FourierFilter, Hartley, Leaf, Model, PointwiseOperator, Readout,
    RegularGrid, Space, Stencil, Tap, Wavenumbers, Worker, random_field,
};
use meshloom::{Context, Error};

/// Operators of the chain.
const LINKS: usize = 10;
const STEP: &str = "fn step(x: f32) -> f32 { return x + 0.25 * x * x / (1.0 + x * x); }";

meshloom::kernel_params! { struct ByHand { count: u32 } }

/// What somebody would write: value, derivative by the chain rule in either mode (one argument, so they are one).
fn by_hand(derivative: bool) -> KernelSource {
    let text = "
        var<uniform> params: Params;
        var<storage, read> x: array<f32>;
#if derivative
        var<storage, read> dx: array<f32>;
#endif
        var<storage, read_write> y: array<f32>;

        fn each(i: u32) {
            var value = load_x(i);
#if derivative
            var slope = load_dx(i);
#endif
            for (var link = 0; link < 10; link++) {
                let square = value * value;
                let below = 1.0 + square;
#if derivative
                slope *= 1.0 + 0.5 * value / (below * below);
#endif
                value = value + 0.25 * square / below;
            }
#if derivative
            store_y(i, slope);
#else
            store_y(i, value);
#endif
        }

        #each params.count
    ";
    KernelSource::new("bench::by_hand", text).params::<ByHand>().flag("derivative", derivative)
}

/// Least nanoseconds per cell of some runs, after one that compiles.
fn least(
    worker: &mut Worker<'_>,
    cells: u64,
    mut work: impl FnMut(&mut Worker<'_>) -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut least = f64::INFINITY;
    for run in 0..12 {
        worker.context.recorder.wait()?;
        let start = Instant::now();
        work(worker)?;
        worker.context.recorder.wait()?;
        if run > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least * 1e9 / cells as f64)
}

/// Value, jvp and vjp of a model.
fn model_times(worker: &mut Worker<'_>, chain: &[Model], space: &Space, cells: u64) -> Result<[f64; 3], Error> {
    let (x, dx) = (random_field(worker, space, 1)?, random_field(worker, space, 2)?);
    let mut out = Field::new(worker.gpu(), space)?;
    let mut points = vec![x.clone()];
    for model in chain {
        let next = model.value(worker, &points[points.len() - 1])?;
        points.push(next);
    }
    let mut at = Vec::new();
    for (model, point) in chain.iter().zip(&points) {
        at.push(model.at(worker, point)?);
    }
    let apply = least(worker, cells, |worker| {
        let mut here = x.clone();
        for model in chain {
            here = model.value(worker, &here)?;
        }
        Ok(())
    })?;
    let jvp = least(worker, cells, |worker| {
        let mut here = dx.clone();
        for at in &at {
            at.jvp(worker, &here, &mut out)?;
            if chain.len() > 1 {
                std::mem::swap(&mut here, &mut out);
                out = Field::new(worker.gpu(), space)?;
            }
        }
        Ok(())
    })?;
    let vjp = least(worker, cells, |worker| {
        let mut here = dx.clone();
        for at in at.iter().rev() {
            at.vjp(worker, &here, &mut out)?;
            if chain.len() > 1 {
                std::mem::swap(&mut here, &mut out);
                out = Field::new(worker.gpu(), space)?;
            }
        }
        Ok(())
    })?;
    Ok([apply, jvp, vjp])
}

fn bench(worker: &mut Worker<'_>, cells: u64) -> Result<(), Error> {
    let regular = RegularGrid { shape: [1, 1, cells], size: [1.0; 3], grid: worker.comms.grid(), rank: 0 };
    let space = Space::of("x", Leaf::cells(&regular))?;
    let step = Model::new(PointwiseOperator::wgsl(STEP, "step", &space, "x")?);
    let chain = (1..LINKS).try_fold(step.clone(), |chain, _| chain.then(&step))?;
    let [apply, jvp, vjp] = model_times(worker, &[chain], &space, cells)?;
    println!("{cells:>9} cells, fused      value {apply:7.3}  jvp {jvp:7.3}  vjp {vjp:7.3} ns per cell");
    let (x, dx) = (random_field(worker, &space, 1)?, random_field(worker, &space, 2)?);
    let out = Field::new(worker.gpu(), &space)?;
    let params = ByHand { count: cells as u32 };
    // SAFETY: its loop ends, and it reads and writes below the count, which is that of its arrays.
    let [value, slope] = [false, true].map(|derivative| unsafe { Kernel::new_unchecked(by_hand(derivative)) });
    let (x, dx, out) = (x.array("x")?.clone(), dx.array("x")?.clone(), out.array("x")?.clone());
    let apply = least(worker, cells, |worker| {
        Ok(worker.context.recorder.each(&value, &[x.raw(), out.raw()], &params, cells)?)
    })?;
    let derivative = least(worker, cells, |worker| {
        Ok(worker.context.recorder.each(&slope, &[x.raw(), dx.raw(), out.raw()], &params, cells)?)
    })?;
    println!("{cells:>9} cells, by hand    value {apply:7.3}  either derivative {derivative:7.3} ns per cell");
    let steps = vec![step; LINKS];
    let [apply, jvp, vjp] = model_times(worker, &steps, &space, cells)?;
    println!("{cells:>9} cells, one by one value {apply:7.3}  jvp {jvp:7.3}  vjp {vjp:7.3} ns per cell");
    Ok(())
}

/// What linear operators cost by count, in passes and bytes per cell.
fn costs(worker: &mut Worker<'_>) -> Result<(), Error> {
    let shape = [64u64; 3];
    let regular = RegularGrid { shape, size: [1.0; 3], grid: worker.comms.grid(), rank: 0 };
    let (cells, modes) = (Space::of("x", Leaf::cells(&regular))?, Space::of("x", Leaf::modes(&regular))?);
    let field = random_field(worker, &cells, 1)?;
    let smooth = Operator { constant: [1.0, 0.0], factor: &|_, wave| (-wave.k * wave.k).exp(), laplacian: None };
    let taps: Vec<Tap> = (0..3)
        .flat_map(|a| [-1, 1].map(|by| ([0, 1, 2].map(|b| if a == b { by } else { 0 }), 1.0)))
        .chain([([0; 3], -6.0)])
        .collect();
    let spread: Vec<[f64; 3]> =
        (0..shape[0].pow(3)).map(|n| [n / 4096, n / 64 % 64, n % 64].map(|i| (i as f64 + 0.5) / 64.0)).collect();
    let models = [
        Model::new(Diagonal::new(&cells, &field)?),
        Model::new(Stencil::new(worker, &cells, &taps)?),
        Model::new(Wavenumbers::unique(&regular)?.amplitudes(worker, &modes)?),
        Model::new(Fourier::new(worker, &cells, Norm::Backward)?),
        Model::new(Hartley::new(worker, &cells)?),
        Model::new(FourierFilter::new(worker, &cells, &smooth)?),
        Model::new(Convolution::new(worker, &cells, &field)?),
        Model::new(Readout::new(worker, &cells, Window::Cic, &spread)?),
    ];
    let count = shape.iter().product::<u64>();
    for model in models {
        let (x, dy) = (random_field(worker, model.domain(), 1)?, random_field(worker, model.target(), 2)?);
        let (at, mut dx) = (model.at(worker, &x)?, Field::new(worker.gpu(), model.domain())?);
        let mut y = Field::new(worker.gpu(), model.target())?;
        let there = least(worker, count, |worker| Ok(at.jvp(worker, &x, &mut y)?))?;
        let back = least(worker, count, |worker| Ok(at.vjp(worker, &dy, &mut dx)?))?;
        let cost = model.cost();
        let per = |bytes: u64| bytes as f64 / count as f64;
        println!(
            "{:<20} {:>2} passes {:6.1} bytes per cell {there:7.2} ns; adjoint {:>2} passes {:6.1} bytes per cell {back:7.2} ns",
            model.name(),
            cost.apply.passes,
            per(cost.apply.bytes),
            cost.vjp.passes,
            per(cost.vjp.bytes)
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo gives options of its own.
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let mut sizes = words.map(|word| word.parse()).collect::<Result<Vec<u64>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![1 << 16, 1 << 20, 1 << 22];
    }
    let gpu = Gpu::open(&Options::from_env()?, 0)?;
    println!("{}", gpu.info().name);
    let mut context = Context::new(Communicator::solo(), gpu).map_err(Error::from)?;
    let mut worker = Worker::new(&mut context, Grid::new([1, 1], 1)?).map_err(Error::from)?;
    for cells in sizes {
        bench(&mut worker, cells)?;
    }
    costs(&mut worker)?;
    Ok(())
}
