//! Rows moved by an index.

use super::count::{COUNTED, Count, Counted, distinct, holds};
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, Profile, Recorder};

crate::gpu::kernel_params! {
    struct PermuteParams {
        count: u32,
        device: u32,
        /// Rows of the array that the index points into.
        rows: u32,
        /// Words of a row.
        width: u32,
        /// Words that an element moves.
        run: u32,
    }
}

/// Gathers and scatters rows of elements of any type.
pub struct Permute {
    gather: Kernel,
    scatter: Kernel,
}

impl Default for Permute {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the kernels of gather and scatter.
pub(super) fn kernels() -> [KernelSource; 2] {
    [("primitives::gather", false), ("primitives::scatter", true)].map(|(label, scatter)| {
        KernelSource::new(label, include_str!("../../../shaders/gpu/permute.wgsl"))
            .params::<PermuteParams>()
            .module("gpu::counted", COUNTED)
            .flag("scatter", scatter)
    })
}

impl Permute {
    /// Kernels for any device.
    pub fn new() -> Self {
        let [gather, scatter] = kernels().map(Kernel::trusted);
        Permute { gather, scatter }
    }

    /// Records `target[i * width + c]` = `source[index[i] * width + c]` for every i that counts (of
    /// `index`) and c below `width`. Rows whose index lies outside of `source` are not written.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `target` is too short for the rows that count or is given
    /// twice, or `width` is 0; as [`Recorder::dispatch`].
    pub fn gather<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        source: &Array<T>,
        index: &Array<u32>,
        target: &Array<T>,
        width: u64,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        let counted = Counted::new(recorder.gpu(), "Permute::gather", count, index.len())?;
        self.gather_counted(recorder, source, index, target, width, &counted)
    }

    /// Gathers all rows of `index` into a new array; otherwise same as [`gather`](Self::gather).
    pub(crate) fn gathered<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        label: &str,
        source: &Array<T>,
        index: &Array<u32>,
        width: u64,
    ) -> Result<Array<T>, DeviceError> {
        let target = recorder.gpu().array(label, index.len() * width)?;
        self.gather(recorder, source, index, &target, width, Count::All)?;
        Ok(target)
    }

    /// Scatters all rows of `source` into a new array of as many rows; otherwise same as
    /// [`scatter`](Self::scatter).
    pub(crate) fn scattered<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        label: &str,
        source: &Array<T>,
        index: &Array<u32>,
        width: u64,
    ) -> Result<Array<T>, DeviceError> {
        let target = recorder.gpu().array(label, index.len() * width)?;
        self.scatter(recorder, source, index, &target, width, Count::All)?;
        Ok(target)
    }

    /// Same as [`Permute::gather`].
    pub(super) fn gather_counted<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        source: &Array<T>,
        index: &Array<u32>,
        target: &Array<T>,
        width: u64,
        counted: &Counted,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Permute::gather";
        holds(WHAT, "target", target.len(), u64::from(counted.most) * width)?;
        let rows = source.len() / width.max(1);
        record(recorder, &self.gather, WHAT, (source, index, target), [width, rows], counted)
    }

    /// Records `target[index[i] * width + c]` = `source[i * width + c]` for every i that counts (of
    /// `index`) and c below `width`. Rows whose index lies outside of `target` are not moved; of
    /// several rows with one index, any may stay.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `source` is shorter than the rows that count or `target` is
    /// given twice, or `width` is 0; as [`Recorder::dispatch`].
    pub fn scatter<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        source: &Array<T>,
        index: &Array<u32>,
        target: &Array<T>,
        width: u64,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Permute::scatter";
        let counted = Counted::new(recorder.gpu(), WHAT, count, index.len())?;
        holds(WHAT, "source", source.len(), u64::from(counted.most) * width)?;
        let rows = target.len() / width.max(1);
        record(recorder, &self.scatter, WHAT, (source, index, target), [width, rows], &counted)
    }
}

fn record<T: DeviceElement>(
    recorder: &mut Recorder,
    kernel: &Kernel,
    what: &str,
    (source, index, target): (&Array<T>, &Array<u32>, &Array<T>),
    [width, rows]: [u64; 2],
    counted: &Counted,
) -> Result<(), DeviceError> {
    distinct(what, target.raw(), &[source.raw(), index.raw(), counted.raw()])?;
    let words = width * (T::ELEMENT.bytes() / 4);
    let most = u64::from(u32::MAX);
    DeviceError::ensure((1..=most).contains(&words), what, || format!("rows of {width} elements"))?;
    // A software renderer reads the index once per row; GPUs want adjacent invocations at adjacent
    // words.
    let serial = recorder.gpu().capabilities().profile == Profile::Software;
    let run = if serial { words.min(16) } else { 1 };
    let run = (1..=run).rev().find(|run| words.is_multiple_of(*run)).unwrap_or(1);
    let (source, target) = (source.cast::<u32>()?, target.cast::<u32>()?);
    let items = u64::from(counted.most) * (words / run);
    let why = || format!("{items} items are more than a kernel counts; use more ranks");
    DeviceError::ensure(items <= most, what, why)?;
    let params = [u64::from(counted.most), u64::from(counted.device), rows, words, run].map(|n| n as u32);
    let [count, device, rows, width, run] = params;
    let arrays = [source.raw(), index.raw(), counted.raw(), target.raw()];
    recorder.each(kernel, &arrays, &PermuteParams { count, device, rows, width, run }, items)
}
