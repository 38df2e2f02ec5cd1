//! Initial conditions: Lagrangian perturbation theory of order 1 to 3 on the particles' lattice.
//!
//! From white noise `w`, with `s = i k / k^2` acting on the density contrast at `D1 = 1`:
//!
//! ```text
//! delta = sqrt(P N / V) w        s1 = s delta        L = sum_{i<j} (phi_ii phi_jj - phi_ij^2)        s2 = s L
//! x = q + D1 s1 + D2 s2 + ...    p = a^2 E (D1' s1 + D2' s2 + ...)
//! ```
//!
//! Bouchet et al. 1995, A&A 296, 575; growth factors and signs are those of
//! [`LptFactors`](crate::cosmology::LptFactors), sources of the third order are in `third_order`.
//! Order 1 takes one forward and 3 inverse transforms; order 2 takes 6 inverse, one forward and 3
//! inverse transforms more; order 3 takes 12 inverse, 5 forward and 12 inverse transforms more.
//! What each leaves behind is submitted, so that its fields are free for the next.

use crate::cosmology::{LptFactors, LptOrder};
use crate::gpu::Array;

use super::Result;
use super::lattice_fields::{LatticeFields, Sources};
use super::third_order;

/// Source of the start of a run.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// This rank's part of the white noise.
    pub noise: &'a Array<f32>,
    /// The table of [`mode_amplitudes`](crate::cosmology::mode_amplitudes).
    pub amplitudes: &'a Array<f32>,
    /// The growth until then.
    pub factors: LptFactors,
}

/// Records the initial displacements and momenta by axis, C order over this rank's sites, as
/// `[displacement, momentum]`. Collective.
///
/// # Errors
/// [`SimulationError`](super::SimulationError) of the transform, the device or the ranks.
pub(super) fn start(
    fields: &mut LatticeFields<'_>,
    source: Source<'_>,
    [displacement, momentum]: [&[Array<f32>; 3]; 2],
) -> Result<()> {
    let Source { noise, amplitudes, factors } = source;
    let mut sources = vec![fields.scaled(noise, amplitudes)?];
    add_sources(fields, &mut sources)?;
    for axis in 0..3 {
        for number in 0..fields.lpt.order.displacements() {
            let s = fields.displacement(axis, number, &sources)?;
            let keep = if number == 0 { 0.0 } else { 1.0 };
            fields.add(factors.position[number], &s, keep, &displacement[axis])?;
            fields.add(factors.momentum[number], &s, keep, &momentum[axis])?;
            fields.recorder.submit()?;
        }
    }
    Ok(())
}

/// Adds to the contrast, the only one of `sources`, those of all higher orders.
pub(super) fn add_sources(fields: &mut LatticeFields<'_>, sources: &mut Sources) -> Result<()> {
    if fields.lpt.order >= LptOrder::Second {
        sources.push(fields.second_order_source(&sources[0])?);
    }
    if fields.lpt.order == LptOrder::Third {
        third_order::add_sources(fields, sources)?;
    }
    Ok(())
}
