//! Sources of the third-order displacements, and their derivatives.
//!
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

use super::Result;
use super::lattice_fields::{LatticeFields, STRAINS, Sources};
use crate::gpu::{Array, DeviceError};

/// Numbers of the sources.
pub(super) const NUMBERS: std::ops::Range<usize> = 2..7;

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
pub(super) fn add_sources(fields: &mut LatticeFields<'_>, sources: &mut Sources) -> Result<()> {
    let Strains { h, g } = Strains::new(fields, sources)?;
    for number in NUMBERS {
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
pub(super) fn add_tangents(fields: &mut LatticeFields<'_>, sources: &Sources, tangents: &mut Sources) -> Result<()> {
    let (at, by) = (Strains::new(fields, sources)?, Strains::new(fields, tangents)?);
    for number in NUMBERS {
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
pub(super) fn adjoint(fields: &mut LatticeFields<'_>, sources: &Sources, bars: &[Array<f32>]) -> Result<()> {
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
    NUMBERS.skip(1).flat_map(|number| terms(number).into_iter().map(move |term| (number, term)))
}
