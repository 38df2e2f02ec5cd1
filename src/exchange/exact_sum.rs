//! Sums that do not depend on their order: terms become 64-bit integers, scaled by the greatest of all ranks.
//!
//! ```text
//! greatest magnitude of each batch -> among ranks -> add as integers -> among ranks -> f32
//! ```
//!
//! Two passes read the terms, the second adds within workgroups first. Cost on a GPU: 4 bytes per term, array and pass, and two atomic additions
//! for each sum of a workgroup, of which there are 4096 at most. Between ranks go one word and two words per sum, of each batch, by trees.

use super::ExchangeError;
use super::short_collectives::{all_reduce, all_reduce_wide};
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};

/// Values as 64-bit integers: the module `gpu::fixed`.
pub(crate) const FIXED: &str = include_str!("../../shaders/gpu/fixed.wgsl");

const WHAT: &str = "ExactSum";

/// Terms of a sum at most.
const MOST_TERMS: u64 = 1 << 38;
/// Elements of one invocation at least.
const PER: u64 = 32;
/// Workgroups at most: each adds its sums to those of all by atomics.
const GROUPS: u64 = 4096;
/// Sums that a workgroup keeps for itself at most: 8 KiB.
const LOCAL: u32 = 1024;

crate::gpu::kernel_params! {
    struct SumParams {
        count: u32,
        /// Sums.
        sums: u32,
        x_start: u32,
        y_start: u32,
        /// The word of the greatest magnitude.
        most: u32,
        /// The first word of the sums.
        start: u32,
        /// Bits of a term.
        bits: u32,
        /// Elements of an invocation.
        per: u32,
    }
}

/// What the terms of a sum are, and where they go.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The terms of all batches, one batch after the other.
    pub x: &'a Array<f32>,
    /// What they are multiplied by: an array as long, or as long as one batch.
    pub y: Option<&'a Array<f32>>,
    /// The sum of each term of a batch; none where it is no number of one. Without it there is one sum.
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
            per: per(recorder, count) as u32,
        })
    }

    fn check(&self) -> Result<(), DeviceError> {
        let misuse = |why: String| Err(DeviceError::Misuse { what: WHAT.into(), why });
        let (all, count) = (self.x.len(), self.count());
        if count * self.batches != all {
            return misuse(format!("{all} terms are no {} batches", self.batches));
        }
        if self.y.is_some_and(|y| y.len() != all && y.len() != count) {
            return misuse(format!("another number of factors than the {all} terms or the {count} of a batch"));
        }
        if self.index.is_some_and(|index| index.len() != count) {
            return misuse(format!("another number of indices than the {count} terms of a batch"));
        }
        Ok(())
    }
}

/// Bits that each of so many terms may have so that any sum of them keeps below 2^62.
///
/// # Errors
/// [`DeviceError::Misuse`] of `what` for more terms than 2^38: each would have fewer bits than an f32.
pub(crate) fn bits_for(what: &str, terms: u64) -> Result<u32, DeviceError> {
    match terms {
        ..=MOST_TERMS => Ok(62 - terms.max(1).next_power_of_two().ilog2()),
        _ => Err(DeviceError::Misuse { what: what.into(), why: format!("{terms} terms; 2^38 are allowed") }),
    }
}

fn magnitude(product: bool) -> KernelSource {
    KernelSource::new("exchange::magnitude", include_str!("../../shaders/exchange/magnitude.wgsl"))
        .params::<SumParams>()
        .module("exchange::term", include_str!("../../shaders/exchange/term.wgsl"))
        .flag("product", product)
        .flag("magnitude", false)
}

/// Terms added to sums, or (of a single one) their magnitudes.
fn accumulate([product, magnitude, binned, local]: [bool; 4]) -> KernelSource {
    KernelSource::new("exchange::accumulate", include_str!("../../shaders/exchange/accumulate.wgsl"))
        .params::<SumParams>()
        .module("exchange::term", include_str!("../../shaders/exchange/term.wgsl"))
        .module("gpu::fixed", FIXED)
        .flag("product", product)
        .flag("magnitude", magnitude)
        .flag("binned", binned)
        .flag("local", local)
        .constant("LOCAL", if binned { LOCAL } else { 1 })
}

/// The sum of magnitudes.
fn accumulate_magnitudes() -> KernelSource {
    accumulate([false, true, false, true])
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

/// All kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    let forms = FORMS.into_iter().map(|[product, binned, local]| accumulate([product, false, binned, local]));
    forms.chain([magnitude(false), magnitude(true), accumulate_magnitudes(), value()]).collect()
}

/// Elements of an invocation, of so many terms.
fn per(recorder: &Recorder, count: u64) -> u64 {
    count.div_ceil(u64::from(recorder.gpu().workgroup_shape().group) * GROUPS).max(PER)
}

/// Workgroups that treat so many terms.
fn groups(recorder: &Recorder, count: u64) -> u64 {
    count.div_ceil(u64::from(recorder.gpu().workgroup_shape().group) * per(recorder, count))
}

/// Sums in an order that does not matter.
pub struct ExactSum {
    magnitude: [Kernel; 2],
    accumulate: [Kernel; 6],
    accumulate_magnitudes: Kernel,
    value: Kernel,
}

/// One of several sums that are made at once.
#[derive(Clone, Copy)]
pub struct Summed<'a> {
    /// The terms.
    pub x: &'a Array<f32>,
    /// What they are multiplied by; without it the sum is that of their magnitudes.
    pub y: Option<&'a Array<f32>>,
    /// Terms of all ranks.
    pub total: u64,
    /// Whether each rank has a part of the terms; otherwise every rank has all.
    pub is_distributed: bool,
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum {
            magnitude: [false, true].map(|product| Kernel::trusted(magnitude(product))),
            accumulate: FORMS
                .map(|[product, binned, local]| Kernel::trusted(accumulate([product, false, binned, local]))),
            accumulate_magnitudes: Kernel::trusted(accumulate_magnitudes()),
            value: Kernel::trusted(value()),
        }
    }
}

impl ExactSum {
    /// The integers of all sums, over the ranks of `comm` if there is one: a word of the greatest magnitude for each batch, then two words for
    /// each sum.
    fn integers(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<Array<u32>, ExchangeError> {
        terms.check()?;
        let words = recorder.gpu().array::<u32>("exchange::sums", terms.batches * (1 + 2 * terms.sums))?;
        recorder.clear(&words);
        self.record_magnitude(recorder, comm, terms, &words)?;
        let groups = groups(recorder, terms.count());
        let mut arrays: Vec<&RawArray> = std::iter::once(terms.x.raw()).chain(terms.y.map(Array::raw)).collect();
        arrays.extend(terms.index.map(Array::raw));
        arrays.push(words.raw());
        let form = [terms.y.is_some(), terms.index.is_some(), terms.sums <= u64::from(LOCAL)];
        let kernel = FORMS.iter().position(|other| *other == form).map(|form| &self.accumulate[form]);
        let kernel = kernel.ok_or_else(|| DeviceError::Misuse {
            what: WHAT.into(),
            why: format!("{} sums without indices", terms.sums),
        })?;
        for batch in 0..terms.batches {
            recorder.dispatch(kernel, &arrays, &terms.params(recorder, batch)?, groups)?;
        }
        if let Some(comm) = comm {
            all_reduce_wide(recorder, comm, &words, terms.batches..words.len())?;
        }
        Ok(words)
    }

    /// Records, for each batch, the bits of the greatest magnitude of its terms in a word of `words`, which must be 0 before.
    fn record_magnitude(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
        words: &Array<u32>,
    ) -> Result<(), ExchangeError> {
        let mut arrays: Vec<&RawArray> = std::iter::once(terms.x.raw()).chain(terms.y.map(Array::raw)).collect();
        arrays.push(words.raw());
        let kernel = &self.magnitude[usize::from(terms.y.is_some())];
        let groups = groups(recorder, terms.count());
        for batch in 0..terms.batches {
            recorder.dispatch(kernel, &arrays, &terms.params(recorder, batch)?, groups)?;
        }
        comm.map_or(Ok(()), |comm| all_reduce(recorder, comm, words, 0..terms.batches, Op::Max))
    }

    /// Records the bits of the greatest magnitude of `x` in `words[0]`, over the ranks of `comm` if there is one, who all call it. Bits of infinity
    /// or above say that a value is not finite.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn magnitude(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        x: &Array<f32>,
        words: &Array<u32>,
    ) -> Result<(), ExchangeError> {
        recorder.clear(words);
        let terms = Terms { x, y: None, index: None, sums: 1, batches: 1, total: 1 };
        self.record_magnitude(recorder, comm, &terms, words)
    }

    /// Records `out` = the sums, one batch after the other; over the ranks of `comm` if there is one, who all call it. Submits and waits for
    /// exchanges between ranks only.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for arrays that do not fit.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
        out: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        if out.len() != terms.batches * terms.sums {
            let why = format!("room for {} sums of {}", out.len(), terms.batches * terms.sums);
            return Err(DeviceError::Misuse { what: WHAT.into(), why }.into());
        }
        let words = self.integers(recorder, comm, terms)?;
        for batch in 0..terms.batches {
            let params = SumParams { x_start: (batch * terms.sums) as u32, ..terms.params(recorder, batch)? };
            recorder.each(&self.value, &[words.raw(), out.raw()], &params, terms.sums)?;
        }
        Ok(())
    }

    /// The sums in f64, one batch after the other; NaN in a batch of which a term is not finite. Waits.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn totals(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<Vec<f64>, ExchangeError> {
        let bits = bits_for(WHAT, terms.total)?;
        let words = self.integers(recorder, comm, terms)?;
        let words = recorder.download(&words, 0, words.len())?;
        let (most, sums) = words.split_at(terms.batches as usize);
        let total = |(most, sum): (&u32, &[u32])| {
            if *most >= f32::INFINITY.to_bits() {
                return f64::NAN;
            }
            let exponent = (most >> 23) as i32 - 126 - bits as i32;
            (u64::from(sum[1]) << 32 | u64::from(sum[0])) as i64 as f64 * 2f64.powi(exponent)
        };
        let most = most.iter().flat_map(|most| std::iter::repeat_n(most, terms.sums as usize));
        Ok(most.zip(sums.chunks(2)).map(total).collect())
    }

    /// The only sum of terms, in f64; NaN if a term is not finite. Waits.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn value(
        &self,
        recorder: &mut Recorder,
        comm: Option<&Communicator>,
        terms: &Terms<'_>,
    ) -> Result<f64, ExchangeError> {
        Ok(self.totals(recorder, comm, terms)?[0])
    }

    /// Several sums over all ranks of `comm`, who all call it; NaN for those with a term that is not finite. What small arrays hold comes along with them.
    /// Waits for the device once on one rank, and twice on several, who meet in two reductions: whatever the number of sums.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn several(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        sums: &[Summed<'_>],
        small: &[&Array<f32>],
    ) -> Result<(Vec<f64>, Vec<Vec<f32>>), ExchangeError> {
        let bits = sums.iter().map(|sum| bits_for(WHAT, sum.total)).collect::<Result<Vec<_>, _>>()?;
        let count = sums.len() as u64;
        let along: u64 = small.iter().map(|small| small.len()).sum();
        if count + along == 0 {
            return Ok((Vec::new(), vec![Vec::new(); small.len()]));
        }
        // The greatest magnitudes, the sums, then what comes along.
        let words = recorder.gpu().array::<u32>("exchange::sums", 3 * count + along)?;
        recorder.clear(&words);
        let mut end = 3 * count;
        for small in small {
            recorder.copy(&small.cast::<u32>()?, 0, &words, end, small.len())?;
            end += small.len();
        }
        for (at, sum) in sums.iter().enumerate() {
            let (params, arrays, groups) = sum.of(recorder, &words, [at as u64, count])?;
            recorder.dispatch(&self.magnitude[usize::from(sum.y.is_some())], &arrays, &params, groups)?;
        }
        if count > 0 {
            all_reduce(recorder, comm, &words, 0..count, Op::Max)?;
        }
        for (at, sum) in sums.iter().enumerate() {
            let (params, arrays, groups) = sum.of(recorder, &words, [at as u64, count])?;
            // Without indices there is one sum, which each workgroup adds for itself.
            let kernel = if sum.y.is_some() { &self.accumulate[1] } else { &self.accumulate_magnitudes };
            recorder.dispatch(kernel, &arrays, &params, groups)?;
        }
        let words = recorder.download(&words, 0, end)?;
        let (sums_made, mut along) = words.split_at(3 * sums.len());
        let small = small.iter().map(|small| {
            let (own, rest) = along.split_at(small.len() as usize);
            along = rest;
            own.iter().map(|&bits| f32::from_bits(bits)).collect()
        });
        let small = small.collect();
        let (magnitudes, words) = sums_made.split_at(sums.len());
        let (pairs, _) = words.as_chunks::<2>();
        let mut integers: Vec<u64> = pairs.iter().map(|&[low, high]| u64::from(high) << 32 | u64::from(low)).collect();
        if comm.size() > 1 && count > 0 {
            let mut parts: Vec<u64> =
                integers.iter().zip(sums).filter(|(_, sum)| sum.is_distributed).map(|(&integer, _)| integer).collect();
            comm.all_reduce(&mut parts, Op::Sum)?;
            let distributed = integers.iter_mut().zip(sums).filter(|(_, sum)| sum.is_distributed);
            distributed.zip(parts).for_each(|((integer, _), part)| *integer = part);
        }
        let value = |((&most, &integer), bits): ((&u32, &u64), u32)| {
            if most >= f32::INFINITY.to_bits() {
                return f64::NAN;
            }
            let exponent = (most >> 23) as i32 - 126 - bits as i32;
            integer as i64 as f64 * 2f64.powi(exponent)
        };
        Ok((magnitudes.iter().zip(&integers).zip(bits).map(value).collect(), small))
    }
}

impl<'a> Summed<'a> {
    /// Parameters, arrays and workgroups of the sum with number `at` of `count`.
    fn of<'b>(
        &self,
        recorder: &Recorder,
        words: &'b Array<u32>,
        [at, count]: [u64; 2],
    ) -> Result<(SumParams, Vec<&'b RawArray>, u64), DeviceError>
    where
        'a: 'b,
    {
        let Summed { x, y, total, .. } = *self;
        let terms = Terms { x, y, index: None, sums: 1, batches: 1, total };
        terms.check()?;
        let params = SumParams { most: at as u32, start: (count + 2 * at) as u32, ..terms.params(recorder, 0)? };
        let mut arrays = vec![x.raw()];
        arrays.extend(y.map(Array::raw));
        arrays.push(words.raw());
        Ok((params, arrays, groups(recorder, terms.count())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
