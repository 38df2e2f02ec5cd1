//! How the numbers of a run depend on the cosmological parameters, on the host.

use std::f64::consts::PI;

use crate::cosmology::{Amplitude, Cosmology, CosmologyError, Growth, Parameters, StepOp, lpt_factors, schedule};
use crate::pm::Config;

/// Derivatives by the parameters of a flat universe, at fixed white noise, units and schedule of scale factors; where the power is tabulated,
/// at fixed power today.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CosmologyGradient {
    /// By the matter density today.
    pub omega_m: f64,
    /// By the baryon density today.
    pub omega_b: f64,
    /// By the Hubble constant in 100 km/s/Mpc.
    pub h: f64,
    /// By the spectral index.
    pub n_s: f64,
    /// By A_s, the amplitude of the primordial power.
    pub primordial_amplitude: f64,
}

/// Number of parameters.
pub const COUNT: usize = 5;

impl From<[f64; COUNT]> for CosmologyGradient {
    fn from([omega_m, omega_b, h, n_s, primordial_amplitude]: [f64; COUNT]) -> Self {
        CosmologyGradient { omega_m, omega_b, h, n_s, primordial_amplitude }
    }
}

/// The parameters of `cosmology`, in the order of [`CosmologyGradient`].
pub fn values(cosmology: &Cosmology) -> [f64; COUNT] {
    [cosmology.omega_m(), cosmology.omega_b(), cosmology.h(), cosmology.n_s(), cosmology.primordial_amplitude()]
}

/// The cosmology with other parameters.
fn with(cosmology: &Cosmology, values: [f64; COUNT]) -> Result<Cosmology, CosmologyError> {
    let [omega_m, omega_b, h, n_s, primordial_amplitude] = values;
    let amplitude = Amplitude::Primordial(primordial_amplitude);
    Cosmology::new(Parameters { amplitude, n_s, omega_m, omega_b, h, ..cosmology.parameters() })
}

/// Step of the differences, of a parameter.
const STEP: f64 = 1e-3;

/// Offsets in steps and weights of first derivatives of fourth order: in the middle, and on either side of an end of the range (Fornberg 1988,
/// table 3).
const STENCILS: [&[(f64, f64)]; 3] = [
    &[(-2.0, 1.0 / 12.0), (-1.0, -2.0 / 3.0), (1.0, 2.0 / 3.0), (2.0, -1.0 / 12.0)],
    &[(0.0, -25.0 / 12.0), (1.0, 4.0), (2.0, -3.0), (3.0, 4.0 / 3.0), (4.0, -0.25)],
    &[(0.0, 25.0 / 12.0), (-1.0, -4.0), (-2.0, 3.0), (-3.0, -4.0 / 3.0), (-4.0, 0.25)],
];

/// The derivatives of `numbers` by parameter `which`: differences of fourth order in `f64`, whose relative error is some 1e-10 for functions as
/// smooth as these.
fn derivative(
    cosmology: &Cosmology,
    which: usize,
    numbers: &dyn Fn(&Cosmology) -> Result<Vec<f64>, CosmologyError>,
) -> Result<Vec<f64>, CosmologyError> {
    let own = values(cosmology);
    // Without baryons the step is one of the matter.
    let step = STEP * if own[which] == 0.0 { cosmology.omega_m() } else { own[which] };
    let shifted = |offset: f64| {
        let mut values = own;
        values[which] += offset * step;
        with(cosmology, values)
    };
    let mut refused = None;
    for stencil in STENCILS {
        let found: Result<Vec<_>, _> = stencil.iter().map(|&(offset, _)| shifted(offset)).collect();
        let around = match found {
            Ok(around) => around,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        let mut sum: Vec<f64> = Vec::new();
        for (cosmology, (_, weight)) in around.iter().zip(stencil) {
            let values = numbers(cosmology)?;
            sum.resize(values.len(), 0.0);
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight / step * value);
        }
        // What does not depend on the parameter has rounding as its difference.
        let value = own[which].abs().max(step);
        for (sum, number) in sum.iter_mut().zip(numbers(cosmology)?) {
            if (*sum * value).abs() < 1e-9 * number.abs() {
                *sum = 0.0;
            }
        }
        return Ok(sum);
    }
    // Ranges are wider than four steps; an error of the parameters themselves comes here.
    refused.map_or(Ok(Vec::new()), Err)
}

/// The numbers of a run that depend on the parameters: two of a kick (what it keeps, and its factor), one of a drift, in the order of the
/// schedule; then the factors of the start: of positions and momenta, of first and second order.
fn numbers(config: &Config, cosmology: &Cosmology) -> Result<Vec<f64>, CosmologyError> {
    let growth = &Growth::new(*cosmology);
    let ops = schedule(growth, config.scheme, config.a_start, config.a_end, config.steps, &config.snapshots)?;
    let mut all: Vec<f64> = ops.iter().flat_map(of_operation).collect();
    let start = lpt_factors(&growth.at(config.a_start)?, config.lpt);
    all.extend(start.position.into_iter().chain(start.momentum));
    Ok(all)
}

fn of_operation(op: &StepOp) -> Vec<f64> {
    match *op {
        StepOp::Kick { keep, factor } => vec![keep, factor],
        StepOp::Drift { factor } => vec![factor],
        StepOp::Force | StepOp::Reached { .. } => Vec::new(),
    }
}

/// Where the numbers of a run begin among all.
pub struct Layout {
    /// The first number of each operation.
    pub operations: Vec<usize>,
    /// The first of the start.
    pub start: usize,
}

impl Layout {
    pub fn new(ops: &[StepOp]) -> Self {
        let mut next = 0;
        let operations = ops
            .iter()
            .map(|op| {
                let first = next;
                next += of_operation(op).len();
                first
            })
            .collect();
        Layout { operations, start: next }
    }
}

/// The derivatives of all numbers by all parameters: one row for a number.
pub fn jacobian(config: &Config) -> Result<Vec<[f64; COUNT]>, CosmologyError> {
    let columns: Vec<Vec<f64>> = (0..COUNT)
        .map(|which| derivative(&config.cosmology, which, &|cosmology| numbers(config, cosmology)))
        .collect::<Result<_, _>>()?;
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    Ok((0..rows).map(|row| [0, 1, 2, 3, 4].map(|which| columns[which][row])).collect())
}

/// The derivatives of [`mode_amplitudes`](crate::cosmology::mode_amplitudes) by all parameters.
pub fn amplitude_derivatives(config: &Config) -> Result<[Vec<f32>; COUNT], CosmologyError> {
    let n = config.particles as usize;
    let (density, fundamental) = ((n as f64 / config.box_size).powi(3), 2.0 * PI / config.box_size);
    let last = 3 * (n / 2) * (n / 2);
    let amplitudes = |cosmology: &Cosmology| {
        let power = config.linear_power(*cosmology)?;
        let wave = |m2: usize| fundamental * (m2 as f64).sqrt();
        Ok((0..=last).map(|m2| (power.unit(wave(m2)) * density).sqrt()).collect::<Vec<f64>>())
    };
    let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
    let mut all: [Vec<f32>; COUNT] = Default::default();
    for (which, found) in all.iter_mut().enumerate() {
        *found = narrow(derivative(&config.cosmology, which, &amplitudes)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{LinearPower, Scheme, TransferKind};

    #[test]
    fn amplitudes_grow_with_the_root_of_the_power() {
        let config = Config { particles: 6, box_size: 40.0, ..Config::default() };
        let all = amplitude_derivatives(&config).unwrap();
        let power = LinearPower::new(config.cosmology, TransferKind::Full).unwrap();
        let table = crate::cosmology::mode_amplitudes(&power, 6, 40.0).unwrap();
        for (m2, &amplitude) in table.iter().enumerate().skip(1) {
            let relative = |which: usize| f64::from(all[which][m2]) / f64::from(amplitude);
            let k = 2.0 * PI / 40.0 * (m2 as f64).sqrt();
            let pivot = 0.05 / config.cosmology.h();
            assert!((relative(4) * config.cosmology.primordial_amplitude() - 0.5).abs() < 1e-6);
            assert!((relative(3) - 0.5 * (k / pivot).ln()).abs() < 1e-6);
        }
    }

    #[test]
    fn numbers_of_kicks_follow_from_growth() {
        for scheme in [Scheme::FastPm, Scheme::BullFrog] {
            // Without a cosmological constant growth is that of Einstein and de Sitter, where the density's derivative is one-sided.
            let cosmology = with(&Cosmology::simple(), [1.0, 0.0, 0.7, 0.96, 2e-9]).unwrap();
            let config = Config { cosmology, scheme, steps: 3, ..Config::default() };
            let rows = jacobian(&config).unwrap();
            let power = LinearPower::new(cosmology, TransferKind::Full).unwrap();
            let ops = schedule(power.growth(), scheme, config.a_start, config.a_end, 3, &[]).unwrap();
            assert_eq!(rows.len(), Layout::new(&ops).start + 4);
            assert!(rows.iter().all(|row| row.iter().all(|value| value.is_finite())));
            // Only the density moves particles; what it keeps of momenta in a symmetric scheme is 1.
            assert!(rows.iter().all(|row| row[1..].iter().all(|value| value.abs() < 1e-9)), "{rows:?}");
            assert!(rows.iter().any(|row| row[0].abs() > 1e-3));
        }
    }

    #[test]
    fn differences_are_of_fourth_order() {
        for stencil in STENCILS {
            for power in 0..5 {
                let sum: f64 = stencil.iter().map(|&(offset, weight)| weight * offset.powi(power)).sum();
                assert!((sum - f64::from(power == 1)).abs() < 1e-12, "{stencil:?} {power}");
            }
        }
    }
}
