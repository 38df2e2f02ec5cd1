//! Merging of sorted runs, such as the rows that a rank receives from others.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::points::rows::{iota, upload_u32};

crate::gpu::kernel_params! {
    struct MergeParams {
        count: u32,
        runs: u32,
        is_first: u32,
    }
}

/// Returns the kernel that merges runs.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("sort::merge_runs", include_str!("../../../shaders/points/sort/merge_runs.wgsl"))
        .params::<MergeParams>()
}

/// Returns where runs of these lengths begin and end; empty ones are left out.
fn starts_of(lengths: &[u64]) -> Vec<u32> {
    let filled = lengths.iter().filter(|&&length| length > 0);
    let ends = filled.scan(0, |end, &length| {
        *end += length as u32;
        Some(*end)
    });
    [0].into_iter().chain(ends).collect()
}

/// Merges runs of `lengths` keys each, given as high and low words and ascending within each run.
/// Returns the stable order of all keys, and the sorted keys.
///
/// Records one dispatch for each doubling of the number of runs that have keys, after an upload of
/// a word per run; each reads and writes 12 bytes per key and halves the partner of its run. A sort
/// of as many keys takes about 60 dispatches.
///
/// # Errors
/// [`DeviceError`] if device memory is short.
pub(super) fn merge(
    recorder: &mut Recorder,
    [high, low]: [&Array<u32>; 2],
    lengths: &[u64],
) -> Result<(Array<u32>, [Array<u32>; 2]), DeviceError> {
    let (gpu, count) = (recorder.gpu().clone(), high.len());
    let mut starts = starts_of(lengths);
    if starts.len() <= 2 {
        return Ok((iota(recorder, 0, count)?, [high.clone(), low.clone()]));
    }
    let kernel = Kernel::trusted(kernel());
    let array = || gpu.array::<u32>("sort::merged", count);
    let mut words = [high.clone(), low.clone(), high.clone()];
    let mut spare: Option<[Array<u32>; 3]> = None;
    let mut is_first = true;
    while starts.len() > 2 {
        let to = match spare.take() {
            Some(spare) => spare,
            None => [array()?, array()?, array()?],
        };
        let runs = starts.len() as u32 - 1;
        let bounds = upload_u32(recorder, &starts)?;
        let arrays: Vec<_> = [&bounds].into_iter().chain(&words).chain(&to).map(Array::raw).collect();
        recorder.each(
            &kernel,
            &arrays,
            &MergeParams { count: count as u32, runs, is_first: is_first.into() },
            count,
        )?;
        // The caller's keys are not overwritten.
        let done = std::mem::replace(&mut words, to);
        spare = (!is_first).then_some(done);
        is_first = false;
        let end = starts.pop();
        starts = starts.into_iter().step_by(2).chain(end).collect();
    }
    let [high, low, order] = words;
    Ok((order, [high, low]))
}

/// Returns the bytes that [`merge`] reads and writes: 24 per key and pass, besides the probes of
/// partners.
pub(super) fn merge_traffic(lengths: &[u64]) -> u64 {
    let runs = lengths.iter().filter(|&&length| length > 0).count().max(1);
    24 * lengths.iter().sum::<u64>() * u64::from(runs.next_power_of_two().ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, Options};

    /// Merges runs and compares with a stable sort of the host.
    fn check(recorder: &mut Recorder, runs: &[Vec<u64>]) {
        let mut runs = runs.to_vec();
        runs.iter_mut().for_each(|run| run.sort_unstable());
        let keys = runs.concat();
        let lengths: Vec<u64> = runs.iter().map(|run| run.len() as u64).collect();
        let words = |shift: u32| keys.iter().map(|key| (key >> shift) as u32).collect::<Vec<u32>>();
        let [high, low] = [32, 0].map(|shift| upload_u32(recorder, &words(shift)).unwrap());
        let (order, sorted) = merge(recorder, [&high, &low], &lengths).unwrap();
        let mut want: Vec<u32> = (0..keys.len() as u32).collect();
        want.sort_by_key(|&at| keys[at as usize]);
        let count = keys.len() as u64;
        assert_eq!(recorder.download(&order, 0, count).unwrap(), want);
        for (words, shift) in sorted.iter().zip([32, 0]) {
            let want: Vec<u32> = want.iter().map(|&at| (keys[at as usize] >> shift) as u32).collect();
            assert_eq!(recorder.download(words, 0, count).unwrap(), want);
        }
        assert_eq!(recorder.download(&high, 0, count).unwrap(), words(32), "the input stays");
    }

    #[test]
    fn runs_are_merged_as_by_a_stable_sort() {
        let mut recorder = Recorder::new(&Gpu::open(&Options::from_env().unwrap(), 0).unwrap()).unwrap();
        check(&mut recorder, &[vec![]]);
        check(&mut recorder, &[vec![], vec![3, 1], vec![]]);
        check(&mut recorder, &[vec![5; 4], vec![5; 3], vec![], vec![5; 2]]);
        check(&mut recorder, &[vec![u64::MAX >> 1, 0], vec![1 << 32, 1 << 31], vec![7]]);
        let mut state = 3u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 8
        };
        for count in 1..20 {
            // From few different keys, with many ties, to keys that differ in both words.
            let shift = 8 + count * 2;
            let run = |random: &mut dyn FnMut() -> u64| (0..random() % 90).map(|_| random() >> shift).collect();
            let runs: Vec<Vec<u64>> = (0..count).map(|_| run(&mut random)).collect();
            check(&mut recorder, &runs);
        }
    }

    #[test]
    fn a_thousand_runs_take_ten_passes() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        let runs: Vec<Vec<u64>> = (0..1000).map(|run| vec![run * 7919 % 1000, 1_000_000 - run]).collect();
        check(&mut recorder, &runs);
        assert_eq!(recorder.counts().dispatches, 10);
    }
}
