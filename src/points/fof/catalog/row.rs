//! Final quantities of one group.

use bytemuck::{Pod, Zeroable};

use super::Order;
use super::members::Reference;
use super::shape::principal;
use super::sums::{Means, Scales, Second};
use crate::points::Domain;

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
