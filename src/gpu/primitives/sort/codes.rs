//! Codes of 64-bit keys: words in the order of the keys, of few bits, so that few passes sort them.
//!
//! A code is the leading bits of its key, unless those would leave many keys tied, as in a halo of
//! points in a large box. A sample of the keys tells: if two of it agree in their leading bits,
//! codes are made from the sample, which is dense where keys are (splitters, as in sample sort: W.
//! D. Frazer and A. C. McKellar, J. ACM 17, 496, 1970).

use super::plan::{CodeShape, Form, most_splitters};
use super::sweeps::SweepTable;
use crate::gpu::primitives::count::{COUNTED, Counted};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct CodeParams {
        count: u32,
        device: u32,
        /// Keys of the sample, a power of two.
        splitters: u32,
        /// Keys of a workgroup, or of an invocation in the serial form.
        chunk: u32,
        /// Bits of the high words that count.
        high_mask: u32,
        /// Bits of keys and of codes.
        bits: u32,
        code_bits: u32,
        /// Bits of a code that tell where between two splitters a key lies.
        inner_bits: u32,
    }
}

/// Invocations of a workgroup that ranks the sample.
const RANK_GROUP: u32 = 64;

/// Makes codes.
pub(super) struct Codes {
    form: Form,
    splitters: Kernel,
    codes: Kernel,
}

/// Adds what the text of kernels over 64-bit keys imports.
pub(super) fn wide_key(source: KernelSource) -> KernelSource {
    source
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::two_words", include_str!("../../../../shaders/gpu/sort/two_words.wgsl"))
        .module("gpu::sort::wide_key", include_str!("../../../../shaders/gpu/sort/wide_key.wgsl"))
        .module("gpu::sort::exact", include_str!("../../../../shaders/gpu/sort/exact.wgsl"))
}

/// Both kernels in one form.
pub(super) fn kernels(form: Form) -> [KernelSource; 2] {
    let codes = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_codes.wgsl"),
        Form::Portable | Form::Subgroups => include_str!("../../../../shaders/gpu/sort/group_codes.wgsl"),
    };
    let splitters = include_str!("../../../../shaders/gpu/sort/splitters.wgsl");
    let most = most_splitters(form);
    [("primitives::sort_splitters", splitters, RANK_GROUP), ("primitives::sort_codes", codes, code_group(form))].map(
        |(label, text, group)| {
            wide_key(KernelSource::new(label, text).params::<CodeParams>())
                .module("gpu::sort::leading_bits", include_str!("../../../../shaders/gpu/sort/leading_bits.wgsl"))
                .module("gpu::sort::code_of", include_str!("../../../../shaders/gpu/sort/code_of.wgsl"))
                .module("gpu::sort::histogram", include_str!("../../../../shaders/gpu/sort/histogram.wgsl"))
                .constant("SPLITTERS", most)
                .repeat('$', most.ilog2())
                .group(group)
        },
    )
}

/// Invocations of a workgroup that makes codes.
fn code_group(form: Form) -> u32 {
    if form == Form::Software { 8 } else { 256 }
}

/// Keys of two words, of which the `bits` lowest bits count.
#[derive(Clone, Copy)]
pub(super) struct WideKeys<'a> {
    pub high: &'a Array<u32>,
    pub low: &'a Array<u32>,
    pub bits: u32,
}

impl WideKeys<'_> {
    /// Returns the bits of a high word that count.
    pub fn high_mask(&self) -> u32 {
        u32::MAX >> (64 - self.bits)
    }
}

impl Codes {
    pub fn new(form: Form) -> Self {
        let [splitters, codes] = kernels(form).map(Kernel::trusted);
        Codes { form, splitters, codes }
    }

    /// Records `codes[i]` = the code of key i in its `shape.bits` lowest bits, beside which codes
    /// from a sample have a bit that `exact.wgsl` says and others anything, and gives the sample as
    /// `splitters.wgsl` lays it out. The forms for GPUs count the digits of codes in `table`, which
    /// has been cleared.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        keys: WideKeys<'_>,
        counted: &Counted,
        shape: CodeShape,
        (codes, table): (&Array<u32>, Option<&SweepTable>),
    ) -> Result<Array<u32>, DeviceError> {
        let gpu = recorder.gpu().clone();
        let CodeShape { bits: code_bits, splitters, inner_bits, chunk } = shape;
        let params = CodeParams {
            count: counted.most,
            device: counted.device,
            splitters,
            chunk,
            high_mask: keys.high_mask(),
            bits: keys.bits,
            code_bits,
            inner_bits,
        };
        let sample = gpu.array::<u32>("sort::sample", 2 * u64::from(splitters) + 1)?;
        recorder.clear(&sample);
        let arrays = [keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw()];
        recorder.dispatch(&self.splitters, &arrays, &params, u64::from(splitters.div_ceil(RANK_GROUP)))?;
        if self.form == Form::Software && keys.bits - code_bits == u32::BITS {
            // Those of keys that are not crowded, if their codes are the high words.
            recorder.copy(keys.high, 0, codes, 0, u64::from(counted.most))?;
        }
        let mut arrays = vec![keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw(), codes.raw()];
        arrays.extend(table.map(SweepTable::raw));
        let parts = counted.most.div_ceil(chunk);
        let groups = if self.form == Form::Software { parts.div_ceil(code_group(self.form)) } else { parts };
        recorder.dispatch(&self.codes, &arrays, &params, u64::from(groups))?;
        Ok(sample)
    }
}
