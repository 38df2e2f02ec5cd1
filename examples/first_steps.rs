//! The first program of the guides: smooths a wave in Fourier space and writes the field as a NumPy
//! file.
//!
//! ```text
//! cargo run --release --example first_steps
//! MESHLOOM_RANKS=4 cargo run --release --example first_steps
//! mpirun -n 4 target/release/examples/first_steps             # built with --features mpi
//!
//! 0.0286 of the power is left
//! ```

use std::f64::consts::TAU;

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    meshloom::run(|rank| {
        let mesh = rank.mesh([64, 48, 60]).periodic([1.0; 3]).build()?;
        let field = rank.fill(&mesh, |[x, y, z]| (TAU * (x + 2.0 * y + 2.0 * z)).sin())?;
        let smooth = rank.filter(&field, |k| (-0.005 * k.squared()).exp())?;
        let left = rank.dot(&smooth, &smooth)? / rank.dot(&field, &field)?;
        if rank.index() == 0 {
            println!("{left:.4} of the power is left");
        }
        rank.write_npy("smooth.npy", &smooth)?;
        Ok(())
    })?;
    Ok(())
}
