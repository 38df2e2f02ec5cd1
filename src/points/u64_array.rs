//! 64-bit numbers on the device: indices of points in the input of all ranks, labels of groups.

use crate::gpu::primitives::{Count, Keys, Permute, Sort};
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, Recorder};
use crate::host_memory;

/// 64-bit numbers without sign in one word each where that is enough, else in two.
///
/// All ones, in one word or two, stand for `u64::MAX`: "none". Which form an array has follows from
/// the largest number that could be in it, which is the same on all ranks.
#[derive(Clone)]
pub struct U64Array {
    /// The low words and, in the second form, the high ones.
    pub(crate) words: Vec<Array<u32>>,
}

crate::gpu::kernel_params! {
    struct AddParams {
        first: [u32; 2],
        count: u32,
        pad: u32,
    }
}

crate::gpu::kernel_params! {
    struct SelectParams {
        count: u32,
        words: u32,
    }
}

fn add(two: bool) -> KernelSource {
    KernelSource::new("u64_array::add", include_str!("../../shaders/points/u64/add.wgsl"))
        .params::<AddParams>()
        .flag("two", two)
}

fn select() -> KernelSource {
    KernelSource::new("u64_array::select", include_str!("../../shaders/points/u64/select.wgsl"))
        .params::<SelectParams>()
}

/// Returns the kernels of both forms.
pub(super) fn kernels() -> Vec<KernelSource> {
    vec![add(false), add(true), select()]
}

/// Words per number where each is less than `below`, which leaves all ones free.
fn words_below(below: u64) -> usize {
    if below <= u64::from(u32::MAX) { 1 } else { 2 }
}

impl U64Array {
    /// These numbers, each below 2^32 - 1; all ones are none.
    pub(crate) fn of_words(words: &Array<u32>) -> Self {
        U64Array { words: vec![words.clone()] }
    }

    /// `first + numbers[i]`, each less than `below`. Recorded only.
    pub(crate) fn sum(
        recorder: &mut Recorder,
        first: u64,
        numbers: &Array<u32>,
        below: u64,
    ) -> Result<Self, DeviceError> {
        let (gpu, count) = (recorder.gpu().clone(), numbers.len());
        let words = (0..words_below(below)).map(|_| gpu.array("points::numbers", count));
        let words = words.collect::<Result<Vec<Array<u32>>, _>>()?;
        let params = AddParams { first: [first as u32, (first >> 32) as u32], count: count as u32, pad: 0 };
        let arrays: Vec<_> = [numbers].into_iter().chain(&words).map(Array::raw).collect();
        recorder.each(&Kernel::trusted(add(words.len() == 2)), &arrays, &params, count)?;
        Ok(U64Array { words })
    }

    /// Numbers of the host, each less than `below`. Submits.
    pub(crate) fn upload(recorder: &mut Recorder, numbers: &[u64], below: u64) -> Result<Self, DeviceError> {
        let mut words = Vec::new();
        for shift in [0, 32].into_iter().take(words_below(below)) {
            let word =
                host_memory::collect("indices of points", numbers.iter().map(|number| (number >> shift) as u32))?;
            words.push(recorder.uploaded("points::numbers", &word)?);
        }
        Ok(U64Array { words })
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words[0].len()
    }

    /// Returns `true` if it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the numbers whose words `change` makes from the words of these.
    pub(crate) fn map<E>(&self, change: impl FnMut(&Array<u32>) -> Result<Array<u32>, E>) -> Result<Self, E> {
        Ok(U64Array { words: self.words.iter().map(change).collect::<Result<_, _>>()? })
    }

    /// Returns the numbers whose words `join` makes from the words of these and of others of the
    /// same form.
    pub(crate) fn zip<E>(
        &self,
        others: &U64Array,
        mut join: impl FnMut(&Array<u32>, &Array<u32>) -> Result<Array<u32>, E>,
    ) -> Result<Self, E> {
        let words = self.words.iter().zip(&others.words).map(|(own, other)| join(own, other));
        Ok(U64Array { words: words.collect::<Result<_, _>>()? })
    }

    /// Returns the numbers at `index`, `u64::MAX` for an index beyond the end. Recorded only.
    pub(crate) fn select(&self, recorder: &mut Recorder, index: &Array<u32>) -> Result<Self, DeviceError> {
        let (kernel, count) = (Kernel::trusted(select()), index.len());
        let params = SelectParams { count: count as u32, words: self.len() as u32 };
        self.map(|words| {
            let selected = recorder.gpu().array("points::numbers", count)?;
            recorder.each(&kernel, &[words.raw(), index.raw(), selected.raw()], &params, count)?;
            Ok(selected)
        })
    }

    /// These numbers, but others of the same form in the places `at`. Recorded only.
    pub(crate) fn replaced(
        &self,
        recorder: &mut Recorder,
        at: &Array<u32>,
        others: &U64Array,
    ) -> Result<Self, DeviceError> {
        let permute = Permute::new();
        self.zip(others, |own, others| {
            let words = recorder.gpu().array("points::numbers", own.len())?;
            recorder.copy(own, 0, &words, 0, own.len())?;
            permute.scatter(recorder, others, at, &words, 1, Count::All)?;
            Ok(words)
        })
    }

    /// Returns the stable order of the numbers, each less than `below`. Recorded only.
    pub(crate) fn order(&self, recorder: &mut Recorder, below: u64) -> Result<Array<u32>, DeviceError> {
        let keys = match self.words.as_slice() {
            [low, high] => Keys::U64 { high, low },
            words => Keys::U32(&words[0]),
        };
        let bits = (u64::BITS - below.saturating_sub(1).leading_zeros()).max(1);
        Sort::new(recorder.gpu()).ordered(recorder, "points::order", keys.bits(bits))
    }

    /// Downloads the numbers, put together as they are copied. Blocks.
    ///
    /// # Errors
    /// [`DeviceError`] if the device fails.
    pub fn download(&self, recorder: &mut Recorder) -> Result<Vec<u64>, DeviceError> {
        Ok(self.download_with(recorder, None::<&Array<u32>>)?.0)
    }

    /// Downloads the numbers and other values with one wait, if they are not many.
    pub(crate) fn download_with<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        values: Option<&Array<T>>,
    ) -> Result<(Vec<u64>, Vec<T>), DeviceError> {
        let mut numbers: Vec<u64> = host_memory::zeros("indices of points", self.len() as usize)?;
        let mut others: Vec<T> = host_memory::zeros("values of an array", values.map_or(0, Array::len) as usize)?;
        let one = self.words.len() == 1;
        let mut done = [0; 3];
        let arrays: Vec<_> = self.words.iter().map(Array::raw).chain(values.map(Array::raw)).collect();
        recorder.download_together(&arrays, |array, piece| {
            let begin = done[array];
            if array == self.words.len() {
                let piece: &[T] = bytemuck::cast_slice(piece);
                others[begin..][..piece.len()].copy_from_slice(piece);
                done[array] += piece.len();
                return;
            }
            let piece: &[u32] = bytemuck::cast_slice(piece);
            for (&word, number) in piece.iter().zip(&mut numbers[begin..]) {
                let none = one && word == u32::MAX;
                *number |= if none { u64::MAX } else { u64::from(word) << (32 * array) };
            }
            done[array] += piece.len();
        })?;
        Ok((numbers, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};
    use crate::points::{chained, upload_u32};

    /// All that arrays can do, compared with vectors, for numbers below `below` of which the first
    /// is `first`.
    fn check(recorder: &mut Recorder, first: u64, below: u64, form: usize) {
        let rows: Vec<u32> = (0..1000).map(|i| i * 7919 % 1000).collect();
        let words = upload_u32(recorder, &rows).unwrap();
        let array = U64Array::sum(recorder, first, &words, below).unwrap();
        let mut want: Vec<u64> = rows.iter().map(|&row| first + u64::from(row)).collect();
        assert_eq!((array.words.len(), array.len()), (form, 1000));
        assert_eq!(array.download(recorder).unwrap(), want);
        let order = array.order(recorder, below).unwrap();
        let order = recorder.download(&order, 0, 1000).unwrap();
        assert!(order.iter().map(|&i| rows[i as usize]).eq(0..1000));

        let others = U64Array::upload(recorder, &[below - 1, 0, below / 2], below).unwrap();
        let places = upload_u32(recorder, &[999, 0, 500]).unwrap();
        let replaced = array.replaced(recorder, &places, &others).unwrap();
        let both = replaced.zip(&others, |own, others| chained(recorder, own, others)).unwrap();
        for (place, number) in [(999, below - 1), (0, 0), (500, below / 2)] {
            want[place] = number;
        }
        want.extend([below - 1, 0, below / 2]);
        assert_eq!(both.download(recorder).unwrap(), want);
        let index = upload_u32(recorder, &[1002, u32::MAX, 0, 1003]).unwrap();
        let selected = both.select(recorder, &index).unwrap().download(recorder).unwrap();
        assert_eq!(selected, [want[1002], u64::MAX, want[0], u64::MAX], "none behind the last");
    }

    #[test]
    fn numbers_take_one_word_or_two() {
        let mut recorder = Recorder::new(&Gpu::open(&Options::from_env().unwrap(), 0).unwrap()).unwrap();
        let one = u64::from(u32::MAX);
        check(&mut recorder, 0, 1000, 1);
        check(&mut recorder, one - 1000, one, 1);
        check(&mut recorder, one - 500, one + 500, 2);
        check(&mut recorder, 5 << 32, 7 << 40, 2);
        let none = U64Array::upload(&mut recorder, &[], 5).unwrap();
        assert_eq!(none.order(&mut recorder, 0).unwrap().len(), 0);
        assert!(none.download(&mut recorder).unwrap().is_empty());
    }
}
