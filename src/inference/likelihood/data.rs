//! Data: numbers at places, of which some may be missing.

use crate::comm::Op;
use crate::inference::error::InferenceError;
use crate::operators::{Contents, Field, Leaf, Space, Worker};

/// Data of this rank.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// What reports and the space of excitations call it.
    pub name: &'a str,
    /// Where the data are: one real number at each place.
    pub leaf: &'a Leaf,
    /// The numbers of this rank, as the leaf says.
    pub values: &'a [f64],
    /// Which of them count. What does not count may be anything, NaN too.
    pub mask: Option<&'a [bool]>,
}

impl Data<'_> {
    pub(super) fn fault<T>(&self, why: impl Into<String>) -> Result<T, InferenceError> {
        Err(InferenceError::Invalid { what: format!("data `{}`", self.name), why: why.into() })
    }

    /// Whether a datum counts.
    pub(super) fn counts(&self, at: usize) -> bool {
        self.mask.is_none_or(|mask| mask[at])
    }

    /// Refuses data of another shape than places, and numbers that count and are not what `wanted` says.
    pub(super) fn check(&self, wanted: &str, sound: impl Fn(f64) -> bool) -> Result<(), InferenceError> {
        let places = self.leaf.places();
        if self.leaf.numbers() != 1 || self.leaf.fields() != 1 {
            return self.fault(format!("they are {}; data are one real number at each place", self.leaf));
        }
        self.of_places("data", self.values.len())?;
        if let Some(mask) = self.mask {
            self.of_places("entries of the mask", mask.len())?;
        }
        match (0..places as usize)
            .find(|&at| self.counts(at) && !(self.values[at].is_finite() && sound(self.values[at])))
        {
            Some(at) => {
                let why = format!("number {at} is {}; {wanted}, or mask it", self.values[at]);
                self.fault(why)
            }
            None => Ok(()),
        }
    }

    /// Refuses another number of `what` than places.
    pub(super) fn of_places(&self, what: &str, found: usize) -> Result<(), InferenceError> {
        let places = self.leaf.places();
        if found as u64 == places {
            return Ok(());
        }
        self.fault(format!("{found} {what} for {places} places, {}; give one for each", self.leaf))
    }

    /// How many count on all ranks, who all call it.
    pub(super) fn total(&self, worker: &Worker<'_>) -> Result<u64, InferenceError> {
        let mut total = [(0..self.values.len()).filter(|&at| self.counts(at)).count() as u64];
        if self.leaf.is_distributed() {
            worker.comm().all_reduce(&mut total, Op::Sum)?;
        }
        if total[0] == 0 {
            return self.fault("none of them counts; unmask some");
        }
        Ok(total[0])
    }

    /// A field of numbers at the places of the data, 0 where they do not count. Submits what was recorded before.
    pub(super) fn field(
        &self,
        worker: &mut Worker<'_>,
        name: &str,
        value: impl Fn(usize) -> f64,
    ) -> Result<Field, InferenceError> {
        let values: Vec<f32> =
            (0..self.values.len()).map(|at| if self.counts(at) { value(at) as f32 } else { 0.0 }).collect();
        let array = worker.gpu().array("inference::data", values.len() as u64)?;
        worker.context.recorder.upload(&array, 0, &values)?;
        Ok(Field::over(&Space::of(name, self.leaf.clone())?, vec![Contents::Device(array)])?)
    }
}

/// The standard deviation of noise.
#[derive(Clone, Copy, Debug)]
pub enum NoiseLevel<'a> {
    /// The same for all data.
    Uniform(f64),
    /// One for each datum of this rank.
    Each(&'a [f64]),
}
