//! Transfer functions of Eisenstein & Hu (1998), ApJ 496, 605.

use super::error::given;
use super::{Cosmology, CosmologyError};

/// Which transfer function to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransferKind {
    /// With baryon acoustic oscillations: equations 2-24 of the paper.
    #[default]
    Full,
    /// The smooth shape through the oscillations: equations 28-31, with the full sound horizon
    /// (equation 6) in place of its fit (equation 26).
    NoWiggle,
}

/// The transfer function T(k): the growth of a mode over that of one outside the horizon in the
/// radiation era.
///
/// T(0) = 1. `omega_b = 0` is allowed; the sound horizon, which does not matter then, takes its
/// limit.
#[derive(Debug, Clone)]
pub struct TransferFunction {
    h: f64,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Full(Full),
    NoWiggle { k_eq: f64, sound_horizon: f64, alpha: f64 },
}

// Wavenumbers and lengths of the fits are in 1/Mpc and Mpc, without h. Names follow the paper's
// symbols.

#[derive(Debug, Clone)]
struct Full {
    baryon_fraction: f64,
    k_eq: f64,
    sound_horizon: f64,
    k_silk: f64,
    alpha_c: f64,
    beta_c: f64,
    alpha_b: f64,
    beta_b: f64,
    beta_node: f64,
}

/// Matter-radiation equality, drag epoch and sound horizon: equations 2-6.
struct Epochs {
    z_eq: f64,
    k_eq: f64,
    z_d: f64,
    /// Ratio of the momentum densities of baryons and photons at the drag epoch.
    r_d: f64,
    sound_horizon: f64,
}

impl Epochs {
    /// `wm` and `wb` are the densities of matter and baryons, Omega h^2.
    fn new(wm: f64, wb: f64, theta: f64) -> Self {
        let z_eq = 2.5e4 * wm / theta.powi(4);
        let k_eq = 0.0746 * wm / theta.powi(2);
        let b1 = 0.313 * wm.powf(-0.419) * (1.0 + 0.607 * wm.powf(0.674));
        let b2 = 0.238 * wm.powf(0.223);
        let z_d = 1291.0 * wm.powf(0.251) / (1.0 + 0.659 * wm.powf(0.828)) * (1.0 + b1 * wb.powf(b2));
        let ratio = |z: f64| 31.5 * wb / theta.powi(4) * (1000.0 / z);
        let (r_d, r_eq) = (ratio(z_d), ratio(z_eq));
        // The logarithm over sqrt(R_eq), in a form without cancellation for few baryons; without
        // baryons, its limit.
        let root = r_eq.sqrt();
        let log_over_root = if root > 0.0 {
            let excess = r_d / (1.0 + (1.0 + r_d).sqrt()) + (r_d + r_eq).sqrt() - root;
            (excess / (1.0 + root)).ln_1p() / root
        } else {
            (1.0 + z_eq / z_d).sqrt() - 1.0
        };
        let sound_horizon = 2.0 / (3.0 * k_eq) * 6.0_f64.sqrt() * log_over_root;
        Self { z_eq, k_eq, z_d, r_d, sound_horizon }
    }
}

impl TransferFunction {
    /// Prepares the transfer function of `cosmology`.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] if the no-wiggle fit has no meaning there, which happens for
    /// nearly baryonic matter of very low density only.
    pub fn new(cosmology: &Cosmology, kind: TransferKind) -> Result<Self, CosmologyError> {
        let h = cosmology.h();
        let wm = cosmology.omega_m() * h * h;
        let wb = cosmology.omega_b() * h * h;
        let fb = cosmology.omega_b() / cosmology.omega_m();
        let epochs = Epochs::new(wm, wb, cosmology.t_cmb() / 2.7);
        let shape = match kind {
            TransferKind::Full => Shape::Full(Full::new(wm, wb, fb, &epochs)),
            TransferKind::NoWiggle => {
                let alpha = 1.0 - 0.328 * (431.0 * wm).ln() * fb + 0.38 * (22.3 * wm).ln() * fb * fb;
                given("Omega_b", cosmology.omega_b()).require(
                    alpha > 0.0,
                    "a smaller part of Omega_m for the no-wiggle transfer function",
                    "use the full transfer function or fewer baryons",
                )?;
                Shape::NoWiggle { k_eq: epochs.k_eq, sound_horizon: epochs.sound_horizon, alpha }
            }
        };
        Ok(Self { h, shape })
    }

    /// T at wavenumber `k` >= 0 in h/Mpc.
    #[must_use]
    pub fn at(&self, k: f64) -> f64 {
        let k = k * self.h;
        match &self.shape {
            Shape::Full(full) => full.at(k),
            &Shape::NoWiggle { k_eq, sound_horizon, alpha } => {
                let slow = (0.43 * k * sound_horizon).powi(4);
                let gamma = alpha + (1.0 - alpha) / (1.0 + slow);
                let q = k / (13.41 * k_eq * gamma);
                let l0 = (2.0 * std::f64::consts::E + 1.8 * q).ln();
                let c0 = 14.2 + 731.0 / (1.0 + 62.5 * q);
                l0 / (l0 + c0 * q * q)
            }
        }
    }
}

impl Full {
    /// Equations 9-24; `fb` is the baryons' share of matter.
    fn new(wm: f64, wb: f64, fb: f64, epochs: &Epochs) -> Self {
        let Epochs { z_eq, k_eq, z_d, r_d, sound_horizon } = *epochs;
        let fc = 1.0 - fb;
        let a1 = (46.9 * wm).powf(0.670) * (1.0 + (32.1 * wm).powf(-0.532));
        let a2 = (12.0 * wm).powf(0.424) * (1.0 + (45.0 * wm).powf(-0.582));
        let cold1 = 0.944 / (1.0 + (458.0 * wm).powf(-0.708));
        let cold2 = (0.395 * wm).powf(-0.0266);
        let y = (1.0 + z_eq) / (1.0 + z_d);
        let y1 = (1.0 + y).sqrt();
        let g = y * (-6.0 * y1 + (2.0 + 3.0 * y) * ((y1 + 1.0) / (y1 - 1.0)).ln());
        Full {
            baryon_fraction: fb,
            k_eq,
            sound_horizon,
            k_silk: 1.6 * wb.powf(0.52) * wm.powf(0.73) * (1.0 + (10.4 * wm).powf(-0.95)),
            alpha_c: a1.powf(-fb) * a2.powf(-fb.powi(3)),
            beta_c: 1.0 / (1.0 + cold1 * (fc.powf(cold2) - 1.0)),
            alpha_b: 2.07 * k_eq * sound_horizon * (1.0 + r_d).powf(-0.75) * g,
            beta_b: 0.5 + fb + (3.0 - 2.0 * fb) * ((17.2 * wm).powi(2) + 1.0).sqrt(),
            beta_node: 8.41 * wm.powf(0.435),
        }
    }

    fn at(&self, k: f64) -> f64 {
        let cold_part = 1.0 - self.baryon_fraction;
        let q = k / (13.41 * self.k_eq);
        let ks = k * self.sound_horizon;
        let f = 1.0 / (1.0 + (ks / 5.4).powi(4));
        let cold = f * pressureless(q, 1.0, self.beta_c) + (1.0 - f) * pressureless(q, self.alpha_c, self.beta_c);
        if self.baryon_fraction == 0.0 {
            return cold; // Silk damping at k_silk = 0 would be 0/0.
        }
        // Equations 21-22: the effective sound horizon shrinks at small k. At k = 0 the divisions
        // by ks = 0 give 0 in the end.
        let shrunk = ks / (1.0 + (self.beta_node / ks).powi(3)).cbrt();
        let oscillation = if shrunk > 0.0 { shrunk.sin() / shrunk } else { 1.0 };
        let infall = pressureless(q, 1.0, 1.0) / (1.0 + (ks / 5.2).powi(2));
        let acoustic = self.alpha_b / (1.0 + (self.beta_b / ks).powi(3)) * (-(k / self.k_silk).powf(1.4)).exp();
        self.baryon_fraction * (infall + acoustic) * oscillation + cold_part * cold
    }
}

/// Equations 19-20: the transfer function of matter without pressure.
fn pressureless(q: f64, alpha: f64, beta: f64) -> f64 {
    let l = (std::f64::consts::E + 1.8 * beta * q).ln();
    let c = 14.2 / alpha + 386.0 / (1.0 + 69.9 * q.powf(1.08));
    l / (l + c * q * q)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Parameters;

    #[test]
    fn large_scales_are_untouched() {
        for kind in [TransferKind::Full, TransferKind::NoWiggle] {
            let transfer = TransferFunction::new(&Cosmology::simple(), kind).unwrap();
            assert_eq!(transfer.at(0.0), 1.0);
            // The fits approach 1 as 1 - O(q): q is below 1e-6 here.
            assert!((transfer.at(1e-8) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn few_baryons_tend_to_none() {
        let with = |omega_b| {
            let cosmology = Cosmology::new(Parameters { omega_b, ..Default::default() }).unwrap();
            [TransferKind::Full, TransferKind::NoWiggle].map(|kind| TransferFunction::new(&cosmology, kind).unwrap())
        };
        for (none, few) in with(0.0).iter().zip(&with(1e-12)) {
            for k in [0.0, 1e-4, 0.01, 0.1, 1.0, 10.0] {
                assert!(none.at(k).is_finite());
                // Every term is linear in the baryon fraction, with coefficients of order 1 to 10.
                assert!((none.at(k) - few.at(k)).abs() < 1e-9, "{k}: {} {}", none.at(k), few.at(k));
            }
        }
    }

    #[test]
    fn fit_without_meaning_is_refused() {
        let sparse = Parameters { omega_m: 0.02, omega_b: 0.0199, ..Default::default() };
        assert!(TransferFunction::new(&Cosmology::new(sparse).unwrap(), TransferKind::NoWiggle).is_err());
    }
}
