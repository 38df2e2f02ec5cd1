//! Reports of iterations and of the solutions of their samples.

use std::fmt;

use super::error::Result;
use super::groups::SampleGroups;
use super::newton_cg::NewtonStop;

/// The report of an iteration of a fit; its `Display` is one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IterationReport {
    /// Number of the iteration, from 0 on.
    pub iteration: u32,
    /// Number of samples, both signs of each pair.
    pub samples: usize,
    /// Convergence of the samples.
    pub sampling: Convergence,
    /// The energy, averaged over samples, up to constants. It is not a bound of `-ln p(data)`: the
    /// entropy of the samples is left out. Energies are comparable within an iteration, and between
    /// iterations only with the same samples.
    pub energy: f64,
    /// Newton steps of the position.
    pub steps: u64,
    /// Applications of the metric for these steps ([`Curvature`](super::Curvature)).
    pub applications: u64,
    /// The reason why the steps ended. The position is unreliable after a failure
    /// ([`NewtonStop::is_failure`]).
    pub stop: NewtonStop,
    /// Reduced chi-squared of the data with normalized residuals and of the latent values, averaged
    /// over samples. About 1 is expected, except for
    /// [`Likelihood::student_t`](super::Likelihood::student_t).
    pub chi_squared: [Option<f64>; 2],
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of groups without a sample.
    pub idle: usize,
}

impl fmt::Display for IterationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iteration {}: energy {:.6e}, {} samples", self.iteration, self.energy, self.samples)?;
        write!(f, ", {} steps, {} metrics", self.steps, self.applications)?;
        for (what, chi_squared) in ["data", "latent"].into_iter().zip(self.chi_squared) {
            if let Some(chi_squared) = chi_squared {
                write!(f, ", chi2/dof {what} {chi_squared:.3}")?;
            }
        }
        write!(f, ", {:.2} s", self.seconds)?;
        match self.stop {
            NewtonStop::NoDescent => write!(f, ", no step lowers the energy")?,
            NewtonStop::NotPositive => write!(f, ", the metric has no positive curvature")?,
            _ => (),
        }
        let Convergence { unconverged, error_ratio, failed, limited, .. } = self.sampling;
        if unconverged > 0 {
            write!(f, ", {unconverged} samples not converged (error up to {error_ratio:.1e} times the target)")?;
        }
        if failed > 0 {
            write!(f, ", {failed} samples without descent")?;
        }
        if limited > 0 {
            write!(f, ", {limited} samples curved in part (limit of steps)")?;
        }
        if self.idle > 0 { write!(f, ", {} groups idle", self.idle) } else { Ok(()) }
    }
}

impl IterationReport {
    /// Returns `true` if the position or the samples of this iteration are not solved.
    pub(super) fn is_doubtful(&self) -> bool {
        let Convergence { unconverged, failed, limited, .. } = self.sampling;
        unconverged + failed + limited > 0 || self.stop.is_failure()
    }

    /// Returns a sentence for each reason not to rely on a fit whose last iteration this is.
    ///
    /// `expected` is the range that the likelihood expects (`LogLikelihood::expected_chi_squared`).
    /// Without samples only its upper end counts, because the most probable place follows noise.
    /// [`Convergence::doubts`] covers the samples.
    #[must_use]
    pub fn doubts(&self, expected: Option<[f64; 2]>) -> Vec<String> {
        let mut doubts = Vec::new();
        let why = match self.stop {
            NewtonStop::NoDescent => Some("where no step lowers the energy, though the minimum is elsewhere"),
            NewtonStop::NotPositive => Some("where the metric has no positive curvature"),
            _ => None,
        };
        doubts.extend(why.map(|why| format!("the last iteration ended {why}: the position is unreliable")));
        if let (Some([least, most]), [Some(found), _]) = (expected, self.chi_squared) {
            let least = if self.samples > 0 { least } else { 0.0 };
            if !(least..=most).contains(&found) {
                let why = match found < least {
                    true => "noise is less than was said",
                    false => "the model does not follow the data, or noise is more than was said",
                };
                doubts.push(format!(
                    "the reduced chi-squared of the data is {found:.3e}, where {least:.2} to {most:.2} are to be expected: {why}"
                ));
            }
        }
        doubts
    }
}

/// Solution of the equations of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleOutcome {
    /// Steps of conjugate gradients for the straight sample; 0 where an update did not draw it
    /// again.
    pub steps: u64,
    /// Error of the straight sample over its target
    /// ([`CgOutcome::error_ratio`](super::CgOutcome::error_ratio)), when it was drawn.
    pub error_ratio: f64,
    /// End of the last Newton iteration that curved the sample; `None` for a straight sample.
    pub curve: Option<NewtonStop>,
}

/// Convergence of the samples of an iteration, over all groups. An updated sample keeps the error
/// of its draw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Convergence {
    /// Steps of conjugate gradients of the sample that took the most; 0 in an update.
    pub steps: u64,
    /// Samples, both signs of each, whose conjugate gradients missed their target. They lie between
    /// prior and posterior: where noise is low their deviations are many times too large.
    pub unconverged: u64,
    /// The largest error of conjugate gradients over its target
    /// ([`CgOutcome::error_ratio`](super::CgOutcome::error_ratio)); 1 or less if all converged.
    pub error_ratio: f64,
    /// Bent samples for which Newton's method failed ([`NewtonStop::is_failure`]): they are not
    /// samples of the posterior.
    pub failed: u64,
    /// Bent samples for which Newton's method took all steps that it may: they are curved in part.
    pub limited: u64,
}

impl Convergence {
    /// Returns the counts over all groups, from the outcomes of each group's block. Collective over
    /// all groups.
    pub(super) fn over(groups: &SampleGroups, own: &[SampleOutcome]) -> Result<Self> {
        let all = groups.gather(&SampleOutcome::numbers_of(own.iter().copied()))?;
        Ok(SampleOutcome::of_numbers(&all).into_iter().fold(Convergence::default(), Convergence::and))
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

    /// Returns a sentence for each reason not to rely on the samples. `samples` names them with
    /// their number; the remedies are for conjugate gradients and for Newton's method.
    #[must_use]
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
                "Newton's method reached its limit of steps for {limited} of {samples}, which are curved in part; {curve}"
            ));
        }
        doubts
    }
}

/// A value that states keep and groups send as one f64, which is exact for whole numbers below
/// 2^53.
pub(super) trait Number {
    /// Returns the number of the value.
    fn get(&self) -> f64;
    /// Sets the value from `number`; an invalid number sets some other value.
    fn set(&mut self, number: f64);
}

macro_rules! whole_numbers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            fn get(&self) -> f64 {
                *self as f64
            }
            fn set(&mut self, number: f64) {
                *self = number as $int;
            }
        }
    )*};
}

whole_numbers!(u32, u64, usize);

impl Number for f64 {
    fn get(&self) -> f64 {
        *self
    }
    fn set(&mut self, number: f64) {
        *self = number;
    }
}

impl Number for bool {
    fn get(&self) -> f64 {
        f64::from(u8::from(*self))
    }
    fn set(&mut self, number: f64) {
        *self = number == 1.0;
    }
}

impl Number for NewtonStop {
    fn get(&self) -> f64 {
        STOPS.iter().position(|stop| stop == self).unwrap_or_default() as f64
    }
    fn set(&mut self, number: f64) {
        *self = STOPS.get(number as usize).copied().unwrap_or_default();
    }
}

/// An optional value; -1 stands for `None`.
impl<T: Number + Default> Number for Option<T> {
    fn get(&self) -> f64 {
        self.as_ref().map_or(-1.0, Number::get)
    }
    fn set(&mut self, number: f64) {
        *self = (number >= 0.0).then(T::default);
        self.iter_mut().for_each(|own| own.set(number));
    }
}

/// Ends of Newton's method, by their number.
const STOPS: [NewtonStop; 6] = [
    NewtonStop::Value,
    NewtonStop::Step,
    NewtonStop::Iterations,
    NewtonStop::Rounding,
    NewtonStop::NoDescent,
    NewtonStop::NotPositive,
];

/// Values of a fixed count of numbers, in the order of states.
pub(super) trait Numbers<const N: usize>: Clone + Default {
    /// Returns all parts of the value: the layout for both directions.
    fn parts(&mut self) -> [&mut dyn Number; N];

    /// Returns the numbers of some values, one after the other.
    fn numbers_of(values: impl IntoIterator<Item = Self>) -> Vec<f64> {
        values.into_iter().flat_map(|mut value| value.parts().map(|part| part.get())).collect()
    }

    /// Returns the values of such numbers. `numbers_of` returns `numbers` again only if all are
    /// valid.
    fn of_numbers(numbers: &[f64]) -> Vec<Self> {
        let mut values = vec![Self::default(); numbers.len() / N];
        for (value, numbers) in values.iter_mut().zip(numbers.chunks(N)) {
            value.parts().into_iter().zip(numbers).for_each(|(part, number)| part.set(*number));
        }
        values
    }
}

/// Count of the numbers of an outcome.
pub(super) const OUTCOME: usize = 3;

impl Numbers<OUTCOME> for SampleOutcome {
    fn parts(&mut self) -> [&mut dyn Number; OUTCOME] {
        [&mut self.steps, &mut self.error_ratio, &mut self.curve]
    }
}
