//! Stable radix sort of 32- and 64-bit keys.
//!
//! Least significant digit first. On GPUs one dispatch counts all digits and every pass is one
//! dispatch ([`sweeps`]); no workgroup depends on the progress of another. Software renderers count
//! the digits of every tile, scan the counts and scatter ([`passes`]).

mod keys;
mod passes;
mod plan;
mod sweeps;
mod wide;

pub use keys::{Keys, KeysOfBits};
pub use plan::Form;

use super::count::{Count, Counted, distinct, holds};
use super::permute::Permute;
use crate::gpu::{Array, DeviceError, Gpu, KernelSource, Profile, Recorder};
use keys::{Flip, WideKeys, Words};
use passes::{Pass, Passes, Tables};
use plan::{code_shape, digits, traffic};
use sweeps::{SweepTable, Sweeps};
use wide::{Codes, PassSequence, Runs};

/// Sorts keys or computes their order, stably: equal keys stay in the order in which they were
/// given.
///
/// - The order of keys is the same in every [`Form`], on every device.
/// - 32 bits are sorted in 4 passes; fewer where [`Keys::bits`] says that fewer bits differ. A GPU
///   takes a dispatch for each pass and two more, and one in all for few keys: 3072 with subgroups
///   of 16 and more.
/// - 64-bit keys take 3 passes up to 2^16 of them and 4 beyond, uniform or clustered: codes of so
///   many bits are sorted, which follow the distribution of the keys. What they leave tied is
///   sorted by more passes over the tied keys alone.
/// - Working memory: 12 bytes per element, 16 to 24 for 64-bit keys, and 2 words per digit and
///   tile: 0.3 to 0.7 bytes more per element on GPUs with subgroups of 16 and more, 1 on those
///   without, 1.3 to 2.7 on those with smaller ones.
#[must_use = "a sort does nothing until it is recorded"]
pub struct Sort {
    form: Form,
    method: Method,
    codes: Codes,
    runs: Runs,
    permute: Permute,
}

/// Invocations per workgroup of the forms for GPUs.
const GROUP_PORTABLE: u32 = 128;
/// Two for subgroups: a workgroup may have 16 subgroups, so the second is for those of 16
/// invocations and more.
const SUBGROUPS: [u32; 2] = [64, 256];

/// Workgroup memory that every device gives, in bytes.
const LEAST_WORKGROUP_BYTES: u32 = 16 << 10;

/// The passes over one word.
enum Method {
    Serial(Box<Passes>),
    Sweeps(Box<Sweeps>),
}

/// Passes and their working memory.
enum Table<'a> {
    Serial(&'a Passes, Tables),
    Sweeps(&'a Sweeps, SweepTable),
}

impl Method {
    fn tiles(&self, keys: u32) -> u32 {
        match self {
            Method::Serial(passes) => passes.tiles(keys),
            Method::Sweeps(sweeps) => sweeps.tiles(keys),
        }
    }

    /// Allocates the memory of passes over at most `keys` keys.
    fn table(&self, recorder: &Recorder, keys: u32) -> Result<Table<'_>, DeviceError> {
        Ok(match self {
            Method::Serial(passes) => Table::Serial(passes, passes.tables(recorder.gpu(), keys)?),
            Method::Sweeps(sweeps) => Table::Sweeps(sweeps, sweeps.table(recorder, keys)?),
        })
    }
}

impl Table<'_> {
    /// Returns the histogram of sweeps, which is to be counted.
    fn histogram(&self) -> Option<&SweepTable> {
        if let Table::Sweeps(_, table) = self { Some(table) } else { None }
    }

    /// Records what comes before the passes over keys of which the `bits` lowest count.
    fn begin(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        keys: &Array<u32>,
        order: (u32, Flip),
    ) -> Result<(), DeviceError> {
        let Table::Sweeps(sweeps, table) = self else { return Ok(()) };
        recorder.clear(&table.words);
        sweeps.count(recorder, counted, table, keys, order)
    }

    /// Records a pass.
    fn pass(&self, recorder: &mut Recorder, counted: &Counted, pass: &Pass<'_>) -> Result<(), DeviceError> {
        match self {
            Table::Serial(passes, tables) => passes.record(recorder, counted, tables, pass),
            Table::Sweeps(sweeps, table) => sweeps.record(recorder, counted, table, pass),
        }
    }
}

impl Sort {
    /// Creates a sort in the form that suits the device.
    pub fn new(gpu: &Gpu) -> Self {
        let capabilities = gpu.capabilities();
        let memory = capabilities.workgroup_bytes;
        match capabilities.profile {
            Profile::Software => Self::with(Form::Software),
            Profile::Gpu if !capabilities.subgroups => Self::of(Form::Portable, GROUP_PORTABLE, memory),
            Profile::Gpu if capabilities.subgroup_least >= 16 => Self::of(Form::Subgroups, SUBGROUPS[1], memory),
            Profile::Gpu => Self::of(Form::Subgroups, SUBGROUPS[0], memory),
        }
    }

    /// In this form, on any device; [`Form::Subgroups`] needs one with
    /// [`subgroups`](crate::gpu::Capabilities::subgroups).
    pub fn with(form: Form) -> Self {
        let group = if form == Form::Portable { GROUP_PORTABLE } else { SUBGROUPS[0] };
        Self::of(form, group, LEAST_WORKGROUP_BYTES)
    }

    fn of(form: Form, group: u32, workgroup_bytes: u32) -> Self {
        let method = match form {
            Form::Software => {
                let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                Method::Serial(Box::new(Passes::new(threads)))
            }
            Form::Portable | Form::Subgroups => Method::Sweeps(Box::new(Sweeps::new(form, group, workgroup_bytes))),
        };
        Sort { form, method, codes: Codes::new(form), runs: Runs::new(form), permute: Permute::new() }
    }

    /// Returns its form.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Records `order[i]` = the index of the i-th key in ascending order, for all keys that count;
    /// equal keys by index. `order` has room for as many; what it has beyond stays as it is. Keys
    /// are not changed.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `order` is too short or one of the keys, or the words of keys
    /// differ in number; as [`Recorder::dispatch`].
    pub fn order<'a>(
        &self,
        recorder: &mut Recorder,
        keys: impl Into<KeysOfBits<'a>>,
        order: &Array<u32>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        self.order_and_ties(recorder, keys, order, count).map(drop)
    }

    /// Returns the order of all keys in a new array; otherwise same as [`order`](Self::order).
    pub(crate) fn ordered<'a>(
        &self,
        recorder: &mut Recorder,
        label: &str,
        keys: impl Into<KeysOfBits<'a>>,
    ) -> Result<Array<u32>, DeviceError> {
        let keys = keys.into();
        let order = recorder.gpu().array(label, keys.keys.len())?;
        self.order(recorder, keys, &order, Count::All)?;
        Ok(order)
    }

    /// Same as [`order`](Self::order). Also returns, in the first word of an array, the number of keys
    /// that were still tied after the passes over codes and were sorted by both words; `None` for
    /// keys that have no codes.
    ///
    /// # Errors
    /// Same as [`order`](Self::order).
    pub fn order_and_ties<'a>(
        &self,
        recorder: &mut Recorder,
        keys: impl Into<KeysOfBits<'a>>,
        order: &Array<u32>,
        count: Count<'_>,
    ) -> Result<Option<Array<u32>>, DeviceError> {
        const WHAT: &str = "Sort::order";
        let KeysOfBits { keys, bits } = keys.into();
        let counted = Counted::new(recorder.gpu(), WHAT, count, keys.len())?;
        holds(WHAT, "order", order.len(), u64::from(counted.most))?;
        if counted.most == 0 {
            return Ok(None);
        }
        match keys.words()? {
            Words::One(keys, flip) => {
                distinct(WHAT, order.raw(), &[keys.raw(), counted.raw()])?;
                self.narrow(recorder, &keys, flip, bits, order, &counted)?;
            }
            Words::Two { high, low } => {
                equally_long(WHAT, &high, &low)?;
                distinct(WHAT, order.raw(), &[high.raw(), low.raw(), counted.raw()])?;
                if bits > 32 {
                    let keys = WideKeys { high: &high, low: &low, bits };
                    return self.wide(recorder, keys, order, &counted).map(Some);
                }
                self.narrow(recorder, &low, Flip::NONE, bits, order, &counted)?;
            }
        }
        Ok(None)
    }

    /// Records the sorting of keys and, along with them, `values`, in place; what does not count
    /// stays where it is.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `values` is too short or one of the keys, or the words of keys
    /// differ in number; as [`Recorder::dispatch`].
    pub fn pairs<'a>(
        &self,
        recorder: &mut Recorder,
        keys: impl Into<KeysOfBits<'a>>,
        values: &Array<u32>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Sort::pairs";
        let of_bits = keys.into();
        let KeysOfBits { keys, bits } = of_bits;
        let gpu = recorder.gpu().clone();
        let counted = Counted::new(&gpu, WHAT, count, keys.len())?;
        let most = u64::from(counted.most);
        holds(WHAT, "values", values.len(), most)?;
        if most == 0 {
            return Ok(());
        }
        match keys.words()? {
            Words::One(keys, flip) => {
                distinct(WHAT, values.raw(), &[keys.raw(), counted.raw()])?;
                distinct(WHAT, keys.raw(), &[counted.raw()])?;
                let digits = digits(self.form, bits);
                let other = [gpu.array::<u32>("sort::keys", most)?, gpu.array("sort::values", most)?];
                let (mut here, mut there) = ([keys, values.clone()], other);
                if !digits.len().is_multiple_of(2) {
                    // An odd number of passes ends in the caller's arrays if it begins in the
                    // others.
                    std::mem::swap(&mut here, &mut there);
                    recorder.copy(&there[0], 0, &here[0], 0, most)?;
                    recorder.copy(&there[1], 0, &here[1], 0, most)?;
                }
                let table = self.method.table(recorder, counted.most)?;
                table.begin(recorder, &counted, &here[0], (bits, flip))?;
                for (number, digit) in digits.into_iter().enumerate() {
                    let (index, to_keys) = (Some(&here[1]), &there[0]);
                    let pass = Pass { number, keys: &here[0], index, to_keys, to_index: &there[1], digit, flip };
                    table.pass(recorder, &counted, &pass)?;
                    std::mem::swap(&mut here, &mut there);
                }
                Ok(())
            }
            Words::Two { high, low } => {
                equally_long(WHAT, &high, &low)?;
                distinct(WHAT, values.raw(), &[high.raw(), low.raw(), counted.raw()])?;
                distinct(WHAT, high.raw(), &[low.raw(), counted.raw()])?;
                distinct(WHAT, low.raw(), &[counted.raw()])?;
                let order = gpu.array::<u32>("sort::order", most)?;
                self.order(recorder, of_bits, &order, count)?;
                let before = gpu.array::<u32>("sort::before", most)?;
                for array in [&high, &low, values] {
                    recorder.copy(array, 0, &before, 0, most)?;
                    self.permute.gather_counted(recorder, &before, &order, array, 1, &counted)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the bytes that [`Sort::order`] reads and writes for `len` keys of one word or two,
    /// of which `bits` bits differ; for two words, the value holds for keys that are not clustered.
    pub fn traffic(&self, wide: bool, bits: u32, len: u64) -> u64 {
        let keys = len.min(u64::from(u32::MAX)) as u32;
        if keys == 0 {
            return 0;
        }
        let tiles = self.method.tiles(keys);
        match bits {
            33.. if wide => {
                // Keys are read and codes written; sorted codes are read twice, to find short and
                // long runs.
                let codes = code_shape(self.form(), bits, keys).bits;
                let words = if bits - codes >= 32 { 1 } else { 2 };
                traffic(self.form, &digits(self.form, codes), tiles, len) + 4 * (words + 1 + 2) * len
            }
            _ => traffic(self.form, &digits(self.form, bits), tiles, len),
        }
    }

    /// Returns the kernels for GPUs if one workgroup sorts all keys.
    fn alone(&self, counted: &Counted) -> Option<&Sweeps> {
        match &self.method {
            Method::Sweeps(sweeps) if counted.most <= sweeps.most_alone() => Some(sweeps),
            _ => None,
        }
    }

    fn narrow(
        &self,
        recorder: &mut Recorder,
        keys: &Array<u32>,
        flip: Flip,
        bits: u32,
        order: &Array<u32>,
        counted: &Counted,
    ) -> Result<(), DeviceError> {
        if let Some(sweeps) = self.alone(counted) {
            return sweeps.alone(recorder, counted, keys, (bits, flip), order);
        }
        let gpu = recorder.gpu().clone();
        let array = |label: &str| gpu.array::<u32>(label, u64::from(counted.most));
        let words = [array("sort::keys")?, array("sort::more_keys")?];
        let sequence = PassSequence { keys, index: None, bits, flip };
        let table = self.method.table(recorder, counted.most)?;
        table.begin(recorder, counted, keys, (bits, flip))?;
        self.sweep(recorder, (counted, &table), &sequence, [order, &array("sort::index")?], &words).map(drop)
    }

    /// Passes over one word, after [`Method::begin`] or what replaces it. The last writes the first
    /// of `indices`; what goes along with the keys, if anything does, is the one of them that the
    /// first pass does not write. Sorted keys go back and forth between `words`; gives those that
    /// the last pass wrote.
    fn sweep(
        &self,
        recorder: &mut Recorder,
        (counted, table): (&Counted, &Table<'_>),
        sequence: &PassSequence<'_>,
        indices: [&Array<u32>; 2],
        words: &[Array<u32>; 2],
    ) -> Result<Array<u32>, DeviceError> {
        let PassSequence { mut keys, mut index, bits, flip } = *sequence;
        let digits = digits(self.form, bits);
        for (k, &digit) in digits.iter().enumerate() {
            let to_index = indices[(digits.len() - 1 - k) % 2];
            let to_keys = &words[usize::from(words[0].raw().shares(keys.raw()))];
            let pass = Pass { number: k, keys, index, to_keys, to_index, digit, flip };
            table.pass(recorder, counted, &pass)?;
            (keys, index) = (to_keys, Some(to_index));
        }
        Ok(keys.clone())
    }
}

/// Returns the kernels of all forms, without the scan and the permutation.
pub(super) fn kernels() -> Vec<KernelSource> {
    let shapes = [(Form::Portable, GROUP_PORTABLE), (Form::Subgroups, SUBGROUPS[0]), (Form::Subgroups, SUBGROUPS[1])];
    let sweeps = shapes.into_iter().flat_map(|(form, group)| sweeps::kernels(form, group));
    let codes = [Form::Software, Form::Portable].map(wide::code_kernels);
    passes::kernels().into_iter().chain(sweeps).chain(codes.into_iter().flatten()).chain(wide::run_kernels()).collect()
}

fn equally_long(what: &str, high: &Array<u32>, low: &Array<u32>) -> Result<(), DeviceError> {
    let why = || format!("{} high words and {} low words", high.len(), low.len());
    DeviceError::ensure(high.len() == low.len(), what, why)
}
