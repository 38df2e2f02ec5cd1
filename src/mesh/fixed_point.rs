//! Sums of f64 that do not depend on their order: integers of 128 bits at a point that all ranks
//! share.

/// A fixed point: the power of two that makes integers of values.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    /// The power as two factors: f64's own range of powers is too small for the inverse of some
    /// values.
    up: [f64; 2],
    /// Their inverses.
    down: [f64; 2],
}

impl Unit {
    /// Creates the point at which finite values up to `largest` take `bits` bits.
    pub fn holding(largest: f64, bits: i32) -> Self {
        // The power of two above the largest value.
        let power = bits - ((largest.to_bits() >> 52) as i32 - 1022);
        let halves = [power / 2, power - power / 2];
        Unit { up: halves.map(|half| 2f64.powi(half)), down: halves.map(|half| 2f64.powi(-half)) }
    }

    pub fn integer(self, value: f64) -> i128 {
        (value * self.up[0] * self.up[1]) as i128
    }

    pub fn real(self, value: i128) -> f64 {
        self.divided(value as f64)
    }

    /// Returns a sum of integers, or a mean of them, as a value.
    pub fn divided(self, value: f64) -> f64 {
        value * self.down[0] * self.down[1]
    }
}
