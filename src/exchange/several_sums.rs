//! Several sums at once, each as [`ExactSum`](super::ExactSum) makes one: those of arrays of one length in one pass.

use super::ExchangeError;
use super::exact_sum::{ELEMENT, FIXED, SumParams, bits_for, groups, per};
use super::short_collectives::all_reduce;
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};

const WHAT: &str = "SeveralSums";

/// Sums of products of one pass at most, beside one of magnitudes: as many as the floor has bindings for.
const PRODUCTS: usize = 3;

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

impl Summed<'_> {
    /// Whether it may be made in one pass with `other`.
    fn goes_with(&self, other: &Summed<'_>) -> bool {
        (self.x.len(), self.total) == (other.x.len(), other.total) && self.has_one_window() && other.has_one_window()
    }

    /// Whether each of its arrays takes one binding.
    fn has_one_window(&self) -> bool {
        self.x.raw().windows() == 1 && self.y.is_none_or(|y| y.raw().windows() == 1)
    }

    fn check(&self) -> Result<(), DeviceError> {
        match self.y {
            Some(y) if y.len() != self.x.len() => {
                let why = format!("{} terms and {} factors", self.x.len(), y.len());
                Err(DeviceError::Misuse { what: WHAT.into(), why })
            }
            _ => Ok(()),
        }
    }
}

/// The text of the pass that finds the greatest magnitudes, or of the one that adds.
fn source(adds: bool, [products, norm]: [usize; 2]) -> KernelSource {
    let (label, text) = match adds {
        false => ("exchange::magnitudes", include_str!("../../shaders/exchange/magnitudes.wgsl")),
        true => ("exchange::accumulations", include_str!("../../shaders/exchange/accumulations.wgsl")),
    };
    KernelSource::new(label, text)
        .params::<SumParams>()
        .module("exchange::element", ELEMENT)
        .module("gpu::fixed", FIXED)
        .flag("norm", norm > 0)
        .repeat('$', products as u32)
        .constant("SUMS", (products + norm) as u32)
}

/// Sums of products, and of magnitudes, of each form of the kernels.
fn forms() -> impl Iterator<Item = [usize; 2]> {
    (0..=PRODUCTS).flat_map(|products| [[products, 0], [products, 1]]).filter(|form| *form != [0, 0])
}

/// All kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    forms().flat_map(|form| [false, true].map(|adds| source(adds, form))).collect()
}

/// Makes several sums.
///
/// Two passes read the terms, the second adds within workgroups first; up to three sums of products and one of magnitudes, of arrays of one
/// length, are made in the same pass. Cost on a GPU: 4 bytes for each term and pass of the arrays that differ, and two atomic additions for each sum
/// of a workgroup, of which there are 4096 at most. Between ranks go a word and two words for each sum.
pub struct SeveralSums {
    /// By form: the greatest magnitudes, and the sums.
    kernels: Vec<([usize; 2], [Kernel; 2])>,
}

impl Default for SeveralSums {
    fn default() -> Self {
        let both = |form| (form, [false, true].map(|adds| Kernel::trusted(source(adds, form))));
        SeveralSums { kernels: forms().map(both).collect() }
    }
}

/// The numbers of sums that are made in one pass: products first.
fn passes(sums: &[Summed<'_>]) -> Vec<Vec<usize>> {
    let mut passes: Vec<[Vec<usize>; 2]> = Vec::new();
    for (number, sum) in sums.iter().enumerate() {
        let (kind, most) = if sum.y.is_some() { (0, PRODUCTS) } else { (1, 1) };
        let has_room = |pass: &&mut [Vec<usize>; 2]| {
            pass[kind].len() < most && pass.iter().flatten().all(|&other| sums[other].goes_with(sum))
        };
        match passes.iter_mut().find(has_room) {
            Some(pass) => pass[kind].push(number),
            None => {
                let mut pass = [Vec::new(), Vec::new()];
                pass[kind].push(number);
                passes.push(pass);
            }
        }
    }
    passes.into_iter().map(|[products, norm]| [products, norm].concat()).collect()
}

impl SeveralSums {
    /// The sums over all ranks of `comm`, who all call it; NaN for those with a term that is not finite. What small arrays hold comes along with them.
    /// Waits for the device once on one rank, and twice on several, who meet in two reductions: whatever the number of sums.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for arrays that do not fit.
    pub fn make(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        sums: &[Summed<'_>],
        small: &[&Array<f32>],
    ) -> Result<(Vec<f64>, Vec<Vec<f32>>), ExchangeError> {
        let bits = sums.iter().map(|sum| bits_for(WHAT, sum.total)).collect::<Result<Vec<_>, _>>()?;
        sums.iter().try_for_each(Summed::check)?;
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
        let passes = passes(sums);
        self.record(recorder, sums, &passes, &words, false)?;
        if count > 0 {
            all_reduce(recorder, comm, &words, 0..count, Op::Max)?;
        }
        self.record(recorder, sums, &passes, &words, true)?;
        let words = recorder.download(&words, 0, end)?;
        let (made, mut along) = words.split_at(3 * sums.len());
        let small = small.iter().map(|small| {
            let (own, rest) = along.split_at(small.len() as usize);
            along = rest;
            own.iter().map(|&bits| f32::from_bits(bits)).collect()
        });
        let small = small.collect();
        let (most, integers) = made.split_at(sums.len());
        // From the order of the passes to that of the sums.
        let order = passes.concat();
        let place = |number: usize| order.iter().position(|&other| other == number).unwrap_or_default();
        let mut own: Vec<u64> = (0..sums.len())
            .map(place)
            .map(|at| u64::from(integers[2 * at + 1]) << 32 | u64::from(integers[2 * at]))
            .collect();
        total(comm, sums, &mut own)?;
        let value = |((number, integer), bits): ((usize, u64), u32)| {
            let most = most[place(number)];
            if most >= f32::INFINITY.to_bits() {
                return f64::NAN;
            }
            let exponent = (most >> 23) as i32 - 126 - bits as i32;
            integer as i64 as f64 * 2f64.powi(exponent)
        };
        Ok((own.into_iter().enumerate().zip(bits).map(value).collect(), small))
    }

    /// Records one of the two passes for each of `passes`, whose sums stand in `words` in this order.
    fn record(
        &self,
        recorder: &mut Recorder,
        sums: &[Summed<'_>],
        passes: &[Vec<usize>],
        words: &Array<u32>,
        adds: bool,
    ) -> Result<(), DeviceError> {
        let mut first = 0;
        for pass in passes {
            let products = pass.iter().filter(|&&number| sums[number].y.is_some()).count();
            let form = [products, pass.len() - products];
            let Some((_, kernels)) = self.kernels.iter().find(|(other, _)| *other == form) else { continue };
            let own = pass.iter().map(|&number| &sums[number]);
            let count = own.clone().map(|sum| sum.x.len()).next().unwrap_or_default();
            let total = own.clone().map(|sum| sum.total).next().unwrap_or_default();
            let params = SumParams {
                count: count as u32,
                sums: pass.len() as u32,
                x_start: 0,
                y_start: 0,
                most: first as u32,
                start: (sums.len() + 2 * first) as u32,
                bits: bits_for(WHAT, total)?,
                per: per(recorder, count) as u32,
            };
            let given = |sum: &Summed<'_>| [Some(sum.x.raw().clone()), sum.y.map(|y| y.raw().clone())];
            // First factors, then second ones, then what has magnitudes.
            let given: Vec<[Option<RawArray>; 2]> = own.map(given).collect();
            let (both, alone) = given.split_at(products);
            let sides = [0, 1].into_iter().flat_map(|side| both.iter().filter_map(move |pair| pair[side].as_ref()));
            let alone = alone.iter().filter_map(|pair| pair[0].as_ref());
            let arrays: Vec<&RawArray> = sides.chain(alone).chain([words.raw()]).collect();
            recorder.dispatch(&kernels[usize::from(adds)], &arrays, &params, groups(recorder, count))?;
            first += pass.len();
        }
        Ok(())
    }
}

/// Adds up the integers of distributed sums over the ranks of `comm`.
fn total(comm: &Communicator, sums: &[Summed<'_>], integers: &mut [u64]) -> Result<(), ExchangeError> {
    if comm.size() == 1 || sums.is_empty() {
        return Ok(());
    }
    let mut parts: Vec<u64> =
        integers.iter().zip(sums).filter(|(_, sum)| sum.is_distributed).map(|(&integer, _)| integer).collect();
    comm.all_reduce(&mut parts, Op::Sum)?;
    let distributed = integers.iter_mut().zip(sums).filter(|(_, sum)| sum.is_distributed);
    distributed.zip(parts).for_each(|((integer, _), part)| *integer = part);
    Ok(())
}
