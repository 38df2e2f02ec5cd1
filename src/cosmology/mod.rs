//! Cosmology on the host: background, growth, linear power, initial amplitudes, time integration,
//! and the mass function of halos.
//!
//! Everything here is pure `f64` arithmetic: no device, no communication, no files. The device
//! layers take from it small tables and lists of factors ([`mode_amplitudes`], [`LptFactors`],
//! [`schedule`]), so what a simulation computes can be tested without a GPU.
//!
//! # Units and conventions
//! - The universe is flat, of matter and dark energy (a cosmological constant, or w0 and wa), with
//!   radiation in the expansion where asked for.
//! - Lengths are comoving Mpc/h, wavenumbers h/Mpc, times 1/H0, power spectra (Mpc/h)^3, masses
//!   Msun/h. `E(a) = H(a)/H0`.
//! - A prime is a derivative with respect to ln a.
//! - The momentum of a particle is `p = a^2 dx/dt = a^2 E dx/dln a`, in H0 Mpc/h; hence `dx/da = p
//!   / (a^3 E)` and `dp/da = acc / (a^2 E)` with `acc = -grad phi`, `laplacian phi = 3/2 Omega_m
//!   delta`.
//! - Growth is normalized to the matter era: D1 -> a and D2 -> 3/7 a^2 for a -> 0 (D2 counts
//!   positive); with radiation see [`Growth`].
//! - "D = 1 field" means the linear density contrast divided by D1(a): the same field at every
//!   epoch.
//! - Scale factors are accepted in [[`A_MIN`], 1]; anything else is a [`CosmologyError`].
//!
//! # Sources
//! | what | where from |
//! |---|---|
//! | E(a), Omega_m(a), growth equation of D1 | Peebles (1980), *Large-Scale Structure*, sections 10-13 |
//! | D2, D3 and starts of second and third order | Bouchet et al. (1995), A&A 296, 575; Scoccimarro (1998), MNRAS 299, 1097; Michaux et al. (2021), MNRAS 500, 663 |
//! | w(a) = w0 + wa (1 - a) | Chevallier & Polarski (2001), IJMPD 10, 213; Linder (2003), PRL 90, 091301 |
//! | growth with radiation | Meszaros (1974), A&A 37, 225 |
//! | transfer functions | Eisenstein & Hu (1998), ApJ 496, 605, equations 2-24 (full) and 28-31 (no-wiggle) |
//! | primordial amplitude to P(k) | Bardeen curvature `R -> 2/5 R` in the matter era and Poisson's equation |
//! | kick and drift that follow linear growth | Feng, Chu, Seljak & McDonald (2016), MNRAS 463, 2273 (FastPM) |
//! | steps that follow second-order growth | Rampf, List & Hahn (2025), JCAP 02, 020 (BullFrog) |
//! | multiplicity of halos | Press & Schechter (1974), ApJ 187, 425; Sheth & Tormen (1999), MNRAS 308, 119; Tinker et al. (2008), ApJ 688, 709; Watson et al. (2013), MNRAS 433, 1230 |
//! | nonlinear power | Smith et al. (2003), MNRAS 341, 1311; Takahashi et al. (2012), ApJ 761, 152 (halofit) |
//! | overdensity of virialized halos | Bryan & Norman (1998), ApJ 495, 80 |
//! | counter-based random numbers | Salmon, Moraes, Dror & Shaw (2011), SC'11 (Philox4x32-10) |
//!
//! # Example
//! From parameters to the operations of a run:
//! ```
//! use meshloom::cosmology::{Cosmology, LinearPower, StepOp, Scheme, TransferKind, mode_amplitudes, schedule};
//!
//! let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
//! let amplitudes = mode_amplitudes(&power, 64, 128.0)?; // sqrt(P N/V) over m^2, for 64^3 particles in 128 Mpc/h
//! assert_eq!(amplitudes.len(), 3 * 32 * 32 + 1);
//!
//! let ops = schedule(power.growth(), Scheme::FastPm, 0.0625, 1.0, 10, &[])?;
//! assert_eq!(ops.iter().filter(|op| matches!(op, StepOp::Force)).count(), 11); // one per step, and one at the start
//! # Ok::<(), meshloom::cosmology::CosmologyError>(())
//! ```

mod background;
mod error;
mod growth;
mod halofit;
mod lpt;
mod mass_function;
mod overdensity;
mod parameters;
mod power;
mod power_table;
mod quadrature;
mod schedule;
mod transfer;
mod variance;

pub use background::{CRITICAL_DENSITY, expansion_rate, peculiar_velocity};
pub use error::CosmologyError;
pub use growth::{A_MIN, Growth, GrowthFactors};
pub use halofit::{Halofit, NonlinearScale};
pub use lpt::{LptFactors, LptOrder, lpt_factors};
pub use mass_function::{DELTA_C, MassBin, MassBins, Multiplicity};
pub use overdensity::Overdensity;
pub use parameters::{Amplitude, Cosmology, Parameters};
pub use power::{HUBBLE_DISTANCE, LinearPower, MAX_PARTICLES_PER_AXIS, mode_amplitudes};
pub use power_table::PowerTable;
pub(crate) use schedule::last_step;
pub use schedule::{
    DriftKickDrift, KickDriftKick, MAX_STEPS, Scheme, StepOp, bullfrog_coefficients, fastpm_factors, resume_from,
    schedule,
};
pub use transfer::{TransferFunction, TransferKind};
pub use variance::MassVariance;
