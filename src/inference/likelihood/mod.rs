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
mod data;
mod density;
mod energy;
mod group;
mod local_root;
mod term;

use crate::gpu::KernelSource;
use crate::operators::{Contents, ExcitedModes, Fingerprint, Leaf, Model, Space, Vector};
use crate::rank::Rank;

use super::error::InferenceError;
use super::filter_preconditioner::FilterPreconditioner;
use super::log_likelihood::{EnergyTerms, FieldPreconditioner, Identity, LogLikelihood, LogLikelihoodAt};
use super::mode_preconditioner::ModePreconditioner;
use crate::host_memory;
pub use check::{MetricCheck, check_metric};
pub use data::{Data, NoiseLevel};
use density::{Density, Squares};
use group::{Group, GroupAt, OneAt, summed};
use term::Term;

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [energy::kernels(), local_root::kernels()].concat()
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

/// Refuses invalid counts and exposures, and counts without exposure.
fn check_exposed(data: &Data<'_>, exposure: &[f64]) -> Result<(), String> {
    data.check("counts are finite numbers", |_| true)?;
    data.check_len("exposures", exposure.len())?;
    let counted = || (0..exposure.len()).filter(|&at| data.counts(at));
    if let Some(at) = counted().find(|&at| !(exposure[at].is_finite() && exposure[at] >= 0.0)) {
        return Err(format!("the exposure of number {at} is {}; it must be 0 or more, or mask it", exposure[at]));
    }
    match counted().find(|&at| exposure[at] == 0.0 && data.values[at] != 0.0) {
        Some(at) => Err(format!("number {at} is {} at an exposure of 0; mask it", data.values[at])),
        None => Ok(()),
    }
}

impl Likelihood {
    fn of(density: Density) -> Self {
        let space = density.space.clone();
        let group = Group { shared: None, terms: vec![Term::new(density)], domain: space.clone() };
        Likelihood { groups: vec![group], domain: space.clone(), data: space }
    }

    /// Creates the likelihood of data with Gaussian noise around the values of a model. Collective.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for another number of data than places, values that are not
    ///   finite, noise that is not positive, or if no datum counts.
    pub fn gaussian(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>) -> Result<Self, InferenceError> {
        Ok(Self::of(density::gaussian(rank, data, noise)?))
    }

    /// Creates the likelihood of counts with a positive rate. Collective.
    ///
    /// With `exposure` the model gives the rate for an exposure of 1; counts at exposure 0 do not
    /// count.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`] for invalid counts or exposures, or counts at exposure 0.
    pub fn poisson(rank: &mut Rank, data: &Data<'_>, exposure: Option<&[f64]>) -> Result<Self, InferenceError> {
        let Some(exposure) = exposure else { return Ok(Self::of(density::poisson(rank, data, None)?)) };
        data.total(rank, check_exposed(data, exposure))?;
        let mask = (0..exposure.len()).map(|at| data.counts(at) && exposure[at] > 0.0);
        let mask = host_memory::collect("the mask of data", mask)?;
        // Ranks have kernels alike, so a mask that one needs all have.
        let own = u64::from(data.mask.is_some() || mask.contains(&false));
        let mut any = [own];
        rank.comm.all_reduce(&mut any, crate::comm::Op::Max)?;
        let masked = Data { mask: (any[0] == 1).then_some(&mask[..]), ..*data };
        let exposures = density::exposures(rank, &masked, exposure)?;
        let exposed = density::exposed(&masked, &exposures)?;
        Self::of(density::poisson(rank, &masked, Some(exposures))?).amend(&exposed)
    }

    /// Creates the likelihood of data with outliers: Student's t distribution with `dof` degrees of
    /// freedom.
    ///
    /// Normalized residuals are `sqrt((t + 1) / (t + 3)) (d - s) / sigma` as in NIFTy. For a right
    /// model their mean square is `(t + 1) / (t + 3) * t / (t - 2)`; it is infinite for `t <= 2`.
    /// Collective.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`] for degrees of freedom that are not positive.
    pub fn student_t(
        rank: &mut Rank,
        data: &Data<'_>,
        noise: NoiseLevel<'_>,
        dof: f64,
    ) -> Result<Self, InferenceError> {
        Ok(Self::of(density::student_t(rank, data, noise, dof)?))
    }

    /// Creates the likelihood of data whose noise the model gives: mean and inverse standard
    /// deviation.
    ///
    /// The two are the components of the leaf. Collective.
    ///
    /// # Errors
    /// Same as [`gaussian`](Self::gaussian).
    pub fn gaussian_inferred(rank: &mut Rank, data: &Data<'_>) -> Result<Self, InferenceError> {
        Ok(Self::of(density::gaussian_inferred(rank, data)?))
    }

    /// Creates the likelihood of Student's t distribution of which the model gives mean and
    /// standard deviation.
    ///
    /// # Errors
    /// Same as [`student_t`](Self::student_t).
    pub fn student_t_inferred(rank: &mut Rank, data: &Data<'_>, dof: f64) -> Result<Self, InferenceError> {
        Ok(Self::of(density::student_t_inferred(rank, data, dof)?))
    }

    /// Creates the likelihood of classes `0..classes`, of which the model gives the logits as
    /// components.
    ///
    /// # Errors
    /// - Same as [`gaussian`](Self::gaussian).
    /// - [`InferenceError::Invalid`] for fewer than two classes, or data that are not a class.
    pub fn categorical(rank: &mut Rank, data: &Data<'_>, classes: u32) -> Result<Self, InferenceError> {
        Ok(Self::of(density::categorical(rank, data, classes)?))
    }

    /// Returns the likelihood as a function of the domain of `model`, which gives its former
    /// domain.
    ///
    /// The data sets of a [sum](Self::plus) share the model: it is evaluated once for all. Amend a
    /// data set before the sum by what it needs alone.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] if the model gives another space.
    pub fn amend(&self, model: &Model) -> Result<Self, InferenceError> {
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
    pub fn plus(&self, other: &Likelihood) -> Result<Self, InferenceError> {
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

    /// Returns the names of the data sets.
    #[must_use]
    pub fn name(&self) -> String {
        self.terms().map(|term| term.density.name.as_str()).collect::<Vec<_>>().join(" + ")
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

    /// Returns the number of data that count, over all data sets and ranks.
    #[must_use]
    pub fn degrees_of_freedom(&self) -> u64 {
        self.terms().map(|term| term.density.count).sum()
    }

    /// Returns the range of reduced chi-squared over samples of a right model.
    ///
    /// That is 1 up to five standard errors `sqrt(2 / n)`, and a factor of two for approximations;
    /// counts have no lower end. `None` for Student's t distribution, and without residuals.
    #[must_use]
    pub fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        let terms: Vec<_> = self.terms().map(|term| &term.density).filter(|one| one.residual.is_some()).collect();
        if terms.is_empty() || terms.iter().any(|one| one.squares == Squares::Wild) {
            return None;
        }
        let n: u64 = terms.iter().map(|one| one.count).sum();
        let error = 5.0 * (2.0 / n as f64).sqrt();
        let least = if terms.iter().any(|one| one.squares == Squares::Counts) { 0.0 } else { (1.0 - error).max(0.0) };
        Some([least / 2.0, 2.0 * (1.0 + error)])
    }

    /// Computes data minus model over the standard deviation of the noise, with a leaf for each
    /// data set.
    ///
    /// Data that do not count have 0. `None` if no data set has such a residual.
    ///
    /// # Errors
    /// - Errors of the model, the device and the ranks.
    pub fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<Vector>, InferenceError> {
        let (mut leaves, mut contents) = (Vec::new(), Vec::new());
        self.residuals(rank, x, |_, term, found| {
            leaves.extend(found.space().leaves().map(|(_, leaf)| (term.density.name.clone(), leaf.clone())));
            contents.extend(found.contents().to_vec());
            Ok(())
        })?;
        if leaves.is_empty() {
            return Ok(None);
        }
        ordered(leaves, contents).map(Some)
    }

    /// Returns the residuals of each data set that has them. Collective; blocks.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`] for residuals that are not finite.
    /// - Errors of the device and the ranks.
    pub fn report(&self, rank: &mut Rank, x: &Vector) -> Result<Vec<DataSetReport>, InferenceError> {
        let mut reports = Vec::new();
        self.residuals(rank, x, |rank, term, found| {
            let squares = rank.vector_dot(&found, &found)?;
            let array = found.single()?;
            let Some((_, leaf)) = found.space().only() else { return Ok(()) };
            let terms =
                crate::exchange::Terms { x: array, y: None, index: None, sums: 1, batches: 1, total: leaf.total() };
            let sum = rank.exact_sums();
            let (recorder, comm) = (&mut rank.recorder, &rank.comm);
            let sum = sum.value(recorder, leaf.is_distributed().then_some(comm), &terms)?;
            let count = term.density.count;
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
        mut take: impl FnMut(&mut Rank, &Term, Vector) -> Result<(), InferenceError>,
    ) -> Result<(), InferenceError> {
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                let Some(residual) = &term.density.residual else { continue };
                let signal = term.signal(rank, &values.part(term.domain(), "likelihood")?)?;
                let found = residual.value(rank, &signal)?;
                take(rank, term, found)?;
            }
        }
        Ok(())
    }
}

/// Returns a vector of leaves in the order of their names.
fn ordered(leaves: Vec<(String, Leaf)>, contents: Vec<Contents>) -> Result<Vector, InferenceError> {
    let mut both: Vec<_> = leaves.into_iter().zip(contents).collect();
    both.sort_by(|a, b| a.0.0.cmp(&b.0.0));
    let (leaves, contents): (Vec<_>, Vec<_>) = both.into_iter().unzip();
    Ok(Vector::over(&Space::new(leaves)?, contents)?)
}

/// The derivatives of a [`Likelihood`] at a point.
struct LikelihoodAt {
    groups: Vec<GroupAt>,
    domain: Space,
}

impl LogLikelihood<Rank> for Likelihood {
    fn name(&self) -> String {
        Likelihood::name(self)
    }

    fn identity(&self, rank: &mut Rank) -> Result<Identity, InferenceError> {
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

    fn latent(&self, rank: &mut Rank) -> Result<Vector, InferenceError> {
        Ok(Vector::joined(&mut rank.recorder, self.domain())?)
    }

    fn data(&self, rank: &mut Rank) -> Result<Vector, InferenceError> {
        Ok(Vector::joined(&mut rank.recorder, self.data_space())?)
    }

    fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64, InferenceError> {
        let mut energy = 0.0;
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                energy += term.energy(rank, &values.part(term.domain(), "likelihood")?)?;
            }
        }
        Ok(energy)
    }

    fn energy_terms(&self, rank: &mut Rank, x: &Vector) -> Result<Option<EnergyTerms<Vector>>, InferenceError> {
        let mut vectors = Vec::new();
        for group in &self.groups {
            let values = group.values(rank, x)?;
            for term in &group.terms {
                vectors.push(term.energy_terms(rank, &values.part(term.domain(), "likelihood")?)?);
            }
        }
        Ok(Some(EnergyTerms { vectors, divisor: 1.0 }))
    }

    fn at<'a>(&'a self, rank: &mut Rank, x: &Vector) -> Result<Box<dyn LogLikelihoodAt<Rank> + 'a>, InferenceError> {
        let groups = self.groups.iter().map(|group| group.at(rank, x)).collect::<Result<_, _>>()?;
        Ok(Box::new(LikelihoodAt { groups, domain: self.domain.clone() }))
    }

    fn has_coordinates(&self) -> bool {
        self.terms().all(Term::has_coordinates)
    }

    fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<(Vector, u64)>, InferenceError> {
        let counts = self.terms().filter(|term| term.density.residual.is_some()).map(|term| term.density.count);
        Ok(Likelihood::normalized_residual(self, rank, x)?.map(|residual| (residual, counts.sum())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        Likelihood::degrees_of_freedom(self)
    }

    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        Likelihood::expected_chi_squared(self)
    }
}

impl LikelihoodAt {
    /// Computes the sum over groups of what `give` computes for the leaves of each.
    fn summed(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        mut give: impl FnMut(&mut Rank, &GroupAt, &mut Vector) -> Result<(), InferenceError>,
    ) -> Result<(), InferenceError> {
        self.domain.admits(out.space(), "likelihood")?;
        let parts: Vec<&Space> = self.groups.iter().map(|group| &group.domain).collect();
        summed(rank, &parts, out, |rank, number, out| give(rank, &self.groups[number], out))
    }

    fn terms(&self) -> impl Iterator<Item = &OneAt> {
        self.groups.iter().flat_map(|group| &group.terms)
    }
}

impl LogLikelihoodAt<Rank> for LikelihoodAt {
    fn energy(&self, rank: &mut Rank) -> Result<f64, InferenceError> {
        self.terms().map(|term| term.at.energy(rank)).sum()
    }

    fn energy_terms(&self, rank: &mut Rank) -> Result<Option<EnergyTerms<Vector>>, InferenceError> {
        let vectors = self.terms().map(|term| term.at.energy_terms(rank)).collect::<Result<_, _>>()?;
        Ok(Some(EnergyTerms { vectors, divisor: 1.0 }))
    }

    fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, group, out| {
            group.back(rank, out, |rank, number, out| Ok(group.terms[number].at.gradient(rank, out)?))
        })
    }

    fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, group, out| {
            let tangent = group.tangent(rank, v)?;
            group.back(rank, out, |rank, number, out| {
                let OneAt { domain, at, .. } = &group.terms[number];
                Ok(at.metric(rank, &tangent.part(domain, "likelihood")?, out)?)
            })
        })
    }

    fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, group, out| {
            group.back(rank, out, |rank, number, out| {
                let OneAt { data, at, .. } = &group.terms[number];
                Ok(at.left_sqrt(rank, &eta.part(data, "likelihood")?, out)?)
            })
        })
    }

    fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        for group in &self.groups {
            let tangent = group.tangent(rank, v)?;
            for OneAt { domain, data, at } in &group.terms {
                let mut part = out.part(data, "likelihood")?;
                at.right_sqrt(rank, &tangent.part(domain, "likelihood")?, &mut part)?;
            }
        }
        Ok(())
    }

    fn fields(&self, rank: &mut Rank) -> Result<Vec<Box<dyn FieldPreconditioner<Rank>>>, InferenceError> {
        let mut all: Vec<ExcitedModes> = Vec::new();
        for group in &self.groups {
            let excited = match &group.shared {
                Some(shared) => shared.excited(rank)?,
                None => group.terms.iter().map(|term| term.at.excited(rank)).collect::<Result<Vec<_>, _>>()?.concat(),
            };
            for modes in excited {
                if all.iter().all(|other| other.leaf != modes.leaf) {
                    all.push(modes);
                }
            }
        }
        let mut part = |modes: ExcitedModes| -> Result<Box<dyn FieldPreconditioner<Rank>>, InferenceError> {
            let ExcitedModes { leaf, mesh, amplitude } = modes;
            Ok(match amplitude {
                Some(amplitude) => Box::new(ModePreconditioner::new(leaf, &mesh, amplitude)?),
                None => Box::new(FilterPreconditioner::new(rank, leaf, &mesh)?),
            })
        };
        all.into_iter().map(&mut part).collect()
    }

    fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        for group in &self.groups {
            let own = x.part(&group.domain, "likelihood")?;
            let values = match &group.shared {
                Some(shared) => shared.model().value(rank, &own)?,
                None => own,
            };
            for OneAt { domain, data, at } in &group.terms {
                let own = values.part(domain, "likelihood")?;
                at.coordinates(rank, &own, &mut out.part(data, "likelihood")?)?;
            }
        }
        Ok(())
    }

    fn coordinates_about(
        &self,
        rank: &mut Rank,
        expansion: &dyn LogLikelihoodAt<Rank>,
        out: &mut Vector,
    ) -> Result<bool, InferenceError> {
        let expansion = expansion.model_value()?;
        for OneAt { data, at, .. } in self.terms() {
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

    fn model_value(&self) -> Result<Option<Vector>, InferenceError> {
        let values = self.terms().filter_map(|term| term.at.expansion_value());
        let values = values.map(|value| (value.space().clone(), value.contents().to_vec()));
        let (mut leaves, mut contents) = (Vec::new(), Vec::new());
        for (space, own) in values {
            leaves.extend(space.leaves().map(|(name, leaf)| (name.to_string(), leaf.clone())));
            contents.extend(own);
        }
        if leaves.is_empty() { Ok(None) } else { ordered(leaves, contents).map(Some) }
    }
}
