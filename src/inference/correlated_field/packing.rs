//! Leaves of one number each as one array, for kernels with few bindings.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};
use crate::operators::{OperatorError, PART_BEGINS, Vector};

crate::gpu::kernel_params! {
    struct PackParams {
        /// The place of the first number.
        start: u32,
        /// The distance of places.
        stride: u32,
    }
}

/// Numbers that a kernel takes at once on devices that bind eight arrays.
const AT_ONCE: usize = 6;

fn source(parts: usize, unpack: bool) -> KernelSource {
    KernelSource::new("inference::pack", include_str!("../../../shaders/inference/pack.wgsl"))
        .params::<PackParams>()
        .flag("unpack", unpack)
        .repeat('$', parts as u32)
}

/// Returns the kernels, of most numbers.
pub(super) fn kernels() -> Vec<KernelSource> {
    [false, true].map(|unpack| source(AT_ONCE, unpack)).into()
}

/// Leaves of one number each in one array, at the distance that they have in a joined vector: there
/// the array is a part of the vector.
pub(super) struct Packing {
    names: Vec<String>,
    /// Kernels to pack and to unpack [`AT_ONCE`] numbers.
    kernels: Vec<[Kernel; 2]>,
}

impl Packing {
    /// Creates the packing of the leaves `names`, vectors of one number.
    pub fn new(mut names: Vec<String>) -> Self {
        names.sort();
        let kernels =
            names.chunks(AT_ONCE).map(|names| [false, true].map(|back| Kernel::trusted(source(names.len(), back))));
        Packing { kernels: kernels.collect(), names }
    }

    /// Returns the place of a leaf.
    pub fn place(&self, name: &str) -> Option<u64> {
        self.names.iter().position(|other| other == name).map(|at| at as u64 * PART_BEGINS)
    }

    /// Creates an array for all numbers, with undefined values and at least one element.
    fn array(&self, recorder: &Recorder) -> Result<Array<f32>, DeviceError> {
        let last = self.names.len().max(1) as u64 - 1;
        recorder.gpu().array("inference::packed", last * PART_BEGINS + 1)
    }

    /// Returns the part of a joined vector that is the array.
    fn part(&self, vector: &Vector) -> Result<Option<Array<f32>>, OperatorError> {
        let mut found: Option<RawArray> = None;
        for name in &self.names {
            let next = vector.array(name)?.raw();
            found = match found {
                None => Some(next.clone()),
                Some(before) => match before.followed_by(next) {
                    None => return Ok(None),
                    joined => joined,
                },
            };
        }
        Ok(found.map(Array::new))
    }

    fn copy(
        &self,
        recorder: &mut Recorder,
        vector: &Vector,
        packed: &Array<f32>,
        back: bool,
    ) -> Result<(), OperatorError> {
        for (number, (names, kernels)) in self.names.chunks(AT_ONCE).zip(&self.kernels).enumerate() {
            let parts = names.iter().map(|name| vector.array(name)).collect::<Result<Vec<_>, _>>()?;
            let parts = parts.into_iter().map(Array::raw);
            let arrays: Vec<&RawArray> = if back {
                std::iter::once(packed.raw()).chain(parts).collect()
            } else {
                parts.chain([packed.raw()]).collect()
            };
            let stride = PART_BEGINS as u32;
            let params = PackParams { start: (number * AT_ONCE) as u32 * stride, stride };
            recorder.dispatch(&kernels[usize::from(back)], &arrays, &params, 1)?;
        }
        Ok(())
    }

    /// Returns the leaves of a vector as one array; records a copy unless the vector is joined.
    pub fn pack(&self, recorder: &mut Recorder, vector: &Vector) -> Result<Array<f32>, OperatorError> {
        if let Some(part) = self.part(vector)? {
            return Ok(part);
        }
        let packed = self.array(recorder)?;
        self.copy(recorder, vector, &packed, false)?;
        Ok(packed)
    }

    /// Returns an array with undefined values that [`unpack`](Self::unpack) copies to the leaves of
    /// a vector.
    pub fn undefined(&self, recorder: &Recorder, vector: &Vector) -> Result<Array<f32>, OperatorError> {
        Ok(self.part(vector)?.map_or_else(|| self.array(recorder), Ok)?)
    }

    /// Records the copy of one array to the leaves of a vector, unless it is a part of the vector.
    pub fn unpack(&self, recorder: &mut Recorder, packed: &Array<f32>, vector: &Vector) -> Result<(), OperatorError> {
        if self.part(vector)?.is_some() { Ok(()) } else { self.copy(recorder, vector, packed, true) }
    }
}
