//! Solves `lap phi = rho` on a periodic mesh spectrally, over any number of ranks, and compares with the known answer:
//! forward, `-1 / k^2` and inverse in five passes over memory.
//!
//! ```text
//! cargo run --release --example poisson            # one rank
//! cargo run --release --example poisson -- 4       # four ranks as threads
//! mpirun -n 4 target/release/examples/poisson      # four MPI ranks (built with --features mpi)
//!
//! largest error 4e-7
//! ```

use std::f64::consts::TAU;

use meshloom::comm::Op;
use meshloom::exchange::GridComms;
use meshloom::fft::{Filter, Operator, Spec, Spectral, TransformTuning, Values};
use meshloom::gpu::{Options, Recorder};
use meshloom::grid::Grid;
use meshloom::{Error, Launch, launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let (shape, size) = ([48u64, 60, 64], [TAU; 3]);
    // phi = sin x cos 2y + sin 3z, so rho = lap phi = -5 sin x cos 2y - 9 sin 3z.
    let phi = |[x, y, z]: [f64; 3]| x.sin() * (2.0 * y).cos() + (3.0 * z).sin();
    let rho = |[x, y, z]: [f64; 3]| -5.0 * x.sin() * (2.0 * y).cos() - 9.0 * (3.0 * z).sin();

    let errors = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let grid = Grid::auto(shape, rank.comm.size());
        let (mut recorder, mut comms) = (Recorder::new(&rank.gpu)?, GridComms::new(&rank.comm, grid)?);
        let (spec, tuning) = (Spec::new(Values::Real, shape), TransformTuning::of(&rank.gpu));

        // Tables for the modes that this rank multiplies.
        let operator =
            Operator { constant: [-1.0, 0.0], factor: &|_, _| 1.0, laplacian: Some(&|_, wave| wave.k * wave.k) };
        let part = Filter::<f32>::part_of(&rank.gpu, &spec, &comms, &tuning)?;
        let operator = Spectral::new(&mut recorder, &[operator.tables(shape, size, &part)], &part)?;
        let solve = Filter::<f32>::new(&rank.gpu, &spec, &comms, &tuning, &operator.callback(), 1)?;

        let layout = solve.field_layout();
        let sample = |f: &dyn Fn([f64; 3]) -> f64| -> Vec<f32> {
            let [nx, ny, nz] = layout.shape();
            let at = |n: [u64; 3]| [0, 1, 2].map(|a| (layout.own[a].start + n[a]) as f64 * size[a] / shape[a] as f64);
            (0..nx * ny * nz).map(|n| f(at([n / (ny * nz), n / nz % ny, n % nz])) as f32).collect()
        };
        let (density, potential) = (rank.gpu.array("rho", layout.len())?, rank.gpu.array("phi", layout.len())?);
        recorder.upload(&density, 0, &sample(&rho))?;
        solve.apply(&mut recorder, &mut comms, &density, &layout, &potential, &layout)?;

        let solved = recorder.download(&potential, 0, layout.len())?;
        let mut error = [solved.iter().zip(sample(&phi)).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max)];
        rank.comm.all_reduce(&mut error, Op::Max)?;
        Ok::<_, Error>((rank.comm.rank(), error[0]))
    })?;
    for (_, error) in errors.into_iter().filter(|(rank, _)| *rank == 0) {
        println!("largest error {error:.0e}");
        assert!(error < 1e-5, "single precision should do better");
    }
    Ok(())
}
