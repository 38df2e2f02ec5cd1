//! The adjoint of the initial conditions: from cotangents of positions and momenta at the start to those of the white noise.
//!
//! With `G_a = i k_a / k^2`, `H_ab = k_a k_b / k^2`, `h_ab = H_ab delta`, `s1_a = G_a delta` and `s2_a = G_a L`:
//!
//! ```text
//! s_bar = position xi + momentum pi                       for each order
//! L_bar = sum_a conj(G_a) s2_bar_a        h_aa_bar = L_bar (tr h - h_aa)        h_ab_bar = -2 L_bar h_ab
//! delta_bar = sum_a conj(G_a) s1_bar_a + sum_{a<=b} H_ab h_ab_bar               w_bar = C delta_bar,   C = c2r A r2c
//! ```
//!
//! The strains h are computed again. Order 1 takes 8 transforms of the particles' lattice, order 2 some 40, once a gradient.

use super::dots::Dots;
use super::parameters::{COUNT, Layout};
use crate::cosmology::{LptFactors, LptOrder};
use crate::gpu::Array;
use crate::pm::SimulationError;
use crate::pm::start::{LatticeFields, odd};

/// What the adjoint of the start works on: fields of this rank's sites.
pub struct StartCotangents<'a> {
    /// Of the displacements, by axis.
    pub positions: [Array<f32>; 3],
    /// Of the momenta.
    pub momenta: [Array<f32>; 3],
    /// The white noise.
    pub noise: &'a Array<f32>,
    /// The amplitudes of the modes, and their derivatives by the parameters.
    pub amplitudes: &'a [f32],
    pub derivatives: &'a [Vec<f32>; COUNT],
}

/// The strains of a field.
struct Strains {
    diagonal: [Array<f32>; 3],
    /// Of the pairs of axes 01, 02, 12.
    mixed: [Array<f32>; 3],
}

/// The pairs of axes.
const PAIRS: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

/// Records the cotangent of the white noise, on this rank's sites, and adds to `dots` what the factors of the start and the amplitudes are worth.
/// All ranks call it.
pub fn adjoint(
    fields: &mut LatticeFields<'_>,
    bars: &StartCotangents<'_>,
    factors: &LptFactors,
    (dots, layout): (&mut Dots, &Layout),
) -> Result<Array<f32>, SimulationError> {
    let delta = {
        let delta = fields.spectrum(bars.noise)?;
        fields.transform.scale_radially(fields.recorder, &delta, bars.amplitudes)?;
        delta
    };
    let density = fields.field()?;
    fields.recorder.clear(&density);
    first_order(fields, bars, &delta, &density, factors, (dots, layout))?;
    if fields.config.lpt == LptOrder::Second {
        second_order(fields, bars, &delta, &density, factors, (dots, layout))?;
    }
    let modes = fields.spectrum(&density)?;
    for (which, derivative) in bars.derivatives.iter().enumerate() {
        let scaled = fields.spectrum(bars.noise)?;
        fields.transform.scale_radially(fields.recorder, &scaled, derivative)?;
        let change = plain(fields, &scaled)?;
        dots.parameter(fields, which, [&density, &change])?;
    }
    fields.transform.scale_radially(fields.recorder, &modes, bars.amplitudes)?;
    plain(fields, &modes)
}

/// The field of modes.
fn plain(fields: &mut LatticeFields<'_>, modes: &Array<[f32; 2]>) -> Result<Array<f32>, SimulationError> {
    let field = fields.field()?;
    let LatticeFields { recorder, comms, transform, .. } = fields;
    transform.inverse(recorder, comms, modes, None, &field, &transform.field_layout())?;
    Ok(field)
}

/// `out = out + sum_a conj(G_a) s_bar_a` for the displacements of one order, whose field has the modes `source`.
fn displacements(
    fields: &mut LatticeFields<'_>,
    bars: &StartCotangents<'_>,
    (order, factors): (usize, &LptFactors),
    source: &Array<[f32; 2]>,
    out: &Array<f32>,
    (dots, layout): (&mut Dots, &Layout),
) -> Result<(), SimulationError> {
    for axis in 0..3 {
        let kernel = |fields: &mut LatticeFields<'_>, sign: f64| {
            fields.operator([0.0, sign], &|a, wave| if a == axis { odd(wave) } else { 1.0 })
        };
        // The displacement itself is what its factors count for.
        let forward = kernel(fields, 1.0)?;
        let displacement = fields.apply(&forward, source)?;
        dots.add(fields, layout.start + order, [&bars.positions[axis], &displacement])?;
        dots.add(fields, layout.start + 2 + order, [&bars.momenta[axis], &displacement])?;
        let bar = fields.field()?;
        fields.axpby.record(fields.recorder, factors.position[order], &bars.positions[axis], 0.0, &bar)?;
        fields.axpby.record(fields.recorder, factors.momentum[order], &bars.momenta[axis], 1.0, &bar)?;
        let (modes, back) = (fields.spectrum(&bar)?, kernel(fields, -1.0)?);
        let part = fields.apply(&back, &modes)?;
        fields.axpby.record(fields.recorder, 1.0, &part, 1.0, out)?;
    }
    Ok(())
}

fn first_order(
    fields: &mut LatticeFields<'_>,
    bars: &StartCotangents<'_>,
    delta: &Array<[f32; 2]>,
    density: &Array<f32>,
    factors: &LptFactors,
    dots: (&mut Dots, &Layout),
) -> Result<(), SimulationError> {
    displacements(fields, bars, (0, factors), delta, density, dots)
}

fn second_order(
    fields: &mut LatticeFields<'_>,
    bars: &StartCotangents<'_>,
    delta: &Array<[f32; 2]>,
    density: &Array<f32>,
    factors: &LptFactors,
    dots: (&mut Dots, &Layout),
) -> Result<(), SimulationError> {
    let source = fields.second_order_source(delta)?;
    let source_bar = fields.field()?;
    fields.recorder.clear(&source_bar);
    displacements(fields, bars, (1, factors), &source, &source_bar, dots)?;
    drop(source);
    let strains = strains(fields, delta)?;
    for axis in 0..3 {
        let others = [(axis + 1) % 3, (axis + 2) % 3];
        let bar = fields.field()?;
        for (n, &other) in others.iter().enumerate() {
            let keep = if n == 0 { 0.0 } else { 1.0 };
            let factors = [&source_bar, &strains.diagonal[other]];
            fields.axpby.record_product(fields.recorder, 1.0, factors, keep, &bar)?;
        }
        strain_adjoint(fields, (axis, axis), &bar, density)?;
    }
    for (&(i, j), mixed) in PAIRS.iter().zip(&strains.mixed) {
        let bar = fields.field()?;
        fields.axpby.record_product(fields.recorder, -2.0, [&source_bar, mixed], 0.0, &bar)?;
        strain_adjoint(fields, (i, j), &bar, density)?;
    }
    Ok(())
}

fn strains(fields: &mut LatticeFields<'_>, delta: &Array<[f32; 2]>) -> Result<Strains, SimulationError> {
    let mut strain = |i, j| fields.strain(delta, i, j);
    let diagonal = [strain(0, 0)?, strain(1, 1)?, strain(2, 2)?];
    let [(a, b), (c, d), (e, f)] = PAIRS;
    Ok(Strains { diagonal, mixed: [strain(a, b)?, strain(c, d)?, strain(e, f)?] })
}

/// `out = out + H_ij bar`: the kernels of strains are real and symmetric.
fn strain_adjoint(
    fields: &mut LatticeFields<'_>,
    (i, j): (usize, usize),
    bar: &Array<f32>,
    out: &Array<f32>,
) -> Result<(), SimulationError> {
    let modes = fields.spectrum(bar)?;
    let part = fields.strain(&modes, i, j)?;
    Ok(fields.axpby.record(fields.recorder, 1.0, &part, 1.0, out)?)
}
