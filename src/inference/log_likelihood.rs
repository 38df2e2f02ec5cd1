//! The interface between likelihoods and inference.

use std::fmt::Debug;

use super::conjugate_gradient::{Metric, Precondition};
use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::vector_space::{Stream, VectorSpace};
use crate::comm::Communicator;

/// `-ln p(data | x)` of latent vectors `x`, up to a constant.
///
/// Methods are collective and overwrite their outputs. Errors come from the device and the
/// ranks.
pub trait LogLikelihood<S: VectorSpace> {
    /// Returns the name for errors and reports.
    fn name(&self) -> String;

    /// Returns the fingerprints of the data and of the model with all constants, equal on all
    /// ranks.
    fn identity(&self, space: &mut S) -> Result<Identity>;

    /// Creates a vector of the space of the noise, the domain of the left square root, with
    /// undefined values.
    fn data(&self, space: &mut S) -> Result<S::Vector>;

    /// Computes the energy `-ln p(data | x)` in nats; blocks.
    ///
    /// Fails with [`InferenceError::NotFinite`] if it is NaN or infinite.
    fn energy(&self, space: &mut S, x: &S::Vector) -> Result<f64>;

    /// Records the energy at `x` as terms, so that energies at several places block once; `None`,
    /// as by default, if only [`energy`](Self::energy) computes it.
    fn energy_terms(&self, _space: &mut S, _x: &S::Vector) -> Result<Option<EnergyTerms<S::Vector>>> {
        Ok(None)
    }

    /// Returns the derivatives at `x`, which must not change while they live.
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<Box<dyn LogLikelihoodAt<S> + 'a>>;

    /// Returns `true` if the likelihood has [`coordinates`](LogLikelihoodAt::coordinates), which
    /// curved samples need.
    fn has_coordinates(&self) -> bool {
        true
    }

    /// Returns data minus model over the standard deviation of the noise at `x`, and the number of
    /// data that count over all ranks.
    ///
    /// The mean of squares is 1 for a right model, except for
    /// [`Likelihood::student_t`](super::Likelihood::student_t). `None` if the likelihood has no
    /// such residual.
    fn normalized_residual(&self, space: &mut S, x: &S::Vector) -> Result<Option<(S::Vector, u64)>>;

    /// Returns the number of data that count over all ranks.
    fn degrees_of_freedom(&self) -> u64;

    /// Returns the range of the mean square of [`normalized_residual`](Self::normalized_residual)
    /// over samples of a right model; `None` if it is unknown.
    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        None
    }
}

/// An energy that is not summed yet: the sum of all numbers of some vectors over a divisor.
#[derive(Clone, Debug)]
pub struct EnergyTerms<V> {
    /// The vectors of the terms.
    pub vectors: Vec<V>,
    /// The divisor of their sum.
    pub divisor: f64,
}

/// The derivatives of a [`LogLikelihood`] at a point.
///
/// With the Jacobian `J` of the model and the Fisher metric `F` of the data, `L = J^T sqrt(F)` is
/// the left square root of the metric `M = J^T F J`. Methods record their work; only the energy
/// blocks.
pub trait LogLikelihoodAt<S: VectorSpace> {
    /// Computes the energy at the point; blocks.
    fn energy(&self, space: &mut S) -> Result<f64>;

    /// Records the energy as [`LogLikelihood::energy_terms`] does.
    fn energy_terms(&self, _space: &mut S) -> Result<Option<EnergyTerms<S::Vector>>> {
        Ok(None)
    }

    /// Computes the gradient of the energy.
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<()>;

    /// Computes `out = M v`.
    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()>;

    /// Computes `out = L eta` of a vector in the space of the data.
    fn left_sqrt(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<()>;

    /// Computes `out = L^T v` in the space of the data.
    fn right_sqrt(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()>;

    /// Returns the parts of latent values that excite the modes of a field, on which a
    /// [`Preconditioner`](super::Preconditioner) builds. By default there is none.
    fn fields(&self, _space: &mut S) -> Result<Vec<Box<dyn FieldPreconditioner<S>>>> {
        Ok(Vec::new())
    }

    /// Computes coordinates of `x`, along which samples are curved, in the space of the data.
    ///
    /// Their derivative at the point must be the right square root; otherwise curved samples have a
    /// wrong width. [`check_metric`](super::check_metric) compares the two. Fails with
    /// [`InferenceError::NoTransformation`] if the likelihood has no coordinates.
    fn coordinates(&self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<()>;

    /// Computes the coordinates of this point about `expansion` without evaluating the model again.
    ///
    /// They must have the same bits as `expansion.coordinates` of the point. Returns `false` if the
    /// likelihood computes them from the latent values alone, as is the default.
    fn coordinates_about(
        &self,
        _space: &mut S,
        _expansion: &dyn LogLikelihoodAt<S>,
        _out: &mut S::Vector,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Returns the value of the model at the point in the space of the data, if
    /// [`coordinates_about`](Self::coordinates_about) needs the value at the expansion point.
    fn model_value(&self) -> Result<Option<S::Vector>> {
        Ok(None)
    }
}

/// Returns the gradient of `-ln p(x | data)` at the point `x` of the derivatives.
pub(super) fn posterior_gradient<S: VectorSpace>(
    space: &mut S,
    at: &dyn LogLikelihoodAt<S>,
    x: &S::Vector,
) -> Result<S::Vector> {
    let mut gradient = space.like(x)?;
    at.gradient(space, &mut gradient)?;
    space.axpby(1.0, x, 1.0, &mut gradient)?;
    Ok(gradient)
}

/// A part of latent values that excites the modes of a field, and the approximate inverse of the
/// metric on it. Vectors are whole; other parts of outputs are left as they are.
pub trait FieldPreconditioner<S: VectorSpace>: Precondition<S> {
    /// Returns the name of the part.
    fn part(&self) -> &str;

    /// Builds the inverse from products with the metric of the data; vectors are like `like`.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] if a product is not finite.
    /// - Errors of the vector space.
    fn build(&mut self, space: &mut S, metric: &mut Metric<'_, S>, stream: Stream, like: &S::Vector) -> Result<()>;

    /// Fills the part of `out` with about one standard deviation of each number, if the inverse is
    /// nearly diagonal; otherwise returns `false`.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn scale(&self, _space: &mut S, _out: &mut S::Vector) -> Result<bool> {
        Ok(false)
    }

    /// Computes `out = S v` with a symmetric `S` whose square is the inverse, if that is not
    /// nearly diagonal.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if the inverse is nearly diagonal.
    /// - Errors of the vector space.
    fn root(&self, _space: &mut S, _v: &S::Vector, _out: &mut S::Vector) -> Result<()> {
        let why = "its inverse is nearly diagonal: take its scale".into();
        Err(InferenceError::Invalid { what: format!("the root of `{}`", self.part()), why })
    }

    /// Returns the numbers that [`restore`](Self::restore) builds the inverse from, as many before it
    /// is built.
    fn numbers(&self) -> &[f64] {
        &[]
    }

    /// Builds the inverse from its [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn restore(&mut self, _space: &mut S, _numbers: &[f64]) -> Result<()> {
        Ok(())
    }

    /// Takes the numbers of the first group, which other devices may have rounded differently.
    /// Collective over all groups.
    ///
    /// # Errors
    /// - Errors of the vector space and the ranks.
    fn share(&mut self, space: &mut S, groups: &SampleGroups) -> Result<()>;
}

/// Fingerprints of the parts of a likelihood, equal for every number of ranks and every process
/// grid.
///
/// A fit goes on from a state only if all of them are equal, and groups of ranks run a fit together
/// only then. For likelihoods of fields [`Likelihood::identity`](super::Likelihood::identity)
/// computes them with a [`Fingerprint`](crate::operators::Fingerprint) of each part. A part that a
/// likelihood does not have may be 0.
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

    /// Checks that all ranks have the same likelihood. Collective.
    pub(super) fn agree(&self, comm: &Communicator, call: &str) -> Result<()> {
        let parts = self.parts().map(|(name, mark)| (name, format!("fingerprint {mark:016x}")));
        let arguments = parts.each_ref().map(|(name, mark)| (*name, mark as &dyn Debug));
        Ok(comm.agree(call, &arguments)?)
    }
}

/// `-ln p(data | x) / T`: of Gaussian data, that of noise `sqrt(T)` times as large. Metrics are
/// divided by T, their roots by its root.
pub(super) struct Tempered<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub temperature: f64,
}

/// The derivatives of a [`Tempered`] likelihood at a point.
struct TemperedAt<'a, S: VectorSpace> {
    at: Box<dyn LogLikelihoodAt<S> + 'a>,
    temperature: f64,
}

impl<V> EnergyTerms<V> {
    fn over(self, divisor: f64) -> Self {
        EnergyTerms { divisor: self.divisor * divisor, ..self }
    }
}

/// Fills `out` by `make`, divided by `by`.
fn divided<S: VectorSpace>(
    space: &mut S,
    by: f64,
    out: &mut S::Vector,
    make: impl FnOnce(&mut S, &mut S::Vector) -> Result<()>,
) -> Result<()> {
    let mut whole = space.like(out)?;
    make(space, &mut whole)?;
    space.axpby(1.0 / by, &whole, 0.0, out)
}

impl<S: VectorSpace> LogLikelihood<S> for Tempered<'_, S> {
    fn name(&self) -> String {
        self.likelihood.name()
    }

    fn identity(&self, space: &mut S) -> Result<Identity> {
        self.likelihood.identity(space)
    }

    fn data(&self, space: &mut S) -> Result<S::Vector> {
        self.likelihood.data(space)
    }

    fn energy(&self, space: &mut S, x: &S::Vector) -> Result<f64> {
        Ok(self.likelihood.energy(space, x)? / self.temperature)
    }

    fn energy_terms(&self, space: &mut S, x: &S::Vector) -> Result<Option<EnergyTerms<S::Vector>>> {
        Ok(self.likelihood.energy_terms(space, x)?.map(|terms| terms.over(self.temperature)))
    }

    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<Box<dyn LogLikelihoodAt<S> + 'a>> {
        Ok(Box::new(TemperedAt { at: self.likelihood.at(space, x)?, temperature: self.temperature }))
    }

    fn has_coordinates(&self) -> bool {
        self.likelihood.has_coordinates()
    }

    fn normalized_residual(&self, space: &mut S, x: &S::Vector) -> Result<Option<(S::Vector, u64)>> {
        let Some((whole, count)) = self.likelihood.normalized_residual(space, x)? else { return Ok(None) };
        Ok(Some((space.scaled(1.0 / self.temperature.sqrt(), &whole)?, count)))
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.likelihood.degrees_of_freedom()
    }
}

impl<S: VectorSpace> LogLikelihoodAt<S> for TemperedAt<'_, S> {
    fn energy(&self, space: &mut S) -> Result<f64> {
        Ok(self.at.energy(space)? / self.temperature)
    }

    fn energy_terms(&self, space: &mut S) -> Result<Option<EnergyTerms<S::Vector>>> {
        Ok(self.at.energy_terms(space)?.map(|terms| terms.over(self.temperature)))
    }

    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<()> {
        divided(space, self.temperature, out, |space, out| self.at.gradient(space, out))
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()> {
        divided(space, self.temperature, out, |space, out| self.at.metric(space, v, out))
    }

    fn left_sqrt(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<()> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.left_sqrt(space, eta, out))
    }

    fn right_sqrt(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.right_sqrt(space, v, out))
    }

    fn fields(&self, space: &mut S) -> Result<Vec<Box<dyn FieldPreconditioner<S>>>> {
        self.at.fields(space)
    }

    fn coordinates(&self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<()> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.coordinates(space, x, out))
    }

    fn coordinates_about(
        &self,
        space: &mut S,
        expansion: &dyn LogLikelihoodAt<S>,
        out: &mut S::Vector,
    ) -> Result<bool> {
        let mut whole = space.like(out)?;
        let has_all = self.at.coordinates_about(space, expansion, &mut whole)?;
        if has_all {
            space.axpby(1.0 / self.temperature.sqrt(), &whole, 0.0, out)?;
        }
        Ok(has_all)
    }

    fn model_value(&self) -> Result<Option<S::Vector>> {
        self.at.model_value()
    }
}
