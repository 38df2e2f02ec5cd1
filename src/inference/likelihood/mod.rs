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

mod as_log_likelihood;
mod check;
mod data;
mod density;
mod energy;
mod local_root;
mod term;

use crate::gpu::KernelSource;
use crate::operators::{Fingerprint, Model, Space, Vector};
use crate::rank::Rank;

use super::error::InferenceError;
use super::identity::Identity;
use crate::host_memory;
pub use check::{MetricCheck, check_metric};
pub use data::{Data, NoiseLevel};
use density::{Density, Squares};
use term::{Term, TermAt};

/// The kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [energy::kernels(), local_root::kernels()].concat()
}

/// `-ln p(data | x)`, up to a constant, as a function of fields: of what a model says of the data, or by [`amend`](Self::amend) of what models are
/// functions of. All ranks call its methods together, in one order.
///
/// Energies are exact sums of two floats for each datum: as functions of the model's values, which are `f32`, they are good to some 10^-11 of
/// the sum of magnitudes, and the same for every number of ranks.
///
/// Cost of a metric application: the model's jvp and vjp; what the likelihood adds is part of the model's last pointwise step. A model of a correlated
/// field takes two transforms.
#[derive(Clone)]
pub struct Likelihood {
    terms: Vec<Term>,
    domain: Space,
    data: Space,
}

impl std::fmt::Debug for Likelihood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Likelihood of {}: {} -> {}", self.name(), self.domain, self.data)
    }
}

/// How well a data set is met.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSetReport {
    /// Its name.
    pub name: String,
    /// The mean of squares of its normalised residuals: 1 where the model and its noise are right, but for Student's t distribution ([`Likelihood::student_t`]).
    pub reduced_chi_squared: f64,
    /// The mean of its normalised residuals: 0 there.
    pub mean: f64,
    /// Data that count.
    pub count: u64,
}

/// Refuses counts that are none, exposures that are none, and counts without exposure.
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
        Likelihood { terms: vec![Term::new(density)], domain: space.clone(), data: space }
    }

    /// Data with Gaussian noise of known standard deviation around what a model says.
    ///
    /// # Errors
    /// [`InferenceError::Invalid`] for data of another shape than their places, numbers that are not finite, noise that is not positive, or if no
    /// datum counts.
    pub fn gaussian(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>) -> Result<Self, InferenceError> {
        Ok(Self::of(density::gaussian(rank, data, noise)?))
    }

    /// Counts of a rate, which a model says and which is positive. With an `exposure` of each place the model says the rate for an exposure of 1; counts where
    /// the exposure is 0 do not count.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian); for negative or broken counts, exposures that are negative or 0 where something was counted.
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

    /// Data around what a model says by Student's t distribution with `dof` degrees of freedom, which forgives outliers.
    ///
    /// Its normalised residuals are `sqrt((t + 1) / (t + 3)) (d - s) / sigma` for t degrees of freedom, as NIFTy has them. Where model and noise are right the mean of
    /// their squares is `(t + 1) / (t + 3) * t / (t - 2)` (2 for t = 3, 1.25 for t = 5), and infinite for t of 2 or less: there it grows with the number of data.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian); for degrees of freedom that are not positive.
    pub fn student_t(
        rank: &mut Rank,
        data: &Data<'_>,
        noise: NoiseLevel<'_>,
        dof: f64,
    ) -> Result<Self, InferenceError> {
        Ok(Self::of(density::student_t(rank, data, noise, dof)?))
    }

    /// Data with Gaussian noise whose inverse standard deviation the model says, too: its leaf has two components, mean and inverse standard deviation.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian).
    pub fn gaussian_inferred(rank: &mut Rank, data: &Data<'_>) -> Result<Self, InferenceError> {
        Ok(Self::of(density::gaussian_inferred(rank, data)?))
    }

    /// The same by Student's t distribution; the leaf has two components, mean and standard deviation.
    ///
    /// # Errors
    /// As [`student_t`](Self::student_t).
    pub fn student_t_inferred(rank: &mut Rank, data: &Data<'_>, dof: f64) -> Result<Self, InferenceError> {
        Ok(Self::of(density::student_t_inferred(rank, data, dof)?))
    }

    /// Classes, numbers from 0 on, of which the model says the logits: its leaf has a component for each of `classes`.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian); for less than two classes, or data that are none of them.
    pub fn categorical(rank: &mut Rank, data: &Data<'_>, classes: u32) -> Result<Self, InferenceError> {
        Ok(Self::of(density::categorical(rank, data, classes)?))
    }

    /// The likelihood of what `model` says, as a function of what the model is a function of. Of a [sum](Self::plus) each data set takes what it is a function of
    /// ([`Model::giving`]): a model that says it of several at once, and is not models side by side, is applied for each of them.
    ///
    /// # Errors
    /// [`InferenceError::Operators`] when the model says something else than the likelihood is a function of.
    pub fn amend(&self, model: &Model) -> Result<Self, InferenceError> {
        self.domain.admits(model.target(), &format!("likelihood of `{}`", self.name()))?;
        let amended = |term: &Term| term.amend(&model.giving(term.domain())?);
        let terms = self.terms.iter().map(amended).collect::<Result<Vec<_>, _>>()?;
        Ok(Likelihood { terms, domain: model.domain().clone(), data: self.data.clone() })
    }

    /// The likelihood of two independent data sets: the sum of both. It is a function of the leaves of both; leaves of one name are one.
    ///
    /// # Errors
    /// [`InferenceError::Operators`] for leaves of one name that differ; [`InferenceError::Invalid`] for data sets of one name.
    pub fn plus(&self, other: &Likelihood) -> Result<Self, InferenceError> {
        let domain = self.domain.joined(&other.domain, "sum of likelihoods")?;
        if let Some(name) = other.data.names().find(|name| self.data.position(name).is_some()) {
            let why = "two data sets have this name; give each its own".into();
            return Err(InferenceError::Invalid { what: format!("data `{name}`"), why });
        }
        let data = self.data.joined(&other.data, "sum of likelihoods")?;
        Ok(Likelihood { terms: [&self.terms[..], &other.terms].concat(), domain, data })
    }

    /// The names of its data sets.
    pub fn name(&self) -> String {
        self.terms.iter().map(|term| term.density.name.as_str()).collect::<Vec<_>>().join(" + ")
    }

    /// What it is a function of.
    pub fn domain(&self) -> &Space {
        &self.domain
    }

    /// Where noise lives: a leaf for each data set, with as many components as the model says numbers at a place.
    pub fn data_space(&self) -> &Space {
        &self.data
    }

    /// Data that count, of all data sets and ranks.
    pub fn degrees_of_freedom(&self) -> u64 {
        self.terms.iter().map(|term| term.density.count).sum()
    }

    /// Between what reduced chi-squared is for samples of the posterior where model and noise are right: a sample and the truth are then alike for the data, so it is 1
    /// to five standard errors `sqrt(2 / n)` for n data, and a factor of two beyond that is left to approximations. Counts may be rare, so nothing is too small
    /// for them. `None` with Student's t distribution, whose few outliers decide, and without residuals.
    pub fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        let terms: Vec<_> = self.terms.iter().map(|term| &term.density).filter(|one| one.residual.is_some()).collect();
        if terms.is_empty() || terms.iter().any(|one| one.squares == Squares::Wild) {
            return None;
        }
        let n: u64 = terms.iter().map(|one| one.count).sum();
        let error = 5.0 * (2.0 / n as f64).sqrt();
        let least = if terms.iter().any(|one| one.squares == Squares::Counts) { 0.0 } else { (1.0 - error).max(0.0) };
        Some([least / 2.0, 2.0 * (1.0 + error)])
    }

    /// Returns the fingerprints of its densities, data, masks, noise, latent values and models.
    ///
    /// Collective; blocks, and reads data and constants on the host.
    ///
    /// # Errors
    /// - [`InferenceError::Operators`], [`InferenceError::Device`] and [`InferenceError::Comm`] of the operators.
    pub fn identity(&self, rank: &mut Rank) -> Result<Identity, InferenceError> {
        let [mut density, mut data, mut mask, mut noise, mut latent, mut model] = [Fingerprint::new(); 6];
        latent.space(rank, &self.domain)?;
        for term in &self.terms {
            term.density.identify(rank, [&mut density, &mut data, &mut mask, &mut noise])?;
            term.identify(rank, &mut model)?;
        }
        let [density, data, mask, noise, latent, model] =
            [density, data, mask, noise, latent, model].map(Fingerprint::value);
        Ok(Identity { density, data, mask, noise, latent, model })
    }

    /// The energy. Waits for the device.
    ///
    /// # Errors
    /// [`InferenceError::NotFinite`]; what its work can fail with.
    pub fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64, InferenceError> {
        let mut energy = 0.0;
        for term in &self.terms {
            let own = x.part(term.domain(), "likelihood")?;
            energy += term.energy(rank, &own)?;
        }
        Ok(energy)
    }

    /// The derivatives at `x`, whose arrays must stay as they are while they live. Waits for exchanges between ranks only.
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<LikelihoodAt, InferenceError> {
        let mut at = |term: &Term| {
            let own = x.part(term.domain(), "likelihood")?;
            Ok::<_, InferenceError>((own.space().clone(), term.at(rank, &own)?))
        };
        let terms = self.terms.iter().map(&mut at).collect::<Result<_, _>>()?;
        Ok(LikelihoodAt {
            terms,
            data: self.terms.iter().map(|term| term.density.space.clone()).collect(),
            domain: self.domain.clone(),
        })
    }

    /// Data minus model over the standard deviation of noise, for each data set that has such: a leaf for each, one number at each place, 0 for what does
    /// not count. None if there is none.
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<Vector>, InferenceError> {
        let (mut leaves, mut contents) = (Vec::new(), Vec::new());
        for term in &self.terms {
            let Some(residual) = &term.density.residual else { continue };
            let signal = term.signal(rank, &x.part(term.domain(), "likelihood")?)?;
            let found = residual.value(rank, &signal)?;
            leaves.extend(found.space().leaves().map(|(_, leaf)| (term.density.name.clone(), leaf.clone())));
            contents.extend(found.contents().to_vec());
        }
        if leaves.is_empty() {
            return Ok(None);
        }
        // Leaves stand in the order of their names.
        let mut both: Vec<_> = leaves.into_iter().zip(contents).collect();
        both.sort_by(|a, b| a.0.0.cmp(&b.0.0));
        let (leaves, contents): (Vec<_>, Vec<_>) = both.into_iter().unzip();
        Ok(Some(Vector::over(&Space::new(leaves)?, contents)?))
    }

    /// How well each data set is met that has a residual. Waits for the device.
    ///
    /// # Errors
    /// [`InferenceError::Operators`] for residuals that are not finite; what its work can fail with.
    pub fn report(&self, rank: &mut Rank, x: &Vector) -> Result<Vec<DataSetReport>, InferenceError> {
        let mut reports = Vec::new();
        for term in &self.terms {
            let Some(residual) = &term.density.residual else { continue };
            let signal = term.signal(rank, &x.part(term.domain(), "likelihood")?)?;
            let found = residual.value(rank, &signal)?;
            let squares = rank.vector_dot(&found, &found)?;
            let array = found.single()?;
            let Some((_, leaf)) = found.space().only() else { continue };
            let terms =
                crate::exchange::Terms { x: array, y: None, index: None, sums: 1, batches: 1, total: leaf.total() };
            let sum = rank.exact_sums();
            let (recorder, comm) = (&mut rank.recorder, &rank.comm);
            let sum = sum.value(recorder, leaf.is_distributed().then_some(comm), &terms)?;
            let count = term.density.count;
            let (reduced_chi_squared, mean) = (squares / count as f64, sum / count as f64);
            reports.push(DataSetReport { name: term.density.name.clone(), reduced_chi_squared, mean, count });
        }
        Ok(reports)
    }
}

/// The derivatives of a [`Likelihood`] at a point. With the Jacobian J of the model and the Fisher metric F of the data, `J^T sqrt(F)` is the left square
/// root of the metric `J^T F J`.
///
/// Methods record their work, and wait for exchanges between ranks only, but for the energy.
pub struct LikelihoodAt {
    /// With what each is a function of.
    terms: Vec<(Space, TermAt)>,
    /// Where the noise of each lives.
    data: Vec<Space>,
    domain: Space,
}

impl std::fmt::Debug for LikelihoodAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LikelihoodAt({})", self.domain)
    }
}

impl LikelihoodAt {
    /// Computes coordinates of what the model says at `x`, in the [`data_space`](Likelihood::data_space). Their derivative
    /// at the point of the derivatives is the right square root of the metric.
    ///
    /// # Errors
    /// [`InferenceError::NoTransformation`] if a data set has no coordinates; what its work can fail with.
    pub fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        for ((own, term), data) in self.terms.iter().zip(&self.data) {
            let own = x.part(own, "likelihood")?;
            let mut own_out = out.part(data, "likelihood")?;
            term.coordinates(rank, &own, &mut own_out)?;
        }
        Ok(())
    }

    /// The energy. Waits for the device.
    ///
    /// # Errors
    /// As [`Likelihood::energy`].
    pub fn energy(&self, rank: &mut Rank) -> Result<f64, InferenceError> {
        self.terms.iter().map(|(_, term)| term.energy(rank)).sum()
    }

    /// `out` = the sum over the terms of what each gives of its own leaves.
    fn summed(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        mut give: impl FnMut(&mut Rank, usize, &mut Vector) -> Result<(), InferenceError>,
    ) -> Result<(), InferenceError> {
        self.domain.admits(out.space(), "likelihood")?;
        if let [(own, _)] = &self.terms[..]
            && own.len() == self.domain.len()
        {
            return give(rank, 0, out);
        }
        let zeros = Vector::zeros(&mut rank.recorder, &self.domain)?;
        out.copy_from(&mut rank.recorder, &zeros)?;
        for (number, (own, _)) in self.terms.iter().enumerate() {
            let mut found = Vector::new(&rank.gpu, own)?;
            give(rank, number, &mut found)?;
            let mut part = out.part(own, "likelihood")?;
            rank.vector_axpby(1.0, &found, 1.0, &mut part)?;
            out.put(part);
        }
        Ok(())
    }

    /// `out` = the gradient of the energy.
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, number, out| Ok(self.terms[number].1.gradient(rank, out)?))
    }

    /// `out` = the metric times `v`.
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, number, out| {
            let (own, term) = &self.terms[number];
            Ok(term.metric(rank, &v.part(own, "likelihood")?, out)?)
        })
    }

    /// `out` = the left square root times `eta`, a field of the [`data_space`](Likelihood::data_space).
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        self.summed(rank, out, |rank, number, out| {
            let eta = eta.part(&self.data[number], "likelihood")?;
            Ok(self.terms[number].1.left_sqrt(rank, &eta, out)?)
        })
    }

    /// `out` = the right square root times `v`, in the [`data_space`](Likelihood::data_space).
    ///
    /// # Errors
    /// What its work can fail with.
    pub fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        for ((own, term), data) in self.terms.iter().zip(&self.data) {
            let mut part = out.part(data, "likelihood")?;
            term.right_sqrt(rank, &v.part(own, "likelihood")?, &mut part)?;
        }
        Ok(())
    }
}
