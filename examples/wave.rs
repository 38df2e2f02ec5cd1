//! Propagates a wave in a periodic box in two dimensions, and draws it. The stencil is WGSL;
//! meshloom exchanges the ghost cells. Files have the same bytes on any number of ranks.
//!
//! ```text
//! cargo run --release --features image --example wave
//! MESHLOOM_RANKS=4 cargo run --release --features image --example wave
//! mpirun -n 4 target/release/examples/wave                    # built with --features image,mpi
//!
//! largest error 9e-4 after 400 steps
//! ```

use std::f64::consts::TAU;

meshloom::kernel_params! { struct Wave { c2: f32 } }

/// Runs the example.
pub fn main() -> meshloom::Result<()> {
    // Standing waves sin(2 pi y) sin(2 pi x / 3) cos(w t) with the speed 1, in steps of half a
    // cell.
    let (step, frequency) = (0.005, TAU * (1.0f64 + 1.0 / 9.0).sqrt());
    let exact = |t: f64| move |[_, y, x]: [f64; 3]| (TAU * y).sin() * (TAU * x / 3.0).sin() * (frequency * t).cos();
    meshloom::run(|rank| {
        let mesh = rank.mesh([200, 300]).periodic([2.0, 3.0]).ghosts(1).build()?;
        let (mut old, mut now, mut next) =
            (rank.fill(&mesh, exact(-step))?, rank.fill(&mesh, exact(0.0))?, rank.zeros(&mesh)?);
        let wave = rank.stencil(
            &mesh,
            "fn cell(c: Cell) -> f32 {
                 let around = now_at(c, -1, 0) + now_at(c, 1, 0) + now_at(c, 0, -1) + now_at(c, 0, 1);
                 return 2.0 * now(c) - old(c) + params.c2 * (around - 4.0 * now(c));
             }",
        );
        for _ in 0..400 {
            wave.run(rank, &Wave { c2: 0.25 }, &[("now", &now), ("old", &old)], &mut next)?;
            (old, now, next) = (now, next, old);
        }
        rank.write_png("wave.png", &now, 1.0)?;
        let expected = rank.fill(&mesh, exact(400.0 * step))?;
        rank.axpby(-1.0, &expected, 1.0, &mut now)?;
        let error = rank.max(&now)?.max(-rank.min(&now)?);
        if rank.index() == 0 {
            println!("largest error {error:.0e} after 400 steps");
        }
        Ok(())
    })?;
    Ok(())
}
