//! Sums that do not depend on their order: terms become 64-bit integers, scaled by the greatest of
//! all ranks.
//!
//! ```text
//! greatest magnitude of each batch -> among ranks -> add as integers -> among ranks -> f32
//! ```
//!
//! [`SeveralSums`](super::SeveralSums) makes many such sums at once.
//!
//! Two passes read the terms, the second adds within workgroups first. Cost on a GPU: 4 bytes per
//! term, array and pass, and two atomic additions for each sum of a workgroup, of which there are
//! 4096 at most. Between ranks go one word and two words per sum, of each batch, by trees.

use super::ExchangeError;
use super::short_collectives::{all_reduce, all_reduce_wide};
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, Profile, RawArray, Recorder};
use crate::host_memory;

/// Values as 64-bit integers: the module `gpu::fixed`.
pub(crate) const FIXED: &str = include_str!("../../shaders/gpu/fixed.wgsl");

/// The module `exchange::value`.
const VALUE: &str = include_str!("../../shaders/exchange/value.wgsl");

/// Invocations of a workgroup that takes elements of four numbers, on software renderers: one
/// subgroup of lavapipe, so that barriers cost nothing.
const SERIAL: u32 = 8;

/// Returns a kernel of sums whose elements are `Value`s, numbers or four of them, with the modules
/// `exchange::value` and `gpu::fixed`.
pub(crate) fn of_values(source: KernelSource, quads: bool) -> KernelSource {
    let source = source.module("gpu::fixed", FIXED).module("exchange::value", VALUE).flag("quads", quads);
    if quads { source.element("Value", Element::Vec4).group(SERIAL) } else { source.element("Value", Element::F32) }
}

/// The division of elements among workgroups.
#[derive(Clone, Copy)]
pub(crate) struct Division {
    /// Invocations of a workgroup.
    pub group: u64,
    /// Elements of an invocation.
    pub per: u64,
}

impl Division {
    /// Divides `count` elements, of four numbers each with `quads`, of which each invocation of a
    /// GPU takes `least` at least, into 4096 workgroups at most.
    pub fn new(recorder: &Recorder, count: u64, quads: bool, least: u64) -> Self {
        let (group, least) = match quads {
            true => (SERIAL.into(), 32),
            false => (recorder.gpu().workgroup_shape().group.into(), least),
        };
        Division { group, per: count.div_ceil(group * GROUPS).max(least) }
    }

    /// Returns the workgroups that `count` elements take.
    pub fn groups(self, count: u64) -> u64 {
        count.div_ceil(self.group * self.per)
    }
}

/// Which element is which lane's: the module `exchange::element`.
pub(crate) const ELEMENT: &str = include_str!("../../shaders/exchange/element.wgsl");

const WHAT: &str = "ExactSum";

/// Terms of a sum at most.
const MOST_TERMS: u64 = 1 << 38;
/// Elements of one invocation at least.
pub(super) const PER: u64 = 32;
/// Workgroups at most: each adds its sums to those of all by atomics.
const GROUPS: u64 = 4096;
/// Sums that a workgroup keeps for itself at most: 8 KiB.
const LOCAL: u32 = 1024;

crate::gpu::kernel_params! {
    pub(super) struct SumParams {
        pub count: u32,
        /// Sums.
        pub sums: u32,
        pub x_start: u32,
        pub y_start: u32,
        /// The word of the greatest magnitude.
        pub most: u32,
        /// The first word of the sums.
        pub start: u32,
        /// Bits of a term.
        pub bits: u32,
        /// Elements of an invocation.
        pub per: u32,
    }
}

/// Terms of sums, and their targets.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The terms of all batches, one batch after the other.
    pub x: &'a Array<f32>,
    /// Factors of the terms: an array of the same length, or of the length of one batch.
    pub y: Option<&'a Array<f32>>,
    /// Number of the sum of each term of a batch; terms without a valid number are skipped. Without
    /// it there is one sum.
    pub index: Option<&'a Array<u32>>,
    /// Sums per batch.
    pub sums: u64,
    /// Batches.
    pub batches: u64,
    /// Terms of a batch, of all ranks.
    pub total: u64,
}

impl Terms<'_> {
    fn count(&self) -> u64 {
        self.x.len() / self.batches.max(1)
    }

    /// Returns the division of the terms of a batch.
    fn division(&self, recorder: &Recorder) -> Division {
        Division::new(recorder, self.count(), false, PER)
    }

    fn params(&self, recorder: &Recorder, batch: u64) -> Result<SumParams, DeviceError> {
        let count = self.count();
        let y_start = match self.y {
            Some(y) if y.len() == self.x.len() => batch * count,
            _ => 0,
        };
        Ok(SumParams {
            count: count as u32,
            sums: self.sums as u32,
            x_start: (batch * count) as u32,
            y_start: y_start as u32,
            most: batch as u32,
            start: (self.batches + 2 * self.sums * batch) as u32,
            bits: bits_for(WHAT, self.total)?,
            per: self.division(recorder).per as u32,
        })
    }

    /// Returns a new array for the integers of all sums, zeros: a word of the greatest magnitude
    /// for each batch, then two words for each sum, the low one first.
    pub(crate) fn words(&self, recorder: &mut Recorder) -> Result<Array<u32>, DeviceError> {
        let words = recorder.gpu().array("exchange::sums", self.batches * (1 + 2 * self.sums))?;
        recorder.clear(&words);
        Ok(words)
    }

    fn check(&self) -> Result<(), DeviceError> {
        let (all, count) = (self.x.len(), self.count());
        let why = || format!("{all} terms are no {} batches", self.batches);
        DeviceError::ensure(count * self.batches == all, WHAT, why)?;
        let why = || format!("another number of factors than the {all} terms or the {count} of a batch");
        DeviceError::ensure(self.y.is_none_or(|y| y.len() == all || y.len() == count), WHAT, why)?;
        let why = || format!("another number of indices than the {count} terms of a batch");
        DeviceError::ensure(self.index.is_none_or(|index| index.len() == count), WHAT, why)
    }
}

/// Returns the bits that each of `terms` terms may have so that any sum of them stays below 2^62.
///
/// # Errors
/// [`DeviceError::Misuse`] of `what` for more than 2^38 terms: each would have fewer bits than an
/// f32.
pub(crate) fn bits_for(what: &str, terms: u64) -> Result<u32, DeviceError> {
    DeviceError::ensure(terms <= MOST_TERMS, what, || format!("{terms} terms; 2^38 are allowed"))?;
    Ok(62 - terms.max(1).next_power_of_two().ilog2())
}

/// Returns a sum of terms of `bits` bits from its integer in two's complement and the bits of the
/// greatest magnitude of a term; NaN if a term is not finite.
pub(crate) fn sum_value(most: u32, integer: u64, bits: u32) -> f64 {
    if most >= f32::INFINITY.to_bits() {
        return f64::NAN;
    }
    let exponent = (most >> 23) as i32 - 126 - bits as i32;
    integer as i64 as f64 * 2f64.powi(exponent)
}

/// Returns a kernel that reads terms, with factors if it takes a `product`.
fn terms_kernel(label: &str, text: &'static str, product: bool) -> KernelSource {
    KernelSource::new(label, text)
        .params::<SumParams>()
        .module("exchange::element", ELEMENT)
        .module("exchange::term", include_str!("../../shaders/exchange/term.wgsl"))
        .module("gpu::fixed", FIXED)
        .flag("product", product)
}

fn magnitude(product: bool) -> KernelSource {
    terms_kernel("exchange::magnitude", include_str!("../../shaders/exchange/magnitude.wgsl"), product)
}

/// Terms added to sums.
fn accumulate([product, binned, local]: [bool; 3]) -> KernelSource {
    terms_kernel("exchange::accumulate", include_str!("../../shaders/exchange/accumulate.wgsl"), product)
        .flag("binned", binned)
        .flag("local", local)
        .constant("LOCAL", if binned { LOCAL } else { 1 })
}

/// Terms added to sums in an order.
fn gather() -> KernelSource {
    terms_kernel("exchange::gather_terms", include_str!("../../shaders/exchange/gather_terms.wgsl"), false)
        .group(SERIAL)
        .loop_rounds(LONGEST)
}

fn value() -> KernelSource {
    KernelSource::new("exchange::sum_value", include_str!("../../shaders/exchange/sum_value.wgsl"))
        .params::<SumParams>()
        .module("gpu::fixed", FIXED)
}

/// `[product, binned, local]` of the forms of accumulate.
const FORMS: [[bool; 3]; 6] = [
    [false, false, true],
    [true, false, true],
    [false, true, true],
    [true, true, true],
    [false, true, false],
    [true, true, false],
];

/// Returns all kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    FORMS.into_iter().map(accumulate).chain([magnitude(false), magnitude(true), gather(), value()]).collect()
}

/// Terms of one sum, up to which a sum of an order is one loop: llvmpipe ends loops of an
/// invocation after 65,535 rounds.
const LONGEST: u32 = 1 << 15;

/// The terms of each sum, one sum after the other.
pub(crate) struct SumOrder {
    starts: Array<u32>,
    order: Array<u32>,
}

impl SumOrder {
    /// Creates the order of terms from the number of the sum of each. Terms without a valid number
    /// are skipped. `None` on GPUs, where atomics are fast, and for sums of many terms. Blocks.
    pub fn new(recorder: &mut Recorder, index: &Array<u32>, sums: u64) -> Result<Option<Self>, DeviceError> {
        if recorder.gpu().capabilities().profile == Profile::Gpu || index.is_empty() {
            return Ok(None);
        }
        let index = recorder.download(index, 0, index.len())?;
        // Terms of no sum come last, and no sum reads them.
        let mut starts: Vec<u32> = host_memory::zeros("sums of terms", sums as usize + 1)?;
        let place = |sum: u32| u64::from(sum).min(sums) as usize;
        index.iter().for_each(|&sum| starts[place(sum)] += 1);
        if starts[..sums as usize].iter().any(|&terms| terms > LONGEST) {
            return Ok(None);
        }
        // Ends of sums become their starts as terms are filled in from the last one.
        (1..starts.len()).for_each(|sum| starts[sum] += starts[sum - 1]);
        let mut order: Vec<u32> = host_memory::zeros("order of terms", index.len())?;
        for (term, &sum) in (0..index.len() as u32).zip(&index).rev() {
            let start = &mut starts[place(sum)];
            *start -= 1;
            order[*start as usize] = term;
        }
        let mut upload = |values: &[u32]| recorder.uploaded("exchange::sum_order", values);
        Ok(Some(SumOrder { starts: upload(&starts)?, order: upload(&order)? }))
    }
}

/// Sums in an order that does not matter.
pub struct ExactSum {
    magnitude: [Kernel; 2],
    accumulate: [Kernel; 6],
    gather: Kernel,
    value: Kernel,
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum {
            magnitude: [false, true].map(|product| Kernel::trusted(magnitude(product))),
            accumulate: FORMS.map(|form| Kernel::trusted(accumulate(form))),
            gather: Kernel::trusted(gather()),
            value: Kernel::trusted(value()),
        }
    }
}

impl ExactSum {
    /// Returns the integers of all sums, over the ranks of `comm` if there is one: a word of the
    /// greatest magnitude for each batch, then two words for each sum; and the bits of a term.
    ///
    /// # Errors
    /// Same as [`record`](Self::record).
    pub(crate) fn integers(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<(Array<u32>, u32), ExchangeError> {
        terms.check()?;
        let words = terms.words(recorder)?;
        self.record_magnitude(recorder, terms, &words)?;
        let bits = self.accumulate(recorder, comm, (terms, None), &words)?;
        Ok((words, bits))
    }

    /// Records the sums as integers in `words`, which hold the greatest magnitudes of this rank's
    /// terms, and zeros: over the ranks of `comm` if there is one, who all call it. Terms with an
    /// order are one batch without factors. Gives the bits of a term.
    ///
    /// # Errors
    /// Same as [`record`](Self::record).
    pub(crate) fn accumulate(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        (terms, order): (&Terms<'_>, Option<&SumOrder>),
        words: &Array<u32>,
    ) -> Result<u32, ExchangeError> {
        terms.check()?;
        if let Some(comm) = comm {
            all_reduce(recorder, comm, words, 0..terms.batches, Op::Max)?;
        }
        match order {
            Some(SumOrder { starts, order }) => {
                let arrays = [terms.x.raw(), starts.raw(), order.raw(), words.raw()];
                let groups = terms.sums.div_ceil(SERIAL.into());
                recorder.dispatch(&self.gather, &arrays, &terms.params(recorder, 0)?, groups)?;
            }
            None => self.add_terms(recorder, terms, words)?,
        }
        if let Some(comm) = comm {
            all_reduce_wide(recorder, comm, words, terms.batches..words.len())?;
        }
        Ok(bits_for(WHAT, terms.total)?)
    }

    /// Records the terms of this rank.
    fn add_terms(&self, recorder: &mut Recorder, terms: &Terms<'_>, words: &Array<u32>) -> Result<(), DeviceError> {
        let groups = terms.division(recorder).groups(terms.count());
        let mut arrays: Vec<&RawArray> = std::iter::once(terms.x.raw()).chain(terms.y.map(Array::raw)).collect();
        arrays.extend(terms.index.map(Array::raw));
        arrays.push(words.raw());
        let form = [terms.y.is_some(), terms.index.is_some(), terms.sums <= u64::from(LOCAL)];
        let kernel = FORMS.iter().position(|other| *other == form).map(|form| &self.accumulate[form]);
        let why = || DeviceError::misuse(WHAT, format!("{} sums without indices", terms.sums));
        let kernel = kernel.ok_or_else(why)?;
        for batch in 0..terms.batches {
            recorder.dispatch(kernel, &arrays, &terms.params(recorder, batch)?, groups)?;
        }
        Ok(())
    }

    /// Records, for each batch, the bits of the greatest magnitude of this rank's terms in a word
    /// of `words`, which must be 0 before.
    fn record_magnitude(
        &self,
        recorder: &mut Recorder,
        terms: &Terms<'_>,
        words: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let mut arrays: Vec<&RawArray> = std::iter::once(terms.x.raw()).chain(terms.y.map(Array::raw)).collect();
        arrays.push(words.raw());
        let kernel = &self.magnitude[usize::from(terms.y.is_some())];
        let groups = terms.division(recorder).groups(terms.count());
        for batch in 0..terms.batches {
            recorder.dispatch(kernel, &arrays, &terms.params(recorder, batch)?, groups)?;
        }
        Ok(())
    }

    /// Records the bits of the greatest magnitude of `x` in `words[0]`, over the ranks of `comm` if
    /// there is one, who all call it. Bits of infinity or above say that a value is not finite.
    ///
    /// # Errors
    /// Same as [`record`](Self::record).
    pub fn magnitude(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        x: &Array<f32>,
        words: &Array<u32>,
    ) -> Result<(), ExchangeError> {
        recorder.clear(words);
        let terms = Terms { x, y: None, index: None, sums: 1, batches: 1, total: 1 };
        self.record_magnitude(recorder, &terms, words)?;
        comm.map_or(Ok(()), |comm| all_reduce(recorder, comm, words, 0..terms.batches, Op::Max))
    }

    /// Records `out` = the sums, one batch after the other; over the ranks of `comm` if there is
    /// one, who all call it. Submits and waits for exchanges between ranks only.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for arrays
    /// that do not fit.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
        out: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        let (room, sums) = (out.len(), terms.batches * terms.sums);
        DeviceError::ensure(room == sums, WHAT, || format!("room for {room} sums of {sums}"))?;
        let (words, _) = self.integers(recorder, comm, terms)?;
        for batch in 0..terms.batches {
            let params = SumParams { x_start: (batch * terms.sums) as u32, ..terms.params(recorder, batch)? };
            recorder.each(&self.value, &[words.raw(), out.raw()], &params, terms.sums)?;
        }
        Ok(())
    }

    /// Returns the sums in f64, one batch after the other; NaN in a batch of which a term is not
    /// finite. Waits.
    ///
    /// # Errors
    /// Same as [`record`](Self::record).
    pub fn totals(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<Vec<f64>, ExchangeError> {
        let (words, bits) = self.integers(recorder, comm, terms)?;
        let words = recorder.download(&words, 0, words.len())?;
        let (most, sums) = words.split_at(terms.batches as usize);
        let total = |(most, sum): (&u32, &[u32])| sum_value(*most, u64::from(sum[1]) << 32 | u64::from(sum[0]), bits);
        let most = most.iter().flat_map(|most| std::iter::repeat_n(most, terms.sums as usize));
        Ok(most.zip(sums.chunks(2)).map(total).collect())
    }

    /// Returns the only sum of terms, in f64; NaN if a term is not finite. Waits.
    ///
    /// # Errors
    /// Same as [`record`](Self::record).
    pub fn value(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<f64, ExchangeError> {
        Ok(self.totals(recorder, comm, terms)?[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};

    #[test]
    fn sums_of_an_order_have_the_bits_of_sums_by_atomics() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        // One sum has most terms, some have none, and some terms have no sum.
        for (count, sums) in [(1, 1), (1000, 7), (4099, 1500)] {
            let sum_of = |i: u32| match i % 5 {
                0 => 3 % sums,
                1 => sums + i % 3,
                _ => i * 7919 % sums,
            };
            let index: Vec<u32> = (0..count).map(sum_of).collect();
            let value = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 * 1e-7 - 0.8;
            let of_terms = gpu.array::<u32>("index", u64::from(count)).unwrap();
            recorder.upload(&of_terms, 0, &index).unwrap();
            let x = gpu.array::<f32>("terms", u64::from(count)).unwrap();
            recorder.upload(&x, 0, &(0..count).map(value).collect::<Vec<f32>>()).unwrap();
            let (sums, total) = (u64::from(sums), u64::from(count));
            let Some(order) = SumOrder::new(&mut recorder, &of_terms, sums).unwrap() else { return };
            let terms = Terms { x: &x, y: None, index: Some(&of_terms), sums, batches: 1, total };
            let all = ExactSum::default();
            let (wanted, wanted_bits) = all.integers(&mut recorder, None, &terms).unwrap();
            let found = terms.words(&mut recorder).unwrap();
            all.record_magnitude(&mut recorder, &terms, &found).unwrap();
            let bits = all.accumulate(&mut recorder, None, (&terms, Some(&order)), &found).unwrap();
            let words = [&wanted, &found].map(|words| recorder.download(words, 0, words.len()).unwrap());
            assert_eq!((bits, &words[1]), (wanted_bits, &words[0]), "{count} terms, {sums} sums");
        }
    }

    #[test]
    fn terms_have_as_many_bits_as_their_sum_leaves_them() {
        for (terms, bits) in [(0, 62), (1, 62), (2, 61), (3, 60), (1 << 38, 24)] {
            assert_eq!(bits_for("a sum", terms).ok(), Some(bits), "{terms}");
        }
        for terms in [(1 << 38) + 1, u64::MAX] {
            let refused = bits_for("a sum", terms);
            assert!(matches!(&refused, Err(DeviceError::Misuse { what, .. }) if what == "a sum"), "{refused:?}");
        }
    }
}
