//! Diagnostics of Markov chains.

/// Returns the effective sample size of the draws of one number: as many independent draws would
/// have the same error of the mean.
///
/// Each chain is cut in halves; autocorrelations are summed over Geyer's initial monotone sequence
/// (Gelman et al. 2013, Bayesian Data Analysis; the form of Stan without ranks). NaN for chains of
/// fewer than 4 draws or different lengths, or where all draws are equal. The standard error of the
/// mean is the standard deviation of the draws over the root of this number.
///
/// ```
/// use meshloom::{inference::effective_sample_size, random::white_noise};
///
/// let chains: Vec<Vec<f64>> = (0..4).map(|c| (0..500).map(|i| white_noise(c, i)).collect()).collect();
/// let size = effective_sample_size(&chains);
/// assert!((1500.0..3000.0).contains(&size), "{size}");
/// ```
#[must_use]
pub fn effective_sample_size<C: AsRef<[f64]>>(chains: &[C]) -> f64 {
    let Some(halves) = Halves::of(chains) else { return f64::NAN };
    let Halves { parts, within, all, .. } = &halves;
    let (count, n) = (parts.len() as f64, parts[0].len());
    let correlation = |lag: usize| {
        let covariance: f64 = parts.iter().map(|part| autocovariance(part, lag)).sum::<f64>() / count;
        1.0 - (within - covariance) / all
    };
    let (mut sum, mut least, mut lag) = (0.0, f64::INFINITY, 0);
    while lag + 1 < n {
        let first = if lag == 0 { 1.0 } else { correlation(lag) };
        let pair = first + correlation(lag + 1);
        if pair.is_nan() || pair <= 0.0 {
            break;
        }
        least = pair.min(least);
        sum += least;
        lag += 2;
    }
    let total = count * n as f64;
    // Chains that alternate have more than the number of draws, but not without bounds.
    total / (2.0 * sum - 1.0).max(1.0 / total.log10())
}

/// Returns the potential scale reduction of the draws of one number: the deviation over all chains
/// over that within halves of them.
///
/// It is near 1 if all chains find the same distribution; 1.01 is a common limit (Vehtari et al.
/// 2021; here without ranks). NaN as for [`effective_sample_size`].
///
/// ```
/// use meshloom::inference::split_r_hat;
///
/// let apart = [[0.0, 1.0, 0.0, 1.0], [5.0, 6.0, 5.0, 6.0]];
/// assert!(split_r_hat(&apart) > 2.0);
/// ```
#[must_use]
pub fn split_r_hat<C: AsRef<[f64]>>(chains: &[C]) -> f64 {
    Halves::of(chains).map_or(f64::NAN, |halves| (halves.all / halves.within).sqrt())
}

/// Halves of chains, less their means.
struct Halves {
    parts: Vec<Vec<f64>>,
    /// Mean variance within a half.
    within: f64,
    /// Variance over all halves.
    all: f64,
}

impl Halves {
    fn of<C: AsRef<[f64]>>(chains: &[C]) -> Option<Self> {
        let len = chains.first()?.as_ref().len();
        if len < 4 || chains.iter().any(|chain| chain.as_ref().len() != len) {
            return None;
        }
        let n = len / 2;
        // An odd draw in the middle is left out.
        let halves = chains.iter().flat_map(|chain| [&chain.as_ref()[..n], &chain.as_ref()[len - n..]]);
        let mut means = Vec::new();
        let parts: Vec<Vec<f64>> = halves
            .map(|half| {
                let mean = half.iter().sum::<f64>() / n as f64;
                means.push(mean);
                half.iter().map(|x| x - mean).collect()
            })
            .collect();
        let count = parts.len() as f64;
        let last = (n - 1) as f64;
        let within = parts.iter().map(|part| autocovariance(part, 0)).sum::<f64>() / count * n as f64 / last;
        let mean = means.iter().sum::<f64>() / count;
        let between = means.iter().map(|own| (own - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let all = within * last / n as f64 + between;
        (all > 0.0 && all.is_finite()).then_some(Halves { parts, within, all })
    }
}

/// Returns the autocovariance of numbers around 0.
fn autocovariance(values: &[f64], lag: usize) -> f64 {
    values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum::<f64>() / values.len() as f64
}
