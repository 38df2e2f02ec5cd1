//! Level of the data: the prior mean of the field with `offset_mean = "data"`.
//!
//! A prior far from the data has to be bent to them by its other hyper-parameters, through places
//! where neither samples nor steps are worth anything.

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::host_memory;

use super::parameters::Kind;

/// Data that count of one rank, each with what is known of it: the exposure of a count, or the
/// standard deviation of noise.
pub struct Observed<'a> {
    pub kind: Kind,
    pub lognormal: bool,
    pub values: &'a [(f64, f64)],
}

impl Observed<'_> {
    /// Returns the mean of the field that the data of all ranks are near, the same for every number
    /// of ranks; 0 where no datum counts. Collective.
    pub fn offset(&self, comm: &Communicator) -> Result<f64, Error> {
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            exact_sum(
                comm,
                &host_memory::collect("data", self.values.iter().map(|&(value, beside)| of(value, beside)))?,
            )
        };
        // What the data say the signal is, and how well they know it.
        let (signal, error) = match self.kind {
            Kind::Poisson => {
                let exposure = sum(&|_, exposure| exposure)?;
                (sum(&|count, _| count)? / exposure, 1.0 / exposure)
            }
            Kind::Gaussian | Kind::StudentT => {
                let weight = sum(&|_, sigma| sigma.powi(-2))?;
                let signal = match self.kind {
                    // Outliers are forgiven here, too.
                    Kind::StudentT => median(comm, host_memory::collect("data", self.values.iter().map(|one| one.0))?)?,
                    _ => sum(&|value, sigma| value * sigma.powi(-2))? / weight,
                };
                (signal, weight.sqrt().recip())
            }
        };
        // A positive signal is at least as large as the data can detect.
        let offset = if self.lognormal { signal.max(error).ln() } else { signal };
        Ok(if offset.is_finite() { offset } else { 0.0 })
    }
}

/// Returns the sum of numbers of all ranks, in whole units of a part of the greatest: without
/// rounding that would depend on the ranks.
fn exact_sum(comm: &Communicator, terms: &[f64]) -> Result<f64, Error> {
    let mut most = [terms.iter().fold(0.0, |most: f64, term| most.max(term.abs()))];
    let mut count = [terms.len() as u64];
    comm.all_reduce(&mut most, Op::Max)?;
    comm.all_reduce(&mut count, Op::Sum)?;
    if !most[0].is_normal() {
        return Ok(most[0]);
    }
    let bits = most[0].log2().ceil() + (count[0] as f64).log2().ceil();
    let unit = (bits - 61.0).exp2();
    let mut sum = [terms.iter().map(|term| (term / unit).round() as i64).sum::<i64>()];
    comm.all_reduce(&mut sum, Op::Sum)?;
    Ok(sum[0] as f64 * unit)
}

/// Returns the middle number of all ranks, the lower one of two: its bits are found one after the
/// other.
fn median(comm: &Communicator, mut own: Vec<f64>) -> Result<f64, Error> {
    own.sort_unstable_by(f64::total_cmp);
    let keys = host_memory::collect("data", own.into_iter().map(key))?;
    let mut count = [keys.len() as u64];
    comm.all_reduce(&mut count, Op::Sum)?;
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        let mut below = [keys.partition_point(|&key| key <= middle) as u64];
        comm.all_reduce(&mut below, Op::Sum)?;
        if 2 * below[0] >= count[0] { high = middle } else { low = middle + 1 }
    }
    Ok(f64::from_bits(if low >> 63 == 1 { low & (u64::MAX >> 1) } else { !low }))
}

/// Numbers in the order of floats.
fn key(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use meshloom::comm::run_threads;

    use super::*;

    #[test]
    fn offsets_are_where_data_are_for_any_number_of_ranks() {
        let (poisson, gaussian, student) = (Kind::Poisson, Kind::Gaussian, Kind::StudentT);
        let cases: [(Kind, bool, &[(f64, f64)], f64); 8] = [
            (poisson, true, &[(90.0, 1.0), (0.0, 0.0), (210.0, 2.0), (0.0, 0.0)], 100f64.ln()),
            // Nothing was counted: a count in all would have been seen.
            (poisson, true, &[(0.0, 2.0), (0.0, 3.0)], 0.2f64.ln()),
            (gaussian, false, &[(300.1, 0.1), (299.9, 0.1), (-1e6, 1e9)], 300.0),
            (gaussian, true, &[(1e-5, 1e-6), (3e-5, 1e-6)], 2e-5f64.ln()),
            // Noise around 0: the signal is at most as large as the error of the mean.
            (gaussian, true, &[(-1.0, 2.0), (0.5, 2.0), (0.1, 2.0), (-0.2, 2.0)], 0.0),
            (student, false, &[(-3.0, 1.0), (1e9, 1.0), (-2.0, 1.0), (-2.5, 1.0), (0.25, 1.0)], -2.0),
            (student, false, &[(7.0, 1.0)], 7.0),
            (gaussian, false, &[], 0.0),
        ];
        for (kind, lognormal, values, wanted) in cases {
            let mut first = None;
            for ranks in 1..=4 {
                let found = run_threads(ranks, |comm| {
                    let own: Vec<_> = values.iter().copied().skip(comm.rank()).step_by(ranks).collect();
                    Observed { kind, lognormal, values: &own }.offset(&comm)
                });
                for found in found.unwrap() {
                    assert!((found - wanted).abs() <= 1e-9 * wanted.abs(), "{kind:?} {values:?}: {found} {wanted}");
                    assert_eq!(found.to_bits(), *first.get_or_insert(found.to_bits()), "{ranks} ranks");
                }
            }
        }
    }
}
