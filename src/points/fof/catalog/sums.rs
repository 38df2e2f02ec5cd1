//! Sums over the members of a group that do not depend on their order or on how they are
//! distributed over ranks.
//!
//! Each term is computed in f64 from one member alone, scaled by a power of two and cut to a
//! 128-bit integer. Integers add exactly, so any grouping gives the same bits. The power is chosen
//! for each group and quantity from the greatest magnitudes in the group, which need no order
//! either, and from its count, so that the sum cannot overflow: a term keeps what is above 2^-80 of
//! the greatest in groups of 2^40 members, and more in smaller ones; a term of f64 has 53 bits.
//!
//! Two passes: first the means, then squares of the distances from them. Squares from the reference
//! that are then moved to the mean would cancel where the reference lies far outside; these do not.
//!
//! A [`Row`] has the final quantities of one group, with its principal axes.

use bytemuck::{Pod, Zeroable};
use nalgebra::{Matrix2, Matrix3, SymmetricEigen};

use super::{Order, Reference, Relative};
use crate::points::Domain;

/// Bits of a sum without its sign, two bits for the rounding of means, and two to spare.
const BITS: i32 = 123;

/// The greatest magnitudes among a group's members, relative to its reference.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Spans {
    mass: f64,
    position: f64,
    velocity: f64,
    scale_factor: f64,
}

impl Spans {
    pub fn of(members: impl Iterator<Item = Relative>) -> Self {
        members.fold(Spans::default(), |spans, member| {
            let greatest = |v: [f64; 3]| v[0].abs().max(v[1].abs()).max(v[2].abs());
            spans.union(Spans {
                mass: member.mass,
                position: greatest(member.position),
                velocity: greatest(member.velocity),
                scale_factor: member.scale_factor.abs(),
            })
        })
    }

    pub fn union(self, other: Spans) -> Self {
        Spans {
            mass: self.mass.max(other.mass),
            position: self.position.max(other.position),
            velocity: self.velocity.max(other.velocity),
            scale_factor: self.scale_factor.max(other.scale_factor),
        }
    }
}

/// A power of two that makes integers of terms, and its inverse.
#[derive(Clone, Copy, Debug)]
struct Scale {
    up: f64,
    down: f64,
}

impl Scale {
    /// For fewer than `2^members` terms that are at most `bound`.
    fn new(bound: f64, members: i32) -> Self {
        // The bound is below two to this power; products of three f32 are never subnormal.
        let exponent = (bound.to_bits() >> 52) as i32 - 1022;
        let shift = if bound == 0.0 { 0 } else { BITS - exponent - members };
        let power = |n: i32| f64::from_bits(((n + 1023) as u64) << 52);
        Scale { up: power(shift), down: power(-shift) }
    }

    fn units(self, term: f64) -> i128 {
        (term * self.up) as i128
    }

    fn value(self, sum: i128) -> f64 {
        sum as f64 * self.down
    }
}

/// Conversion of the terms of one group to integers: equal wherever its spans and its count are
/// known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    /// No member has a mass: each has the weight 1 in all means.
    massless: bool,
    weight: Scale,
    position: Scale,
    velocity: Scale,
    scale_factor: Scale,
    squares: Scale,
    speeds: Scale,
}

impl Scales {
    pub fn new(spans: &Spans, count: u64) -> Self {
        let massless = spans.mass == 0.0;
        let weight = if massless { 1.0 } else { spans.mass };
        let members = 64 - count.leading_zeros() as i32;
        let scale = |bound| Scale::new(bound, members);
        // From the mean, members are at most twice as far as from the reference.
        let (across, relative) = (2.0 * spans.position, 2.0 * spans.velocity);
        Scales {
            massless,
            weight: scale(weight),
            position: scale(weight * spans.position),
            velocity: scale(weight * spans.velocity),
            scale_factor: scale(weight * spans.scale_factor),
            squares: scale(weight * across * across),
            speeds: scale(weight * (3.0 * relative * relative)),
        }
    }

    fn weight(&self, member: &Relative) -> f64 {
        if self.massless { 1.0 } else { member.mass }
    }
}

fn add<const N: usize>(a: [i128; N], b: [i128; N]) -> [i128; N] {
    std::array::from_fn(|i| a[i] + b[i])
}

/// Sums of weights, and of positions, velocities and scale factors with their weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct First([i128; 8]);

impl First {
    pub fn of(members: impl Iterator<Item = Relative>, scales: &Scales) -> Self {
        members.fold(First::default(), |sums, member| {
            let weight = scales.weight(&member);
            let [x, y, z] = member.position.map(|d| scales.position.units(weight * d));
            let [u, v, w] = member.velocity.map(|d| scales.velocity.units(weight * d));
            let a = scales.scale_factor.units(weight * member.scale_factor);
            sums.plus(First([scales.weight.units(weight), x, y, z, u, v, w, a]))
        })
    }

    pub fn plus(self, other: First) -> Self {
        First(add(self.0, other.0))
    }
}

/// The means of a group, relative to its reference.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Means {
    /// The sum of the weights: the mass where there is any, else the count.
    weight: f64,
    pub position: [f64; 3],
    pub velocity: [f64; 3],
    pub scale_factor: f64,
}

impl Means {
    pub fn new(sums: &First, scales: &Scales) -> Self {
        let First([m, x, y, z, u, v, w, a]) = *sums;
        let weight = scales.weight.value(m);
        Means {
            weight,
            position: [x, y, z].map(|sum| scales.position.value(sum) / weight),
            velocity: [u, v, w].map(|sum| scales.velocity.value(sum) / weight),
            scale_factor: scales.scale_factor.value(a) / weight,
        }
    }

    pub fn mass(&self, scales: &Scales) -> f64 {
        if scales.massless { 0.0 } else { self.weight }
    }
}

/// Sums of products of distances from the mean (xx, xy, xz, yy, yz, zz) and of squares of
/// velocities relative to the mean, with their weights; and the square of the greatest distance.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Second {
    sums: [i128; 7],
    farthest: f64,
    /// Makes the size a multiple of the alignment.
    rest: u64,
}

impl Second {
    pub fn of(members: impl Iterator<Item = Relative>, means: &Means, scales: &Scales) -> Self {
        let minus = |a: [f64; 3], b: [f64; 3]| [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
        let square = |v: [f64; 3]| v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
        members.fold(Second::default(), |sums, member| {
            let weight = scales.weight(&member);
            let d = minus(member.position, means.position);
            let product = |a: usize, b: usize| scales.squares.units(weight * d[a] * d[b]);
            let speed = scales.speeds.units(weight * square(minus(member.velocity, means.velocity)));
            let products = [product(0, 0), product(0, 1), product(0, 2), product(1, 1), product(1, 2), product(2, 2)];
            let [xx, xy, xz, yy, yz, zz] = products;
            sums.plus(Second { sums: [xx, xy, xz, yy, yz, zz, speed], farthest: square(d), rest: 0 })
        })
    }

    pub fn plus(self, other: Second) -> Self {
        Second { sums: add(self.sums, other.sums), farthest: self.farthest.max(other.farthest), rest: 0 }
    }

    /// Returns the weighted covariance of the positions: xx, xy, xz, yy, yz, zz.
    pub fn covariance(&self, means: &Means, scales: &Scales) -> [f64; 6] {
        std::array::from_fn(|i| scales.squares.value(self.sums[i]) / means.weight)
    }

    /// Returns the weighted mean of the squares of the velocities relative to their mean.
    pub fn dispersion_squared(&self, means: &Means, scales: &Scales) -> f64 {
        scales.speeds.value(self.sums[6]) / means.weight
    }

    pub fn max_radius(&self) -> f64 {
        self.farthest.sqrt()
    }
}

/// A row of the catalog, as it is sent to the rank that keeps it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Row {
    pub label: u64,
    pub count: u64,
    /// The rank that made this row, and the row's place among those it made.
    pub home: u64,
    pub slot: u64,
    pub mass: f64,
    pub center: [f64; 3],
    pub velocity: [f64; 3],
    pub inertia_radius: f64,
    pub velocity_dispersion: f64,
    pub max_radius: f64,
    pub axes: [f64; 3],
    pub directions: [f64; 9],
    pub scale_factor: f64,
}

impl Row {
    pub fn new(
        domain: &Domain,
        (label, count): (u64, u64),
        reference: &Reference,
        scales: &Scales,
        means: &Means,
        second: &Second,
    ) -> Self {
        let covariance = second.covariance(means, scales);
        let (axes, directions) = principal(&covariance, domain.dims());
        let plus = |a: [f32; 3], b: [f64; 3]| [0, 1, 2].map(|axis| f64::from(a[axis]) + b[axis]);
        let mut center = plus(reference.position, means.position);
        for (axis, x) in center.iter_mut().enumerate() {
            if let Some(side) = domain.side(axis) {
                let inside = x.rem_euclid(f64::from(side));
                // What rounds to the side is 0, in f32 too, as files have it; and so is -0.
                *x = if inside as f32 >= side { 0.0 } else { inside + 0.0 };
            }
        }
        Row {
            label,
            count,
            home: 0,
            slot: 0,
            mass: means.mass(scales),
            center,
            velocity: plus(reference.velocity, means.velocity),
            inertia_radius: (covariance[0] + covariance[3] + covariance[5]).sqrt(),
            velocity_dispersion: second.dispersion_squared(means, scales).sqrt(),
            max_radius: second.max_radius(),
            axes,
            directions,
            scale_factor: f64::from(reference.scale_factor) + means.scale_factor,
        }
    }

    /// Returns what rows are sorted by; no two groups have the same.
    pub fn key(&self, order: Order) -> [u64; 2] {
        match order {
            Order::Count => [!self.count, self.label],
            // Bits of numbers from 0 on are in the order of the numbers.
            Order::Mass => [!self.mass.to_bits(), self.label],
            Order::Label => [self.label, 0],
        }
    }
}

/// Root-mean-square semi-axes, largest first, and their directions: unit rows, one after the other,
/// `dims` values each, the component of largest magnitude (the first of several) positive.
/// `covariance` is xx, xy, xz, yy, yz, zz. The rest is 0.
fn principal(covariance: &[f64; 6], dims: usize) -> ([f64; 3], [f64; 9]) {
    let [xx, xy, xz, yy, yz, zz] = *covariance;
    let (mut axes, mut directions) = ([0.0; 3], [0.0; 9]);
    let trace = xx + yy + zz;
    if trace == 0.0 {
        // All in one place: any directions will do.
        (0..dims).for_each(|axis| directions[axis * dims + axis] = 1.0);
        return (axes, directions);
    }
    // Divided by the trace, so that squares of entries neither vanish nor overflow.
    let mut found = [(0.0, [0.0; 3]); 3];
    if dims == 2 {
        let eigen = SymmetricEigen::new(Matrix2::new(xx, xy, xy, yy) / trace);
        for (i, found) in found[..2].iter_mut().enumerate() {
            *found = (eigen.eigenvalues[i], [eigen.eigenvectors[(0, i)], eigen.eigenvectors[(1, i)], 0.0]);
        }
    } else {
        let eigen = SymmetricEigen::new(Matrix3::new(xx, xy, xz, xy, yy, yz, xz, yz, zz) / trace);
        for (i, found) in found.iter_mut().enumerate() {
            *found = (eigen.eigenvalues[i], eigen.eigenvectors.column(i).into_owned().into());
        }
    }
    found[..dims].sort_by(|a, b| b.0.total_cmp(&a.0));
    for (i, (value, vector)) in found[..dims].iter().enumerate() {
        // Rounding leaves an axis without extent slightly negative at times.
        axes[i] = (value.max(0.0) * trace).sqrt();
        let largest = vector.iter().fold(0.0, |most: f64, &x| if x.abs() > most.abs() { x } else { most });
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt().copysign(largest);
        for (to, x) in directions[i * dims..(i + 1) * dims].iter_mut().zip(vector) {
            // Adding zero turns -0 into 0.
            *to = x / length + 0.0;
        }
    }
    (axes, directions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn sums_of_the_largest_terms_fit_and_small_ones_are_kept() {
        // The least and greatest products of three f32, and of numbers just below and at a power of
        // two.
        for bound in [2f64.powi(-447), 1e-30, 1.0, 2.0 - f64::EPSILON, 1e30, 2f64.powi(388)] {
            for count in [1u64, 2, 1000, (1 << 40) - 1, 1 << 40] {
                let scale = Scale::new(bound, 64 - count.leading_zeros() as i32);
                let largest = scale.units(bound);
                let sum = largest.checked_mul(i128::from(count)).expect("a sum that fits");
                assert!(sum < 1 << BITS, "{bound:e} times {count}");
                assert_eq!(scale.value(largest), bound);
                // All 53 bits of a term 2^-28 times the largest.
                let small = bound * 2f64.powi(-28) * (1.0 + f64::EPSILON);
                assert_eq!(scale.value(scale.units(-small)), -small);
            }
        }
        assert_eq!(Scale::new(0.0, 1).units(0.0), 0);
    }

    #[test]
    fn axes_are_those_of_a_rotated_ellipsoid() {
        // 4 along (3, 4, 0)/5, 2 along z, 1 along (-4, 3, 0)/5.
        let (c, s) = (0.6, 0.8);
        let covariance = [16.0 * c * c + s * s, 15.0 * c * s, 0.0, 16.0 * s * s + c * c, 0.0, 4.0];
        let (axes, directions) = principal(&covariance, 3);
        assert_relative_eq!(axes[..], [4.0, 2.0, 1.0][..], max_relative = 1e-13);
        assert_relative_eq!(directions[..], [c, s, 0.0, 0.0, 0.0, 1.0, s, -c, 0.0][..], epsilon = 1e-13);
    }

    #[test]
    fn any_unit_gives_the_same_shape() {
        for unit in [1e-130, 1.0, 1e120] {
            let (axes, directions) = principal(&[5.0 * unit, 4.0 * unit, 0.0, 5.0 * unit, 0.0, 0.0], 2);
            assert_relative_eq!(axes[0], 3.0 * f64::sqrt(unit), max_relative = 1e-14);
            assert_relative_eq!(axes[1], f64::sqrt(unit), max_relative = 1e-14);
            let half = f64::sqrt(0.5);
            assert_relative_eq!(directions[..2], [half, half][..], max_relative = 1e-14);
        }
    }

    #[test]
    fn no_extent_has_no_axes() {
        let (axes, directions) = principal(&[0.0; 6], 3);
        assert_eq!((axes, directions), ([0.0; 3], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]));
    }
}
