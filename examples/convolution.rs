//! Convolutions over any number of ranks, in five passes over memory each, compared with direct
//! sums.
//!
//! - *circular*: a periodic field smoothed with a Gaussian, whose spectrum a callback calculates
//!   from the mode;
//! - *linear*: a field convolved with a small kernel, with zeros all around (a transform of twice
//!   the cells); the spectrum of the kernel is made by a transform, and a callback reads it.
//!
//! ```text
//! cargo run --release --example convolution            # one rank
//! cargo run --release --example convolution -- 4       # four ranks as threads
//! mpirun -n 4 target/release/examples/convolution      # four MPI ranks (built with --features mpi)
//!
//! circular: largest difference from the direct sum 2e-7 of 0.6
//! linear: largest difference from the direct sum 2e-6 of 5.9
//! ```

use std::f64::consts::TAU;

use meshloom::comm::Op;
use meshloom::exchange::GridComms;
use meshloom::fft::{Filter, FilterOptions, Spec, Transform, TransformOptions};
use meshloom::gpu::{Callback, Options, Recorder};
use meshloom::grid::{Box3, Grid};
use meshloom::{Error, Launch, Rank, kernel_params, launch};

const SHAPE: [u64; 3] = [16, 12, 20];
/// Width of the Gaussian in cells.
const WIDTH: f64 = 1.5;
/// Extent of the kernel of the linear convolution.
const KERNEL: [u64; 3] = [5, 4, 3];

/// Some field: the same numbers on every rank.
fn field([i, j, k]: [u64; 3]) -> f64 {
    ((i * i + 3 * i * j + 5 * j * k + 7 * k * k) % 17) as f64 / 16.0
}

/// Returns the kernel of the linear convolution, which falls off in one direction.
fn kernel(at: [u64; 3]) -> f64 {
    if (0..3).all(|a| at[a] < KERNEL[a]) { 1.0 / (1 + at[0] + 2 * at[1] + 3 * at[2]) as f64 } else { 0.0 }
}

/// Returns all points of a box, in the order of memory.
fn points(part: &Box3) -> impl Iterator<Item = [u64; 3]> {
    let [x, y, z] = part.clone();
    x.flat_map(move |i| {
        y.clone().flat_map({
            let z = z.clone();
            move |j| z.clone().map(move |k| [i, j, k])
        })
    })
}

/// Objects of a rank.
struct Work<'a> {
    rank: &'a mut Rank,
    recorder: Recorder,
    comms: GridComms,
}

impl Work<'_> {
    /// Filters the field and returns the largest difference from `direct`, and the largest value.
    fn compare(
        &mut self,
        spec: &Spec,
        callback: &Callback,
        direct: impl Fn([u64; 3]) -> f64,
    ) -> Result<[f64; 2], Error> {
        let gpu = &self.rank.gpu;
        let filter = Filter::<f32>::new(gpu, spec, &self.comms, callback, &FilterOptions::default())?;
        let layout = filter.field_layout();
        let (input, output) = (gpu.array("field", layout.len())?, gpu.array("output", layout.len())?);
        let cells: Vec<f32> = points(&layout.own).map(|at| field(at) as f32).collect();
        self.recorder.upload(&input, 0, &cells)?;
        filter.apply(&mut self.recorder, &mut self.comms, &input, &layout, &output, &layout)?;
        let got = self.recorder.download(&output, 0, layout.len())?;
        let mut largest = [0.0f64; 2];
        for (got, want) in got.into_iter().zip(points(&layout.own).map(direct)) {
            largest = [largest[0].max((f64::from(got) - want).abs()), largest[1].max(want.abs())];
        }
        self.rank.comm.all_reduce(&mut largest, Op::Max)?;
        Ok(largest)
    }

    /// `exp(-k^2 width^2 / 2)` of the mode at hand.
    fn circular(&mut self) -> Result<[f64; 2], Error> {
        let callback = Callback::new(
            "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
                 let cells = params.gauss_cells;
                 // Mode m stands at m mod n: the nearer of the distances to 0 and to n.
                 let mode = vec3<f32>(min(at.xyz, cells.xyz - at.xyz));
                 let w = 6.283185307 * mode / vec3<f32>(cells.xyz);
                 return value * exp(-0.5 * params.gauss_width * params.gauss_width * dot(w, w));
             }",
        )
        .params(&Gauss { gauss_cells: words(SHAPE), gauss_width: WIDTH as f32 });

        // The Gaussian along each axis as the sum of its modes: what the callback says, in real
        // space.
        let one = |n: u64| -> Vec<f64> {
            let wave = |m: u64| TAU * m.min(n - m) as f64 / n as f64;
            let term =
                |m: u64, x: u64| (-0.5 * (WIDTH * wave(m)).powi(2)).exp() * (TAU * (m * x % n) as f64 / n as f64).cos();
            (0..n).map(|x| (0..n).map(|m| term(m, x)).sum::<f64>() / n as f64).collect()
        };
        let gauss = SHAPE.map(one);
        let direct = |at: [u64; 3]| {
            let whole: Box3 = SHAPE.map(|n| 0..n);
            let weight = |from: [u64; 3]| {
                (0..3).map(|a| gauss[a][((at[a] + SHAPE[a] - from[a]) % SHAPE[a]) as usize]).product::<f64>()
            };
            points(&whole).map(|from| weight(from) * field(from)).sum()
        };
        self.compare(&Spec::of::<f32>(SHAPE), &callback, direct)
    }

    /// Returns a kernel of the user's, padded.
    fn linear(&mut self) -> Result<[f64; 2], Error> {
        let spec = Spec::of::<f32>(SHAPE).points(SHAPE.map(|n| 2 * n));
        let gpu = &self.rank.gpu;
        let (grid, me) = (self.comms.grid(), self.comms.rank());
        let transform = Transform::<f32>::with(gpu, &spec, grid, me, &TransformOptions::default())?;
        let layout = transform.field_layout();
        let cells: Vec<f32> = points(&layout.own).map(|at| kernel(at) as f32).collect();
        let (array, spectrum) = (transform.field(gpu, &layout)?, transform.spectrum(gpu)?);
        self.recorder.upload(&array, 0, &cells)?;
        transform.forward(&mut self.recorder, &mut self.comms, &array, &layout, &spectrum)?;

        // Both have the spectrum cut alike, so a rank's callback reads only this rank's modes.
        let part = Filter::<f32>::part_of(gpu, &spec, &self.comms, &FilterOptions::default())?;
        assert_eq!(part, transform.spectrum_part());
        let place = Place {
            kernel_first: words([0, 1, 2].map(|a| part[a].start)),
            kernel_rows: (part[1].end - part[1].start) as u32,
            kernel_columns: (part[2].end - part[2].start) as u32,
        };
        let callback = Callback::new(
            "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
                 let local = at.xyz - params.kernel_first.xyz;
                 let row = local.x * params.kernel_rows + local.y;
                 return multiply(value, load_kernel(row * params.kernel_columns + local.z));
             }",
        )
        .read("kernel", &spectrum)
        .params(&place);

        let direct = |at: [u64; 3]| {
            let taps: Box3 = [0, 1, 2].map(|a| 0..KERNEL[a].min(at[a] + 1));
            points(&taps).map(|tap| kernel(tap) * field([0, 1, 2].map(|a| at[a] - tap[a]))).sum()
        };
        self.compare(&spec, &callback, direct)
    }
}

kernel_params! {
    struct Gauss { gauss_cells: [u32; 4], gauss_width: f32 }
}

kernel_params! {
    struct Place { kernel_first: [u32; 4], kernel_rows: u32, kernel_columns: u32 }
}

/// Three numbers as parameters have them.
fn words([x, y, z]: [u64; 3]) -> [u32; 4] {
    [x, y, z, 0].map(|n| n as u32)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let results = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let grid = Grid::auto(SHAPE, rank.comm.size());
        let (recorder, comms) = (Recorder::new(&rank.gpu)?, GridComms::new(&rank.comm, grid)?);
        let mut work = Work { rank, recorder, comms };
        Ok::<_, Error>((work.rank.comm.rank(), [work.circular()?, work.linear()?]))
    })?;
    for (_, errors) in results.into_iter().filter(|(rank, _)| *rank == 0) {
        for (name, [error, largest]) in ["circular", "linear"].into_iter().zip(errors) {
            println!("{name}: largest difference from the direct sum {error:.0e} of {largest:.1}");
            assert!(error < 1e-6 * largest.max(1.0), "single precision should do better");
        }
    }
    Ok(())
}
