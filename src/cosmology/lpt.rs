//! Factors of Lagrangian perturbation theory for the start of a run.

use super::GrowthFactors;

/// The order of the displacements at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LptOrder {
    /// Zel'dovich's approximation: along the linear displacement only.
    First,
    /// With the second-order displacement.
    #[default]
    Second,
    /// With the third-order displacements, the transverse one included.
    Third,
}

impl LptOrder {
    /// Returns the order with number `order`: 1, 2 or 3.
    #[must_use]
    pub fn from_number(order: u64) -> Option<Self> {
        [LptOrder::First, LptOrder::Second, LptOrder::Third].get(usize::try_from(order).ok()?.checked_sub(1)?).copied()
    }

    /// Returns the number of displacement fields: 1, 2 or 5.
    #[must_use]
    pub fn displacements(self) -> usize {
        match self {
            LptOrder::First => 1,
            LptOrder::Second => 2,
            LptOrder::Third => LptFactors::COUNT,
        }
    }
}

/// The factors of the displacement fields of the D = 1 field: `x = q + sum_i position[i] s_i` and
/// `p = sum_i momentum[i] s_i`.
///
/// With `laplacian phi1 = delta` and `h = phi1,ij`, `laplacian phi2 = mu(h, h)` and `g = phi2,ij`,
/// where `mu(h, g) = (tr h tr g - tr hg) / 2`, the fields are
///
/// | i | displacement | factor of the position | matter era |
/// |---|---|---|---|
/// | 0 | `s1 = -grad phi1` | D1 | a |
/// | 1 | `s2 = -grad phi2` | D2 | 3/7 a^2 |
/// | 2 | `s3a = -grad phi3a`, `laplacian phi3a = -det h` | D3a | 1/3 a^3 |
/// | 3 | `s3b = -grad phi3b`, `laplacian phi3b = mu(h, g)` | D3b | 10/21 a^3 |
/// | 4 | `curl s3c = sum_l grad phi1,l x grad phi2,l`, `div s3c = 0` | D3c | 1/7 a^3 |
///
/// (Buchert 1994, MNRAS 267, 811; Bouchet et al. 1995, A&A 296, 575.)
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LptFactors {
    /// D1, D2, D3a, D3b and D3c; 0 above the order.
    pub position: [f64; LptFactors::COUNT],
    /// a^2 E times the derivatives of these by ln a; 0 above the order.
    pub momentum: [f64; LptFactors::COUNT],
}

impl LptFactors {
    /// The number of displacement fields to third order.
    pub const COUNT: usize = 5;

    /// Factors that are all 0.
    pub(crate) const ZERO: Self = LptFactors { position: [0.0; Self::COUNT], momentum: [0.0; Self::COUNT] };
}

/// Returns the factors at the epoch of `growth`.
///
/// ```
/// use meshloom::cosmology::{Cosmology, Growth, LptOrder, lpt_factors};
///
/// let start = lpt_factors(&Growth::new(Cosmology::simple()).at(1.0 / 16.0)?, LptOrder::Second);
/// assert!((start.position[0] - 0.062493528309105546).abs() < 1e-12);
/// assert!((start.position[1] - 0.0016737671290214056).abs() < 1e-13);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[must_use]
pub fn lpt_factors(growth: &GrowthFactors, order: LptOrder) -> LptFactors {
    let ([a, b, c], [pa, pb, pc]) = (growth.d3, growth.third_momenta());
    let mut factors = LptFactors {
        position: [growth.d1, growth.d2, a, b, c],
        momentum: [growth.momentum(), growth.second_momentum(), pa, pb, pc],
    };
    factors.position[order.displacements()..].fill(0.0);
    factors.momentum[order.displacements()..].fill(0.0);
    factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, Growth};

    #[test]
    fn momentum_is_the_time_derivative_of_position() {
        let growth = Growth::new(Cosmology::planck18());
        let at = |a: f64| growth.at(a).unwrap();
        for a in [0.02, 0.3, 0.9] {
            let start = lpt_factors(&at(a), LptOrder::Third);
            // p = a^3 E dx/da, by a central difference of relative error s^2 ~ 1e-8.
            let s = 1e-4 * a;
            let (above, below) = (lpt_factors(&at(a + s), LptOrder::Third), lpt_factors(&at(a - s), LptOrder::Third));
            for i in 0..LptFactors::COUNT {
                let rate = (above.position[i] - below.position[i]) / (2.0 * s);
                let momentum = a.powi(3) * at(a).expansion_rate * rate;
                assert!((momentum / start.momentum[i] - 1.0).abs() < 1e-7);
            }
        }
    }

    #[test]
    fn orders_have_only_their_factors() {
        let growth = Growth::new(Cosmology::simple()).at(0.1).unwrap();
        let third = lpt_factors(&growth, LptOrder::Third);
        for (number, count) in [(1, 1), (2, 2), (3, 5)] {
            let LptFactors { position, momentum } = lpt_factors(&growth, LptOrder::from_number(number).unwrap());
            assert_eq!((&position[..count], &momentum[..count]), (&third.position[..count], &third.momentum[..count]));
            assert!(position[count..].iter().chain(&momentum[count..]).all(|&factor| factor == 0.0));
        }
        assert_eq!([0, 4].map(LptOrder::from_number), [None; 2]);
    }
}
