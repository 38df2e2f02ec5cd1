//! Data at places, of which some may be missing, and their density as a function of the values of a
//! model.

use crate::comm::Op;
use crate::gpu::{Kernel, KernelSource, TWO_FLOATS};
use crate::host_memory;
use crate::inference::error::{InferenceError, Result};
use crate::operators::{
    Contents, Fingerprint, Leaf, Model, OperatorError, PointwiseOperator, Space, Vector, VectorSum,
};
use crate::rank::Rank;

/// Data of this rank.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Name in reports and in the space of the noise.
    pub name: &'a str,
    /// Places of the data, with one real number at each, and one for each field of a batch.
    pub leaf: &'a Leaf,
    /// Values of this rank, in the order of the leaf: for cells, C order over the own cells.
    pub values: &'a [f64],
    /// Which values count; the others may be anything, even NaN. `None`: all.
    pub mask: Option<&'a [bool]>,
}

impl Data<'_> {
    fn fault<T>(&self, why: impl Into<String>) -> Result<T> {
        Err(InferenceError::Invalid { what: format!("data `{}`", self.name), why: why.into() })
    }

    /// Returns `true` if a datum counts.
    pub(super) fn counts(&self, at: usize) -> bool {
        self.mask.is_none_or(|mask| mask[at])
    }

    /// Refuses another number of data than places, and values that count but are not `sound`.
    pub(super) fn check(&self, wanted: &str, sound: impl Fn(f64) -> bool) -> Result<(), String> {
        if self.leaf.numbers() != 1 || self.leaf.components != 1 {
            return Err(format!("they are {}; data are one real number at each place", self.leaf));
        }
        self.check_len("data", self.values.len())?;
        if let Some(mask) = self.mask {
            self.check_len("entries of the mask", mask.len())?;
        }
        let sound = |at: usize| self.values[at].is_finite() && sound(self.values[at]);
        match (0..self.values.len()).find(|&at| self.counts(at) && !sound(at)) {
            Some(at) => Err(format!("number {at} is {}; {wanted}, or mask it", self.values[at])),
            None => Ok(()),
        }
    }

    /// Refuses another number of `what` than places.
    pub(super) fn check_len(&self, what: &str, found: usize) -> Result<(), String> {
        let places = self.leaf.entries();
        if found as u64 == places {
            return Ok(());
        }
        Err(format!("{found} {what} for {places} places, {}; give one for each", self.leaf))
    }

    /// Returns the number of data that count on all ranks; refuses the faults of any rank.
    /// Collective.
    pub(super) fn total(&self, rank: &Rank, checked: Result<(), String>) -> Result<u64> {
        let mut fault = checked.err();
        if self.leaf.is_distributed() {
            fault = rank.comm.first_fault(fault.as_deref())?;
        }
        if let Some(why) = fault {
            return self.fault(why);
        }
        let mut total = [(0..self.values.len()).filter(|&at| self.counts(at)).count() as u64];
        if self.leaf.is_distributed() {
            rank.comm.all_reduce(&mut total, Op::Sum)?;
        }
        if total[0] == 0 {
            return self.fault("none of them counts; unmask some");
        }
        Ok(total[0])
    }

    /// Uploads values at the places of the data; `missing` where they do not count.
    pub(super) fn field(
        &self,
        rank: &mut Rank,
        (name, missing): (&str, f32),
        value: impl Fn(usize) -> f64,
    ) -> Result<Vector> {
        let values = (0..self.values.len()).map(|at| if self.counts(at) { value(at) as f32 } else { missing });
        let array = rank.recorder.uploaded("inference::data", &host_memory::collect("data", values)?)?;
        Ok(Vector::over(&Space::of(name, self.leaf.clone())?, vec![Contents::Device(array)])?)
    }
}

/// The standard deviation of noise.
#[derive(Clone, Copy, Debug)]
pub enum NoiseLevel<'a> {
    /// One value for all data.
    Uniform(f64),
    /// One value for each datum of this rank.
    Each(&'a [f64]),
}

impl NoiseLevel<'_> {
    /// Refuses standard deviations of data that count unless they and their inverses are positive
    /// in f32.
    pub(super) fn check(self, data: &Data<'_>) -> Result<(), String> {
        let sound = |sigma: f64| sigma.is_finite() && sigma > 0.0 && ((1.0 / sigma) as f32).is_normal();
        match self {
            NoiseLevel::Uniform(sigma) if !sound(sigma) => Err(format!(
                "noise of standard deviation {sigma:e}; it must be positive, with an inverse in the range of f32"
            )),
            NoiseLevel::Uniform(_) => Ok(()),
            NoiseLevel::Each(sigmas) => {
                data.check_len("standard deviations of noise", sigmas.len())?;
                match (0..sigmas.len()).find(|&at| data.counts(at) && !sound(sigmas[at])) {
                    Some(at) => Err(format!(
                        "noise of number {at} has the standard deviation {:e}; it must be positive, with an inverse in the range of f32, or mask it",
                        sigmas[at]
                    )),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Data on the device with their weights.
pub(super) struct Weighted {
    pub data: Vector,
    pub weights: Option<Vector>,
    pub uniform: f64,
    /// Data that count, on all ranks.
    pub count: u64,
}

impl Weighted {
    /// Creates weights of 1 over the standard deviation of the noise, and 0 for data that do not
    /// count. Collective.
    pub fn new(rank: &mut Rank, data: &Data<'_>, noise: NoiseLevel<'_>, checked: Result<(), String>) -> Result<Self> {
        let count = data.total(rank, checked.and_then(|()| noise.check(data)))?;
        let (weights, uniform) = match noise {
            NoiseLevel::Uniform(sigma) => {
                (data.mask.map(|_| data.field(rank, ("weight", 0.0), |_| 1.0 / sigma)).transpose()?, 1.0 / sigma)
            }
            NoiseLevel::Each(sigmas) => (Some(data.field(rank, ("weight", 0.0), |at| 1.0 / sigmas[at])?), 1.0),
        };
        Ok(Weighted { data: data.field(rank, ("data", 0.0), |at| data.values[at])?, weights, uniform, count })
    }

    /// Returns the function `name` of the leaves of `space`, and of `data` and `weight` if its body
    /// uses them, as the leaf `target`.
    pub fn function(
        &self,
        (space, target): (&Space, &str),
        name: &str,
        [given, result]: [&str; 2],
        body: &str,
    ) -> Result<Model, OperatorError> {
        let uses_data = body.contains("data");
        let weights = self.weights.as_ref().filter(|_| body.contains("weight"));
        let constants: Vec<&Vector> = uses_data.then_some(&self.data).into_iter().chain(weights).collect();
        let arguments: String =
            constants.iter().flat_map(|field| field.space().names()).map(|name| format!(", {name}: f32")).collect();
        let fixed = if self.weights.is_none() {
            format!("let weight = f32({:?}); ", self.uniform as f32)
        } else {
            String::new()
        };
        let text = format!("fn {name}({given}{arguments}) -> {result} {{ {fixed}return {body}; }}");
        let all = constants.iter().flat_map(|field| field.space().leaves());
        let all = Space::new(all.map(|(name, leaf)| (name, leaf.clone())))?;
        let arrays = constants.iter().flat_map(|field| field.contents().to_vec()).collect::<Vec<Contents>>();
        let constants = Vector::over(&all, arrays)?;
        Ok(Model::new(PointwiseOperator::wgsl_with(&text, name, space, &constants, target)?))
    }
}

crate::gpu::kernel_params! {
    struct EnergyParams {
        count: u32,
        classes: u32,
        dof: f32,
        weight: f32,
        /// Always 0; a parameter so that the compiler does not fold it.
        nothing: u32,
    }
}

/// Kinds of likelihoods, by the flags of the kernel.
const KINDS: [&str; 6] = ["gaussian", "poisson", "student", "gaussian_inferred", "student_inferred", "categorical"];

fn source(kind: &str, weighted: bool) -> KernelSource {
    let text = KernelSource::new("inference::energy", include_str!("../../../shaders/inference/energy.wgsl"))
        .params::<EnergyParams>()
        .module("gpu::two_floats", TWO_FLOATS)
        .flag("weighted", weighted);
    KINDS.into_iter().fold(text, |text, flag| text.flag(flag, flag == kind))
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    KINDS.into_iter().flat_map(|kind| [false, true].map(|weighted| source(kind, weighted))).collect()
}

/// A density of data. Its domain and the space of its noise are one leaf with the name of the data.
pub(super) struct Density {
    pub name: String,
    pub space: Space,
    /// Places of the data.
    leaf: Leaf,
    params: EnergyParams,
    kernel: Kernel,
    pub functions: Functions,
    /// Distribution of the squares for a right model.
    pub squares: Squares,
    /// The kind of density with its settings.
    pub kind: String,
    pub weighted: Weighted,
    /// Exposures of counts.
    pub exposure: Option<Vector>,
}

/// Functions of the values of a model.
pub(super) struct Functions {
    /// The gradient of the energy.
    pub score: Box<Score>,
    /// The derivative is the right square root of the metric; the value may not exist.
    pub root: Model,
    /// Coordinates whose derivative is the right square root of the metric.
    pub coordinates: Option<Coordinates>,
    /// Data minus model over the standard deviation of noise.
    pub residual: Option<Model>,
}

/// Records the gradient of an energy at a vector in another one.
pub(super) type Score = dyn Fn(&mut Rank, &Vector, &mut Vector) -> Result<(), OperatorError>;

/// Coordinates of the values of a model, along which samples are curved.
#[derive(Clone)]
pub(super) enum Coordinates {
    /// A function whose derivative is the right square root of the metric everywhere.
    Fixed(Model),
    /// A function of the leaves [`EXPANSION`] and [`SIGNAL`]. The derivative by the signal is the
    /// right square root where the two are equal.
    About(Model),
}

/// Leaves of the values of the model at the expansion point and elsewhere, in order of names.
pub(super) const EXPANSION: &str = "expansion";
pub(super) const SIGNAL: &str = "signal";

impl Density {
    /// Creates the density of a kind with a setting: degrees of freedom or the number of classes.
    pub fn new(
        data: &Data<'_>,
        (kind, setting): (&str, f64),
        space: Space,
        weighted: Weighted,
        functions: Functions,
    ) -> Self {
        let classes = space.only().map_or(1, |(_, leaf)| leaf.components);
        let (count, weight) = (data.leaf.entries() as u32, weighted.uniform as f32);
        Density {
            name: data.name.into(),
            leaf: data.leaf.clone(),
            params: EnergyParams { count, classes, dof: setting as f32, weight, nothing: 0 },
            kernel: Kernel::trusted(source(kind, weighted.weights.is_some())),
            space,
            functions,
            squares: Squares::of(kind),
            kind: format!("{kind} {setting}"),
            weighted,
            exposure: None,
        }
    }

    /// Writes the density, its data, mask and noise into fingerprints. Collective.
    pub fn identify(&self, rank: &mut Rank, [density, data, mask, noise]: [&mut Fingerprint; 4]) -> Result<()> {
        density.text(&self.name);
        density.text(&self.kind);
        let Weighted { data: values, weights, uniform, .. } = &self.weighted;
        data.field(rank, values)?;
        let Some((_, leaf)) = values.space().only() else { return Ok(()) };
        let weights = match weights {
            Some(weights) => {
                let weights = weights.single()?;
                rank.recorder.download(weights, 0, weights.len())?
            }
            None => vec![*uniform as f32; leaf.entries() as usize],
        };
        let counts: Vec<u32> = weights.iter().map(|weight| u32::from(*weight != 0.0)).collect();
        mask.words(rank, leaf, &counts)?;
        noise.words(rank, leaf, bytemuck::cast_slice(&weights))?;
        Ok(self.exposure.as_ref().map_or(Ok(()), |exposure| noise.field(rank, exposure))?)
    }

    /// Returns the terms whose sum is the energy for values of the model. Records only.
    ///
    /// For each datum the kernel reads 8 bytes and the values of the model, and writes 8; the sum
    /// reads 16.
    pub fn energy_terms(&self, rank: &mut Rank, signal: &Vector) -> Result<Vector, OperatorError> {
        let terms = Vector::new(&rank.gpu, &Space::of("energy", self.leaf.clone().components(2))?)?;
        let Weighted { data, weights, .. } = &self.weighted;
        let vectors = [signal, data].into_iter().chain(weights).chain([&terms]);
        let arrays = vectors.map(|vector| Ok(vector.single()?.raw())).collect::<Result<Vec<_>, OperatorError>>()?;
        rank.recorder.each(&self.kernel, &arrays, &self.params, self.leaf.entries())?;
        Ok(terms)
    }

    /// Computes the energy for values of the model. Collective; blocks.
    pub fn energy(&self, rank: &mut Rank, signal: &Vector) -> Result<f64> {
        let terms = self.energy_terms(rank, signal)?;
        match rank.vector_reductions(&[VectorSum::Values(&terms)]) {
            Ok(found) => Ok(found[0]),
            Err(OperatorError::NotFinite { value, .. }) => {
                InferenceError::finite(&format!("the energy of `{}`", self.name), value)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The distribution of the squares of residuals for a right model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Squares {
    /// Squares of standard normal numbers.
    Normal,
    /// Mean 1, but far below it for rare counts.
    Counts,
    /// A few outliers decide the mean.
    Wild,
}

impl Squares {
    fn of(kind: &str) -> Self {
        match kind {
            "gaussian" | "gaussian_inferred" => Squares::Normal,
            "poisson" => Squares::Counts,
            _ => Squares::Wild,
        }
    }
}
