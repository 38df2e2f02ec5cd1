//! Several sums at once, each as [`ExactSum`](super::ExactSum) makes one: those of arrays of one
//! length in one pass.

use super::ExchangeError;
use super::exact_sum::{Division, ELEMENT, PER, SumParams, bits_for, of_values, sum_value};
use crate::comm::{Communicator, Op};
use crate::gpu::{Array, DeviceError, KernelCache, KernelSource, RawArray, Recorder, Trust};

const WHAT: &str = "SeveralSums";

/// Sums of products or values of one pass at most, beside one of magnitudes.
///
/// Devices that bind fewer arrays make fewer.
const PRODUCTS: usize = 8;

/// Terms of a sum.
#[derive(Clone)]
pub enum SummedTerms {
    /// Products of the elements of two arrays.
    Products([Array<f32>; 2]),
    /// Magnitudes of the elements of an array.
    Magnitudes(Array<f32>),
    /// The elements of an array.
    Values(Array<f32>),
}

impl SummedTerms {
    fn arrays(&self) -> &[Array<f32>] {
        match self {
            SummedTerms::Products(arrays) => arrays,
            SummedTerms::Magnitudes(array) | SummedTerms::Values(array) => std::slice::from_ref(array),
        }
    }

    /// Returns the number of terms.
    fn len(&self) -> u64 {
        self.arrays()[0].len()
    }
}

/// One of several sums that are made at once.
#[derive(Clone)]
pub struct Summed {
    /// Terms of this rank, of the same kind on all ranks.
    pub terms: Vec<SummedTerms>,
    /// Number of terms of all ranks.
    pub total: u64,
}

impl Summed {
    /// Returns `true` if its passes can be those of `other`.
    fn goes_with(&self, other: &Summed) -> bool {
        let lens = |sum: &Summed| sum.terms.iter().map(SummedTerms::len).collect::<Vec<_>>();
        self.total == other.total && lens(self) == lens(other) && self.has_one_window() && other.has_one_window()
    }

    /// Returns `true` if each of its arrays takes one binding.
    fn has_one_window(&self) -> bool {
        self.terms.iter().flat_map(SummedTerms::arrays).all(|array| array.raw().windows() == 1)
    }

    fn check(&self) -> Result<(), DeviceError> {
        let kind = self.terms.first().map(std::mem::discriminant);
        for terms in &self.terms {
            let is_alike = Some(std::mem::discriminant(terms)) == kind;
            DeviceError::ensure(is_alike, WHAT, || "terms of several kinds".into())?;
            if let SummedTerms::Products([x, y]) = terms {
                let (terms, factors) = (x.len(), y.len());
                DeviceError::ensure(terms == factors, WHAT, || format!("{terms} terms and {factors} factors"))?;
            }
        }
        Ok(())
    }
}

/// Terms of a sum of one pass, by the numbers of the arrays of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Term {
    Product(usize, usize),
    Magnitude(usize),
    Value(usize),
}

/// Returns the text of the pass that finds the greatest magnitudes, or of the one that adds, for so
/// many arrays.
fn source(adds: bool, arrays: usize, terms: &[Term], quads: bool) -> KernelSource {
    let (label, text) = match adds {
        false => ("exchange::magnitudes", include_str!("../../shaders/exchange/magnitudes.wgsl")),
        true => ("exchange::accumulations", include_str!("../../shaders/exchange/accumulations.wgsl")),
    };
    let term = |(number, term): (usize, &Term)| {
        let value = match term {
            Term::Product(x, y) => format!("value{x} * value{y}"),
            Term::Magnitude(x) => format!("abs(value{x})"),
            Term::Value(x) => format!("value{x}"),
        };
        format!("fn term{number}() -> Value {{ return {value}; }}\n")
    };
    of_values(KernelSource::new(label, text), quads)
        .params::<SumParams>()
        .module("exchange::element", ELEMENT)
        .module("exchange::terms", terms.iter().enumerate().map(term).collect::<String>())
        .repeat('$', arrays as u32)
        .repeat('?', terms.len() as u32)
        .constant("SUMS", terms.len() as u32)
}

/// Returns kernels of sums over different arrays and over one with others, as many as the floor has
/// bindings for, and those of an iteration of conjugate gradients.
pub(super) fn kernels() -> Vec<KernelSource> {
    use Term::{Magnitude, Product, Value};
    let apart = |products: usize| (0..products).map(|n| Product(2 * n, 2 * n + 1)).collect();
    let with_norm = |products: usize| [apart(products), vec![Magnitude(2 * products)]].concat();
    let with_one = (0..6).map(|n| Product(if n == 0 { 0 } else { n + 1 }, 1)).collect();
    let iteration = vec![Product(0, 0), Product(0, 1), Product(2, 1), Product(0, 3), Magnitude(0)];
    let forms =
        (1..=3).map(apart).chain((0..=3).map(with_norm)).chain([with_one, iteration, (0..4).map(Value).collect()]);
    let arrays = |terms: &[Term]| {
        let last = |term: &Term| match term {
            Product(x, y) => *x.max(y),
            Magnitude(x) | Value(x) => *x,
        };
        terms.iter().map(last).max().map_or(0, |last| last + 1)
    };
    let both = |terms: Vec<Term>| {
        [[false, false], [false, true], [true, false], [true, true]]
            .map(|[quads, adds]| source(adds, arrays(&terms), &terms, quads))
    };
    forms.flat_map(both).collect()
}

/// Makes several sums.
///
/// Two passes read the terms, the second adds within workgroups first; up to eight sums of
/// products or values and one of magnitudes, of arrays of one length, are made in the same pass,
/// if the device binds all arrays. Cost on a GPU: 4 bytes for each element and pass of the arrays
/// that differ. Up to 4096 workgroups each make two atomic additions per sum. Ranks exchange three
/// words per sum.
#[derive(Default)]
pub struct SeveralSums {
    /// By the terms, whether elements are four numbers, and whether the kernel adds terms (`true`)
    /// or finds their greatest magnitudes.
    kernels: KernelCache<(Vec<Term>, bool, bool)>,
}

/// Returns the numbers of sums that are made in one pass with `most` arrays or fewer: products
/// first.
fn passes(sums: &[Summed], most: usize) -> Vec<Vec<usize>> {
    let mut passes: Vec<[Vec<usize>; 2]> = Vec::new();
    for (number, sum) in sums.iter().enumerate() {
        let is_norm = matches!(sum.terms.first(), Some(SummedTerms::Magnitudes(_)));
        let (kind, limit) = if is_norm { (1, 1) } else { (0, PRODUCTS) };
        let has_room = |pass: &&mut [Vec<usize>; 2]| {
            let others = || pass.iter().flatten().map(|&other| &sums[other]);
            let binds = |place: usize| {
                let mut arrays = Vec::new();
                terms(others().chain([sum]).map(|sum| &sum.terms[place]), &mut arrays);
                arrays.len() <= most
            };
            pass[kind].len() < limit && others().all(|other| other.goes_with(sum)) && (0..sum.terms.len()).all(binds)
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

/// Returns the number of arrays of terms that a pass can bind.
fn most_arrays(recorder: &Recorder) -> usize {
    (recorder.gpu().capabilities().bindings as usize).saturating_sub(1)
}

impl SeveralSums {
    /// Returns the sums over all ranks of `comm`, who all call it; NaN for those with a term that
    /// is not finite. Waits for the device once on one rank, and twice on several, who meet in two
    /// reductions: whatever the number of sums.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails; [`DeviceError::Misuse`] for arrays
    /// that do not fit.
    pub fn make(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        sums: &[Summed],
    ) -> Result<Vec<f64>, ExchangeError> {
        let bits = sums.iter().map(|sum| bits_for(WHAT, sum.total)).collect::<Result<Vec<_>, _>>()?;
        sums.iter().try_for_each(Summed::check)?;
        let count = sums.len() as u64;
        if sums.iter().all(|sum| sum.total == 0) {
            return Ok(vec![0.0; sums.len()]);
        }
        // The greatest magnitudes, then the sums.
        let words = recorder.gpu().array::<u32>("exchange::sums", 3 * count)?;
        recorder.clear(&words);
        let passes = passes(sums, most_arrays(recorder));
        // From the order of the passes to that of the sums.
        let order = passes.concat();
        let place = |number: usize| order.iter().position(|&other| other == number).unwrap_or_default();
        self.record(recorder, sums, &passes, (&words, 0), false)?;
        if comm.size() > 1 {
            // In the order of the sums: which of them go together depends on the lengths that a
            // rank has.
            let own = recorder.download(&words, 0, count)?;
            let mut most: Vec<u32> = (0..sums.len()).map(|number| own[place(number)]).collect();
            comm.all_reduce(&mut most, Op::Max)?;
            let most: Vec<u32> = order.iter().map(|&number| most[number]).collect();
            recorder.upload(&words, 0, &most)?;
        }
        self.record(recorder, sums, &passes, (&words, 0), true)?;
        let words = recorder.download(&words, 0, 3 * count)?;
        let (most, integers) = words.split_at(sums.len());
        let mut own: Vec<u64> = (0..sums.len())
            .map(place)
            .map(|at| u64::from(integers[2 * at + 1]) << 32 | u64::from(integers[2 * at]))
            .collect();
        if comm.size() > 1 {
            comm.all_reduce(&mut own, Op::Sum)?;
        }
        let value = |((number, integer), bits): ((usize, u64), u32)| sum_value(most[place(number)], integer, bits);
        Ok(own.into_iter().enumerate().zip(bits).map(value).collect())
    }

    /// Returns `true` if [`record_words`](Self::record_words) can make `sums`: all in one pass on
    /// this device.
    pub(crate) fn is_one_pass(recorder: &Recorder, sums: &[Summed]) -> bool {
        let is_plain = |sum: &Summed| sum.terms.len() == 1 && sum.has_one_window();
        sums.iter().all(is_plain) && passes(sums, most_arrays(recorder)).len() == 1
    }

    /// Records the greatest magnitudes of the terms of this rank, or their integers, in words from
    /// `at` on: a word of the greatest magnitude for each sum, then two words for each, the low
    /// one first. Sums of products come before the sum of magnitudes.
    pub(crate) fn record_words(
        &self,
        recorder: &mut Recorder,
        sums: &[Summed],
        (words, at): (&Array<u32>, usize),
        adds: bool,
    ) -> Result<(), DeviceError> {
        self.record(recorder, sums, &[(0..sums.len()).collect()], (words, at), adds)
    }

    /// Records one of the two passes for each of `passes`, whose sums stand in `words` from `at` on
    /// in this order.
    fn record(
        &self,
        recorder: &mut Recorder,
        sums: &[Summed],
        passes: &[Vec<usize>],
        (words, at): (&Array<u32>, usize),
        adds: bool,
    ) -> Result<(), DeviceError> {
        let mut first = 0;
        for pass in passes {
            let Some(one) = pass.first().map(|&one| &sums[one]) else { continue };
            for (number, terms_of_one) in one.terms.iter().enumerate() {
                let count = terms_of_one.len();
                let mut arrays: Vec<&RawArray> = Vec::new();
                let terms = terms(pass.iter().map(|&sum| &sums[sum].terms[number]), &mut arrays);
                let quads = RawArray::in_quads(&arrays);
                let count = if quads.is_some() { count / 4 } else { count };
                let division = Division::new(recorder, count, quads.is_some(), PER);
                let params = SumParams {
                    count: count as u32,
                    sums: pass.len() as u32,
                    x_start: 0,
                    y_start: 0,
                    most: (at + first) as u32,
                    start: (at + sums.len() + 2 * first) as u32,
                    bits: bits_for(WHAT, one.total)?,
                    per: division.per as u32,
                };
                let make = || source(adds, arrays.len(), &terms, quads.is_some());
                let kernel = self.kernels.get((terms.clone(), quads.is_some(), adds), Trust::Library, make);
                let mut arrays = quads.as_ref().map_or(arrays.clone(), |quads| quads.iter().collect());
                arrays.push(words.raw());
                recorder.dispatch(&kernel, &arrays, &params, division.groups(count))?;
            }
            first += pass.len();
        }
        Ok(())
    }
}

/// Returns what the sums of a pass add up, of `arrays`, which receive each array once.
fn terms<'a>(sums: impl Iterator<Item = &'a SummedTerms>, arrays: &mut Vec<&'a RawArray>) -> Vec<Term> {
    let mut place = |array: &'a Array<f32>| {
        arrays.iter().position(|other| other.is(array.raw())).unwrap_or_else(|| {
            arrays.push(array.raw());
            arrays.len() - 1
        })
    };
    sums.map(|terms| match terms {
        SummedTerms::Products([x, y]) => Term::Product(place(x), place(y)),
        SummedTerms::Magnitudes(x) => Term::Magnitude(place(x)),
        SummedTerms::Values(x) => Term::Value(place(x)),
    })
    .collect()
}
