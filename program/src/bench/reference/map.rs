//! A function of many items and its sum, by rayon.

use rayon::prelude::*;

/// Name of the reference in reports.
pub const NAME: &str = "rayon, par_iter over items";

/// What `map.wgsl` computes for each item; returns the sum.
pub fn energies(stiffness: &[f32], steps: u32, energies: &mut [f32]) -> f64 {
    let energy = |k: f32| {
        let (mut x, mut v) = (1.0_f32, 0.0_f32);
        for _ in 0..steps {
            v -= 0.01 * (k * x + 0.1 * v);
            x += 0.01 * v;
        }
        0.5 * (v * v + k * x * x)
    };
    energies.par_iter_mut().zip(stiffness).for_each(|(to, &k)| *to = energy(k));
    energies.par_iter().map(|&energy| f64::from(energy)).sum()
}
