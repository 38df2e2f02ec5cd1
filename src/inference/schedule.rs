//! The options of an iteration, the default iterations of a fit, and when they may end.

use std::fmt::Debug;

use super::conjugate_gradient::CgOptions;
use super::kl::Curvature;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::preconditioner::Preconditioning;
use super::report::IterationReport;
use super::samples::{Draw, Sampling};
use super::vector_space::VectorSpace;

/// The options of one iteration of a fit.
#[derive(Clone, Debug)]
pub struct IterationOptions {
    /// Number of mirrored pairs of samples; 0 finds the most probable position (MAP).
    pub pairs: usize,
    /// The kind of samples.
    pub sampling: Sampling,
    /// Stopping rules for straight samples.
    pub linear: CgOptions,
    /// Stopping rules for bending samples.
    pub curve: NewtonOptions,
    /// Stopping rules for the position.
    pub position: NewtonOptions,
    /// Which conjugate gradients are preconditioned.
    pub preconditioning: Preconditioning,
    /// The metric of the steps of the position.
    pub curvature: Curvature,
    /// The likelihood is raised to the power of 1 / temperature: above 1 data count less, as with
    /// noise `sqrt(temperature)` times as large. Falling temperatures (annealing) fit first what
    /// the data determine best. Chi-squared is reported at 1.
    pub temperature: f64,
    /// Parts of latent values, or branches of them, that are fitted but known for samples.
    pub point_estimates: Vec<String>,
    /// Parts that keep their values while the position moves, although samples vary them.
    pub constants: Vec<String>,
}

impl IterationOptions {
    /// Returns the options with their names, in Rust and in Python where these differ.
    pub(super) fn named(&self) -> [(&'static str, &dyn Debug); 10] {
        [
            ("pairs (n_samples)", &self.pairs),
            ("sampling (sample_mode)", &self.sampling),
            ("linear (draw_linear_kwargs)", &self.linear),
            ("curve (nonlinearly_update_kwargs)", &self.curve),
            ("position (kl_kwargs)", &self.position),
            ("preconditioning", &self.preconditioning),
            ("curvature", &self.curvature),
            ("temperature", &self.temperature),
            ("point_estimates", &self.point_estimates),
            ("constants", &self.constants),
        ]
    }
}

impl Default for IterationOptions {
    fn default() -> Self {
        IterationOptions {
            pairs: 2,
            sampling: Sampling::Linear(Draw::New),
            linear: CgOptions::default(),
            curve: NewtonOptions::default(),
            position: NewtonOptions::default(),
            preconditioning: Preconditioning::default(),
            curvature: Curvature::default(),
            temperature: 1.0,
            point_estimates: Vec::new(),
            constants: Vec::new(),
        }
    }
}

/// The default iterations of a fit: few straight samples at first, then more and curved ones.
///
/// | iterations | pairs | samples |
/// |---|---|---|
/// | 0, 1 | 2 | straight, with new random numbers, that vary the largest part of the latent values only |
/// | 2, 3 | 6 | curved, with new random numbers |
/// | 4 | 12 | curved, with new random numbers |
/// | from 5 on | 12 | those of iteration 4, curved again about the new position |
///
/// The last stage repeats its random numbers, so that its samples follow the position, their
/// energies become comparable and the position converges. Samples of a likelihood without
/// coordinates stay straight.
///
/// In iterations 0 and 1 parts with fewer values than the largest one are point estimates:
/// amplitudes, slopes, offsets. Far from the data a straight sample of them can raise a whole
/// spectrum by powers of ten, and the position would lower the spectrum until such samples fit,
/// below the noise on small scales. It stays there, since power below the noise has no gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Latent values over all ranks of a group.
    numbers: u64,
    /// Whether the likelihood has the coordinates that curved samples need.
    bends: bool,
    /// Parts with fewer values than the largest one.
    small_parts: Vec<String>,
}

/// Pairs of samples of the last stage.
const PAIRS: usize = 12;

/// The first iteration of the stages of curved samples, of all pairs, and of repeated random
/// numbers.
const CURVED: u32 = 2;
const ALL: u32 = 4;
const REPEATED: u32 = 5;

/// Reports that are compared: two changes.
const COMPARED: usize = 3;

/// Changes of reduced chi-squared from one iteration to the next that count as none, as a part of
/// it.
const CHI_SQUARED: f64 = 0.03;

impl Schedule {
    /// Iterations at most.
    pub const ITERATIONS: u32 = 20;

    /// The fewest iterations after which a fit can have settled.
    pub const LEAST: usize = ALL as usize + COMPARED;

    /// Creates the schedule of a fit of `likelihood` that starts at `start`.
    pub fn new<S: VectorSpace>(space: &S, likelihood: &dyn LogLikelihood<S>, start: &S::Vector) -> Self {
        let parts = space.parts(start);
        let most = parts.iter().map(|(_, len)| *len).max().unwrap_or(0);
        let small_parts = parts.into_iter().filter(|(_, len)| *len < most).map(|(name, _)| name).collect();
        Schedule { numbers: space.len(start), bends: likelihood.has_coordinates(), small_parts }
    }

    /// Returns the number of mirrored pairs of samples of iteration `iteration`.
    #[must_use]
    pub fn pairs(iteration: u32) -> usize {
        match iteration {
            ..CURVED => 2,
            CURVED..ALL => PAIRS / 2,
            _ => PAIRS,
        }
    }

    /// Returns what iteration `iteration` does.
    #[must_use]
    pub fn options(&self, iteration: u32) -> IterationOptions {
        let draw = if iteration < REPEATED { Draw::New } else { Draw::Again };
        // Few directions of a large field are known well, and hold the last gains of its energy.
        let [linear, newton] = [(1e-5, 0.02), (1e-4, 0.1)].map(|(each, most)| (each * self.numbers as f64).min(most));
        IterationOptions {
            pairs: Self::pairs(iteration),
            sampling: if iteration < CURVED || !self.bends {
                Sampling::Linear(draw)
            } else if draw == Draw::New {
                Sampling::Curved(draw)
            } else {
                Sampling::Update
            },
            linear: CgOptions { maxiter: Some(500), ..CgOptions::absdelta(linear) },
            curve: NewtonOptions { xtol: 1e-4, ..NewtonOptions::default().absdelta(newton).steps(20) },
            // Steps are inexact, so a short one does not say that the minimum is near.
            position: NewtonOptions { xtol: 0.0, ..NewtonOptions::default().absdelta(newton).steps(50) },
            point_estimates: if iteration < CURVED { self.small_parts.clone() } else { Vec::new() },
            ..IterationOptions::default()
        }
    }

    /// Returns why a fit with these reports has not settled, with the largest change that it found;
    /// `None` if it has.
    ///
    /// A fit has settled after [`LEAST`](Self::LEAST) iterations or more if over the last two the
    /// number of samples stayed, the reduced chi-squared of data and of latent values changed by at
    /// most 3 %, and the energy by at most `0.05 sqrt(data)` (0.5 for fewer than 100 data). The
    /// rule reads reports only, so a resumed fit decides the same.
    #[must_use]
    pub fn unsettled(history: &[IterationReport], data: u64) -> Option<String> {
        let Some(last) = history.last_chunk::<COMPARED>().filter(|_| history.len() >= Self::LEAST) else {
            let (least, done) = (Self::LEAST, history.len());
            return Some(format!("the fit has not settled: expected {least} iterations or more, got {done}"));
        };
        let iteration = last[COMPARED - 1].iteration;
        if last.iter().any(|report| report.samples != last[0].samples) {
            return Some(format!(
                "the fit has not settled after iteration {iteration}: the number of samples changed within the last two iterations"
            ));
        }
        let worst = |change: &dyn Fn(&IterationReport, &IterationReport) -> f64| {
            last.windows(2).map(|pair| change(&pair[0], &pair[1])).fold(0.0, f64::max)
        };
        let energy = worst(&|before, after| (after.energy - before.energy).abs());
        // Over the posterior the energy varies by `sqrt(data / 2)`: this is 7 % of that. A move of
        // the position by one posterior standard deviation in one direction changes the energy by
        // 1/2, so changes below that are none for few data, too.
        let tolerance = (0.05 * (data as f64).sqrt()).max(0.5);
        let [of_data, of_latent] = [0, 1].map(|which| {
            worst(&|before, after| match (before.chi_squared[which], after.chi_squared[which]) {
                (Some(before), Some(after)) => (after - before).abs() / after.max(f64::MIN_POSITIVE),
                _ => 0.0,
            })
        });
        let is_settled = energy <= tolerance && of_data <= CHI_SQUARED && of_latent <= CHI_SQUARED;
        (!is_settled).then(|| {
            format!(
                "the fit has not settled after iteration {iteration}: within the last two iterations the energy changed by {energy:.2} (at most \
                 {tolerance:.2} when settled), the reduced chi-squared of the data by {:.1} % and of latent values by {:.1} % (at most {:.0} %)",
                100.0 * of_data,
                100.0 * of_latent,
                100.0 * CHI_SQUARED
            )
        })
    }
}
