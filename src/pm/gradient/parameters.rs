//! Dependence of a run's numbers on the cosmological parameters, on the host.

use std::f64::consts::PI;
use std::panic::resume_unwind;
use std::thread;
use std::time::Instant;

use crate::cosmology::{
    Amplitude, Cosmology, CosmologyError, Growth, LinearPower, LptFactors, Parameters, StepOp, TransferKind,
    lpt_factors, mode_amplitudes,
};
use crate::gpu::{Array, Recorder};
use crate::parallel;
use crate::pm::{Config, Result};

/// Derivatives by the parameters of a flat universe, at fixed white noise, units and schedule of
/// scale factors; where the power is tabulated, at fixed power today.
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
    /// By the dark energy's ratio of pressure to density today.
    pub w0: f64,
    /// By the evolution of this ratio, which is w0 + wa (1 - a).
    pub wa: f64,
}

/// Number of parameters.
pub const COUNT: usize = 7;

/// Index of the amplitude of the fluctuations among the parameters.
pub const AMPLITUDE: usize = 4;

impl From<[f64; COUNT]> for CosmologyGradient {
    fn from([omega_m, omega_b, h, n_s, primordial_amplitude, w0, wa]: [f64; COUNT]) -> Self {
        CosmologyGradient { omega_m, omega_b, h, n_s, primordial_amplitude, w0, wa }
    }
}

/// Returns the parameters of `cosmology`, in the order of [`CosmologyGradient`].
pub fn cosmology_values(cosmology: &Cosmology) -> [f64; COUNT] {
    let [w0, wa] = cosmology.dark_energy();
    let amplitude = cosmology.primordial_amplitude();
    [cosmology.omega_m(), cosmology.omega_b(), cosmology.h(), cosmology.n_s(), amplitude, w0, wa]
}

/// Returns the cosmology with other parameters, of which the amplitude is what `amplitude` says.
pub fn with_amplitude(
    cosmology: &Cosmology,
    values: [f64; COUNT],
    amplitude: fn(f64) -> Amplitude,
) -> Result<Cosmology, CosmologyError> {
    let [omega_m, omega_b, h, n_s, strength, w0, wa] = values;
    let amplitude = amplitude(strength);
    Cosmology::new(Parameters { amplitude, n_s, omega_m, omega_b, h, w0, wa, ..cosmology.parameters() })
}

/// Returns sigma_8, with the full transfer function.
pub fn sigma8_of(cosmology: &Cosmology) -> Result<f64, CosmologyError> {
    Ok(LinearPower::new(*cosmology, TransferKind::Full)?.sigma8())
}

/// Returns the derivatives of A_s by the parameters, of which the amplitude is sigma_8.
pub fn by_sigma8(cosmology: &Cosmology) -> Result<[f64; COUNT], CosmologyError> {
    // sigma_8 is the root of A_s times a function of the others.
    let unit = |cosmology: &Cosmology| Ok(vec![(sigma8_of(cosmology)? / cosmology.primordial_amplitude().sqrt()).ln()]);
    let (here, twice) = (unit(cosmology)?, 2.0 * cosmology.primordial_amplitude());
    let mut row = [0.0; COUNT];
    for (which, value) in row.iter_mut().enumerate() {
        *value = match which {
            AMPLITUDE => twice / sigma8_of(cosmology)?,
            _ => -twice * derivative(cosmology, which, &here, &unit)?[0],
        };
    }
    Ok(row)
}

/// Step of the differences, of a parameter.
const STEP: f64 = 1e-3;

/// Offsets in steps and weights of first derivatives of fourth order: in the middle, and on either
/// side of an end of the range (Fornberg 1988, table 3).
const STENCILS: [&[(f64, f64)]; 3] = [
    &[(-2.0, 1.0 / 12.0), (-1.0, -2.0 / 3.0), (1.0, 2.0 / 3.0), (2.0, -1.0 / 12.0)],
    &[(0.0, -25.0 / 12.0), (1.0, 4.0), (2.0, -3.0), (3.0, 4.0 / 3.0), (4.0, -0.25)],
    &[(0.0, 25.0 / 12.0), (-1.0, -4.0), (-2.0, 3.0), (-3.0, -4.0 / 3.0), (-4.0, 0.25)],
];

/// Returns the derivatives of `numbers`, which are `here` at this cosmology, by parameter `which`:
/// differences of fourth order in `f64`, whose relative error is some 1e-10 for functions as smooth
/// as these.
fn derivative(
    cosmology: &Cosmology,
    which: usize,
    here: &[f64],
    numbers: &(dyn Fn(&Cosmology) -> Result<Vec<f64>, CosmologyError> + Sync),
) -> Result<Vec<f64>, CosmologyError> {
    let own = cosmology_values(cosmology);
    // Without baryons the step is one of the matter.
    let step = STEP * if own[which] == 0.0 { cosmology.omega_m() } else { own[which] };
    let shifted = |offset: f64| {
        let mut values = own;
        values[which] += offset * step;
        with_amplitude(cosmology, values, Amplitude::Primordial)
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
        let values: Vec<_> = thread::scope(|scope| {
            let others = around.iter().map(|cosmology| scope.spawn(move || numbers(cosmology))).collect::<Vec<_>>();
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut sum: Vec<f64> = Vec::new();
        for (values, (_, weight)) in values.into_iter().zip(stencil) {
            let values = values?;
            sum.resize(values.len(), 0.0);
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight / step * value);
        }
        // What does not depend on the parameter has rounding as its difference.
        let value = own[which].abs().max(step);
        for (sum, number) in sum.iter_mut().zip(here) {
            if (*sum * value).abs() < 1e-9 * number.abs() {
                *sum = 0.0;
            }
        }
        return Ok(sum);
    }
    // Ranges are wider than four steps; an error of the parameters themselves comes here.
    refused.map_or(Ok(Vec::new()), Err)
}

/// Returns the operations of a run and the factors of its start in a universe that may be another
/// than that of `config`: the force is computed with the matter density of `config`, and its kicks
/// are as much stronger as there is more matter.
fn run_of(config: &Config, growth: &Growth) -> Result<(Vec<StepOp>, LptFactors), CosmologyError> {
    let mut ops = config.schedule_by(growth)?;
    let stronger = growth.cosmology().omega_m() / config.cosmology.omega_m();
    for op in &mut ops {
        if let StepOp::Kick { factor, .. } = op {
            *factor *= stronger;
        }
    }
    Ok((ops, lpt_factors(&growth.at(config.a_start)?, config.lpt)))
}

/// Returns the numbers of a run that depend on the parameters: two of a kick (what it keeps, and
/// its factor), one of a drift, in the order of the schedule; then the factors of the start: of
/// positions and momenta, of all displacements.
fn numbers(config: &Config, cosmology: &Cosmology) -> Result<Vec<f64>, CosmologyError> {
    let (ops, start) = run_of(config, &Growth::new(*cosmology))?;
    let mut all: Vec<f64> = ops.iter().flat_map(of_operation).collect();
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

/// Layout of the numbers of a run.
pub struct Layout {
    /// The first number of each operation.
    pub operations: Vec<usize>,
    /// The first of the start.
    pub start: usize,
}

impl Layout {
    pub fn new(ops: &[StepOp]) -> Self {
        let (mut operations, mut start) = (Vec::new(), 0);
        for op in ops {
            operations.push(start);
            start += of_operation(op).len();
        }
        Layout { operations, start }
    }

    /// Returns the numbers of the factors of displacement `number` in positions and momenta.
    pub fn start_numbers(&self, number: usize) -> [usize; 2] {
        [self.start + number, self.start + LptFactors::COUNT + number]
    }

    /// Returns how many numbers there are.
    pub fn len(&self) -> usize {
        self.start + 2 * LptFactors::COUNT
    }
}

/// Numbers of a run that follow from the cosmological parameters.
pub struct Numbers {
    /// Its operations.
    pub ops: Vec<StepOp>,
    /// Layout of the numbers.
    pub layout: Layout,
    /// The factors of the start.
    pub start: LptFactors,
    /// The amplitudes of the modes, on the device.
    pub amplitudes: Array<f32>,
    /// The amplitudes on the host.
    table: Vec<f32>,
    power: LinearPower,
}

impl Numbers {
    /// Computes the numbers of `config` in a universe of `cosmology`.
    pub fn new(recorder: &mut Recorder, config: &Config, cosmology: Cosmology) -> Result<Self> {
        let began = Instant::now();
        let power = config.linear_power(cosmology)?;
        let (ops, start) = run_of(config, power.growth())?;
        let table = mode_amplitudes(&power, config.particles as usize, config.box_size)?;
        tracing::debug!(seconds = began.elapsed().as_secs_f64(), "numbers of a run by parameters");
        let amplitudes = recorder.uploaded("pm::amplitudes", &table)?;
        Ok(Numbers { layout: Layout::new(&ops), ops, start, amplitudes, table, power })
    }

    /// Returns the cosmology.
    pub fn cosmology(&self) -> &Cosmology {
        self.power.cosmology()
    }
}

/// Derivatives of [`Numbers`] with respect to the parameters.
pub struct Derivatives {
    /// The derivatives of all numbers by all parameters: one row for a number.
    pub numbers: Vec<[f64; COUNT]>,
    /// Derivatives of the amplitudes with respect to each parameter; empty if parameters are
    /// constants.
    tables: Vec<Vec<f32>>,
    /// Derivatives on the device.
    pub amplitudes: Vec<Array<f32>>,
}

impl Derivatives {
    /// Computes the derivatives of the numbers of `config`.
    pub fn new(recorder: &mut Recorder, config: &Config, numbers: &Numbers) -> Result<Self> {
        let began = Instant::now();
        let tables = amplitude_derivatives(config, &numbers.power, &numbers.table)?;
        let rows = jacobian(config, numbers.power.cosmology())?;
        tracing::debug!(seconds = began.elapsed().as_secs_f64(), "derivatives of these numbers");
        let amplitudes = tables.iter().map(|table| recorder.uploaded("pm::amplitudes", table));
        let amplitudes = amplitudes.collect::<Result<_, _>>()?;
        Ok(Derivatives { numbers: rows, tables, amplitudes })
    }

    /// Returns the derivatives of `numbers` numbers with respect to constant parameters.
    pub fn none(numbers: usize) -> Self {
        Derivatives { numbers: vec![[0.0; COUNT]; numbers], tables: Vec::new(), amplitudes: Vec::new() }
    }

    /// By how much each number changes where the parameters change by `by`.
    pub fn along(&self, by: &[f64; COUNT]) -> Vec<f64> {
        self.numbers.iter().map(|row| row.iter().zip(by).map(|(row, by)| row * by).sum()).collect()
    }

    /// By how much the amplitudes change.
    pub fn amplitudes_along(&self, by: &[f64; COUNT]) -> Vec<f32> {
        let len = self.tables.first().map_or(0, Vec::len);
        let sum = |m2: usize| self.tables.iter().zip(by).map(|(table, by)| f64::from(table[m2]) * by).sum::<f64>();
        (0..len).map(|m2| sum(m2) as f32).collect()
    }
}

/// Returns the derivatives of all numbers by all parameters.
fn jacobian(config: &Config, cosmology: &Cosmology) -> Result<Vec<[f64; COUNT]>, CosmologyError> {
    let here = numbers(config, cosmology)?;
    let columns: Vec<Vec<f64>> = (0..COUNT)
        .map(|which| derivative(cosmology, which, &here, &|cosmology| numbers(config, cosmology)))
        .collect::<Result<_, _>>()?;
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    Ok((0..rows).map(|row| std::array::from_fn(|which| columns[which][row])).collect())
}

/// Wavenumbers per unit of ln k between which derivatives of amplitudes are interpolated. An
/// acoustic oscillation has 15 of them or more up to 1 h/Mpc; behind, where they are not resolved,
/// oscillations change a derivative by 4e-6 of the amplitude over the parameter at most.
const KNOTS: f64 = 220.0;

/// Returns the derivatives of the amplitudes `table` by all parameters. Their logarithms have
/// derivatives that are smooth in ln k: these are computed at some wavenumbers and interpolated
/// where there are more modes.
fn amplitude_derivatives(config: &Config, power: &LinearPower, table: &[f32]) -> Result<Vec<Vec<f32>>, CosmologyError> {
    let (fundamental, last) = (2.0 * PI / config.box_size, table.len() - 1);
    let knots = (0.5 * (last.max(1) as f64).ln() * KNOTS).ceil() as usize + 1;
    let few = last <= 2 * knots;
    let waves: Vec<f64> = match few {
        true => (1..=last).map(|m2| fundamental * (m2 as f64).sqrt()).collect(),
        false => (0..knots).map(|i| fundamental * (i as f64 / KNOTS).exp()).collect(),
    };
    // An amplitude is a root: its logarithm changes half as much as that of the power.
    let logarithms = |cosmology: &Cosmology| {
        let power = config.linear_power(*cosmology)?;
        Ok(waves.iter().map(|&k| 0.5 * power.unit(k).ln()).collect::<Vec<f64>>())
    };
    let ones = vec![1.0; waves.len()];
    let column = |which: usize| match which {
        3 | AMPLITUDE => Ok(waves.iter().map(|&k| 0.5 * power.primordial_derivatives(k)[which - 3]).collect()),
        _ => derivative(power.cosmology(), which, &ones, &logarithms),
    };
    let columns: Vec<Vec<f64>> = (0..COUNT).map(column).collect::<Result<_, _>>()?;
    let at = |column: &[f64], m2: usize| match few {
        true => column[m2 - 1],
        false => interpolated(column, 0.5 * (m2 as f64).ln() * KNOTS),
    };
    let of = |column: &Vec<f64>| {
        let values = parallel::map(last, 1 << 12, |i| f64::from(table[i + 1]) * at(column, i + 1));
        std::iter::once(0.0).chain(values.into_iter().map(|value| value as f32)).collect()
    };
    Ok(columns.iter().map(of).collect())
}

/// Returns the value between equidistant values, by the polynomial of fifth degree through the six
/// around it (Lagrange).
fn interpolated(values: &[f64], at: f64) -> f64 {
    const SCALES: [f64; 6] = [-1.0 / 120.0, 1.0 / 24.0, -1.0 / 12.0, 1.0 / 12.0, -1.0 / 24.0, 1.0 / 120.0];
    let first = (at as usize).saturating_sub(2).min(values.len() - SCALES.len());
    let distances: [f64; 6] = std::array::from_fn(|i| at - (first + i) as f64);
    let weight = |i: usize| (0..6).filter(|&j| j != i).fold(SCALES[i], |weight, j| weight * distances[j]);
    (0..6).map(|i| weight(i) * values[first + i]).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cosmology::{PowerTable, Scheme, TransferKind, schedule};

    #[test]
    fn derivatives_of_amplitudes_are_their_differences() {
        let rows = (0..40).map(|n| 1e-4 * 1.3f64.powi(n)).map(|k| format!("{k} {}\n", 1e4 / (1.0 + k * k)));
        let table = PowerTable::parse(&rows.collect::<String>()).unwrap();
        for power_table in [None, Some(Arc::new(table))] {
            let config = Config { particles: 6, box_size: 40.0, power_table, ..Config::default() };
            let power = config.linear_power(config.cosmology).unwrap();
            let table = mode_amplitudes(&power, 6, 40.0).unwrap();
            let rows = amplitude_derivatives(&config, &power, &table).unwrap();
            let own = cosmology_values(&config.cosmology);
            // Dark energy that does not evolve has no value to compare with.
            let unit = |value: f64| if value == 0.0 { 1.0 } else { value };
            let at = |which: usize, offset: f64| {
                let mut values = own;
                values[which] += offset * unit(own[which]);
                let power = config
                    .linear_power(with_amplitude(&config.cosmology, values, Amplitude::Primordial).unwrap())
                    .unwrap();
                crate::cosmology::mode_amplitudes(&power, 6, 40.0).unwrap()
            };
            for (which, row) in rows.iter().enumerate() {
                let (above, below) = (at(which, 0.01), at(which, -0.01));
                assert_eq!(row.len(), above.len());
                for (m2, value) in row.iter().enumerate() {
                    // The square of the step, and amplitudes of f32.
                    let wanted = f64::from(above[m2] - below[m2]) / (0.02 * unit(own[which]));
                    let most = 3e-4 * wanted.abs() + 3e-5 * f64::from(above[m2]) / unit(own[which]).abs();
                    assert!((f64::from(*value) - wanted).abs() <= most, "{which}, {m2}: {value}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn derivatives_between_knots_are_those_of_their_modes() {
        // Boxes in which acoustic oscillations are at the first modes, in the middle, and at the
        // last.
        for box_size in [100.0, 1000.0, 10_000.0] {
            let config = Config { particles: 128, box_size, ..Config::default() };
            let power = config.linear_power(config.cosmology).unwrap();
            let table = mode_amplitudes(&power, 128, box_size).unwrap();
            let rows = amplitude_derivatives(&config, &power, &table).unwrap();
            let own = cosmology_values(&config.cosmology);
            let wave = |m2: usize| 2.0 * PI / box_size * (m2 as f64).sqrt();
            for m2 in (1..table.len()).step_by(101) {
                for (which, row) in rows.iter().enumerate() {
                    let exact = match which {
                        3 | 4 => 0.5 * power.primordial_derivatives(wave(m2))[which - 3],
                        _ => {
                            let logarithm = |cosmology: &Cosmology| {
                                Ok(vec![0.5 * config.linear_power(*cosmology)?.unit(wave(m2)).ln()])
                            };
                            derivative(&config.cosmology, which, &[1.0], &logarithm).unwrap()[0]
                        }
                    };
                    // Relative changes of amplitudes and parameters; both are of order 1.
                    let found = f64::from(row[m2]) / f64::from(table[m2]);
                    assert!((found - exact).abs() * own[which].abs() < 4e-6, "{which}, {m2}: {found}, not {exact}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_kicks_follow_from_growth() {
        for scheme in [Scheme::FastPm, Scheme::BullFrog] {
            // Without a cosmological constant growth is that of Einstein and de Sitter, where the
            // density's derivative is one-sided.
            let cosmology =
                with_amplitude(&Cosmology::simple(), [1.0, 0.0, 0.7, 0.96, 2e-9, -1.0, 0.0], Amplitude::Primordial)
                    .unwrap();
            let config = Config { cosmology, scheme, steps: 3, ..Config::default() };
            let rows = jacobian(&config, &cosmology).unwrap();
            let power = LinearPower::new(cosmology, TransferKind::Full).unwrap();
            let ops = schedule(power.growth(), scheme, config.a_start, config.a_end, 3, &[]).unwrap();
            assert_eq!(rows.len(), Layout::new(&ops).len());
            assert!(rows.iter().all(|row| row.iter().all(|value| value.is_finite())));
            // Only the density moves particles, without dark energy; a symmetric scheme keeps
            // momenta with the factor 1.
            assert!(rows.iter().all(|row| row[1..].iter().all(|value| value.abs() < 1e-9)), "{rows:?}");
            assert!(rows.iter().any(|row| row[0].abs() > 1e-3));
        }
    }

    #[test]
    fn amplitudes_at_fixed_sigma8_are_those_of_the_cosmology() {
        let cosmology = Cosmology::simple();
        let row = by_sigma8(&cosmology).unwrap();
        let mut own = cosmology_values(&cosmology);
        own[AMPLITUDE] = sigma8_of(&cosmology).unwrap();
        for (which, found) in row.into_iter().enumerate() {
            let at = |offset: f64| {
                let mut values = own;
                values[which] += offset;
                with_amplitude(&cosmology, values, Amplitude::Sigma8).unwrap().primordial_amplitude()
            };
            let wanted = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!((found - wanted).abs() < 1e-4 * wanted.abs() + 1e-15, "{which}: {found}, not {wanted}");
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
