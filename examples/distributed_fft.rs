//! A complex transform in three dimensions over any number of ranks: a plane wave has one mode.
//!
//! ```text
//! cargo run --release --example distributed_fft                      # one rank
//! MESHLOOM_RANKS=4 cargo run --release --example distributed_fft     # four ranks as threads
//! mpirun -n 4 target/release/examples/distributed_fft                # four MPI ranks (built with --features mpi)
//!
//! rank 0 has the cells [0..8, 0..24, 0..20] and the modes [0..32, 0..6, 0..20]
//! rank 1 has the cells [8..16, 0..24, 0..20] and the modes [0..32, 6..12, 0..20]
//!   of them [3, 7, -2] with 15360.000 of the wave
//! rank 2 has the cells [16..24, 0..24, 0..20] and the modes [0..32, 12..18, 0..20]
//! rank 3 has the cells [24..32, 0..24, 0..20] and the modes [0..32, 18..24, 0..20]
//! ```

use std::f64::consts::TAU;

fn main() -> meshloom::Result<()> {
    let texts = meshloom::run(|rank| {
        let mesh = rank.mesh([32, 24, 20]).build()?;
        let wave = rank.fill_cells(&mesh, |[i, j, k]| {
            let angle = TAU * (3.0 * i as f64 / 32.0 + 7.0 * j as f64 / 24.0 - 2.0 * k as f64 / 20.0);
            [angle.cos() as f32, angle.sin() as f32]
        })?;
        let spectrum = rank.fft(&wave)?;
        let modes = rank.download_modes(&spectrum)?;

        let (cells, part) = (&mesh.layout().own, &spectrum.layout().part);
        let mut text = format!("rank {} has the cells {cells:?} and the modes {part:?}", rank.index());
        for (mode, [re, im]) in spectrum.layout().modes().zip(modes).filter(|(_, [re, im])| re.hypot(*im) > 0.5) {
            assert!(mode == [3, 7, -2] && (re - 15360.0).abs() < 0.5 && im.abs() < 0.5);
            text += &format!("\n  of them {mode:?} with {re:.3} of the wave");
        }
        Ok(text)
    })?;
    texts.iter().for_each(|text| println!("{text}"));
    Ok(())
}
