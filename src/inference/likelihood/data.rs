//! Data at places, of which some may be missing.

use crate::comm::Op;
use crate::gpu::Array;
use crate::host_memory;
use crate::inference::error::{InferenceError, Result};
use crate::operators::{Contents, Leaf, Model, OperatorError, PointwiseOperator, Space, Vector};
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

    /// Uploads values at the places of the data; 0 where they do not count.
    pub(super) fn field(&self, rank: &mut Rank, name: &str, value: impl Fn(usize) -> f64) -> Result<Vector> {
        let values = (0..self.values.len()).map(|at| if self.counts(at) { value(at) as f32 } else { 0.0 });
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
    /// Creates weights of 1, and 0 for data that do not count. Collective.
    pub fn masked(rank: &mut Rank, data: &Data<'_>, checked: Result<(), String>) -> Result<Self> {
        let count = data.total(rank, checked)?;
        let weights = data.mask.map(|_| data.field(rank, "weight", |_| 1.0)).transpose()?;
        Ok(Weighted { data: data.field(rank, "data", |at| data.values[at])?, weights, uniform: 1.0, count })
    }

    /// Creates weights of 1 over the standard deviation of the noise. Collective.
    pub fn by_noise(
        rank: &mut Rank,
        data: &Data<'_>,
        noise: NoiseLevel<'_>,
        checked: Result<(), String>,
    ) -> Result<Self> {
        let count = data.total(rank, checked.and_then(|()| noise.check(data)))?;
        let (weights, uniform) = match noise {
            NoiseLevel::Uniform(sigma) => {
                (data.mask.map(|_| data.field(rank, "weight", |_| 1.0 / sigma)).transpose()?, 1.0 / sigma)
            }
            NoiseLevel::Each(sigmas) => (Some(data.field(rank, "weight", |at| 1.0 / sigmas[at])?), 1.0),
        };
        Ok(Weighted { data: data.field(rank, "data", |at| data.values[at])?, weights, uniform, count })
    }

    /// Returns the arrays of the data and of their weights.
    pub fn arrays(&self) -> Result<(Array<f32>, Option<Array<f32>>), OperatorError> {
        let weights = self.weights.as_ref().map(|weights| weights.single().cloned()).transpose()?;
        Ok((self.data.single()?.clone(), weights))
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
