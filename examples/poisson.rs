//! Solves `lap phi = rho` on a periodic mesh spectrally, over any number of ranks, and compares with the known answer.
//!
//! ```text
//! cargo run --release --example poisson            # one rank
//! cargo run --release --example poisson -- 4       # four ranks as threads
//! mpirun -n 4 target/release/examples/poisson      # four MPI ranks (built with --features mpi)
//! ```

use std::f64::consts::PI;

use meshloom::comm::Op;
use meshloom::device::{Options, Recorder};
use meshloom::exchange::Lines;
use meshloom::fft::{Operator, Spectral, Transform};
use meshloom::layout::Grid;
use meshloom::{Error, Launch, launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let (shape, size) = ([48u64, 60, 64], [2.0 * PI; 3]);
    // phi = sin x cos 2y + sin 3z, so rho = lap phi = -5 sin x cos 2y - 9 sin 3z.
    let phi = |x: [f64; 3]| x[0].sin() * (2.0 * x[1]).cos() + (3.0 * x[2]).sin();
    let rho = |x: [f64; 3]| -5.0 * x[0].sin() * (2.0 * x[1]).cos() - 9.0 * (3.0 * x[2]).sin();

    let errors = launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let grid = Grid::auto(shape, rank.comm.size());
        let transform = Transform::new(&rank.gpu, shape, grid, rank.comm.rank())?;
        let (mut recorder, mut lines) = (Recorder::new(&rank.gpu)?, Lines::new(&rank.comm, grid)?);

        let (layout, part) = (transform.field_layout(), transform.field_part());
        let sample = |f: &dyn Fn([f64; 3]) -> f64| {
            let mut values = Vec::new();
            for i in part[0].clone() {
                for j in part[1].clone() {
                    let at = |k: u64| {
                        [i, j, k]
                            .iter()
                            .zip(shape.iter().zip(size))
                            .map(|(c, (n, l))| *c as f64 * l / *n as f64)
                            .collect::<Vec<_>>()
                    };
                    values.extend(part[2].clone().map(|k| f([at(k)[0], at(k)[1], at(k)[2]]) as f32));
                }
            }
            values
        };
        let field = rank.gpu.array::<f32>("field", layout.len())?;
        recorder.upload(&field, 0, &sample(&rho))?;

        // -1 / k^2, while the inverse transform loads the spectrum.
        let operator =
            Operator { constant: [-1.0, 0.0], factor: &|_, _| 1.0, laplacian: Some(&|_, wave| wave.k * wave.k) };
        let solve = Spectral::new(
            &mut recorder,
            &[operator.tables(shape, size, &transform.spectrum_part())],
            &transform.spectrum_part(),
        )?;
        let spectrum = transform.spectrum(&rank.gpu)?;
        transform.forward(&mut recorder, &mut lines, &field, &layout, &spectrum)?;
        transform.inverse(&mut recorder, &mut lines, &spectrum, Some(&solve), &field, &layout)?;

        let solved = recorder.download(&field, 0, layout.len())?;
        let mut error = [solved.iter().zip(sample(&phi)).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max)];
        rank.comm.all_reduce(&mut error, Op::Max)?;
        Ok::<_, Error>((rank.comm.rank(), error[0]))
    })?;
    for (_, error) in errors.into_iter().filter(|(rank, _)| *rank == 0) {
        println!("largest error {error:.1e}");
        assert!(error < 1e-5, "single precision should do better");
    }
    Ok(())
}
