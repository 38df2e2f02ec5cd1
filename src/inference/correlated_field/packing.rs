//! Small vectors of a field as one: what a kernel reads that has no room for each.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};
use crate::operators::{Field, OperatorError, Space};

crate::gpu::kernel_params! {
    struct PackParams {
        /// Elements up to the end of each of four vectors.
        ends: [u32; 4],
        /// Up to the end of the fifth.
        fifth: u32,
        start: u32,
        count: u32,
    }
}

/// Vectors that a kernel takes at once, on devices that bind eight arrays.
const AT_ONCE: usize = 6;

fn source(parts: usize, unpack: bool) -> KernelSource {
    let flags = ["two", "three", "four", "five", "six"];
    let text = KernelSource::new("inference::pack", include_str!("../../../shaders/inference/pack.wgsl"));
    let text = text.params::<PackParams>().flag("unpack", unpack);
    (2..).zip(flags).fold(text, |text, (number, flag)| text.flag(flag, parts >= number))
}

/// The kernels, of most vectors.
pub(super) fn kernels() -> Vec<KernelSource> {
    [false, true].map(|unpack| source(AT_ONCE, unpack)).into()
}

/// Leaves of a space one after the other in one array.
pub(super) struct Packing {
    /// Where each is, and how long.
    parts: Vec<(String, u64, u64)>,
    len: u64,
    /// There and back, of each [`AT_ONCE`] vectors.
    kernels: Vec<[Kernel; 2]>,
}

impl Packing {
    /// The leaves of `names`, vectors of `space`, in this order.
    pub fn new(space: &Space, names: &[String]) -> Self {
        let mut len = 0;
        let mut part = |name: &String| {
            let own = space.leaf(name).map_or(0, |leaf| leaf.len());
            len += own;
            (name.clone(), len - own, own)
        };
        let parts: Vec<_> = names.iter().map(&mut part).collect();
        let kernels =
            parts.chunks(AT_ONCE).map(|parts| [false, true].map(|back| Kernel::trusted(source(parts.len(), back))));
        Packing { kernels: kernels.collect(), parts, len }
    }

    /// Where a leaf begins; none where it is not among them.
    pub fn place(&self, name: &str) -> Option<u64> {
        self.parts.iter().find(|part| part.0 == name).map(|part| part.1)
    }

    /// A new array for all, undefined. It has an element at least.
    pub fn array(&self, recorder: &Recorder) -> Result<Array<f32>, DeviceError> {
        recorder.gpu().array("inference::packed", self.len.max(1))
    }

    fn copy(
        &self,
        recorder: &mut Recorder,
        field: &Field,
        packed: &Array<f32>,
        back: bool,
    ) -> Result<(), OperatorError> {
        for (parts, kernels) in self.parts.chunks(AT_ONCE).zip(&self.kernels) {
            let start = parts.first().map_or(0, |part| part.1);
            let end =
                |number: usize| parts.get(number).or(parts.last()).map_or(0, |part| (part.1 + part.2 - start) as u32);
            let count = u64::from(end(AT_ONCE));
            let params =
                PackParams { ends: [0, 1, 2, 3].map(end), fifth: end(4), start: start as u32, count: count as u32 };
            let arrays = parts.iter().map(|part| field.array(&part.0)).collect::<Result<Vec<_>, _>>()?;
            let parts = arrays.into_iter().map(Array::raw);
            let arrays: Vec<&RawArray> = if back {
                std::iter::once(packed.raw()).chain(parts).collect()
            } else {
                parts.chain([packed.raw()]).collect()
            };
            recorder.each(&kernels[usize::from(back)], &arrays, &params, count)?;
        }
        Ok(())
    }

    /// Records the leaves of a field as one array.
    pub fn pack(&self, recorder: &mut Recorder, field: &Field) -> Result<Array<f32>, OperatorError> {
        let packed = self.array(recorder)?;
        self.copy(recorder, field, &packed, false)?;
        Ok(packed)
    }

    /// Records the leaves of a field from one array.
    pub fn unpack(&self, recorder: &mut Recorder, packed: &Array<f32>, field: &Field) -> Result<(), OperatorError> {
        self.copy(recorder, field, packed, true)
    }
}
