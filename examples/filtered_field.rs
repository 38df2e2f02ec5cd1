//! Smooths a field with a Gaussian in Fourier space, compares it with the known answer and writes
//! it as a NumPy file. The result has the same bits on any number of ranks.
//!
//! ```text
//! cargo run --release --example filtered_field
//! MESHLOOM_RANKS=4 cargo run --release --example filtered_field
//! mpirun -n 4 target/release/examples/filtered_field          # built with --features mpi
//!
//! largest error 6e-8 of 1.7e-1
//! ```

use std::f64::consts::TAU;

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    let width = 0.1;
    // A wave with the wavevector (1, 2, 2) 2 pi keeps the factor exp(-k^2 width^2 / 2).
    let wave = |[x, y, z]: [f64; 3]| (TAU * (x + 2.0 * y + 2.0 * z)).sin();
    let factor = (-0.5 * (3.0 * TAU * width).powi(2)).exp();
    meshloom::run(|rank| {
        let mesh = rank.mesh([64, 48, 60]).periodic([1.0; 3]).build()?;
        let field = rank.fill(&mesh, wave)?;
        let smooth = rank.filter(&field, |k| (-0.5 * k.squared() * width * width).exp())?;
        rank.write_npy("smooth.npy", &smooth)?;
        if let Some(cells) = rank.gather(&smooth, 0)? {
            let points = (0..64).flat_map(|i| (0..48).flat_map(move |j| (0..60).map(move |k| [i, j, k])));
            let exact = points.map(|cell| factor * wave(mesh.position(cell)));
            let error = cells.iter().zip(exact).map(|(x, exact)| (f64::from(*x) - exact).abs()).fold(0.0, f64::max);
            println!("largest error {error:.0e} of {factor:.1e}");
        }
        Ok(())
    })?;
    Ok(())
}
