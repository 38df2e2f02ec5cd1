//! Kicks and drifts of particles, as numbers.

/// Kicks and then drifts that particles make where they are: `p = keep p + factor a(x)`, one after
/// the other, then `x = x + factor p`. As many of each as a [`KickDrift`](super::KickDrift) makes
/// at once; the field `a` is read once for all of them.
///
/// ```
/// use meshloom::mesh::Push;
///
/// let mut push = Push::default();
/// assert!(push.kick(1.0, 0.5) && push.drift(0.1));
/// // The field is that of where particles were before they drifted.
/// assert!(!push.kick(1.0, 0.5));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Push {
    kicks: Vec<[f64; 2]>,
    drifts: Vec<f64>,
}

impl Push {
    /// Maximum number of kicks, and of drifts: those of two steps around a moment that is not
    /// observed.
    pub const MOST: usize = 2;

    /// Adds `p = keep p + factor a(x)`, and says whether it could: not after a drift, nor after
    /// [`MOST`](Self::MOST) kicks.
    pub fn kick(&mut self, keep: f64, factor: f64) -> bool {
        let fits = self.drifts.is_empty() && self.kicks.len() < Self::MOST;
        if fits {
            self.kicks.push([keep, factor]);
        }
        fits
    }

    /// Adds `x = x + factor p`, and says whether it could: not after [`MOST`](Self::MOST) drifts.
    pub fn drift(&mut self, factor: f64) -> bool {
        let fits = self.drifts.len() < Self::MOST;
        if fits {
            self.drifts.push(factor);
        }
        fits
    }

    /// Returns the kicks: what is kept of the momentum, and the factor of the field.
    #[must_use]
    pub fn kicks(&self) -> &[[f64; 2]] {
        &self.kicks
    }

    /// Returns the factors of the drifts.
    #[must_use]
    pub fn drifts(&self) -> &[f64] {
        &self.drifts
    }

    /// Returns `true` if it moves nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kicks.is_empty() && self.drifts.is_empty()
    }
}
