//! A scan of parameters: how long 20,000 pendulums of different length and start take to swing
//! back, integrated on the devices; dealt to ranks and worked on in chunks that fit a budget of
//! memory. The mean and the longest come out the same, to the bit, on any number of ranks and for
//! any budget; the mean is compared with that of closed forms.
//!
//! ```text
//! cargo run --release --example parameter_scan            # one rank
//! cargo run --release --example parameter_scan -- 4       # four ranks as threads
//! ```

use meshloom::gpu::{Kernel, KernelSource, Options};
use meshloom::map::{ChunkSize, Items, Mapping, Placement, RowReduction, map, replicate};
use meshloom::{Error, Launch, launch};

const PENDULUMS: u64 = 20_000;

/// Invocations of a workgroup. Each takes one pendulum: some drivers (llvmpipe) end all loops of an
/// invocation after 65,535 rounds, without an error.
const GROUP: u64 = 64;

meshloom::kernel_params! {
    struct PendulumParams {
        count: u32,
    }
}

/// From rest at an angle until the velocity changes its sign the second time: leapfrog, with the
/// last step cut where it does.
const SWING: &str = "
    var<uniform> params: Params;
    var<storage, read> pendulums: array<f32>; // length in meters and angle in radians of each
    var<storage, read> constants: array<f32>; // gravity, step in seconds
    var<storage, read_write> periods: array<f32>;
    fn each_invocation(item: u32) {
        let pull = load_constants(0u) / load_pendulums(2u * item);
        let step = load_constants(1u);
        var angle = load_pendulums(2u * item + 1u);
        var velocity = -0.5 * step * pull * sin(angle);
        var passed = 0u;
        for (var n = 0u; n < 20000u && passed < 2u; n++) {
            angle += step * velocity;
            let next = velocity - step * pull * sin(angle);
            if next * velocity < 0.0 {
                passed++;
                store_periods(item, step * (f32(n) + 0.5 + velocity / (velocity - next)));
            }
            velocity = next;
        }
    }
    #each_invocation params.count";

/// Returns the period by the arithmetic-geometric mean.
fn closed_form(length: f64, angle: f64) -> f64 {
    let (mut a, mut b) = (1.0, (angle / 2.0).cos());
    for _ in 0..8 {
        (a, b) = ((a + b) / 2.0, (a * b).sqrt());
    }
    std::f64::consts::TAU * (length / 9.81).sqrt() / a
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    // Lengths from 0.2 to 2 m, angles from 0.01 to 3 rad.
    let unit = |n: u64, of: u64| (n % of) as f32 / (of - 1) as f32;
    let pendulums: Vec<f32> =
        (0..PENDULUMS).flat_map(|n| [0.2 + 1.8 * unit(n / 100, 200), 0.01 + 2.99 * unit(n, 100)]).collect();
    let found = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        // Constants travel once, from rank 0.
        let given = (rank.index() == 0).then_some(&[9.81_f32, 1e-3][..]);
        let constants = replicate(rank, 0, given)?;
        let swing = Kernel::new(KernelSource::new("swing", SWING).params::<PendulumParams>().group(GROUP as u32));
        let mapping = Mapping::new(PENDULUMS)
            .chunk(ChunkSize::Memory(1 << 20))
            .output("periods", 1, Placement::Gathered)
            .output("sum", 1, Placement::Reduced(RowReduction::Sum))
            .output("longest", 1, Placement::Reduced(RowReduction::Max));
        let mapped = map(rank, &mapping, &[Items::Host(&pendulums)], |rank, chunk| {
            let params = PendulumParams { count: chunk.count() as u32 };
            let [periods, sum, longest] = &chunk.outputs[..] else { return Ok(()) };
            let arrays = [chunk.inputs[0].raw(), constants.raw(), periods.raw()];
            rank.recorder.dispatch(&swing, &arrays, &params, chunk.count().div_ceil(GROUP))?;
            // What is reduced is overwritten on the way: each output has rows of its own.
            rank.recorder.copy(periods, 0, sum, 0, chunk.count())?;
            Ok::<_, Error>(rank.recorder.copy(periods, 0, longest, 0, chunk.count())?)
        })?;
        let mut read = |name: &str, at: u64| match mapped.output(name) {
            Some(array) => Ok::<_, Error>(rank.recorder.download(array, at, 1)?[0]),
            None => Ok(f32::NAN),
        };
        Ok::<_, Error>(([read("sum", 0)?, read("longest", 0)?, read("periods", 0)?], mapped.report))
    })?;
    let Some(([sum, longest, small], report)) = found.first() else { return Ok(()) };
    let mean = f64::from(*sum) / PENDULUMS as f64;
    let exact = pendulums.chunks(2).map(|one| closed_form(one[0].into(), one[1].into()));
    let exact_mean = exact.sum::<f64>() / PENDULUMS as f64;
    println!("mean period {mean:.6} s, by closed forms {exact_mean:.6} s; longest {longest:.6} s");
    println!("the shortest pendulum at a small angle {small:.6} s, closed form {:.6} s", closed_form(0.2, 0.01));
    if let Some(estimate) = &report.estimate {
        println!("chunks of {}: {} bytes an item, budget {}", report.chunk, estimate.per_item, estimate.budget);
    }
    assert!((mean - exact_mean).abs() < 1e-4 * exact_mean, "the mean period is known");
    Ok(())
}
