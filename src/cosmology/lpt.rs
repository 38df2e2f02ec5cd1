//! Factors of Lagrangian perturbation theory for the start of a run.

use super::GrowthFactors;

/// The order of the displacements at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LptOrder {
    /// Zel'dovich's approximation: along the linear displacement only.
    First,
    /// With the second-order displacement.
    #[default]
    Second,
}

/// The factors of the displacement fields of the D = 1 field: `x = q + position[0] s1 + position[1]
/// s2` and `p = momentum[0] s1 + momentum[1] s2`, where s1 = -grad phi1 with laplacian phi1 =
/// delta, and s2 = -grad phi2 with laplacian phi2 = the sum over axes i < j of (phi1,ii phi1,jj -
/// phi1,ij^2).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LptFactors {
    /// D1 and D2 (0 at first order).
    pub position: [f64; 2],
    /// a^2 E D1' and a^2 E D2' (0 at first order).
    pub momentum: [f64; 2],
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
    let second = match order {
        LptOrder::First => 0.0,
        LptOrder::Second => 1.0,
    };
    LptFactors {
        position: [growth.d1, second * growth.d2],
        momentum: [growth.momentum(), second * growth.second_momentum()],
    }
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
            let start = lpt_factors(&at(a), LptOrder::Second);
            // p = a^3 E dx/da, by a central difference of relative error s^2 ~ 1e-8.
            let s = 1e-4 * a;
            let (above, below) = (lpt_factors(&at(a + s), LptOrder::Second), lpt_factors(&at(a - s), LptOrder::Second));
            for i in 0..2 {
                let rate = (above.position[i] - below.position[i]) / (2.0 * s);
                let momentum = a.powi(3) * at(a).expansion_rate * rate;
                assert!((momentum / start.momentum[i] - 1.0).abs() < 1e-7);
            }
        }
    }

    #[test]
    fn first_order_has_no_second() {
        let growth = Growth::new(Cosmology::simple()).at(0.1).unwrap();
        let (first, second) = (lpt_factors(&growth, LptOrder::First), lpt_factors(&growth, LptOrder::Second));
        assert_eq!((first.position[1], first.momentum[1]), (0.0, 0.0));
        assert_eq!((first.position[0], first.momentum[0]), (second.position[0], second.momentum[0]));
    }
}
