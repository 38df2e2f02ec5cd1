//! Reductions of segments of any lengths.

use super::count::{Counted, distinct, holds, index, misuse};
use super::number::{Number, Operation, place, table};
use super::scan::Scan;
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Recorder};

/// Values that one invocation folds.
const RUN: u64 = 64;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    segments: u32,
    values: u32,
    runs: u32,
    level: u32,
}

const PARAMS: &str = "segments: u32, values: u32, runs: u32, level: u32";

/// The sum, the least and the greatest of every segment of an array.
///
/// A segment is reduced in a tree that depends on nothing but its own values: up to 64 are folded from the left,
/// beginning with the identity; of more, every run of 64 (and the rest) is folded so, and their results are the values
/// of the next level. Sums of `f32` are therefore the same bits wherever the segment lies and in every form, and no
/// invocation folds more than 64 values a level, however long a segment is.
///
/// Integer sums wrap; see [`Reduce`](super::Reduce) for NaN. Of an empty segment the result is the identity: 0, the
/// greatest number (infinity) for the least, the least number (minus infinity) for the greatest.
pub struct SegmentedReduce {
    scan: Scan,
    segments: [Kernel; 9],
    runs: [Kernel; 9],
}

impl Default for SegmentedReduce {
    fn default() -> Self {
        Self::new()
    }
}

fn kernel(name: &str, body: &str, operation: Operation, element: Element) -> KernelSource {
    let label = format!("primitives::{name}_{}_{}", operation.name(), element.wgsl());
    KernelSource::new(label, format!("{}\n{body}", operation.rule(element)))
        .fields(PARAMS)
        .array("offsets", Element::U32, Access::Read)
        .array("values", element, Access::Read)
}

fn segments(operation: Operation, element: Element) -> Kernel {
    let source = kernel("segments", include_str!("../../../shaders/gpu/segments.wgsl"), operation, element);
    let source = source.array("runs", Element::U32, Access::ReadWrite);
    Kernel::trusted(source.array("output", element, Access::ReadWrite))
}

fn runs(operation: Operation, element: Element) -> Kernel {
    let source = kernel("segment_runs", include_str!("../../../shaders/gpu/segment_runs.wgsl"), operation, element);
    let source = source.array("places", Element::U32, Access::Read);
    Kernel::trusted(source.array("partial", element, Access::ReadWrite))
}

impl SegmentedReduce {
    /// Kernels for any device.
    pub fn new() -> Self {
        SegmentedReduce { scan: Scan::new(), segments: table(segments), runs: table(runs) }
    }

    /// Records `output[s]` = the sum of `values[offsets[s]..offsets[s + 1]]` for every s; `offsets` ascends and has one
    /// element more than `output`.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `offsets` is too short or `output` is given twice; as [`Recorder::dispatch`].
    pub fn sum<T: Number>(
        &self,
        recorder: &mut Recorder,
        offsets: &Array<u32>,
        values: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Sum, offsets, values, output)
    }

    /// Records `output[s]` = the least of `values[offsets[s]..offsets[s + 1]]`.
    ///
    /// # Errors
    /// As [`SegmentedReduce::sum`].
    pub fn min<T: Number>(
        &self,
        recorder: &mut Recorder,
        offsets: &Array<u32>,
        values: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Min, offsets, values, output)
    }

    /// Records `output[s]` = the greatest of `values[offsets[s]..offsets[s + 1]]`.
    ///
    /// # Errors
    /// As [`SegmentedReduce::sum`].
    pub fn max<T: Number>(
        &self,
        recorder: &mut Recorder,
        offsets: &Array<u32>,
        values: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Max, offsets, values, output)
    }

    fn record<T: Number>(
        &self,
        recorder: &mut Recorder,
        operation: Operation,
        offsets: &Array<u32>,
        values: &Array<T>,
        output: &Array<T>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "SegmentedReduce";
        if output.is_empty() {
            return Ok(());
        }
        distinct(WHAT, output.raw(), &[offsets.raw(), values.raw()])?;
        let segments = u64::from(index(WHAT, output.len())?);
        holds(WHAT, "offsets", offsets.len(), segments + 1)?;
        index(WHAT, values.len())?;
        let (gpu, at) = (recorder.gpu().clone(), place::<T>(operation));
        let (mut offsets, mut values) = (offsets.clone(), values.clone());
        for level in 0.. {
            let number = gpu.array::<u32>("primitives::runs", segments)?;
            // A segment that goes on has more than RUN values: its runs are fewer than twice as many as fill.
            let most = if values.len() > RUN { 2 * values.len() / RUN } else { 0 };
            let params = [segments, values.len(), most, level].map(|n| n as u32);
            let params = Params { segments: params[0], values: params[1], runs: params[2], level: params[3] };
            let arrays = [offsets.raw(), values.raw(), number.raw(), output.raw()];
            recorder.each(&self.segments[at], &arrays, &params, segments)?;
            if most == 0 {
                return Ok(());
            }
            let places = gpu.array::<u32>("primitives::places", segments + 1)?;
            let counted = Counted::known(&gpu, WHAT, segments)?;
            self.scan.record(recorder, &number, &counted, &places)?;
            let partial = gpu.array::<T>("primitives::partial", most)?;
            let arrays = [offsets.raw(), values.raw(), places.raw(), partial.raw()];
            recorder.each(&self.runs[at], &arrays, &params, most)?;
            (offsets, values) = (places, partial);
        }
        Err(misuse(WHAT, "levels end".into()))
    }

    /// Its kernels, without those of the scan it uses.
    pub(super) fn own_sources(&self) -> Vec<KernelSource> {
        self.segments.iter().chain(&self.runs).map(|kernel| kernel.source().clone()).collect()
    }
}
