//! Time integration: the sequence of forces, kicks and drifts of a run, with their factors.

use super::error::given;
use super::{A_MIN, CosmologyError, Growth, GrowthFactors};

/// Splitting of a step into kicks and drifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// Kick, drift, kick with factors that follow linear growth (Feng et al. 2016), about the
    /// arithmetic midpoint in a.
    #[default]
    FastPm,
    /// Drift, kick, drift with factors that follow second-order growth (Rampf, List & Hahn 2025).
    BullFrog,
}

/// One operation on positions x, momenta p and accelerations acc of all particles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepOp {
    /// `acc = -grad phi` at the particles, where laplacian phi = 3/2 Omega_m delta (Omega_m of
    /// today).
    Force,
    /// `p = keep * p + factor * acc`.
    Kick {
        /// Factor of the momentum (1 unless the scheme damps it).
        keep: f64,
        /// Factor of the acceleration, in 1/H0.
        factor: f64,
    },
    /// `x = x + factor * p`.
    Drift {
        /// Factor of the momentum, in 1/H0.
        factor: f64,
    },
    /// Positions and momenta are those of this epoch: a snapshot may be written here, and a run
    /// resumed. Nothing is computed.
    Reached {
        /// The scale factor.
        a: f64,
        /// Number of completed steps: 0 at the start.
        step: usize,
    },
}

impl StepOp {
    /// Returns the scale factor that is [reached](Self::Reached); `None` for other operations.
    #[must_use]
    pub fn epoch(&self) -> Option<f64> {
        if let StepOp::Reached { a, .. } = self { Some(*a) } else { None }
    }
}

/// Returns the last step of a schedule.
pub(crate) fn last_step(ops: &[StepOp]) -> usize {
    if let Some(StepOp::Reached { step, .. }) = ops.last() { *step } else { 0 }
}

/// Factors of one step that kicks, drifts and kicks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KickDriftKick {
    /// Factor of the acceleration at the beginning.
    pub opening_kick: f64,
    /// Factor of the momentum.
    pub drift: f64,
    /// Factor of the acceleration at the end.
    pub closing_kick: f64,
}

/// Coefficients of one step that drifts, kicks and drifts, in terms of v = dx/dD1: `x += half_drift
/// v`, `v = alpha v + beta A(x)`, `x += half_drift v`, where A = acc / (3/2 Omega_m).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftKickDrift {
    /// Factor of v.
    pub alpha: f64,
    /// Factor of A(x).
    pub beta: f64,
    /// Half of the step in D1.
    pub half_drift: f64,
}

/// The most steps of a schedule.
pub const MAX_STEPS: usize = 1_000_000;

/// Scale factors with a smaller relative difference count as equal.
const SAME_EPOCH: f64 = 1e-12;

/// Plans a run from `a_start` to `a_end` in `steps` steps of equal size in a.
///
/// - It begins with [`StepOp::Reached`] at step 0, and every step ends with one.
/// - **Snapshots**: each of `snapshots` (in any order) is reached exactly, bit for bit, by some
///   [`StepOp::Reached`]. A snapshot within a step cuts that step in two, so it adds a step and a
///   force. A snapshot that differs from a step boundary by rounding only replaces it.
/// - A [`StepOp::Force`] comes only where positions have changed since the last one. The kick that
///   closes a FastPM step and the one that opens the next are not merged, so momenta at a boundary
///   belong to its epoch and do not depend on whether a snapshot is written there.
/// - Factors are computed in `f64` from the two ends of a step alone: the operations from step k on
///   are the same whether or not the run was interrupted there (see [`resume_from`]).
///
/// # Errors
/// [`CosmologyError::OutOfRange`] unless [`A_MIN`] <= a_start < a_end <= 1, 1 <= steps <=
/// [`MAX_STEPS`] and every snapshot lies in [a_start, a_end].
///
/// ```
/// use meshloom::cosmology::{Cosmology, Growth, StepOp, Scheme, schedule};
///
/// let growth = Growth::new(Cosmology::simple());
/// let ops = schedule(&growth, Scheme::BullFrog, 0.1, 1.0, 3, &[0.5])?;
/// let epochs: Vec<f64> = ops.iter().filter_map(StepOp::epoch).collect();
/// assert_eq!(epochs, [0.1, 0.4, 0.5, 0.7, 1.0]);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
pub fn schedule(
    growth: &Growth,
    scheme: Scheme,
    a_start: f64,
    a_end: f64,
    steps: usize,
    snapshots: &[f64],
) -> Result<Vec<StepOp>, CosmologyError> {
    let epochs = epochs(a_start, a_end, steps, snapshots)?;
    let mut ops = vec![StepOp::Reached { a: a_start, step: 0 }];
    let mut begin = growth.at(a_start)?;
    for (i, &a) in epochs.iter().enumerate().skip(1) {
        let end = growth.at(a)?;
        match scheme {
            Scheme::FastPm => {
                let step = fastpm_factors(growth, &begin, &end)?;
                if i == 1 {
                    ops.push(StepOp::Force);
                }
                ops.extend([
                    StepOp::Kick { keep: 1.0, factor: step.opening_kick },
                    StepOp::Drift { factor: step.drift },
                    StepOp::Force,
                    StepOp::Kick { keep: 1.0, factor: step.closing_kick },
                ]);
            }
            Scheme::BullFrog => {
                // p = G_D v, and A = acc / (3/2 Omega_m).
                let step = bullfrog_coefficients(&begin, &end);
                let keep = step.alpha * end.momentum() / begin.momentum();
                let factor = step.beta * end.momentum() / (1.5 * end.omega_m);
                ops.extend([
                    StepOp::Drift { factor: step.half_drift / begin.momentum() },
                    StepOp::Force,
                    StepOp::Kick { keep, factor },
                    StepOp::Drift { factor: step.half_drift / end.momentum() },
                ]);
            }
        }
        ops.push(StepOp::Reached { a, step: i });
        begin = end;
    }
    Ok(ops)
}

/// Returns the rest of a schedule from step `step` on, which begins with that step's
/// [`StepOp::Reached`].
///
/// A [`StepOp::Force`] is added where the first kick uses a force that was computed before the
/// interruption: at the positions that were stored, so a resumed run computes the same bits.
///
/// # Errors
/// [`CosmologyError::UnknownStep`] if the schedule has no such step.
///
/// ```
/// use meshloom::cosmology::{Cosmology, Growth, StepOp, Scheme, resume_from, schedule};
///
/// let growth = Growth::new(Cosmology::simple());
/// let ops = schedule(&growth, Scheme::FastPm, 0.1, 1.0, 3, &[])?;
/// let rest = resume_from(&ops, 2)?;
/// assert!(matches!(rest[0], StepOp::Reached { step: 2, .. }));
/// assert_eq!(rest[1], StepOp::Force);
/// assert_eq!(rest[2..], ops[ops.len() - 5..]);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
pub fn resume_from(ops: &[StepOp], step: usize) -> Result<Vec<StepOp>, CosmologyError> {
    let ends_step = |op: &StepOp| matches!(op, StepOp::Reached { step: reached, .. } if *reached == step);
    let Some(place) = ops.iter().position(ends_step) else {
        return Err(CosmologyError::UnknownStep { step, last: last_step(ops) });
    };
    let rest = &ops[place + 1..];
    let first = rest.iter().find(|op| matches!(op, StepOp::Kick { .. } | StepOp::Force));
    let force = matches!(first, Some(StepOp::Kick { .. })).then_some(StepOp::Force);
    Ok([ops[place]].into_iter().chain(force).chain(rest.iter().copied()).collect())
}

/// Factors of one FastPM step from `begin` to `end`, for which the step is exact for particles on
/// linear trajectories.
///
/// # Errors
/// Same as [`Growth::at`], which is called for the midpoint.
pub fn fastpm_factors(
    growth: &Growth,
    begin: &GrowthFactors,
    end: &GrowthFactors,
) -> Result<KickDriftKick, CosmologyError> {
    let middle = growth.at(0.5 * (begin.a + end.a))?;
    Ok(KickDriftKick {
        opening_kick: (middle.momentum() - begin.momentum()) / begin.acceleration(),
        drift: (end.d1 - begin.d1) / middle.momentum(),
        closing_kick: (end.momentum() - middle.momentum()) / end.acceleration(),
    })
}

/// Coefficients of one BullFrog step from `begin` to `end`.
///
/// The final momentum is exact to second order in Lagrangian perturbation theory. The position is
/// so where D2 is quadratic in D1 over the step: exactly with matter alone, and with an error of
/// 1.5 % of the second-order displacement in one step from the matter era to Omega_m = 0.3 (that of
/// the trapezoidal rule, which falls with the cube of the step).
#[must_use]
pub fn bullfrog_coefficients(begin: &GrowthFactors, end: &GrowthFactors) -> DriftKickDrift {
    let half_drift = 0.5 * (end.d1 - begin.d1);
    let middle = begin.d1 + half_drift;
    // D2 is negative in the paper.
    let slope = |g: &GrowthFactors| -g.d2_prime / g.d1_prime;
    let at_middle = (-begin.d2 + slope(begin) * half_drift) / middle - middle;
    let alpha = (slope(end) - at_middle) / (slope(begin) - at_middle);
    DriftKickDrift { alpha, beta: (1.0 - alpha) / middle, half_drift }
}

/// Returns the ascending scale factors of all step boundaries: those of equal steps, and the
/// snapshots.
fn epochs(a_start: f64, a_end: f64, steps: usize, snapshots: &[f64]) -> Result<Vec<f64>, CosmologyError> {
    given("a_start", a_start).require(
        (A_MIN..1.0).contains(&a_start),
        format!("in [{A_MIN}, 1)"),
        "give the scale factor of the initial conditions, before today",
    )?;
    given("a_end", a_end).require(
        a_end > a_start && a_end <= 1.0,
        format!("in (a_start = {a_start}, 1]"),
        "give a scale factor after the start, up to today (1)",
    )?;
    given("steps", steps as f64).within(1.0..=MAX_STEPS as f64, "give the number of time steps")?;
    for &a in snapshots {
        given("snapshots", a).require(
            (a_start..=a_end).contains(&a),
            format!("in [a_start = {a_start}, a_end = {a_end}]"),
            "leave this snapshot out, or let the run cover it",
        )?;
    }
    let boundary = |i: usize| a_start + (a_end - a_start) * (i as f64 / steps as f64);
    let is_snapshot = |a: f64| snapshots.iter().any(|s| (s - a).abs() <= SAME_EPOCH * a);
    let mut epochs: Vec<f64> = (1..steps).map(boundary).filter(|&a| !is_snapshot(a)).collect();
    epochs.extend_from_slice(snapshots);
    epochs.extend([a_start, a_end]);
    epochs.sort_by(f64::total_cmp);
    epochs.dedup();
    Ok(epochs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, Parameters};

    fn growth() -> Growth {
        Growth::new(Cosmology::simple())
    }

    fn reached(ops: &[StepOp]) -> Vec<(f64, usize)> {
        ops.iter()
            .filter_map(|op| if let StepOp::Reached { a, step } = op { Some((*a, *step)) } else { None })
            .collect()
    }

    #[test]
    fn forces_are_taken_once_for_each_set_of_positions() {
        for (scheme, forces) in [(Scheme::FastPm, 5), (Scheme::BullFrog, 4)] {
            let ops = schedule(&growth(), scheme, 0.1, 0.9, 4, &[]).unwrap();
            assert_eq!(ops.iter().filter(|op| **op == StepOp::Force).count(), forces);
            let (mut stale, mut known) = (true, false);
            for op in &ops {
                match op {
                    StepOp::Force => {
                        assert!(stale);
                        (stale, known) = (false, true);
                    }
                    StepOp::Drift { .. } => stale = true,
                    StepOp::Kick { .. } => assert!(known && !stale, "a kick needs the force of where particles are"),
                    StepOp::Reached { .. } => {}
                }
            }
        }
    }

    #[test]
    fn ends_and_snapshots_are_hit_exactly() {
        let (a_start, a_end) = (0.1, 1.0 / 3.0);
        let snapshots = [0.31, a_end, 0.15, a_start, 0.15];
        let ops = schedule(&growth(), Scheme::FastPm, a_start, a_end, 7, &snapshots).unwrap();
        let reached = reached(&ops);
        assert_eq!((reached[0].0, reached.last().unwrap().0), (a_start, a_end));
        assert_eq!(reached.len(), 8 + 2);
        assert!(reached.iter().enumerate().all(|(i, &(_, step))| i == step));
        assert!(reached.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for a in snapshots {
            assert!(reached.iter().any(|&(epoch, _)| epoch == a));
        }
    }

    #[test]
    fn a_snapshot_missed_by_rounding_replaces_its_boundary() {
        // 0.1 + 0.9 * (1/3) and 0.1 + 0.9 * (2/3) are not the decimals 0.4 and 0.7 in every last
        // bit.
        let ops = schedule(&growth(), Scheme::FastPm, 0.1, 1.0, 3, &[0.4, 0.7, 1.0]).unwrap();
        assert_eq!(reached(&ops), [(0.1, 0), (0.4, 1), (0.7, 2), (1.0, 3)]);
    }

    #[test]
    fn resuming_leaves_the_rest_unchanged() {
        for scheme in [Scheme::FastPm, Scheme::BullFrog] {
            let ops = schedule(&growth(), scheme, 0.1, 1.0, 5, &[0.33]).unwrap();
            for (_, step) in reached(&ops) {
                let rest = resume_from(&ops, step).unwrap();
                let place =
                    ops.iter().position(|op| matches!(op, StepOp::Reached { step: s, .. } if *s == step)).unwrap();
                let tail = &ops[place..];
                assert_eq!(rest[0], tail[0]);
                match rest.len() - tail.len() {
                    0 => assert_eq!(rest, tail),
                    1 => {
                        assert_eq!(rest[1], StepOp::Force);
                        assert_eq!(rest[2..], tail[1..]);
                        assert!(scheme == Scheme::FastPm && matches!(tail[1], StepOp::Kick { .. }));
                    }
                    _ => panic!("step {step}: {rest:?}"),
                }
            }
            assert_eq!(resume_from(&ops, 0).unwrap(), ops);
            assert_eq!(resume_from(&ops, 6).unwrap(), [StepOp::Reached { a: 1.0, step: 6 }]);
            assert_eq!(resume_from(&ops, 7), Err(CosmologyError::UnknownStep { step: 7, last: 6 }));
        }
    }

    #[test]
    fn bullfrog_starts_from_zero_as_the_paper_says() {
        // From D = 0 with matter alone, alpha = -5/7; a = 1e-6 is 0 up to terms of that order.
        let eds = Growth::new(Cosmology::new(Parameters { omega_m: 1.0, ..Default::default() }).unwrap());
        let step = bullfrog_coefficients(&eds.at(A_MIN).unwrap(), &eds.at(1.0).unwrap());
        assert!((step.alpha + 5.0 / 7.0).abs() < 1e-5);
        // With a cosmological constant the limit is 1 - 2 D2'/(D1 D1') of the end.
        let simple = growth();
        let end = simple.at(1.0).unwrap();
        let limit = 1.0 - 2.0 * end.d2_prime / (end.d1 * end.d1_prime);
        let step = bullfrog_coefficients(&simple.at(A_MIN).unwrap(), &end);
        assert!((step.alpha - limit).abs() < 1e-5);
        // Computed independently from a = 1e-5.
        let step = bullfrog_coefficients(&simple.at(1e-5).unwrap(), &end);
        assert!((step.alpha + 0.7540815526).abs() < 1e-10);
    }

    #[test]
    fn impossible_spans_are_refused() {
        let growth = growth();
        let plan = |a_start, a_end, steps, snapshots: &[f64]| match schedule(
            &growth,
            Scheme::FastPm,
            a_start,
            a_end,
            steps,
            snapshots,
        ) {
            Err(CosmologyError::OutOfRange { quantity, .. }) => quantity,
            other => panic!("{other:?}"),
        };
        for a in [0.0, -0.1, 1.0, 2.0, f64::NAN] {
            assert_eq!(plan(a, 1.0, 4, &[]), "a_start");
        }
        for a in [0.1, 0.05, 1.5, f64::NAN] {
            assert_eq!(plan(0.1, a, 4, &[]), "a_end");
        }
        assert_eq!(plan(0.1, 1.0, 0, &[]), "steps");
        assert_eq!(plan(0.1, 1.0, usize::MAX, &[]), "steps");
        for a in [0.05, 0.95, f64::NAN] {
            assert_eq!(plan(0.1, 0.9, 4, &[0.5, a]), "snapshots");
        }
    }
}
