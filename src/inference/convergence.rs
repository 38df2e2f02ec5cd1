//! How well the equations of samples are solved.

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::newton_cg::NewtonStop;

/// How the equations of one sample were solved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleOutcome {
    /// Steps of conjugate gradients for the straight sample; 0 where an update did not draw it again.
    pub steps: u64,
    /// Error of the straight sample over its target ([`CgOutcome::error_ratio`](super::CgOutcome::error_ratio)), when it was drawn.
    pub error_ratio: f64,
    /// How Newton's method ended that bent the sample last; `None` for a straight sample.
    pub curve: Option<NewtonStop>,
}

/// How well the samples of an iteration are solved, over all groups. An updated sample keeps the error of its draw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Convergence {
    /// Steps of conjugate gradients of the sample that took the most; 0 in an update.
    pub steps: u64,
    /// Samples, both signs of each, whose conjugate gradients missed their target. They lie between prior and posterior:
    /// where noise is low their deviations are many times too large.
    pub unconverged: u64,
    /// The largest error of conjugate gradients over its target ([`CgOutcome::error_ratio`](super::CgOutcome::error_ratio)); 1 or less if all converged.
    pub error_ratio: f64,
    /// Bent samples for which Newton's method failed ([`NewtonStop::is_failure`]): they are no samples of the posterior.
    pub failed: u64,
    /// Bent samples for which Newton's method took all steps that it may: they are bent in part.
    pub limited: u64,
}

impl Convergence {
    /// Returns the counts over all groups, from the outcomes of each group's block. Collective over all groups.
    pub(super) fn over(groups: &SampleGroups, own: &[SampleOutcome]) -> Result<Self, InferenceError> {
        let all = gather(groups, own)?;
        Ok(all.into_iter().fold(Convergence::default(), Convergence::and))
    }

    /// Returns the counts with one more solution.
    #[must_use]
    pub(super) fn and(self, one: SampleOutcome) -> Self {
        Convergence {
            steps: self.steps.max(one.steps),
            unconverged: self.unconverged + u64::from(one.error_ratio > 1.0),
            error_ratio: self.error_ratio.max(one.error_ratio),
            failed: self.failed + u64::from(one.curve.is_some_and(NewtonStop::is_failure)),
            limited: self.limited + u64::from(one.curve == Some(NewtonStop::Iterations)),
        }
    }

    /// Returns a sentence for each reason not to rely on the samples. `samples` names them with their number; the
    /// remedies are for conjugate gradients and for Newton's method.
    pub fn doubts(&self, samples: &str, [linear, curve]: [&str; 2]) -> Vec<String> {
        let Convergence { steps, unconverged, error_ratio, failed, limited } = self;
        let mut doubts = Vec::new();
        if *unconverged > 0 {
            let after = if *steps > 0 { format!(" after {steps} steps") } else { String::new() };
            doubts.push(format!(
                "conjugate gradients have not converged{after} for {unconverged} of {samples}, whose deviations may be many times too large: \
                 their error is up to {error_ratio:.1e} times the target; {linear}"
            ));
        }
        if *failed > 0 {
            doubts.push(format!(
                "Newton's method found no descent for {failed} of {samples}, which are not samples of the posterior; {curve}"
            ));
        }
        if *limited > 0 {
            doubts.push(format!(
                "Newton's method reached its limit of steps for {limited} of {samples}, which are bent in part; {curve}"
            ));
        }
        doubts
    }
}

/// Ends of Newton's method, by their number in a state.
pub(super) const STOPS: [NewtonStop; 6] = [
    NewtonStop::Value,
    NewtonStop::Step,
    NewtonStop::Iterations,
    NewtonStop::Rounding,
    NewtonStop::NoDescent,
    NewtonStop::NotPositive,
];

/// Numbers of an outcome in a state.
pub(super) const OUTCOME: usize = 3;

impl SampleOutcome {
    /// Returns the numbers of an outcome. Whole numbers below 2^53 are exact.
    pub(super) fn numbers(&self) -> [f64; OUTCOME] {
        let curve = self.curve.and_then(|curve| STOPS.iter().position(|stop| *stop == curve));
        [self.steps as f64, self.error_ratio, curve.map_or(-1.0, |at| at as f64)]
    }

    /// Returns the outcome with these numbers; `None` if there is none.
    pub(super) fn of_numbers(&[steps, error_ratio, curve]: &[f64; OUTCOME]) -> Option<Self> {
        let is_whole = |number: f64| number.fract() == 0.0 && (0.0..2f64.powi(53)).contains(&number);
        let curve = match curve {
            -1.0 => None,
            at if is_whole(at) => Some(*STOPS.get(at as usize)?),
            _ => return None,
        };
        (is_whole(steps) && error_ratio >= 0.0).then_some(SampleOutcome { steps: steps as u64, error_ratio, curve })
    }
}

/// Returns the outcomes of the samples of all groups, in their order. Collective over all groups.
pub(super) fn gather(groups: &SampleGroups, own: &[SampleOutcome]) -> Result<Vec<SampleOutcome>, InferenceError> {
    let numbers: Vec<f64> = own.iter().flat_map(SampleOutcome::numbers).collect();
    let all = groups.gather(&numbers)?;
    let (all, _) = all.as_chunks::<OUTCOME>();
    Ok(all.iter().filter_map(SampleOutcome::of_numbers).collect())
}
