//! Likelihoods: what data say of a model.
//!
//! | likelihood | the model says | energy | metric F | coordinates |
//! |---|---|---|---|---|
//! | [`gaussian`](Likelihood::gaussian) | s | `(s - d)^2 / (2 sigma^2)` | `1 / sigma^2` | `s / sigma` |
//! | [`poisson`](Likelihood::poisson) | a rate s | `s - d ln s` | `1 / s` | `2 sqrt(s)` |
//! | [`student_t`](Likelihood::student_t), t degrees of freedom | s | `(t + 1) / 2 ln(1 + (s - d)^2 / (t sigma^2))` | `(t + 1) / (t + 3) / sigma^2` | its root times s |
//! | [`gaussian_inferred`](Likelihood::gaussian_inferred) | mean m and inverse standard deviation c | `c^2 (m - d)^2 / 2 - ln c` | `(c^2, 2 / c^2)` | `(c (m - m_e), sqrt(2) ln c)` about a mean m_e |
//! | [`student_t_inferred`](Likelihood::student_t_inferred) | mean m and standard deviation c | `(t + 1) / 2 ln(1 + (m - d)^2 / (t c^2)) + ln c` | `((t + 1) / (t + 3), 2 t / (t + 3)) / c^2` | none |
//! | [`categorical`](Likelihood::categorical) | logits s of classes | `-ln softmax(s)_d` | `diag(p) - p p^T` | none |
//!
//! Constants that do not depend on the model are left out.

mod check;
mod constructors;
mod data;
mod local_root;
mod term;

use crate::gpu::KernelSource;
use crate::operators::{ExcitedModes, Fingerprint, Model, Space, Vector};
use crate::rank::Rank;

use super::error::{InferenceError, Result};
use super::field_preconditioners::{FilterPreconditioner, ModePreconditioner};
use super::log_likelihood::{EnergyTerms, FieldPreconditioner, Identity, LogLikelihood, LogLikelihoodAt};
pub use check::{MetricCheck, check_metric};
pub use data::{Data, NoiseLevel};
use data::{Density, Squares};
use term::{Group, GroupAt, Term, TermAt, summed};

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [data::kernels(), local_root::kernels()].concat()
}

/// `-ln p(data | x)`, up to a constant, as a function of the values of a model.
///
/// Energies are exact sums of two floats for each datum, with an error of 1e-11 of the sum of
/// magnitudes. A metric application costs the jvp and vjp of the model: the likelihood is part of
/// the last pointwise step of the model.
#[derive(Clone)]
pub struct Likelihood {
    groups: Vec<Group>,
    domain: Space,
    data: Space,
}

impl std::fmt::Debug for Likelihood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Likelihood of {}: {} -> {}", self.name(), self.domain, self.data)
    }
}

/// The residuals of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSetReport {
    /// Name of the data set.
    pub name: String,
    /// Mean square of the normalized residuals: 1 for a right model, except for
    /// [`Likelihood::student_t`].
    pub reduced_chi_squared: f64,
    /// Mean of the normalized residuals: 0 for a right model.
    pub mean: f64,
    /// Number of data that count.
    pub count: u64,
}

impl Likelihood {
    fn of(density: Density) -> Self {
        let space = density.space.clone();
        let group = Group { shared: None, terms: vec![Term::new(density)], domain: space.clone() };
        Likelihood { groups: vec![group], domain: space.clone(), data: space }
    }

    /// Returns the likelihood as a function of the domain of `model`, which gives its former
    /// domain.
    ///
    /// The data sets of a [sum](Self::plus) share the model: it is evaluated once for all. Amend a
    /// data set before the sum by what it needs alone.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] if the model gives another space.
    pub fn amend(&self, model: &Model) -> Result<Self> {
        self.domain.admits(model.target(), &format!("likelihood of `{}`", self.name()))?;
        let domain = model.domain().clone();
        let group = match &self.groups[..] {
            [Group { shared: Some(shared), terms, .. }] => {
                Group { shared: Some(model.then(shared)?), terms: terms.clone(), domain: domain.clone() }
            }
            groups => {
                let terms = groups.iter().map(Group::apart).collect::<Result<Vec<_>, _>>()?.concat();
                let (shared, terms) = match &terms[..] {
                    [term] => (None, vec![term.amend(model)?]),
                    _ => (Some(model.clone()), terms),
                };
                Group { shared, terms, domain: domain.clone() }
            }
        };
        Ok(Likelihood { groups: vec![group], domain, data: self.data.clone() })
    }

    /// Returns the likelihood of two independent data sets; leaves of one name are shared.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] for different leaves of one name.
    /// - [`InferenceError::Invalid`] for data sets of one name.
    pub fn plus(&self, other: &Likelihood) -> Result<Self> {
        let domain = self.domain.joined(&other.domain, "sum of likelihoods")?;
        if let Some(name) = other.data.names().find(|name| self.data.position(name).is_some()) {
            let why = "two data sets have this name; give each its own".into();
            return Err(InferenceError::Invalid { what: format!("data `{name}`"), why });
        }
        let data = self.data.joined(&other.data, "sum of likelihoods")?;
        Ok(Likelihood { groups: [&self.groups[..], &other.groups].concat(), domain, data })
    }

    fn terms(&self) -> impl Iterator<Item = &Term> {
        self.groups.iter().flat_map(|group| &group.terms)
    }

    /// Returns the domain.
    #[must_use]
    pub fn domain(&self) -> &Space {
        &self.domain
    }

    /// Returns the space of the noise: a leaf for each data set, with the components of the model.
    #[must_use]
    pub fn data_space(&self) -> &Space {
        &self.data
    }

    /// Computes data minus model over the standard deviation of the noise, with a leaf for each
    /// data set.
    ///
    /// Data that do not count have 0. `None` if no data set has such a residual.
    ///
    /// # Errors
    /// - Errors of the model, the device and the ranks.
    pub fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<Vector>> {
        let mut residuals = Vec::new();
        self.residuals(rank, x, |_, _, found| {
            residuals.push(found);
            Ok(())
        })?;
        united(&residuals)
    }

    /// Returns the residuals of each data set that has them. Collective; blocks.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] for residuals that are not finite.
    /// - Errors of the device and the ranks.
    pub fn report(&self, rank: &mut Rank, x: &Vector) -> Result<Vec<DataSetReport>> {
        let mut reports = Vec::new();
        self.residuals(rank, x, |rank, term, found| {
            let squares = rank.vector_dot(&found, &found)?;
            let array = found.single()?;
            let Some((_, leaf)) = found.space().only() else { return Ok(()) };
            let sum = rank.exact_total(leaf.is_distributed(), array, leaf.total())?;
            let count = term.density.weighted.count;
            let (reduced_chi_squared, mean) = (squares / count as f64, sum / count as f64);
            reports.push(DataSetReport { name: term.density.name.clone(), reduced_chi_squared, mean, count });
            Ok(())
        })?;
        Ok(reports)
    }

    /// Gives the residual of each data set that has one to `take`.
    fn residuals(
        &self,
        rank: &mut Rank,
        x: &Vector,
        mut take: impl FnMut(&mut Rank, &Term, Vector) -> Result<()>,
    ) -> Result<()> {
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                let Some(residual) = &term.density.functions.residual else { continue };
                let signal = term.signal(rank, &values.part(&term.domain, "likelihood")?)?;
                let found = residual.value(rank, &signal)?;
                take(rank, term, found)?;
            }
        }
        Ok(())
    }
}

/// Returns the leaves of several vectors as one vector; `None` without vectors.
fn united(vectors: &[Vector]) -> Result<Option<Vector>> {
    let leaves = vectors.iter().flat_map(|vector| vector.space().leaves().zip(vector.contents()));
    let mut leaves: Vec<_> = leaves.collect();
    leaves.sort_by_key(|((name, _), _)| *name);
    let space = Space::new(leaves.iter().map(|((name, leaf), _)| (*name, (*leaf).clone())))?;
    let contents = leaves.into_iter().map(|(_, contents)| contents.clone()).collect();
    if vectors.is_empty() { Ok(None) } else { Ok(Some(Vector::over(&space, contents)?)) }
}

/// The derivatives of a [`Likelihood`] at a point.
struct LikelihoodAt {
    groups: Vec<GroupAt>,
    domain: Space,
}

impl LogLikelihood<Rank> for Likelihood {
    fn name(&self) -> String {
        self.terms().map(|term| term.density.name.as_str()).collect::<Vec<_>>().join(" + ")
    }

    fn identity(&self, rank: &mut Rank) -> Result<Identity> {
        let [mut density, mut data, mut mask, mut noise, mut latent, mut model] = [Fingerprint::new(); 6];
        latent.space(rank, &self.domain)?;
        for group in &self.groups {
            for term in &group.terms {
                term.density.identify(rank, [&mut density, &mut data, &mut mask, &mut noise])?;
                term.identify(rank, &mut model)?;
            }
            group.shared.iter().try_for_each(|shared| shared.identify(rank, &mut model))?;
        }
        let [density, data, mask, noise, latent, model] =
            [density, data, mask, noise, latent, model].map(Fingerprint::value);
        Ok(Identity { density, data, mask, noise, latent, model })
    }

    fn data(&self, rank: &mut Rank) -> Result<Vector> {
        Ok(Vector::joined(&mut rank.recorder, self.data_space())?)
    }

    fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64> {
        let mut energy = 0.0;
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                let signal = term.signal(rank, &values.part(&term.domain, "likelihood")?)?;
                energy += term.density.energy(rank, &signal)?;
            }
        }
        Ok(energy)
    }

    fn energy_terms(&self, rank: &mut Rank, x: &Vector) -> Result<Option<EnergyTerms<Vector>>> {
        let mut vectors = Vec::new();
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                let signal = term.signal(rank, &values.part(&term.domain, "likelihood")?)?;
                vectors.push(term.density.energy_terms(rank, &signal)?);
            }
        }
        Ok(Some(EnergyTerms { vectors, divisor: 1.0 }))
    }

    fn at<'a>(&'a self, rank: &mut Rank, x: &Vector) -> Result<Box<dyn LogLikelihoodAt<Rank> + 'a>> {
        let groups = self.groups.iter().map(|group| group.at(rank, x)).collect::<Result<_, _>>()?;
        Ok(Box::new(LikelihoodAt { groups, domain: self.domain.clone() }))
    }

    fn has_coordinates(&self) -> bool {
        self.terms().all(|term| term.coordinates.is_some())
    }

    fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<(Vector, u64)>> {
        let counts = self
            .terms()
            .filter(|term| term.density.functions.residual.is_some())
            .map(|term| term.density.weighted.count);
        Ok(Likelihood::normalized_residual(self, rank, x)?.map(|residual| (residual, counts.sum())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.terms().map(|term| term.density.weighted.count).sum()
    }

    /// Returns 1 up to five standard errors `sqrt(2 / n)`, and a factor of two for approximations.
    ///
    /// Counts have no lower end. `None` for Student's t distribution, and without residuals.
    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        let terms: Vec<_> =
            self.terms().map(|term| &term.density).filter(|one| one.functions.residual.is_some()).collect();
        if terms.is_empty() || terms.iter().any(|one| one.squares == Squares::Wild) {
            return None;
        }
        let n: u64 = terms.iter().map(|one| one.weighted.count).sum();
        let error = 5.0 * (2.0 / n as f64).sqrt();
        let least = if terms.iter().any(|one| one.squares == Squares::Counts) { 0.0 } else { (1.0 - error).max(0.0) };
        Some([least / 2.0, 2.0 * (1.0 + error)])
    }
}

impl LikelihoodAt {
    /// Computes the sum over groups of what `give` computes for the leaves of each.
    fn summed(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        mut give: impl FnMut(&mut Rank, &GroupAt, &mut Vector) -> Result<()>,
    ) -> Result<()> {
        self.domain.admits(out.space(), "likelihood")?;
        let parts: Vec<&Space> = self.groups.iter().map(|group| &group.domain).collect();
        summed(rank, &parts, out, |rank, number, out| give(rank, &self.groups[number], out))
    }

    fn terms(&self) -> impl Iterator<Item = &TermAt> {
        self.groups.iter().flat_map(|group| &group.terms)
    }
}

impl LogLikelihoodAt<Rank> for LikelihoodAt {
    fn energy(&self, rank: &mut Rank) -> Result<f64> {
        self.terms().map(|at| at.term.density.energy(rank, &at.signal)).sum()
    }

    fn energy_terms(&self, rank: &mut Rank) -> Result<Option<EnergyTerms<Vector>>> {
        let vectors =
            self.terms().map(|at| at.term.density.energy_terms(rank, &at.signal)).collect::<Result<_, _>>()?;
        Ok(Some(EnergyTerms { vectors, divisor: 1.0 }))
    }

    fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<()> {
        self.summed(rank, out, |rank, group, out| group.back(rank, out, |rank, at, out| Ok(at.gradient(rank, out)?)))
    }

    fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<()> {
        self.summed(rank, out, |rank, group, out| {
            let tangent = group.tangent(rank, v)?;
            group.back(rank, out, |rank, at, out| {
                Ok(at.metric(rank, &tangent.part(&at.term.domain, "likelihood")?, out)?)
            })
        })
    }

    fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<()> {
        self.summed(rank, out, |rank, group, out| {
            group.back(rank, out, |rank, at, out| {
                Ok(at.left_sqrt(rank, &eta.part(&at.term.density.space, "likelihood")?, out)?)
            })
        })
    }

    fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<()> {
        for group in &self.groups {
            let tangent = group.tangent(rank, v)?;
            for at in &group.terms {
                let mut part = out.part(&at.term.density.space, "likelihood")?;
                at.right_sqrt(rank, &tangent.part(&at.term.domain, "likelihood")?, &mut part)?;
            }
        }
        Ok(())
    }

    fn fields(&self, rank: &mut Rank) -> Result<Vec<Box<dyn FieldPreconditioner<Rank>>>> {
        let mut all: Vec<ExcitedModes> = Vec::new();
        for group in &self.groups {
            let excited = match &group.shared {
                Some(shared) => shared.excited(rank)?,
                None => group.terms.iter().map(|at| at.excited(rank)).collect::<Result<Vec<_>, _>>()?.concat(),
            };
            for modes in excited {
                if all.iter().all(|other| other.leaf != modes.leaf) {
                    all.push(modes);
                }
            }
        }
        let mut part = |modes: ExcitedModes| -> Result<Box<dyn FieldPreconditioner<Rank>>> {
            let ExcitedModes { leaf, mesh, amplitude } = modes;
            Ok(match amplitude {
                Some(amplitude) => Box::new(ModePreconditioner::new(leaf, &mesh, amplitude)?),
                None => Box::new(FilterPreconditioner::new(rank, leaf, &mesh)?),
            })
        };
        all.into_iter().map(&mut part).collect()
    }

    fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<()> {
        for group in &self.groups {
            let own = x.part(&group.domain, "likelihood")?;
            let values = match &group.shared {
                Some(shared) => shared.model().value(rank, &own)?,
                None => own,
            };
            for at in &group.terms {
                let own = values.part(&at.term.domain, "likelihood")?;
                at.coordinates(rank, &own, &mut out.part(&at.term.density.space, "likelihood")?)?;
            }
        }
        Ok(())
    }

    fn coordinates_about(
        &self,
        rank: &mut Rank,
        expansion: &dyn LogLikelihoodAt<Rank>,
        out: &mut Vector,
    ) -> Result<bool> {
        let expansion = expansion.model_value()?;
        for at in self.terms() {
            let data = &at.term.density.space;
            let value = match (&expansion, at.expansion_value()) {
                (Some(expansion), Some(_)) => Some(expansion.part(data, "likelihood")?),
                _ => None,
            };
            if !at.coordinates_about(rank, value.as_ref(), &mut out.part(data, "likelihood")?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn model_value(&self) -> Result<Option<Vector>> {
        let values: Vec<Vector> = self.terms().filter_map(|at| at.expansion_value().cloned()).collect();
        united(&values)
    }
}
