//! Several sums at once, each as [`ExactSum`](super::ExactSum) makes one: those of arrays of one
//! length in one pass.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::ExchangeError;
use super::exact_sum::{ELEMENT, FIXED, SumParams, bits_for, groups, per};
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};

const WHAT: &str = "SeveralSums";

/// Sums of products of one pass at most, beside one of magnitudes: as many as the floor has
/// bindings for.
const PRODUCTS: usize = 3;

/// One of several sums that are made at once.
#[derive(Clone, Copy)]
pub struct Summed<'a> {
    /// The terms.
    pub x: &'a Array<f32>,
    /// Factors of the terms; without them the sum is that of their magnitudes.
    pub y: Option<&'a Array<f32>>,
    /// Terms of all ranks.
    pub total: u64,
    /// Whether each rank has a part of the terms; otherwise every rank has all, and the sum is that
    /// of rank 0 on all.
    pub is_distributed: bool,
}

impl Summed<'_> {
    /// Returns `true` if it may be made in one pass with `other`.
    fn goes_with(&self, other: &Summed<'_>) -> bool {
        (self.x.len(), self.total) == (other.x.len(), other.total) && self.has_one_window() && other.has_one_window()
    }

    /// Returns `true` if each of its arrays takes one binding.
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

/// Terms of a sum of one pass, by the numbers of the arrays of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Term {
    Product(usize, usize),
    Magnitude(usize),
}

/// Returns the text of the pass that finds the greatest magnitudes, or of the one that adds, for so
/// many arrays.
fn source(adds: bool, arrays: usize, terms: &[Term]) -> KernelSource {
    let (label, text) = match adds {
        false => ("exchange::magnitudes", include_str!("../../shaders/exchange/magnitudes.wgsl")),
        true => ("exchange::accumulations", include_str!("../../shaders/exchange/accumulations.wgsl")),
    };
    let term = |(number, term): (usize, &Term)| {
        let value = match term {
            Term::Product(x, y) => format!("value{x} * value{y}"),
            Term::Magnitude(x) => format!("abs(value{x})"),
        };
        format!("fn term{number}() -> f32 {{ return {value}; }}\n")
    };
    KernelSource::new(label, text)
        .params::<SumParams>()
        .module("exchange::element", ELEMENT)
        .module("gpu::fixed", FIXED)
        .module("exchange::terms", terms.iter().enumerate().map(term).collect::<String>())
        .repeat('$', arrays as u32)
        .repeat('?', terms.len() as u32)
        .constant("SUMS", terms.len() as u32)
}

/// Returns the kernels with the most arrays for a number of sums, and those of an iteration of
/// conjugate gradients.
pub(super) fn kernels() -> Vec<KernelSource> {
    use Term::{Magnitude, Product};
    let forms = (0..=PRODUCTS).flat_map(|products| [(products, false), (products, true)]);
    let form = |(products, norm): (usize, bool)| -> Vec<Term> {
        let all = (0..products).map(|n| Product(2 * n, 2 * n + 1));
        all.chain(norm.then_some(Magnitude(2 * products))).collect()
    };
    let iteration = vec![Product(0, 0), Product(0, 1), Product(2, 1), Magnitude(0)];
    let forms = forms.filter(|form| *form != (0, false)).map(form).chain([iteration]);
    let arrays = |terms: &[Term]| {
        let last = |term: &Term| match term {
            Product(x, y) => *x.max(y),
            Magnitude(x) => *x,
        };
        terms.iter().map(last).max().map_or(0, |last| last + 1)
    };
    forms.flat_map(|terms| [false, true].map(|adds| source(adds, arrays(&terms), &terms))).collect()
}

/// Makes several sums.
///
/// Two passes read the terms, the second adds within workgroups first; up to three sums of products
/// and one of magnitudes, of arrays of one length, are made in the same pass. Cost on a GPU: 4
/// bytes for each element and pass of the arrays that differ, and two atomic additions for each sum
/// of a workgroup, of which there are 4096 at most. Between ranks go a word and two words for each
/// sum.
#[derive(Default)]
pub struct SeveralSums {
    /// By what they add: the greatest magnitudes, and the sums.
    kernels: Mutex<HashMap<Vec<Term>, [Kernel; 2]>>,
}

/// Returns the numbers of sums that are made in one pass: products first.
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
    /// Returns the sums over all ranks of `comm`, who all call it; NaN for those with a term that
    /// is not finite. What small arrays hold comes along with them. Waits for the device once on
    /// one rank, and twice on several, who meet in two reductions: whatever the number of sums.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for arrays
    /// that do not fit.
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
        // From the order of the passes to that of the sums.
        let order = passes.concat();
        let place = |number: usize| order.iter().position(|&other| other == number).unwrap_or_default();
        self.record(recorder, sums, &passes, &words, false)?;
        if count > 0 && comm.size() > 1 {
            // In the order of the sums: which of them go together depends on the lengths that a
            // rank has.
            let own = recorder.download(&words, 0, count)?;
            let mut most: Vec<u32> = (0..sums.len()).map(|number| own[place(number)]).collect();
            comm.all_reduce(&mut most, Op::Max)?;
            let most: Vec<u32> = order.iter().map(|&number| most[number]).collect();
            recorder.upload(&words, 0, &most)?;
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

    /// Records one of the two passes for each of `passes`, whose sums stand in `words` in this
    /// order.
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
            let (count, total) = pass.first().map_or((0, 0), |&one| (sums[one].x.len(), sums[one].total));
            let mut arrays: Vec<&RawArray> = Vec::new();
            let terms = terms(pass.iter().map(|&number| &sums[number]), &mut arrays);
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
            let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
            let kernels = kernels.entry(terms).or_insert_with_key(|terms| {
                [false, true].map(|adds| Kernel::trusted(source(adds, arrays.len(), terms)))
            });
            arrays.push(words.raw());
            recorder.dispatch(&kernels[usize::from(adds)], &arrays, &params, groups(recorder, count))?;
            first += pass.len();
        }
        Ok(())
    }
}

/// Returns what the sums of a pass add up, of `arrays`, which receive each array once.
fn terms<'a>(sums: impl Iterator<Item = &'a Summed<'a>>, arrays: &mut Vec<&'a RawArray>) -> Vec<Term> {
    // Arrays of one length and one window that share memory are one.
    let mut place = |array: &'a Array<f32>| {
        arrays.iter().position(|other| other.shares(array.raw())).unwrap_or_else(|| {
            arrays.push(array.raw());
            arrays.len() - 1
        })
    };
    sums.map(|sum| match sum.y {
        Some(y) => Term::Product(place(sum.x), place(y)),
        None => Term::Magnitude(place(sum.x)),
    })
    .collect()
}

/// Adds up the integers over the ranks of `comm`. Of terms that every rank has only those of rank 0
/// count, for all: devices round in their own ways, and ranks that go on by what they find must
/// find the same.
fn total(comm: &Communicator, sums: &[Summed<'_>], integers: &mut [u64]) -> Result<(), ExchangeError> {
    if comm.size() == 1 || sums.is_empty() {
        return Ok(());
    }
    if comm.rank() > 0 {
        integers.iter_mut().zip(sums).filter(|(_, sum)| !sum.is_distributed).for_each(|(integer, _)| *integer = 0);
    }
    Ok(comm.all_reduce(integers, Op::Sum)?)
}
