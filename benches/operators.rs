//! Measures the gain of fusing operators: `cargo bench --bench operators -- [CELLS ..]`.
//!
//! It prints nanoseconds per cell of ten pointwise operators: composed to one kernel, written by
//! hand as one kernel, and the ratio of the two. It measures calls that are waited for one by one,
//! and many calls in one submission, which hides most of the host's cost per call. Then it measures
//! the ten operators as ten kernels, and linear operators on 64^3 cells.

use std::time::Instant;

use meshloom::comm::Communicator;
use meshloom::fft::{Norm, Operator};
use meshloom::gpu::{Gpu, Kernel, KernelSource, Options};
use meshloom::mesh::Window;
use meshloom::operators::{
    Convolution, Diagonal, Fourier, FourierFilter, Hartley, Leaf, Model, PointwiseOperator, Readout, Space,
    StencilOperator, Tap, Vector, Wavenumbers, random_field,
};
use meshloom::{Error, Rank};

/// Operators of the chain.
const LINKS: usize = 10;
/// The arithmetic of [`by_hand`]: `0.25 * x * x` would be another product, since `(0.25 * x) * x`
/// has nothing in common with `x * x`.
const STEP: &str = "fn step(x: f32) -> f32 { return x + 0.25 * (x * x) / (1.0 + x * x); }";

meshloom::kernel_params! { struct ByHand { count: u32 } }

/// Returns what somebody would write: value, derivative by the chain rule in either mode (one
/// argument, so they are one).
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
fn least(rank: &mut Rank, cells: u64, mut work: impl FnMut(&mut Rank) -> Result<(), Error>) -> Result<f64, Error> {
    let mut least = f64::INFINITY;
    for run in 0..12 {
        rank.recorder.wait()?;
        let start = Instant::now();
        work(rank)?;
        rank.recorder.wait()?;
        if run > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least * 1e9 / cells as f64)
}

/// A call that can be recorded any number of times.
type Call<'a> = Box<dyn Fn(&mut Rank) -> Result<(), Error> + 'a>;

/// Returns the least nanoseconds per cell of each of two calls, taken in turn, `together` of them
/// in a submission.
fn race(rank: &mut Rank, cells: u64, together: u64, calls: [&Call<'_>; 2]) -> Result<[f64; 2], Error> {
    let mut best = [f64::INFINITY; 2];
    for run in 0..24 {
        for (best, call) in best.iter_mut().zip(calls) {
            rank.recorder.wait()?;
            let start = Instant::now();
            (0..together).try_for_each(|_| call(rank))?;
            rank.recorder.wait()?;
            if run > 0 {
                *best = best.min(start.elapsed().as_secs_f64() * 1e9 / (cells * together) as f64);
            }
        }
    }
    Ok(best)
}

/// Measures the chain as one kernel beside the kernel that was written by hand.
fn fused(rank: &mut Rank, chain: &Model, space: &Space, cells: u64) -> Result<(), Error> {
    let (x, dx) = (random_field(rank, space, 1)?, random_field(rank, space, 2)?);
    let (at, out) = (chain.at(rank, &x)?, Vector::new(&rank.gpu, space)?);
    // SAFETY: its loop ends, and it reads and writes below the count, which is that of its arrays.
    let [value, slope] = [false, true].map(|derivative| unsafe { Kernel::new_unchecked(by_hand(derivative)) });
    let params = ByHand { count: cells as u32 };
    let [a, b, c] = [&x, &dx, &out].map(|field| field.array("x").cloned());
    let (a, b, c) = (a?, b?, c?);
    let by_hand_value: Call = Box::new(|rank| Ok(rank.recorder.each(&value, &[a.raw(), c.raw()], &params, cells)?));
    let by_hand_slope: Call =
        Box::new(|rank| Ok(rank.recorder.each(&slope, &[a.raw(), b.raw(), c.raw()], &params, cells)?));
    let calls: [(&str, Call, &Call); 3] = [
        ("value", Box::new(|rank| Ok(chain.apply(rank, &x, &mut out.clone())?)), &by_hand_value),
        ("jvp", Box::new(|rank| Ok(at.jvp(rank, &dx, &mut out.clone())?)), &by_hand_slope),
        ("vjp", Box::new(|rank| Ok(at.vjp(rank, &dx, &mut out.clone())?)), &by_hand_slope),
    ];
    // What a submission holds at most.
    let many = ((1 << 24) / cells).clamp(1, 200);
    for (what, composed, own) in &calls {
        for together in [1, many] {
            let [composed, own] = race(rank, cells, together, [composed, own])?;
            let ratio = composed / own;
            println!(
                "{cells:>9} cells, {what:<5} {together:>3} calls at once: composed {composed:7.3}, by hand {own:7.3} ns per cell, ratio {ratio:.2}"
            );
        }
    }
    Ok(())
}

fn bench(rank: &mut Rank, cells: u64) -> Result<(), Error> {
    let mesh = rank.mesh([cells]).periodic([1.0]).build()?;
    let space = Space::of("x", Leaf::cells(&mesh))?;
    let step = Model::new(PointwiseOperator::wgsl(STEP, "step", &space, "x")?);
    let chain = (1..LINKS).try_fold(step.clone(), |chain, _| chain.then(&step))?;
    fused(rank, &chain, &space, cells)?;
    let x = random_field(rank, &space, 1)?;
    let apart = least(rank, cells, |rank| {
        (0..LINKS).try_fold(x.clone(), |here, _| step.value(rank, &here)).map_err(Error::from)?;
        Ok(())
    })?;
    println!("{cells:>9} cells, value one by one {apart:7.3} ns per cell");
    Ok(())
}

/// Prints the counted cost of linear operators, in passes and bytes per cell.
fn costs(rank: &mut Rank) -> Result<(), Error> {
    let shape = [64u64; 3];
    let mesh = rank.mesh(shape).periodic([1.0; 3]).build()?;
    let (cells, modes) = (Space::of("x", Leaf::cells(&mesh))?, Space::of("x", Leaf::modes(&mesh))?);
    let field = random_field(rank, &cells, 1)?;
    let smooth = Operator { constant: [1.0, 0.0], factor: &|_, wave| (-wave.k * wave.k).exp(), laplacian: None };
    let taps: Vec<Tap> = (0..3)
        .flat_map(|a| [-1, 1].map(|by| ([0, 1, 2].map(|b| if a == b { by } else { 0 }), 1.0)))
        .chain([([0; 3], -6.0)])
        .collect();
    let spread: Vec<[f64; 3]> =
        (0..shape[0].pow(3)).map(|n| [n / 4096, n / 64 % 64, n % 64].map(|i| (i as f64 + 0.5) / 64.0)).collect();
    let models = [
        Model::new(Diagonal::new(&cells, &field)?),
        Model::new(StencilOperator::new(rank, &cells, &taps)?),
        Model::new(Wavenumbers::unique(&mesh)?.amplitudes(rank, &modes)?),
        Model::new(Fourier::new(rank, &cells, Norm::Backward)?),
        Model::new(Hartley::new(rank, &cells)?),
        Model::new(FourierFilter::new(rank, &cells, &smooth)?),
        Model::new(Convolution::new(rank, &cells, &field)?),
        Model::new(Readout::new(rank, &cells, Window::Cic, &spread)?),
    ];
    let count = shape.iter().product::<u64>();
    for model in models {
        let (x, dy) = (random_field(rank, model.domain(), 1)?, random_field(rank, model.target(), 2)?);
        let (at, mut dx) = (model.at(rank, &x)?, Vector::new(&rank.gpu, model.domain())?);
        let mut y = Vector::new(&rank.gpu, model.target())?;
        let there = least(rank, count, |rank| Ok(at.jvp(rank, &x, &mut y)?))?;
        let back = least(rank, count, |rank| Ok(at.vjp(rank, &dy, &mut dx)?))?;
        let cost = model.cost();
        let per = |bytes: u64| bytes as f64 / count as f64;
        println!(
            "{:<20} {:>2} passes {:6.1} bytes per cell {there:7.2} ns; adjoint {:>2} passes {:6.1} bytes per cell {back:7.2} ns",
            model.name(),
            cost.apply.dispatches,
            per(cost.apply.device_bytes),
            cost.vjp.dispatches,
            per(cost.vjp.device_bytes)
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
    let mut rank = Rank::new(Communicator::solo(), gpu).map_err(Error::from)?;
    for cells in sizes {
        bench(&mut rank, cells)?;
    }
    costs(&mut rank)?;
    Ok(())
}
