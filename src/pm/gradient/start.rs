//! The derivatives of the initial conditions.
//!
//! With `G_a = i k_a / k^2`, `H_ab = k_a k_b / k^2`, `h_ab = H_ab delta`, `s1_a = G_a delta`,
//! `s2_a = G_a L` and `C = c2r A r2c`:
//!
//! ```text
//! tangent  delta' = A w' + A' w        L' = sum_a h_aa' (tr h - h_aa) - 2 sum_{a<b} h_ab h_ab'        s1' = G delta'        s2' = G L'
//! adjoint  s_bar = position xi + momentum pi                       for each order
//!          L_bar = sum_a conj(G_a) s2_bar_a        h_aa_bar = L_bar (tr h - h_aa)        h_ab_bar = -2 L_bar h_ab
//!          delta_bar = sum_a conj(G_a) s1_bar_a + sum_{a<=b} H_ab h_ab_bar               w_bar = C delta_bar
//! ```
//!
//! The strains h are computed again. Order 1 takes 8 transforms of the particles' lattice, order 2
//! some 40, once a derivative; what each leaves behind is submitted, so that its fields are free
//! for the next.

use super::dots::Dots;
use super::parameters::Layout;
use crate::cosmology::{LptFactors, LptOrder};
use crate::gpu::Array;
use crate::pm::Result;
use crate::pm::lattice_fields::{LatticeFields, STRAINS, Sources, gradients};
use crate::pm::start::{Source, add_sources};
use crate::pm::third_order;

/// Tangent of the start of a run.
pub struct StartTangent<'a> {
    /// The change of the white noise.
    pub noise: &'a Array<f32>,
    /// Tangent of the amplitudes, if they change.
    pub amplitudes: Option<&'a Array<f32>>,
    /// Tangent of the factors.
    pub factors: LptFactors,
}

/// Records how displacements and momenta at the start change, by axis, as `[displacement,
/// momentum]`. Collective.
pub fn tangent(
    fields: &mut LatticeFields<'_>,
    at: Source<'_>,
    by: &StartTangent<'_>,
    out: [&[Array<f32>; 3]; 2],
) -> Result<()> {
    let delta = fields.scaled(at.noise, at.amplitudes)?;
    let change = fields.scaled(by.noise, at.amplitudes)?;
    if let Some(amplitudes) = by.amplitudes {
        let more = fields.scaled(at.noise, amplitudes)?;
        fields.add(1.0, &more.cast()?, 1.0, &change.cast()?)?;
    }
    let (mut sources, mut changes) = (vec![delta], vec![change]);
    if fields.lpt.order >= LptOrder::Second {
        let [second, change] = source_and_tangent(fields, [&sources[0], &changes[0]])?;
        sources.push(second);
        changes.push(change);
    }
    if fields.lpt.order == LptOrder::Third {
        third_order::add_tangents(fields, &sources, &mut changes)?;
        if by.factors != LptFactors::ZERO {
            third_order::add_sources(fields, &mut sources)?;
        }
    }
    for axis in 0..3 {
        for number in 0..fields.lpt.order.displacements() {
            let keep = if number == 0 { 0.0 } else { 1.0 };
            let moved = fields.displacement(axis, number, &changes)?;
            fields.add(at.factors.position[number], &moved, keep, &out[0][axis])?;
            fields.add(at.factors.momentum[number], &moved, keep, &out[1][axis])?;
            let more = [by.factors.position[number], by.factors.momentum[number]];
            if more != [0.0; 2] {
                let s = fields.displacement(axis, number, &sources)?;
                fields.add(more[0], &s, 1.0, &out[0][axis])?;
                fields.add(more[1], &s, 1.0, &out[1][axis])?;
            }
            fields.recorder.submit()?;
        }
    }
    Ok(())
}

/// Returns the modes of the source of the second order, and of its change.
fn source_and_tangent(
    fields: &mut LatticeFields<'_>,
    [delta, change]: [&Array<[f32; 2]>; 2],
) -> Result<[Array<[f32; 2]>; 2]> {
    let (source, tangent) = (fields.zeros()?, fields.zeros()?);
    let diagonal = fields.strains(0..3, delta)?;
    for axis in 0..3 {
        let (next, last) = (&diagonal[(axis + 1) % 3], &diagonal[(axis + 2) % 3]);
        let changed = fields.strain(axis, change)?;
        fields.add_product(1.0, [&changed, next], 1.0, &tangent)?;
        fields.add_product(1.0, [&changed, last], 1.0, &tangent)?;
        fields.add_product(1.0, [&diagonal[axis], next], 1.0, &source)?;
        fields.recorder.submit()?;
    }
    drop(diagonal);
    for which in 3..STRAINS.len() {
        let (mixed, changed) = (fields.strain(which, delta)?, fields.strain(which, change)?);
        fields.add_product(-2.0, [&mixed, &changed], 1.0, &tangent)?;
        fields.add_product(-1.0, [&mixed, &mixed], 1.0, &source)?;
        fields.recorder.submit()?;
    }
    Ok([fields.spectrum(&source)?, fields.spectrum(&tangent)?])
}

/// Input of the adjoint of the start: fields of this rank's sites.
pub struct StartCotangents<'a> {
    /// Cotangents of the displacements, by axis.
    pub positions: &'a [Array<f32>; 3],
    /// Cotangents of the momenta.
    pub momenta: &'a [Array<f32>; 3],
    /// The derivatives of the amplitudes by the parameters, if these are asked for.
    pub amplitudes: &'a [Array<f32>],
}

/// Records the cotangent of the white noise, on this rank's sites, and adds to `dots` what the
/// factors of the start and the amplitudes are worth. Collective.
pub fn adjoint(
    fields: &mut LatticeFields<'_>,
    at: Source<'_>,
    bars: &StartCotangents<'_>,
    dots: (&mut Dots, &Layout),
) -> Result<Array<f32>> {
    let (dots, layout) = dots;
    let order = fields.lpt.order;
    let mut sources = vec![fields.scaled(at.noise, at.amplitudes)?];
    let mut source_bars = vec![fields.zeros()?];
    displacements(fields, (&at.factors, bars), (0, &sources), &source_bars, (dots, layout))?;
    if order >= LptOrder::Second {
        for _ in 1..source_count(order) {
            source_bars.push(fields.zeros()?);
        }
        if (1..order.displacements()).any(|number| layout.start_numbers(number).iter().any(|&at| dots.wants(at))) {
            add_sources(fields, &mut sources)?;
        }
        for number in 1..order.displacements() {
            displacements(fields, (&at.factors, bars), (number, &sources), &source_bars, (dots, layout))?;
        }
    }
    if order == LptOrder::Third {
        if sources.len() == 1 {
            sources.push(fields.second_order_source(&sources[0])?);
        }
        sources.truncate(2);
        third_order::adjoint(fields, &sources, &source_bars)?;
        source_bars.truncate(2);
    }
    if let [density, second] = &source_bars[..] {
        sources.truncate(1);
        second_order(fields, &sources[0], [density, second])?;
    }
    let density = source_bars.swap_remove(0);
    drop(source_bars);
    for (which, derivative) in bars.amplitudes.iter().enumerate() {
        let change = fields.filtered(at.noise, derivative)?;
        dots.parameter(fields.recorder, which, [&density, &change])?;
        fields.recorder.submit()?;
    }
    fields.filtered(&density, at.amplitudes)
}

/// Returns the number of sources of all displacements.
fn source_count(order: LptOrder) -> usize {
    if order == LptOrder::Third { third_order::NUMBERS.end } else { order.displacements() }
}

/// Adds to the cotangents of sources, one field for each, what those of displacement `number` mean.
/// The modes of the sources are needed where its factors change with a parameter.
fn displacements(
    fields: &mut LatticeFields<'_>,
    (factors, bars): (&LptFactors, &StartCotangents<'_>),
    (number, sources): (usize, &Sources),
    source_bars: &[Array<f32>],
    (dots, layout): (&mut Dots, &Layout),
) -> Result<()> {
    let numbers = layout.start_numbers(number);
    for axis in 0..3 {
        if numbers.iter().any(|&number| dots.wants(number)) {
            // The displacement itself is what its factors count for.
            let displacement = fields.displacement(axis, number, sources)?;
            dots.fields(fields.recorder, numbers[0], [&bars.positions[axis], &displacement])?;
            dots.fields(fields.recorder, numbers[1], [&bars.momenta[axis], &displacement])?;
            fields.recorder.submit()?;
        }
        let bar = fields.field()?;
        fields.add(factors.position[number], &bars.positions[axis], 0.0, &bar)?;
        fields.add(factors.momentum[number], &bars.momenta[axis], 1.0, &bar)?;
        let modes = fields.spectrum(&bar)?;
        for (source, gradient, sign) in gradients(axis, number) {
            let part = fields.gradient(gradient, &modes)?;
            fields.add(-sign, &part, 1.0, &source_bars[source])?;
        }
        fields.recorder.submit()?;
    }
    Ok(())
}

/// Adds to the cotangent of the contrast what that of the source of the second order means.
fn second_order(
    fields: &mut LatticeFields<'_>,
    delta: &Array<[f32; 2]>,
    [density, source_bar]: [&Array<f32>; 2],
) -> Result<()> {
    let diagonal = fields.strains(0..3, delta)?;
    for axis in 0..3 {
        let bar = fields.field()?;
        fields.add_product(1.0, [source_bar, &diagonal[(axis + 1) % 3]], 0.0, &bar)?;
        fields.add_product(1.0, [source_bar, &diagonal[(axis + 2) % 3]], 1.0, &bar)?;
        fields.strain_adjoint(axis, &bar, density)?;
    }
    drop(diagonal);
    for which in 3..STRAINS.len() {
        let (mixed, bar) = (fields.strain(which, delta)?, fields.field()?);
        fields.add_product(-2.0, [source_bar, &mixed], 0.0, &bar)?;
        fields.recorder.submit()?;
        drop(mixed);
        fields.strain_adjoint(which, &bar, density)?;
    }
    Ok(())
}
