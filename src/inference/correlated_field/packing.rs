//! Leaves of one number each as one array, for kernels with few bindings.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};
use crate::operators::{OperatorError, Vector};

crate::gpu::kernel_params! {
    struct PackParams {
        /// The place of the first number.
        start: u32,
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

/// Leaves of one number each, one after the other in one array.
pub(super) struct Packing {
    names: Vec<String>,
    /// Kernels to pack and to unpack [`AT_ONCE`] numbers.
    kernels: Vec<[Kernel; 2]>,
}

impl Packing {
    /// Creates the packing of the leaves `names`, vectors of one number, in this order.
    pub fn new(names: Vec<String>) -> Self {
        let kernels =
            names.chunks(AT_ONCE).map(|names| [false, true].map(|back| Kernel::trusted(source(names.len(), back))));
        Packing { kernels: kernels.collect(), names }
    }

    /// Returns the place of a leaf.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    /// Creates an array for all numbers, with undefined values and at least one element.
    pub fn array(&self, recorder: &Recorder) -> Result<Array<f32>, DeviceError> {
        recorder.gpu().array("inference::packed", self.names.len().max(1) as u64)
    }

    fn copy(
        &self,
        recorder: &mut Recorder,
        field: &Vector,
        packed: &Array<f32>,
        back: bool,
    ) -> Result<(), OperatorError> {
        for (number, (names, kernels)) in self.names.chunks(AT_ONCE).zip(&self.kernels).enumerate() {
            let parts = names.iter().map(|name| field.array(name)).collect::<Result<Vec<_>, _>>()?;
            let parts = parts.into_iter().map(Array::raw);
            let arrays: Vec<&RawArray> = if back {
                std::iter::once(packed.raw()).chain(parts).collect()
            } else {
                parts.chain([packed.raw()]).collect()
            };
            let params = PackParams { start: (number * AT_ONCE) as u32 };
            recorder.dispatch(&kernels[usize::from(back)], &arrays, &params, 1)?;
        }
        Ok(())
    }

    /// Records the copy of the leaves of a vector to one array.
    pub fn pack(&self, recorder: &mut Recorder, field: &Vector) -> Result<Array<f32>, OperatorError> {
        let packed = self.array(recorder)?;
        self.copy(recorder, field, &packed, false)?;
        Ok(packed)
    }

    /// Records the copy of one array to the leaves of a vector.
    pub fn unpack(&self, recorder: &mut Recorder, packed: &Array<f32>, field: &Vector) -> Result<(), OperatorError> {
        self.copy(recorder, field, packed, true)
    }
}
