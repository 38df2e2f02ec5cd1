//! The identity of a likelihood: fingerprints by which a state and other ranks know it.

/// Fingerprints of the parts of a likelihood, equal for every number of ranks and every process grid.
///
/// A fit goes on from a state only if all of them are equal, and groups of ranks run a fit together only then. For
/// likelihoods of fields [`Likelihood::identity`](super::Likelihood::identity) computes them with a
/// [`Fingerprint`](crate::operators::Fingerprint) of each part. A part that a likelihood does not have may be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The kind of the density with its settings, and the names of the data sets.
    pub density: u64,
    /// The data, where they count.
    pub data: u64,
    /// Which data count.
    pub mask: u64,
    /// Standard deviations of noise, or exposures.
    pub noise: u64,
    /// Names and shapes of the latent values.
    pub latent: u64,
    /// The model with the priors and the constants of all its operators.
    pub model: u64,
}

impl Identity {
    /// Returns the parts with their names, those first whose difference explains others.
    pub(super) fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("kind of likelihood", self.density),
            ("mask", self.mask),
            ("data", self.data),
            ("noise or exposure", self.noise),
            ("names or shapes of the latent values", self.latent),
            ("model or its priors", self.model),
        ]
    }
}
