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
//! [`LptFactors`](crate::cosmology::LptFactors).
//! Order 1 takes one forward and 3 inverse transforms; order 2 takes 6 inverse, one forward and 3
//! inverse transforms more; order 3 takes 12 inverse, 5 forward and 12 inverse transforms more.
//! What each leaves behind is submitted, so that its fields are free for the next.
//!
//! # Third order
//! With the strains `h_ij = k_i k_j / k^2 delta` and `g_ij = k_i k_j / k^2 L` at the sites:
//!
//! ```text
//! source 2    -det h = -1/3 sum_ij cof(h)_ij h_ij
//! source 3    (tr h tr g - tr hg) / 2
//! source 4+c  sum_l (h_lj g_lk - h_lk g_lj)          for (c, j, k) = (0, 1, 2) and cyclic
//! ```
//!
//! All but the first are sums of products of one strain of each, which one table lists for values,
//! tangents and adjoints. (Michaux et al. 2021, MNRAS 500, 663, equations 9 to 12.)

use super::lattice_fields::{STRAINS, Sources};
use super::{LatticeFields, Result};
use crate::cosmology::{LptFactors, LptOrder};
use crate::gpu::{Array, DeviceError};

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
        add_third_order(fields, sources)?;
    }
    Ok(())
}

/// Numbers of the sources.
pub(super) const THIRD_ORDER: std::ops::Range<usize> = 2..7;

/// The source that is a determinant.
const DETERMINANT: usize = 2;

/// Strains of the contrast and of L, six each.
pub(super) struct Strains {
    pub h: Vec<Array<f32>>,
    pub g: Vec<Array<f32>>,
}

impl Strains {
    /// Computes the strains of the contrast and L, which `sources` begins with.
    pub fn new(fields: &mut LatticeFields<'_>, sources: &Sources) -> Result<Self> {
        let mut all = |source: usize| fields.strains(0..STRAINS.len(), &sources[source]);
        Ok(Strains { h: all(0)?, g: all(1)? })
    }
}

/// Returns the number in [`STRAINS`] of a pair of axes in any order.
fn pair(i: usize, j: usize) -> usize {
    if i == j { i } else { i + j + 2 }
}

/// Returns the terms of a source: the factors of `h[i] g[j]`, with i and j.
fn terms(number: usize) -> Vec<(f64, usize, usize)> {
    if number == 3 {
        let unequal = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].map(|(i, j)| (0.5, i, j));
        return unequal.into_iter().chain((3..STRAINS.len()).map(|mixed| (-1.0, mixed, mixed))).collect();
    }
    let [j, k] = [(number - 3) % 3, (number - 2) % 3];
    let of_row = |l: usize| [(1.0, pair(l, j), pair(l, k)), (-1.0, pair(l, k), pair(l, j))];
    (0..3).flat_map(of_row).collect()
}

/// Returns the number of entries of the tensor that a strain is.
fn multiplicity(strain: usize) -> f64 {
    if strain < 3 { 1.0 } else { 2.0 }
}

/// Returns the cofactor of a strain: the derivative of the determinant, for one of equal strains.
fn cofactor(fields: &mut LatticeFields<'_>, h: &[Array<f32>], strain: usize) -> Result<Array<f32>, DeviceError> {
    let (i, j) = STRAINS[strain];
    let [i1, i2, j1, j2] = [i + 1, i + 2, j + 1, j + 2].map(|axis| axis % 3);
    let product = |a: usize, b: usize, c: usize, d: usize| [&h[pair(a, b)], &h[pair(c, d)]];
    let cofactor = fields.field()?;
    fields.add_product(1.0, product(i1, j1, i2, j2), 0.0, &cofactor)?;
    fields.add_product(-1.0, product(i1, j2, i2, j1), 1.0, &cofactor)?;
    Ok(cofactor)
}

/// Adds the third-order sources to the contrast and L.
pub(super) fn add_third_order(fields: &mut LatticeFields<'_>, sources: &mut Sources) -> Result<()> {
    let Strains { h, g } = Strains::new(fields, sources)?;
    for number in THIRD_ORDER {
        let source = fields.zeros()?;
        if number == DETERMINANT {
            add_determinant(fields, -1.0 / 3.0, [&h, &h], &source)?;
        } else {
            for (factor, i, j) in terms(number) {
                fields.add_product(factor, [&h[i], &g[j]], 1.0, &source)?;
            }
        }
        sources.push(fields.spectrum(&source)?);
        fields.recorder.submit()?;
    }
    Ok(())
}

/// `out = out + factor sum_ij cof(h)_ij dh_ij`.
fn add_determinant(
    fields: &mut LatticeFields<'_>,
    factor: f64,
    [h, dh]: [&[Array<f32>]; 2],
    out: &Array<f32>,
) -> Result<()> {
    for (strain, dh) in dh.iter().enumerate() {
        let cofactor = cofactor(fields, h, strain)?;
        fields.add_product(factor * multiplicity(strain), [&cofactor, dh], 1.0, out)?;
        fields.recorder.submit()?;
    }
    Ok(())
}

/// Adds the tangents of the third-order sources to those of the contrast and L, which `sources`
/// are the values of.
pub(super) fn add_third_order_tangents(
    fields: &mut LatticeFields<'_>,
    sources: &Sources,
    tangents: &mut Sources,
) -> Result<()> {
    let (at, by) = (Strains::new(fields, sources)?, Strains::new(fields, tangents)?);
    for number in THIRD_ORDER {
        let tangent = fields.zeros()?;
        if number == DETERMINANT {
            add_determinant(fields, -1.0, [&at.h, &by.h], &tangent)?;
        } else {
            for (factor, i, j) in terms(number) {
                fields.add_product(factor, [&by.h[i], &at.g[j]], 1.0, &tangent)?;
                fields.add_product(factor, [&at.h[i], &by.g[j]], 1.0, &tangent)?;
            }
        }
        tangents.push(fields.spectrum(&tangent)?);
        fields.recorder.submit()?;
    }
    Ok(())
}

/// Adds to `bars`, one field for each source, the cotangents that those of the third order mean for
/// the contrast and L.
pub(super) fn third_order_adjoint(
    fields: &mut LatticeFields<'_>,
    sources: &Sources,
    bars: &[Array<f32>],
) -> Result<()> {
    let at = Strains::new(fields, sources)?;
    for strain in 0..STRAINS.len() {
        let bar = fields.field()?;
        let cofactor = cofactor(fields, &at.h, strain)?;
        fields.add_product(-multiplicity(strain), [&bars[DETERMINANT], &cofactor], 0.0, &bar)?;
        for (number, (factor, _, j)) in all_terms().filter(|(_, term)| term.1 == strain) {
            fields.add_product(factor, [&bars[number], &at.g[j]], 1.0, &bar)?;
        }
        fields.recorder.submit()?;
        drop(cofactor);
        fields.strain_adjoint(strain, &bar, &bars[0])?;
    }
    for strain in 0..STRAINS.len() {
        let bar = fields.zeros()?;
        for (number, (factor, i, _)) in all_terms().filter(|(_, term)| term.2 == strain) {
            fields.add_product(factor, [&bars[number], &at.h[i]], 1.0, &bar)?;
        }
        fields.strain_adjoint(strain, &bar, &bars[1])?;
    }
    Ok(())
}

/// Returns the terms of all sources but the determinant, each with the number of its source.
fn all_terms() -> impl Iterator<Item = (usize, (f64, usize, usize))> {
    THIRD_ORDER.skip(1).flat_map(|number| terms(number).into_iter().map(move |term| (number, term)))
}
