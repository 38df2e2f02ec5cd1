//! Vectors: the values of a space on one rank.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Leaf, OperatorError, Result, Space, Support, refuse};
use crate::fft::Values;
use crate::field::Field;
use crate::gpu::{self, Array, DeviceError, Gpu, Recorder};
use crate::host_memory;

/// Numbers at whose multiples a leaf of a [joined](Vector::joined) vector begins.
pub(crate) const PART_BEGINS: u64 = 64;

/// The values of one leaf.
#[derive(Clone, Debug)]
pub enum Contents {
    /// An array on the device: all fields of the batch, each with all components in turn; complex
    /// numbers are pairs.
    Device(Array<f32>),
    /// Parameters on the host.
    Host(Vec<f64>),
}

impl Contents {
    /// Returns the array on the device.
    pub(crate) fn on_device(&self) -> Option<&Array<f32>> {
        match self {
            Contents::Device(array) => Some(array),
            Contents::Host(_) => None,
        }
    }

    /// Returns the parameters on the host.
    pub(crate) fn on_host(&self) -> Option<&[f64]> {
        match self {
            Contents::Host(values) => Some(values),
            Contents::Device(_) => None,
        }
    }
}

/// The values of a space on one rank. Clones share arrays and copy parameters.
#[derive(Clone, Debug)]
pub struct Vector {
    space: Space,
    contents: Vec<Contents>,
}

/// Returns parameters of 0.
fn on_the_host(leaf: &Leaf) -> Result<Contents, DeviceError> {
    gpu::on_host("parameters")?;
    Ok(Contents::Host(host_memory::zeros("parameters", leaf.len() as usize)?))
}

impl Vector {
    /// Creates a vector with undefined values; parameters are 0.
    ///
    /// # Errors
    /// - [`DeviceError::OutOfMemory`] or [`DeviceError::TooLong`] if an array cannot be allocated.
    pub fn new(gpu: &Gpu, space: &Space) -> Result<Self, DeviceError> {
        let contents = space.leaves().map(|(name, leaf)| match leaf.support {
            Support::Parameters { .. } => on_the_host(leaf),
            _ => Ok(Contents::Device(gpu.array(&format!("operators::{name}"), leaf.len())?)),
        });
        Ok(Vector { space: space.clone(), contents: contents.collect::<Result<_, DeviceError>>()? })
    }

    /// Creates a vector of zeros; records only.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn zeros(recorder: &mut Recorder, space: &Space) -> Result<Self, DeviceError> {
        let vector = Vector::joined(recorder, space)?;
        vector.runs(&[], |_| true).into_iter().flatten().for_each(|run| recorder.clear(&run));
        Ok(vector)
    }

    /// Creates a vector with undefined values. Its leaves on the device are parts of one array, so
    /// one kernel updates or sums all of them. Leaves that all ranks have come first, from short to
    /// long, then the distributed ones, whose lengths are often multiples of four. The padding
    /// between leaves is 0. Records only.
    ///
    /// If one binding cannot hold them it is the same as [`new`](Self::new), which has the same
    /// errors.
    pub(crate) fn joined(recorder: &mut Recorder, space: &Space) -> Result<Self, DeviceError> {
        let mut order: Vec<(usize, &Leaf)> = space.leaves().map(|(_, leaf)| leaf).enumerate().collect();
        order.retain(|(_, leaf)| !leaf.is_on_host());
        order.sort_by_key(|(_, leaf)| if leaf.is_distributed() { (1, 0) } else { (0, leaf.len()) });
        let padded = |leaf: &Leaf| leaf.len().next_multiple_of(PART_BEGINS);
        let len = order.iter().map(|(_, leaf)| padded(leaf)).fold(0, u64::saturating_add);
        if order.len() < 2 || len > recorder.gpu().capabilities().window_bytes / 4 {
            return Vector::new(recorder.gpu(), space);
        }
        let whole: Array<f32> = recorder.gpu().array("operators::vector", len)?;
        let (mut arrays, mut start, mut unset) = (BTreeMap::new(), 0, Vec::<Range<u64>>::new());
        for (place, leaf) in order {
            let (first, end) = (start, start + leaf.len());
            start += padded(leaf);
            arrays.insert(place, whole.range(first..end));
            // Short leaves are cleared with their padding, by one command.
            let is_short = leaf.len() < PART_BEGINS;
            match unset.last_mut() {
                Some(last) if is_short && last.end == first && last.start.is_multiple_of(PART_BEGINS) => {
                    last.end = start
                }
                _ => unset.push(if is_short { first..start } else { end..start }),
            }
        }
        unset.into_iter().filter(|range| !range.is_empty()).for_each(|range| recorder.clear(&whole.range(range)));
        let contents = space.leaves().enumerate().map(|(place, (_, leaf))| match arrays.remove(&place) {
            Some(array) => Ok(Contents::Device(array)),
            None => on_the_host(leaf),
        });
        let contents = contents.collect::<Result<_, DeviceError>>()?;
        Ok(Vector { space: space.clone(), contents })
    }

    /// Creates a vector over arrays, in the order of the names.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the length of an array differs from that of its leaf.
    pub fn over(space: &Space, contents: Vec<Contents>) -> Result<Self> {
        const WHAT: &str = "Vector::over";
        if contents.len() != space.len() {
            return refuse(WHAT, format!("{} arrays for a space of {} leaves", contents.len(), space.len()));
        }
        for ((name, leaf), contents) in space.leaves().zip(&contents) {
            let (len, on_host) = match contents {
                Contents::Device(array) => (array.len(), false),
                Contents::Host(values) => (values.len() as u64, true),
            };
            if len != leaf.len() || on_host != leaf.is_on_host() {
                let place = if on_host { "the host" } else { "the device" };
                let why = format!("{len} numbers on {place} are given for {leaf}, which is {} numbers", leaf.len());
                return Err(OperatorError::Fit { operator: WHAT.into(), leaf: name.into(), why });
            }
        }
        Ok(Vector { space: space.clone(), contents })
    }

    /// Returns the space.
    #[must_use]
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the values, in the order of the names.
    #[must_use]
    pub fn contents(&self) -> &[Contents] {
        &self.contents
    }

    /// Returns the arrays on the device of this vector and of `others`, vectors of the same space:
    /// lists with an array of each, where neighboring leaves of [joined](Self::joined) vectors are
    /// one array with their padding. Leaves without numbers are left out, and those that `keeps`
    /// does not keep.
    pub(crate) fn runs(&self, others: &[&Vector], keeps: impl Fn(&Leaf) -> bool) -> Vec<Vec<Array<f32>>> {
        let arrays = |place: usize| {
            let of = |vector: &&Vector| vector.contents[place].on_device().cloned();
            std::iter::once(&self).chain(others).map(of).collect::<Option<Vec<_>>>()
        };
        let places = self.space.leaves().enumerate().filter(|(_, (_, leaf))| !leaf.is_empty() && keeps(leaf));
        let mut leaves: Vec<Vec<Array<f32>>> = places.filter_map(|(place, _)| arrays(place)).collect();
        leaves.sort_by_key(|arrays| arrays[0].raw().start());
        let mut runs: Vec<Vec<Array<f32>>> = Vec::new();
        for arrays in leaves {
            let joined = |last: &Vec<Array<f32>>| {
                let pairs = last.iter().zip(&arrays);
                let pairs = pairs.map(|(last, next)| last.raw().followed_by(next.raw()).map(Array::new));
                pairs.collect::<Option<Vec<_>>>()
            };
            match runs.last().and_then(joined) {
                Some(joined) => _ = runs.last_mut().map(|last| *last = joined),
                None => runs.push(arrays),
            }
        }
        runs
    }

    pub(crate) fn contents_mut(&mut self) -> &mut [Contents] {
        &mut self.contents
    }

    /// Returns the numbers of all leaves on the device, one leaf after the other. Waits once.
    pub(crate) fn download(&self, recorder: &mut Recorder) -> Result<Vec<f32>, DeviceError> {
        let arrays: Vec<&Array<f32>> = self.contents.iter().filter_map(Contents::on_device).collect();
        if let [only] = arrays[..] {
            return recorder.download(only, 0, only.len());
        }
        let staged = recorder.gpu().array("operators::staged", arrays.iter().map(|array| array.len()).sum())?;
        let mut at = 0;
        for array in arrays {
            recorder.copy(array, 0, &staged, at, array.len())?;
            at += array.len();
        }
        recorder.download(&staged, 0, at)
    }

    /// Writes the numbers of all leaves on the device, one leaf after the other, by one upload.
    pub(crate) fn upload(&self, recorder: &mut Recorder, numbers: &[f32]) -> Result<(), DeviceError> {
        let arrays: Vec<&Array<f32>> = self.contents.iter().filter_map(Contents::on_device).collect();
        if let [only] = arrays[..] {
            return recorder.upload(only, 0, numbers);
        }
        let (staged, mut at) = (recorder.uploaded("operators::staged", numbers)?, 0);
        for array in arrays {
            recorder.copy(&staged, at, array, 0, array.len())?;
            at += array.len();
        }
        Ok(())
    }

    /// Returns the leaves below `branch`, which share their arrays.
    #[must_use]
    pub fn under(&self, branch: &str) -> Vector {
        let space = self.space.under(branch);
        let contents = space.names().filter_map(|name| self.space.position(name)).map(|at| self.contents[at].clone());
        Vector { contents: contents.collect(), space }
    }

    fn leaf(&self, name: &str) -> Option<&Contents> {
        self.space.position(name).map(|at| &self.contents[at])
    }

    /// Returns the array of a leaf.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf on the device has this name.
    pub fn array(&self, name: &str) -> Result<&Array<f32>> {
        let array = self.leaf(name).and_then(Contents::on_device);
        array.ok_or_else(|| OperatorError::missing("Vector::array", name, &self.space))
    }

    /// Creates a vector of one leaf for each named field, which shares its array.
    ///
    /// # Errors
    /// - [`OperatorError::Space`] if a name is empty or repeated.
    pub fn of_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Field)>) -> Result<Self> {
        let fields: Vec<(&str, &Field)> = fields.into_iter().collect();
        let leaf = |field: &Field| Leaf::cells(field.mesh()).components(field.components() as u32);
        let space = Space::new(fields.iter().map(|(name, field)| (*name, leaf(field))))?;
        let array =
            |name: &str| fields.iter().find(|(other, _)| *other == name).map(|(_, field)| field.array().clone());
        Vector::over(&space, space.names().filter_map(array).map(Contents::Device).collect())
    }

    /// Returns the values of a real leaf at cells as a field, which shares the array. The fields of
    /// a batch and their components are the components of the field, in this order.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf on the device has this name.
    /// - [`OperatorError::Invalid`] if the leaf is complex or not at cells.
    pub fn field(&self, name: &str) -> Result<Field> {
        const WHAT: &str = "Vector::field";
        let array = self.array(name)?;
        match self.space.leaf(name) {
            Some(leaf @ Leaf { support: Support::Cells { mesh }, values: Values::Real, .. }) => {
                let field = Field::from_array(mesh, array.clone(), leaf.fields());
                field.map_err(|error| OperatorError::failed(WHAT, error))
            }
            _ => refuse(WHAT, format!("expected real cells, leaf `{name}` of {}", self.space)),
        }
    }

    /// Returns the array of the only leaf.
    pub(crate) fn single(&self) -> Result<&Array<f32>> {
        match &self.contents[..] {
            [Contents::Device(array)] => Ok(array),
            _ => refuse("Vector", format!("{} is not one leaf on the device", self.space)),
        }
    }

    /// Returns the parameters of a leaf.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf on the host has this name.
    pub fn parameters(&self, name: &str) -> Result<&[f64]> {
        let values = self.leaf(name).and_then(Contents::on_host);
        values.ok_or_else(|| OperatorError::missing("Vector::parameters", name, &self.space))
    }

    /// Sets the values of this rank of a leaf; values on the device are rounded to f32. Submits.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf has this name, or for another number of values.
    pub fn set(&mut self, recorder: &mut Recorder, name: &str, values: &[f64]) -> Result<()> {
        let Some(at) = self.space.position(name) else {
            return Err(OperatorError::missing("Vector::set", name, &self.space));
        };
        let wanted = self.space.leaf(name).map_or(0, |leaf| leaf.len());
        if values.len() as u64 != wanted {
            let why = format!("{} values are given, this rank has {wanted}", values.len());
            return Err(OperatorError::Fit { operator: "Vector::set".into(), leaf: name.into(), why });
        }
        match &mut self.contents[at] {
            Contents::Device(array) => {
                let values = host_memory::collect("values of a field", values.iter().map(|&value| value as f32))?;
                recorder.upload(array, 0, &values)?;
            }
            Contents::Host(own) => own.copy_from_slice(values),
        }
        Ok(())
    }

    /// Returns the values of this rank of a leaf; blocks.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf has this name.
    /// - [`OperatorError::Device`] if the device fails.
    pub fn get(&self, recorder: &mut Recorder, name: &str) -> Result<Vec<f64>> {
        match self.leaf(name) {
            Some(Contents::Device(array)) => {
                let values = recorder.download(array, 0, array.len())?;
                Ok(host_memory::collect("values of a field", values.into_iter().map(f64::from))?)
            }
            Some(Contents::Host(values)) => Ok(host_memory::copy("values of a field", values)?),
            None => Err(OperatorError::missing("Vector::get", name, &self.space)),
        }
    }

    /// Records a copy of all values of `other`, a vector of the same space.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the spaces differ.
    pub fn copy_from(&mut self, recorder: &mut Recorder, other: &Vector) -> Result<()> {
        self.space.admits(&other.space, "Vector::copy_from")?;
        for run in other.runs(&[self], |_| true) {
            recorder.copy(&run[0], 0, &run[1], 0, run[0].len())?;
        }
        for (own, other) in self.contents.iter_mut().zip(&other.contents) {
            if let Contents::Host(values) = other {
                *own = Contents::Host(host_memory::copy("parameters", values)?);
            }
        }
        Ok(())
    }

    /// Returns the leaves of `space`, which share their arrays. Errors name `operator`.
    pub(crate) fn part(&self, space: &Space, operator: &str) -> Result<Vector> {
        if let (true, true) = (space.len() == 1, self.space.len() == 1) {
            space.admits(&self.space, operator)?;
            return Ok(Vector { space: space.clone(), contents: self.contents.clone() });
        }
        let of = |(name, leaf): (&str, &Leaf)| Ok(self.contents[self.space.find(name, leaf, operator)?].clone());
        let contents = space.leaves().map(of).collect::<Result<_>>()?;
        Ok(Vector { space: space.clone(), contents })
    }

    /// Replaces the leaves that `other` has.
    pub(crate) fn with(mut self, other: &Vector) -> Vector {
        for (name, contents) in other.space.names().zip(&other.contents) {
            if let Some(at) = self.space.position(name) {
                self.contents[at] = contents.clone();
            }
        }
        self
    }

    /// Sets parameters from a [`part`](Self::part); arrays are shared and need no copy.
    pub(crate) fn put(&mut self, part: Vector) {
        let single = self.space.len() == 1 && part.space.len() == 1;
        for (name, contents) in part.space.names().zip(part.contents) {
            if let Contents::Host(_) = contents {
                let at = if single { Some(0) } else { self.space.position(name) };
                if let Some(at) = at {
                    self.contents[at] = contents;
                }
            }
        }
    }

    /// Returns the arrays under the names of another space, whose leaf `i` is number `order[i]`.
    pub(crate) fn renamed(&self, space: &Space, order: &[usize]) -> Vector {
        Vector { space: space.clone(), contents: order.iter().map(|&at| self.contents[at].clone()).collect() }
    }
}
